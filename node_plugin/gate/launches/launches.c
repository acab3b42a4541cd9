/* The gated functions that launch kernels and graphs, begin captures, and destroy streams and contexts.
 *
 * A program finds them by linking, by dlsym (this is the library that it opens), or by cuGetProcAddress (driver/lookup.c). */
#include "launches/window.h"
#include "memory/memory.h"

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* The two forms of a function differ only in what the NULL stream means. */
static CUstream plain(CUstream stream) { return stream ? stream : STREAM_LEGACY; }

static CUstream own(CUstream stream) { return stream ? stream : STREAM_PER_THREAD; }

/* Return one kind for all launches of about the same duration: of the same kernel at about the same size. */
static unsigned kind_of(const void *function, uint64_t x, uint64_t y, uint64_t z) {
    uint64_t blocks = x * y * z | 1, size = 64 - (unsigned)__builtin_clzll(blocks);
    return (unsigned)((((uintptr_t)function ^ size << 56) * 0x9e3779b97f4a7c15ull) >> 32) | 1 << 30;
}

#define LAUNCH(stream, kind, symbol, ...) \
    struct pass pass; \
    pass_enter(&pass, stream, kind); \
    CUresult result = REAL(symbol)(__VA_ARGS__); \
    pass_leave(&pass); \
    return result

#define KERNEL_TAKES \
    CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
    CUstream stream, void **params
#define KERNEL_GIVES f, x, y, z, bx, by, bz, shared, stream, params

CUresult GATE(cuLaunchKernel)(KERNEL_TAKES, void **extra) {
    LAUNCH(plain(stream), kind_of(f, x, y, z), cuLaunchKernel, KERNEL_GIVES, extra);
}

CUresult GATE(cuLaunchKernel_ptsz)(KERNEL_TAKES, void **extra) {
    LAUNCH(own(stream), kind_of(f, x, y, z), cuLaunchKernel_ptsz, KERNEL_GIVES, extra);
}

CUresult GATE(cuLaunchCooperativeKernel)(KERNEL_TAKES) {
    LAUNCH(plain(stream), kind_of(f, x, y, z), cuLaunchCooperativeKernel, KERNEL_GIVES);
}

CUresult GATE(cuLaunchCooperativeKernel_ptsz)(KERNEL_TAKES) {
    LAUNCH(own(stream), kind_of(f, x, y, z), cuLaunchCooperativeKernel_ptsz, KERNEL_GIVES);
}

static unsigned kind_by(const struct launch_config *by, CUfunction f) {
    return by ? kind_of(f, by->grid[0], by->grid[1], by->grid[2]) : 0;
}

CUresult GATE(cuLaunchKernelEx)(const struct launch_config *by, CUfunction f, void **params, void **extra) {
    LAUNCH(plain(by ? by->stream : NULL), kind_by(by, f), cuLaunchKernelEx, by, f, params, extra);
}

CUresult GATE(cuLaunchKernelEx_ptsz)(const struct launch_config *by, CUfunction f, void **params, void **extra) {
    LAUNCH(own(by ? by->stream : NULL), kind_by(by, f), cuLaunchKernelEx_ptsz, by, f, params, extra);
}

/* A graph may have memory of its own. */
#define LAUNCH_GRAPH(symbol, on) \
    struct claim claimed = graph_before_launch(graph); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    struct pass pass; \
    pass_enter(&pass, on, kind_of(graph, 1, 1, 1)); \
    CUresult result = REAL(symbol)(graph, stream); \
    pass_leave(&pass); \
    graph_after_launch(graph, &claimed, true, result); \
    return result

CUresult GATE(cuGraphLaunch)(CUgraphExec graph, CUstream stream) { LAUNCH_GRAPH(cuGraphLaunch, plain(stream)); }

CUresult GATE(cuGraphLaunch_ptsz)(CUgraphExec graph, CUstream stream) { LAUNCH_GRAPH(cuGraphLaunch_ptsz, own(stream)); }

CUresult GATE(cuLaunch)(CUfunction f) { LAUNCH(STREAM_LEGACY, kind_of(f, 1, 1, 1), cuLaunch, f); }

CUresult GATE(cuLaunchGrid)(CUfunction f, int width, int height) {
    LAUNCH(STREAM_LEGACY, kind_of(f, (unsigned)width, (unsigned)height, 1), cuLaunchGrid, f, width, height);
}

CUresult GATE(cuLaunchGridAsync)(CUfunction f, int width, int height, CUstream stream) {
    LAUNCH(plain(stream), kind_of(f, (unsigned)width, (unsigned)height, 1), cuLaunchGridAsync, f, width, height, stream);
}

/* A kernel on several GPUs needs a lease on each. It takes them in the order of the shares' UUIDs, which is the same in every
 * process, so that two processes cannot deadlock. */
enum { MOST_DEVICES = 64 };

