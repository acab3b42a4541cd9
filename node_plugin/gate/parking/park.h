/* Parking this process: its GPU memory moves to host memory and its GPU is closed, by the driver's own checkpoint; and back. */
#ifndef GATE_PARK_H
#define GATE_PARK_H

#include <stdbool.h>
#include <stdint.h>

enum park_state {
    PARK_RUNNING,
    PARK_PARKED,
    PARK_BROKEN, /* runs, but a checkpoint has failed, so the driver would refuse each further one */
    PARK_LOST,   /* a restore has failed for good: calls return CUDA_ERROR_UNKNOWN */
    PARK_FORKED  /* a child of a process whose calls were blocked: calls return CUDA_ERROR_NOT_INITIALIZED */
};

/* In the order in which they are done. */
enum park_step {
    PARK_NONE,
    PARK_THREAD,     /* the thread is started */
    PARK_BLOCK,      /* calls are blocked */
    PARK_LOCK,       /* the driver waits until all submitted work has ended, and locks */
    PARK_DRAIN,      /* threads leave the calls that would end the process */
    PARK_CHECKPOINT, /* memory moves to the host, and the GPU is closed */
    PARK_RESTORE,
    PARK_UNLOCK,
    PARK_STEPS
};

struct park_answer {
    int32_t state, step, code; /* `step`: the last one, or the one under way; `code`: what it returned */
    int32_t unused;
    uint64_t us[PARK_STEPS]; /* that each step took when it was last done */
};

/* Park, or return, in a thread of the gate; wait for the answer, at most `wait_ms`. 0: it is done or was refused. 1: it, or an
 * earlier request, is still under way, and goes on. The lock waits at most `lock_ms` for submitted work. While the GPU cannot be
 * opened, its return is tried again for `retry_ms`. */
__attribute__((visibility("default"))) int jupyter_gpu_park(unsigned lock_ms, unsigned wait_ms, struct park_answer *answer);
__attribute__((visibility("default"))) int jupyter_gpu_return(unsigned retry_ms, unsigned wait_ms, struct park_answer *answer);

/* Return whether a request is under way, and how things are. */
bool park_look(struct park_answer *answer);
/* While parked: return for how many ns it has been. */
uint64_t park_age(void);
/* Undo the park that is under way as soon as its step has ended, if that is not the checkpoint. The code is then CUDA_SUCCESS. */
void park_cancel(void);
void park_fork(void);

#endif
