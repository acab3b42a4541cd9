/* The lease: may a launch pass, what does it wait for, and when is the GPU given back.
 *
 *   FREE --a launch waits--> ASKED --GRANT--> HELD --REVOKE, or no work for IDLE--> CLOSING --all has ended--> FREE, ASKED
 *
 * A program with a whole GPU keeps it when its server ends: no other share is there. It goes on for ALONE after each moment
 * at which no server listened at the socket of that very server, and a new server rests for twice as long from the moment at
 * which it listens. So either that one has heard of us before it gives the GPU to another, or we have stopped. A server that
 * is being killed may listen a moment longer than it is connected: a program that was connected once more, for less than
 * ALONE, and got no word about a lease is as before.
 *
 * What a program has on the GPU may wait for a launch of its own that waits for the next lease: a stream for what the host
 * does after a launch on another one. Such a gate would close for ever. So if nothing ends while threads wait, it says so and gets
 * one launch more, as often as it takes (ASK with STUCK, GRANT with ONCE and the number of the lease that closes). It cannot tell
 * that from kernels that take long, so it waits for as long as these usually take, more if the launch would come behind them, and
 * longer after some launches that changed nothing; but for a moment only in a program that was seen to wait for itself. A lease
 * that was given back in its name (the server took it for dead) is closed as well: what it says then is a wish for a new one.
 *
 * A launch counts itself in `running` before it looks at `until`, and the thread that closes sets `until` before it
 * looks at `running`: so either the launch sees that it may not pass, or the other waits for it. */
#include "launches/window.h"

#include <time.h>

enum { IDLE = 500000, LOOK = 500000, IDLE_AT_END = 100000, LOOK_OFTEN = 100000, DRAIN = 30000, DRAIN_LONG = 200000, LATE = 5000000, ALONE = 100000000, SETTLE = 50000000 }; /* ns */
enum { STILL = 50000000, MEETS = 2000000, SOON = 20000000 }; /* ns */
enum { STEPS = 3, MOST_DOUBLINGS = 4, TOO_MANY = 8 };

static void close_door(struct share *share) { atomic_store(&share->until, 0); }

/* The lowest bit of a time says that the lease is for one launch: a nanosecond more or less is nothing. */
static uint64_t until_time(uint64_t time, bool once) { return (time & ~UINT64_C(1)) | once; }
static bool is_for_one(uint64_t until) { return until & 1 && until != FOREVER; }

/* Whether this launch may pass, and is counted; `now` is 0 if the whole GPU is ours. Where one may pass it closes the door. */
static bool enter(struct share *share, uint64_t *now) {
    atomic_fetch_add(&share->running, 1);
    uint64_t until = atomic_load(&share->until);
    *now = until == FOREVER || !until ? 0 : now_ns();
    if (*now < until && (!is_for_one(until) || atomic_compare_exchange_strong(&share->until, &until, 0))) return true;
    atomic_fetch_sub(&share->running, 1);
    return false;
}

static void ask(struct share *share, bool keeps) {
    link_say(share, (struct message){.kind = ASK, .a = share->burst / 1000, .b = keeps ? KEEPS : 0});
    share->demand = 0;
    if (share->socket >= 0) share->stage = ASKED;
}

/* Under the lock, of a thread that launches while the program ends: nobody else asks the driver then. */
static bool ends_still(struct share *share) {
    window_allow(true);
    bool busy = lease_ends(share);
    window_allow(false);
    return busy;
}

static void wait_for_lease(struct share *share, struct lane *lane) {
    uint64_t since = now_ns();
    gate_enter();
    share->waiters++;
    lane->waiters++;
    while (now_ns() >= atomic_load(&share->until)) {
        if (now_ns() > since + SECOND) {
            share->waiters--;
            lane->waiters--;
            gate_leave();
            gate_cancellable();
            gate_enter();
            share->waiters++;
            lane->waiters++;
            since = now_ns();
        }
        if (share->stage == FREE && share->socket >= 0) ask(share, false);
        share_wait(share, gate_ending() && ends_still(share) ? DRAIN : SECOND);
    }
    share->waiters--;
    lane->waiters--;
    gate_leave();
}

