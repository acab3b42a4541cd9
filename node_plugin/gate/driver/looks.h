/* Record of failed searches for GPUs (`cuInit`), by the library that called. */
#ifndef GATE_LOOKS_H
#define GATE_LOOKS_H

enum { LOOK_LIBRARIES = 16, LOOK_PATH = 512 };

#define LOOK_TELL "JUPYTER_GPU_TELL_LOOKS" /* variable: 0: nothing is said at the end of a program */

/* Record that the code at `address` searched and that there is no GPU. */
void looks_record(const void *address);
/* Record that a later search has found a GPU. */
void looks_found(void);

/* Write one line for each library that has searched in vain, in the order of the first searches: the number of searches, a
 * space, and the path of the library, or nothing if that is unknown. Return the number of all such searches. `to` gets as many
 * whole lines as fit into `size` bytes, and a 0 behind them; with size 0 it may be NULL. */
__attribute__((visibility("default"))) unsigned jupyter_gpu_looks(char *to, unsigned size);

#endif
