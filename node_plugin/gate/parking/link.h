/* The connection of this process to the part of its node that parks. */
#ifndef GATE_LINK_H
#define GATE_LINK_H

#include <stdbool.h>

/* After the driver has started, in a thread of the program: if there is a park.sock, be connected to it from now on, in a thread
 * of the gate. */
void link_start(void);
/* Say at once whether a call of the program waits for the return. */
void link_need(bool needs);
void link_fork(void);

#endif
