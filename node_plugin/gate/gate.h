/* What the parts of the gate share: one `struct share` for each GPU that this process uses.
 *
 *   entries.c  the way into the driver, shut or open
 *   gate.c     launches, and what ends streams and contexts             lease.c   may launch, must wait, gives back
 *   table.c    what is gated                                               window.c  how much work is queued; is it done?
 *   lanes.c, threads.c   the streams                                       marks.c, rests.c   events, and streams without work
 *   memory.c   what is allocated, and its limit                         link.c    the socket, and the thread that reads it
 *   held.c     the table of what is held                                driver.c  finds the driver's functions
 *   allocate.c, physical.c, pools.c, graphs.c, modules.c, contexts.c, external.c   the functions that take memory
 *   reserves.c what pools and graphs keep                               image.c   the variables of a module
 *   visible.c  which GPUs the driver is to see                          copies.c  copies and fills
 *
 * One lock guards everything but the atomics, which are what a launch inside a lease touches. It is held while an event is
 * recorded or asked for, so that no context goes away meanwhile; never while something waits. */
#ifndef GATE_H
#define GATE_H

#include "driver.h"
#include "protocol.h"

#include <pthread.h>
#include <stdatomic.h>

#define SECOND 1000000000ull

/* Of a socket's file, all 0: there is none. Each server makes its own. */
struct place { uint64_t device, number, made; };

enum stage { FREE, ASKED, HELD, CLOSING };

struct share {
    /* Of a launch: until when it may pass, in ns; 0: it may not. Launches between this look and the driver's return. */
    _Alignas(64) _Atomic uint64_t until;
    _Alignas(64) _Atomic unsigned running;
    _Atomic unsigned throttled; /* threads that wait until less is queued */
    _Atomic bool ahead;         /* much may be queued: no other share is there */
    /* copies.c: ns of small ones, since one of them was let through as a launch is; outside leases, and not told yet. */
    _Alignas(64) _Atomic uint64_t passed;
    _Atomic uint64_t owed;
    _Alignas(64) _Atomic unsigned word; /* a futex: changes with everything that threads wait for */

    CUdevice device;
    char uuid[41]; /* GPU-8-4-4-4-12 */

    /* lease.c */
    enum stage stage;
    unsigned waiters;
    bool whole;                    /* it was ours for ever when the connection ended, and no other server was found since */
    uint64_t lost;                 /* when that was */
    uint64_t asked;                /* when it was asked back, 0: it was not, or has said that it takes longer */
    bool patient;                  /* it has said so of this lease: it need not be looked at as often */
    uint64_t ended, ended_before;  /* events of this share that happened; at the last look while it closes */
    uint64_t moved;                /* when one did, or a launch more was asked for, or it began to close */
    unsigned steps;                /* launches that were asked for since one did */
    bool left;                     /* at the end of the program, when the driver could be asked last, it had work, or may have had */
    bool meets;                    /* such a launch was what it waited for, the last time */
    uint64_t number, given;        /* of the lease in hand; of the last one that was given back */
    uint64_t looked, idle;         /* when the work was looked at last; since when there is none, 0: there is some */
    uint64_t work, demand, burst;  /* ns of work: of this lease, since the demand began, of a usual demand */

    /* memory.c: bytes in use by this process, what the server knows, what it allows; of the share */
    uint64_t used, told, allowed, limit, all, others;
    bool heard;                      /* the server has said so much once */
    unsigned connection, unanswered; /* which one this is; its questions that wait for an answer */
    bool growing;                    /* a thread asks for more: nothing is given back meanwhile */
    uint64_t changed;                /* when `used` changed last */
    uint64_t pressed;                /* when more than it allows was told last */

    /* link.c */
    _Atomic bool started;
    int socket; /* -1: none */
    struct place place; /* of the server that is connected, or was last */
    uint64_t cookie; /* tells our socket from another file that has got its number */
};

/* --- table.c ------------------------------------------------------------------------------------------------------ */

/* What cuGetProcAddress means by a name, a version and flags: the index of a gated symbol, -1: none. */
int gated_form(const char *name, int version, uint64_t flags);
/* The gate's own function of that row. */
void *table_gate(unsigned index);

