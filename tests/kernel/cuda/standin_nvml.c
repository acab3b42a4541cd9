/* Stands for NVML, as driver 580 behaves (docs/designs/real-gpu.md): it opens and counts the GPUs of its first initialisation, until
 * it has been shut down as often; a handle is a place in its table, valid once somebody has asked for it; a thread that is inside
 * when it is shut down never returns. The file named by STANDIN_NVML has a line for each GPU: a UUID and the path of its device. A
 * device that cannot be opened is not counted. While the stand-in driver of its process is locked or parked every call waits, and
 * while it is parked nothing is open. STANDIN_NVML_SLOW: milliseconds that an initialisation takes besides. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, MOST = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu { char uuid[96], path[512]; int file, valid; } gpus[MOST];
static int count, initialised, generation;

/* Called by the driver: close the devices, or open them again. */
static void parked(int is_parked) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        if (is_parked) close(gpus[i].file), gpus[i].file = -1;
        else gpus[i].file = open(gpus[i].path, O_RDONLY | O_CLOEXEC);
    pthread_mutex_unlock(&lock);
}

/* If the program has loaded the driver: let it tell us when it parks the process, and wait while it is not running. */
static void wait_while_parked(void) {
    struct { size_t size; void (*parked)(int); } *watcher;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*table)(const void **, const char *) = driver ? (int (*)(const void **, const char *))dlsym(driver, "cuGetExportTable") : NULL;
    int (*state)(int, int *) = driver ? (int (*)(int, int *))dlsym(driver, "cuCheckpointProcessGetState") : NULL;
    if (table && !table((const void **)&watcher, "stand-in parking")) watcher->parked = parked;
    for (int now = 0; state && !state(getpid(), &now) && now; now = 0) usleep(1000);
}

static void open_gpus(void) {
    char uuid[96], path[512];
    FILE *list = fopen(getenv("STANDIN_NVML"), "r");
    count = 0;
    while (list && count < MOST && fscanf(list, "%95s %511s", uuid, path) == 2) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        gpus[count].file = file, gpus[count].valid = 0;
        strcpy(gpus[count].path, path);
        strcpy(gpus[count++].uuid, uuid);
    }
    if (list) fclose(list);
}

int nvmlInit_v2(void) {
    wait_while_parked();
    if (getenv("STANDIN_NVML_SLOW")) usleep(1000 * (unsigned)atoi(getenv("STANDIN_NVML_SLOW")));
    pthread_mutex_lock(&lock);
    if (!initialised++) open_gpus();
    pthread_mutex_unlock(&lock);
    return OK;
}

int nvmlInit(void) { return nvmlInit_v2(); }

int nvmlInitWithFlags(unsigned flags) { return flags ? INVALID_ARGUMENT : nvmlInit_v2(); }

int nvmlShutdown(void) {
    wait_while_parked();
    pthread_mutex_lock(&lock);
    int result = initialised ? OK : UNINITIALIZED;
    if (!result && !--initialised) {
        while (count) close(gpus[--count].file), gpus[count].valid = 0;
        generation++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Begin a call that takes a while, and end it. */
static int inside(void) {
    wait_while_parked();
    pthread_mutex_lock(&lock);
    int result = initialised ? OK : UNINITIALIZED, mine = generation;
    pthread_mutex_unlock(&lock);
    if (!result) usleep(200);
    pthread_mutex_lock(&lock);
    int lost = mine != generation;
    pthread_mutex_unlock(&lock);
    while (!result && lost) pause();
    return result;
}

int nvmlDeviceGetCount_v2(unsigned *to) {
    int result = inside();
    if (!result) *to = (unsigned)count;
    return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **to) {
    int result = inside();
    if (result) return result;
    if (index >= (unsigned)count) return INVALID_ARGUMENT;
    *to = &gpus[index];
    gpus[index].valid = 1;
    return OK;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *to, unsigned size) {
    int result = inside();
    if (result) return result;
    if (gpu < gpus || gpu >= gpus + MOST || !gpu->valid) return INVALID_ARGUMENT;
    return snprintf(to, size, "%s", gpu->uuid) < 0;
}

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long *to) {
    int result = inside();
    if (result) return result;
    if (gpu < gpus || gpu >= gpus + MOST || !gpu->valid) return INVALID_ARGUMENT;
    to[0] = to[1] = 64 << 20, to[2] = 0;
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned *to) {
    unsigned long long memory[3];
    to[0] = to[1] = 0;
    return nvmlDeviceGetMemoryInfo(gpu, memory);
}

const char *nvmlErrorString(int result) { return result == UNINITIALIZED ? "Uninitialized" : "Invalid Argument"; }

/* A function that no header names. */
int standin_unlisted(void) { return 42; }
