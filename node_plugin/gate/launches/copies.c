/* Copies and fills, which use the GPU as launches do. A copy that is expected to take long waits for a lease, as a launch does.
 * Shorter copies pass at once, even in another share's turn, until their times add up to that of a long one; then one waits.
 * The gate reports copies outside this share's leases to the server, which charges them. The smallest copies never wait.
 *
 * The assumed speed of copies between host and GPU is low: better to gate too many than too few. If the name of a function does
 * not tell the direction of a copy, it counts as one from the host. */
#include "launches/window.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

enum { WORTH = 50000, EACH = 2000, HOST = 25, WITHIN = 1000 }; /* ns; bytes in a ns */
enum { REPORT = 5000000 }; /* ns that are worth a message */
enum { WORDS = 4096, LIGHT = EACH - 1 }; /* a copy of up to this many bytes from or to the host takes this long and never waits */
enum { HOST_MEMORY = 1 }; /* CUmemorytype */

static CUstream plain(CUstream stream) { return stream ? stream : STREAM_LEGACY; }

static CUstream own(CUstream stream) { return stream ? stream : STREAM_PER_THREAD; }

static uint64_t product(uint64_t one, uint64_t other) {
    uint64_t all;
    return __builtin_mul_overflow(one, other, &all) ? UINT64_MAX / 2 : all;
}

/* Estimate a copy from or to the host. The smallest never wait, as work in another stream may be waiting for that word. */
static uint64_t host(uint64_t bytes) { return bytes <= WORDS ? LIGHT : EACH + bytes / HOST; }

static uint64_t within(uint64_t bytes) { return EACH + bytes / WITHIN; }

static uint64_t fill(uint64_t width, uint64_t height, uint64_t size) { return within(product(product(width, height), size)); }

/* Return one kind for all copies of about the same duration. */
static unsigned kind_of(uint64_t ns) {
    return (unsigned)(((64 - (uint64_t)__builtin_clzll(ns | 1)) * 0x9e3779b97f4a7c15ull) >> 32) | 1 << 30;
}

/* Under the lock: report copies that passed outside leases. Do not do so during a lease, which is charged by the clock, nor
 * while the server has unread messages: it does not answer this one, and must not be flooded while it hangs. */
static void report_owed(struct share *share) {
    int unread = 0;
    if (share->socket < 0 || (share->stage != FREE && share->stage != ASKED)) return;
    if (ioctl(share->socket, SIOCOUTQ, &unread) || unread) return;
    uint64_t left = share->burst > share->demand ? (share->burst - share->demand) / 1000 : 0, us = atomic_exchange(&share->owed, 0) / 1000;
    connection_send(share, (struct message){.kind = DONE, .a = share->stage == ASKED ? 1 + left : 0, .b = us});
}

static bool in_lease(const struct share *share) {
    uint64_t until = atomic_load_explicit(&share->until, memory_order_relaxed);
    return until == FOREVER || (until && now_ns() < until);
}

/* Count a copy, and return whether it may pass at once. */
static bool may_pass(CUstream stream, uint64_t ns, bool waits) {
    struct queue *queue = queue_of(stream);
    struct share *share = queue ? atomic_load(&queue->share) : NULL;
    if (!share) return true;
    if (atomic_fetch_add(&share->passed, ns) + ns >= WORTH && waits) {
        atomic_store(&share->passed, 0);
        return false;
    }
    if (in_lease(share) || queue_is_capturing(queue) || atomic_fetch_add(&share->owed, ns) + ns < REPORT) return true;
    gate_lock();
    report_owed(share);
    gate_unlock();
    return true;
}

static void enter(struct pass *pass, CUstream stream, uint64_t ns) {
    *pass = (struct pass){.queue = NULL};
    if (!may_pass(stream, ns, ns != LIGHT)) pass_enter(pass, stream, kind_of(ns));
}

#define COPY(stream, ns, symbol, ...) { \
    struct pass pass; \
    enter(&pass, stream, ns); \
    CUresult result = REAL(symbol)(__VA_ARGS__); \
    pass_leave(&pass); \
    return result; \
}

