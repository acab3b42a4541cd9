/* Graphs, built node by node or captured from a stream. A launch is one piece of work of the device, as long as its kernels
 * together. Its copies and fills are done at once, as outside graphs, and its host functions at the end. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { KERNEL = 0, MEMCPY = 1, MEMSET = 2, CALL = 3, CHILD = 4, EMPTY = 5, MEM_ALLOC = 10, MEM_FREE = 11 };

struct kernel {
    struct function *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    struct function *kernel; /* this field and later ones are not in the first form */
    struct context *context;
};

struct host {
    void (*function)(void *);
    void *data;
};

struct block { /* of memory nodes: address and size */
    CUdeviceptr at;
    uint64_t bytes;
};

struct node {
    int type;
    struct node *origin; /* of a node of an executable graph: the node it was made from */
    uint64_t microseconds; /* of a captured kernel */
    union {
        struct kernel kernel;
        struct copy copy;
        struct fill fill;
        struct host host;
        struct graph *child;
        struct block block;
    };
};

struct graph {
    struct node **nodes;
    size_t count;
    unsigned long long flags;
};

API CUresult cuGraphCreate(struct graph **graph, unsigned flags) {
    if (standin_state) return standin_state;
    if (!graph || flags) return INVALID_VALUE;
    *graph = calloc(1, sizeof **graph);
    return OK;
}

API CUresult cuGraphDestroy(struct graph *graph) {
    if (standin_state) return standin_state;
    if (!graph) return INVALID_VALUE;
    for (size_t i = 0; i < graph->count; i++) free(graph->nodes[i]);
    free(graph->nodes);
    free(graph);
    return OK;
}

API CUresult cuGraphExecDestroy(struct graph *graph) { ENTER(WAITS); return cuGraphDestroy(graph); }

static CUresult add(struct node **handle, struct graph *graph, struct node node) {
    if (standin_state) return standin_state;
    if (!graph) return INVALID_VALUE;
    struct node *kept = malloc(sizeof *kept);
    *kept = node;
    graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
    graph->nodes[graph->count++] = kept;
    if (handle) *handle = kept;
    return OK;
}

CUresult capture_kernel(struct graph *graph, uint64_t microseconds) {
    return add(NULL, graph, (struct node){.type = KERNEL, .microseconds = microseconds});
}

CUresult capture_call(struct graph *graph, void (*function)(void *), void *data) {
    return add(NULL, graph, (struct node){.type = CALL, .host = {function, data}});
}

/* --- memory: an address from the start, and none of the GPU's before a launch ------------------------------------- */

static CUresult add_allocation(struct node **node, struct graph *graph, CUdeviceptr *pointer, size_t bytes) {
    if (!pointer || !bytes) return INVALID_VALUE;
    struct allocation *allocation = obtain(&standin_devices[0], bytes, OF_GRAPH);
    if (!allocation) return OUT_OF_MEMORY;
    *pointer = (CUdeviceptr)(uintptr_t)allocation->base;
    return add(node, graph, (struct node){.type = MEM_ALLOC, .block = {*pointer, bytes}});
}

static CUresult add_free(struct node **node, struct graph *graph, CUdeviceptr pointer) {
    struct allocation *allocation = allocation_at(pointer);
    if (!allocation || allocation->kind != OF_GRAPH) return INVALID_VALUE;
    return add(node, graph, (struct node){.type = MEM_FREE, .block = {pointer, allocation->bytes}});
}

CUresult capture_allocation(struct graph *graph, CUdeviceptr *pointer, size_t bytes) {
    return add_allocation(NULL, graph, pointer, bytes);
}

CUresult capture_free(struct graph *graph, CUdeviceptr pointer) { return add_free(NULL, graph, pointer); }

struct allocation_node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
    int pool[22];
    const void *access;
    size_t count, bytes;
    CUdeviceptr at;
};
_Static_assert(offsetof(struct allocation_node, bytes) == 104, "as in the driver's ABI");

