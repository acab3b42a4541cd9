/* Memory in stream order. What is freed is free at once: nothing here runs later than it was called. */
#include "memory.h"

#include <stdlib.h>

enum { RELEASE_THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8, ATTRIBUTES = 9 };

struct pool {
    int ordinal;
    uint64_t values[ATTRIBUTES];
};

struct pool *make_pool(int ordinal) {
    struct pool *pool = calloc(1, sizeof *pool);
    pool->ordinal = ordinal;
    return pool;
}

void pool_used(struct pool *pool, int64_t bytes) {
    pthread_mutex_lock(&standin_lock);
    for (int which = RESERVED; which <= USED; which += 2) {
        pool->values[which] += (uint64_t)bytes;
        if (pool->values[which] > pool->values[which + 1]) pool->values[which + 1] = pool->values[which];
    }
    pthread_mutex_unlock(&standin_lock);
}

static CUresult take(CUdeviceptr *pointer, size_t bytes, struct pool *pool) {
    if (!pointer || !bytes || !pool) return INVALID_VALUE;
    struct allocation *allocation = obtain(&standin_devices[pool->ordinal], bytes, POOLED);
    if (!allocation) return OUT_OF_MEMORY;
    allocation->pool = pool;
    pool_used(pool, (int64_t)bytes);
    *pointer = (CUdeviceptr)(uintptr_t)allocation->base;
    return OK;
}

API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, struct stream *handle) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    return failed ? failed : take(pointer, bytes, stream->context->device->pool);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, struct pool *pool, struct stream *handle) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    return failed ? failed : take(pointer, bytes, pool);
}

API CUresult cuMemFreeAsync(CUdeviceptr pointer, struct stream *handle) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    struct allocation *allocation = allocation_at(pointer);
    if (failed || !pointer) return failed;
    if (!allocation || allocation->kind > MANAGED || allocation->base != (char *)(uintptr_t)pointer) return INVALID_VALUE;
    release(allocation);
    return OK;
}

ALSO(cuMemAllocAsync, cuMemAllocAsync_ptsz)
ALSO(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz)
ALSO(cuMemFreeAsync, cuMemFreeAsync_ptsz)

/* Its properties: type, kinds of handles, type and number of the place. */
API CUresult cuMemPoolCreate(struct pool **pool, const int *properties) {
    if (standin_state) return standin_state;
    if (!pool || !properties || properties[2] != 1 || known_device(properties[3])) return INVALID_VALUE;
    *pool = make_pool(properties[3]);
    return OK;
}

API CUresult cuMemPoolDestroy(struct pool *pool) {
    if (standin_state) return standin_state;
    if (!pool || pool == standin_devices[pool->ordinal].default_pool) return INVALID_VALUE;
    if (standin_devices[pool->ordinal].pool == pool) standin_devices[pool->ordinal].pool = standin_devices[pool->ordinal].default_pool;
    return OK; /* it is small and stays: allocations may name it */
}

API CUresult cuMemPoolGetAttribute(struct pool *pool, int attribute, void *value) {
    if (standin_state) return standin_state;
    if (!pool || attribute < 1 || attribute >= ATTRIBUTES) return INVALID_VALUE;
    if (attribute < RELEASE_THRESHOLD) *(int *)value = (int)pool->values[attribute];
    else *(uint64_t *)value = pool->values[attribute];
    return OK;
}

API CUresult cuMemPoolSetAttribute(struct pool *pool, int attribute, void *value) {
    if (standin_state) return standin_state;
    if (!pool || attribute < 1 || attribute >= ATTRIBUTES) return INVALID_VALUE;
    pool->values[attribute] = attribute < RELEASE_THRESHOLD ? (uint64_t) * (int *)value : *(uint64_t *)value;
    return OK;
}

API CUresult cuMemPoolTrimTo(struct pool *pool, size_t bytes) {
    (void)bytes;
    return pool ? standin_state : INVALID_VALUE;
}

API CUresult cuMemPoolSetAccess(struct pool *pool, const void *list, size_t count) {
    (void)list, (void)count;
    return pool ? standin_state : INVALID_VALUE;
}

API CUresult cuMemPoolGetAccess(int *flags, struct pool *pool, const int *place) {
    *flags = place[0] == 1 && place[1] == pool->ordinal ? 3 : 0;
    return standin_state;
}

API CUresult cuDeviceGetDefaultMemPool(struct pool **pool, CUdevice device) {
    CUresult failed = known_device(device);
    if (!failed) *pool = standin_devices[device].default_pool;
    return failed;
}

API CUresult cuDeviceGetMemPool(struct pool **pool, CUdevice device) {
    CUresult failed = known_device(device);
    if (!failed) *pool = standin_devices[device].pool;
    return failed;
}

API CUresult cuDeviceSetMemPool(CUdevice device, struct pool *pool) {
    CUresult failed = known_device(device);
    if (!failed && !pool) return INVALID_VALUE;
    if (!failed) standin_devices[device].pool = pool;
    return failed;
}
