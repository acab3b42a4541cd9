/* What was allocated, for the files that allocate: plain memory, pools, arrays, virtual addresses. */
#ifndef STANDIN_MEMORY_H
#define STANDIN_MEMORY_H

#include "standin.h"

/* cuMemFree takes those up to MANAGED. */
enum kind { DEVICE, POOLED, EXTERNAL, MANAGED, ARRAY, HOST, IMPORTED, MAPPED, OF_GRAPH };

struct allocation {
    char *base;
    size_t bytes;
    enum kind kind;
    struct device *device;
    struct context *context; /* whose end is its end, or NULL */
    struct pool *pool;
    int file; /* what other processes map too, or 0 */
    struct physical *physical;
    struct external *external;
    uint64_t counted; /* bytes on the board */
};

/* Whose range holds the pointer, or NULL. */
struct allocation *allocation_at(CUdeviceptr pointer);

/* Takes the lock. */
struct allocation *obtain(struct device *device, size_t bytes, enum kind kind);
struct allocation *remember(void *base, size_t bytes, enum kind kind, struct device *device);
void release(struct allocation *allocation);
void forget(struct allocation *allocation);

/* What a pool has given out comes back to it. */
void pool_takes_back(struct pool *pool, uint64_t bytes);
void external_drop(struct external *external);

#endif
