/* The rules for CUDA_VISIBLE_DEVICES, computed from the GPUs that the Jupyter server reports as attached. Twin of
 * jupyter_gpu/common/rules/visible.py, which gives the reasons; one test runs the same cases through both. */
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

struct visible { /* values of these variables; NULL: not set */
    const char *given, *ours, *wanted, *order, *by;
};

/* Compute the value for the text of the server's file. Return whether the variable is to be set to `to`; `own` becomes the
 * user's own choice, NULL if there is none. */
bool visible_value(const char *text, const struct visible *now, char to[VISIBLE_ROOM], const char **own);
/* Update the variables of this process from the server's file. */
void visible_follow(void);
/* Return whether the server's file reports real GPUs, none of them attached, and the user has chosen no list of their own. */
bool visible_nothing(void);

#endif
