/* Copies and fills. They are done at once, in the order of the calls; those that are not asynchronous first wait for what
 * was launched before, as the calling program expects. */
#include "standin.h"

#include <string.h>

static CUresult ready(int wait) {
    struct context *context;
    CUresult failed = current(&context);
    if (!failed && wait) return stream_wait(&context->legacy);
    return failed;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, int wait) {
    CUresult failed = ready(wait);
    if (failed) return failed;
    if (bytes && (!to || !from)) return INVALID_VALUE;
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return OK;
}

#define AT(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy(to, from, bytes, 1); }
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { return copy(to, AT(from), bytes, 1); }
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { return copy(AT(to), from, bytes, 1); }
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy(to, from, bytes, 1); }

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    (void)stream;
    return copy(to, from, bytes, 0);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, struct stream *stream) {
    return cuMemcpyAsync(to, AT(from), bytes, stream);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    return cuMemcpyAsync(AT(to), from, bytes, stream);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    return cuMemcpyAsync(to, from, bytes, stream);
}

API CUresult cuMemcpyPeer(CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes) {
    (void)a, (void)b;
    return copy(to, from, bytes, 1);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes, struct stream *stream) {
    (void)a, (void)b;
    return cuMemcpyAsync(to, from, bytes, stream);
}

static CUresult fill(CUdeviceptr to, size_t pitch, const void *value, size_t size, size_t width, size_t height, int wait) {
    CUresult failed = ready(wait);
    if (failed) return failed;
    if (!to) return INVALID_VALUE;
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) memcpy((char *)(uintptr_t)to + y * pitch + x * size, value, size);
    return OK;
}

#define FILLS(bits, type)                                                                                              \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) {                                          \
        return fill(to, 0, &value, sizeof value, n, 1, 1);                                                             \
    }                                                                                                                  \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, struct stream *stream) {                 \
        (void)stream;                                                                                                  \
        return fill(to, 0, &value, sizeof value, n, 1, 0);                                                             \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {       \
        return fill(to, pitch, &value, sizeof value, width, height, 1);                                                \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,       \
                                          struct stream *stream) {                                                     \
        (void)stream;                                                                                                  \
        return fill(to, pitch, &value, sizeof value, width, height, 0);                                                \
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
