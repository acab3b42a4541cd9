/* Streams and events, by the times at which launched work will have ended. */
#include "standin.h"

#include <stdlib.h>

struct event {
    struct context *context;
    unsigned flags; /* 2: without timing */
    int recorded;
    uint64_t time;
    struct stream *stream; /* in which it was recorded; streams are never freed */
    unsigned calls;        /* number of that stream's host functions before it */
    struct calls behind;
    struct graph *capture; /* the graph that the stream was recording */
};

static struct stream *add_stream(struct context *context) {
    static unsigned long long ids = 2;
    struct stream *stream = calloc(1, sizeof *stream);
    stream->context = context;
    stream->id = ++ids;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

/* Return the default stream of the calling thread. */
static struct stream *of_this_thread(struct context *context) {
    pthread_t self = pthread_self();
    struct stream *stream = context->streams;
    while (stream && !(stream->is_per_thread && pthread_equal(stream->thread, self))) stream = stream->next;
    if (stream) return stream;
    stream = add_stream(context);
    stream->is_per_thread = 1;
    stream->thread = self;
    return stream;
}

CUresult find_stream(struct stream **stream, struct stream *handle, int per_thread) {
    struct context *context;
    *stream = handle;
    if (handle > PER_THREAD) return standin_state;
    CUresult failed = current(&context);
    if (failed) return failed;
    pthread_mutex_lock(&standin_lock);
    int legacy = handle == LEGACY || (!handle && !per_thread);
    *stream = legacy ? &context->legacy : of_this_thread(context);
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

/* The legacy stream and all others wait for each other, except for non-blocking streams. */
uint64_t stream_end(const struct stream *stream) {
    const struct context *context = stream->context;
    if (stream == &context->legacy) {
        uint64_t end = stream->end;
        for (const struct stream *other = context->streams; other; other = other->next)
            if (!(other->flags & 1) && other->end > end) end = other->end;
        return end;
    }
    return !(stream->flags & 1) && context->legacy.end > stream->end ? context->legacy.end : stream->end;
}

static int called(const struct stream *stream, unsigned calls) {
    return (int)(__atomic_load_n(&stream->calls_done, __ATOMIC_ACQUIRE) - calls) >= 0;
}

static int all_called_before(const struct stream *stream, unsigned calls, struct calls behind) {
    return called(stream, calls) && (!behind.stream || called(behind.stream, behind.number));
}

static void wait_for_calls(const struct stream *stream, unsigned calls, struct calls behind) {
    while (!all_called_before(stream, calls, behind)) board_wait(board_now() + 50);
}

void stream_begin_work(struct stream *stream) {
    struct stream *legacy = &stream->context->legacy;
    if (stream != legacy) {
        if (!(stream->flags & 1) && legacy->behind.stream != stream) stream->behind = legacy->behind;
        return;
    }
    for (const struct stream *other = stream->context->streams; other; other = other->next)
        if (!(other->flags & 1) && !called(other, other->calls)) legacy->behind = (struct calls){other, other->calls};
}

CUresult stream_wait(struct stream *stream) {
    if (stream->capture) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&standin_lock);
    uint64_t end = stream_end(stream);
    unsigned calls = stream->calls;
    struct calls behind = stream->behind;
    pthread_mutex_unlock(&standin_lock);
    board_wait(end);
    wait_for_calls(stream, calls, behind);
    pools_settle(stream->context->device);
    return OK;
}

static int all_called(const struct context *context) {
    pthread_mutex_lock(&standin_lock);
    int all = called(&context->legacy, context->legacy.calls);
    for (const struct stream *stream = context->streams; all && stream; stream = stream->next)
        all = called(stream, stream->calls);
    pthread_mutex_unlock(&standin_lock);
    return all;
}

void context_wait(struct context *context) {
    pthread_mutex_lock(&standin_lock);
    uint64_t end = context->end;
    pthread_mutex_unlock(&standin_lock);
    board_wait(end);
    while (!all_called(context)) board_wait(board_now() + 50);
    pools_settle(context->device);
}

int contexts_idle(void) {
    pthread_mutex_lock(&standin_lock);
    struct context *context = standin_contexts;
    pthread_mutex_unlock(&standin_lock);
    for (; context; context = context->next) { /* they are never freed */
        pthread_mutex_lock(&standin_lock);
        int ended = context->end <= board_now();
        pthread_mutex_unlock(&standin_lock);
        if (!ended || !all_called(context)) return 0;
    }
    return 1;
}

CUresult run_on(struct stream *stream, uint64_t microseconds, unsigned kernels) {
    struct context *context = stream->context;
    if (stream->capture) return capture_kernel(stream->capture, microseconds);
    pthread_mutex_lock(&standin_lock);
    uint64_t oldest = context->queue[context->launches % QUEUE];
    pthread_mutex_unlock(&standin_lock);
    board_wait(oldest);
    pthread_mutex_lock(&standin_lock);
    stream_begin_work(stream);
    uint64_t end = board_run(&context->device->board, stream->earliest, microseconds, kernels);
    context->queue[context->launches++ % QUEUE] = end;
    stream->end = end;
    if (end > context->end) context->end = end;
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

API CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
    ENTER(WAITS);
    struct context *context;
    CUresult failed = current(&context);
    if (failed) return failed;
    if (!stream || flags > 1) return INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    *stream = add_stream(context);
    (*stream)->flags = flags;
    (*stream)->priority = priority;
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

API CUresult cuStreamCreate(struct stream **stream, unsigned flags) {
    ENTER(WAITS);
    return cuStreamCreateWithPriority(stream, flags, 0);
}

API CUresult cuStreamDestroy_v2(struct stream *stream) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (stream <= PER_THREAD) return INVALID_HANDLE;
    wait_for_calls(stream, stream->calls, stream->behind);
    pthread_mutex_lock(&standin_lock);
    struct stream **link = &stream->context->streams;
    while (*link && *link != stream) link = &(*link)->next;
    if (*link) *link = stream->next;
    pthread_mutex_unlock(&standin_lock);
    return OK; /* it is small and never freed: events may refer to it */
}

API CUresult cuStreamDestroy(struct stream *stream) { ENTER(WAITS); return cuStreamDestroy_v2(stream); }

static CUresult synchronize(struct stream *handle, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    return failed ? failed : stream_wait(stream);
}

API CUresult cuStreamSynchronize(struct stream *stream) { ENTER(ENDS); return synchronize(stream, 0); }

API CUresult cuStreamSynchronize_ptsz(struct stream *stream) { ENTER(ENDS); return synchronize(stream, 1); }

static CUresult query(struct stream *handle, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (stream->capture) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&standin_lock);
    int done = stream_end(stream) <= board_now() && all_called_before(stream, stream->calls, stream->behind);
    pthread_mutex_unlock(&standin_lock);
    return done ? OK : NOT_READY;
}

