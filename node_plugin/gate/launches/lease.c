/* The lease: when a launch may pass, how it waits, and when the GPU is given back.
 *
 *   FREE --a launch waits--> ASKED --GRANT--> HELD --REVOKE, or no work for IDLE--> CLOSING --all has ended--> FREE, ASKED
 *
 * A program with a whole GPU keeps it when its server ends, as no other share uses that GPU. Whenever it finds that nothing
 * listens at that server's socket, it continues for another ALONE; a new server waits for twice as long after it starts to
 * listen. So before the new server gives the GPU to another share, it has heard from this program, or the program has stopped.
 * A server that is being killed may still accept a connection: a program that was connected again for less than ALONE, and got
 * no message about a lease, continues as before.
 *
 * Work on the GPU may depend on a launch that waits for the next lease: for example, a stream waits for the host, and the host
 * waits to launch on another stream. Such a lease would never finish closing. So if nothing completes while threads wait to
 * launch, the gate asks for one more launch, as often as needed (ASK with STUCK, answered by GRANT with ONCE and the number of
 * the closing lease). Long kernels look the same, so the gate first waits for as long as the queued work usually takes; longer
 * if the launch would queue behind it, and longer again after launches that changed nothing; only briefly if this program has
 * depended on its own launches before. If the server took the program for dead and gave its lease back, that lease closes as
 * well, and an ASK then requests a new one.
 *
 * A launch increments `running` before it reads `until`, and the closing thread clears `until` before it reads `running`. So
 * either the launch sees that it may not pass, or the closing thread waits for it. */
#include "launches/window.h"

#include <time.h>

enum { IDLE = 500000, POLL = 500000, IDLE_AT_END = 100000, POLL_OFTEN = 100000, DRAIN = 30000, DRAIN_LONG = 200000 }; /* ns */
enum { LATE = 5000000, ALONE = 100000000, SETTLE = 50000000 }; /* ns */
enum { STALLED = 50000000, STALLED_AGAIN = 2000000, SOON = 20000000 }; /* ns */
enum { STEPS = 3, MOST_DOUBLINGS = 4, TOO_MANY = 8 };

static void stop_launches(struct share *share) { atomic_store(&share->until, 0); }

/* The lowest bit of a time says that the lease is for one launch: a nanosecond makes no difference. */
static uint64_t until_time(uint64_t time, bool once) { return (time & ~UINT64_C(1)) | once; }
static bool is_for_one(uint64_t until) { return until & 1 && until != FOREVER; }

/* Count a launch and return whether it may pass; this uses up a lease for one launch. `now` becomes 0 if the whole GPU is
 * leased. */
static bool try_enter(struct share *share, uint64_t *now) {
    atomic_fetch_add(&share->running, 1);
    uint64_t until = atomic_load(&share->until);
    *now = until == FOREVER || !until ? 0 : now_ns();
    if (*now < until && (!is_for_one(until) || atomic_compare_exchange_strong(&share->until, &until, 0))) return true;
    atomic_fetch_sub(&share->running, 1);
    return false;
}

static void ask(struct share *share, bool keeps) {
    connection_send(share, (struct message){.kind = ASK, .a = share->burst / 1000, .b = keeps ? KEEPS : 0});
    share->demand = 0;
    if (share->socket >= 0) share->stage = ASKED;
}

/* Under the lock, in a thread that launches at exit: no other thread calls the driver then. */
static bool end_lease_in_launch(struct share *share) {
    window_allow_driver(true);
    bool busy = lease_end(share);
    window_allow_driver(false);
    return busy;
}

static void wait_for_lease(struct share *share, struct queue *queue) {
    uint64_t since = now_ns();
    gate_lock();
    share->waiters++;
    queue->waiters++;
    while (now_ns() >= atomic_load(&share->until)) {
        if (now_ns() > since + SECOND) {
            share->waiters--;
            queue->waiters--;
            gate_unlock();
            gate_cancel_point();
            gate_lock();
            share->waiters++;
            queue->waiters++;
            since = now_ns();
        }
        if (share->stage == FREE && share->socket >= 0) ask(share, false);
        share_wait(share, gate_ending() && end_lease_in_launch(share) ? DRAIN : SECOND);
    }
    share->waiters--;
    queue->waiters--;
    gate_unlock();
}

