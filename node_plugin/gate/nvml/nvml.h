/* NVML behind entries: what this library's files share, and the two names by which it and the gate find each other. */
#ifndef GATE_NVML_H
#define GATE_NVML_H

#include <stdbool.h>

enum nvml_code {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_TIMEOUT = 10,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_UNKNOWN = 999
};

/* Exported by the gate: what NVML's functions return instead of calling NVML; NVML_SUCCESS: they call it. */
#define NVML_ANSWER jupyter_gpu_nvml_answer
/* Exported by this library: a function that follows a change of NVML_ANSWER, once there has been a call of NVML. It returns
 * whether no thread is starting NVML or shutting it down. Call it from one thread. */
#define NVML_FOLLOW jupyter_gpu_nvml_follow
typedef bool (*nvml_follow)(void);

#define NVML_TEXT(name) NVML_TEXT_OF(name)
#define NVML_TEXT_OF(name) #name

#define F(base, suffix) NVML_##base##suffix,
enum { /* numbers of the entries */
#include "nvml/functions.def"
    NVML_FUNCTIONS
};
#undef F

/* Return NVML's own function. */
void *nvml_real(unsigned number);
/* Return what the functions return now instead of calling NVML; NVML_SUCCESS: they call it. Under the lock. */
int nvml_answer(void);
void nvml_lock(void);
void nvml_unlock(void);

/* starts.c */

/* Functions that start NVML or shut it down always come here. */
int nvml_start(void);
int nvml_start_v2(void);
int nvml_start_with_flags(unsigned flags);
int nvml_shut_down(void);
/* Whether the program has started NVML. Under the lock. */
bool nvml_started(void);
/* Wait until no thread starts NVML or shuts it down; false: one still does. */
bool nvml_starts_end(void);
/* Do what was only noted while calls were shut. */
void nvml_make_up(void);
void nvml_starts_fork(void);

#endif
