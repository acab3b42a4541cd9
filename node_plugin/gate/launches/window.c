/* How much work is queued on the GPU, and whether it is done.
 *
 * A revoke is answered when all that was let through has ended, so little may be queued: about two events of WINDOW each
 * on a stream, one that runs and one that is ready behind it; the second is let in when little is left of the first (rests.c), so
 * a neighbour that comes before waits for that one only. Several busy streams share the window by themselves, as what passes
 * for one of them is the work of all.
 *
 * Where no other share uses the GPU (`ahead`), ENOUGH may be queued: programs lose nothing by what they do between launches. A
 * share that comes then waits for that once, at most.
 *
 * An event costs a microsecond, so it stands for as many launches as fit; of what lasts longer than LONG there is one only,
 * as the GPU would rest between two for a hundredth of that at most, and others would wait for both; what is not known to
 * be short gets one of its own. After a rest an event stands for FEW launches, and for twice as many after each that happened in
 * time; without a rest, for MOST_LAUNCHES at most.
 *
 * Nobody but a thread itself can name its own default stream. So it records the event of its last launches again behind each
 * that comes SELDOM after the one before. What a burst leaves uncovered, in a thread that launches no more, nobody can ask for
 * (SILENT): such a lease is given back as an idle one is, and once the door is shut, an event in the legacy stream, which comes
 * behind all threads' streams, holds up no other stream's work. */
#include "launches/window.h"

#include <time.h>

enum { NAP = 100000, SELDOM = 20000 /* for a thread's own events */, OFTEN = 1000 /* looks */ }; /* ns */

static bool full(const struct lane *lane, bool ahead) {
    unsigned most = atomic_load_explicit(&lane->is_long, memory_order_relaxed) ? 1 : 2;
    unsigned marked = marks_closed(lane);
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
        marks_retire(lane);
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
    uint64_t since = launched - atomic_load(&lane->covered) + atomic_load(&lane->open);
    bool due = !is_short || since >= atomic_load(&lane->step), own = lane->stream == STREAM_PER_THREAD;
    if (!due && (!own || now < lane->recent + SELDOM)) return;
    if (own) lane->recent = now;
    gate_enter();
    if (!due) { /* no other thread can name its stream, and this one may launch no more */
        marks_put(lane, kind, 0, OPEN);
        gate_leave();
        return;
    }
    marks_retire_closed(lane);
    rests_learn(lane, now);
    bool sure = is_short && atomic_load(&lane->step) > FEW; /* what is not known may take long, and what was short before a rest */
    marks_put(lane, kind, sure ? WINDOW : known && !is_short ? known : ENOUGH, is_short ? FULL : LAST);
    rests_plan(lane);
    gate_leave();
}

/* Under the lock: what is left of this lane. */
static enum work left_on(struct lane *lane, bool shut, bool moved) {
    bool left = atomic_load(&lane->launched) != atomic_load(&lane->covered);
    if (left && !moved) marks_cover(lane, shut);
    if (moved || atomic_load(&lane->marked)) return BUSY;
    if (!left) return NONE;
    bool unknown = lane->stream == STREAM_PER_THREAD || lane->handed > atomic_load(&lane->covered);
    return unknown && !marks_captured(lane) ? SILENT : BUSY; /* until the end of a capture it would not be known either */
}

enum work window_busy(struct share *share, bool closed) {
    enum work work = driver_may_be_asked() ? NONE : BUSY; /* then the end of the process tells */
    bool shut = !atomic_load(&share->until);
    for (struct lane *lane = lanes; lane; lane = lane->other) {
        if (lane->owner != share || !lane->context) continue;
        uint64_t launched = atomic_load(&lane->launched);
        bool moved = launched != lane->seen && !closed;
        lane->seen = launched;
        marks_retire(lane);
        enum work one = left_on(lane, shut, moved);
        if (one > work) work = one;
    }
    return work;
}

uint64_t window_queued(const struct share *share, bool *beside) {
    uint64_t queued = 0;
    *beside = false;
    for (struct lane *lane = lanes; lane; lane = lane->other) {
        if (lane->owner != share || !lane->context) continue;
        bool busy = atomic_load(&lane->marked) || atomic_load(&lane->launched) != atomic_load(&lane->covered);
        queued += atomic_load(&lane->queued);
        *beside |= lane->waiters && !busy;
    }
    return queued;
}