API CUresult cuStreamQuery(struct stream *stream) { ENTER(ENDS); return query(stream, 0); }

API CUresult cuStreamQuery_ptsz(struct stream *stream) { ENTER(ENDS); return query(stream, 1); }

static CUresult wait_event(struct stream *handle, struct event *event, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (!event) return INVALID_HANDLE;
    pthread_mutex_lock(&standin_lock);
    if (event->capture) stream->capture = event->capture;
    if (!event->capture && event->recorded && event->time > stream->earliest) stream->earliest = event->time;
    if (!event->capture && event->recorded && event->time > stream->end) stream->end = event->time;
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

API CUresult cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
    (void)flags;
    return wait_event(stream, event, 0);
}

API CUresult cuStreamWaitEvent_ptsz(struct stream *stream, struct event *event, unsigned flags) {
    (void)flags;
    return wait_event(stream, event, 1);
}

API CUresult cuStreamGetFlags(struct stream *handle, unsigned *flags) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    if (!failed) *flags = stream->flags;
    return failed;
}

API CUresult cuStreamGetPriority(struct stream *handle, int *priority) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    if (!failed) *priority = stream->priority;
    return failed;
}

API CUresult cuStreamGetId(struct stream *handle, unsigned long long *id) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    if (!failed) *id = stream->id;
    return failed;
}

