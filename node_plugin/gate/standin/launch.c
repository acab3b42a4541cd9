/* The functions that launch kernels. Parameters are ignored: kernels only take time. */
#include "standin.h"

#include <signal.h>

#ifndef STANDIN_STOPS
#define STANDIN_STOPS 0 /* for tests: stop the process when this many threads are here, before any of them is on the GPU */
#endif

static void stop_when_all_are_here(void) {
    static _Atomic int here, over;
    if (++here == STANDIN_STOPS) {
        raise(SIGSTOP); /* stops this thread before it continues */
        over = 1;
    }
    while (!over) board_wait(board_now() + 100);
}

struct configuration {
    unsigned grid[3], block[3], shared;
    struct stream *stream;
    void *attributes;
    unsigned attribute_count;
};

struct launch {
    struct function *function;
    unsigned grid[3], block[3], shared;
    struct stream *stream;
    void **parameters;
};

static CUresult launch(struct function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, struct stream *handle, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (!function) return INVALID_HANDLE;
    if (!gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024) return INVALID_VALUE;
    if (STANDIN_STOPS) stop_when_all_are_here();
    return run_on(stream, duration_of(function, gx), 1);
}

#define SIZES unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared

API CUresult cuLaunchKernel(struct function *f, SIZES, struct stream *stream, void **parameters, void **extra) {
    ENTER(WAITS);
    (void)shared, (void)parameters, (void)extra;
    return launch(f, gx, gy, gz, bx, by, bz, stream, 0);
}

API CUresult cuLaunchKernel_ptsz(struct function *f, SIZES, struct stream *stream, void **parameters, void **extra) {
    ENTER(WAITS);
    (void)shared, (void)parameters, (void)extra;
    return launch(f, gx, gy, gz, bx, by, bz, stream, 1);
}

API CUresult cuLaunchCooperativeKernel(struct function *f, SIZES, struct stream *stream, void **parameters) {
    ENTER(WAITS);
    (void)shared, (void)parameters;
    return launch(f, gx, gy, gz, bx, by, bz, stream, 0);
}

API CUresult cuLaunchCooperativeKernel_ptsz(struct function *f, SIZES, struct stream *stream, void **parameters) {
    ENTER(WAITS);
    (void)shared, (void)parameters;
    return launch(f, gx, gy, gz, bx, by, bz, stream, 1);
}

static CUresult launch_ex(const struct configuration *c, struct function *function, int per_thread) {
    if (!c) return INVALID_VALUE;
    return launch(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->stream,
                  per_thread);
}

API CUresult cuLaunchKernelEx(const struct configuration *c, struct function *function, void **parameters, void **extra) {
    ENTER(WAITS);
    (void)parameters, (void)extra;
    return launch_ex(c, function, 0);
}

API CUresult cuLaunchKernelEx_ptsz(const struct configuration *c, struct function *function, void **parameters,
                                   void **extra) {
    ENTER(WAITS);
    (void)parameters, (void)extra;
    return launch_ex(c, function, 1);
}

API CUresult cuLaunchCooperativeKernelMultiDevice(const struct launch *launches, unsigned count, unsigned flags) {
    ENTER(WAITS);
    (void)flags;
    for (unsigned i = 0; i < count; i++) {
        const struct launch *l = &launches[i];
        if (standin_state) return standin_state;
        if (l->stream <= PER_THREAD || !l->function) return INVALID_VALUE;
        CUresult failed = run_on(l->stream, duration_of(l->function, l->grid[0]), 1);
        if (failed) return failed;
    }
    return OK;
}

/* The oldest interface: the block is set on the function first. */
API CUresult cuFuncSetBlockShape(struct function *function, int x, int y, int z) {
    ENTER(WAITS);
    (void)x, (void)y, (void)z;
    return function ? standin_state : INVALID_HANDLE;
}

API CUresult cuFuncSetSharedSize(struct function *function, unsigned bytes) {
    ENTER(WAITS);
    (void)bytes;
    return function ? standin_state : INVALID_HANDLE;
}

API CUresult cuParamSetSize(struct function *function, unsigned bytes) { ENTER(WAITS); return cuFuncSetSharedSize(function, bytes); }

API CUresult cuParamSeti(struct function *function, int offset, unsigned value) {
    ENTER(WAITS);
    (void)offset;
    return cuFuncSetSharedSize(function, value);
}

API CUresult cuParamSetf(struct function *function, int offset, float value) {
    ENTER(WAITS);
    (void)offset, (void)value;
    return cuFuncSetSharedSize(function, 0);
}

API CUresult cuParamSetv(struct function *function, int offset, void *value, unsigned bytes) {
    ENTER(WAITS);
    (void)offset, (void)value;
    return cuFuncSetSharedSize(function, bytes);
}

API CUresult cuParamSetTexRef(struct function *function, int unit, void *texture) {
    ENTER(WAITS);
    (void)unit, (void)texture;
    return cuFuncSetSharedSize(function, 0);
}

API CUresult cuLaunchGridAsync(struct function *function, int width, int height, struct stream *stream) {
    ENTER(WAITS);
    return launch(function, (unsigned)width, (unsigned)height, 1, 1, 1, 1, stream, 0);
}

API CUresult cuLaunchGrid(struct function *function, int width, int height) {
    ENTER(WAITS);
    return cuLaunchGridAsync(function, width, height, NULL);
}

API CUresult cuLaunch(struct function *function) { ENTER(WAITS); return cuLaunchGrid(function, 1, 1); }
