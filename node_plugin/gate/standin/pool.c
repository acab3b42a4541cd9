/* Stream-ordered memory. Freed memory is free for its pool at once; memory that the pool need not keep returns to the GPU at
 * the next synchronization. */
#include "memory.h"

#include <stdlib.h>

enum { RELEASE_THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8, ATTRIBUTES = 9 };

struct pool {
    struct pool *next;
    int ordinal;
    int destroyed;
    uint64_t values[ATTRIBUTES];
};

static struct pool *pools;

/* Called with the lock when the devices are opened, and without it by programs. */
struct pool *make_pool(int ordinal) {
    struct pool *pool = calloc(1, sizeof *pool);
    pool->ordinal = ordinal;
    do pool->next = __atomic_load_n(&pools, __ATOMIC_ACQUIRE);
    while (!__sync_bool_compare_and_swap(&pools, pool->next, pool));
    return pool;
}

static void add(struct pool *pool, int which, int64_t bytes) {
    pool->values[which] += (uint64_t)bytes;
    if (pool->values[which] > pool->values[which + 1]) pool->values[which + 1] = pool->values[which];
}

void pool_return(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&standin_lock);
    add(pool, USED, -(int64_t)bytes);
    pthread_mutex_unlock(&standin_lock);
}

/* Release unused memory, down to `least` bytes. */
static void trim(struct pool *pool, uint64_t least) {
    pthread_mutex_lock(&standin_lock);
    uint64_t keep = least > pool->values[USED] ? least : pool->values[USED], all = pool->values[RESERVED];
    if (all > keep) {
        board_take(&standin_devices[pool->ordinal].board, -(int64_t)(all - keep));
        pool->values[RESERVED] = keep;
    }
    pthread_mutex_unlock(&standin_lock);
}

void pools_settle(const struct device *device) {
    for (struct pool *pool = __atomic_load_n(&pools, __ATOMIC_ACQUIRE); pool; pool = pool->next)
        if (&standin_devices[pool->ordinal] == device) trim(pool, pool->destroyed ? 0 : pool->values[RELEASE_THRESHOLD]);
}

/* Take the pool's unused memory first, and the rest from the GPU. */
static int grow(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&standin_lock);
    uint64_t left = pool->values[RESERVED] - pool->values[USED], more = bytes > left ? bytes - left : 0;
    int enough = board_take(&standin_devices[pool->ordinal].board, (int64_t)more);
    if (enough) add(pool, RESERVED, (int64_t)more), add(pool, USED, (int64_t)bytes);
    pthread_mutex_unlock(&standin_lock);
    return enough;
}

static CUresult take(CUdeviceptr *pointer, size_t bytes, struct pool *pool) {
    if (!pointer || !bytes || !pool) return INVALID_VALUE;
    struct device *device = &standin_devices[pool->ordinal];
    if (!grow(pool, bytes)) {
        pools_settle(device);
        if (!grow(pool, bytes)) return OUT_OF_MEMORY;
    }
    struct allocation *allocation = obtain(device, bytes, POOLED);
    if (!allocation) {
        pool_return(pool, bytes);
        return OUT_OF_MEMORY;
    }
    allocation->pool = pool;
    *pointer = (CUdeviceptr)(uintptr_t)allocation->base;
    return OK;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, struct pool *pool, struct stream *handle, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (stream->capture) return capture_allocation(stream->capture, pointer, bytes);
    return take(pointer, bytes, pool ? pool : stream->context->device->pool);
}

API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, struct stream *stream) {
    ENTER(WAITS_OR_ENDS);
    return allocate(pointer, bytes, NULL, stream, 0);
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, struct stream *stream) {
    ENTER(WAITS_OR_ENDS);
    return allocate(pointer, bytes, NULL, stream, 1);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, struct pool *pool, struct stream *stream) {
    ENTER(WAITS_OR_ENDS);
    return pool ? allocate(pointer, bytes, pool, stream, 0) : INVALID_VALUE;
}

API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, struct pool *pool, struct stream *stream) {
    ENTER(WAITS_OR_ENDS);
    return pool ? allocate(pointer, bytes, pool, stream, 1) : INVALID_VALUE;
}

static CUresult give_back(CUdeviceptr pointer, struct stream *handle, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    struct allocation *allocation = allocation_at(pointer);
    if (failed || !pointer) return failed;
    if (stream->capture) return capture_free(stream->capture, pointer);
    if (!allocation || allocation->kind > MANAGED || allocation->base != (char *)(uintptr_t)pointer) return INVALID_VALUE;
    release(allocation);
    return OK;
}

API CUresult cuMemFreeAsync(CUdeviceptr pointer, struct stream *stream) { ENTER(WAITS); return give_back(pointer, stream, 0); }

API CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, struct stream *stream) { ENTER(WAITS); return give_back(pointer, stream, 1); }

/* The properties: type, kinds of handles, type and number of the location. */
API CUresult cuMemPoolCreate(struct pool **pool, const int *properties) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!pool || !properties || properties[2] != 1 || known_device(properties[3])) return INVALID_VALUE;
    *pool = make_pool(properties[3]);
    return OK;
}

API CUresult cuMemPoolDestroy(struct pool *pool) {
    ENTER(WAITS_OR_ENDS);
    if (standin_state) return standin_state;
    if (!pool || pool == standin_devices[pool->ordinal].default_pool) return INVALID_VALUE;
    if (standin_devices[pool->ordinal].pool == pool) standin_devices[pool->ordinal].pool = standin_devices[pool->ordinal].default_pool;
    pool->destroyed = 1; /* it is small and never freed: allocations may refer to it */
    trim(pool, 0);
    return OK;
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
    if (standin_state || !pool) return standin_state ? standin_state : INVALID_VALUE;
    trim(pool, bytes);
    return OK;
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
    ENTER(WAITS);
    CUresult failed = known_device(device);
    if (!failed) *pool = standin_devices[device].default_pool;
    return failed;
}

API CUresult cuDeviceGetMemPool(struct pool **pool, CUdevice device) {
    ENTER(WAITS);
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