CUresult GATE(cuLaunchCooperativeKernelMultiDevice)(struct launch_params *list, unsigned count, unsigned flags) {
    struct pass passes[MOST_DEVICES];
    CUstream streams[MOST_DEVICES];
    unsigned held = list && count <= MOST_DEVICES ? count : 0;
    for (unsigned i = 0; i < held; i++) {
        unsigned at = i;
        for (; at > 0 && queue_before(list[i].stream, streams[at - 1]); at--) streams[at] = streams[at - 1];
        streams[at] = list[i].stream;
    }
    for (unsigned i = 0; i < held; i++) pass_enter(&passes[i], streams[i], 0);
    CUresult result = REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
    while (held) pass_leave(&passes[--held]);
    return result;
}

/* --- streams and contexts ----------------------------------------------------------------------------------------- */

/* Launches before a capture must be covered by an event first, as nothing can be recorded in a stream that is captured. */
#define CAPTURE(stream, symbol, ...) \
    window_before_capture(stream); \
    CUresult result = REAL(symbol)(__VA_ARGS__); \
    window_after_capture(); \
    return result

CUresult GATE(cuStreamBeginCapture)(CUstream stream) { CAPTURE(plain(stream), cuStreamBeginCapture, stream); }

CUresult GATE(cuStreamBeginCapture_ptsz)(CUstream stream) { CAPTURE(own(stream), cuStreamBeginCapture_ptsz, stream); }

CUresult GATE(cuStreamBeginCapture_v2)(CUstream stream, int mode) {
    CAPTURE(plain(stream), cuStreamBeginCapture_v2, stream, mode);
}

CUresult GATE(cuStreamBeginCapture_v2_ptsz)(CUstream stream, int mode) {
    CAPTURE(own(stream), cuStreamBeginCapture_v2_ptsz, stream, mode);
}

CUresult GATE(cuStreamBeginCaptureToGraph)(CUstream stream, CUgraph graph, void *nodes, void *edges, size_t count, int mode) {
    CAPTURE(plain(stream), cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, count, mode);
}

CUresult GATE(cuStreamBeginCaptureToGraph_ptsz)(CUstream stream, CUgraph graph, void *nodes, void *edges, size_t count,
                                                 int mode) {
    CAPTURE(own(stream), cuStreamBeginCaptureToGraph_ptsz, stream, graph, nodes, edges, count, mode);
}

CUresult GATE(cuStreamDestroy)(CUstream stream) {
    window_before_stream_end(stream);
    return REAL(cuStreamDestroy)(stream);
}

CUresult GATE(cuStreamDestroy_v2)(CUstream stream) {
    window_before_stream_end(stream);
    return REAL(cuStreamDestroy_v2)(stream);
}

/* Begin to destroy a context; return the moment before. The driver waits for the context's work, and may call libraries that
 * call the gate, so the lock is not held meanwhile. The gate's thread does not use the context until then, and its work counts
 * until it is gone. Memory allocated later stays counted, as a new context may have the same handle. */
static uint64_t context_ends(CUcontext context) {
    gate_lock();
    window_before_context_end(context);
    uint64_t before = memory_now();
    gate_unlock();
    return before;
}

static CUresult context_ended(CUcontext context, bool gone, uint64_t before, CUresult result) {
    gate_lock();
    window_after_context_end(context, gone);
    if (gone) memory_context_ended(context, before);
    gate_unlock();
    if (gone) reserves_read();
    return result;
}

CUresult GATE(cuCtxDestroy)(CUcontext context) {
    uint64_t before = context_ends(context);
    CUresult result = REAL(cuCtxDestroy)(context);
    return context_ended(context, result == CUDA_SUCCESS, before, result);
}

CUresult GATE(cuCtxDestroy_v2)(CUcontext context) {
    uint64_t before = context_ends(context);
    CUresult result = REAL(cuCtxDestroy_v2)(context);
    return context_ended(context, result == CUDA_SUCCESS, before, result);
}

static bool is_active(CUdevice device) {
    unsigned flags;
    int active = 0;
    return DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

CUresult GATE(cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);

static CUresult retain(CUcontext *context, CUdevice device) { return REAL(cuDevicePrimaryCtxRetain)(context, device); }

static CUresult primary_ended(CUdevice device, CUresult (*release)(CUdevice), CUresult (*end)(CUdevice)) {
    CUcontext context = NULL; /* retain the context for a moment, to learn its handle */
    bool retained = is_active(device) && retain(&context, device) == CUDA_SUCCESS;
    uint64_t before = context_ends(context);
    if (retained) release(device);
    CUresult result = end(device);
    bool reset = end != release && result == CUDA_SUCCESS;
    if (reset) memory_reset(device, before);
    return context_ended(context, reset || !is_active(device), before, result);
}

CUresult GATE(cuDevicePrimaryCtxRelease)(CUdevice device) {
    return primary_ended(device, REAL(cuDevicePrimaryCtxRelease), REAL(cuDevicePrimaryCtxRelease));
}

CUresult GATE(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
    return primary_ended(device, REAL(cuDevicePrimaryCtxRelease_v2), REAL(cuDevicePrimaryCtxRelease_v2));
}

CUresult GATE(cuDevicePrimaryCtxReset)(CUdevice device) {
    return primary_ended(device, REAL(cuDevicePrimaryCtxRelease), REAL(cuDevicePrimaryCtxReset));
}

CUresult GATE(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
    return primary_ended(device, REAL(cuDevicePrimaryCtxRelease_v2), REAL(cuDevicePrimaryCtxReset_v2));
}
