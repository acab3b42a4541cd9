/* What CUDA_VISIBLE_DEVICES is to be, by what a Jupyter server says is attached: the rules, without the process.
 * Twin of jupyter_gpu/common/rules/visible.py, which says why; one test gives both the same cases. */
#ifndef GATE_VISIBLE_H
#define GATE_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>

enum { VISIBLE_FILE = 16384, VISIBLE_ROOM = 8192 };

#define VISIBLE "CUDA_VISIBLE_DEVICES"
#define VISIBLE_OURS "JUPYTER_GPU_CUDA_VISIBLE_DEVICES"
#define VISIBLE_WANTED "JUPYTER_GPU_CUDA_WANTED"
#define VISIBLE_ORDER "CUDA_DEVICE_ORDER"
#define VISIBLE_BY "JUPYTER_GPU_VISIBLE_BY"
#define VISIBLE_ATTACHED "JUPYTER_GPU_ATTACHED"

struct visible { /* values of these variables, NULL: there is none */
    const char *given, *ours, *wanted, *order, *by;
};

/* Whether it is to be `to`, by `text`, the server's file; `own` is what its user chose then, NULL: nothing. */
bool visible_value(const char *text, const struct visible *now, char to[VISIBLE_ROOM], const char **own);
/* Has the variables of this process follow the server. */
void visible_follow(void);

#endif
