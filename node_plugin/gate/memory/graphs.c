/* Memory nodes of graphs. A node has an address from the start, but GPU memory only from the first launch on. The driver
 * keeps that memory until it is trimmed, and reports its size (reserves.c). Before a launch, a graph claims the peak of its
 * nodes' memory, in the order in which they were added. */
#include "memory/counting.h"

static _Atomic bool any; /* some graph has such nodes */

/* --- what a graph needs, under the lock --------------------------------------------------------------------------- */

static struct entry *found(enum key key, const void *handle) { return *memory_find(key, (uint64_t)handle); }

/* Return a graph's record, created on demand. Its `bytes` are the peak of its nodes' memory. */
static struct entry *record(CUgraph graph, CUdevice device) {
    if (!found(GRAPH, graph)) memory_keep((struct entry){.key = GRAPH, .id = (uint64_t)graph, .device = device});
    return found(GRAPH, graph);
}

static void grows(struct entry *graph, int64_t bytes, uint64_t most) {
    if (graph->now > 0 && (uint64_t)graph->now + most > graph->bytes) graph->bytes = (uint64_t)graph->now + most;
    else if (most > graph->bytes) graph->bytes = most;
    graph->now += bytes;
}

void graph_allocates(CUgraph graph, CUdevice device, CUdeviceptr at, uint64_t bytes) {
    gate_lock_first();
    struct entry *entry = record(graph, device);
    if (entry) grows(entry, (int64_t)bytes, bytes);
    memory_keep((struct entry){.key = NODE, .id = at, .bytes = bytes, .graph = (uint64_t)graph});
    gate_unlock();
    atomic_store(&any, true);
}

void graph_frees(CUgraph graph, CUdeviceptr at) {
    gate_lock_first();
    struct entry *node = *memory_find(NODE, at), *entry = found(GRAPH, graph);
    if (node && entry) entry->now -= (int64_t)node->bytes;
    gate_unlock();
}

static void graph_contains(CUgraph graph, CUgraph child) {
    gate_lock_first();
    struct entry *inner = found(GRAPH, child);
    struct entry *outer = inner ? record(graph, inner->device) : NULL;
    if (outer) grows(outer, inner->now, inner->bytes);
    gate_unlock();
}

