/* cuInit and cuGetProcAddress, by which programs find GPUs and the driver's functions. */
#define _GNU_SOURCE
#include "connection/share.h"
#include "driver/looks.h"
#include "driver/visible.h"
#include "parking/link.h"

#include <stdlib.h>

/* --- initialization ----------------------------------------------------------------------------------------------- */

/* Initialize the driver, and record a search that finds no GPU, for the guard in a notebook's kernel
 * (jupyter_gpu/kernel/cuda/looks.py). An empty list of visible GPUs is answered here as the driver would answer it: the driver is
 * not entered, so it reads the variables when there is a GPU, and the same call succeeds then. */
CUresult GATE(cuInit)(unsigned flags) {
    static _Atomic bool known; /* the driver has read the variables and will not read them again */
    bool none = false;
    if (!atomic_load(&known)) {
        gate_lock_first(); /* one thread changes the variables; the others wait for it */
#ifndef GATE_DIRECTORY         /* in a pod the device rules apply to all GPUs, and CUDA sees those that it can open */
        if (!gate_environment_is_foreign()) visible_follow();
#endif
        const char *visible = getenv(VISIBLE);
        none = !flags && visible && !*visible;
        gate_unlock(); /* before the driver, which may load libraries that call the gate */
    }
    CUresult result = none ? CUDA_ERROR_NO_DEVICE : REAL(cuInit)(flags);
    if (result == CUDA_SUCCESS) atomic_store(&known, true), looks_found(), link_start();
    if (result == CUDA_ERROR_NO_DEVICE) looks_record(__builtin_return_address(0));
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
