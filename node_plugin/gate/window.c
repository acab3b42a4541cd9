/* How much work is queued on the GPU, and whether it is done.
 *
 * A revoke is answered when all that was let through has ended, so little may be queued: about two events of WINDOW each
 * on a stream, one that runs and one that is ready behind it. Where the one that runs is a launch of known duration, the
 * next one is let in when little of it is left: a neighbour that comes before waits for that one only. How little (`lead`)
 * is learnt: each time that a stream is found without work in the midst of a lease, as its thread was late to wake up or
 * had other things to do, though it was held back before, it doubles, up to as if nothing was held back. It is forgotten by
 * time: a thread that rests again and again, as training in each of its steps, is held back less; one late once, not for long.
 *
 * Where no other share uses the GPU (`ahead`), ENOUGH may be queued: programs lose nothing by what they do between launches. A
 * share that comes then waits for that once, at most.
 *
 * An event costs a microsecond, so it stands for as many launches as fit; of what lasts longer than LONG there is one only,
 * as the GPU would rest between two for a hundredth of that at most, and others would wait for both; what is not known to
 * be short gets one of its own. What was short may be long now, in the same kernel and the same size (prefill after
 * decode), so after each rest of the program's an event stands for FEW launches, and for twice as many after each that
 * happened in time; without a rest, for MOST_LAUNCHES at most. A rest is a stream without work when a launch comes GAP after
 * the one before, as after a wait for results. Durations are what passed between events by the GPU's clock, and so neither longer nor shorter because a thread was late to look; several busy streams share the window
 * by themselves, as what passes for one of them is the work of all.
 *
 * The calls below may come while another thread captures a graph. They are made in the relaxed mode, which spoils no
 * capture, and nothing is recorded in a stream that is captured itself: its launches do not run now. */
#include "gate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 1000000, SHORT = WINDOW / 2, LONG = 10 * WINDOW, FEW = 4, MOST_LAUNCHES = 128, RELAXED = 2, WITH_TIME = 0 };
enum { PAUSE = 20000, NAP = 100000, LEAST_LEAD = 400000, FORGET = 32000000, ENOUGH = 20 * WINDOW, GAP = 50000 }; /* ns */

enum { BUCKETS = 256, KINDS = 4096, OFTEN = 1000 /* looks */ };
static struct lane *_Atomic buckets[BUCKETS];
static struct lane *all;
static unsigned beginning; /* captures: nothing is recorded meanwhile, as it might be in what is captured, or spoil it */
static _Atomic unsigned durations[KINDS]; /* of a kernel and its size, ns; 0: not known */

/* --- streams ------------------------------------------------------------------------------------------------------ */

static bool allowed;

void window_allow(bool may) { allowed = may; }

/* Under the lock. At the end of the program the driver may be gone any moment, except for a thread that launches itself. */
static bool may_ask(void) { return allowed || !gate_ending(); }

