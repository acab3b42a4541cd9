/* The memory of this process, for the connection and for launches. */
#ifndef GATE_MEMORY_H
#define GATE_MEMORY_H

#include "connection/share.h"

void memory_message(struct share *share, struct message message);
void memory_connected(struct share *share);
void memory_lost(struct share *share);
/* Under the lock: a moment; what was allocated before it is gone. */
uint64_t memory_now(void);
void memory_context_ends(CUcontext context, uint64_t before);
/* What was allocated from pools of a device before that moment is gone. */
void memory_reset(CUdevice device, uint64_t before);
uint64_t memory_tick(struct share *share, uint64_t now);
void memory_fork(void);

/* Memory about to be allocated, which counts already. */
struct claim {
    struct share *share; /* NULL: nothing is counted */
    uint64_t bytes;
    bool refused;
    unsigned trims; /* of an executable graph */
};

/* Asks the driver what is kept now. */
void reserves_read(void);
/* Before a graph is launched: claims what it needs, and after it. */
struct claim graph_comes(CUgraphExec graph);
void graph_came(CUgraphExec graph, struct claim *claim, bool launched, CUresult result);

#endif
