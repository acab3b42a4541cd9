/* The lease of a share, as the connection and the memory accounting use it. */
#ifndef GATE_LAUNCHES_H
#define GATE_LAUNCHES_H

#include "connection/share.h"

/* Under the lock: handle a GRANT or a REVOKE. `gone`: the server that sent it has ended. */
void lease_on_message(struct share *share, struct message message, uint64_t now, bool gone);
/* Under the lock: handle a new connection (`again`: to the same server as before), and its end. */
void lease_on_connect(struct share *share, bool again);
void lease_on_disconnect(struct share *share);
/* Under the lock: handle that at `when` nothing listened at the socket of the server that gave the lease. Return whether the
 * program continues without a server. */
bool lease_continue_alone(struct share *share, uint64_t when);
bool lease_is_alone(const struct share *share);
/* Under the lock: return whether launched work has not ended. */
bool lease_is_draining(struct share *share);
/* Under the lock: return whether a thread that waits until less is queued should continue, because nothing has completed
 * since then: the queued work may depend on the program's next step. Unexpectedly long kernels look the same, so one more of
 * them is queued each second. While the lease is closing, the thread continues, and waits for the next lease instead. */
bool lease_is_stalled(const struct share *share, uint64_t since, uint64_t now);
/* Under the lock, at exit: give the lease back if its work has drained; return whether work is left. */
bool lease_end(struct share *share);
/* In a launch at exit: wait a while for the launch to end, then give the lease back. */
void lease_settle(struct share *share);
/* Under the lock: do what is due; return the ns after which to call again at the latest. */
uint64_t lease_tick(struct share *share, uint64_t now);

/* Under the lock: all work of the process has ended, and none can follow: give the lease back. */
void lease_parked(struct share *share);
/* Under the lock: count all launches as completed. */
void window_parked(void);
void window_fork(void);

#endif