/* --- entries.c ---------------------------------------------------------------------------------------------------- */

/* The entry to give in the place of `found`, which a look-up of that name gave. */
void *entry_for(const char *name, int version, uint64_t flags, void *found);
/* From when it returns true on, no thread but this one enters the driver: those that call wait until entries_open. False: that
 * cannot be had here, and nothing is shut. With the gate's lock, which is kept until it is open: else a thread is held with it. */
bool entries_shut(void);
void entries_open(void);
void entries_fork(void);

/* --- link.c ------------------------------------------------------------------------------------------------------- */

extern pthread_mutex_t gate_lock;
void gate_enter(void);
void gate_leave(void);
/* No thread is cancelled (pthread_cancel) while it has the lock, or has counted itself somewhere: how it was before; as it was. */
int gate_uncancelled(void);
void gate_cancelled_as(int before);
/* Here the thread may end, if it was cancelled: nothing is held. */
void gate_cancellable(void);
/* Takes the lock where no share is known yet: a child that is forked meanwhile finds it free. */
void gate_enter_first(void);

/* The share whose GPU this is; NULL: there is no gate here. Starts its thread. */
struct share *share_of(CUdevice device);
struct share *share_of_current(void);
/* Under the lock: tries to say it. What cannot be said ends the connection. */
void link_say(struct share *share, struct message message);
/* Under the lock: waits until something changed or `ns` have passed; the lock is free meanwhile. */
void share_wait(struct share *share, uint64_t ns);
void share_changed(struct share *share);
uint64_t now_ns(void);
/* The environment is of another machine, or of an earlier start of this one (never of a shim's). */
bool gate_elsewhere(void);
/* The program ends: its driver may be gone any moment. */
bool gate_ending(void);

/* --- lease.c ------------------------------------------------------------------------------------------------------ */

struct lane;
struct pass { /* of one launch */
    struct lane *lane; /* NULL: nothing holds it */
    struct share *share;
    uint64_t now; /* 0: the GPU is whole */
    unsigned kind;
    int cancels;
};
/* Before and after a launch on `stream`; `kind` stands for the kernel and its size, 0: any. */
void pass_enter(struct pass *pass, CUstream stream, unsigned kind);
void pass_leave(struct pass *pass);

/* Under the lock. A GRANT or a REVOKE came. */
void lease_message(struct share *share, struct message message, uint64_t now);
/* There is a new connection, or one to the same server again; the connection ended. */
void lease_connected(struct share *share, bool again);
void lease_lost(struct share *share);
/* No server listened at `when` at the very socket by which it was given: whether it goes on without one. */
bool lease_alone(struct share *share, uint64_t when);
bool lease_is_alone(const struct share *share);
/* Under the lock. Whether something that was let through has not ended. */
bool lease_drains(struct share *share);
/* Under the lock. Nothing ended since: whether a thread that waits until less is queued goes on, as what is queued may wait for
 * what the program does then. Kernels of which it is not known that they take long look the same: of these one more is queued
 * each second. Where the lease is being given back it goes on to wait for the next one. */
bool lease_stands(const struct share *share, uint64_t since, uint64_t now);
/* Under the lock. The program ends: gives back what has drained; whether something has not. */
bool lease_ends(struct share *share);
/* Of a launch while the program ends: waits a while for what was launched, and gives back. */
void lease_settle(struct share *share);
/* Does what is due; how many ns later to call again at the latest. */
uint64_t lease_tick(struct share *share, uint64_t now);

/* --- window.c, lanes.c, marks.c, rests.c -------------------------------------------------------------------------------- */

/* A stream that was launched on. Lanes stay for ever, as drivers use their handles again. Each thread has one for its own
 * default stream in each context; when it has ended and its work too, another thread gets it. */
enum { MARKS = 32 };

