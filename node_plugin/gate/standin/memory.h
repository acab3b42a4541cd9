/* What was allocated, for the files that allocate: plain memory, pools, arrays, virtual addresses. */
#ifndef STANDIN_MEMORY_H
#define STANDIN_MEMORY_H

#include "standin.h"

/* cuMemFree takes those up to MANAGED. */
enum kind { DEVICE, POOLED, IMPORTED, MANAGED, HOST, ARRAY, MAPPED };

struct allocation {
    char *base;
    size_t bytes;
    enum kind kind;
    struct device *device;
    struct pool *pool;
    int file; /* where it is shared with other processes */
};

/* Whose range holds the pointer, or NULL. */
struct allocation *allocation_at(CUdeviceptr pointer);

/* Takes the lock. */
struct allocation *obtain(struct device *device, size_t bytes, enum kind kind);
struct allocation *remember(void *base, size_t bytes, enum kind kind, struct device *device);
void release(struct allocation *allocation);
void forget(struct allocation *allocation);

#endif
