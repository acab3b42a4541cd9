/* Settings from the environment, cuInit, and the opening of devices. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "JUPYTER_GPU_STANDIN"
#define DEFAULT_GPUS "GPU-00000000-0000-4000-8000-000000000000:16384"

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
struct device standin_devices[MAX_DEVICES];
int standin_count;
int standin_state = NOT_INITIALIZED;
uint64_t standin_default_us = 10;
uint64_t standin_copy_rate = 25000;
uint64_t standin_context;
int standin_version = 13000;

struct setting {
    char name[48], uuid[16], node[128]; /* node: empty if none is named */
    uint64_t megabytes;
};

static struct setting gpus[MAX_DEVICES];
static int count;
static char folder[2048];
static uint64_t entries = 65536;

static CUresult wrong(const char *what, const char *value, const char *why) {
    fprintf(stderr, "stand-in GPU: %s%s is %s: %s\n", VARIABLE, what, value, why);
    return UNKNOWN;
}

CUresult standin_number(const char *what, uint64_t most, uint64_t *number) {
    char name[64], *end;
    snprintf(name, sizeof name, "%s%s", VARIABLE, what);
    const char *value = getenv(name);
    if (!value || !*value) return OK;
    errno = 0;
    unsigned long long read = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || read > most) return wrong(what, value, "not such a number");
    *number = read;
    return OK;
}

/* Parse "GPU-" and a UUID into 16 bytes. */
static int read_uuid(const char *text, char uuid[16]) {
    int digits = 0;
    if (strncmp(text, "GPU-", 4)) return 0;
    for (const char *c = text + 4; *c; c++) {
        if (*c == '-') continue;
        if (!isxdigit((unsigned char)*c) || digits == 32) return 0;
        int digit = isdigit((unsigned char)*c) ? *c - '0' : tolower((unsigned char)*c) - 'a' + 10;
        uuid[digits / 2] = (char)(digits % 2 ? (uuid[digits / 2] & 0xf0) | digit : digit << 4);
        digits++;
    }
    return digits == 32;
}

/* Parse a list of UUID:MiB; return how many, or -1. */
static int read_gpus(const char *value) {
    char list[2048], *rest = list, *part, *end = "";
    int found = 0;
    snprintf(list, sizeof list, "%s", value);
    for (; *value && (part = strsep(&rest, ",")); found++) {
        if (found == MAX_DEVICES) return -1;
        struct setting *gpu = &gpus[found];
        char *size = strchr(part, ':');
        gpu->megabytes = 16384;
        if (size) {
            *size++ = 0;
            gpu->megabytes = strtoull(size, &end, 10);
        }
        if (!read_uuid(part, gpu->uuid) || !gpu->megabytes || *end) return -1;
        snprintf(gpu->name, sizeof gpu->name, "%s", part);
    }
    return found;
}

/* Parse the paths of the GPUs' device nodes, in their order; a GPU without one has none. */
static void read_nodes(const char *value) {
    char list[2048], *rest = list, *part;
    snprintf(list, sizeof list, "%s", value ? value : "");
    for (int i = 0; i < count && (part = strsep(&rest, ",")); i++) snprintf(gpus[i].node, sizeof gpus[i].node, "%s", part);
}

/* Return the GPU that an entry of CUDA_VISIBLE_DEVICES means, an index or the beginning of a UUID; or -1. */
static int named(const char *entry) {
    char *end;
    long index = strtol(entry, &end, 10);
    if (end != entry && !*end) return index >= 0 && index < count ? (int)index : -1;
    for (int i = 0; i < count; i++)
        if (strlen(entry) > 4 && !strncmp(entry, gpus[i].name, strlen(entry))) return i;
    return -1;
}

static CUresult open_node(struct device *device, const struct setting *gpu) {
    device->node = *gpu->node ? open(gpu->node, O_RDWR | O_CLOEXEC) : -1;
    return *gpu->node && device->node < 0 ? NOT_SUPPORTED : OK;
}

