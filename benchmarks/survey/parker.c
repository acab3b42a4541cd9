/* Parks its own process from a native thread, which never holds the GIL: lock, checkpoint, a pause, restore, unlock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { LOCK, CHECKPOINT, RESTORE, UNLOCK, STEPS };

/* Twin of Park in parking.py. Times are CLOCK_MONOTONIC in seconds; a code of -1 means: not called. */
struct park {
    volatile int32_t phase;    /* the number of steps that have ended */
    volatile int32_t go_on;    /* 1: the pause ends now */
    int32_t only_lock;         /* 1: neither checkpoint nor restore */
    uint32_t timeout;          /* of the lock, in ms; 0: none */
    double pause;              /* seconds after the lock, or after the checkpoint */
    int32_t code[STEPS];
    double began[STEPS], ended[STEPS];
    volatile int32_t done;
};

typedef int (*checkpoint_call)(int pid, void *arguments);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int step(struct park *park, int number, const char *name) {
    static void *driver;
    uint64_t arguments[16] = {number == LOCK ? park->timeout : 0};
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    checkpoint_call call = driver ? (checkpoint_call)dlsym(driver, name) : NULL;
    park->began[number] = now();
    park->code[number] = call ? call(getpid(), arguments) : -2;
    park->ended[number] = now();
    park->phase = number + 1;
    return park->code[number] == 0;
}

static void pause_for(struct park *park) {
    double end = now() + park->pause;
    while (!park->go_on && now() < end) usleep(1000);
}

static void *run(void *argument) {
    struct park *park = argument;
    if (step(park, LOCK, "cuCheckpointProcessLock")) {
        int parked = !park->only_lock && step(park, CHECKPOINT, "cuCheckpointProcessCheckpoint");
        pause_for(park);
        if (parked) step(park, RESTORE, "cuCheckpointProcessRestore");
        step(park, UNLOCK, "cuCheckpointProcessUnlock");
    }
    park->done = 1;
    return NULL;
}

int park_start(struct park *park) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, park);
    return error ? error : pthread_detach(thread);
}
