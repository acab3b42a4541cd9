/* Counting memory: for the functions that allocate and free. */
#ifndef GATE_COUNTING_H
#define GATE_COUNTING_H

#include "memory/memory.h"

enum key { POINTER, ARRAY, HANDLE, MAPPING, CONTEXT, LIMIT, MODULE, LIBRARY, EXTERNAL, NODE, GRAPH, EXEC };

struct physical { /* of cuMemCreate, or external; lives while something holds it */
    struct share *share; /* NULL: an import, which holds others */
    uint64_t bytes;
    unsigned holds; /* handles, mappings, buffers and imports */
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
    unsigned handles; /* how often this handle was given out; of an executable graph: it was launched or uploaded */
    CUdevice device;  /* of a context, a graph */
    uint64_t graph;   /* of a node of one */
    int64_t now;      /* of a graph: what its nodes allocate and do not free, so far */
    unsigned trims;   /* of an executable graph: see graphs.c */
};

/* Of the current device; of a given one; of a share (NULL: nothing is counted). */
struct claim claim(uint64_t bytes);
struct claim claim_of(CUdevice device, uint64_t bytes);
struct claim claim_from(struct share *share, uint64_t bytes);
/* After the driver's answer: keeps what was allocated under its id, of `bytes` as they turned out. Gives `result`. */
CUresult claim_settle(struct claim *claim, CUresult result, enum key key, uint64_t id, uint64_t bytes, bool of_context);

/* Takes what is to be freed out of the table before the driver frees it, as the driver may give the same address to
 * another thread at once; NULL: not counted here. Then the driver's answer: puts it back if it was not freed. */
struct entry *memory_lift(enum key key, uint64_t id);
CUresult memory_freed(struct entry *entry, CUresult result);

/* Under the lock: the table; less is in use; more is, whatever the limit. `memory_each` frees the entries that `drop` says. */
struct entry **memory_find(enum key key, uint64_t id);
struct entry *memory_take(struct entry **at);
void memory_keep(struct entry values);
void memory_each(bool (*drop)(struct entry *, void *), void *data);
void memory_unuse(struct share *share, uint64_t bytes);
void memory_more(struct share *share, uint64_t bytes);
/* Under the lock: one hold less. */
void physical_let_go(struct physical *physical);

/* What the current or a given device has, as the program is to see it. */
void memory_shown(struct share *share, uint64_t *free, uint64_t *total);

/* --- contexts.c: under the lock, an entry of a context goes ------------------------------------------------------- */

void context_uncounts(struct entry *entry);
void contexts_fork(void);

/* --- reserves.c: what pools and graphs keep ----------------------------------------------------------------------- */

/* A claim of `bytes` from a pool (NULL: the current one of the current device), of which what the pool keeps counts already. */
struct claim reserve_claim(CUmemoryPool pool, uint64_t bytes);
/* Has all of it given back that is not in use; whether there was some. */
bool reserves_trim(struct share *share);
/* From now on the memory of this device's graphs is counted. */
void reserve_graphs(struct share *share);
/* Whether the graphs of its device keep at least as much, and the share is not above its limit. */
bool reserve_covers(struct share *share, uint64_t bytes);
/* How often memory of graphs was given back. */
unsigned reserve_trims(void);
void reserves_fork(void);

/* --- graphs.c: memory nodes --------------------------------------------------------------------------------------- */

/* Of a stream that records a graph, the graph; NULL: it records none. */
CUgraph graph_of_stream(CUstream stream);
void graph_allocates(CUgraph graph, CUdevice device, CUdeviceptr at, uint64_t bytes);
void graph_frees(CUgraph graph, CUdeviceptr at);

#endif