/* Both forms of asynchronous and of synchronous functions. */
#define ASYNC(symbol, ns, takes, ...) \
    CUresult GATE(symbol) takes COPY(plain(stream), ns, symbol, __VA_ARGS__) \
    CUresult GATE(symbol##_ptsz) takes COPY(own(stream), ns, symbol##_ptsz, __VA_ARGS__)
#define NOW(symbol, ns, takes, ...) \
    CUresult GATE(symbol) takes COPY(STREAM_LEGACY, ns, symbol, __VA_ARGS__) \
    CUresult GATE(symbol##_ptds) takes COPY(STREAM_PER_THREAD, ns, symbol##_ptds, __VA_ARGS__)

/* --- one range ---------------------------------------------------------------------------------------------------- */

NOW(cuMemcpy, host(n), (CUdeviceptr to, CUdeviceptr from, size_t n), to, from, n)
NOW(cuMemcpyHtoD_v2, host(n), (CUdeviceptr to, const void *from, size_t n), to, from, n)
NOW(cuMemcpyDtoH_v2, host(n), (void *to, CUdeviceptr from, size_t n), to, from, n)
NOW(cuMemcpyDtoD_v2, within(n), (CUdeviceptr to, CUdeviceptr from, size_t n), to, from, n)
NOW(cuMemcpyPeer, host(n), (CUdeviceptr to, CUcontext in, CUdeviceptr from, CUcontext of, size_t n), to, in, from, of, n)
NOW(cuMemcpyHtoA_v2, host(n), (CUarray to, size_t at, const void *from, size_t n), to, at, from, n)
NOW(cuMemcpyAtoH_v2, host(n), (void *to, CUarray from, size_t at, size_t n), to, from, at, n)
NOW(cuMemcpyDtoA_v2, within(n), (CUarray to, size_t at, CUdeviceptr from, size_t n), to, at, from, n)
NOW(cuMemcpyAtoD_v2, within(n), (CUdeviceptr to, CUarray from, size_t at, size_t n), to, from, at, n)
NOW(cuMemcpyAtoA_v2, within(n), (CUarray to, size_t at, CUarray from, size_t of, size_t n), to, at, from, of, n)

ASYNC(cuMemcpyAsync, host(n), (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream), to, from, n, stream)
ASYNC(cuMemcpyHtoDAsync_v2, host(n), (CUdeviceptr to, const void *from, size_t n, CUstream stream), to, from, n, stream)
ASYNC(cuMemcpyDtoHAsync_v2, host(n), (void *to, CUdeviceptr from, size_t n, CUstream stream), to, from, n, stream)
ASYNC(cuMemcpyDtoDAsync_v2, within(n), (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream), to, from, n, stream)
ASYNC(cuMemcpyPeerAsync, host(n), (CUdeviceptr to, CUcontext in, CUdeviceptr from, CUcontext of, size_t n, CUstream stream),
      to, in, from, of, n, stream)
ASYNC(cuMemcpyHtoAAsync_v2, host(n), (CUarray to, size_t at, const void *from, size_t n, CUstream stream), to, at, from, n, stream)
ASYNC(cuMemcpyAtoHAsync_v2, host(n), (void *to, CUarray from, size_t at, size_t n, CUstream stream), to, from, at, n, stream)
ASYNC(cuMemcpyWithAttributesAsync, host(n), (CUdeviceptr to, CUdeviceptr from, size_t n, void *how, CUstream stream), to, from, n,
      how, stream)

/* --- boxes -------------------------------------------------------------------------------------------------------- */

struct copy2 { /* CUDA_MEMCPY2D */
    struct { size_t x, y; int type; void *host; CUdeviceptr device; CUarray array; size_t pitch; } from, to;
    size_t width, height;
};

struct copy3 { /* CUDA_MEMCPY3D; CUDA_MEMCPY3D_PEER has its sizes at the same offsets */
    struct { size_t x, y, z, level; int type; void *host; CUdeviceptr device; CUarray array; void *context; size_t pitch, height; } from, to;
    size_t width, height, depth;
};

#define BOX(of, bytes) (!(of) ? 0 : (of)->from.type == HOST_MEMORY || (of)->to.type == HOST_MEMORY ? host(bytes) : within(bytes))

static uint64_t flat(const struct copy2 *of) { return BOX(of, product(of->width, of->height)); }

static uint64_t deep(const struct copy3 *of) { return BOX(of, product(product(of->width, of->height), of->depth)); }

NOW(cuMemcpy2D_v2, flat(of), (const struct copy2 *of), of)
NOW(cuMemcpy2DUnaligned_v2, flat(of), (const struct copy2 *of), of)
NOW(cuMemcpy3D_v2, deep(of), (const struct copy3 *of), of)
NOW(cuMemcpy3DPeer, deep(of), (const struct copy3 *of), of)
ASYNC(cuMemcpy2DAsync_v2, flat(of), (const struct copy2 *of, CUstream stream), of, stream)
ASYNC(cuMemcpy3DAsync_v2, deep(of), (const struct copy3 *of, CUstream stream), of, stream)
ASYNC(cuMemcpy3DPeerAsync, deep(of), (const struct copy3 *of, CUstream stream), of, stream)

/* --- batches ------------------------------------------------------------------------------------------------------ */

struct operation { /* CUDA_MEMCPY3D_BATCH_OP: lengths in elements, of at most WIDEST bytes in arrays, of one byte elsewhere */
    struct { int type; uint64_t what[4]; } from, to;
    size_t width, height, depth;
    int order;
    unsigned flags;
};
enum { OF_ARRAY = 2, WIDEST = 16 };

struct packed { /* CUmemDecompressParams */
    size_t bytes, expected;
    void *made;
    const void *from;
    void *to;
    int algorithm;
    unsigned char nothing[20];
};

static uint64_t boxes(const struct operation *list, size_t count) {
    uint64_t ns = 0;
    for (size_t i = 0; list && i < count && ns < WORTH; i++) {
        uint64_t element = list[i].from.type == OF_ARRAY || list[i].to.type == OF_ARRAY ? WIDEST : 1;
        ns += host(product(product(list[i].width, list[i].height), product(list[i].depth, element)));
    }
    return ns;
}

static uint64_t unpacked(const struct packed *list, size_t count) {
    uint64_t ns = 0;
    for (size_t i = 0; list && i < count && ns < WORTH; i++)
        ns += EACH + (list[i].bytes > list[i].expected ? list[i].bytes : list[i].expected) / HOST;
    return ns;
}

static uint64_t sum(const size_t *sizes, size_t count) {
    uint64_t ns = 0;
    for (size_t i = 0; sizes && i < count && ns < WORTH; i++) ns += host(sizes[i]);
    return ns;
}

ASYNC(cuMemcpyBatchAsync, sum(sizes, count),
      (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *how, size_t *which, size_t hows, size_t *failed, CUstream stream),
      to, from, sizes, count, how, which, hows, failed, stream)
ASYNC(cuMemcpyBatchAsync_v2, sum(sizes, count),
      (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *how, size_t *which, size_t hows, CUstream stream),
      to, from, sizes, count, how, which, hows, stream)
ASYNC(cuMemcpy3DBatchAsync, boxes(list, count), (size_t count, void *list, size_t *failed, unsigned long long flags, CUstream stream),
      count, list, failed, flags, stream)
ASYNC(cuMemcpy3DBatchAsync_v2, boxes(list, count), (size_t count, void *list, unsigned long long flags, CUstream stream),
      count, list, flags, stream)
ASYNC(cuMemcpy3DWithAttributesAsync, boxes(one, 1), (void *one, unsigned long long flags, CUstream stream), one, flags, stream)

struct location { int type, id; };

ASYNC(cuMemPrefetchAsync, host(n), (CUdeviceptr at, size_t n, CUdevice to, CUstream stream), at, n, to, stream)
ASYNC(cuMemPrefetchAsync_v2, host(n), (CUdeviceptr at, size_t n, struct location to, unsigned flags, CUstream stream), at, n, to,
      flags, stream)
ASYNC(cuMemPrefetchBatchAsync, sum(sizes, count),
      (CUdeviceptr *at, size_t *sizes, size_t count, void *to, size_t *which, size_t tos, unsigned long long flags, CUstream stream),
      at, sizes, count, to, which, tos, flags, stream)
ASYNC(cuMemDiscardAndPrefetchBatchAsync, sum(sizes, count),
      (CUdeviceptr *at, size_t *sizes, size_t count, void *to, size_t *which, size_t tos, unsigned long long flags, CUstream stream),
      at, sizes, count, to, which, tos, flags, stream)
ASYNC(cuMemBatchDecompressAsync, unpacked(list, count), (void *list, size_t count, unsigned flags, size_t *failed, CUstream stream),
      list, count, flags, failed, stream)

/* --- fills -------------------------------------------------------------------------------------------------------- */

#define FILLS(bits, type) \
    NOW(cuMemsetD##bits##_v2, fill(n, 1, sizeof value), (CUdeviceptr to, type value, size_t n), to, value, n) \
    ASYNC(cuMemsetD##bits##Async, fill(n, 1, sizeof value), (CUdeviceptr to, type value, size_t n, CUstream stream), to, value, n, \
          stream) \
    NOW(cuMemsetD2D##bits##_v2, fill(width, height, sizeof value), \
        (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height), to, pitch, value, width, height) \
    ASYNC(cuMemsetD2D##bits##Async, fill(width, height, sizeof value), \
          (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream), to, pitch, value, width, \
          height, stream)

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)

/* --- stream memory operations ------------------------------------------------------------------------------------- */

/* They are counted, but never wait. */
#define WORD(symbol, count, takes, ...) \
    CUresult GATE(symbol) takes { add(plain(stream), count); return REAL(symbol)(__VA_ARGS__); } \
    CUresult GATE(symbol##_ptsz) takes { add(own(stream), count); return REAL(symbol##_ptsz)(__VA_ARGS__); }

static void add(CUstream stream, uint64_t count) { may_pass(stream, product(count, LIGHT), false); }

#define WORD_TAKES (CUstream stream, CUdeviceptr at, unsigned value, unsigned flags)
#define LONG_WORD_TAKES (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags)
#define MANY_WORDS_TAKE (CUstream stream, unsigned count, void *list, unsigned flags)

WORD(cuStreamWriteValue32, 1, WORD_TAKES, stream, at, value, flags)
WORD(cuStreamWriteValue32_v2, 1, WORD_TAKES, stream, at, value, flags)
WORD(cuStreamWriteValue64, 1, LONG_WORD_TAKES, stream, at, value, flags)
WORD(cuStreamWriteValue64_v2, 1, LONG_WORD_TAKES, stream, at, value, flags)
WORD(cuStreamBatchMemOp, count, MANY_WORDS_TAKE, stream, count, list, flags)
WORD(cuStreamBatchMemOp_v2, count, MANY_WORDS_TAKE, stream, count, list, flags)
