/* The one way into the driver: an entry for each function that it exports (functions.def), spare ones for others that a
 * look-up finds, and stubs for the gate's own calls. Each is one jump through its slot. Read by C and by the assembler. */
#ifndef GATE_ENTRIES_H
#define GATE_ENTRIES_H

#define ENTRY_SIZE 16 /* bytes of code */
#define SPARES 512
#define STUBS 256
#define FUNCTIONS_UNTIL 13050 /* CUDA version: older than this no form is missing in functions.def */

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stdint.h>

#define F(base, suffix, since) ENTRY_##base##suffix,
enum {
#include "driver/functions.def"
    NAMED,
    FIRST_SPARE = NAMED,
    FIRST_STUB = FIRST_SPARE + SPARES,
    ENTRIES = FIRST_STUB + STUBS
};
#undef F

extern const char gate_entries[]; /* code */

/* The entry to give in the place of `found`, which a look-up of that name gave. */
void *entry_for(const char *name, int version, uint64_t flags, void *found);
/* From when it returns true on, no thread but this one enters the driver: those that call wait until entries_open. False: that
 * cannot be had here, and nothing is shut. With the gate's lock, which is kept until it is open: else a thread is held with it. */
bool entries_shut(void);
void entries_open(void);
void entries_fork(void);
#endif
#endif
