/* A CUDA program with several threads and GPUs that allocate: memory COMMAND SIZE */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *library, *contexts[2];
static long size;
static _Atomic long refused;

static int call(const char *symbol, uintptr_t a, uintptr_t b, uintptr_t c) {
    return ((int (*)(uintptr_t, uintptr_t, uintptr_t))dlsym(library, symbol))(a, b, c);
}

#define CALL(symbol, a, b, c) \
    do { int r_ = call(symbol, (uintptr_t)(a), (uintptr_t)(b), (uintptr_t)(c)); if (r_) { fprintf(stderr, "%s: %d\n", symbol, r_); exit(3); } } while (0)

static int allocate(uint64_t *at, long bytes) { return call("cuMemAlloc_v2", (uintptr_t)at, (uintptr_t)bytes, 0); }

static void *one(void *context) {
    uint64_t at;
    CALL("cuCtxSetCurrent", context, 0, 0);
    printf("allocated %d\n", allocate(&at, size));
    fflush(stdout);
    return NULL;
}

static void *many(void *context) {
    CALL("cuCtxSetCurrent", context, 0, 0);
    for (int round = 0; round < 300; round++) {
        uint64_t at[2];
        for (int i = 0; i < 2; i++)
            if (allocate(&at[i], size)) {
                refused++;
                at[i] = 0;
            }
        for (int i = 0; i < 2; i++)
            if (at[i]) CALL("cuMemFree_v2", at[i], 0, 0);
    }
    return NULL;
}

static void line(void) {
    char text[64];
    if (!fgets(text, sizeof text, stdin)) exit(6);
}

int main(int count, char **arguments) {
    pthread_t threads[16];
    (void)count;
    size = atol(arguments[2]);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) exit(4);
    CALL("cuInit", 0, 0, 0);
    int gpus;
    CALL("cuDeviceGetCount", &gpus, 0, 0);
    for (int i = 0; i < gpus && i < 2; i++) CALL("cuDevicePrimaryCtxRetain", &contexts[i], i, 0);
    CALL("cuCtxSetCurrent", contexts[0], 0, 0);
    if (!strcmp(arguments[1], "info")) { /* while another thread waits for memory */
        size_t left, all;
        line();
        CALL("cuMemGetInfo_v2", &left, &all, 0);
        printf("%zu %zu\n", left, all);
        fflush(stdout);
        line();
        pthread_create(&threads[0], NULL, one, contexts[0]);
        line();
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        CALL("cuMemGetInfo_v2", &left, &all, 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%zu %zu\n%ld\n", left, all, (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
        fflush(stdout);
        line();
        exit(0);
    } else if (!strcmp(arguments[1], "two")) { /* on one GPU while the other has no server */
        pthread_create(&threads[0], NULL, one, contexts[0]);
        line();
        one(contexts[1]);
        exit(0);
    } else { /* by many threads, each as much at a time as fits */
        for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, many, contexts[0]);
        for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
        printf("refused %ld\n", refused);
    }
    return 0;
}
