/* The only way into the driver: an entry for each function that it exports (functions.def), spare ones for others that
 * lookups return, and stubs for the gate's own calls. Each is one jump through its slot. Included from C and assembly; NVML's
 * entries are made by the same assembly, of another list (build.py). */
#ifndef GATE_ENTRIES_H
#define GATE_ENTRIES_H

#define ENTRY_SIZE 16 /* bytes of code */
#ifndef FUNCTIONS
#define FUNCTIONS "driver/functions.def"
#define SPARES 512
#define STUBS 256
#endif
#define FUNCTIONS_UNTIL 13050 /* CUDA version: functions.def has every form that is older */
#define CLASSES_OF 13000 /* CUDA version of the driver (580) on which class PASS was measured; with others such calls wait */

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda.h"

#define F(base, suffix, since, class) ENTRY_##base##suffix,
enum {
#include "driver/functions.def"
    NAMED,
    FIRST_SPARE = NAMED,
    FIRST_STUB = FIRST_SPARE + SPARES,
    ENTRIES = FIRST_STUB + STUBS
};
#undef F

/* The classes of functions (functions.def). Only a call of class WORK is use of the GPU: what asks or waits does not keep it. */
enum {
    CLASS_PASS,   /* answers rightly while the GPU is parked, as measured on a driver: may pass */
    CLASS_ANSWER, /* asks whether submitted work has ended, or waits until it has: it has, before a GPU is parked */
    CLASS_LATER,  /* gives something back, which can be done after the GPU's return (later.h) */
    CLASS_ASK,    /* asks for something else, and waits for the GPU's return */
    CLASS_WORK    /* all others, and functions that are not in the list; they wait as well */
};

extern const char gate_entries[]; /* code */
static inline void *entry_at(unsigned number) { return (void *)(gate_entries + (size_t)ENTRY_SIZE * number); }

/* Return the entry to hand out instead of `found`, the result of a lookup of that name. */
void *entry_for(const char *name, int version, uint64_t flags, void *found);
/* Block the driver: after this returns true, no other thread enters it, and calls wait until entries_unblock. False: blocking
 * is not possible here, and nothing is blocked. Take the gate's lock first; otherwise a blocked thread may hold it. Hold it
 * until entries_unblock, or keep threads of the program from taking it (gate_set_parking). */
bool entries_block(void);
void entries_unblock(void);
/* While calls are blocked: from now on those are done all the same that need no GPU. Call it from the thread that blocked them. */
enum allowed {
    ALLOW_NOTHING,
    ALLOW_ANSWERS, /* all submitted work has ended: calls of class ANSWER succeed */
    ALLOW_PARKED   /* and the GPU is parked: those of class PASS pass, those of class LATER are kept for later_run */
};
void entries_allow(enum allowed);
/* While calls are blocked: all of them return that error from now on, for ever. */
void entries_fail(CUresult);
/* Arm the entries: the next call that is use of the GPU will be noticed, which costs that call some µs and all others nothing.
 * Return whether there was one since they were last armed, or cannot be told. One thread at a time. */
bool entries_arm(void);
void entries_fork(void);
#endif
#endif
