/* Prefetches, batches of copies, and decompression. A batch is validated as a whole, takes the time of all its bytes, and
 * then completes. Memory is in one place here, so a prefetch moves nothing but takes its time each time. */
#include "memory.h"

#include <string.h>

enum { GENERAL = -1 }; /* an error of the whole batch */
enum { AT_DEVICE = 1, AT_THIS_NODE = 4 };
enum { OPERAND_POINTER = 1, OPERAND_ARRAY = 2, LAST_ORDER = 3, UNIFIED = 4 };

/* Report the index of the failed element, if the caller wants it. */
static CUresult set_failed(size_t *failed, size_t which, CUresult result) {
    if (failed && result) *failed = which;
    return result;
}

/* --- prefetches --------------------------------------------------------------------------------------------------- */

static CUresult place_known(struct location to) {
    if (to.type == AT_DEVICE) return known_device(to.id);
    return to.type > AT_DEVICE && to.type <= AT_THIS_NODE ? standin_state : INVALID_VALUE;
}

static CUresult managed(CUdeviceptr at, size_t bytes) {
    const struct allocation *allocation = allocation_at(at);
    if (!bytes || !allocation || allocation->kind != MANAGED) return INVALID_VALUE;
    return at + bytes > (CUdeviceptr)(uintptr_t)allocation->base + allocation->bytes ? INVALID_VALUE : OK;
}

static CUresult prefetch(CUdeviceptr at, size_t bytes, struct location to, unsigned flags, struct stream *on) {
    CUresult failed = flags ? INVALID_VALUE : place_known(to);
    if (!failed) failed = managed(at, bytes);
    return failed ? failed : spend(on, bytes, 0);
}

static struct location device_or_host(CUdevice device) { return (struct location){device == -1 ? 2 : AT_DEVICE, device}; }

FORMS(cuMemPrefetchAsync, (CUdeviceptr at, size_t bytes, CUdevice to, struct stream *stream),
      prefetch(at, bytes, device_or_host(to), 0, on))
FORMS(cuMemPrefetchAsync_v2, (CUdeviceptr at, size_t bytes, struct location to, unsigned flags, struct stream *stream),
      prefetch(at, bytes, to, flags, on))

/* Return whether the list of first indices, one for each of `kinds`, is valid for `count` elements. */
static int valid_starts(const size_t *begins, size_t kinds, size_t count) {
    if (!begins || !kinds || kinds > count || begins[0]) return 0;
    for (size_t i = 1; i < kinds; i++)
        if (begins[i] <= begins[i - 1] || begins[i] >= count) return 0;
    return 1;
}

static CUresult prefetches(const CUdeviceptr *at, const size_t *sizes, size_t count, const struct location *to, const size_t *begins,
                           size_t places, unsigned long long flags, struct stream *on, int discard) {
    uint64_t bytes = 0;
    if (flags || on == LEGACY || !at || !sizes || !count || !to || !valid_starts(begins, places, count)) return INVALID_VALUE;
    CUresult failed = OK;
    for (size_t i = 0; !failed && i < places; i++) failed = place_known(to[i]);
    for (size_t i = 0; !failed && i < count; bytes += sizes[i++]) failed = managed(at[i], sizes[i]);
    if (!failed) failed = spend(on, discard ? 0 : bytes, discard ? bytes : 0);
    for (size_t i = 0; discard && !failed && i < count; i++) memset((void *)(uintptr_t)at[i], 0, sizes[i]);
    return failed;
}

#define PREFETCHES \
    (CUdeviceptr *at, size_t *sizes, size_t count, struct location *to, size_t *begins, size_t places, unsigned long long flags, \
     struct stream *stream)

FORMS(cuMemPrefetchBatchAsync, PREFETCHES, prefetches(at, sizes, count, to, begins, places, flags, on, 0))
FORMS(cuMemDiscardAndPrefetchBatchAsync, PREFETCHES, prefetches(at, sizes, count, to, begins, places, flags, on, 1))

/* --- copies ------------------------------------------------------------------------------------------------------- */

struct attributes { /* CUmemcpyAttributes */
    int order; /* in which the source is read: 1 to 3 */
    struct location from, to;
    unsigned flags;
};

static int order_known(int order) { return order >= 1 && order <= LAST_ORDER; }

/* `failed` becomes the index of the invalid copy. */
static CUresult copies(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count, const struct attributes *how,
                       const size_t *begins, size_t hows, size_t *failed, struct stream *on) {
    uint64_t bytes = 0, within = 0;
    int right = on != LEGACY && to && from && sizes && count && how && valid_starts(begins, hows, count);
    for (size_t i = 0; right && i < hows; i++) right = order_known(how[i].order);
    if (!right) return set_failed(failed, (size_t)GENERAL, INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        if (!to[i] || !from[i] || !sizes[i]) return set_failed(failed, i, INVALID_VALUE);
        *(on_gpu(to[i]) && on_gpu(from[i]) ? &within : &bytes) += sizes[i];
    }
    CUresult result = spend(on, bytes, within);
    for (size_t i = 0; !result && i < count; i++) memmove((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], sizes[i]);
    return set_failed(failed, (size_t)GENERAL, result);
}