void pass_enter(struct pass *pass, CUstream stream, unsigned kind) {
    uint64_t now;
    *pass = (struct pass){.lane = lane_of(stream), .kind = kind};
    if (!pass->lane) return;
    struct share *share = atomic_load(&pass->lane->share);
    if (!share) { /* another thread destroys the stream that is launched on: the driver's word counts */
        pass->lane = NULL;
        return;
    }
    for (;;) {
        if (atomic_load_explicit(&share->until, memory_order_relaxed) != FOREVER) window_wait(pass->lane, share);
        if (enter(share, &now)) break;
        if (lane_capturing(pass->lane)) { /* goes into a graph: nothing runs now */
            pass->lane = NULL;
            return;
        }
        window_comes(pass->lane, now_ns());
        wait_for_lease(share, pass->lane);
        atomic_store_explicit(&pass->lane->latest, now_ns(), memory_order_relaxed); /* the program had no part in that */
    }
    pass->cancels = gate_uncancelled(); /* it is counted until it leaves */
    if (now) window_comes(pass->lane, now);
    pass->share = share;
    pass->now = now;
}

void pass_leave(struct pass *pass) {
    if (!pass->lane) return;
    window_launched(pass->lane, pass->kind, pass->now);
    atomic_fetch_sub(&pass->share->running, 1);
    if (gate_ending()) lease_settle(pass->share);
    gate_cancelled_as(pass->cancels);
}

/* --- the server's word, under the lock ---------------------------------------------------------------------------- */

static void begin_to_close(struct share *share, uint64_t now) {
    close_door(share);
    share->stage = CLOSING;
    share->patient = false;
    share->ended_before = share->ended;
    share->moved = now;
    share->steps = 0;
}

static void granted(struct share *share, struct message message, uint64_t now) {
    bool closes = share->stage == CLOSING && message.b == share->number && message.a != FOREVER;
    if (message.b <= share->given || (closes && message.c != ONCE)) return;
    if (message.b != share->number || share->stage == FREE || share->stage == ASKED) {
        share->work = share->idle = 0;
        share->looked = now;
    }
    if (!closes) share->stage = HELD; /* else one launch more */
    share->number = message.b;
    uint64_t most = (FOREVER - 1 - now) / 1000;
    uint64_t end = now + (message.a < most ? message.a : most) * 1000;
    atomic_store(&share->ahead, message.c == AHEAD);
    atomic_store(&share->until, message.a == FOREVER ? FOREVER : until_time(end, message.c == ONCE));
    share_changed(share);
}

bool lease_stands(const struct share *share, uint64_t since, uint64_t now) {
    if (share->stage == CLOSING) return atomic_load(&share->until) || now > share->moved + STILL;
    bool beside;
    uint64_t most = share->meets ? STILL : SECOND;
    return now > since + most && now > since + most + 2 * window_queued(share, &beside);
}

void lease_message(struct share *share, struct message message, uint64_t now) {
    share->whole = false;
    if (message.kind == GRANT) {
        granted(share, message, now);
    } else if (message.a == share->number && message.a > share->given && (share->stage == HELD || share->stage == CLOSING)) {
        if (share->stage == HELD) begin_to_close(share, now);
        share->patient = false;
        share->asked = now;
    }
}

/* While the program ends, the gate's thread cannot ask the driver: a server that begins anew then hears what was known last. */
bool lease_drains(struct share *share) {
    return atomic_load(&share->running) || (gate_ending() ? share->left : window_busy(share, true));
}

void lease_connected(struct share *share, bool again) {
    bool keeps = lease_drains(share) || now_ns() < atomic_load(&share->until);
    if (!again) share->whole = false;
    share->number = share->given = 0;
    if (keeps || share->waiters) ask(share, keeps);
}

void lease_lost(struct share *share) {
    uint64_t now = now_ns();
    if (share->stage == HELD && atomic_load(&share->until) == FOREVER) {
        share->whole = true;
        share->lost = now;
    } else if (now >= share->lost + ALONE) {
        share->whole = false;
    }
    if (share->stage == HELD || share->stage == CLOSING) share->left = true;
    close_door(share);
    share->stage = FREE;
    share->asked = 0;
}

bool lease_alone(struct share *share, uint64_t when) {
    if (!share->whole) return false;
    atomic_store(&share->until, until_time(when + ALONE, false));
    share_changed(share);
    return true;
}

bool lease_is_alone(const struct share *share) {
    return share->whole && share->socket < 0 && now_ns() < atomic_load(&share->until);
}

/* Everything let through has ended: says so, and what is still wanted. */
static void give_back(struct share *share) {
    uint64_t wanted = 0;
    if (share->waiters || atomic_load(&share->throttled)) { /* a waiter for room has not noticed that it may not pass */
        wanted = 1 + (share->burst > share->demand ? (share->burst - share->demand) / 1000 : 0);
        share->stage = ASKED;
    } else {
        share->burst = share->burst ? (3 * share->burst + share->demand) / 4 : share->demand;
        share->stage = FREE;
    }
    share->given = share->number;
    share->asked = 0;
    share->left = false;
    link_say(share, (struct message){.kind = DONE, .a = wanted, .b = share->work / 1000, .c = share->number});
}