API CUresult cuGraphAddMemAllocNode(struct node **node, struct graph *graph, const struct node **after, size_t n,
                                    struct allocation_node *parameters) {
    ENTER(WAITS);
    (void)after, (void)n;
    return parameters ? add_allocation(node, graph, &parameters->at, parameters->bytes) : INVALID_VALUE;
}

API CUresult cuGraphAddMemFreeNode(struct node **node, struct graph *graph, const struct node **after, size_t n,
                                   CUdeviceptr pointer) {
    ENTER(WAITS);
    (void)after, (void)n;
    return add_free(node, graph, pointer);
}

/* Compute the peak of memory that the nodes have, in their order, and what is left in the end. */
static void needs(const struct graph *graph, int64_t *now, int64_t *peak) {
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];
        if (node->type == CHILD) needs(node->child, now, peak);
        if (node->type == MEM_ALLOC) *now += (int64_t)node->block.bytes;
        if (node->type == MEM_FREE) *now -= (int64_t)node->block.bytes;
        if (*now > *peak) *peak = *now;
    }
}

/* --- what nodes do ------------------------------------------------------------------------------------------------ */

/* Read the first form of the parameters, which ends before `kernel`. */
static struct kernel first_form(const void *parameters) {
    struct kernel kernel = {0};
    memcpy(&kernel, parameters, offsetof(struct kernel, kernel));
    return kernel;
}

static uint64_t time_of(const struct kernel *kernel) {
    const struct function *function = kernel->function ? kernel->function : kernel->kernel;
    return duration_of(function, kernel->grid[0]);
}

static CUresult add_kernel(struct node **node, struct graph *graph, struct kernel kernel) {
    if (!kernel.function && !kernel.kernel) return INVALID_VALUE;
    return add(node, graph, (struct node){.type = KERNEL, .microseconds = time_of(&kernel), .kernel = kernel});
}

#define ADDED struct node **node, struct graph *graph, const struct node **after, size_t n

API CUresult cuGraphAddKernelNode(ADDED, const void *parameters) {
    (void)after, (void)n;
    return parameters ? add_kernel(node, graph, first_form(parameters)) : INVALID_VALUE;
}

API CUresult cuGraphAddKernelNode_v2(ADDED, const struct kernel *parameters) {
    (void)after, (void)n;
    return parameters ? add_kernel(node, graph, *parameters) : INVALID_VALUE;
}

API CUresult cuGraphAddMemcpyNode(ADDED, const struct copy *copy, struct context *context) {
    (void)after, (void)n, (void)context;
    return copy ? add(node, graph, (struct node){.type = MEMCPY, .copy = *copy}) : INVALID_VALUE;
}

API CUresult cuGraphAddMemsetNode(ADDED, const struct fill *fill, struct context *context) {
    (void)after, (void)n, (void)context;
    return fill ? add(node, graph, (struct node){.type = MEMSET, .fill = *fill}) : INVALID_VALUE;
}

API CUresult cuGraphAddHostNode(ADDED, const struct host *host) {
    (void)after, (void)n;
    return host ? add(node, graph, (struct node){.type = CALL, .host = *host}) : INVALID_VALUE;
}

API CUresult cuGraphAddEmptyNode(ADDED) {
    (void)after, (void)n;
    return add(node, graph, (struct node){.type = EMPTY});
}

API CUresult cuGraphClone(struct graph **clone, struct graph *graph) {
    CUresult failed = graph ? cuGraphCreate(clone, 0) : INVALID_VALUE;
    for (size_t i = 0; !failed && i < graph->count; i++) {
        struct node node = *graph->nodes[i];
        node.origin = graph->nodes[i];
        failed = node.type == CHILD ? cuGraphClone(&node.child, node.child) : OK;
        if (!failed) failed = add(NULL, *clone, node);
    }
    return failed;
}

