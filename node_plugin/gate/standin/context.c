/* Contexts: each thread's current one, primary contexts, and queries. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 64
#define THREADS (108 * 2048) /* that a device can run at once, each with a stack */

static _Thread_local struct context *stack[DEPTH];
static _Thread_local int depth; /* stack[depth] is current */

struct context *standin_contexts;

CUresult current(struct context **context) {
    if (standin_state) return standin_state;
    *context = stack[depth];
    return *context ? OK : INVALID_CONTEXT;
}

static struct context *make(CUdevice device, unsigned flags) {
    static unsigned long long ids;
    struct context *context = calloc(1, sizeof *context);
    context->device = &standin_devices[device];
    context->ordinal = device;
    context->flags = flags;
    context->id = ++ids;
    context->legacy.context = context;
    context->bytes = standin_context;
    if (!board_take(&context->device->board, (int64_t)context->bytes)) {
        free(context);
        return NULL;
    }
    context->next = standin_contexts;
    standin_contexts = context;
    return context;
}

static void give_back(struct context *context) {
    release_all(context);
    release_modules(context);
    board_take(&context->device->board, -(int64_t)context->bytes);
    context->bytes = 0;
    memset(context->limits, 0, sizeof context->limits);
}

static CUresult create(struct context **context, unsigned flags, CUdevice device) {
    CUresult failed = known_device(device);
    if (failed) return failed;
    if (!context || depth + 1 == DEPTH) return INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    *context = make(device, flags);
    if (*context) stack[++depth] = *context;
    pthread_mutex_unlock(&standin_lock);
    return *context ? OK : OUT_OF_MEMORY;
}

API CUresult cuCtxCreate(struct context **context, unsigned flags, CUdevice device) {
    ENTER(WAITS);
    return create(context, flags, device);
}

API CUresult cuCtxCreate_v2(struct context **context, unsigned flags, CUdevice device) {
    ENTER(WAITS);
    return create(context, flags, device);
}

API CUresult cuCtxCreate_v3(struct context **context, void *a, int n, unsigned flags, CUdevice device) {
    ENTER(WAITS);
    (void)a, (void)n;
    return create(context, flags, device);
}

API CUresult cuCtxCreate_v4(struct context **context, void *parameters, unsigned flags, CUdevice device) {
    ENTER(WAITS);
    (void)parameters;
    return create(context, flags, device);
}

API CUresult cuCtxDestroy_v2(struct context *context) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!context) return INVALID_CONTEXT;
    context_wait(context);
    give_back(context);
    if (stack[depth] == context) stack[depth] = NULL, depth -= depth > 0;
    return OK; /* it is never freed: other threads may have it as their current context */
}

API CUresult cuCtxDestroy(struct context *context) { ENTER(WAITS); return cuCtxDestroy_v2(context); }

API CUresult cuCtxPushCurrent_v2(struct context *context) {
    if (standin_state) return standin_state;
    if (!context) return INVALID_CONTEXT;
    if (depth + 1 == DEPTH) return INVALID_VALUE;
    stack[++depth] = context;
    return OK;
}

API CUresult cuCtxPushCurrent(struct context *context) { return cuCtxPushCurrent_v2(context); }

API CUresult cuCtxPopCurrent_v2(struct context **context) {
    struct context *popped;
    CUresult failed = current(&popped);
    if (failed) return failed;
    stack[depth] = NULL;
    depth -= depth > 0;
    if (context) *context = popped;
    return OK;
}

API CUresult cuCtxPopCurrent(struct context **context) { return cuCtxPopCurrent_v2(context); }

API CUresult cuCtxSetCurrent(struct context *context) {
    if (standin_state) return standin_state;
    stack[depth] = context;
    if (!context && depth) depth--;
    return OK;
}

API CUresult cuCtxGetCurrent(struct context **context) {
    if (standin_state) return standin_state;
    *context = stack[depth];
    return OK;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    struct context *context;
    CUresult failed = current(&context);
    if (!failed) *device = context->ordinal;
    return failed;
}

API CUresult cuCtxGetDevice_v2(CUdevice *device, struct context *context) {
    if (!context) return cuCtxGetDevice(device);
    *device = context->ordinal;
    return standin_state;
}

API CUresult cuCtxGetFlags(unsigned *flags) {
    ENTER(WAITS);
    struct context *context;
    CUresult failed = current(&context);
    if (!failed) *flags = context->flags;
    return failed;
}

API CUresult cuCtxSetFlags(unsigned flags) {
    ENTER(WAITS);
    struct context *context;
    CUresult failed = current(&context);
    if (!failed) context->flags = flags;
    return failed;
}

API CUresult cuCtxGetId(struct context *context, unsigned long long *id) {
    CUresult failed = context ? standin_state : current(&context);
    if (!failed) *id = context->id;
    return failed;
}

