/* cuInit and cuGetProcAddress, by which programs find GPUs and the driver's functions. */
#define _GNU_SOURCE
#include "connection/share.h"
#include "driver/visible.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { CLOSE_ON_EXEC = 1 }; /* MFD_CLOEXEC, which older headers lack */

/* --- initialization ----------------------------------------------------------------------------------------------- */

/* Initialize the driver, and mark the process if there is no GPU. The driver searches again at each call, but most libraries
 * above it keep the first answer, so the process will not use GPUs that are attached later. The mark is an open file, by whose
 * name the guard in a notebook's kernel (jupyter_gpu/kernel/cuda/guard.py) can explain why a GPU is unused. */
CUresult GATE(cuInit)(unsigned flags) {
    static _Atomic int marker = -1; /* of this process and its forks; closed by exec */
    static _Atomic bool known;      /* the driver has read the variables and will not read them again */
#ifndef GATE_DIRECTORY /* in a pod the device rules apply to all GPUs, and CUDA sees those that it can open */
    if (!atomic_load(&known) && !gate_environment_is_foreign()) {
        gate_lock_first(); /* one thread changes the variables; the others wait for it */
        visible_follow();
        gate_unlock(); /* before the driver, which may load libraries that call the gate */
    }
#endif
    CUresult result = REAL(cuInit)(flags);
    if (result == CUDA_SUCCESS) atomic_store(&known, true);
    if (result == CUDA_ERROR_NO_DEVICE && atomic_load(&marker) < 0) {
        int none = -1, made = (int)syscall(SYS_memfd_create, "jupyter-gpu-looked", CLOSE_ON_EXEC);
        if (made >= 0 && !atomic_compare_exchange_strong(&marker, &none, made)) close(made);
    }
    return result;
}

/* --- lookups ------------------------------------------------------------------------------------------------------ */

CUresult GATE(cuGetProcAddress)(const char *name, void **to, int version, uint64_t flags) {
    CUresult result = REAL(cuGetProcAddress)(name, to, version, flags);
    if (result == CUDA_SUCCESS && to) *to = entry_for(name, version, flags, *to);
    return result;
}

CUresult GATE(cuGetProcAddress_v2)(const char *name, void **to, int version, uint64_t flags, int *status) {
    CUresult result = REAL(cuGetProcAddress_v2)(name, to, version, flags, status);
    if (result == CUDA_SUCCESS && to) *to = entry_for(name, version, flags, *to);
    return result;
}
