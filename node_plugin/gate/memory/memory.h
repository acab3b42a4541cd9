/* The memory of this process, for the connection and for launches. */
#ifndef GATE_MEMORY_H
#define GATE_MEMORY_H

#include "connection/share.h"

void memory_on_message(struct share *share, struct message message);
void memory_on_connect(struct share *share);
void memory_on_disconnect(struct share *share);
/* Under the lock: return a moment; then forget the allocations of a destroyed context from before it. */
uint64_t memory_now(void);
void memory_context_ended(CUcontext context, uint64_t before);
/* Forget the allocations from pools of a device from before that moment. */
void memory_reset(CUdevice device, uint64_t before);
uint64_t memory_tick(struct share *share, uint64_t now);
void memory_fork(void);

/* Memory that is about to be allocated and is counted already. */
struct claim {
    struct share *share; /* NULL: nothing is counted */
    uint64_t bytes;
    bool refused;
    unsigned trims; /* of an executable graph */
};

/* Ask the driver how much is kept now. */
void reserves_read(void);
/* Before a graph is launched: claim what it needs. Afterwards: settle that. */
struct claim graph_before_launch(CUgraphExec graph);
void graph_after_launch(CUgraphExec graph, struct claim *claim, bool launched, CUresult result);

#endif
