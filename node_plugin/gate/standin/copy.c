/* Copies and fills. The bytes are copied at once, in the order of the calls, and the time passes on the GPU, in the stream.
 * Synchronous functions wait for that. */
#include "memory.h"

#include <string.h>

enum { WITHIN = 80 }; /* how much faster a copy on the GPU is than one from or to the host */
#define NOW ((struct stream *)-1) /* used as a stream: the legacy stream, synchronously */

/* Less than a microsecond counts as nothing. */
CUresult spend(struct stream *handle, uint64_t bytes, uint64_t within) {
    struct stream *stream;
    CUresult failed = find_stream(&stream, handle == NOW ? LEGACY : handle, 0);
    uint64_t microseconds = (bytes + within / WITHIN) / standin_copy_rate;
    if (!failed && microseconds) failed = run_on(stream, microseconds, 0);
    return failed || handle != NOW ? failed : stream_wait(stream);
}

int on_gpu(CUdeviceptr pointer) {
    const struct allocation *allocation = allocation_at(pointer);
    return allocation && allocation->kind != HOST;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    if (bytes && (!to || !from)) return standin_state ? standin_state : INVALID_VALUE;
    int within = on_gpu(to) && on_gpu(from);
    CUresult failed = spend(stream, within ? 0 : bytes, within ? bytes : 0);
    if (!failed) memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return failed;
}

#define AT(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) { ENTER(WAITS); return copy(to, from, bytes, NOW); }
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { ENTER(WAITS); return copy(to, AT(from), bytes, NOW); }
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { ENTER(WAITS); return copy(AT(to), from, bytes, NOW); }
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) { ENTER(WAITS); return copy(to, from, bytes, NOW); }

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    ENTER(WAITS);
    return copy(to, from, bytes, stream);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, struct stream *stream) {
    ENTER(WAITS);
    return cuMemcpyAsync(to, AT(from), bytes, stream);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    ENTER(WAITS);
    return cuMemcpyAsync(AT(to), from, bytes, stream);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    ENTER(WAITS);
    return cuMemcpyAsync(to, from, bytes, stream);
}

API CUresult cuMemcpyPeer(CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes) {
    ENTER(WAITS);
    (void)a, (void)b;
    return copy(to, from, bytes, NOW);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes, struct stream *stream) {
    ENTER(WAITS);
    (void)a, (void)b;
    return cuMemcpyAsync(to, from, bytes, stream);
}

static char *at(const struct place *place, size_t width, size_t y, size_t z) {
    y += place->y, z += place->z;
    if (place->type == 3) return array_at(place->array, place->x, y, z);
    char *base = place->type == 1 ? place->host : (char *)(uintptr_t)place->device;
    size_t pitch = place->pitch ? place->pitch : width;
    return base + (z * place->height + y) * pitch + place->x;
}

CUresult copy_box(const struct copy *copy) {
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            memmove(at(&copy->to, copy->width, y, z), at(&copy->from, copy->width, y, z), copy->width);
    return OK;
}

int place_on_gpu(const struct place *place) {
    return place->type == 3 || (place->type != 1 && on_gpu(place->device));
}

static CUresult box(const struct copy *copy, struct stream *stream) {
    if (!copy) return standin_state ? standin_state : INVALID_VALUE;
    int within = place_on_gpu(&copy->from) && place_on_gpu(&copy->to);
    size_t bytes = copy->width * copy->height * copy->depth;
    CUresult failed = spend(stream, within ? 0 : bytes, within ? bytes : 0);
    return failed ? failed : copy_box(copy);
}

API CUresult cuMemcpy3D_v2(const struct copy *copy) { ENTER(WAITS); return box(copy, NOW); }

API CUresult cuMemcpy3DAsync_v2(const struct copy *copy, struct stream *stream) { ENTER(WAITS); return box(copy, stream); }

/* The same layout, with contexts in the reserved fields. */
API CUresult cuMemcpy3DPeer(const struct copy *copy) { ENTER(WAITS); return box(copy, NOW); }

API CUresult cuMemcpy3DPeerAsync(const struct copy *copy, struct stream *stream) {
    ENTER(WAITS);
    return cuMemcpy3DAsync_v2(copy, stream);
}

struct flat_place {
    size_t x, y;
    int type;
    void *host;
    CUdeviceptr device;
    struct array *array;
    size_t pitch;
};

struct flat_copy { /* CUDA_MEMCPY2D */
    struct flat_place from, to;
    size_t width, height;
};

static struct place deep(const struct flat_place *flat) {
    return (struct place){.x = flat->x, .y = flat->y, .type = flat->type, .host = flat->host,
                          .device = flat->device, .array = flat->array, .pitch = flat->pitch};
}

static CUresult flat(const struct flat_copy *copy, struct stream *stream) {
    if (!copy) return INVALID_VALUE;
    struct copy whole = {deep(&copy->from), deep(&copy->to), copy->width, copy->height, 1};
    return box(&whole, stream);
}

API CUresult cuMemcpy2D_v2(const struct flat_copy *copy) { ENTER(WAITS); return flat(copy, NOW); }
API CUresult cuMemcpy2DUnaligned_v2(const struct flat_copy *copy) { ENTER(WAITS); return flat(copy, NOW); }

API CUresult cuMemcpy2DAsync_v2(const struct flat_copy *copy, struct stream *stream) {
    ENTER(WAITS);
    return flat(copy, stream);
}

/* Arrays of one row: offsets are in bytes. */
API CUresult cuMemcpyHtoA_v2(struct array *to, size_t offset, const void *from, size_t bytes) {
    ENTER(WAITS);
    return copy(AT(array_at(to, offset, 0, 0)), AT(from), bytes, NOW);
}

