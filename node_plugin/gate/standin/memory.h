/* Allocations, for the files that allocate: plain memory, pools, arrays, virtual addresses. */
#ifndef STANDIN_MEMORY_H
#define STANDIN_MEMORY_H

#include "standin.h"

/* cuMemFree accepts the kinds up to MANAGED. */
enum kind { DEVICE, POOLED, EXTERNAL, MANAGED, ARRAY, HOST, IMPORTED, MAPPED, OF_GRAPH };

struct allocation {
    char *base;
    size_t bytes;
    enum kind kind;
    struct device *device;
    struct context *context; /* whose end frees it, or NULL */
    struct pool *pool;
    int file; /* a file that other processes map too, or 0 */
    struct physical *physical;
    struct external *external;
    uint64_t counted; /* bytes on the board */
    void *parked;     /* where its contents are while parked */
};

/* Return the allocation that contains the pointer, or NULL. */
struct allocation *allocation_at(CUdeviceptr pointer);

/* Takes the lock. */
struct allocation *obtain(struct device *device, size_t bytes, enum kind kind);
struct allocation *remember(void *base, size_t bytes, enum kind kind, struct device *device);
void release(struct allocation *allocation);
void forget(struct allocation *allocation);

/* Return whether there is an allocation of that kind. */
int any_allocation(enum kind kind);

/* Move the GPU's memory of this process to another place of its host memory, with as many bytes as its contexts take; and back to
 * the same addresses. Return whether it could be done; if not, nothing is moved. */
int move_out(void);
int move_in(void);

/* Call a function for each allocation, with the lock. */
void each_allocation(void (*function)(struct allocation *, void *), void *data);

/* Return freed memory to its pool. */
void pool_return(struct pool *pool, uint64_t bytes);
void external_drop(struct external *external);

#endif
