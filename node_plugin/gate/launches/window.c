/* The window: the limit of queued work on the GPU, and whether that work has ended.
 *
 * A revoke is answered when all launched work has ended, so little may be queued: about two events of WINDOW on a stream, one
 * that runs and one behind it. The second is let in when little of the first is left (pacing.c), so a neighbour that comes
 * earlier waits for the first only. Several busy streams share the window without further rules, as each one's work delays the
 * others.
 *
 * A guest (`single`) has one event, so that an owner waits for what runs alone: it loses what a thread needs to see the end.
 *
 * If no other share uses the GPU (`ahead`), ENOUGH may be queued, so that programs lose no GPU time to their own work between
 * launches. A share that becomes active then waits for that work at most once.
 *
 * Recording an event costs a microsecond, so an event stands for as many launches as fit. Only one launch longer than LONG is
 * queued: the GPU idles between two of them for a hundredth of their time at most, and others would wait for both. A launch
 * that is not known to be short gets an event of its own. After an idle time an event stands for FEW launches, then for twice
 * as many after each that completed in time; without idle times, for MOST_LAUNCHES at most.
 *
 * Only a thread itself can use its per-thread default stream. So it records the event of its latest launches again after
 * each launch that comes SELDOM after the previous one. If a thread stops launching after a burst, the end of its last
 * launches is UNKNOWN. Such a lease is given back as an idle one is; and once no launch may pass, an event in the legacy
 * stream, which waits for the streams of all threads, delays no other work. */
#include "launches/window.h"

#include <time.h>

enum { NAP = 100000, SELDOM = 20000 /* for per-thread events */, OFTEN = 1000 /* polls */ }; /* ns */

static bool full(const struct queue *queue, bool ahead, bool single) {
    unsigned most = single || atomic_load_explicit(&queue->is_long, memory_order_relaxed) ? 1 : 2;
    unsigned pending = events_closed(queue);
    if (pending < most || gate_ending()) return false;
    uint64_t left = atomic_load_explicit(&queue->launched, memory_order_relaxed) - atomic_load_explicit(&queue->completed, memory_order_relaxed);
    if (!ahead || pending == MOST_EVENTS - 1 || left >= 2 * MOST_LAUNCHES) return true;
    return atomic_load_explicit(&queue->queued, memory_order_relaxed) >= ENOUGH;
}

/* Return how many ns to wait before checking again whether a launch may follow; 0: it may. */
static uint64_t time_to_wait(struct queue *queue, const struct share *share) {
    bool ahead = atomic_load_explicit(&share->ahead, memory_order_relaxed);
    bool soon = !ahead || atomic_load_explicit(&queue->step, memory_order_relaxed) <= 4 * FEW; /* little is queued */
    bool single = atomic_load_explicit(&share->single, memory_order_relaxed);
    if (full(queue, ahead, single)) return soon ? PAUSE : NAP;
    uint64_t next_at = atomic_load_explicit(&queue->next_at, memory_order_relaxed), now = next_at ? now_ns() : 0;
    if (now >= next_at || ahead || gate_ending()) return 0;
    atomic_store_explicit(&queue->paced, true, memory_order_relaxed);
    return next_at - now < NAP ? next_at - now : NAP; /* it may end sooner than the previous one */
}

