/* Threads that use the stand-in driver at once, each in its own way: for builds that detect races and invalid memory
 * accesses. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *), cuStreamSynchronize(void *);
int cuStreamSynchronize_ptsz(void *), cuStreamQuery(void *), cuStreamWaitEvent(void *, void *, unsigned);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventSynchronize(void *), cuEventDestroy_v2(void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuLaunchKernel_ptsz(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuLaunchHostFunc(void *, void (*)(void *), void *);
int cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address), cuMemcpyHtoD_v2(address, const void *, size_t);
int cuMemcpyDtoH_v2(void *, address, size_t), cuMemAllocAsync(address *, size_t, void *), cuMemFreeAsync(address, void *);
int cuMemGetInfo_v2(size_t *, size_t *), cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long), cuGraphLaunch(void *, void *);
int cuGraphExecDestroy(void *), cuGraphDestroy(void *);

#define DO(call)                                                          \
    do {                                                                  \
        int code = call;                                                  \
        if (code) fprintf(stderr, "%s -> %d\n", #call, code), exit(1);    \
    } while (0)

static void *context, *module;
static int called;

static void count(void *data) {
    (void)data;
    __atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
}

static void memory(void *stream) {
    char there[64], back[64];
    address plain, ordered;
    size_t available, total;
    memset(there, (int)((uintptr_t)stream >> 4), sizeof there);
    DO(cuMemAlloc_v2(&plain, sizeof there));
    DO(cuMemAllocAsync(&ordered, 4096, stream));
    DO(cuMemcpyHtoD_v2(plain, there, sizeof there));
    DO(cuMemGetInfo_v2(&available, &total));
    DO(cuMemcpyDtoH_v2(back, plain, sizeof back));
    if (memcmp(there, back, sizeof back) || available >= total) exit(2);
    DO(cuMemFreeAsync(ordered, stream));
    DO(cuMemFree_v2(plain));
}

static void recorded(void *work, void *stream) {
    void *graph, *executable;
    DO(cuStreamBeginCapture_v2(stream, 1));
    DO(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&executable, graph, 0));
    DO(cuGraphLaunch(executable, stream));
    DO(cuGraphExecDestroy(executable));
    DO(cuGraphDestroy(graph));
}

static void *use(void *times) {
    void *work, *stream, *event;
    DO(cuCtxSetCurrent(context));
    DO(cuModuleGetFunction(&work, module, "work_us5"));
    for (long i = 0; i < (long)times; i++) {
        DO(cuStreamCreate(&stream, 0));
        DO(cuEventCreate(&event, 0));
        DO(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
        DO(cuLaunchKernel_ptsz(work, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        DO(cuEventRecord(event, stream));
        DO(cuStreamWaitEvent(NULL, event, 0));
        DO(cuLaunchHostFunc(stream, count, NULL));
        recorded(work, stream);
        memory(stream);
        cuStreamQuery(stream);
        DO(cuEventSynchronize(event));
        DO(cuStreamSynchronize_ptsz(NULL));
        DO(cuStreamSynchronize(stream));
        DO(cuEventDestroy_v2(event));
        DO(cuStreamDestroy_v2(stream));
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[64];
    int many = count > 2 ? atoi(arguments[1]) : 8;
    long times = count > 2 ? atol(arguments[2]) : 50;
    DO(cuInit(0));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    DO(cuModuleLoadData(&module, "image"));
    for (int i = 0; i < many; i++) pthread_create(&threads[i], NULL, use, (void *)times);
    for (int i = 0; i < many; i++) pthread_join(threads[i], NULL);
    DO(cuCtxSynchronize());
    printf("%d\n", called);
    return 0;
}
