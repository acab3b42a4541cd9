/* Events: what was launched is over when the event behind it has happened, and how long it took.
 *
 * Durations are what passed between events by the GPU's clock, and so neither longer nor shorter because a thread was late to
 * look.
 *
 * The calls below may come while another thread captures a graph. They are made in the relaxed mode, which spoils no
 * capture, and nothing is recorded in a stream that is captured itself: its launches do not run now. */
#include "launches/window.h"

enum { RELAXED = 2, WITH_TIME = 0, KINDS = 4096 };

static _Atomic unsigned durations[KINDS]; /* of a kernel and its size, ns; 0: not known */

static bool allowed;

void window_allow(bool may) { allowed = may; }

bool driver_may_be_asked(void) { return allowed || !gate_ending(); }

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

/* The legacy stream is "captured", by an error, while any stream that it waits for is. */
bool stream_capturing(CUstream stream) {
    int status = 0;
    if (!DRIVER(cuStreamIsCapturing)) return false;
    return DRIVER(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != 0;
}

bool marks_captured(const struct lane *lane) {
    int mode;
    if (!context_enter(lane->context, &mode)) return false;
    bool captured = stream_capturing(STREAM_LEGACY);
    context_leave(mode);
    return captured;
}

/* For how long the GPU was at work on what is before this event, at most; it has happened. */
static uint64_t lasted(const struct lane *lane, unsigned at, uint64_t now) {
    const struct mark *mark = &lane->marks[at], *before = &lane->marks[(at + MARKS - 1) % MARKS];
    uint64_t most = now > mark->begun ? now - mark->begun : 0;
    float ms; /* since the event before */
    if (!before->event || !DRIVER(cuEventElapsedTime)) return most;
    if (DRIVER(cuEventElapsedTime)(&ms, before->event, mark->event) != CUDA_SUCCESS || !(ms >= 0 && ms < 1e6f)) return most;
    uint64_t between = (uint64_t)((double)ms * 1e6);
    return between < most ? between : most;
}

/* How many launches the next event may stand for, by one that stood for as many as fitted. */
static void learn(struct lane *lane, const struct mark *mark, uint64_t lasted) {
    uint64_t fits = lasted ? WINDOW * mark->count / lasted : MOST_LAUNCHES;
    if (mark->count > 1 && lasted > 6 * (uint64_t)WINDOW) /* what was thought to be short is not */
        for (int i = 0; i < KINDS; i++) atomic_store_explicit(&durations[i], 0, memory_order_relaxed);
    if (fits > 2 * mark->count) fits = 2 * mark->count;
    if (fits > MOST_LAUNCHES) fits = MOST_LAUNCHES;
    atomic_store(&lane->step, fits ? (unsigned)fits : 1);
}

unsigned duration_of(unsigned kind) { return kind ? atomic_load_explicit(&durations[kind % KINDS], memory_order_relaxed) : 0; }

/* Rather too short than too long: a thread that is held back for too long leaves the GPU without work. */
static void learn_duration(unsigned kind, uint64_t time) {
    uint64_t known = duration_of(kind);
    if (known && time > known) time = known + (time - known) / 2;
    if (kind) atomic_store(&durations[kind % KINDS], !time ? 1 : time < UINT32_MAX ? (unsigned)time : UINT32_MAX);
}

static void learn_from(struct lane *lane, unsigned at, uint64_t now) {
    const struct mark *mark = &lane->marks[at];
    uint64_t time = lasted(lane, at, now);
    learn_duration(mark->kind, time);
    if (mark->full) learn(lane, mark, time);
    atomic_store_explicit(&lane->is_long, mark->count == 1 && time > LONG, memory_order_relaxed);
}

unsigned marks_closed(const struct lane *lane) {
    unsigned open = atomic_load_explicit(&lane->open, memory_order_relaxed) ? 1 : 0;
    return atomic_load_explicit(&lane->marked, memory_order_relaxed) - open;
}

static void retire(struct lane *lane, unsigned most) {
    unsigned marked = atomic_load(&lane->marked), events = 0;
    int mode;
    if (!most || lane->ending || !driver_may_be_asked()) return;
    bool entered = context_enter(lane->context, &mode);
    for (uint64_t now = 0; events < most; events++) {
        unsigned at = (lane->first + events) % MARKS;
        CUresult result = entered ? DRIVER(cuEventQuery)(lane->marks[at].event) : CUDA_ERROR_NOT_INITIALIZED;
        if (result == CUDA_ERROR_NOT_READY) break;
        if (result == CUDA_SUCCESS) learn_from(lane, at, now ? now : (now = now_ns()));
        atomic_fetch_sub(&lane->queued, lane->marks[at].expected);
        atomic_store(&lane->over, lane->marks[at].upto);
    }
    if (entered) context_leave(mode);
    if (!events) return;
    lane->owner->ended += events;
    lane->first = (lane->first + events) % MARKS;
    lane->ended = now_ns();
    if (events == marked) atomic_store(&lane->open, 0);
    atomic_store(&lane->marked, marked - events);
    rests_plan(lane);
}

void marks_retire(struct lane *lane) { retire(lane, atomic_load(&lane->marked)); }

void marks_retire_closed(struct lane *lane) { retire(lane, marks_closed(lane)); }

/* Behind so many launches; it may be the last event, recorded again. */
static void recorded(struct lane *lane, uint64_t launched, unsigned kind, uint64_t expected, enum mark_end end) {
    uint64_t count = launched - atomic_load(&lane->covered);
    unsigned closed = marks_closed(lane);
    bool again = closed != atomic_load(&lane->marked);
    struct mark *mark = &lane->marks[(lane->first + closed) % MARKS];
    mark->count = again ? mark->count + count : count;
    if (!again) mark->begun = atomic_load(&lane->begun);
    mark->upto = launched;
    mark->kind = mark->count == 1 ? kind : 0;
    mark->full = end == FULL;
    mark->expected = end == OPEN ? 0 : expected; /* of one that is recorded again nothing was counted */
    atomic_fetch_add(&lane->queued, mark->expected);
    if (!again) atomic_fetch_add(&lane->marked, 1);
    atomic_store(&lane->open, end == OPEN ? (unsigned)mark->count : 0);
}

static void put(struct lane *lane, CUstream stream, unsigned kind, uint64_t expected, enum mark_end end) {
    unsigned closed = marks_closed(lane);
    uint64_t launched = atomic_load(&lane->launched); /* what another thread launches from here on may come behind the event */
    if (closed == MARKS - 1 || launched == atomic_load(&lane->covered)) return;
    if (lane->ending || !driver_may_be_asked()) return;
    struct mark *mark = &lane->marks[(lane->first + closed) % MARKS];
    int mode;
    if (context_enter(lane->context, &mode)) {
        bool captured = stream_capturing(stream);
        bool done = !captured && (mark->event || DRIVER(cuEventCreate)(&mark->event, WITH_TIME) == CUDA_SUCCESS) &&
            DRIVER(cuEventRecord)(mark->event, stream) == CUDA_SUCCESS;
        context_leave(mode);
        if (done) recorded(lane, launched, kind, expected, end);
        if (captured && stream == STREAM_LEGACY) return; /* another one is: what was launched here runs all the same */
    }
    atomic_store(&lane->covered, launched); /* behind what is captured, or in a broken context, nothing is to come */
    atomic_store(&lane->begun, 0);
}

void marks_put(struct lane *lane, unsigned kind, uint64_t expected, enum mark_end end) {
    if (lanes_beginning && lane->stream != STREAM_PER_THREAD) return; /* of that no other thread can begin a capture */
    put(lane, lane->stream, kind, expected, end);
}

/* In its context: whether nothing is in the stream, or only what is not known, as in the one of another thread. */
static bool is_empty(const struct lane *lane) {
    if (atomic_load(&lane->marked) || atomic_load(&lane->launched) != atomic_load(&lane->covered)) return false;
    bool named = lane->stream > STREAM_PER_THREAD && atomic_load(&lane->share) && !lane->ending; /* may wait for the host */
    return !named || DRIVER(cuStreamQuery)(lane->stream) != CUDA_ERROR_NOT_READY;
}

/* Whether an event in the legacy stream would have streams wait for others, which they do not by themselves. */
static bool holds_up(const struct lane *legacy) {
    int mode;
    if (!DRIVER(cuStreamQuery) || !context_enter(legacy->context, &mode)) return false;
    bool empty = !stream_capturing(STREAM_LEGACY);
    for (const struct lane *lane = lanes; empty && lane; lane = lane->other)
        if (lane != legacy && lane->context == legacy->context && lane->waits) empty = is_empty(lane);
    context_leave(mode);
    return !empty;
}

void marks_cover(struct lane *lane, bool shut) {
    if (atomic_load(&lane->launched) == atomic_load(&lane->covered)) return;
    if (lane->stream == STREAM_PER_THREAD) {
        if (shut) lane_hand_over(lane);
        return;
    }
    bool handed = lane->handed > atomic_load(&lane->covered);
    if (lane->ending || !driver_may_be_asked()) return;
    if (lane->stream == STREAM_LEGACY && ((handed && !shut) || lanes_beginning || holds_up(lane))) return;
    marks_put(lane, 0, WINDOW, LAST);
}
