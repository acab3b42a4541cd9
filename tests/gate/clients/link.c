/* All of the gate built into this program, which connects to park.sock and then does what its input says, on the stand-in driver:
 * "init", "work MS", "read", "need 0" or "need 1", "fault NAME", "fork". It answers each line with one. */
#define _GNU_SOURCE
#include "connection/share.h"
#include "parking/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

CUresult cuInit(unsigned), cuCtxCreate_v2(CUcontext *, unsigned, CUdevice), cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t), cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static CUdeviceptr memory;

static void need(CUresult code, int line) {
    if (code == CUDA_SUCCESS) return;
    fprintf(stderr, "link.c: line %d: %d\n", line, code);
    _exit(3);
}
#define NEED(call) need(call, __LINE__)

static void work(const char *ms) {
    char name[64];
    CUmodule module;
    CUfunction kernel;
    snprintf(name, sizeof name, "work_us%s000", ms);
    NEED(cuModuleLoadData(&module, "image"));
    NEED(cuModuleGetFunction(&kernel, module, name));
    NEED(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

/* Fork a child that outlives this process for a while. It closes the pipes, which are read to their end. */
static void forks(void) {
    pid_t parent = getpid();
    if (fork()) return;
    for (int file = 0; file < 3; file++) close(file);
    while (getppid() == parent) usleep(10000);
    sleep(10);
    _exit(0);
}

static void answer(const char *word, const char *rest) {
    char there[6] = "";
    if (strcmp(word, "work") == 0) work(rest);
    else if (strcmp(word, "read") == 0) NEED(cuMemcpyDtoH_v2(there, memory, 5));
    else if (strcmp(word, "need") == 0) link_need(*rest == '1');
    else if (strcmp(word, "fault") == 0) setenv("JUPYTER_GPU_STANDIN_PARK_FAULT", rest, 1);
    else if (strcmp(word, "init") == 0) NEED(cuInit(0));
    else if (strcmp(word, "fork") == 0) forks();
    printf("%s %s\n", word, there);
    fflush(stdout);
}

int main(void) {
    CUcontext context;
    char line[64];
    NEED(cuInit(0));
    NEED(cuCtxCreate_v2(&context, 0, 0));
    NEED(cuMemAlloc_v2(&memory, 8 << 20));
    NEED(cuMemcpyHtoD_v2(memory, "there", 5));
    while (fgets(line, sizeof line, stdin)) {
        char *rest = line + strcspn(line, " \n");
        line[strcspn(line, "\n")] = 0;
        if (*rest) *rest++ = 0;
        answer(line, rest);
    }
    return 0;
}
