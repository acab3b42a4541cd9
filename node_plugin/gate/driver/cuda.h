/* The part of the driver's ABI that the gate uses: types and constants. */
#ifndef GATE_DRIVER_CUDA_H
#define GATE_DRIVER_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult, CUdevice;
typedef void *CUcontext, *CUstream, *CUevent, *CUfunction, *CUgraphExec, *CUgraph, *CUarray, *CUmipmappedArray, *CUmemoryPool;
typedef void *CUmodule, *CUlibrary, *CUexternalMemory;
typedef uint64_t CUdeviceptr, CUmemHandle;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
};

/* Handles of the default streams, which mean the same in both forms of a function. */
#define STREAM_LEGACY ((CUstream)1)
#define STREAM_PER_THREAD ((CUstream)2)

struct launch_config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void *attributes;
    unsigned count;
};

struct launch_params { /* CUDA_LAUNCH_PARAMS */
    CUfunction function;
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void **params;
};

struct array1 { unsigned width, height; int format; unsigned channels; };
struct array2 { size_t width, height; int format; unsigned channels; };
struct volume1 { unsigned width, height, depth; int format; unsigned channels, flags; };
struct volume2 { size_t width, height, depth; int format; unsigned channels, flags; };
enum { ARRAY_SPARSE = 0x40, ARRAY_DEFERRED = 0x80 };

struct allocation { /* the first fields of CUmemAllocationProp and of CUmemPoolProps */
    int type, handles;
    struct { int type, id; } location;
};
enum { LOCATION_DEVICE = 1 };

struct allocation_node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
    struct allocation pool;
    char rest[72];
    const void *access;
    size_t count, size;
    CUdeviceptr at;
};
_Static_assert(offsetof(struct allocation_node, size) == 104, "as in the driver's ABI");

struct node_params { /* CUgraphNodeParams */
    int type, reserved[3];
    union {
        struct allocation_node allocation;
        CUdeviceptr freed;
        CUgraph graph;
    };
};

struct external_memory { /* the first fields of CUDA_EXTERNAL_MEMORY_HANDLE_DESC */
    int type;
    void *handle[2];
    unsigned long long size;
};

#endif
