/* Calls that only give something back, made while the GPU is parked. */
#ifndef GATE_LATER_H
#define GATE_LATER_H

#include <stdbool.h>
#include <stdint.h>

/* From now on calls are kept. */
void later_start(void);
/* Keep a call of the driver's function with that entry, for later_run; false: calls are not kept now, or there are too many. */
bool later_keep(unsigned number, const uint64_t arguments[2]);
/* Keep no more calls, and make those that were kept, in their order and in the contexts of their threads. Calls must not be
 * blocked, and the caller must not hold the gate's lock. */
void later_run(void);
void later_fork(void);

#endif
