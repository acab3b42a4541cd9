/* Device memory: memory of this process, counted on the board. Copies really copy, and a request beyond the GPU's memory
 * fails. */
#define _GNU_SOURCE
#include "memory.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PREFERRED_LOCATION = 3, HOST_MEMORY = -1 }; /* an advice, and the device that means the host */

static void *allocations; /* a tree ordered by address */

static int by_address(const void *a, const void *b) {
    const struct allocation *left = a, *right = b;
    if (left->base + left->bytes <= right->base) return -1;
    return right->base + right->bytes <= left->base;
}

struct allocation *allocation_at(CUdeviceptr pointer) {
    struct allocation key = {.base = (char *)(uintptr_t)pointer, .bytes = 1};
    pthread_mutex_lock(&standin_lock);
    struct allocation **found = tfind(&key, &allocations, by_address);
    struct allocation *allocation = found ? *found : NULL;
    pthread_mutex_unlock(&standin_lock);
    return allocation;
}

struct allocation *remember(void *base, size_t bytes, enum kind kind, struct device *device) {
    struct allocation *allocation = calloc(1, sizeof *allocation);
    *allocation = (struct allocation){.base = base, .bytes = bytes, .kind = kind, .device = device};
    pthread_mutex_lock(&standin_lock);
    tsearch(allocation, &allocations, by_address);
    pthread_mutex_unlock(&standin_lock);
    return allocation;
}

static void take_out(struct allocation *allocation) {
    pthread_mutex_lock(&standin_lock);
    tdelete(allocation, &allocations, by_address);
    pthread_mutex_unlock(&standin_lock);
}

void forget(struct allocation *allocation) {
    take_out(allocation);
    free(allocation);
}

/* Count memory on the board. Managed memory counts as if all of it had been touched, as much as fits. */
static int place(struct device *device, size_t bytes, enum kind kind, uint64_t *counted) {
    *counted = kind == DEVICE || kind == ARRAY ? bytes : 0;
    while (kind == MANAGED) {
        uint64_t left = board_free(&device->board);
        *counted = bytes < left ? bytes : left;
        if (board_take(&device->board, (int64_t)*counted)) return 1;
    }
    return board_take(&device->board, (int64_t)*counted);
}

struct allocation *obtain(struct device *device, size_t bytes, enum kind kind) {
    uint64_t counted;
    if (!place(device, bytes, kind, &counted)) return NULL;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct allocation *made = base == MAP_FAILED ? NULL : remember(base, bytes, kind, device);
    if (made) made->counted = counted;
    else board_take(&device->board, -(int64_t)counted);
    return made;
}

/* Remove it from the tree first: another thread may get the same address as soon as it is unmapped. */
void release(struct allocation *allocation) {
    take_out(allocation);
    munmap(allocation->base, allocation->bytes);
    board_take(&allocation->device->board, -(int64_t)allocation->counted);
    if (allocation->file) close(allocation->file);
    if (allocation->pool) pool_return(allocation->pool, allocation->bytes);
    if (allocation->external) external_drop(allocation->external);
    free(allocation);
}

API CUresult cuStreamAttachMemAsync(struct stream *stream, CUdeviceptr pointer, size_t bytes, unsigned flags) {
    ENTER(WAITS);
    (void)stream, (void)bytes;
    struct allocation *allocation = allocation_at(pointer);
    return allocation && allocation->kind == MANAGED && flags <= 4 ? standin_state : INVALID_VALUE;
}
ALSO(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz)

struct list {
    struct context *context;     /* of this context, or */
    const struct device *pooled; /* of pools of this device */
    struct allocation **found;
    size_t count;
};

static void collect(const void *node, VISIT visit, void *data) {
    struct allocation *allocation = *(struct allocation *const *)node;
    struct list *list = data;
    if (visit != postorder && visit != leaf) return;
    if (list->context ? allocation->context != list->context : !allocation->pool || allocation->device != list->pooled) return;
    list->found = realloc(list->found, (list->count + 1) * sizeof *list->found);
    list->found[list->count++] = allocation;
}

struct visit {
    void (*function)(struct allocation *, void *);
    void *data;
};

static void visit_one(const void *node, VISIT visit, void *data) {
    const struct visit *each = data;
    if (visit == postorder || visit == leaf) each->function(*(struct allocation *const *)node, each->data);
}

void each_allocation(void (*function)(struct allocation *, void *), void *data) {
    struct visit each = {function, data};
    pthread_mutex_lock(&standin_lock);
    twalk_r(allocations, visit_one, &each);
    pthread_mutex_unlock(&standin_lock);
}

static void release_list(struct list list) {
    pthread_mutex_lock(&standin_lock);
    twalk_r(allocations, collect, &list);
    pthread_mutex_unlock(&standin_lock);
    for (size_t i = 0; i < list.count; i++) release(list.found[i]);
    free(list.found);
}

void release_all(struct context *context) { release_list((struct list){.context = context}); }

void release_pooled(struct device *device) { release_list((struct list){.pooled = device}); }

static CUresult take(CUdeviceptr *pointer, size_t bytes, enum kind kind) {
    struct context *context;
    CUresult failed = current(&context);
    if (failed) return failed;
    if (!pointer || !bytes) return INVALID_VALUE;
    struct allocation *allocation = obtain(context->device, bytes, kind);
    if (!allocation) return OUT_OF_MEMORY;
    allocation->context = context;
    *pointer = (CUdeviceptr)(uintptr_t)allocation->base;
    return OK;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) { ENTER(WAITS); return take(pointer, bytes, DEVICE); }