API CUresult cuGraphAddChildGraphNode(ADDED, struct graph *child) {
    ENTER(WAITS);
    struct graph *copy;
    (void)after, (void)n;
    CUresult failed = cuGraphClone(&copy, child);
    return failed ? failed : add(node, graph, (struct node){.type = CHILD, .child = copy});
}

/* All types have one layout: the type, three zeros, then the parameters of the type. */
API CUresult cuGraphAddNode(ADDED, const int *parameters) {
    ENTER(WAITS);
    if (!parameters) return INVALID_VALUE;
    const void *rest = parameters + 4;
    switch (*parameters) {
    case KERNEL: return cuGraphAddKernelNode_v2(node, graph, after, n, rest);
    case MEMCPY: return cuGraphAddMemcpyNode(node, graph, after, n, (const void *)((const char *)rest + 16), NULL);
    case MEMSET: return cuGraphAddMemsetNode(node, graph, after, n, rest, NULL);
    case CALL: return cuGraphAddHostNode(node, graph, after, n, rest);
    case CHILD: return cuGraphAddChildGraphNode(node, graph, after, n, *(struct graph *const *)rest);
    case EMPTY: return cuGraphAddEmptyNode(node, graph, after, n);
    case MEM_ALLOC: return cuGraphAddMemAllocNode(node, graph, after, n, (struct allocation_node *)(uintptr_t)rest);
    case MEM_FREE: return cuGraphAddMemFreeNode(node, graph, after, n, *(const CUdeviceptr *)rest);
    default: return NOT_SUPPORTED;
    }
}

API CUresult cuGraphAddNode_v2(struct node **node, struct graph *graph, const struct node **after, const void *edges,
                               size_t n, const int *parameters) {
    ENTER(WAITS);
    (void)edges;
    return cuGraphAddNode(node, graph, after, n, parameters);
}
ALSO(cuGraphAddNode_v2, cuGraphAddNode_v3)

API CUresult cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!graph || !count) return INVALID_VALUE;
    for (size_t i = 0; nodes && i < *count; i++) nodes[i] = i < graph->count ? graph->nodes[i] : NULL;
    if (!nodes || *count > graph->count) *count = graph->count;
    return OK;
}

API CUresult cuGraphNodeGetType(struct node *node, int *type) {
    *type = node->type;
    return standin_state;
}

API CUresult cuGraphKernelNodeGetParams(struct node *node, void *parameters) {
    memcpy(parameters, &node->kernel, offsetof(struct kernel, kernel));
    return standin_state;
}

API CUresult cuGraphKernelNodeGetParams_v2(struct node *node, struct kernel *parameters) {
    *parameters = node->kernel;
    return standin_state;
}

API CUresult cuGraphKernelNodeSetParams_v2(struct node *node, const struct kernel *parameters) {
    if (!node || !parameters || node->type != KERNEL) return INVALID_VALUE;
    node->kernel = *parameters;
    node->microseconds = time_of(parameters);
    return standin_state;
}

API CUresult cuGraphKernelNodeSetParams(struct node *node, const void *parameters) {
    struct kernel kernel = first_form(parameters);
    return cuGraphKernelNodeSetParams_v2(node, &kernel);
}

API CUresult cuGraphExecKernelNodeSetParams_v2(struct graph *executable, struct node *node, const struct kernel *parameters) {
    for (size_t i = 0; i < executable->count; i++)
        if (executable->nodes[i]->origin == node) return cuGraphKernelNodeSetParams_v2(executable->nodes[i], parameters);
    return INVALID_VALUE;
}

API CUresult cuGraphExecKernelNodeSetParams(struct graph *executable, struct node *node, const void *parameters) {
    struct kernel kernel = first_form(parameters);
    return cuGraphExecKernelNodeSetParams_v2(executable, node, &kernel);
}

API CUresult cuGraphInstantiateWithFlags(struct graph **executable, struct graph *graph, unsigned long long flags) {
    ENTER(WAITS);
    CUresult failed = cuGraphClone(executable, graph);
    if (!failed) (*executable)->flags = flags;
    return failed;
}

