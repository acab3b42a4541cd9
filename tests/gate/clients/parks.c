/* All of the gate built into this program, which asks it to be parked, on the stand-in driver.
 *
 *     parks threads COUNT TIMES   threads make all kinds of calls while the process is parked again and again: print how it went
 *     parks inside                a thread is in a call that would end the process: print the answers until it leaves, and then
 *     parks waiting               a thread on its way to such a call waits at an entry
 *     parks exit                  end while parked, with threads that wait and handlers that call
 *     parks thread                a thread with work in its own default stream ends while parked
 *     parks leaves US FORKS       threads call, one parks and returns in a loop, children are forked; then end, wherever that is
 *     parks rate TIMES            print the ns of a query by its entry, and directly
 */
#define _GNU_SOURCE
#include "connection/share.h"
#include "parking/marks.h"
#include "parking/park.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 128, BYTES = 4096, PATIENCE = 60000 };

CUresult cuInit(unsigned), cuCtxCreate_v2(CUcontext *, unsigned, CUdevice), cuCtxSetCurrent(CUcontext), cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr), cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream), cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t), cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuEventCreate(CUevent *, unsigned), cuEventRecord(CUevent, CUstream), cuEventDestroy_v2(CUevent), cuEventSynchronize(CUevent);
CUresult cuEventQuery(CUevent), cuEventElapsedTime(float *, CUevent, CUevent);
CUresult cuStreamCreate(CUstream *, unsigned), cuStreamQuery(CUstream), cuStreamSynchronize(CUstream), cuStreamDestroy_v2(CUstream);
CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static CUcontext context;
static CUfunction kernel;

static _Atomic bool leaving; /* calls may fail */

static void need(int fine, int line) {
    if (fine) return;
    while (leaving) pause();
    fprintf(stderr, "parks.c: line %d\n", line);
    _exit(3);
}
#define NEED(fine) need(fine, __LINE__)

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

static struct park_answer park(void) {
    struct park_answer answer;
    NEED(jupyter_gpu_park(2000, PATIENCE, &answer) == 0);
    return answer;
}

static struct park_answer back(void) {
    struct park_answer answer;
    NEED(jupyter_gpu_return(0, PATIENCE, &answer) == 0);
    return answer;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static _Atomic bool over;
static _Atomic long done, wrong;

static void allocates(CUstream stream, long number) {
    CUdeviceptr own;
    long copy = 0;
    NEED(!cuMemAlloc_v2(&own, BYTES) && !cuMemcpyHtoD_v2(own, &number, sizeof number));
    NEED(!cuMemcpyDtoH_v2(&copy, own, sizeof copy));
    wrong += copy != number;
    NEED(!cuMemFree_v2(own));
}

static void allocates_later(CUstream stream, long number) {
    CUdeviceptr own;
    NEED(!cuMemAllocAsync(&own, BYTES, stream) && !cuMemFreeAsync(own, stream));
}

static void launches(CUstream stream, long number) {
    NEED(!cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) && !cuStreamSynchronize(stream));
}

static void asks(CUstream stream, long number) {
    CUevent one, two;
    float ms;
    NEED(!cuEventCreate(&one, 0) && !cuEventCreate(&two, 0) && !cuEventRecord(one, stream) && !cuEventRecord(two, stream));
    while (cuEventQuery(two) != CUDA_SUCCESS || cuStreamQuery(stream) != CUDA_SUCCESS) continue;
    NEED(!cuEventSynchronize(two) && !cuEventElapsedTime(&ms, one, two) && !cuCtxSynchronize());
    NEED(!cuEventDestroy_v2(one) && !cuEventDestroy_v2(two));
}

static void loads(CUstream stream, long number) {
    CUmodule module;
    CUstream own;
    NEED(!cuModuleLoadData(&module, "image") && !cuModuleUnload(module));
    NEED(!cuStreamCreate(&own, 1) && !cuStreamDestroy_v2(own));
}

static void *works(void *data) {
    static void (*const kinds[])(CUstream, long) = {allocates, allocates_later, launches, asks, loads};
    long number = (long)data;
    CUstream stream;
    NEED(!cuCtxSetCurrent(context) && !cuStreamCreate(&stream, 1));
    for (long round = number; !over; round++, done++) kinds[round % 5](stream, number);
    return NULL;
}

static size_t free_bytes(void) {
    size_t available, total;
    NEED(!cuMemGetInfo_v2(&available, &total));
    return available;
}

static void threads(long count, long times) {
    pthread_t all[MOST];
    long parked = 0, busy = 0, moved = 0;
    size_t before = free_bytes();
    for (long i = 0; i < count; i++) pthread_create(&all[i], NULL, works, (void *)i);
    for (long round = 0; round < times; round++) {
        struct park_answer answer = park();
        if (answer.state == PARK_PARKED) {
            long stopped = (nap(1000000), done);
            nap(500000);
            moved += done > stopped + count; /* one that is between its last two calls gives back, and counts */
            parked++;
            NEED(back().state == PARK_RUNNING);
        } else {
            NEED(answer.state == PARK_RUNNING && answer.code == CUDA_ERROR_NOT_READY);
            busy++;
        }
        for (long stopped = done; done < stopped + count;) nap(50000);
    }
    over = true;
    for (long i = 0; i < count; i++) pthread_join(all[i], NULL);
    NEED(!cuCtxSynchronize()); /* so that pools keep nothing */
    printf("parked %ld busy %ld moved %ld wrong %ld lost %zu\n", parked, busy, moved, wrong, before - free_bytes());
}

