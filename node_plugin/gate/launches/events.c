/* Events: a launch has ended when an event recorded after it has completed, and the time between events is its duration.
 *
 * The GPU's clock measures that time, so it does not depend on when a thread polls.
 *
 * These calls may come while another thread captures a graph. They use the relaxed capture mode, which invalidates no
 * capture, and record nothing in a stream that is itself being captured, as its launches do not run now. */
#include "launches/window.h"

enum { RELAXED = 2, WITH_TIME = 0, KINDS = 4096 };

static _Atomic unsigned durations[KINDS]; /* of a kernel and its size, in ns; 0: not known */

static bool allowed;

void window_allow_driver(bool may) { allowed = may; }

bool driver_is_usable(void) { return allowed || (!gate_ending() && gate_parking() == CALLS_OPEN); }

bool context_enter(CUcontext context, int *mode) {
    if (!context || DRIVER(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return false;
    *mode = RELAXED;
    if (DRIVER(cuThreadExchangeStreamCaptureMode)) DRIVER(cuThreadExchangeStreamCaptureMode)(mode);
    return true;
}

void context_leave(int mode) {
    CUcontext left;
    if (DRIVER(cuThreadExchangeStreamCaptureMode)) DRIVER(cuThreadExchangeStreamCaptureMode)(&mode);
    DRIVER(cuCtxPopCurrent_v2)(&left);
}

/* Return whether a stream is being captured. For the legacy stream, the driver returns an error while any stream that it
 * waits for is. */
bool stream_is_capturing(CUstream stream) {
    int status = 0;
    if (!DRIVER(cuStreamIsCapturing)) return false;
    return DRIVER(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != 0;
}

bool legacy_is_capturing(const struct queue *queue) {
    int mode;
    if (!context_enter(queue->context, &mode)) return false;
    bool captured = stream_is_capturing(STREAM_LEGACY);
    context_leave(mode);
    return captured;
}

/* Return the longest time that the GPU can have worked on the launches before this completed event. */
static uint64_t time_taken(const struct queue *queue, unsigned at, uint64_t now) {
    const struct event *event = &queue->events[at], *before = &queue->events[(at + MOST_EVENTS - 1) % MOST_EVENTS];
    uint64_t most = now > event->begun ? now - event->begun : 0;
    float ms; /* since the previous event */
    if (!before->handle || !DRIVER(cuEventElapsedTime)) return most;
    if (DRIVER(cuEventElapsedTime)(&ms, before->handle, event->handle) != CUDA_SUCCESS || !(ms >= 0 && ms < 1e6f)) return most;
    uint64_t between = (uint64_t)((double)ms * 1e6);
    return between < most ? between : most;
}

/* Learn how many launches the next event may stand for, from a full event. */
static void learn_step(struct queue *queue, const struct event *event, uint64_t lasted) {
    uint64_t fits = lasted ? WINDOW * event->count / lasted : MOST_LAUNCHES;
    if (event->count > 1 && lasted > 6 * (uint64_t)WINDOW) /* a kernel that was thought to be short is not */
        for (int i = 0; i < KINDS; i++) atomic_store_explicit(&durations[i], 0, memory_order_relaxed);
    if (fits > 2 * event->count) fits = 2 * event->count;
    if (fits > MOST_LAUNCHES) fits = MOST_LAUNCHES;
    atomic_store(&queue->step, fits ? (unsigned)fits : 1);
}

unsigned duration_of(unsigned kind) { return kind ? atomic_load_explicit(&durations[kind % KINDS], memory_order_relaxed) : 0; }

/* Learn a duration. Prefer one that is too short: a thread that is held back for too long leaves the GPU idle. */
static void learn_duration(unsigned kind, uint64_t time) {
    uint64_t known = duration_of(kind);
    if (known && time > known) time = known + (time - known) / 2;
    if (kind) atomic_store(&durations[kind % KINDS], !time ? 1 : time < UINT32_MAX ? (unsigned)time : UINT32_MAX);
}

static void learn_from(struct queue *queue, unsigned at, uint64_t now) {
    const struct event *event = &queue->events[at];
    uint64_t time = time_taken(queue, at, now);
    learn_duration(event->kind, time);
    if (event->full) learn_step(queue, event, time);
    atomic_store_explicit(&queue->is_long, event->count == 1 && time > LONG, memory_order_relaxed);
}

unsigned events_closed(const struct queue *queue) {
    unsigned open = atomic_load_explicit(&queue->open, memory_order_relaxed) ? 1 : 0;
    return atomic_load_explicit(&queue->pending, memory_order_relaxed) - open;
}

static void retire(struct queue *queue, unsigned most) {
    unsigned pending = atomic_load(&queue->pending), events = 0;
    int mode;
    if (!most || queue->ending || !driver_is_usable()) return;
    bool entered = context_enter(queue->context, &mode);
    for (uint64_t now = 0; events < most; events++) {
        unsigned at = (queue->first + events) % MOST_EVENTS;
        CUresult result = entered ? DRIVER(cuEventQuery)(queue->events[at].handle) : CUDA_ERROR_NOT_INITIALIZED;
        if (result == CUDA_ERROR_NOT_READY) break;
        if (result == CUDA_SUCCESS) learn_from(queue, at, now ? now : (now = now_ns()));
        atomic_fetch_sub(&queue->queued, queue->events[at].expected);
        atomic_store(&queue->completed, queue->events[at].upto);
    }
    if (entered) context_leave(mode);
    if (!events) return;
    queue->owner->ended += events;
    queue->first = (queue->first + events) % MOST_EVENTS;
    queue->completed_at = now_ns();
    if (events == pending) atomic_store(&queue->open, 0);
    atomic_store(&queue->pending, pending - events);
    pacing_plan(queue);
}

void events_retire(struct queue *queue) { retire(queue, atomic_load(&queue->pending)); }

void events_retire_closed(struct queue *queue) { retire(queue, events_closed(queue)); }

/* Account for an event recorded after `launched` launches; it may be the open event, recorded again. */
static void count_recorded(struct queue *queue, uint64_t launched, unsigned kind, uint64_t expected, enum event_kind end) {
    uint64_t count = launched - atomic_load(&queue->covered);
    unsigned closed = events_closed(queue);
    bool again = closed != atomic_load(&queue->pending);
    struct event *event = &queue->events[(queue->first + closed) % MOST_EVENTS];
    event->count = again ? event->count + count : count;
    if (!again) event->begun = atomic_load(&queue->uncovered_since);
    event->upto = launched;
    event->kind = event->count == 1 ? kind : 0;
    event->full = end == FULL;
    event->expected = end == OPEN ? 0 : expected; /* an open event adds nothing */
    atomic_fetch_add(&queue->queued, event->expected);
    if (!again) atomic_fetch_add(&queue->pending, 1);
    atomic_store(&queue->open, end == OPEN ? (unsigned)event->count : 0);
}

static void record_event(struct queue *queue, CUstream stream, unsigned kind, uint64_t expected, enum event_kind end) {
    unsigned closed = events_closed(queue);
    uint64_t launched = atomic_load(&queue->launched); /* later launches by other threads may come after the event */
    if (closed == MOST_EVENTS - 1 || launched == atomic_load(&queue->covered)) return;
    if (queue->ending || !driver_is_usable()) return;
    struct event *event = &queue->events[(queue->first + closed) % MOST_EVENTS];
    int mode;
    if (context_enter(queue->context, &mode)) {
        bool captured = stream_is_capturing(stream);
        bool done = !captured && (event->handle || DRIVER(cuEventCreate)(&event->handle, WITH_TIME) == CUDA_SUCCESS) &&
            DRIVER(cuEventRecord)(event->handle, stream) == CUDA_SUCCESS;
        context_leave(mode);
        if (done) count_recorded(queue, launched, kind, expected, end);
        if (captured && stream == STREAM_LEGACY) return; /* another stream is captured: the launches here run all the same */
    }
    atomic_store(&queue->covered, launched); /* in a captured stream or a broken context nothing will complete */
    atomic_store(&queue->uncovered_since, 0);
}

void events_record(struct queue *queue, unsigned kind, uint64_t expected, enum event_kind end) {
    if (captures_beginning && queue->stream != STREAM_PER_THREAD) return; /* only its own thread can capture that */
    record_event(queue, queue->stream, kind, expected, end);
}

/* In its context: return whether the stream is empty, as far as can be known (other threads' default streams cannot be
 * queried). */
static bool is_empty(const struct queue *queue) {
    if (atomic_load(&queue->pending) || atomic_load(&queue->launched) != atomic_load(&queue->covered)) return false;
    bool named = queue->stream > STREAM_PER_THREAD && atomic_load(&queue->share) && !queue->ending; /* it may wait for the host */
    return !named || DRIVER(cuStreamQuery)(queue->stream) != CUDA_ERROR_NOT_READY;
}

/* Return whether an event in the legacy stream would make streams wait for each other that otherwise would not. */
static bool would_delay(const struct queue *legacy) {
    int mode;
    if (!DRIVER(cuStreamQuery) || !context_enter(legacy->context, &mode)) return false;
    bool empty = !stream_is_capturing(STREAM_LEGACY);
    for (const struct queue *queue = queues; empty && queue; queue = queue->next_of_all)
        if (queue != legacy && queue->context == legacy->context && queue->waits) empty = is_empty(queue);
    context_leave(mode);
    return !empty;
}

void events_cover(struct queue *queue, bool shut) {
    if (atomic_load(&queue->launched) == atomic_load(&queue->covered)) return;
    if (queue->stream == STREAM_PER_THREAD) {
        if (shut) queue_hand_over(queue);
        return;
    }
    bool handed = queue->handed_over > atomic_load(&queue->covered);
    if (queue->ending || !driver_is_usable()) return;
    if (queue->stream == STREAM_LEGACY && ((handed && !shut) || captures_beginning || would_delay(queue))) return;
    events_record(queue, 0, WINDOW, LAST);
}