API CUresult cuGraphInstantiate(struct graph **executable, struct graph *graph, struct node **wrong, char *log, size_t n) {
    ENTER(WAITS);
    (void)wrong;
    if (log && n) *log = 0;
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}
ALSO(cuGraphInstantiate, cuGraphInstantiate_v2)

API CUresult cuGraphInstantiateWithParams(struct graph **executable, struct graph *graph, uint64_t *parameters) {
    ENTER(WAITS);
    CUresult failed = cuGraphInstantiateWithFlags(executable, graph, parameters[0]);
    parameters[2] = 0; /* no node is invalid */
    *(int *)&parameters[3] = failed ? 1 : 0;
    return failed;
}
ALSO(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz)

API CUresult cuGraphExecGetFlags(struct graph *executable, unsigned long long *flags) {
    *flags = executable->flags;
    return standin_state;
}

API CUresult cuGraphExecUpdate_v2(struct graph *executable, struct graph *graph, int *result) {
    struct graph *fresh, old = *executable;
    CUresult failed = cuGraphClone(&fresh, graph);
    if (result) *result = failed ? 1 : 0;
    if (failed) return failed;
    executable->nodes = fresh->nodes, executable->count = fresh->count;
    fresh->nodes = old.nodes, fresh->count = old.count;
    return cuGraphDestroy(fresh);
}

API CUresult cuGraphExecUpdate(struct graph *executable, struct graph *graph, struct node **wrong, int *result) {
    if (wrong) *wrong = NULL;
    return cuGraphExecUpdate_v2(executable, graph, result);
}

static void sum(const struct graph *graph, uint64_t *microseconds, unsigned *kernels) {
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];
        if (node->type == CHILD) sum(node->child, microseconds, kernels);
        if (node->type == KERNEL) *microseconds += node->microseconds, ++*kernels;
    }
}

static CUresult do_the_rest(const struct graph *graph, struct stream *stream) {
    CUresult failed = OK;
    for (size_t i = 0; !failed && i < graph->count; i++) {
        const struct node *node = graph->nodes[i];
        if (node->type == MEMCPY) failed = copy_box(&node->copy);
        if (node->type == MEMSET) failed = fill_box(&node->fill);
        if (node->type == CALL) failed = call_later(stream, node->host.function, node->host.data);
        if (node->type == CHILD) failed = do_the_rest(node->child, stream);
    }
    return failed;
}

static CUresult launch(const struct graph *executable, struct stream *handle, int per_thread) {
    struct stream *stream;
    uint64_t microseconds = 0;
    unsigned kernels = 0;
    CUresult failed = find_stream(&stream, handle, per_thread);
    if (failed) return failed;
    if (!executable) return INVALID_VALUE;
    int64_t left = 0, peak = 0;
    sum(executable, &microseconds, &kernels);
    needs(executable, &left, &peak);
    if (peak) failed = graph_memory(stream->context->device, (uint64_t)peak, left);
    if (failed) return failed;
    if (kernels) failed = run_on(stream, microseconds, kernels);
    return failed ? failed : do_the_rest(executable, stream);
}

API CUresult cuGraphLaunch(struct graph *executable, struct stream *stream) { ENTER(WAITS); return launch(executable, stream, 0); }

API CUresult cuGraphLaunch_ptsz(struct graph *executable, struct stream *stream) { ENTER(WAITS); return launch(executable, stream, 1); }

API CUresult cuGraphUpload(struct graph *executable, struct stream *stream) {
    ENTER(WAITS);
    struct context *context;
    int64_t left = 0, peak = 0;
    (void)stream;
    CUresult failed = current(&context);
    if (failed || !executable) return failed ? failed : INVALID_VALUE;
    needs(executable, &left, &peak);
    return peak ? graph_memory(context->device, (uint64_t)peak, 0) : OK;
}
ALSO(cuGraphUpload, cuGraphUpload_ptsz)