struct lane {
    struct lane *next, *other; /* in its bucket, or of its thread; of all */
    CUstream stream;
    CUcontext key, context;        /* `key` is NULL where the stream says the context */
    struct share *_Atomic share;   /* NULL: the stream or its context is gone */
    struct share *owner;           /* whose work it is */
    long thread;                   /* whose default stream it is; 0: it is another stream, or the thread has ended */
    bool waits;                    /* for the legacy stream, which waits for it */
    uint64_t handed;               /* launches up to the last of threads that ended, which only an event here can stand for */
    unsigned ending;               /* threads that are ending its context: it is not touched, and its work counts */
    bool gone;                     /* one of them has ended it */
    uint64_t last;                 /* launches when the first of them began */
    _Atomic uint64_t launched;     /* launches let through */
    _Atomic uint64_t covered;      /* of these, before an event that is recorded */
    _Atomic uint64_t over;         /* of these, seen to have ended */
    unsigned waiters;              /* threads that wait for a lease to launch here */
    _Atomic uint64_t latest;       /* when the program launched last, or waited for leave to */
    uint64_t seen;                 /* of these, when it was looked at last */
    _Atomic uint64_t begun;        /* when the first one that is not covered came */
    _Atomic unsigned step, marked; /* launches an event; events that were not seen to have happened */
    _Atomic unsigned open;         /* launches of the last one, which is recorded again behind the next; 0: it is not */
    _Atomic bool is_long;          /* what ended last was one launch that took very long */
    _Atomic uint64_t queued;       /* ns of GPU work that is marked, as far as known */
    _Atomic uint64_t next_at;      /* before that, no second launch; 0: at once */
    uint64_t recent;               /* when an event was put last, for the thread itself */
    uint64_t lead, learnt;         /* ns of a launch that are left then; when that was learnt */
    _Atomic bool held;             /* a launch waited for next_at since the stream rested last */
    uint64_t ended;                /* when the last event was seen to have happened */
    uint64_t lease;                /* of the last launch */
    unsigned first;
    struct mark {
        CUevent event;
        uint64_t begun, count, expected, upto; /* `upto`: of `launched` */
        unsigned kind; /* if it was one launch alone */
        bool full;     /* recorded because of the number of launches */
    } marks[MARKS]; /* the one before the first is that which happened last */
};

struct lane *lane_of(CUstream stream);
/* Whether the share of one stream comes before that of the other, in an order that is the same in every process. */
bool lane_before(CUstream one, CUstream other);
bool lane_capturing(struct lane *lane);
/* A launch comes at `now`: what may be queued begins small if the program has rested. */
void window_comes(struct lane *lane, uint64_t now);
/* Waits while more is queued than may be; after a launch: puts an event behind it if it is time. */
void window_wait(struct lane *lane, struct share *share);
void window_launched(struct lane *lane, unsigned kind, uint64_t now);
/* Under the lock. Whether work of this share is on the GPU, or was let through since the last call: events are put behind
 * what has none as soon as nothing more comes, or now if nothing can come. SILENT: all else has ended, and of the last launches of
 * threads that launch no more nothing is known before the door is shut. */
enum work { NONE, SILENT, BUSY };
enum work window_busy(struct share *share, bool closed);
/* Under the lock. What is on the GPU, in ns as far as known; whether a thread waits to launch on a stream that has no work. */
uint64_t window_queued(const struct share *share, bool *beside);
/* Under the lock, while the program ends: whether the driver may be asked. It is there for threads that launch. */
void window_allow(bool may);
/* Before it goes. */
void window_stream_ends(CUstream stream);
/* Puts an event behind what was launched before, and none until it has begun. */
void window_begins_capture(CUstream stream);
void window_began_capture(void);
/* Under the lock, before it may go, and when that is over; several threads can be between. */
void window_context_ends(CUcontext context);
void window_context_ended(CUcontext context, bool gone);
void window_fork(void);

/* --- memory.c ----------------------------------------------------------------------------------------------------- */

void memory_message(struct share *share, struct message message);
void memory_connected(struct share *share);
void memory_lost(struct share *share);
/* Under the lock: a moment; what was allocated before it is gone. */
uint64_t memory_now(void);
void memory_context_ends(CUcontext context, uint64_t before);
/* What was allocated from pools of a device before that moment is gone. */
void memory_reset(CUdevice device, uint64_t before);
uint64_t memory_tick(struct share *share, uint64_t now);
void memory_fork(void);

#endif