API CUresult cuCtxSynchronize(void) {
    ENTER(ENDS);
    struct context *context;
    CUresult failed = current(&context);
    if (!failed) context_wait(context);
    return failed;
}

API CUresult cuCtxSynchronize_v2(struct context *context) {
    ENTER(ENDS);
    if (!context) return cuCtxSynchronize();
    if (!standin_state) context_wait(context);
    return standin_state;
}

API CUresult cuCtxGetApiVersion(struct context *context, unsigned *version) {
    (void)context;
    *version = 3020;
    return standin_state;
}

static size_t limit_of(const struct context *context, int limit) {
    static const size_t limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0, 0, 0, 0};
    return context->limits[limit] ? context->limits[limit] : limits[limit];
}

API CUresult cuCtxGetLimit(size_t *value, int limit) {
    ENTER(WAITS);
    struct context *context;
    CUresult failed = current(&context);
    if (limit < 0 || limit > 10) return INVALID_VALUE;
    if (!failed) *value = limit_of(context, limit);
    return failed;
}

/* Stacks, the printf buffer and the heap take memory from then on. */
API CUresult cuCtxSetLimit(int limit, size_t value) {
    ENTER(WAITS);
    struct context *context;
    CUresult failed = current(&context);
    if (failed) return failed;
    if (limit < 0 || limit > 10 || !value || value > UINT64_C(1) << 40) return INVALID_VALUE;
    int64_t more = limit > 2 ? 0 : (int64_t)(value - limit_of(context, limit)) * (limit ? 1 : THREADS);
    if (!board_take(&context->device->board, more)) return OUT_OF_MEMORY;
    context->bytes += (uint64_t)more;
    context->limits[limit] = value;
    return OK;
}

API CUresult cuCtxGetCacheConfig(int *config) {
    ENTER(WAITS);
    struct context *context;
    *config = 0;
    return current(&context);
}

API CUresult cuCtxSetCacheConfig(int config) {
    ENTER(WAITS);
    struct context *context;
    (void)config;
    return current(&context);
}

API CUresult cuCtxGetSharedMemConfig(int *config) { ENTER(WAITS); return cuCtxGetCacheConfig(config); }

API CUresult cuCtxSetSharedMemConfig(int config) { ENTER(WAITS); return cuCtxSetCacheConfig(config); }

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    struct context *context;
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return current(&context);
}

API CUresult cuCtxAttach(struct context **context, unsigned flags) {
    return flags ? INVALID_VALUE : current(context);
}

API CUresult cuCtxDetach(struct context *context) { return context == stack[depth] ? OK : INVALID_CONTEXT; }

struct context *primary_context(struct device *device) {
    pthread_mutex_lock(&standin_lock);
    if (!device->primary) device->primary = make((CUdevice)(device - standin_devices), 0);
    struct context *context = device->primary;
    pthread_mutex_unlock(&standin_lock);
    return context;
}

API CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device) {
    CUresult failed = known_device(device);
    if (failed) return failed;
    *context = primary_context(&standin_devices[device]);
    if (!*context) return OUT_OF_MEMORY;
    pthread_mutex_lock(&standin_lock);
    uint64_t more = (*context)->bytes ? 0 : standin_context; /* after its end it is made anew */
    int enough = board_take(&(*context)->device->board, (int64_t)more);
    if (enough) (*context)->bytes += more, (*context)->uses++;
    pthread_mutex_unlock(&standin_lock);
    return enough ? OK : OUT_OF_MEMORY;
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER(WAITS);
    CUresult failed = known_device(device);
    if (failed) return failed;
    struct context *context = primary_context(&standin_devices[device]);
    if (!context) return OK;
    context_wait(context);
    give_back(context);
    release_pooled(context->device);
    pools_settle(context->device);
    board_take(&context->device->board, -(int64_t)context->device->graph_reserved);
    context->device->graph_reserved = context->device->graph_used = 0;
    return OK;
}

API CUresult cuDevicePrimaryCtxReset(CUdevice device) { ENTER(WAITS); return cuDevicePrimaryCtxReset_v2(device); }

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER(WAITS);
    CUresult failed = known_device(device);
    if (failed) return failed;
    struct context *context = primary_context(&standin_devices[device]);
    pthread_mutex_lock(&standin_lock);
    failed = context->uses ? OK : INVALID_CONTEXT;
    int ends = context->uses == 1;
    context->uses -= context->uses > 0;
    pthread_mutex_unlock(&standin_lock);
    return ends ? cuDevicePrimaryCtxReset_v2(device) : failed;
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device) { ENTER(WAITS); return cuDevicePrimaryCtxRelease_v2(device); }

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    CUresult failed = known_device(device);
    if (!failed) primary_context(&standin_devices[device])->flags = flags;
    return failed;
}

API CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CUresult failed = known_device(device);
    if (failed) return failed;
    struct context *context = primary_context(&standin_devices[device]);
    *flags = context->flags;
    *active = context->uses > 0;
    return OK;
}
