/* Pacing: the time of the next launch, chosen so that the GPU does not become idle between launches.
 *
 * If the running launch has a known duration, the next one is let in when `lead` of it is left. Each time a stream becomes idle
 * during a lease although a launch was held back (its thread woke up late or was busy), the lead doubles, until nothing is held
 * back. The lead decays with time. So a thread whose stream becomes idle regularly, as in each step of a training, is held back
 * less, and a thread that was late once is affected only for a short time.
 *
 * After an idle time a kernel that was short may take long, even at the same size (prefill after decode), so an event then
 * stands for FEW launches. A stream counts as idle if it has no work when a launch comes GAP after the previous one: the
 * program has waited for results. */
#include "launches/window.h"

enum { FORGET = 32000000, GAP = 50000 }; /* ns */

/* The running launch started when it was launched, or when the previous one ended. */
void pacing_plan(struct queue *queue) {
    const struct event *runs = &queue->events[queue->first];
    uint64_t duration = events_closed(queue) == 1 ? duration_of(runs->kind) : 0;
    uint64_t start = runs->begun > queue->completed_at ? runs->begun : queue->completed_at;
    atomic_store(&queue->next_at, duration > queue->lead ? start + duration - queue->lead : 0);
}

/* Learn the lead. A new lease starts without work; and if nothing was held back since the stream was last idle, it is idle
 * for other reasons. */
void pacing_learn(struct queue *queue, uint64_t now) {
    bool idle = !atomic_load(&queue->pending) && atomic_load(&queue->launched) == atomic_load(&queue->covered) + 1;
    bool again = queue->lease == queue->owner->number;
    uint64_t passed = now - queue->learned_at < FORGET ? now - queue->learned_at : FORGET;
    queue->lease = queue->owner->number;
    queue->learned_at = now;
    queue->lead -= (queue->lead - LEAST_LEAD) * passed / FORGET;
    if (idle && atomic_exchange(&queue->paced, false) && again) queue->lead *= 2;
}

/* Under the lock, by the thread that is about to launch: if the stream has no work left, start with few launches for an
 * event. */
static void restart_if_idle(struct queue *queue) {
    uint64_t launched = atomic_load(&queue->launched);
    int mode;
    if (!DRIVER(cuStreamQuery) || queue->ending || !driver_is_usable() || !context_enter(queue->context, &mode)) return;
    bool none = !stream_is_capturing(queue->stream) && DRIVER(cuStreamQuery)(queue->stream) == CUDA_SUCCESS;
    context_leave(mode);
    if (!none) return;
    events_retire(queue);
    atomic_store(&queue->step, FEW);
    if (atomic_load(&queue->covered) >= launched) return;
    if (queue->handed_over > atomic_load(&queue->covered)) return; /* it has work of threads that have ended */
    atomic_store(&queue->covered, launched);
    atomic_store(&queue->completed, launched);
    atomic_store(&queue->uncovered_since, 0);
}

void window_before_launch(struct queue *queue, uint64_t now) {
    uint64_t latest = atomic_load_explicit(&queue->last_launch_at, memory_order_relaxed);
    atomic_store_explicit(&queue->last_launch_at, now, memory_order_relaxed);
    if (now <= latest + GAP || atomic_load_explicit(&queue->step, memory_order_relaxed) <= FEW) return;
    gate_lock();
    restart_if_idle(queue);
    gate_unlock();
}
