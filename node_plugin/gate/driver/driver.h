/* Access to the real driver's functions, for the gate. */
#ifndef GATE_DRIVER_H
#define GATE_DRIVER_H

#include "driver/cuda.h"
#include "driver/entries.h"
#include "driver/gated.h"

#include <stdatomic.h>
#include <stdbool.h>

/* U: a driver function that the gate itself calls, and the types of its arguments. */
#define USED(U) \
    U(cuCtxGetCurrent, (CUcontext *)) U(cuCtxGetDevice, (CUdevice *)) U(cuCtxPushCurrent_v2, (CUcontext)) \
    U(cuCtxPopCurrent_v2, (CUcontext *)) U(cuStreamGetCtx, (CUstream, CUcontext *)) \
    U(cuStreamIsCapturing, (CUstream, int *)) U(cuStreamGetFlags, (CUstream, unsigned *)) \
    U(cuThreadExchangeStreamCaptureMode, (int *)) \
    U(cuDriverGetVersion, (int *)) U(cuDeviceGetUuid, (unsigned char *, CUdevice)) U(cuEventCreate, (CUevent *, unsigned)) \
    U(cuEventRecord, (CUevent, CUstream)) \
    U(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) U(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    U(cuCtxGetLimit, (size_t *, int)) U(cuMemAdvise, (CUdeviceptr, size_t, int, CUdevice)) \
    U(cuMemPoolGetAttribute, (CUmemoryPool, int, void *)) U(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice)) \
    U(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice)) U(cuDeviceGetGraphMemAttribute, (CUdevice, int, void *)) \
    U(cuStreamGetCaptureInfo_v2, (CUstream, int *, uint64_t *, CUgraph *, void *, void *)) \
    U(cuCheckpointProcessLock, (int, const uint64_t *)) U(cuCheckpointProcessCheckpoint, (int, const uint64_t *)) \
    U(cuCheckpointProcessRestore, (int, const uint64_t *)) U(cuCheckpointProcessUnlock, (int, const uint64_t *)) \
    U(cuCheckpointProcessGetState, (int, int *))
/* U: the same for functions that it also intercepts. */
#define USED_GATED(U) \
    U(cuStreamQuery, (CUstream)) U(cuEventQuery, (CUevent)) U(cuEventElapsedTime, (float *, CUevent, CUevent))

#define NAME_GATED(symbol, name, since, per_thread) AT_##symbol,
#define NAME_USED(symbol, arguments) AT_##symbol,
enum driver_function { GATED(NAME_GATED) GATED_COUNT, BEFORE_USED = GATED_COUNT - 1, USED(NAME_USED) FUNCTION_COUNT };
#undef NAME_GATED
#undef NAME_USED

#define TYPE_USED(symbol, arguments) typedef CUresult(*type_of_##symbol) arguments;
USED(TYPE_USED) USED_GATED(TYPE_USED)
#undef TYPE_USED

/* Return the entry that leads to the driver's own function. Like every entry, it waits while calls are blocked (entries.c). If
 * the driver lacks the function, driver_function returns NULL, and driver_real returns an entry that answers
 * CUDA_ERROR_NOT_SUPPORTED. */
void *driver_function(enum driver_function);
static inline void *driver_real(enum driver_function which) {
    return (void *)(gate_entries + (size_t)ENTRY_SIZE * (FIRST_STUB + (unsigned)which));
}

/* GATE: the gate's replacement of a driver function. REAL: the driver's own function. */
#define GATE(symbol) gate_##symbol
#define REAL(symbol) ((__typeof__(&GATE(symbol)))driver_real(AT_##symbol))
/* A driver function that the gate calls. */
#define DRIVER(symbol) ((type_of_##symbol)driver_function(AT_##symbol))
/* A driver function that older drivers lack; there it returns CUDA_ERROR_NOT_SUPPORTED. */
#define NEWER(symbol) ((type_of_##symbol)driver_real(AT_##symbol))

/* Look up names among the exports of a library, which has this one's soname; `found` becomes NULL for those that it lacks. */
void library_exports(const char *library, const char *const *names, void *_Atomic *found, unsigned count);
/* Return the first definition of `name` in the process. Does not use dlsym, which the oldest C libraries have in libdl. */
void *process_symbol(const char *name);
/* Run this in each child, just after it was forked. */
void run_in_children(void (*run)(void));

#endif
