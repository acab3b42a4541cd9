/* Rests: when a stream is without work, and what is learnt of it.
 *
 * Where the one that runs is a launch of known duration, the next one is let in when little of it is left (`lead`). Each time
 * that a stream is found without work in the midst of a lease, as its thread was late to wake up or had other things to do,
 * though it was held back before, the lead doubles, up to as if nothing was held back. It is forgotten by time: a thread that
 * rests again and again, as training in each of its steps, is held back less; one late once, not for long.
 *
 * What was short may be long after a rest, in the same kernel and the same size (prefill after decode), so then an event
 * stands for FEW launches. A rest is a stream without work when a launch comes GAP after the one before, as after a wait for
 * results. */
#include "launches/window.h"

enum { FORGET = 32000000, GAP = 50000 }; /* ns */

/* What runs began when it was launched, or when that before it had ended. */
void rests_plan(struct lane *lane) {
    const struct mark *runs = &lane->marks[lane->first];
    uint64_t duration = marks_closed(lane) == 1 ? duration_of(runs->kind) : 0;
    uint64_t start = runs->begun > lane->ended ? runs->begun : lane->ended;
    atomic_store(&lane->next_at, duration > lane->lead ? start + duration - lane->lead : 0);
}

/* Was there work until now? A new lease begins without. Where nothing was held
 * back since it rested last, it rests for other reasons. */
void rests_learn(struct lane *lane, uint64_t now) {
    bool rested = !atomic_load(&lane->marked) && atomic_load(&lane->launched) == atomic_load(&lane->covered) + 1;
    bool again = lane->lease == lane->owner->number;
    uint64_t passed = now - lane->learnt < FORGET ? now - lane->learnt : FORGET;
    lane->lease = lane->owner->number;
    lane->learnt = now;
    lane->lead -= (lane->lead - LEAST_LEAD) * passed / FORGET;
    if (rested && atomic_exchange(&lane->held, false) && again) lane->lead *= 2;
}

/* Under the lock, by the thread that is about to launch: nothing of what came before is left. */
static void rested(struct lane *lane) {
    uint64_t launched = atomic_load(&lane->launched);
    int mode;
    if (!DRIVER(cuStreamQuery) || lane->ending || !driver_may_be_asked() || !context_enter(lane->context, &mode)) return;
    bool none = !stream_capturing(lane->stream) && DRIVER(cuStreamQuery)(lane->stream) == CUDA_SUCCESS;
    context_leave(mode);
    if (!none) return;
    marks_retire(lane);
    atomic_store(&lane->step, FEW);
    if (atomic_load(&lane->covered) >= launched || lane->handed > atomic_load(&lane->covered)) return; /* or it has others' work */
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
