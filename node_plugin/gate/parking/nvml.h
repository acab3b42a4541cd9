/* NVML while this process is parked: it would keep each thread that calls it, so a library in front of it answers. */
#ifndef GATE_PARKING_NVML_H
#define GATE_PARKING_NVML_H

#include <stdbool.h>

/* From now on calls of NVML return "timeout" at once. False: a thread is still starting NVML. */
bool nvml_shut(void);
void nvml_open(void);
/* The program's data on the GPU are lost: calls return "unknown error" for ever. */
void nvml_lose(void);
/* In a child of a process whose calls are shut: they return "uninitialized" for ever. */
void nvml_fork(void);

#endif
