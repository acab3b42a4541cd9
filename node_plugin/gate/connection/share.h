/* What the parts of the gate share: one `struct share` for each GPU that this process uses, and the lock.
 *
 * One lock guards everything but the atomics, which are what a launch inside a lease touches. It is held while an event is
 * recorded or asked for, so that no context goes away meanwhile; never while something waits. */
#ifndef GATE_SHARE_H
#define GATE_SHARE_H

#include "connection/protocol.h"
#include "driver/driver.h"

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

#endif
