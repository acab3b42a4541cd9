/* All of the gate built into this program, which parks itself on the stand-in driver as the gate is to do.
 *
 *     parked shut             call each function while parked, with zeros, except those that pass: print those that returned
 *     parked back             give things back while parked, and ask: print what calls returned, and MiB free before and afterwards
 *     parked unknown          print whether a call that passes has returned while parked, and afterwards
 *     parked full             give back more than is kept: print how many calls returned, and how many after the return
 *     parked rounds TIMES     threads work all the time while the process is parked again and again: print what went wrong
 */
#define _GNU_SOURCE
#include "connection/share.h"
#include "parking/later.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, KEPT = 1 << 16, MIB = 1 << 20 };

CUresult cuInit(unsigned), cuCtxCreate_v2(CUcontext *, unsigned, CUdevice), cuCtxSetCurrent(CUcontext), cuCtxGetCurrent(CUcontext *);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr), cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t), cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuEventCreate(CUevent *, unsigned), cuEventRecord(CUevent, CUstream), cuEventDestroy_v2(CUevent), cuEventSynchronize(CUevent);
CUresult cuStreamCreate(CUstream *, unsigned), cuStreamQuery(CUstream), cuStreamDestroy_v2(CUstream);
CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleUnload(CUmodule), cuDriverGetVersion(int *);
CUresult cuCheckpointProcessLock(int, void *), cuCheckpointProcessCheckpoint(int, void *);
CUresult cuCheckpointProcessRestore(int, void *), cuCheckpointProcessUnlock(int, void *);

static CUcontext first, second;

static void need(int fine, int line) {
    if (fine) return;
    fprintf(stderr, "parked.c: line %d\n", line);
    _exit(3);
}
#define NEED(fine) need(fine, __LINE__)

static void park(void) {
    gate_lock();
    NEED(entries_block());
    NEED(!cuCheckpointProcessLock(getpid(), NULL));
    entries_allow(ALLOW_ANSWERS);
    NEED(!cuCheckpointProcessCheckpoint(getpid(), NULL));
    entries_allow(ALLOW_PARKED);
}

static void back(void) {
    entries_allow(ALLOW_ANSWERS);
    NEED(!cuCheckpointProcessRestore(getpid(), NULL));
    NEED(!cuCheckpointProcessUnlock(getpid(), NULL));
    entries_unblock();
    gate_unlock();
    later_run();
}

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/* --- every function ----------------------------------------------------------------------------------------------- */

static struct one {
    const char *name;
    int class, code;
    _Atomic int thread, ended;
} functions[NAMED + 1] = {
#define F(base, suffix, since, class) [ENTRY_##base##suffix] = {#base #suffix, CLASS_##class},
#include "driver/functions.def"
#undef F
    [NAMED] = {"unlisted", CLASS_WORK},
};

static int unlisted(void) { return 0; }

static void *call(void *data) {
    struct one *one = data;
    void *way = one == &functions[NAMED] ? entry_for("cuFormToCome", 1000000, 0, (void *)unlisted)
                                         : entry_at((unsigned)(one - functions));
    one->thread = (int)syscall(SYS_gettid);
    one->code = ((int (*)(long, long, long, long, long, long))way)(0, 0, 0, 0, 0, 0);
    one->ended = 1;
    return NULL;
}

static bool waits(int thread) {
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    FILE *file = fopen(path, "r");
    bool futex = file && fgets(text, sizeof text, file) && atoi(text) == SYS_futex;
    if (file) fclose(file);
    return futex;
}

/* Start a thread that calls it, and wait until it has returned or waits. */
static void start(struct one *one) {
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    NEED(!pthread_create(&thread, &small, call, one));
    while (!one->ended && !(one->thread && waits(one->thread))) nap(50000);
}

static void shut(void) {
    int waiting = 0;
    park();
    for (int i = 0; i <= NAMED; i++)
        if (functions[i].class != CLASS_PASS) start(&functions[i]);
    for (int i = 0; i <= NAMED; i++) {
        if (functions[i].class == CLASS_PASS) continue;
        if (functions[i].ended) printf("%s=%d ", functions[i].name, functions[i].code);
        else waiting++;
    }
    printf("\n%d\n", waiting);
    fflush(stdout);
    _exit(0); /* with arguments like these they must not go on */
}

/* --- giving back -------------------------------------------------------------------------------------------------- */

static size_t free_mib(void) {
    size_t available, total;
    NEED(!cuMemGetInfo_v2(&available, &total));
    return available / MIB;
}

