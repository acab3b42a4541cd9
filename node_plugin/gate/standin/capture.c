/* Stream capture into graphs. Other streams join by waiting for an event of a capturing stream. */
#include "standin.h"

CUresult cuGraphCreate(struct graph **graph, unsigned flags);

#ifndef STANDIN_SLOW_CAPTURE
/* For tests: the capture begins this many microseconds late, so that an event of a thread that had checked for a capture comes
 * after its beginning. */
#define STANDIN_SLOW_CAPTURE 0
#endif
static _Atomic int beginning;

int would_wait_for_capture(const struct stream *legacy, int invalidate) {
    int found = 0;
    if (legacy != &legacy->context->legacy) return 0;
    while (STANDIN_SLOW_CAPTURE && invalidate && beginning) board_wait(board_now() + 50);
    pthread_mutex_lock(&standin_lock);
    for (struct stream *other = legacy->context->streams; other; other = other->next) {
        if (!other->capture || other->flags & 1) continue;
        found = 1;
        if (invalidate) other->invalid = 1;
    }
    pthread_mutex_unlock(&standin_lock);
    return found;
}

static CUresult begin_in(struct stream *handle, struct graph *graph, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (stream == &stream->context->legacy || stream->capture) return CAPTURE_UNSUPPORTED;
    if (!graph) failed = cuGraphCreate(&graph, 0);
    beginning++;
    board_wait(board_now() + STANDIN_SLOW_CAPTURE);
    pthread_mutex_lock(&standin_lock);
    if (!failed) stream->capture = graph;
    pthread_mutex_unlock(&standin_lock);
    beginning--;
    return failed;
}

static CUresult begin(struct stream *stream, int per_thread) { return begin_in(stream, NULL, per_thread); }

API CUresult cuStreamBeginCapture(struct stream *stream) { ENTER(WAITS); return begin(stream, 0); }
API CUresult cuStreamBeginCapture_ptsz(struct stream *stream) { ENTER(WAITS); return begin(stream, 1); }

API CUresult cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    ENTER(WAITS);
    return mode < 0 || mode > 2 ? INVALID_VALUE : begin(stream, 0);
}

API CUresult cuStreamBeginCapture_v2_ptsz(struct stream *stream, int mode) {
    ENTER(WAITS);
    return mode < 0 || mode > 2 ? INVALID_VALUE : begin(stream, 1);
}

#define AFTER const void *after, const void *edges, size_t n, int mode

API CUresult cuStreamBeginCaptureToGraph(struct stream *stream, struct graph *graph, AFTER) {
    ENTER(WAITS);
    (void)after, (void)edges, (void)n, (void)mode;
    return graph ? begin_in(stream, graph, 0) : INVALID_VALUE;
}

API CUresult cuStreamBeginCaptureToGraph_ptsz(struct stream *stream, struct graph *graph, AFTER) {
    ENTER(WAITS);
    (void)after, (void)edges, (void)n, (void)mode;
    return graph ? begin_in(stream, graph, 1) : INVALID_VALUE;
}

static CUresult end(struct stream *handle, struct graph **graph, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (!stream->capture) return INVALID_VALUE;
    *graph = stream->capture;
    pthread_mutex_lock(&standin_lock);
    for (struct stream *other = stream->context->streams; other; other = other->next)
        if (other->capture == *graph) other->capture = NULL;
    int invalid = stream->invalid;
    stream->invalid = 0;
    pthread_mutex_unlock(&standin_lock);
    if (invalid) *graph = NULL;
    return invalid ? CAPTURE_INVALIDATED : OK;
}

API CUresult cuStreamEndCapture(struct stream *stream, struct graph **graph) { ENTER(WAITS); return end(stream, graph, 0); }
API CUresult cuStreamEndCapture_ptsz(struct stream *stream, struct graph **graph) { ENTER(WAITS); return end(stream, graph, 1); }

static CUresult information(struct stream *handle, int *status, unsigned long long *id, struct graph **graph, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (status) *status = stream->capture ? 1 : 0;
    if (id) *id = (unsigned long long)(uintptr_t)stream->capture;
    if (graph) *graph = stream->capture;
    return OK;
}

static CUresult is_capturing(struct stream *handle, int *status, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (!failed && would_wait_for_capture(stream, 0)) failed = CAPTURE_IMPLICIT;
    if (!failed) failed = information(handle, status, NULL, NULL, per_thread);
    return failed;
}

API CUresult cuStreamIsCapturing(struct stream *stream, int *status) { return is_capturing(stream, status, 0); }

API CUresult cuStreamIsCapturing_ptsz(struct stream *stream, int *status) { return is_capturing(stream, status, 1); }

API CUresult cuStreamGetCaptureInfo(struct stream *stream, int *status, unsigned long long *id) {
    return information(stream, status, id, NULL, 0);
}

API CUresult cuStreamGetCaptureInfo_ptsz(struct stream *stream, int *status, unsigned long long *id) {
    return information(stream, status, id, NULL, 1);
}

#define INFORMATION(symbol, per_thread, ...)                                                                           \
    API CUresult symbol(struct stream *stream, int *status, unsigned long long *id, struct graph **graph,             \
                        void **nodes, ##__VA_ARGS__, size_t *count) {                                                  \
        if (nodes) *nodes = NULL;                                                                                      \
        if (count) *count = 0;                                                                                         \
        return information(stream, status, id, graph, per_thread);                                                     \
    }

INFORMATION(cuStreamGetCaptureInfo_v2, 0)
INFORMATION(cuStreamGetCaptureInfo_v2_ptsz, 1)
INFORMATION(cuStreamGetCaptureInfo_v3, 0, __attribute__((unused)) void **edges)
INFORMATION(cuStreamGetCaptureInfo_v3_ptsz, 1, __attribute__((unused)) void **edges)

API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int kept;
    int before = kept;
    kept = *mode;
    *mode = before;
    return standin_state;
}
