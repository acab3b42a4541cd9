/* Memory accounting, for the functions that allocate and free. */
#ifndef GATE_COUNTING_H
#define GATE_COUNTING_H

#include "memory/memory.h"

enum key { POINTER, ARRAY, HANDLE, MAPPING, CONTEXT, LIMIT, MODULE, LIBRARY, EXTERNAL, NODE, GRAPH, EXEC };

struct physical { /* from cuMemCreate, or external; freed with its last reference */
    struct share *share; /* NULL: an import, which has references to others */
    uint64_t bytes;
    unsigned references; /* by handles, mappings, buffers and imports */
    bool exported;
    struct physical **others;
    unsigned count;
};

struct entry {
    struct entry *next;
    enum key key;
    uint64_t id, bytes; /* of a mapping: its length */
    uint64_t made;      /* number of this entry, counted from 1 */
    struct share *share;
    CUcontext context; /* freed with this context, if any */
    struct physical *physical;
    unsigned handles; /* how often this handle was returned; of an executable graph: whether it was launched or uploaded */
    CUdevice device;  /* of a context, a graph */
    uint64_t graph;   /* of a memory node */
    int64_t now;      /* of a graph: bytes that its nodes have allocated and not freed so far */
    unsigned trims;   /* of an executable graph: see graphs.c */
};

/* Claim memory of the current device, of a given device, or of a share (NULL: nothing is counted). */
struct claim claim(uint64_t bytes);
struct claim claim_of(CUdevice device, uint64_t bytes);
struct claim claim_from(struct share *share, uint64_t bytes);
/* After the driver's call: record the allocation under its id with its actual size, or drop the claim. Return `result`. */
CUresult claim_settle(struct claim *claim, CUresult result, enum key key, uint64_t id, uint64_t bytes, bool of_context);

/* Remove an entry from the table before the driver frees it, as the driver may give the same address to another thread at
 * once; NULL: it is not counted. After the driver's call: put it back if it was not freed. */
struct entry *memory_remove(enum key key, uint64_t id);
CUresult memory_after_free(struct entry *entry, CUresult result);

/* Under the lock: the table; subtract from the used bytes; add to them, even above the limit. `memory_each` frees the entries
 * for which `drop` returns true. */
struct entry **memory_find(enum key key, uint64_t id);
struct entry *memory_take(struct entry **at);
void memory_keep(struct entry values);
void memory_each(bool (*drop)(struct entry *, void *), void *data);
void memory_subtract(struct share *share, uint64_t bytes);
void memory_add(struct share *share, uint64_t bytes);
/* Under the lock: drop one reference. */
void physical_release(struct physical *physical);

/* Reduce a device's free and total memory to the share's part of it. */
void memory_visible(struct share *share, uint64_t *free, uint64_t *total);

/* --- contexts.c: under the lock, when an entry of a context is removed -------------------------------------------- */

void context_uncount(struct entry *entry);
void contexts_fork(void);

/* --- reserves.c: memory that pools and graphs keep ---------------------------------------------------------------- */

/* Claim `bytes` from a pool (NULL: the current pool of the current device). What the pool keeps is counted already. */
struct claim reserve_claim(CUmemoryPool pool, uint64_t bytes);
/* Have the driver release all kept memory that is not in use; return whether there was some. */
bool reserves_trim(struct share *share);
/* Count the memory of this device's graphs from now on. */
void reserve_graphs(struct share *share);
/* Return whether the device's graphs keep at least `bytes`, and the share is not above its limit. */
bool reserve_covers(struct share *share, uint64_t bytes);
/* Return how often graph memory was trimmed. */
unsigned reserve_trims(void);
void reserves_fork(void);

/* --- graphs.c: memory nodes --------------------------------------------------------------------------------------- */

/* Return the graph that a stream is recording; NULL: it is not capturing. */
CUgraph graph_of_stream(CUstream stream);
void graph_allocates(CUgraph graph, CUdevice device, CUdeviceptr at, uint64_t bytes);
void graph_frees(CUgraph graph, CUdeviceptr at);

#endif