CUgraph graph_of_stream(CUstream stream) {
    int status = 0;
    uint64_t id;
    CUgraph graph = NULL;
    if (NEWER(cuStreamGetCaptureInfo_v2)(stream, &status, &id, &graph, NULL, NULL) != CUDA_SUCCESS) return NULL;
    return status ? graph : NULL;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

enum { NODE_GRAPH = 4, NODE_ALLOCATION = 10, NODE_FREE = 11 };

static void allocates(CUgraph graph, const struct allocation_node *of) {
    if (of->pool.location.type == LOCATION_DEVICE) graph_allocates(graph, of->pool.location.id, of->at, of->size);
}

static CUresult added(CUresult result, CUgraph graph, const struct node_params *of) {
    if (result != CUDA_SUCCESS) return result;
    if (of->type == NODE_ALLOCATION) allocates(graph, &of->allocation);
    if (of->type == NODE_FREE) graph_frees(graph, of->freed);
    if (of->type == NODE_GRAPH) graph_contains(graph, of->graph);
    return result;
}

#define ADDED void *to, CUgraph graph, const void *after
#define GIVEN to, graph, after

CUresult GATE(cuGraphAddMemAllocNode)(ADDED, size_t count, struct allocation_node *of) {
    CUresult result = REAL(cuGraphAddMemAllocNode)(GIVEN, count, of);
    if (result == CUDA_SUCCESS) allocates(graph, of);
    return result;
}

CUresult GATE(cuGraphAddMemFreeNode)(ADDED, size_t count, CUdeviceptr at) {
    CUresult result = REAL(cuGraphAddMemFreeNode)(GIVEN, count, at);
    if (result == CUDA_SUCCESS) graph_frees(graph, at);
    return result;
}

CUresult GATE(cuGraphAddNode)(ADDED, size_t count, struct node_params *of) {
    return added(REAL(cuGraphAddNode)(GIVEN, count, of), graph, of);
}

CUresult GATE(cuGraphAddNode_v2)(ADDED, const void *edges, size_t count, struct node_params *of) {
    return added(REAL(cuGraphAddNode_v2)(GIVEN, edges, count, of), graph, of);
}

CUresult GATE(cuGraphAddNode_v3)(ADDED, const void *edges, size_t count, struct node_params *of) {
    return added(REAL(cuGraphAddNode_v3)(GIVEN, edges, count, of), graph, of);
}

/* --- executable graphs -------------------------------------------------------------------------------------------- */

static CUresult instantiated(CUresult result, const CUgraphExec *to, CUgraph graph) {
    if (result != CUDA_SUCCESS || !atomic_load(&any)) return result;
    gate_lock();
    struct entry *of = found(GRAPH, graph);
    if (of && of->bytes)
        memory_keep((struct entry){.key = EXEC, .id = (uint64_t)*to, .bytes = of->bytes, .device = of->device,
                                    .trims = reserve_trims() - 1});
    gate_unlock();
    return result;
}

CUresult GATE(cuGraphInstantiate)(CUgraphExec *to, CUgraph graph, void *node, char *log, size_t size) {
    return instantiated(REAL(cuGraphInstantiate)(to, graph, node, log, size), to, graph);
}

CUresult GATE(cuGraphInstantiate_v2)(CUgraphExec *to, CUgraph graph, void *node, char *log, size_t size) {
    return instantiated(REAL(cuGraphInstantiate_v2)(to, graph, node, log, size), to, graph);
}

CUresult GATE(cuGraphInstantiateWithFlags)(CUgraphExec *to, CUgraph graph, unsigned long long flags) {
    return instantiated(REAL(cuGraphInstantiateWithFlags)(to, graph, flags), to, graph);
}

CUresult GATE(cuGraphInstantiateWithParams)(CUgraphExec *to, CUgraph graph, void *params) {
    return instantiated(REAL(cuGraphInstantiateWithParams)(to, graph, params), to, graph);
}

CUresult GATE(cuGraphInstantiateWithParams_ptsz)(CUgraphExec *to, CUgraph graph, void *params) {
    return instantiated(REAL(cuGraphInstantiateWithParams_ptsz)(to, graph, params), to, graph);
}

/* A graph keeps its memory after a launch until graph memory is trimmed, which may or may not release this graph's. So a graph
 * that was launched or uploaded before is not refused if all graphs together keep enough; any memory that it takes then is
 * counted. */
struct claim graph_before_launch(CUgraphExec graph) {
    struct claim nothing = {.share = NULL};
    if (!atomic_load_explicit(&any, memory_order_relaxed)) return nothing;
    gate_lock();
    const struct entry *entry = found(EXEC, graph);
    bool has = !entry || entry->trims == reserve_trims(), before = entry && entry->handles;
    CUdevice device = entry ? entry->device : 0;
    uint64_t bytes = entry ? entry->bytes : 0;
    gate_unlock();
    struct share *share = has ? NULL : share_of(device);
    if (!share) return nothing;
    reserve_graphs(share);
    struct claim claimed = claim_from(share, bytes);
    if (claimed.refused && before && reserve_covers(share, bytes)) claimed = (struct claim){.share = share};
    claimed.trims = reserve_trims();
    return claimed;
}

/* Count the memory that the graph has taken, then drop the claim. */
void graph_after_launch(CUgraphExec graph, struct claim *claim, bool launched, CUresult result) {
    if (!claim->share) return;
    reserves_read();
    gate_lock();
    memory_subtract(claim->share, claim->bytes);
    struct entry *entry = found(EXEC, graph);
    if (entry && result == CUDA_SUCCESS) {
        if (launched) entry->trims = claim->trims; /* an upload need not have taken all of it */
        entry->handles = 1;
    }
    gate_unlock();
}

#define UPLOAD(symbol) \
    struct claim claimed = graph_before_launch(graph); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    CUresult result = REAL(symbol)(graph, stream); \
    graph_after_launch(graph, &claimed, false, result); \
    return result

CUresult GATE(cuGraphUpload)(CUgraphExec graph, CUstream stream) { UPLOAD(cuGraphUpload); }

CUresult GATE(cuGraphUpload_ptsz)(CUgraphExec graph, CUstream stream) { UPLOAD(cuGraphUpload_ptsz); }

/* --- destruction -------------------------------------------------------------------------------------------------- */

static bool of_graph(struct entry *entry, void *graph) { return entry->key == NODE && entry->graph == (uint64_t)graph; }

/* Forget the graph first, as another one may get the same handle at once. */
CUresult GATE(cuGraphDestroy)(CUgraph graph) {
    if (!atomic_load(&any)) return REAL(cuGraphDestroy)(graph);
    gate_lock();
    struct entry *entry = memory_take(memory_find(GRAPH, (uint64_t)graph));
    if (entry) memory_each(of_graph, graph);
    gate_unlock();
    CUresult result = REAL(cuGraphDestroy)(graph);
    memory_after_free(entry, result);
    return result;
}

CUresult GATE(cuGraphExecDestroy)(CUgraphExec graph) {
    if (!atomic_load(&any)) return REAL(cuGraphExecDestroy)(graph);
    struct entry *entry = memory_remove(EXEC, (uint64_t)graph);
    CUresult result = REAL(cuGraphExecDestroy)(graph);
    memory_after_free(entry, result);
    reserves_read();
    return result;
}
