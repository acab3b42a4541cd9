/* Stream memory operations: words that a stream writes or waits for. Work after a wait takes its time as if there was no
 * wait, as with host functions; events and synchronization do wait. */
#include "memory.h"

#include <stdlib.h>

enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6, MOST_WORDS = 255 };
enum { AT_LEAST, EQUAL, AND, NOR, FLUSH_AFTER = 1 << 30 };
enum { WITHOUT_BARRIER = 1 };

union operation { /* CUstreamBatchMemOpParams */
    int kind;
    struct { int kind; CUdeviceptr at; uint64_t value; unsigned flags; CUdeviceptr alias; } word;
    struct { int kind; unsigned flags; } fence;
    uint64_t space[6];
};

_Static_assert(sizeof(union operation) == 48, "as programs lay it out");

static int is_wide(const union operation *one) { return one->kind == WAIT_64 || one->kind == WRITE_64; }

static int is_wait(const union operation *one) { return one->kind == WAIT_32 || one->kind == WAIT_64; }

static void write_word(const union operation *one) {
    void *at = (void *)(uintptr_t)one->word.at;
    if (is_wide(one)) __atomic_store_n((uint64_t *)at, one->word.value, __ATOMIC_RELEASE);
    else __atomic_store_n((uint32_t *)at, (uint32_t)one->word.value, __ATOMIC_RELEASE);
}

static void do_write(void *data) { write_word(data); }

static void do_write_once(void *data) {
    write_word(data);
    free(data);
}

static int is_met(void *data) {
    const union operation *one = data;
    void *at = (void *)(uintptr_t)one->word.at;
    int wide = is_wide(one);
    uint64_t mask = wide ? UINT64_MAX : UINT32_MAX, value = one->word.value & mask;
    uint64_t found = wide ? __atomic_load_n((uint64_t *)at, __ATOMIC_ACQUIRE) : __atomic_load_n((uint32_t *)at, __ATOMIC_ACQUIRE);
    switch (one->word.flags & ~(unsigned)FLUSH_AFTER) {
    case AT_LEAST: return wide ? (int64_t)(found - value) >= 0 : (int32_t)(uint32_t)(found - value) >= 0;
    case EQUAL: return found == value;
    case AND: return (found & value) != 0;
    default: return (~(found | value) & mask) != 0;
    }
}

/* Return whether a word may be there: in device memory or pinned host memory, not in managed memory. */
static int is_valid_word(const union operation *one, unsigned most) {
    const struct allocation *allocation = allocation_at(one->word.at);
    size_t size = is_wide(one) ? 8 : 4;
    return allocation && allocation->kind != MANAGED && one->word.at % size == 0 && one->word.flags <= most;
}

static int is_right(const union operation *one, int new_form) {
    switch (one->kind) {
    case WAIT_32: case WAIT_64: {
        union operation plain = *one;
        plain.word.flags &= ~(unsigned)FLUSH_AFTER;
        return is_valid_word(&plain, NOR);
    }
    case WRITE_32: case WRITE_64: return is_valid_word(one, new_form ? 0 : WITHOUT_BARRIER);
    case FLUSH: return one->fence.flags == 0;
    case BARRIER: return new_form && one->fence.flags <= 1;
    default: return 0;
    }
}

static int is_idle(struct stream *stream) {
    pthread_mutex_lock(&standin_lock);
    unsigned done = __atomic_load_n(&stream->calls_done, __ATOMIC_ACQUIRE);
    int idle = !stream->capture && stream_end(stream) <= board_now() && stream->calls == done;
    pthread_mutex_unlock(&standin_lock);
    return idle;
}

/* Write at once if nothing is queued before. */
static CUresult put(struct stream *stream, const union operation *one) {
    if (one->kind == FLUSH || one->kind == BARRIER) return OK;
    CUresult failed = spend(stream, is_wide(one) ? 8 : 4, 0);
    if (!failed && !is_wait(one) && is_idle(stream)) {
        write_word(one);
        return OK;
    }
    union operation *kept = failed ? NULL : malloc(sizeof *kept);
    if (!kept) return failed ? failed : OUT_OF_MEMORY;
    *kept = *one;
    if (is_wait(one)) return call_when(stream, is_met, free, kept);
    return call_later(stream, stream->capture ? do_write : do_write_once, kept);
}

static CUresult operate(struct stream *on, unsigned count, const union operation *list, unsigned flags, int new_form) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, on, 0);
    if (failed) return failed;
    if (flags || !list || !count || count > MOST_WORDS) return INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (!is_right(&list[i], new_form)) return INVALID_VALUE;
    for (unsigned i = 0; !failed && i < count; i++) failed = put(stream, &list[i]);
    return failed;
}

static CUresult operate_one(struct stream *on, int kind, CUdeviceptr at, uint64_t value, unsigned flags, int new_form) {
    return operate(on, 1, &(union operation){.word = {.kind = kind, .at = at, .value = value, .flags = flags}}, 0, new_form);
}

#define WORDS(symbol, type, kind) \
    FORMS(symbol, (struct stream *stream, CUdeviceptr at, type value, unsigned flags), operate_one(on, kind, at, value, flags, 0)) \
    FORMS(symbol##_v2, (struct stream *stream, CUdeviceptr at, type value, unsigned flags), operate_one(on, kind, at, value, flags, 1))

WORDS(cuStreamWriteValue32, uint32_t, WRITE_32)
WORDS(cuStreamWriteValue64, uint64_t, WRITE_64)
WORDS(cuStreamWaitValue32, uint32_t, WAIT_32)
WORDS(cuStreamWaitValue64, uint64_t, WAIT_64)
FORMS(cuStreamBatchMemOp, (struct stream *stream, unsigned count, union operation *list, unsigned flags),
      operate(on, count, list, flags, 0))
FORMS(cuStreamBatchMemOp_v2, (struct stream *stream, unsigned count, union operation *list, unsigned flags),
      operate(on, count, list, flags, 1))