static CUresult copy_as(CUdeviceptr to, CUdeviceptr from, size_t bytes, const struct attributes *how, struct stream *on) {
    if (!bytes) return how && order_known(how->order) ? standin_state : INVALID_VALUE;
    struct stream *stream;
    CUresult failed = find_stream(&stream, on, 0); /* a single copy may be in the legacy stream */
    return failed ? failed : copies(&to, &from, &bytes, 1, how, &(size_t){0}, 1, NULL, stream);
}

#define COPIES CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, struct attributes *how, size_t *begins, size_t hows

FORMS(cuMemcpyBatchAsync, (COPIES, size_t *failed, struct stream *stream), copies(to, from, sizes, count, how, begins, hows, failed, on))
FORMS(cuMemcpyBatchAsync_v2, (COPIES, struct stream *stream), copies(to, from, sizes, count, how, begins, hows, NULL, on))
FORMS(cuMemcpyWithAttributesAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, struct attributes *how, struct stream *stream),
      copy_as(to, from, bytes, how, on))

/* --- copies of boxes ---------------------------------------------------------------------------------------------- */

struct operand { /* CUmemcpy3DOperand; lengths in elements */
    int type;
    union {
        struct { CUdeviceptr at; size_t row, layer; struct location hint; } pointer;
        struct { struct array *array; size_t x, y, z; } array;
    };
};

struct box { /* CUDA_MEMCPY3D_BATCH_OP */
    struct operand from, to;
    size_t width, height, depth;
    int order;
    unsigned flags;
};

_Static_assert(sizeof(struct operand) == 40 && sizeof(struct box) == 112, "as programs lay them out");

static size_t element_of(const struct operand *operand) {
    return operand->type == OPERAND_ARRAY && operand->array.array ? array_element(operand->array.array) : 0;
}

/* Convert an operand to a place; return whether it is valid. */
static int placed(struct place *place, const struct operand *operand, const struct box *box, size_t element) {
    if (operand->type == OPERAND_ARRAY) {
        *place = (struct place){.x = operand->array.x * element, .y = operand->array.y, .z = operand->array.z, .type = 3,
                                .array = operand->array.array};
        return place->array != NULL;
    }
    size_t row = operand->pointer.row ? operand->pointer.row : box->width;
    size_t layer = operand->pointer.layer ? operand->pointer.layer : box->height;
    *place = (struct place){.type = UNIFIED, .device = operand->pointer.at, .pitch = row * element, .height = layer};
    return operand->type == OPERAND_POINTER && place->device && row >= box->width && layer >= box->height;
}

static CUresult read_box(struct copy *copy, const struct box *box) {
    size_t one = element_of(&box->from), other = element_of(&box->to), element = one ? one : other ? other : 1;
    int right = box->width && box->height && box->depth && order_known(box->order) && !(one && other && one != other);
    *copy = (struct copy){.width = box->width * element, .height = box->height, .depth = box->depth};
    return right && placed(&copy->from, &box->from, box, element) && placed(&copy->to, &box->to, box, element) ? OK : INVALID_VALUE;
}

static CUresult boxes(size_t count, const struct box *list, size_t *failed, unsigned long long flags, struct stream *on) {
    uint64_t bytes = 0, within = 0;
    struct copy copy;
    if (flags || on == LEGACY || !list || !count) return set_failed(failed, (size_t)GENERAL, INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        if (read_box(&copy, &list[i])) return set_failed(failed, i, INVALID_VALUE);
        *(place_on_gpu(&copy.from) && place_on_gpu(&copy.to) ? &within : &bytes) += copy.width * copy.height * copy.depth;
    }
    CUresult result = spend(on, bytes, within);
    for (size_t i = 0; !result && i < count; i++)
        if (!(result = read_box(&copy, &list[i]))) copy_box(&copy);
    return set_failed(failed, (size_t)GENERAL, result);
}

static CUresult box_as(const struct box *box, unsigned long long flags, struct stream *on) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, on, 0);
    return failed ? failed : boxes(1, box, NULL, flags, stream);
}

FORMS(cuMemcpy3DBatchAsync, (size_t count, struct box *list, size_t *failed, unsigned long long flags, struct stream *stream),
      boxes(count, list, failed, flags, on))
FORMS(cuMemcpy3DBatchAsync_v2, (size_t count, struct box *list, unsigned long long flags, struct stream *stream),
      boxes(count, list, NULL, flags, on))
FORMS(cuMemcpy3DWithAttributesAsync, (struct box *box, unsigned long long flags, struct stream *stream), box_as(box, flags, on))
