/* Host functions in streams. One thread, started for the first of them, calls each when everything launched before it has
 * ended. */
#include "standin.h"

#include <stdlib.h>

struct call {
    struct call *next;
    struct stream *stream;
    uint64_t due;
    int (*ready)(void *); /* NULL: always */
    void (*function)(void *);
    void (*callback)(struct stream *, CUresult, void *);
    void *data;
};

static struct call *first, **last = &first;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static int running;
static unsigned waits; /* calls with `ready` in the list */

/* Return whether this call, or an earlier one in its stream, is not ready. */
static int is_held(const struct call *call) {
    for (const struct call *before = first; waits && before; before = before->next) {
        if (before->stream == call->stream && before->ready && (before->due > board_now() || !before->ready(before->data))) return 1;
        if (before == call) break;
    }
    return 0;
}

static struct call **earliest_call(void) {
    struct call **earliest = NULL;
    if (!waits && first && first->due <= board_now()) return &first; /* any call that is due, if it is the first of its stream */
    for (struct call **link = &first; *link; link = &(*link)->next)
        if ((!earliest || (*link)->due < (*earliest)->due) && !is_held(*link)) earliest = link;
    return earliest;
}

static struct call *next_call(void) {
    struct call **earliest;
    pthread_mutex_lock(&standin_lock);
    while (!(earliest = earliest_call())) {
        if (!first) {
            pthread_cond_wait(&asked, &standin_lock);
            continue;
        }
        pthread_mutex_unlock(&standin_lock);
        board_wait(board_now() + 50);
        pthread_mutex_lock(&standin_lock);
    }
    struct call *call = *earliest;
    if (call->ready) waits--;
    *earliest = call->next;
    if (last == &call->next) last = earliest;
    pthread_mutex_unlock(&standin_lock);
    return call;
}

static void *work(void *nothing) {
    for (;;) {
        struct call *call = next_call();
        board_wait(call->due);
        if (call->function) call->function(call->data);
        else call->callback(call->stream, OK, call->data);
        __atomic_add_fetch(&call->stream->calls_done, 1, __ATOMIC_RELEASE);
        free(call);
    }
    return nothing;
}

static CUresult add(struct stream *stream, struct call call) {
    struct call *kept = malloc(sizeof *kept);
    pthread_t thread;
    *kept = call;
    kept->stream = stream;
    pthread_mutex_lock(&standin_lock);
    stream_begin_work(stream);
    kept->due = stream_end(stream);
    stream->calls++;
    if (call.ready) waits++;
    *last = kept;
    last = &kept->next;
    if (!running) running = !pthread_create(&thread, NULL, work, NULL) && !pthread_detach(thread);
    int started = running;
    pthread_cond_signal(&asked);
    pthread_mutex_unlock(&standin_lock);
    return started ? OK : UNKNOWN;
}

CUresult call_later(struct stream *stream, void (*function)(void *), void *data) {
    if (stream->capture) return capture_call(stream->capture, function, data);
    return add(stream, (struct call){.function = function, .data = data});
}

CUresult call_when(struct stream *stream, int (*ready)(void *), void (*function)(void *), void *data) {
    return stream->capture ? CAPTURE_UNSUPPORTED : add(stream, (struct call){.ready = ready, .function = function, .data = data});
}

static CUresult launch(struct stream *handle, void (*function)(void *), void *data, int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    return function ? call_later(stream, function, data) : INVALID_VALUE;
}

API CUresult cuLaunchHostFunc(struct stream *stream, void (*function)(void *), void *data) {
    ENTER(WAITS);
    return launch(stream, function, data, 0);
}

API CUresult cuLaunchHostFunc_ptsz(struct stream *stream, void (*function)(void *), void *data) {
    ENTER(WAITS);
    return launch(stream, function, data, 1);
}

API CUresult cuLaunchHostFunc_v2(struct stream *stream, void (*function)(void *), void *data, unsigned mode) {
    ENTER(WAITS);
    (void)mode;
    return launch(stream, function, data, 0);
}

API CUresult cuLaunchHostFunc_v2_ptsz(struct stream *stream, void (*function)(void *), void *data, unsigned mode) {
    ENTER(WAITS);
    (void)mode;
    return launch(stream, function, data, 1);
}

static CUresult callback(struct stream *handle, void (*function)(struct stream *, CUresult, void *), void *data,
                         int per_thread) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (stream->capture) return CAPTURE_UNSUPPORTED;
    return function ? add(stream, (struct call){.callback = function, .data = data}) : INVALID_VALUE;
}

API CUresult cuStreamAddCallback(struct stream *stream, void (*function)(struct stream *, CUresult, void *), void *data,
                                 unsigned flags) {
    ENTER(WAITS);
    return flags ? INVALID_VALUE : callback(stream, function, data, 0);
}

API CUresult cuStreamAddCallback_ptsz(struct stream *stream, void (*function)(struct stream *, CUresult, void *),
                                      void *data, unsigned flags) {
    ENTER(WAITS);
    return flags ? INVALID_VALUE : callback(stream, function, data, 1);
}