void pass_enter(struct pass *pass, CUstream stream, unsigned kind) {
    uint64_t now;
    *pass = (struct pass){.queue = queue_of(stream), .kind = kind};
    if (!pass->queue) return;
    struct share *share = atomic_load(&pass->queue->share);
    if (!share) { /* another thread is destroying the stream: leave the error to the driver */
        pass->queue = NULL;
        return;
    }
    for (;;) {
        if (atomic_load_explicit(&share->until, memory_order_relaxed) != FOREVER) window_wait(pass->queue, share);
        if (try_enter(share, &now)) break;
        if (queue_is_capturing(pass->queue)) { /* it becomes part of a graph: nothing runs now */
            pass->queue = NULL;
            return;
        }
        window_before_launch(pass->queue, now_ns());
        wait_for_lease(share, pass->queue);
        atomic_store_explicit(&pass->queue->last_launch_at, now_ns(), memory_order_relaxed); /* the wait was no idle time */
    }
    pass->cancels = gate_disable_cancel(); /* the thread is counted until it leaves */
    if (now) window_before_launch(pass->queue, now);
    pass->share = share;
    pass->now = now;
}

void pass_leave(struct pass *pass) {
    if (!pass->queue) return;
    window_after_launch(pass->queue, pass->kind, pass->now);
    atomic_fetch_sub(&pass->share->running, 1);
    if (gate_ending()) lease_settle(pass->share);
    gate_restore_cancel(pass->cancels);
}

/* --- messages and closing, under the lock ------------------------------------------------------------------------- */

static void begin_closing(struct share *share, uint64_t now) {
    stop_launches(share);
    share->stage = CLOSING;
    share->acknowledged = false;
    share->ended_before = share->ended;
    share->progress_at = now;
    share->extra_launches = 0;
}

static void on_grant(struct share *share, struct message message, uint64_t now) {
    bool closes = share->stage == CLOSING && message.b == share->number && message.a != FOREVER;
    if (message.b <= share->returned || (closes && message.c != ONCE)) return;
    if (message.b != share->number || share->stage == FREE || share->stage == ASKED) {
        share->work = share->idle_since = 0;
        share->checked_at = now;
    }
    if (!closes) share->stage = HELD; /* otherwise it is one more launch */
    share->number = message.b;
    uint64_t most = (FOREVER - 1 - now) / 1000;
    uint64_t end = now + (message.a < most ? message.a : most) * 1000;
    atomic_store(&share->ahead, message.c == AHEAD);
    atomic_store(&share->single, message.c == SINGLE);
    atomic_store(&share->until, message.a == FOREVER ? FOREVER : until_time(end, message.c == ONCE));
    share_changed(share);
}

bool lease_is_stalled(const struct share *share, uint64_t since, uint64_t now) {
    if (share->stage == CLOSING) return atomic_load(&share->until) || now > share->progress_at + STALLED;
    bool beside;
    uint64_t most = share->needs_own_launches ? STALLED : SECOND;
    return now > since + most && now > since + most + 2 * window_queued(share, &beside);
}

/* A program that was stopped, or waited for a CPU, may read a grant after its server has ended and the next one has given the
 * GPU to another share. So a message of a server that has ended can only take the lease away. */
void lease_on_message(struct share *share, struct message message, uint64_t now, bool gone) {
    share->whole = false;
    if (gone) {
        if (message.kind != GRANT || message.a != FOREVER) stop_launches(share);
    } else if (message.kind == GRANT) {
        on_grant(share, message, now);
    } else if (message.a == share->number && message.a > share->returned && (share->stage == HELD || share->stage == CLOSING)) {
        if (share->stage == HELD) begin_closing(share, now);
        share->acknowledged = false;
        share->revoked_at = now;
    }
}

