/* Stream-ordered allocation from pools; in a captured stream, the memory belongs to the graph. */
#include "memory/counting.h"
#include "parking/marks.h"

static CUstream plain(CUstream stream) { return stream ? stream : STREAM_LEGACY; }

static CUstream own(CUstream stream) { return stream ? stream : STREAM_PER_THREAD; }

/* Pools outlive contexts. */
#define ALLOCATE(symbol, pool, on, ...) \
    CUgraph graph = graph_of_stream(on); \
    struct claim claimed = graph ? (struct claim){.share = NULL} : reserve_claim(pool, size); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    CUresult result = MARKED(REAL(symbol)(__VA_ARGS__)); \
    return allocated(&claimed, graph, result, to, size)

static CUresult allocated(struct claim *claimed, CUgraph graph, CUresult result, const CUdeviceptr *to, uint64_t size) {
    CUdevice device;
    if (!graph) {
        claim_settle(claimed, result, POINTER, result == CUDA_SUCCESS ? *to : 0, size, false);
        reserves_read();
    } else if (result == CUDA_SUCCESS && DRIVER(cuCtxGetDevice)(&device) == CUDA_SUCCESS) {
        graph_allocates(graph, device, *to, size);
    }
    return result;
}

CUresult GATE(cuMemAllocAsync)(CUdeviceptr *to, size_t size, CUstream stream) {
    ALLOCATE(cuMemAllocAsync, NULL, plain(stream), to, size, stream);
}

CUresult GATE(cuMemAllocAsync_ptsz)(CUdeviceptr *to, size_t size, CUstream stream) {
    ALLOCATE(cuMemAllocAsync_ptsz, NULL, own(stream), to, size, stream);
}

CUresult GATE(cuMemAllocFromPoolAsync)(CUdeviceptr *to, size_t size, CUmemoryPool pool, CUstream stream) {
    ALLOCATE(cuMemAllocFromPoolAsync, pool, plain(stream), to, size, pool, stream);
}

CUresult GATE(cuMemAllocFromPoolAsync_ptsz)(CUdeviceptr *to, size_t size, CUmemoryPool pool, CUstream stream) {
    ALLOCATE(cuMemAllocFromPoolAsync_ptsz, pool, own(stream), to, size, pool, stream);
}

/* Count what the pool keeps before the allocation is uncounted. */
#define DEALLOCATE(symbol, on) \
    CUgraph graph = graph_of_stream(on); \
    struct entry *entry = graph ? NULL : memory_remove(POINTER, at); \
    CUresult result = REAL(symbol)(at, stream); \
    if (graph && result == CUDA_SUCCESS) graph_frees(graph, at); \
    if (!graph) reserves_read(); \
    return memory_after_free(entry, result)

CUresult GATE(cuMemFreeAsync)(CUdeviceptr at, CUstream stream) { DEALLOCATE(cuMemFreeAsync, plain(stream)); }

CUresult GATE(cuMemFreeAsync_ptsz)(CUdeviceptr at, CUstream stream) { DEALLOCATE(cuMemFreeAsync_ptsz, own(stream)); }