API CUresult cuMemAlloc(unsigned *pointer, unsigned bytes) {
    ENTER(WAITS);
    (void)pointer, (void)bytes;
    return NOT_SUPPORTED; /* 32-bit addresses */
}

API CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    ENTER(WAITS);
    return flags == 1 || flags == 2 ? take(pointer, bytes, MANAGED) : INVALID_VALUE;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER(WAITS);
    if (element != 4 && element != 8 && element != 16) return INVALID_VALUE;
    *pitch = (width + 511) / 512 * 512;
    return take(pointer, *pitch * height, DEVICE);
}

API CUresult cuMemFree_v2(CUdeviceptr pointer) {
    ENTER(WAITS);
    struct context *context;
    CUresult failed = current(&context);
    if (failed || !pointer) return failed;
    struct allocation *allocation = allocation_at(pointer);
    if (!allocation || allocation->kind > MANAGED || allocation->base != (char *)(uintptr_t)pointer) return INVALID_VALUE;
    context_wait(context);
    release(allocation);
    pools_settle(context->device);
    return OK;
}

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER(FAILS);
    struct context *context;
    CUresult failed = current(&context);
    if (failed) return failed;
    *available = board_free(&context->device->board);
    *total = context->device->memory;
    return OK;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    struct allocation *allocation = allocation_at(pointer);
    if (!allocation) return NOT_FOUND;
    if (base) *base = (CUdeviceptr)(uintptr_t)allocation->base;
    if (bytes) *bytes = allocation->bytes;
    return standin_state;
}

API CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    ENTER(WAITS);
    CUdeviceptr address = 0;
    (void)flags;
    CUresult failed = take(&address, bytes, HOST);
    if (!failed) *pointer = (void *)(uintptr_t)address;
    return failed;
}

API CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) { ENTER(WAITS); return cuMemHostAlloc(pointer, bytes, 0); }

API CUresult cuMemAllocHost(void **pointer, unsigned bytes) { ENTER(WAITS); return cuMemHostAlloc(pointer, bytes, 0); }

API CUresult cuMemFreeHost(void *pointer) {
    ENTER(WAITS);
    struct allocation *allocation = allocation_at((CUdeviceptr)(uintptr_t)pointer);
    if (!allocation || allocation->kind != HOST || allocation->base != pointer) return INVALID_VALUE;
    release(allocation);
    return standin_state;
}

API CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
    ENTER(WAITS);
    (void)flags;
    return pointer && bytes ? standin_state : INVALID_VALUE;
}

API CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) {
    ENTER(WAITS);
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

API CUresult cuMemHostUnregister(void *pointer) { ENTER(WAITS); return pointer ? standin_state : INVALID_VALUE; }

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned flags) {
    (void)flags;
    *device = (CUdeviceptr)(uintptr_t)pointer;
    return standin_state;
}

API CUresult cuMemHostGetFlags(unsigned *flags, void *pointer) {
    (void)pointer;
    *flags = 0;
    return standin_state;
}

API CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device) {
    ENTER(WAITS);
    (void)bytes;
    struct allocation *allocation = allocation_at(pointer);
    if (standin_state || !allocation) return standin_state ? standin_state : INVALID_VALUE;
    if (allocation->kind == MANAGED && advice == PREFERRED_LOCATION && device == HOST_MEMORY) {
        board_take(&allocation->device->board, -(int64_t)allocation->counted);
        allocation->counted = 0;
    }
    return OK;
}

API CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, struct location location) {
    ENTER(WAITS);
    return cuMemAdvise(pointer, bytes, advice, location.id);
}

static CUresult attribute(void *value, int attribute, CUdeviceptr pointer) {
    struct allocation *allocation = allocation_at(pointer);
    if (!allocation) return INVALID_VALUE;
    int host = allocation->kind == HOST;
    switch (attribute) {
    case 1: *(struct context **)value = primary_context(allocation->device); return OK;
    case 2: *(int *)value = host ? 1 : 2; return OK;
    case 3: *(CUdeviceptr *)value = pointer; return OK;
    case 4: *(void **)value = (void *)(uintptr_t)pointer; return host || allocation->kind == MANAGED ? OK : INVALID_VALUE;
    case 8: *(int *)value = allocation->kind == MANAGED; return OK;
    case 9: *(int *)value = (int)(allocation->device - standin_devices); return OK;
    case 11: *(CUdeviceptr *)value = (CUdeviceptr)(uintptr_t)allocation->base; return OK;
    case 12: *(size_t *)value = allocation->bytes; return OK;
    case 13: *(int *)value = 1; return OK;
    case 17: *(struct pool **)value = allocation->pool; return OK;
    default: return INVALID_VALUE;
    }
}

API CUresult cuPointerGetAttribute(void *value, int which, CUdeviceptr pointer) {
    if (standin_state) return standin_state;
    return value ? attribute(value, which, pointer) : INVALID_VALUE;
}

API CUresult cuPointerGetAttributes(unsigned count, int *which, void **values, CUdeviceptr pointer) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    for (unsigned i = 0; i < count; i++) attribute(values[i], which[i], pointer); /* unknown attributes leave the value as it is */
    return OK;
}

API CUresult cuPointerSetAttribute(const void *value, int which, CUdeviceptr pointer) {
    ENTER(WAITS);
    (void)value, (void)which;
    return allocation_at(pointer) ? standin_state : INVALID_VALUE;
}
