/* A CUDA program whose threads allocate and free memory in all ways at once: kinds ROUNDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { THREADS = 6, OUT_OF_MEMORY = 2, DEVICE = 1 };

extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemGetInfo_v2(size_t *, size_t *),
    cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t), cuMemAllocAsync(uint64_t *, size_t, void *),
    cuMemAllocFromPoolAsync(uint64_t *, size_t, void *, void *), cuMemFreeAsync(uint64_t, void *),
    cuMemAllocManaged(uint64_t *, size_t, unsigned), cuMemPoolCreate(void **, const void *), cuMemPoolDestroy(void *),
    cuMemPoolSetAttribute(void *, int, void *), cuMemPoolTrimTo(void *, size_t), cuDeviceGetDefaultMemPool(void **, int),
    cuCtxSetLimit(int, size_t), cuCtxSynchronize(void), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *),
    cuModuleLoadData(void **, const void *), cuModuleUnload(void *), cuGraphCreate(void **, unsigned), cuGraphDestroy(void *),
    cuGraphAddMemAllocNode(void **, void *, const void *, size_t, void *), cuGraphExecDestroy(void *),
    cuGraphAddMemFreeNode(void **, void *, const void *, size_t, uint64_t), cuGraphLaunch(void *, void *),
    cuGraphInstantiateWithFlags(void **, void *, unsigned long long), cuDeviceGraphMemTrim(int),
    cuImportExternalMemory(void **, const void *), cuExternalMemoryGetMappedBuffer(uint64_t *, void *, const void *),
    cuDestroyExternalMemory(void *);

static long rounds;
static void *primary;

static void must(int result, int line) {
    if (!result) return;
    fprintf(stderr, "line %d: %d\n", line, result);
    exit(3);
}
#define MUST(call) must(call, __LINE__)

/* Return whether a call succeeded; the only allowed failure is lack of memory. */
static int tried(int result, int line) {
    if (result != OUT_OF_MEMORY) must(result, line);
    return !result;
}
#define TRIED(call) tried(call, __LINE__)

static size_t some(unsigned *seed) { return (1 + (size_t)rand_r(seed) % 40) * MIB; }

static void pool(unsigned *seed) {
    int place[24] = {1, 0, DEVICE, 0};
    uint64_t keeps = some(seed), at;
    void *own;
    MUST(cuMemPoolCreate(&own, place));
    MUST(cuMemPoolSetAttribute(own, 4, &keeps));
    if (TRIED(cuMemAllocFromPoolAsync(&at, some(seed), own, NULL))) MUST(cuMemFreeAsync(at, NULL));
    if (rand_r(seed) % 2) MUST(cuMemPoolTrimTo(own, MIB));
    MUST(cuMemPoolDestroy(own));
}

static void default_pool(unsigned *seed) {
    uint64_t at;
    if (TRIED(cuMemAllocAsync(&at, some(seed), NULL))) MUST(cuMemFreeAsync(at, NULL));
    MUST(cuCtxSynchronize());
}

static void graph(unsigned *seed) {
    struct { int pool[22]; const void *access; size_t count, size; uint64_t at; } of = {{1, 0, DEVICE, 0}, .size = some(seed)};
    void *made, *node, *other, *executable;
    MUST(cuGraphCreate(&made, 0));
    MUST(cuGraphAddMemAllocNode(&node, made, NULL, 0, &of));
    MUST(cuGraphAddMemFreeNode(&other, made, &node, 1, of.at));
    MUST(cuGraphInstantiateWithFlags(&executable, made, 0));
    MUST(cuGraphDestroy(made));
    for (int i = 0; i < 2; i++) TRIED(cuGraphLaunch(executable, NULL));
    MUST(cuGraphExecDestroy(executable));
    if (rand_r(seed) % 2) MUST(cuDeviceGraphMemTrim(0));
}

static void external(unsigned *seed) {
    size_t size = some(seed);
    int file = memfd_create("external", MFD_CLOEXEC);
    uint64_t from[13] = {1, (uint64_t)file, 0, size}, part[11] = {0, MIB}, at;
    void *memory;
    if (ftruncate(file, (off_t)size)) exit(4);
    if (!TRIED(cuImportExternalMemory(&memory, from))) {
        close(file);
        return;
    }
    MUST(cuExternalMemoryGetMappedBuffer(&at, memory, part));
    MUST(cuDestroyExternalMemory(memory));
    MUST(cuMemFree_v2(at));
}

static void module(unsigned *seed) {
    char text[200];
    void *loaded;
    snprintf(text, sizeof text, ".version 8.0\n.visible .global .align 4 .b8 big[%zu];\n", some(seed));
    if (TRIED(cuModuleLoadData(&loaded, text))) MUST(cuModuleUnload(loaded));
}

static void context(unsigned *seed) {
    void *made, *loaded;
    uint64_t at;
    if (!TRIED(cuCtxCreate_v2(&made, 0, 0))) return;
    if (TRIED(cuMemAlloc_v2(&at, some(seed))) && TRIED(cuMemAlloc_v2(&at, some(seed)))) MUST(cuMemFree_v2(at));
    TRIED(cuModuleLoadData(&loaded, ".version 8.0\n.global .b8 two[2000000];\n"));
    if (TRIED(cuCtxSetLimit(2, some(seed)))) TRIED(cuCtxSetLimit(2, some(seed)));
    MUST(cuCtxDestroy_v2(made));
    MUST(cuCtxSetCurrent(primary));
}

static void managed(unsigned *seed) {
    uint64_t at;
    MUST(cuMemAllocManaged(&at, 8 * some(seed), 1));
    MUST(cuMemFree_v2(at));
}

static void *work(void *number) {
    static void (*const kinds[])(unsigned *) = {pool, default_pool, graph, external, module, context, managed};
    unsigned seed = (unsigned)(uintptr_t)number;
    MUST(cuCtxSetCurrent(primary));
    for (long i = 0; i < rounds; i++) kinds[(unsigned)rand_r(&seed) % (sizeof kinds / sizeof *kinds)](&seed);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    uint64_t keeps = UINT64_MAX;
    size_t left, all;
    void *pool;
    rounds = count > 1 ? atol(arguments[1]) : 1;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolSetAttribute(pool, 4, &keeps));
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    MUST(cuDeviceGraphMemTrim(0));
    MUST(cuMemPoolTrimTo(pool, 0));
    MUST(cuMemGetInfo_v2(&left, &all));
    printf("%zu of %zu\n", left / MIB, all / MIB);
    return 0;
}