API CUresult cuMemcpyAtoH_v2(void *to, struct array *from, size_t offset, size_t bytes) {
    ENTER(WAITS);
    return copy(AT(to), AT(array_at(from, offset, 0, 0)), bytes, NOW);
}

API CUresult cuMemcpyDtoA_v2(struct array *to, size_t offset, CUdeviceptr from, size_t bytes) {
    ENTER(WAITS);
    return copy(AT(array_at(to, offset, 0, 0)), from, bytes, NOW);
}

API CUresult cuMemcpyAtoD_v2(CUdeviceptr to, struct array *from, size_t offset, size_t bytes) {
    ENTER(WAITS);
    return copy(to, AT(array_at(from, offset, 0, 0)), bytes, NOW);
}

API CUresult cuMemcpyAtoA_v2(struct array *to, size_t offset, struct array *from, size_t from_offset, size_t bytes) {
    ENTER(WAITS);
    return copy(AT(array_at(to, offset, 0, 0)), AT(array_at(from, from_offset, 0, 0)), bytes, NOW);
}

API CUresult cuMemcpyHtoAAsync_v2(struct array *to, size_t offset, const void *from, size_t bytes, struct stream *stream) {
    ENTER(WAITS);
    return cuMemcpyAsync(AT(array_at(to, offset, 0, 0)), AT(from), bytes, stream);
}

API CUresult cuMemcpyAtoHAsync_v2(void *to, struct array *from, size_t offset, size_t bytes, struct stream *stream) {
    ENTER(WAITS);
    return cuMemcpyAsync(AT(to), AT(array_at(from, offset, 0, 0)), bytes, stream);
}

static CUresult fill(CUdeviceptr to, size_t pitch, const void *value, size_t size, size_t width, size_t height) {
    if (!to) return INVALID_VALUE;
    for (size_t y = 0; y < height; y++) {
        char *row = (char *)(uintptr_t)to + y * pitch;
        if (size == 1) memset(row, *(const unsigned char *)value, width);
        for (size_t x = 0; size > 1 && x < width; x++) memcpy(row + x * size, value, size);
    }
    return OK;
}

static CUresult fill_on(struct stream *stream, CUdeviceptr to, size_t pitch, const void *value, size_t size, size_t width,
                        size_t height) {
    CUresult failed = spend(stream, 0, size * width * height);
    return failed ? failed : fill(to, pitch, value, size, width, height);
}

CUresult fill_box(const struct fill *f) {
    return fill(f->to, f->pitch, &f->value, f->size, f->width, f->height ? f->height : 1);
}

#define FILLS(bits, type)                                                                                              \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) {                                          \
        ENTER(WAITS); return fill_on(NOW, to, 0, &value, sizeof value, n, 1);                                          \
    }                                                                                                                  \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, struct stream *stream) {                 \
        ENTER(WAITS); return fill_on(stream, to, 0, &value, sizeof value, n, 1);                                       \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {       \
        ENTER(WAITS); return fill_on(NOW, to, pitch, &value, sizeof value, width, height);                             \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,       \
                                          struct stream *stream) {                                                     \
        ENTER(WAITS); return fill_on(stream, to, pitch, &value, sizeof value, width, height);                          \
    }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)

#define PER_THREAD_FORMS(function, ending) ALSO(function, function##ending)

PER_THREAD_FORMS(cuMemcpy, _ptds)
PER_THREAD_FORMS(cuMemcpyHtoD_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyDtoH_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyDtoD_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyPeer, _ptds)
PER_THREAD_FORMS(cuMemcpyAsync, _ptsz)
PER_THREAD_FORMS(cuMemcpyHtoDAsync_v2, _ptsz)
PER_THREAD_FORMS(cuMemcpyDtoHAsync_v2, _ptsz)
PER_THREAD_FORMS(cuMemcpyDtoDAsync_v2, _ptsz)
PER_THREAD_FORMS(cuMemcpyPeerAsync, _ptsz)
PER_THREAD_FORMS(cuMemsetD8_v2, _ptds)
PER_THREAD_FORMS(cuMemsetD16_v2, _ptds)
PER_THREAD_FORMS(cuMemsetD32_v2, _ptds)
PER_THREAD_FORMS(cuMemsetD2D8_v2, _ptds)
PER_THREAD_FORMS(cuMemsetD2D16_v2, _ptds)
PER_THREAD_FORMS(cuMemsetD2D32_v2, _ptds)
PER_THREAD_FORMS(cuMemsetD8Async, _ptsz)
PER_THREAD_FORMS(cuMemsetD16Async, _ptsz)
PER_THREAD_FORMS(cuMemsetD32Async, _ptsz)
PER_THREAD_FORMS(cuMemsetD2D8Async, _ptsz)
PER_THREAD_FORMS(cuMemsetD2D16Async, _ptsz)
PER_THREAD_FORMS(cuMemsetD2D32Async, _ptsz)
PER_THREAD_FORMS(cuMemcpy3D_v2, _ptds)
PER_THREAD_FORMS(cuMemcpy3DPeer, _ptds)
PER_THREAD_FORMS(cuMemcpy2D_v2, _ptds)
PER_THREAD_FORMS(cuMemcpy2DUnaligned_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyHtoA_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyAtoH_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyDtoA_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyAtoD_v2, _ptds)
PER_THREAD_FORMS(cuMemcpyAtoA_v2, _ptds)
PER_THREAD_FORMS(cuMemcpy3DAsync_v2, _ptsz)
PER_THREAD_FORMS(cuMemcpy3DPeerAsync, _ptsz)
PER_THREAD_FORMS(cuMemcpy2DAsync_v2, _ptsz)
PER_THREAD_FORMS(cuMemcpyHtoAAsync_v2, _ptsz)
PER_THREAD_FORMS(cuMemcpyAtoHAsync_v2, _ptsz)
