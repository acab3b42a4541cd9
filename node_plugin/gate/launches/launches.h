/* Leases, for the connection and for memory. */
#ifndef GATE_LAUNCHES_H
#define GATE_LAUNCHES_H

#include "connection/share.h"

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

void window_fork(void);

#endif