static bool enter_context(CUcontext context, int *mode) {
    if (!context || DRIVER(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return false;
    *mode = RELAXED;
    if (DRIVER(cuThreadExchangeStreamCaptureMode)) DRIVER(cuThreadExchangeStreamCaptureMode)(mode);
    return true;
}

static void leave_context(int mode) {
    CUcontext left;
    if (DRIVER(cuThreadExchangeStreamCaptureMode)) DRIVER(cuThreadExchangeStreamCaptureMode)(&mode);
    DRIVER(cuCtxPopCurrent_v2)(&left);
}

static struct lane *_Atomic *bucket_of(CUstream stream, CUcontext key) {
    uint64_t mixed = ((uintptr_t)stream ^ (uintptr_t)key << 7) * 0x9e3779b97f4a7c15ull;
    return &buckets[mixed >> 56];
}

/* Under the lock: its context is gone, and with it its events and its first `launched` launches. */
static void drop(struct lane *lane, uint64_t launched) {
    for (int i = 0; i < MARKS; i++) lane->marks[i].event = NULL;
    atomic_store(&lane->marked, 0);
    atomic_store(&lane->queued, 0);
    atomic_store(&lane->covered, launched);
    atomic_store(&lane->over, launched);
    atomic_store(&lane->next_at, 0);
    lane->seen = launched;
    if (launched != atomic_load(&lane->launched)) return; /* in a new context */
    lane->context = NULL;
    atomic_store(&lane->share, NULL);
}

/* Slow, once a stream: finds its context, device and share. */
static struct lane *lane_make(CUstream stream, CUcontext key) {
    CUcontext context = key;
    CUdevice device;
    if (!key && (!DRIVER(cuStreamGetCtx) || DRIVER(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS))
        if (DRIVER(cuCtxGetCurrent)(&context) != CUDA_SUCCESS) return NULL;
    int mode;
    if (!enter_context(context, &mode)) return NULL;
    CUresult result = DRIVER(cuCtxGetDevice)(&device);
    leave_context(mode);
    struct share *share = result == CUDA_SUCCESS ? share_of(device) : NULL;
    if (!share) return NULL;
    gate_enter();
    struct lane *_Atomic *bucket = bucket_of(stream, key);
    struct lane *lane = atomic_load(bucket);
    while (lane && !(lane->stream == stream && lane->key == key)) lane = lane->next;
    if (lane) { /* a handle that is used again */
        if (lane->context != context) {
            drop(lane, atomic_load(&lane->launched));
            lane->ending = 0;
            lane->gone = false;
        }
    } else if ((lane = calloc(1, sizeof *lane))) {
        *lane = (struct lane){.next = atomic_load(bucket), .other = all, .stream = stream, .key = key, .step = 1, .lead = LEAST_LEAD};
        all = lane;
        atomic_store(bucket, lane);
    }
    if (lane) {
        lane->context = context;
        lane->owner = share;
        atomic_store(&lane->share, share);
    }
    gate_leave();
    return lane;
}

struct lane *lane_of(CUstream stream) {
    CUcontext key = NULL;
    if (stream == STREAM_LEGACY || stream == STREAM_PER_THREAD) /* of the current context; others know theirs */
        if (!DRIVER(cuCtxGetCurrent) || DRIVER(cuCtxGetCurrent)(&key) != CUDA_SUCCESS || !key) return NULL;
    for (struct lane *lane = atomic_load(bucket_of(stream, key)); lane; lane = lane->next)
        if (lane->stream == stream && lane->key == key && atomic_load_explicit(&lane->share, memory_order_relaxed))
            return lane;
    return lane_make(stream, key);
}

bool lane_before(CUstream one, CUstream other) {
    struct lane *first = lane_of(one), *second = lane_of(other);
    struct share *a = first ? atomic_load(&first->share) : NULL, *b = second ? atomic_load(&second->share) : NULL;
    return a && b && strcmp(a->uuid, b->uuid) < 0;
}

/* The legacy stream is "captured", by an error, while any stream that it waits for is. */
static bool capturing(CUstream stream) {
    int status = 0;
    if (!DRIVER(cuStreamIsCapturing)) return false;
    return DRIVER(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != 0;
}

bool lane_capturing(struct lane *lane) { return capturing(lane->stream); }

/* --- events ------------------------------------------------------------------------------------------------------- */

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

static unsigned duration_of(unsigned kind) { return kind ? atomic_load_explicit(&durations[kind % KINDS], memory_order_relaxed) : 0; }

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

/* Under the lock: when the next launch may follow. What runs began when it was launched, or when that before it had ended. */
static void plan(struct lane *lane) {
    const struct mark *runs = &lane->marks[lane->first];
    uint64_t duration = atomic_load(&lane->marked) == 1 ? duration_of(runs->kind) : 0;
    uint64_t start = runs->begun > lane->ended ? runs->begun : lane->ended;
    atomic_store(&lane->next_at, duration > lane->lead ? start + duration - lane->lead : 0);
}

/* Under the lock, before a launch is marked: was there work until now? A new lease begins without. Where nothing was held
 * back since it rested last, it rests for other reasons. */
static void learn_lead(struct lane *lane, uint64_t now) {
    bool rested = !atomic_load(&lane->marked) && atomic_load(&lane->launched) == atomic_load(&lane->covered) + 1;
    bool again = lane->lease == lane->owner->number;
    uint64_t passed = now - lane->learnt < FORGET ? now - lane->learnt : FORGET;
    lane->lease = lane->owner->number;
    lane->learnt = now;
    lane->lead -= (lane->lead - LEAST_LEAD) * passed / FORGET;
    if (rested && atomic_exchange(&lane->held, false) && again) lane->lead *= 2;
}

/* Under the lock: forgets the events that have happened. An error means the same: the context is broken or gone. */
static void retire(struct lane *lane) {
    unsigned marked = atomic_load(&lane->marked), events = 0;
    int mode;
    if (!marked || lane->ending || !may_ask()) return;
    bool entered = enter_context(lane->context, &mode);
    for (uint64_t now = 0; events < marked; events++) {
        unsigned at = (lane->first + events) % MARKS;
        CUresult result = entered ? DRIVER(cuEventQuery)(lane->marks[at].event) : CUDA_ERROR_NOT_INITIALIZED;
        if (result == CUDA_ERROR_NOT_READY) break;
        if (result == CUDA_SUCCESS) learn_from(lane, at, now ? now : (now = now_ns()));
        atomic_fetch_sub(&lane->queued, lane->marks[at].expected);
        atomic_store(&lane->over, lane->marks[at].upto);
    }
    if (entered) leave_context(mode);
    if (!events) return;
    lane->owner->ended += events;
    lane->first = (lane->first + events) % MARKS;
    lane->ended = now_ns();
    atomic_store(&lane->marked, marked - events);
    plan(lane);
}

/* Under the lock: an event behind all that was launched, by the thread that launched it or by a stranger. `expected`: ns of
 * GPU work. */
static void mark(struct lane *lane, unsigned kind, uint64_t expected, bool full, bool stranger) {
    uint64_t launched = atomic_load(&lane->launched), covered = atomic_load(&lane->covered);
    unsigned marked = atomic_load(&lane->marked);
    if (marked == MARKS - 1 || launched == covered || beginning || lane->ending || !may_ask()) return;
    /* Only its own thread can name the stream of a thread; the legacy stream waits for all of those. */
    CUstream stream = stranger && lane->stream == STREAM_PER_THREAD ? STREAM_LEGACY : lane->stream;
    struct mark *mark = &lane->marks[(lane->first + marked) % MARKS];
    int mode;
    if (enter_context(lane->context, &mode)) {
        bool recorded = !capturing(stream) &&
            (mark->event || DRIVER(cuEventCreate)(&mark->event, WITH_TIME) == CUDA_SUCCESS) &&
            DRIVER(cuEventRecord)(mark->event, stream) == CUDA_SUCCESS;
        leave_context(mode);
        if (recorded) {
            mark->begun = atomic_load(&lane->begun);
            mark->count = launched - covered;
            mark->upto = launched;
            mark->kind = mark->count == 1 ? kind : 0;
            mark->full = full;
            mark->expected = expected;
            atomic_fetch_add(&lane->queued, expected);
            atomic_fetch_add(&lane->marked, 1);
        }
    }
    atomic_store(&lane->covered, launched); /* behind what is captured, or in a broken context, nothing is to come */
    atomic_store(&lane->begun, 0);
}

static bool full(const struct lane *lane, bool ahead) {
    unsigned most = atomic_load_explicit(&lane->is_long, memory_order_relaxed) ? 1 : 2;
    unsigned marked = atomic_load_explicit(&lane->marked, memory_order_relaxed);
    if (marked < most || gate_ending()) return false;
    uint64_t left = atomic_load_explicit(&lane->launched, memory_order_relaxed) - atomic_load_explicit(&lane->over, memory_order_relaxed);
    if (!ahead || marked == MARKS - 1 || left >= 2 * MOST_LAUNCHES) return true;
    return atomic_load_explicit(&lane->queued, memory_order_relaxed) >= ENOUGH;
}

/* How many ns to wait before the next look whether a launch may follow; 0: it may. */
static uint64_t too_soon(struct lane *lane, const struct share *share) {
    bool ahead = atomic_load_explicit(&share->ahead, memory_order_relaxed);
    bool soon = !ahead || atomic_load_explicit(&lane->step, memory_order_relaxed) <= 4 * FEW; /* little is queued */
    if (full(lane, ahead)) return soon ? PAUSE : NAP;
    uint64_t next_at = atomic_load_explicit(&lane->next_at, memory_order_relaxed), now = next_at ? now_ns() : 0;
    if (now >= next_at || ahead || gate_ending()) return 0;
    atomic_store_explicit(&lane->held, true, memory_order_relaxed);
    return next_at - now < NAP ? next_at - now : NAP; /* it may be over sooner than before */
}

/* Under the lock, by the thread that is about to launch: nothing of what came before is left. */
static void rested(struct lane *lane) {
    uint64_t launched = atomic_load(&lane->launched);
    int mode;
    if (!DRIVER(cuStreamQuery) || lane->ending || !may_ask() || !enter_context(lane->context, &mode)) return;
    bool none = !capturing(lane->stream) && DRIVER(cuStreamQuery)(lane->stream) == CUDA_SUCCESS;
    leave_context(mode);
    if (!none) return;
    retire(lane);
    atomic_store(&lane->step, FEW);
    if (lane->stream == STREAM_PER_THREAD || atomic_load(&lane->covered) >= launched) return; /* it has other threads' work, too */
    atomic_store(&lane->covered, launched);
    atomic_store(&lane->over, launched);
    atomic_store(&lane->begun, 0);
}

void window_comes(struct lane *lane, uint64_t now) {
    uint64_t latest = atomic_load_explicit(&lane->latest, memory_order_relaxed);
    atomic_store_explicit(&lane->latest, now, memory_order_relaxed);
    if (now <= latest + GAP || atomic_load_explicit(&lane->step, memory_order_relaxed) <= FEW) return;
    gate_enter();
    rested(lane);
    gate_leave();
}

void window_wait(struct lane *lane, struct share *share) {
    uint64_t wait = too_soon(lane, share);
    if (!wait) return;
    int before = gate_uncancelled();
    window_comes(lane, now_ns());
    atomic_fetch_add(&share->throttled, 1); /* this thread has work, though the GPU may be idle before it wakes up */
    uint64_t ended = 0, since = 0;
    bool stands = false;
    for (int tries = 1; wait && !stands; tries++) {
        if (tries % OFTEN == 0) {
            atomic_fetch_sub(&share->throttled, 1);
            gate_cancelled_as(before);
            gate_cancellable();
            gate_uncancelled();
            atomic_fetch_add(&share->throttled, 1);
        }
        if (tries > 6 || wait != PAUSE) /* a short kernel is over sooner than a sleep */
            nanosleep(&(struct timespec){.tv_nsec = (long)wait}, NULL);
        gate_enter();
        retire(lane);
        uint64_t now = now_ns();
        if (!since || ended != share->ended) since = now;
        ended = share->ended;
        stands = lease_stands(share, since, now);
        gate_leave();
        wait = too_soon(lane, share);
    }
    atomic_store_explicit(&lane->latest, now_ns(), memory_order_relaxed);
    atomic_fetch_sub(&share->throttled, 1);
    gate_cancelled_as(before);
}

void window_launched(struct lane *lane, unsigned kind, uint64_t now) {
    uint64_t none = 0, launched = atomic_fetch_add(&lane->launched, 1) + 1;
    if (!now) return; /* nothing is measured: the GPU is whole */
    if (atomic_load_explicit(&lane->begun, memory_order_relaxed) == 0)
        atomic_compare_exchange_strong(&lane->begun, &none, now);
    uint64_t known = duration_of(kind);
    bool is_short = known && known < SHORT;
    if (is_short && launched - atomic_load(&lane->covered) < atomic_load(&lane->step)) return;
    gate_enter();
    retire(lane);
    learn_lead(lane, now);
    bool sure = is_short && atomic_load(&lane->step) > FEW; /* what is not known may take long, and what was short before a rest */
    mark(lane, kind, sure ? WINDOW : known && !is_short ? known : ENOUGH, is_short, false);
    plan(lane);
    gate_leave();
}

bool window_busy(struct share *share, bool closed) {
    bool busy = false;
    for (struct lane *lane = all; lane; lane = lane->other) {
        if (lane->owner != share || !lane->context) continue;
        uint64_t launched = atomic_load(&lane->launched);
        bool moved = launched != lane->seen && !closed;
        lane->seen = launched;
        retire(lane);
        if (!moved) mark(lane, 0, WINDOW, false, true);
        if (moved || atomic_load(&lane->marked) || launched != atomic_load(&lane->covered)) busy = true;
    }
    return busy || !may_ask(); /* then the end of the process tells */
}

uint64_t window_queued(const struct share *share, bool *beside) {
    uint64_t queued = 0;
    *beside = false;
    for (struct lane *lane = all; lane; lane = lane->other) {
        if (lane->owner != share || !lane->context) continue;
        bool busy = atomic_load(&lane->marked) || atomic_load(&lane->launched) != atomic_load(&lane->covered);
        queued += atomic_load(&lane->queued);
        *beside |= lane->waiters && !busy;
    }
    return queued;
}

/* --- what goes away ----------------------------------------------------------------------------------------------- */

/* Under the lock: whether there was room for an event, where one was needed. In the legacy stream none can be recorded while
 * another is captured. */
static bool close_lanes(CUstream stream, bool ends) {
    bool all_closed = true;
    for (struct lane *lane = all; lane; lane = lane->other) {
        bool other = lane->stream != stream && (ends || lane->stream != STREAM_LEGACY);
        if (other || !atomic_load(&lane->share) || lane->ending) continue;
        retire(lane);
        mark(lane, 0, WINDOW, false, false);
        if (atomic_load(&lane->launched) != atomic_load(&lane->covered))
            all_closed = false;
        else if (ends)
            atomic_store(&lane->share, NULL);
    }
    return all_closed;
}

static void close_stream(CUstream stream, bool ends) {
    for (bool closed = false; !closed && !gate_ending();) {
        gate_enter();
        closed = close_lanes(stream, ends);
        if (closed && !ends) beginning++;
        gate_leave();
        if (!closed) nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    }
}

void window_stream_ends(CUstream stream) { close_stream(stream, true); }

void window_begins_capture(CUstream stream) { close_stream(stream, false); }

void window_began_capture(void) {
    gate_enter();
    if (beginning) beginning--;
    gate_leave();
}

void window_context_ends(CUcontext context) {
    for (struct lane *lane = all; lane; lane = lane->other)
        if (context && lane->context == context && !lane->ending++) lane->last = atomic_load(&lane->launched);
}

void window_context_ended(CUcontext context, bool gone) {
    for (struct lane *lane = all; lane; lane = lane->other) {
        if (!context || lane->context != context || !lane->ending) continue;
        lane->gone |= gone;
        if (--lane->ending) continue;
        if (lane->gone) drop(lane, lane->last);
        lane->gone = false;
    }
}

void window_fork(void) {
    for (int i = 0; i < BUCKETS; i++) atomic_store(&buckets[i], NULL);
    all = NULL;
    beginning = 0;
}
