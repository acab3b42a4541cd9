/* What was allocated, for the files that allocate: plain memory, pools, arrays, virtual addresses. */
#ifndef STANDIN_MEMORY_H
#define STANDIN_MEMORY_H

#include "standin.h"

/* cuMemFree takes those up to MANAGED; those up to ARRAY are counted on the board here, as device memory. */
enum kind { DEVICE, POOLED, MANAGED, ARRAY, HOST, IMPORTED, MAPPED };

struct allocation {
    char *base;
    size_t bytes;
    enum kind kind;
    struct device *device;
    struct context *context; /* whose end is its end, or NULL */
    struct pool *pool;
    int file; /* what other processes map too, or 0 */
    struct physical *physical;
};

/* Whose range holds the pointer, or NULL. */
struct allocation *allocation_at(CUdeviceptr pointer);

/* Takes the lock. */
struct allocation *obtain(struct device *device, size_t bytes, enum kind kind);
struct allocation *remember(void *base, size_t bytes, enum kind kind, struct device *device);
void release(struct allocation *allocation);
void forget(struct allocation *allocation);

/* Counts what a pool has given out. */
void pool_used(struct pool *pool, int64_t bytes);

#endif