void window_wait(struct queue *queue, struct share *share) {
    uint64_t wait = time_to_wait(queue, share);
    if (!wait) return;
    int before = gate_disable_cancel();
    window_before_launch(queue, now_ns());
    atomic_fetch_add(&share->throttled, 1); /* this thread has more work, even if the GPU becomes idle before it wakes up */
    uint64_t ended = 0, since = 0;
    bool stands = false;
    for (int tries = 1; wait && !stands; tries++) {
        if (tries % OFTEN == 0) {
            atomic_fetch_sub(&share->throttled, 1);
            gate_restore_cancel(before);
            gate_cancel_point();
            gate_disable_cancel();
            atomic_fetch_add(&share->throttled, 1);
        }
        if (tries > 6 || wait != PAUSE) /* a short kernel ends sooner than a sleep */
            nanosleep(&(struct timespec){.tv_nsec = (long)wait}, NULL);
        gate_lock();
        events_retire(queue);
        uint64_t now = now_ns();
        if (!since || ended != share->ended) since = now;
        ended = share->ended;
        stands = lease_is_stalled(share, since, now);
        gate_unlock();
        wait = time_to_wait(queue, share);
    }
    atomic_store_explicit(&queue->last_launch_at, now_ns(), memory_order_relaxed);
    atomic_fetch_sub(&share->throttled, 1);
    gate_restore_cancel(before);
}

void window_after_launch(struct queue *queue, unsigned kind, uint64_t now) {
    uint64_t none = 0, launched = atomic_fetch_add(&queue->launched, 1) + 1;
    if (!now) return; /* the whole GPU is leased: nothing is measured */
    if (atomic_load_explicit(&queue->uncovered_since, memory_order_relaxed) == 0)
        atomic_compare_exchange_strong(&queue->uncovered_since, &none, now);
    uint64_t known = duration_of(kind);
    bool is_short = known && known < SHORT;
    uint64_t since = launched - atomic_load(&queue->covered) + atomic_load(&queue->open);
    bool due = !is_short || since >= atomic_load(&queue->step), own = queue->stream == STREAM_PER_THREAD;
    if (!due && (!own || now < queue->recorded_at + SELDOM)) return;
    if (own) queue->recorded_at = now;
    gate_lock();
    if (!due) { /* no other thread can use its stream, and this one may not launch again */
        events_record(queue, kind, 0, OPEN);
        gate_unlock();
        return;
    }
    events_retire_closed(queue);
    pacing_learn(queue, now);
    bool sure = is_short && atomic_load(&queue->step) > FEW; /* unknown ones may be long, and any after an idle time */
    events_record(queue, kind, sure ? WINDOW : known && !is_short ? known : ENOUGH, is_short ? FULL : LAST);
    pacing_plan(queue);
    gate_unlock();
}

/* Under the lock: return whether work is left on this queue. */
static enum work left_on(struct queue *queue, bool shut, bool moved) {
    bool left = atomic_load(&queue->launched) != atomic_load(&queue->covered);
    if (left && !moved) events_cover(queue, shut);
    if (moved || atomic_load(&queue->pending)) return BUSY;
    if (!left) return NONE;
    bool unknown = queue->stream == STREAM_PER_THREAD || queue->handed_over > atomic_load(&queue->covered);
    return unknown && !legacy_is_capturing(queue) ? UNKNOWN : BUSY; /* during a capture an event would not help either */
}

enum work window_busy(struct share *share, bool closed) {
    if (gate_parking() == CALLS_QUIET) return NONE;
    enum work work = driver_is_usable() ? NONE : BUSY; /* without the driver, only the end of the process tells */
    bool shut = !atomic_load(&share->until);
    for (struct queue *queue = queues; queue; queue = queue->next_of_all) {
        if (queue->owner != share || !queue->context) continue;
        uint64_t launched = atomic_load(&queue->launched);
        bool moved = launched != queue->launched_seen && !closed;
        queue->launched_seen = launched;
        events_retire(queue);
        enum work one = left_on(queue, shut, moved);
        if (one > work) work = one;
    }
    return work;
}

uint64_t window_queued(const struct share *share, bool *beside) {
    uint64_t queued = 0;
    *beside = false;
    for (struct queue *queue = queues; queue; queue = queue->next_of_all) {
        if (queue->owner != share || !queue->context) continue;
        bool busy = atomic_load(&queue->pending) || atomic_load(&queue->launched) != atomic_load(&queue->covered);
        queued += atomic_load(&queue->queued);
        *beside |= queue->waiters && !busy;
    }
    return queued;
}
