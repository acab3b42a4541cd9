/* A CUDA program whose threads launch in per-thread default streams: streams COMMAND NUMBER
 *
 * It prints "ready" first, and its result at the end. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHORT_ONES = 3000, MOST_SECONDS = 50, MOMENT = 50 /* us */ };

static void *library, *context, *same, *quick;

static void *find(const char *symbol) {
    void *found = dlsym(library, symbol);
    if (!found) { fprintf(stderr, "no %s\n", symbol); exit(5); }
    return found;
}

#define CALL(symbol, ...) \
    do { int r_ = ((int (*)())find(#symbol))(__VA_ARGS__); if (r_) { fprintf(stderr, "%s: %d\n", #symbol, r_); exit(3); } } while (0)

typedef int (*launcher)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* Launch one function at about one size: nothing before a launch tells how long it takes. */
static int shaped(const char *symbol, void *stream, unsigned us) {
    return ((launcher)find(symbol))(same, us, 120000 / us, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void short_ones(const char *symbol, int count) {
    for (int i = 0; i < count; i++)
        if (shaped(symbol, NULL, 10)) exit(6);
}

static void kernel(void *stream) {
    if (((launcher)find("cuLaunchKernel"))(quick, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL)) exit(6);
}

/* --- one thread's event and another one's work --------------------------------------------------------------------- */

static _Atomic int launched, looked;

static void *captures(void *rounds) {
    CALL(cuCtxSetCurrent, context);
    for (int round = 0; round < (int)(intptr_t)rounds; round++) {
        void *graph;
        while (launched == round) usleep(MOMENT);
        CALL(cuStreamBeginCapture_v2_ptsz, NULL, 2);
        CALL(cuStreamEndCapture_ptsz, NULL, &graph);
        CALL(cuGraphDestroy, graph);
        looked++;
    }
    return NULL;
}

static void *fails(void *rounds) {
    CALL(cuCtxSetCurrent, context);
    launcher launch = (launcher)find("cuLaunchKernel_ptsz");
    for (int round = 0; round < (int)(intptr_t)rounds; round++) {
        while (launched == round) usleep(MOMENT);
        if (!launch(quick, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) exit(6);
        looked++;
    }
    return NULL;
}

/* A kernel that was short takes 100 ms, and another thread causes an event at that moment. */
static void covered(void *(*other)(void *), int rounds) {
    pthread_t thread;
    pthread_create(&thread, NULL, other, (void *)(intptr_t)rounds);
    for (int round = 0; round < rounds; round++) {
        short_ones("cuLaunchKernel_ptsz", SHORT_ONES);
        CALL(cuStreamSynchronize_ptsz, NULL);
        usleep(5000);
        if (shaped("cuLaunchKernel_ptsz", NULL, 100000)) exit(6);
        launched++;
        while (looked == round) usleep(MOMENT);
        CALL(cuStreamSynchronize_ptsz, NULL);
    }
    pthread_join(thread, NULL);
}

/* --- streams that do not wait for each other ------------------------------------------------------------------------ */

static _Atomic int may_end, silent;
static const char *form;

static void *short_and_silent(void *unused) {
    CALL(cuCtxSetCurrent, context);
    short_ones(form, SHORT_ONES);
    short_ones(form, 1);
    silent = 1;
    while (!may_end) usleep(1000);
    return unused;
}

static void wait_to_end(void *unused) {
    (void)unused;
    while (!may_end) usleep(1000);
}

/* One stream waits for what the program does when another one has ended; a thread has launched and is idle meanwhile. */
static void beside(const char *with) {
    void *one, *other;
    pthread_t thread;
    form = with;
    CALL(cuStreamCreate, &one, 0);
    CALL(cuStreamCreate, &other, 0);
    kernel(one);
    kernel(other);
    CALL(cuCtxSynchronize);
    pthread_create(&thread, NULL, short_and_silent, NULL);
    while (!silent) usleep(10);
    kernel(one);
    CALL(cuLaunchHostFunc, one, wait_to_end, NULL);
    kernel(one);
    usleep(20000);
    kernel(other);
    CALL(cuStreamSynchronize, other);
    may_end = 1;
    CALL(cuStreamSynchronize, one);
    pthread_join(thread, NULL);
}

/* --- threads that come and go --------------------------------------------------------------------------------------- */

static void *launch_and_end(void *count) {
    CALL(cuCtxSetCurrent, context);
    short_ones("cuLaunchKernel_ptsz", (int)(intptr_t)count);
    return NULL;
}

/* Return KiB that belong to no file; the simulated GPU's memory is such. */
static long own_memory(void) {
    char line[128];
    long size = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && size < 0 && fgets(line, sizeof line, file)) sscanf(line, "RssAnon: %ld", &size);
    if (size < 0) exit(6);
    fclose(file);
    return size;
}

/* Start threads one after the other; print by how many KiB the process has grown since a tenth of them. */
static void threads(int count) {
    pthread_t one;
    long before = 0;
    for (int i = 0; i < count; i++) {
        if (i == count / 10) before = own_memory();
        pthread_create(&one, NULL, launch_and_end, (void *)3);
        pthread_join(one, NULL);
    }
    CALL(cuCtxSynchronize);
    printf("%ld\n", own_memory() - before);
}

static _Atomic int rest, resting;

static void *launch_and_rest(void *ends) {
    CALL(cuCtxSetCurrent, context);
    short_ones("cuLaunchKernel_ptsz", 3);
    if (shaped("cuLaunchKernel_ptsz", NULL, 100)) exit(6);
    short_ones("cuLaunchKernel_ptsz", 2);
    resting++;
    while (!ends && rest) usleep(1000);
    return NULL;
}

/* Threads that wait for nothing and stop launching; they may end. */
static void silence(int count, int ends) {
    pthread_t all[64];
    char line[64];
    short_ones("cuLaunchKernel_ptsz", SHORT_ONES);
    CALL(cuCtxSynchronize);
    rest = 1;
    for (int i = 0; i < count; i++) pthread_create(&all[i], NULL, launch_and_rest, (void *)(intptr_t)ends);
    while (resting < count) usleep(100);
    printf("silent\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(6);
    rest = 0;
    for (int i = 0; i < count; i++) pthread_join(all[i], NULL);
}

int main(int count, char **arguments) {
    void *module;
    int number = count > 2 ? atoi(arguments[2]) : 0;
    alarm(MOST_SECONDS);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) exit(4);
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, "x");
    CALL(cuModuleGetFunction, &same, module, "k_usx");
    CALL(cuModuleGetFunction, &quick, module, "k_us10");
    printf("ready\n");
    fflush(stdout);
    if (!strcmp(arguments[1], "captures")) covered(captures, number);
    else if (!strcmp(arguments[1], "fails")) covered(fails, number);
    else if (!strcmp(arguments[1], "own")) beside("cuLaunchKernel_ptsz");
    else if (!strcmp(arguments[1], "legacy")) beside("cuLaunchKernel");
    else if (!strcmp(arguments[1], "threads")) threads(number);
    else if (!strcmp(arguments[1], "silent")) silence(number, 0);
    else if (!strcmp(arguments[1], "ended")) silence(number, 1);
    else exit(7);
    printf("done\n");
    fflush(stdout);
    return 0;
}