/* --- one thread --------------------------------------------------------------------------------------------------- */

static _Atomic int inside; /* 1: a thread is; 2: it may leave; 3: it has left */

static void *enters(void *unused) {
    struct mark *mark = mark_enter();
    for (inside = 1; inside == 1;) nap(1000000);
    mark_leave(mark);
    inside = 3;
    return unused;
}

static void print(struct park_answer answer) { printf("%d %d %d\n", answer.state, answer.step, answer.code); }

static void is_inside(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, enters, NULL);
    while (!inside) nap(1000000);
    print(park());
    allocates(NULL, 1);
    for (inside = 2; inside == 2;) nap(1000000);
    print(park());
    print(back());
    pthread_join(thread, NULL);
}

static void *calls_inside(void *unused) {
    CUevent event;
    NEED(!cuCtxSetCurrent(context) && !cuEventCreate(&event, 0));
    struct mark *mark = mark_enter();
    for (inside = 1; inside == 1;) NEED(!cuEventRecord(event, NULL));
    mark_leave(mark);
    return unused;
}

static void is_waiting(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, calls_inside, NULL);
    while (!inside) nap(1000000);
    print(park());
    print(back());
    inside = 2;
    pthread_join(thread, NULL);
    print(park());
}

static void *waits(void *unused) {
    CUdeviceptr own;
    NEED(!cuCtxSetCurrent(context));
    inside = 1;
    int code = cuMemAlloc_v2(&own, BYTES);
    inside = 2 + code;
    return unused;
}

static void calls_at_exit(void) {
    CUdeviceptr own;
    printf("%d %d %d ", cuMemAlloc_v2(&own, BYTES), cuStreamQuery(NULL), cuMemFree_v2(own));
    while (inside == 1) nap(100000);
    printf("%d\n", inside - 2);
}

static void ends(void) {
    pthread_t thread;
    atexit(calls_at_exit);
    print(park());
    pthread_create(&thread, NULL, waits, NULL);
    while (!inside) nap(1000000);
    nap(10000000); /* it may wait by now */
    exit(0);
}

static void *works_and_ends(void *unused) {
    NEED(!cuCtxSetCurrent(context) && !cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, STREAM_PER_THREAD, NULL, NULL));
    for (inside = 1; inside == 1;) nap(1000000);
    return unused;
}

static void thread_ends(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, works_and_ends, NULL);
    while (!inside) nap(1000000);
    print(park());
    inside = 2;
    pthread_join(thread, NULL);
    printf("ended\n");
    print(back());
}

static void *parks(void *unused) {
    struct park_answer answer;
    while (!over) {
        NEED(jupyter_gpu_park(2000, PATIENCE, &answer) == 0);
        NEED(jupyter_gpu_return(0, PATIENCE, &answer) == 0 && answer.state == PARK_RUNNING);
    }
    return unused;
}

/* A child that was forked at any moment gets an error, and ends. */
static void fork_one(void) {
    int status;
    CUdeviceptr own;
    pid_t child = fork();
    if (!child) _exit(cuMemAlloc_v2(&own, BYTES) == CUDA_ERROR_NOT_INITIALIZED && cuStreamQuery(NULL) ? 0 : 1);
    NEED(waitpid(child, &status, 0) == child && status == 0);
}

static void leaves(long us, long forks) {
    pthread_t thread;
    for (long i = 0; i < 8; i++) pthread_create(&thread, NULL, works, (void *)i);
    pthread_create(&thread, NULL, parks, NULL);
    for (long i = 0; i < forks; i++, nap(100000)) fork_one();
    nap(us * 1000);
    leaving = true;
    exit(0);
}

/* --- cost --------------------------------------------------------------------------------------------------------- */

static double each(CUresult (*call)(CUstream), long times) {
    double least = 1e9;
    for (int round = 0; round < 9; round++) {
        uint64_t since = now_ns();
        for (long i = 0; i < times; i++) call(NULL);
        double ns = (double)(now_ns() - since) / (double)times;
        if (ns < least) least = ns;
    }
    return least;
}

static void rate(long times) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    double direct = each((CUresult(*)(CUstream))dlsym(driver, "cuStreamQuery"), times);
    printf("%.2f %.2f\n", each(cuStreamQuery, times), direct);
}

int main(int count, char **arguments) {
    CUmodule module;
    long first = count > 2 ? atol(arguments[2]) : 0, second = count > 3 ? atol(arguments[3]) : 0;
    NEED(!cuInit(0) && !cuCtxCreate_v2(&context, 0, 0) && !cuModuleLoadData(&module, "image"));
    NEED(!cuModuleGetFunction(&kernel, module, "work_us10"));
    if (strcmp(arguments[1], "threads") == 0) threads(first, second);
    else if (strcmp(arguments[1], "inside") == 0) is_inside();
    else if (strcmp(arguments[1], "waiting") == 0) is_waiting();
    else if (strcmp(arguments[1], "exit") == 0) ends();
    else if (strcmp(arguments[1], "thread") == 0) thread_ends();
    else if (strcmp(arguments[1], "leaves") == 0) leaves(first, second);
    else rate(first);
    return 0;
}
