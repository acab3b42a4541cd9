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
#include "functions.def"
    NAMED,
    FIRST_SPARE = NAMED,
    FIRST_STUB = FIRST_SPARE + SPARES,
    ENTRIES = FIRST_STUB + STUBS
};
#undef F

extern const char gate_entries[]; /* code */
#endif
#endif