/* A GPU whose node may not be opened does not exist for this process. */
static CUresult open_device(const struct setting *gpu) {
    struct device *device = &standin_devices[standin_count];
    if (open_node(device, gpu)) return OK;
    int failed = board_open(&device->board, folder, gpu->name, gpu->megabytes << 20, (uint32_t)entries,
                            getenv(VARIABLE "_OWNER"));
    if (failed) return wrong("", folder, strerror(failed));
    device->memory = device->board.sheet->memory;
    device->pool = device->default_pool = make_pool(standin_count);
    device->bus = (int)(gpu - gpus) + 1;
    memcpy(device->uuid, gpu->uuid, sizeof device->uuid);
    standin_count++;
    return OK;
}

void device_close(struct device *device) {
    board_close(&device->board);
    if (device->node >= 0) close(device->node);
    device->node = -1;
}

static const struct setting *of_uuid(const char uuid[16]) {
    for (int i = 0; i < count; i++)
        if (!memcmp(gpus[i].uuid, uuid, sizeof gpus[i].uuid)) return &gpus[i];
    return NULL;
}

int device_fits(const struct device *device, const char uuid[16]) {
    const struct setting *gpu = of_uuid(uuid);
    return gpu && gpu->megabytes << 20 == device->memory;
}

CUresult device_reopen(struct device *device, const char uuid[16]) {
    const struct setting *gpu = of_uuid(uuid);
    if (open_node(device, gpu)) return NOT_SUPPORTED;
    int failed = board_reopen(&device->board, folder, gpu->name, device->memory, (uint32_t)entries, getenv(VARIABLE "_OWNER"));
    if (failed && failed != ENOSPC) return wrong("", folder, strerror(failed));
    memcpy(device->uuid, gpu->uuid, sizeof device->uuid);
    if (!fault_is("stale-pci")) device->bus = (int)(gpu - gpus) + 1;
    return failed ? OUT_OF_MEMORY : OK;
}

/* Open all devices, or those of CUDA_VISIBLE_DEVICES up to the first that does not exist. */
static CUresult open_devices(void) {
    const char *value = getenv(VARIABLE "_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    memset(gpus, 0, sizeof gpus);
    count = read_gpus(value ? value : DEFAULT_GPUS);
    if (count < 0) return wrong("_GPUS", value, "not a list of up to 16 GPU-UUID:MiB");
    read_nodes(getenv(VARIABLE "_NODES"));
    CUresult failed = OK;
    for (int i = 0; !visible && !failed && i < count; i++) failed = open_device(&gpus[i]);
    char list[2048], *rest = list, *part;
    snprintf(list, sizeof list, "%s", visible ? visible : "");
    while (visible && !failed && standin_count < MAX_DEVICES && (part = strsep(&rest, ","))) {
        int index = named(part);
        if (index < 0) break;
        failed = open_device(&gpus[index]);
    }
    return failed ? failed : standin_count ? OK : NO_DEVICE;
}

/* As with a real driver, a forked child cannot use the driver that its parent has initialized. */
static void in_child(void) {
    standin_state = NOT_INITIALIZED;
    standin_count = -1;
}

static CUresult start(void) {
    uint64_t asked = (uint64_t)standin_version;
    const char *value = getenv(VARIABLE);
    if (value && *value) snprintf(folder, sizeof folder, "%s", value);
    else snprintf(folder, sizeof folder, "/dev/shm/jupyter-gpu-standin-%d", (int)getuid());
    CUresult failed = standin_number("_LOG", UINT64_C(1) << 26, &entries);
    if (!failed) failed = standin_number("_US", UINT64_C(1) << 32, &standin_default_us);
    if (!failed) failed = standin_number("_COPY", UINT64_C(1) << 32, &standin_copy_rate);
    if (!standin_copy_rate) standin_copy_rate = 1;
    if (!failed) failed = standin_number("_CONTEXT", 65536, &standin_context);
    standin_context <<= 20;
    if (!failed) failed = standin_number("_VERSION", 99999, &asked);
    standin_version = (int)asked;
    if (!entries) entries = 1;
    if (!failed) failed = open_devices();
    if (!failed) pthread_atfork(NULL, NULL, in_child);
    return failed;
}

API CUresult cuInit(unsigned flags) {
    ENTER(WAITS);
    if (flags) return INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    int again = standin_state == NOT_INITIALIZED || standin_state == NO_DEVICE; /* a real driver looks again */
    if (again && standin_count == 0) standin_state = start();
    CUresult state = standin_state;
    pthread_mutex_unlock(&standin_lock);
    return state;
}
