/* Counting memory: for the functions that allocate and free. */
#ifndef GATE_MEMORY_H
#define GATE_MEMORY_H

#include "gate.h"

enum key { POINTER, ARRAY, HANDLE, MAPPING };

struct physical { /* of cuMemCreate; lives while something holds it */
    struct share *share; /* NULL: an import, which holds others */
    uint64_t bytes;
    unsigned holds; /* handles, mappings and imports */
    bool exported;
    struct physical **others;
    unsigned count;
};

struct entry {
    struct entry *next;
    enum key key;
    uint64_t id, bytes; /* of a mapping: its length */
    uint64_t made;      /* when, in the order of all */
    struct share *share;
    CUcontext context; /* whose end frees it, if any does */
    struct physical *physical;
    unsigned handles; /* how often this handle was given out */
};

/* Memory about to be allocated, which counts already. */
struct claim {
    struct share *share; /* NULL: nothing is counted */
    uint64_t bytes;
    bool refused;
};

/* Of the current device; of a given one. */
struct claim claim(uint64_t bytes);
struct claim claim_of(CUdevice device, uint64_t bytes);
/* After the driver's answer: keeps what was allocated under its id, of `bytes` as they turned out. Gives `result`. */
CUresult claim_settle(struct claim *claim, CUresult result, enum key key, uint64_t id, uint64_t bytes, bool of_context);

/* Takes what is to be freed out of the table before the driver frees it, as the driver may give the same address to
 * another thread at once; NULL: not counted here. Then the driver's answer: puts it back if it was not freed. */
struct entry *memory_lift(enum key key, uint64_t id);
CUresult memory_freed(struct entry *entry, CUresult result);

/* Under the lock: the table, and less is in use. `memory_each` frees the entries that `drop` says. */
struct entry **memory_find(enum key key, uint64_t id);
struct entry *memory_take(struct entry **at);
void memory_keep(struct entry values);
void memory_each(bool (*drop)(struct entry *, void *), void *data);
void memory_unuse(struct share *share, uint64_t bytes);

/* What the current or a given device has, as the program is to see it. */
void memory_shown(struct share *share, uint64_t *free, uint64_t *total);

#endif
