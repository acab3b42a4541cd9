/* State common to all parts of the gate: one `struct share` for each GPU that this process uses, and the lock.
 *
 * The lock guards everything except the atomics; a launch inside a lease touches only those. It is held while an event is
 * recorded or queried, so that the context cannot be destroyed meanwhile, and never during a wait. */
#ifndef GATE_SHARE_H
#define GATE_SHARE_H

#include "connection/protocol.h"
#include "driver/driver.h"

#include <pthread.h>
#include <stdatomic.h>

#define SECOND 1000000000ull

/* Identity of a socket's file, all 0 if there is none. Each server creates its own file. */
struct socket_file { uint64_t device, number, made; };

enum stage { FREE, ASKED, HELD, CLOSING };

struct share {
    /* `until`: when the lease ends, in ns; 0: no launch may pass. `running`: launches between that check and the driver's
     * return. */
    _Alignas(64) _Atomic uint64_t until;
    _Alignas(64) _Atomic unsigned running;
    _Atomic unsigned throttled;    /* threads that wait until less is queued */
    _Atomic bool ahead;            /* much may be queued: no other share is active */
    _Atomic bool single;           /* nothing may be queued behind what runs: others wait for it */
    /* copies.c: ns of small copies since the last copy that waited for a lease; ns outside leases, not reported yet. */
    _Alignas(64) _Atomic uint64_t passed;
    _Atomic uint64_t owed;
    _Alignas(64) _Atomic unsigned word; /* a futex: its value changes when anything that threads wait for changes */

    CUdevice device;
    char uuid[41];                 /* GPU-8-4-4-4-12 */

    /* lease.c */
    enum stage stage;
    unsigned waiters;
    bool whole;                    /* the whole GPU was leased when the connection ended; no other server was found since */
    uint64_t lost_at;              /* when that connection ended */
    uint64_t revoked_at;           /* when the lease was revoked; 0: it was not, or the server knows that it takes longer */
    bool acknowledged;             /* the server knows that this lease takes longer: poll less often */
    uint64_t ended, ended_before;  /* events of this share that completed; the same at the last check while closing */
    uint64_t progress_at;          /* when an event completed, one more launch was requested, or closing began */
    unsigned extra_launches;       /* launches requested since the last event completed */
    bool may_be_busy;              /* at exit: there was or may have been work when the driver could last be queried */
    bool needs_own_launches;       /* the last time that work made no progress, it depended on such a launch */
    uint64_t number, returned;     /* of the current lease; of the last one given back */
    uint64_t checked_at;           /* when the work was last checked */
    uint64_t idle_since;           /* 0: there is work */
    uint64_t work, demand, burst;  /* ns of work: in this lease, since the demand began, in a usual demand */

    /* memory.c: bytes used by this process, reported, allowed; of the share: limit, used by all, used by others */
    uint64_t used, reported, allowed, limit, all, others;
    bool limits_known;             /* the server has sent the limit at least once */
    unsigned connection, unanswered; /* number of the connection; requests on it without an answer */
    bool growing;                  /* a thread is asking for more: give nothing back meanwhile */
    uint64_t used_changed_at;      /* when `used` last changed */
    uint64_t excess_at;            /* when use above the allowance was last reported */

    /* connection.c */
    _Atomic bool started;
    int socket;                    /* -1: none */
    struct socket_file socket_file; /* of the current or last server */
    uint64_t cookie;               /* distinguishes the gate's socket from another file with the same number */
};

/* --- connection.c ------------------------------------------------------------------------------------------------- */

extern pthread_mutex_t gate_mutex;
void gate_lock(void);
void gate_unlock(void);
/* While the driver's entries are shut, threads of the program wait in gate_lock until they are open again. So a thread that is
 * blocked at an entry never holds the lock, and the gate's own threads take it by this, and call no driver. */
void gate_lock_own(void);
enum parking {
    CALLS_OPEN,
    CALLS_SHUT, /* calls are blocked */
    CALLS_QUIET /* and all submitted work has ended */
};
enum parking gate_parking(void);
/* Under the lock, after the entries were shut or opened. */
void gate_set_parking(enum parking);
/* Under the lock, once all submitted work has ended: count it as completed, and give all leases back. */
void shares_parked(void);
/* Under the lock: start a thread of the gate. Return whether that was possible. */
bool gate_start_thread(void *(*run)(void *), void *data);
/* In a handler of exit: if the process is parked, let all calls fail, as after the end of the driver, so that nothing waits. */
void gate_end_parked(void);
/* Disable cancellation of this thread (pthread_cancel) while it holds the lock or is counted somewhere; restore the former
 * state. */
int gate_disable_cancel(void);
void gate_restore_cancel(int before);
/* A cancellation point: the caller must hold no lock and be counted nowhere. */
void gate_cancel_point(void);
/* Take the lock before any share exists, so that a child forked meanwhile finds it free. */
void gate_lock_first(void);

/* Return the directory of the sockets; NULL: the process is not gated. */
const char *gate_directory(void);
/* Return the bytes that this process uses on all GPUs, as far as they are counted. */
uint64_t shares_used(void);
/* Return the GPU's share and start its thread; NULL: the process is not gated. */
struct share *share_of(CUdevice device);
struct share *share_of_current(void);
/* Under the lock: send a message. If that fails, the connection ends. */
void connection_send(struct share *share, struct message message);
/* Under the lock: wait until the share changes, at most for `ns`. Releases the lock meanwhile. */
void share_wait(struct share *share, uint64_t ns);
void share_changed(struct share *share);
uint64_t now_ns(void);
/* Return whether the environment comes from another machine or an earlier boot (never for a shim). */
bool gate_environment_is_foreign(void);
/* Return whether the program is exiting: its driver may shut down at any moment. */
bool gate_ending(void);

#endif
