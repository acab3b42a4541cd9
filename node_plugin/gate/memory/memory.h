/* The memory of this process, as the connection and launches use it. */
#ifndef GATE_MEMORY_H
#define GATE_MEMORY_H

#include "connection/share.h"

void memory_on_message(struct share *share, struct message message);
void memory_on_connect(struct share *share);
void memory_on_disconnect(struct share *share);
/* Under the lock: return the present moment; later, forget the allocations of a destroyed context from before that moment. */
uint64_t memory_now(void);
void memory_context_ended(CUcontext context, uint64_t before);
/* Forget the allocations from a device's pools from before that moment. */
void memory_reset(CUdevice device, uint64_t before);
/* Return how many contexts this process has. */
unsigned contexts_all(void);
uint64_t memory_tick(struct share *share, uint64_t now);
void memory_fork(void);

/* Memory that is already counted and about to be allocated. */
struct claim {
    struct share *share; /* NULL: nothing is counted */
    uint64_t bytes;
    bool refused;
    unsigned trims; /* of an executable graph */
};

/* Query how much memory the driver keeps for pools and graphs. */
void reserves_read(void);
/* Before a graph is launched: claim the memory that it needs. Afterwards: settle that claim. */
struct claim graph_before_launch(CUgraphExec graph);
void graph_after_launch(CUgraphExec graph, struct claim *claim, bool launched, CUresult result);

#endif