/* At exit the gate's thread cannot query the driver; it reports the last known state to a server that starts then. */
bool lease_is_draining(struct share *share) {
    if (gate_parking() == CALLS_QUIET) return false;
    return atomic_load(&share->running) || (gate_ending() ? share->may_be_busy : window_busy(share, true));
}

void lease_on_connect(struct share *share, bool again) {
    bool keeps = lease_is_draining(share) || (gate_parking() != CALLS_QUIET && now_ns() < atomic_load(&share->until));
    if (!again) share->whole = false;
    share->number = share->returned = 0;
    if (keeps || (share->waiters && gate_parking() == CALLS_OPEN)) ask(share, keeps);
}

void lease_on_disconnect(struct share *share) {
    uint64_t now = now_ns();
    if (share->stage == HELD && atomic_load(&share->until) == FOREVER) {
        share->whole = true;
        share->lost_at = now;
    } else if (now >= share->lost_at + ALONE) {
        share->whole = false;
    }
    if (share->stage == HELD || share->stage == CLOSING) share->may_be_busy = true;
    stop_launches(share);
    share->stage = FREE;
    share->revoked_at = 0;
}

bool lease_continue_alone(struct share *share, uint64_t when) {
    if (!share->whole) return false;
    atomic_store(&share->until, until_time(when + ALONE, false));
    share_changed(share);
    return true;
}

bool lease_is_alone(const struct share *share) {
    return share->whole && share->socket < 0 && now_ns() < atomic_load(&share->until);
}

/* Give back the lease, as all launched work has ended; report how much more is wanted. */
static void give_back(struct share *share) {
    uint64_t wanted = 0;
    bool wants = gate_parking() == CALLS_OPEN && (share->waiters || atomic_load(&share->throttled));
    if (wants) { /* a throttled thread has not noticed yet that no launch may pass */
        wanted = 1 + (share->burst > share->demand ? (share->burst - share->demand) / 1000 : 0);
        share->stage = ASKED;
    } else {
        share->burst = share->burst ? (3 * share->burst + share->demand) / 4 : share->demand;
        share->stage = FREE;
    }
    share->returned = share->number;
    share->revoked_at = 0;
    share->may_be_busy = false;
    connection_send(share, (struct message){.kind = DONE, .a = wanted, .b = share->work / 1000, .c = share->number});
}

/* Tell the server that the revoke arrived but the work takes longer: a program that does not answer counts as one that keeps
 * the GPU. */
static void report_draining(struct share *share, uint64_t now) {
    if (!share->revoked_at || now < share->revoked_at + LATE) return;
    share->revoked_at = 0;
    share->acknowledged = true;
    connection_send(share, (struct message){.kind = ASK, .a = share->burst / 1000, .b = KEEPS});
}

/* Return how long nothing may complete before the work is assumed to depend on a waiting launch. */
static uint64_t stall_time(struct share *share) {
    bool beside;
    uint64_t twice = 2 * window_queued(share, &beside), most = 4 * SECOND;
    uint64_t least = share->needs_own_launches ? STALLED_AGAIN : beside ? STALLED + (twice < most ? twice : most) : SECOND + twice;
    unsigned doublings = share->extra_launches > STEPS ? share->extra_launches - STEPS : 0;
    return least << (doublings < MOST_DOUBLINGS ? doublings : MOST_DOUBLINGS);
}

/* While closing: request one more launch if the work makes no progress and threads wait to launch. */
static void check_progress(struct share *share, uint64_t now) {
    if (share->ended != share->ended_before) {
        share->ended_before = share->ended;
        if (share->extra_launches && now < share->progress_at + SOON) share->needs_own_launches = true;
        share->progress_at = now;
        share->extra_launches = 0;
    }
    if (!share->waiters || now < share->progress_at + stall_time(share)) return;
    share->progress_at = now;
    if (++share->extra_launches == TOO_MANY) share->needs_own_launches = false;
    share->revoked_at = 0;
    share->acknowledged = true;
    connection_send(share, (struct message){.kind = ASK, .a = share->burst / 1000, .b = STUCK});
}

