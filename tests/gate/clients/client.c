/* A CUDA program for tests: finds the driver in one of many ways, then does what its arguments say, in order.
 *
 *     client WAY COMMAND[:NUMBER[:NUMBER]]…
 *
 * It does not know of the gate. It prints "ready" before the first command, and the results that commands ask for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
static const char *way;
static void *library;
static void *context, *module;
static int device;

/* --- ways to the driver ------------------------------------------------------------------------------------------- */

#ifdef LINKED
extern CUresult cuInit(unsigned), cuLaunchKernel(), cuLaunchKernel_ptsz(), cuLaunchKernelEx(), cuLaunchKernelEx_ptsz(),
    cuLaunchCooperativeKernel(), cuLaunchCooperativeKernel_ptsz(), cuGraphLaunch(), cuGraphLaunch_ptsz(), cuLaunch(),
    cuLaunchGrid(), cuLaunchGridAsync(), cuLaunchCooperativeKernelMultiDevice();
static void *linked(const char *symbol) {
#define SAME(name) if (strcmp(symbol, #name) == 0) return (void *)name;
    SAME(cuLaunchKernel) SAME(cuLaunchKernel_ptsz) SAME(cuLaunchKernelEx) SAME(cuLaunchKernelEx_ptsz)
    SAME(cuLaunchCooperativeKernel) SAME(cuLaunchCooperativeKernel_ptsz) SAME(cuGraphLaunch) SAME(cuGraphLaunch_ptsz)
    SAME(cuLaunch) SAME(cuLaunchGrid) SAME(cuLaunchGridAsync) SAME(cuLaunchCooperativeKernelMultiDevice)
    return NULL;
}
#else
static void *linked(const char *symbol) { (void)symbol; return NULL; }
#endif

static void die(const char *what, int result) {
    fprintf(stderr, "%s: %d\n", what, result);
    exit(3);
}

static void open_library(void) {
    const char *file = "libcuda.so.1";
    if (strcmp(way, "link") == 0) library = RTLD_DEFAULT;
    else if (strcmp(way, "deepbind") == 0) library = dlopen(file, RTLD_NOW | RTLD_DEEPBIND);
    else if (strcmp(way, "dlmopen") == 0) library = dlmopen(LM_ID_NEWLM, file, RTLD_NOW);
    else library = dlopen(file, RTLD_NOW | (strcmp(way, "default") == 0 ? RTLD_GLOBAL : 0));
    if (!library && strcmp(way, "link")) { fprintf(stderr, "%s\n", dlerror()); exit(4); }
    if (strcmp(way, "default") == 0) library = RTLD_DEFAULT;
}

static void *by_name(const char *symbol) {
    void *found = strcmp(way, "link") == 0 ? linked(symbol) : NULL;
    return found ? found : dlsym(library, symbol);
}

/* By cuGetProcAddress, version 1 or 2: names without the suffix of the symbol. */
static void *by_version(const char *symbol) {
    char base[128];
    void *found = NULL;
    int status = 0, old = strcmp(way, "address1") == 0, per_thread = 0;
    snprintf(base, sizeof base, "%s", symbol);
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, "_ptsz") == 0) { base[length -= 5] = 0; per_thread = 1; }
    if (length > 3 && strcmp(base + length - 3, "_v2") == 0) base[length - 3] = 0;
    void *self = dlsym(library, old ? "cuGetProcAddress" : "cuGetProcAddress_v2");
    if (strcmp(way, "address-itself") == 0)
        ((CUresult(*)(const char *, void **, int, uint64_t, int *))self)("cuGetProcAddress", &self, 12000, 0, &status);
    if (old) ((CUresult(*)(const char *, void **, int, uint64_t))self)(base, &found, 11080, per_thread ? 2 : 1);
    else ((CUresult(*)(const char *, void **, int, uint64_t, int *))self)(base, &found, 12000, per_thread ? 2 : 1, &status);
    return found;
}