API CUresult cuStreamGetCtx(struct stream *handle, struct context **context) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    if (!failed) *context = stream->context;
    return failed;
}

API CUresult cuStreamGetDevice(struct stream *handle, CUdevice *device) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, 0);
    if (!failed) *device = stream->context->ordinal;
    return failed;
}

ALSO(cuStreamGetFlags, cuStreamGetFlags_ptsz)
ALSO(cuStreamGetPriority, cuStreamGetPriority_ptsz)
ALSO(cuStreamGetId, cuStreamGetId_ptsz)
ALSO(cuStreamGetCtx, cuStreamGetCtx_ptsz)
ALSO(cuStreamGetDevice, cuStreamGetDevice_ptsz)

API CUresult cuEventCreate(struct event **event, unsigned flags) {
    ENTER(WAITS);
    struct context *context;
    CUresult failed = current(&context);
    if (failed) return failed;
    if (!event) return INVALID_VALUE;
    *event = calloc(1, sizeof **event);
    **event = (struct event){.context = context, .flags = flags};
    return OK;
}

API CUresult cuEventDestroy_v2(struct event *event) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!event) return INVALID_HANDLE;
    free(event);
    return OK;
}

API CUresult cuEventDestroy(struct event *event) { ENTER(WAITS); return cuEventDestroy_v2(event); }

static CUresult record(struct event *event, struct stream *handle, int per_thread) {
    struct stream *stream;
    if (!event) return INVALID_HANDLE;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (would_wait_for_capture(stream, 1)) return CAPTURE_IMPLICIT;
    event->capture = stream->capture;
    if (stream->capture) return OK;
    pthread_mutex_lock(&standin_lock);
    stream_begin_work(stream);
    uint64_t now = board_now(), end = stream_end(stream);
    event->time = end > now ? end : now;
    event->recorded = 1;
    event->stream = stream;
    event->calls = stream->calls;
    event->behind = stream->behind;
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

API CUresult cuEventRecord(struct event *event, struct stream *stream) { ENTER(WAITS); return record(event, stream, 0); }

API CUresult cuEventRecord_ptsz(struct event *event, struct stream *stream) { ENTER(WAITS); return record(event, stream, 1); }

API CUresult cuEventRecordWithFlags(struct event *event, struct stream *stream, unsigned flags) {
    ENTER(WAITS);
    (void)flags;
    return record(event, stream, 0);
}

API CUresult cuEventRecordWithFlags_ptsz(struct event *event, struct stream *stream, unsigned flags) {
    ENTER(WAITS);
    (void)flags;
    return record(event, stream, 1);
}

API CUresult cuEventQuery(struct event *event) {
    ENTER(ENDS);
    if (standin_state) return standin_state;
    if (!event) return INVALID_HANDLE;
    if (!event->recorded) return OK;
    return event->time <= board_now() && all_called_before(event->stream, event->calls, event->behind) ? OK : NOT_READY;
}

API CUresult cuEventSynchronize(struct event *event) {
    ENTER(ENDS);
    if (standin_state) return standin_state;
    if (!event) return INVALID_HANDLE;
    if (!event->recorded) return OK;
    board_wait(event->time);
    wait_for_calls(event->stream, event->calls, event->behind);
    return OK;
}

API CUresult cuEventElapsedTime(float *milliseconds, struct event *start, struct event *end) {
    ENTER(ENDS);
    if (standin_state) return standin_state;
    if (!start || !end || !start->recorded || !end->recorded || (start->flags | end->flags) & 2) return INVALID_HANDLE;
    if (cuEventQuery(start) || cuEventQuery(end)) return NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->time - start->time) / 1000);
    return OK;
}

API CUresult cuEventElapsedTime_v2(float *milliseconds, struct event *start, struct event *end) {
    ENTER(ENDS);
    return cuEventElapsedTime(milliseconds, start, end);
}