static uint64_t closing(struct share *share, uint64_t now) {
    bool open = atomic_load(&share->until); /* for one more launch; the thread that uses it is counted in `running` first */
    if (open && now >= atomic_load(&share->until)) stop_launches(share);
    report_draining(share, now);
    if (atomic_load(&share->running)) return DRAIN;
    bool busy = window_busy(share, true);
    if (!share->idle_since) {
        share->work += now - share->checked_at;
        share->demand += now - share->checked_at;
    }
    share->checked_at = now;
    if (busy && !open) check_progress(share, now);
    if (busy) return share->acknowledged ? DRAIN_LONG : DRAIN;
    if (open) {
        stop_launches(share);
        return DRAIN;
    }
    give_back(share);
    return FOREVER;
}

/* Threads that stopped at their entries count as running, and launch without a lease after the return: one launch each. */
void lease_parked(struct share *share) {
    stop_launches(share);
    share->whole = false;
    if (share->stage == HELD || share->stage == CLOSING) give_back(share);
    share_changed(share); /* threads that wait for a lease ask for the next one after the return */
}

/* Return whether the program has done about as much work as usual before it becomes idle. */
static bool at_usual_end(const struct share *share) {
    uint64_t tolerance = share->burst / 8;
    return share->burst && share->demand + tolerance >= share->burst && share->demand <= share->burst + tolerance;
}

/* At exit, which may take long: stop launches, and give the lease back if the work has drained. Other work keeps the GPU. */
bool lease_end(struct share *share) {
    if (share->stage == HELD && atomic_load(&share->until) != FOREVER) begin_closing(share, now_ns());
    if (share->stage == CLOSING) closing(share, now_ns());
    bool holds = share->stage == HELD || share->whole;
    share->may_be_busy = holds || share->stage == CLOSING || atomic_load(&share->running) || window_busy(share, true);
    return share->may_be_busy && !holds;
}

/* In the thread that launched: wait for the end of the work, then give the lease back. */
void lease_settle(struct share *share) {
    bool busy = true;
    for (uint64_t latest = now_ns() + SETTLE; busy && now_ns() < latest;) {
        gate_lock();
        busy = end_lease_in_launch(share);
        gate_unlock();
        if (busy) nanosleep(&(struct timespec){.tv_nsec = DRAIN}, NULL);
    }
}

uint64_t lease_tick(struct share *share, uint64_t now) {
    if (gate_ending()) { /* the end of the process, or a thread that still launches, gives it back */
        if (share->stage == CLOSING) report_draining(share, now + LATE);
        return FOREVER;
    }
    if (gate_parking() == CALLS_QUIET) {
        lease_parked(share); /* it may have been granted meanwhile */
        return FOREVER;
    }
    if (share->stage == CLOSING) return closing(share, now);
    if (share->stage != HELD || atomic_load(&share->until) == FOREVER) return FOREVER;
    bool waited_for = share->waiters || atomic_load(&share->throttled); /* threads that may pass once they wake up */
    bool wanted = atomic_load(&share->running) || (waited_for && now < atomic_load(&share->until));
    bool busy = window_busy(share, false) == BUSY || wanted;
    if (busy) {
        share->work += now - share->checked_at;
        share->demand += now - share->checked_at;
        share->idle_since = 0;
    } else if (!share->idle_since) {
        share->idle_since = now;
    }
    share->checked_at = now;
    bool at_end = at_usual_end(share);
    if (busy) return now < atomic_load(&share->until) && !at_end ? POLL : POLL_OFTEN;
    uint64_t idle = at_end ? IDLE_AT_END : IDLE;
    if (now - share->idle_since < idle) return share->idle_since + idle - now;
    begin_closing(share, now);
    return closing(share, now);
}