static void *find(const char *symbol) {
    void *found = strncmp(way, "address", 7) == 0 ? by_version(symbol) : by_name(symbol);
    if (!found) { fprintf(stderr, "no %s\n", symbol); exit(5); }
    return found;
}

#define CALL(symbol, ...) \
    do { int r_ = ((CUresult(*)())find(#symbol))(__VA_ARGS__); if (r_) die(#symbol, r_); } while (0)

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static void *function_of(long us) {
    char name[32];
    void *function;
    snprintf(name, sizeof name, "k_us%ld", us);
    CALL(cuModuleGetFunction, &function, module, name);
    return function;
}

typedef CUresult (*launcher)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                             void **);

static void kernels(long count, long us, void *stream) {
    launcher launch = (launcher)find("cuLaunchKernel");
    void *function = function_of(us);
    for (long i = 0; i < count; i++) {
        int result = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        if (result) die("cuLaunchKernel", result);
    }
}

/* Kernels of one function and one number of blocks, of `us` each: nothing before a launch tells how long it takes. */
enum { BLOCKS = 120000 };

static void shaped(long count, long us) {
    void *function;
    CALL(cuModuleGetFunction, &function, module, "k_usx");
    launcher launch = (launcher)find("cuLaunchKernel");
    for (long i = 0; i < count; i++) {
        int result = launch(function, (unsigned)us, BLOCKS / (unsigned)us, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        if (result) die("cuLaunchKernel", result);
    }
}

static void *new_stream(void) {
    void *stream;
    CALL(cuStreamCreate, &stream, 1);
    return stream;
}

/* One stream waits for what this thread does `ms` after it has launched on another stream. */
static _Atomic int went_on;

static void wait_to_go_on(void *round) {
    while (went_on <= (int)(intptr_t)round) usleep(100);
}

static void meets(long rounds, long ms, long behind) {
    void *one = new_stream(), *other = new_stream();
    for (long i = 0; i < rounds; i++) {
        kernels(1, 100, one);
        CALL(cuLaunchHostFunc, one, wait_to_go_on, (void *)(intptr_t)went_on);
        kernels(behind, 100, one);
        usleep((useconds_t)ms * 1000);
        kernels(1, 100, other);
        went_on++;
        CALL(cuStreamSynchronize, one);
    }
    CALL(cuStreamDestroy_v2, one);
    CALL(cuStreamDestroy_v2, other);
}

struct by { unsigned sizes[7]; void *stream, *attributes; unsigned count; };
struct many { void *function; unsigned sizes[7]; void *stream, **params; };

static void *graph_of(long count, long us) {
    void *stream = new_stream(), *graph, *ready;
    CALL(cuStreamBeginCapture_v2, stream, 0);
    kernels(count, us, stream);
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphInstantiateWithFlags, &ready, graph, (unsigned long long)0);
    CALL(cuStreamDestroy_v2, stream);
    return ready;
}

/* Copies from the host, a few of them queued. */
static void uploads(long count, long size) {
    uint64_t at;
    void *from = calloc(1, (size_t)size);
    CALL(cuMemAlloc_v2, &at, (size_t)size);
    for (long i = 0; i < count; i++) {
        CALL(cuMemcpyHtoDAsync_v2, at, from, (size_t)size, NULL);
        if (i % 4 == 3) CALL(cuCtxSynchronize);
    }
    CALL(cuMemFree_v2, at);
    free(from);
}

enum { EACH_MS = 60 }; /* small work at least: a program that gets little of a busy processor goes on longer */

/* Copies of `size` from the host without a pause, for `ms` at least; prints how many there were. */
static void trickle(long ms, long size) {
    uint64_t at, end;
    void *from = calloc(1, (size_t)size), *copy = find("cuMemcpyHtoDAsync_v2");
    long copies = 0;
    CALL(cuMemAlloc_v2, &at, (size_t)size);
    for (end = now() + (uint64_t)ms * 1000000; now() < end || copies < EACH_MS * ms; copies++) {
        int result = ((CUresult(*)(uint64_t, void *, size_t, void *))copy)(at, from, (size_t)size, NULL);
        if (result) die("cuMemcpyHtoDAsync_v2", result);
    }
    printf("%ld\n", copies);
    CALL(cuMemFree_v2, at);
    free(from);
}

/* Between two kernels, one stream waits for a word that another stream writes after a line is read. */
static void word(void) {
    void *one = new_stream(), *other = new_stream();
    char line[64];
    uint64_t at;
    CALL(cuMemAlloc_v2, &at, (size_t)4);
    kernels(1, 100, one);
    CALL(cuStreamWaitValue32, one, at, 1, 1);
    kernels(1, 100, one);
    printf("waits\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(6);
    CALL(cuStreamWriteValue32, other, at, 1, 0);
    CALL(cuStreamSynchronize, one);
    CALL(cuMemFree_v2, at);
}

/* Words that a stream writes without a pause, for `ms` at least; prints how many there were. */
static void words(long ms) {
    uint64_t at, end;
    void *write = find("cuStreamWriteValue32");
    long count = 0;
    CALL(cuMemAlloc_v2, &at, (size_t)4);
    for (end = now() + (uint64_t)ms * 1000000; now() < end || count < EACH_MS * ms; count++) {
        int result = ((CUresult(*)(void *, uint64_t, unsigned, unsigned))write)(NULL, at, 7, 0);
        if (result) die("cuStreamWriteValue32", result);
    }
    printf("%ld\n", count);
    CALL(cuMemFree_v2, at);
}

/* Begin a capture in a stream that the default stream waits for, just after that had some work. */
static void captures(long count, long us) {
    void *stream, *beside, *graph;
    CALL(cuStreamCreate, &stream, 0);
    CALL(cuStreamCreate, &beside, 0);
    for (long i = 0; i < count; i++) {
        kernels(3, us, NULL);
        kernels(1, 300, beside); /* so no event can be recorded after those three before the capture begins */
        CALL(cuStreamBeginCapture_v2, stream, 0);
        kernels(2, us, stream);
        usleep(2000);
        CALL(cuStreamEndCapture, stream, &graph);
        CALL(cuGraphDestroy, graph);
    }
    CALL(cuStreamDestroy_v2, beside);
    CALL(cuStreamDestroy_v2, stream);
}

/* Launch once through the function of this name. */
static void by(const char *symbol, long us) {
    void *function = strncmp(symbol, "cuGraph", 7) == 0 ? graph_of(1, us) : function_of(us), *at = find(symbol);
    struct by config = {.sizes = {1, 1, 1, 1, 1, 1, 0}};
    int result;
    if (strncmp(symbol, "cuLaunchKernelEx", 16) == 0)
        result = ((CUresult(*)(struct by *, void *, void **, void **))at)(&config, function, NULL, NULL);
    else if (strncmp(symbol, "cuLaunchKernel", 14) == 0)
        result = ((launcher)at)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    else if (strcmp(symbol, "cuLaunchCooperativeKernelMultiDevice") == 0) {
        struct many one = {.function = function, .sizes = {1, 1, 1, 1, 1, 1, 0}, .stream = new_stream()};
        result = ((CUresult(*)(struct many *, unsigned, unsigned))at)(&one, 1, 0);
    } else if (strncmp(symbol, "cuLaunchCooperativeKernel", 25) == 0)
        result = ((CUresult(*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                               void **))at)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
    else if (strcmp(symbol, "cuLaunch") == 0) result = ((CUresult(*)(void *))at)(function);
    else if (strcmp(symbol, "cuLaunchGrid") == 0) result = ((CUresult(*)(void *, int, int))at)(function, 1, 1);
    else if (strcmp(symbol, "cuLaunchGridAsync") == 0)
        result = ((CUresult(*)(void *, int, int, void *))at)(function, 1, 1, NULL);
    else result = ((CUresult(*)(void *, void *))at)(function, NULL); /* cuGraphLaunch */
    if (result) die(symbol, result);
}

static long thread_count, thread_us;

static void *in_thread(void *unused) {
    CALL(cuCtxSetCurrent, context);
    void *stream = new_stream();
    kernels(thread_count, thread_us, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuStreamDestroy_v2, stream);
    return unused;
}

static void threads(long many, long us) {
    pthread_t all[256];
    thread_count = 20;
    thread_us = us;
    for (long i = 0; i < many; i++) pthread_create(&all[i], NULL, in_thread, NULL);
    for (long i = 0; i < many; i++) pthread_join(all[i], NULL);
}

static void contexts(long many, long us) {
    void *one;
    for (long i = 0; i < many; i++) {
        CALL(cuCtxCreate_v2, &one, 0, device);
        kernels(10, us, NULL);
        kernels(10, us, new_stream());
        if (i % 2) CALL(cuCtxSynchronize);
        CALL(cuCtxDestroy_v2, one);
    }
    CALL(cuCtxSetCurrent, context);
}

static void calls_back(void *unused) { /* as profilers do */
    size_t all;
    (void)unused;
    CALL(cuDeviceTotalMem_v2, &all, device);
}

static void destroyed(long us) {
    void *one;
    CALL(cuCtxCreate_v2, &one, 0, device);
    kernels(1, us, NULL);
    CALL(cuLaunchHostFunc, NULL, calls_back, NULL);
    CALL(cuCtxDestroy_v2, one);
    CALL(cuCtxSetCurrent, context);
}

static void *launch_and_stay(void *unused) {
    CALL(cuCtxSetCurrent, context);
    kernels(1, 10, NULL);
    return unused;
}

static long exit_us;
static void ends_slowly(void) {
    printf("ends\n");
    fflush(stdout);
    usleep((useconds_t)exit_us);
}

static void *launch_for_ever(void *unused) {
    CALL(cuCtxSetCurrent, context);
    for (;; pthread_testcancel()) kernels(1, thread_us, NULL);
    return unused;
}

/* Threads that launch until they are cancelled, one after the other. */
static void cancels(long many, long after) {
    pthread_t one;
    for (long i = 0; i < many; i++) {
        thread_us = 1000;
        pthread_create(&one, NULL, launch_for_ever, NULL);
        usleep((useconds_t)(after + i * 37 % 500));
        pthread_cancel(one);
        pthread_join(one, NULL);
    }
}

static volatile sig_atomic_t alarms;
static void alarmed(int number) { alarms += number != 0; }

/* Addresses of allocations; "free" takes from the list. */
static uint64_t held[65536];
static long holds;

static void allocate(const char *symbol, long size) {
    uint64_t at = 0, pitch;
    int result = strcmp(symbol, "cuMemAllocManaged") == 0 ? ((CUresult(*)())find(symbol))(&at, (size_t)size, 1)
        : strcmp(symbol, "cuMemAllocPitch_v2") == 0       ? ((CUresult(*)())find(symbol))(&at, &pitch, (size_t)512, (size_t)size / 512, 4)
        : strncmp(symbol, "cuMemAllocAsync", 15) == 0     ? ((CUresult(*)())find(symbol))(&at, (size_t)size, NULL)
                                                          : ((CUresult(*)())find(symbol))(&at, (size_t)size);
    printf("%d\n", result);
    if (!result) held[holds++] = at;
}

static void arrays(long width, long height) {
    struct { size_t width, height; int format; unsigned channels; } of = {(size_t)width, (size_t)height, 0x20, 1};
    void *array = NULL;
    int result = ((CUresult(*)(void **, void *))find("cuArrayCreate_v2"))(&array, &of);
    printf("%d\n", result);
    if (!result) CALL(cuArrayDestroy, array);
}

/* Create, map, release the handle at once: the memory stays until it is unmapped. */
static uint64_t mapped_at, mapped_size;
static void map(long size) {
    struct { int type, handles, where, id; void *more[4]; } of = {1, 0, 1, device, {0}};
    uint64_t handle = 0;
    int result = ((CUresult(*)())find("cuMemCreate"))(&handle, (size_t)size, &of, (unsigned long long)0);
    printf("%d\n", result);
    if (result) return;
    CALL(cuMemAddressReserve, &mapped_at, (size_t)size, (size_t)0, (uint64_t)0, (unsigned long long)0);
    CALL(cuMemMap, mapped_at, (size_t)size, (size_t)0, handle, (unsigned long long)0);
    CALL(cuMemRelease, handle);
    mapped_size = (uint64_t)size;
}

static void packed(long width, long height) { /* one of four channels of 8 bits, by its format */
    struct { size_t width, height; int format; unsigned channels; } of = {(size_t)width, (size_t)height, 0xc2, 4};
    void *array;
    printf("%d\n", ((CUresult(*)())find("cuArrayCreate_v2"))(&array, &of));
}

/* Memory that only its import keeps; then the import is released. */
static void import(long size) {
    struct { int type, handles, where, id; void *more[4]; } of = {1, 1, 1, device, {0}};
    static uint64_t handle, imported;
    int file;
    if (imported) {
        CALL(cuMemRelease, imported);
        imported = 0;
        return;
    }
    int result = ((CUresult(*)())find("cuMemCreate"))(&handle, (size_t)size, &of, (unsigned long long)0);
    printf("%d\n", result);
    if (result) return;
    CALL(cuMemExportToShareableHandle, &file, handle, 1, (unsigned long long)0);
    CALL(cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)file, 1);
    close(file);
    CALL(cuMemRelease, handle);
}

/* Close all files, as daemons do; other files then get the numbers, and nothing ever arrives on them. */
static void close_files(void) {
    int ends[2];
    if (pipe(ends)) exit(6);
    /* downwards: a connection made meanwhile gets no number that is replaced afterwards */
    for (int number = 1023; number >= 100; number--) dup2(ends[0], number);
}

static void command(char *text) {
    char *first = strchr(text, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    if (first) *first++ = 0;
    if (second) *second++ = 0;
    long a = first ? atol(first) : 0, b = second ? atol(second) : 0;
    if (!strcmp(text, "kernels")) kernels(a, b, NULL);
    else if (!strcmp(text, "shaped")) shaped(a, b);
    else if (!strcmp(text, "meets")) meets(a, b, 1);
    else if (!strcmp(text, "meets-behind")) meets(a, b, 4);
    else if (!strcmp(text, "stream")) { void *stream = new_stream(); kernels(a, b, stream); CALL(cuStreamDestroy_v2, stream); }
    else if (!strcmp(text, "by")) by(first, b);
    else if (!strcmp(text, "uploads")) uploads(a, b);
    else if (!strcmp(text, "word")) word();
    else if (!strcmp(text, "words")) words(a);
    else if (!strcmp(text, "trickle")) trickle(a, b);
    else if (!strcmp(text, "captures")) captures(a, b);
    else if (!strcmp(text, "sync")) CALL(cuCtxSynchronize);
    else if (!strcmp(text, "sleep")) usleep((useconds_t)a);
    else if (!strcmp(text, "threads")) threads(a, b);
    else if (!strcmp(text, "contexts")) contexts(a, b);
    else if (!strcmp(text, "thread")) { pthread_t one; pthread_create(&one, NULL, launch_and_stay, NULL); }
    else if (!strcmp(text, "daemon")) { pthread_t one; thread_us = a; pthread_create(&one, NULL, launch_for_ever, NULL); }
    else if (!strcmp(text, "destroyed")) destroyed(a);
    else if (!strcmp(text, "cancels")) cancels(a, b);
    else if (!strcmp(text, "close-files")) close_files();
    else if (!strcmp(text, "at-exit")) { exit_us = a; atexit(ends_slowly); } /* registered first, so run last */
    else if (!strcmp(text, "wait-line")) { char line[64]; if (!fgets(line, sizeof line, stdin)) exit(6); }
    else if (!strcmp(text, "say")) printf("%s\n", first);
    else if (!strcmp(text, "alarms")) {
        signal(SIGALRM, alarmed);
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
        struct itimerspec often = {{0, a * 1000}, {0, a * 1000}};
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        timer_settime(timer, 0, &often, NULL);
    } else if (!strcmp(text, "fork")) { /* the child reports what it can do, and ends */
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            char line[64];
            void *function = NULL;
            int result = ((launcher)find("cuLaunchKernel"))(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
            printf("child %d\n", result);
            fflush(stdout);
            if (a && !fgets(line, sizeof line, stdin)) _exit(6); /* stays until a line is read */
            _exit(0);
        }
        if (!a) waitpid(child, NULL, 0);
    } else if (!strcmp(text, "fork-first")) { /* before the parent has touched the driver */
        fflush(stdout);
        pid_t child = fork();
        if (child) { int status; waitpid(child, &status, 0); exit(WEXITSTATUS(status)); }
    } else if (!strcmp(text, "exec")) execlp(first, first, (char *)NULL);
    else if (!strcmp(text, "rate")) { /* ns of each of many launches, and the same including their end */
        kernels(2000, b, NULL);
        CALL(cuCtxSynchronize);
        uint64_t begin = now();
        kernels(a, b, NULL);
        uint64_t queued = now();
        CALL(cuCtxSynchronize);
        printf("%.1f %.1f\n", (double)(queued - begin) / (double)a, (double)(now() - begin) / (double)a);
    } else if (!strcmp(text, "alloc")) allocate("cuMemAlloc_v2", a);
    else if (!strncmp(text, "cuMemAlloc", 10)) allocate(text, a);
    else if (!strcmp(text, "many")) { for (long i = 0; i < a; i++) allocate("cuMemAlloc_v2", b); }
    else if (!strcmp(text, "free")) CALL(cuMemFree_v2, held[--holds]);
    else if (!strcmp(text, "free-async")) CALL(cuMemFreeAsync, held[--holds], NULL);
    else if (!strcmp(text, "array")) arrays(a, b);
    else if (!strcmp(text, "map")) map(a);
    else if (!strcmp(text, "import")) import(a);
    else if (!strcmp(text, "packed")) packed(a, b);
    else if (!strcmp(text, "unmap")) CALL(cuMemUnmap, mapped_at, (size_t)mapped_size);
    else if (!strcmp(text, "info")) { size_t left, all; CALL(cuMemGetInfo_v2, &left, &all); printf("%zu %zu\n", left, all); }
    else if (!strcmp(text, "total")) { size_t all; CALL(cuDeviceTotalMem_v2, &all, device); printf("%zu\n", all); }
    else if (!strcmp(text, "reset")) {
        CALL(cuDevicePrimaryCtxReset_v2, device);
        holds = 0;
        CALL(cuDevicePrimaryCtxRetain, &context, device);
        CALL(cuCtxSetCurrent, context);
        CALL(cuModuleLoadData, &module, "x");
    } else if (!strcmp(text, "graph")) {
        void *graph = graph_of(a, b);
        for (int i = 0; i < 3; i++) CALL(cuGraphLaunch, graph, NULL);
    } else { fprintf(stderr, "no command %s\n", text); exit(7); }
    fflush(stdout);
}

int main(int count, char **arguments) {
    way = count > 1 ? arguments[1] : "dlsym";
    int next = 2;
    if (count > 2 && (!strcmp(arguments[2], "fork-first") || !strncmp(arguments[2], "at-exit", 7))) command(arguments[next++]);
    open_library();
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, "x");
    printf("ready\n");
    fflush(stdout);
    for (; next < count; next++) command(arguments[next]);
    printf("done\n");
    return 0;
}
