/* Faults of the checkpoint, for tests. */
#ifndef STANDIN_CHECKPOINT_H
#define STANDIN_CHECKPOINT_H

#include "standin.h"

/* Return whether that fault is asked for. */
int fault_is(const char *name);

/* Return whether a fault `name:n` is asked for and has happened fewer than n times; it happens now. */
int fault_count(const char *name);

/* Kill the process in that step, or stay in it for as long as that is asked for. */
void fault_kill(const char *step);
void fault_hang(const char *step);

#endif