static CUdeviceptr memory;
static CUevent event;
static CUstream stream;
static CUmodule module;

static void *gives_back(void *unused) {
    CUcontext context;
    int version;
    cuCtxSetCurrent(second);
    printf("%d %d ", cuCtxGetCurrent(&context) || context != second, cuDriverGetVersion(&version));
    printf("%d %d ", cuStreamQuery(stream), cuEventSynchronize(event));
    printf("%d %d ", cuMemFree_v2(memory), cuEventDestroy_v2(event));
    printf("%d %d\n", cuStreamDestroy_v2(stream), cuModuleUnload(module));
    return unused;
}

static void give_back(void) {
    pthread_t thread;
    CUcontext context;
    size_t before = free_mib();
    cuCtxSetCurrent(second);
    NEED(!cuMemAlloc_v2(&memory, 64 * MIB) && !cuEventCreate(&event, 0) && !cuStreamCreate(&stream, 0));
    NEED(!cuModuleLoadData(&module, "image") && !cuEventRecord(event, stream));
    cuCtxSetCurrent(first);
    size_t between = free_mib();
    park();
    pthread_create(&thread, NULL, gives_back, NULL);
    pthread_join(thread, NULL);
    back();
    NEED(!cuCtxGetCurrent(&context) && context == first);
    printf("%zu %zu\n", before - between, before - free_mib());
}

static void unknown(void) {
    struct one *one = &functions[ENTRY_cuCtxGetId]; /* an error without a context */
    park();
    start(one);
    printf("%d ", one->ended);
    back();
    while (!one->ended) nap(50000);
    printf("%d\n", one->ended);
}

static _Atomic int returned;

static void *frees(void *unused) {
    cuCtxSetCurrent(first);
    for (int i = 0; i <= KEPT; i++, returned++) NEED(!cuMemFree_v2(0));
    return unused;
}

static void full(void) {
    pthread_t thread;
    park();
    pthread_create(&thread, NULL, frees, NULL);
    while (returned < KEPT) nap(100000);
    nap(50000000);
    printf("%d ", returned);
    back();
    pthread_join(thread, NULL);
    printf("%d\n", returned);
}

/* --- again and again ---------------------------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic long done[WORKERS], wrong;

/* Without calls that ask for the end of work: nothing keeps those out that were about to enter when calls were blocked. */
static void *works(void *data) {
    long number = (long)data, copy = 0;
    cuCtxSetCurrent(number % 2 ? first : second);
    while (!over) {
        CUdeviceptr own;
        CUevent mark;
        NEED(!cuMemAlloc_v2(&own, 4096) && !cuEventCreate(&mark, 0));
        NEED(!cuMemcpyHtoD_v2(own, &number, sizeof number) && !cuEventRecord(mark, NULL));
        NEED(!cuMemcpyDtoH_v2(&copy, own, sizeof copy));
        wrong += copy != number;
        NEED(!cuMemFree_v2(own) && !cuEventDestroy_v2(mark));
        done[number]++;
    }
    return NULL;
}

static long sum(void) {
    long all = 0;
    for (int i = 0; i < WORKERS; i++) all += done[i];
    return all;
}

static void rounds(long times) {
    pthread_t threads[WORKERS];
    long moved = 0, unnoticed = 0;
    size_t before = free_mib();
    for (long i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, works, (void *)i);
    for (long round = 0; round < times; round++) {
        park();
        nap(200000);
        long stopped = sum();
        nap(500000);
        moved += sum() > stopped + WORKERS; /* one that is between its last two calls gives back, and counts */
        back();
        entries_arm();
        for (stopped = sum(); sum() < stopped + 2 * WORKERS;) nap(50000);
        unnoticed += !entries_arm();
    }
    over = true;
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    printf("moved %ld wrong %ld unnoticed %ld lost %zu\n", moved, wrong, unnoticed, before - free_mib());
}

int main(int count, char **arguments) {
    NEED(!cuInit(0) && !cuCtxCreate_v2(&second, 0, 0) && !cuCtxCreate_v2(&first, 0, 0));
    if (strcmp(arguments[1], "shut") == 0) shut();
    else if (strcmp(arguments[1], "back") == 0) give_back();
    else if (strcmp(arguments[1], "unknown") == 0) unknown();
    else if (strcmp(arguments[1], "full") == 0) full();
    else rounds(count > 2 ? atol(arguments[2]) : 0);
    return 0;
}