/* It takes longer, and the server is to know that it was heard: only a program that says nothing is taken for one that keeps
 * the GPU. */
static void say_that_it_drains(struct share *share, uint64_t now) {
    if (!share->asked || now < share->asked + LATE) return;
    share->asked = 0;
    share->patient = true;
    link_say(share, (struct message){.kind = ASK, .a = share->burst / 1000, .b = KEEPS});
}

/* For how long nothing ended before it is taken to wait for a launch. */
static uint64_t patience(struct share *share) {
    bool beside;
    uint64_t twice = 2 * window_queued(share, &beside), most = 4 * SECOND;
    uint64_t least = share->meets ? MEETS : beside ? STILL + (twice < most ? twice : most) : SECOND + twice;
    unsigned doublings = share->steps > STEPS ? share->steps - STEPS : 0;
    return least << (doublings < MOST_DOUBLINGS ? doublings : MOST_DOUBLINGS);
}

/* While it closes: says so if what runs stands still and threads wait to launch. */
static void look_for_progress(struct share *share, uint64_t now) {
    if (share->ended != share->ended_before) {
        share->ended_before = share->ended;
        if (share->steps && now < share->moved + SOON) share->meets = true;
        share->moved = now;
        share->steps = 0;
    }
    if (!share->waiters || now < share->moved + patience(share)) return;
    share->moved = now;
    if (++share->steps == TOO_MANY) share->meets = false;
    share->asked = 0;
    share->patient = true;
    link_say(share, (struct message){.kind = ASK, .a = share->burst / 1000, .b = STUCK});
}

static uint64_t closing(struct share *share, uint64_t now) {
    bool open = atomic_load(&share->until); /* for one launch more; who has used it is counted in `running` before */
    if (open && now >= atomic_load(&share->until)) close_door(share);
    say_that_it_drains(share, now);
    if (atomic_load(&share->running)) return DRAIN;
    bool busy = window_busy(share, true);
    if (!share->idle) {
        share->work += now - share->looked;
        share->demand += now - share->looked;
    }
    share->looked = now;
    if (busy && !open) look_for_progress(share, now);
    if (busy) return share->patient ? DRAIN_LONG : DRAIN;
    if (open) {
        close_door(share);
        return DRAIN;
    }
    give_back(share);
    return FOREVER;
}

/* About as much was done as usually is before it rests. */
static bool at_usual_end(const struct share *share) {
    uint64_t tolerance = share->burst / 8;
    return share->burst && share->demand + tolerance >= share->burst && share->demand <= share->burst + tolerance;
}

/* The program ends, which may take long: closes the door, and gives back what has drained. What has not ended keeps the GPU. */
bool lease_ends(struct share *share) {
    if (share->stage == HELD && atomic_load(&share->until) != FOREVER) begin_to_close(share, now_ns());
    if (share->stage == CLOSING) closing(share, now_ns());
    bool holds = share->stage == HELD || share->whole;
    share->left = holds || share->stage == CLOSING || atomic_load(&share->running) || window_busy(share, true);
    return share->left && !holds;
}

/* The thread that has launched sees itself that this ends, and gives back. */
void lease_settle(struct share *share) {
    bool busy = true;
    for (uint64_t latest = now_ns() + SETTLE; busy && now_ns() < latest;) {
        gate_enter();
        busy = ends_still(share);
        gate_leave();
        if (busy) nanosleep(&(struct timespec){.tv_nsec = DRAIN}, NULL);
    }
}

uint64_t lease_tick(struct share *share, uint64_t now) {
    if (gate_ending()) { /* the end of the process gives it back, or the thread that launches still */
        if (share->stage == CLOSING) say_that_it_drains(share, now + LATE);
        return FOREVER;
    }
    if (share->stage == CLOSING) return closing(share, now);
    if (share->stage != HELD || atomic_load(&share->until) == FOREVER) return FOREVER;
    bool waited_for = share->waiters || atomic_load(&share->throttled); /* threads that may pass, and only have to wake up */
    bool wanted = atomic_load(&share->running) || (waited_for && now < atomic_load(&share->until));
    bool busy = window_busy(share, false) == BUSY || wanted;
    if (busy) {
        share->work += now - share->looked;
        share->demand += now - share->looked;
        share->idle = 0;
    } else if (!share->idle) {
        share->idle = now;
    }
    share->looked = now;
    bool at_end = at_usual_end(share);
    if (busy) return now < atomic_load(&share->until) && !at_end ? LOOK : LOOK_OFTEN;
    uint64_t idle = at_end ? IDLE_AT_END : IDLE;
    if (now - share->idle < idle) return share->idle + idle - now;
    begin_to_close(share, now);
    return closing(share, now);
}
