/* Functions that allocate and free memory, and those that report how much there is. */
#include "memory/counting.h"

/* --- by address --------------------------------------------------------------------------------------------------- */

static CUresult allocated(struct claim *claimed, CUresult result, CUdeviceptr at, uint64_t bytes, bool of_context) {
    return claim_settle(claimed, result, POINTER, at, bytes, of_context);
}

/* `to` is read only after the driver has written it, so not if it failed. */
#define ALLOCATE(symbol, bytes, of_context, ...) \
    struct claim claimed = claim(bytes); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    CUresult result = REAL(symbol)(__VA_ARGS__); \
    return allocated(&claimed, result, result == CUDA_SUCCESS ? *to : 0, bytes, of_context)

CUresult GATE(cuMemAlloc)(unsigned *to, unsigned size) { ALLOCATE(cuMemAlloc, size, true, to, size); }

CUresult GATE(cuMemAlloc_v2)(CUdeviceptr *to, size_t size) { ALLOCATE(cuMemAlloc_v2, size, true, to, size); }

/* Managed memory may exceed the GPU's, as it is host memory until it is used. An allocation that does not fit is not refused
 * but advised to stay in host memory, where the GPU can use it. If the program moves it all the same, the comparison with
 * NVML detects that. */
enum { PREFERRED_LOCATION = 3, ACCESSED_BY = 5 /* advice */, HOST = -1 };

static bool stays_in_host(CUdeviceptr at, size_t size) {
    CUdevice device;
    if (NEWER(cuMemAdvise)(at, size, PREFERRED_LOCATION, HOST) != CUDA_SUCCESS) return false;
    if (DRIVER(cuCtxGetDevice)(&device) == CUDA_SUCCESS) NEWER(cuMemAdvise)(at, size, ACCESSED_BY, device);
    return true;
}

CUresult GATE(cuMemFree_v2)(CUdeviceptr at);

CUresult GATE(cuMemAllocManaged)(CUdeviceptr *to, size_t size, unsigned flags) {
    struct claim claimed = claim(size);
    CUresult result = REAL(cuMemAllocManaged)(to, size, flags);
    if (!claimed.refused) return allocated(&claimed, result, result == CUDA_SUCCESS ? *to : 0, size, true);
    if (result != CUDA_SUCCESS || stays_in_host(*to, size)) return result;
    REAL(cuMemFree_v2)(*to);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t product(uint64_t one, uint64_t other) {
    uint64_t all;
    return __builtin_mul_overflow(one, other, &all) ? UINT64_MAX : all;
}

/* The driver chooses the pitch: in known drivers, at most the next multiple of 512. */
static uint64_t pitched(uint64_t width, uint64_t height) {
    return width > UINT64_MAX - 511 ? UINT64_MAX : product((width + 511) / 512 * 512, height);
}

CUresult GATE(cuMemAllocPitch)(unsigned *to, unsigned *pitch, unsigned width, unsigned height, unsigned size) {
    struct claim claimed = claim(pitched(width, height));
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAllocPitch)(to, pitch, width, height, size);
    return result == CUDA_SUCCESS ? allocated(&claimed, result, *to, product(*pitch, height), true)
                                  : allocated(&claimed, result, 0, 0, true);
}

CUresult GATE(cuMemAllocPitch_v2)(CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned size) {
    struct claim claimed = claim(pitched(width, height));
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAllocPitch_v2)(to, pitch, width, height, size);
    return result == CUDA_SUCCESS ? allocated(&claimed, result, *to, product(*pitch, height), true)
                                  : allocated(&claimed, result, 0, 0, true);
}

#define DEALLOCATE(symbol, key, id, ...) \
    struct entry *entry = memory_remove(key, (uint64_t)(id)); \
    CUresult result = REAL(symbol)(__VA_ARGS__); \
    reserves_read(); /* the memory may return to a pool */ \
    return memory_after_free(entry, result)

CUresult GATE(cuMemFree)(unsigned at) { DEALLOCATE(cuMemFree, POINTER, at, at); }

CUresult GATE(cuMemFree_v2)(CUdeviceptr at) { DEALLOCATE(cuMemFree_v2, POINTER, at, at); }

/* --- arrays ------------------------------------------------------------------------------------------------------- */

/* Return the bits of one element. Those of picture formats do not depend on the channels. For compressed formats, return the
 * bits of a block, as the headers do not say whether sizes count elements or blocks. Unknown formats count as the widest
 * channels. */
static uint64_t point_bits(int format, unsigned channels) {
    switch (format) {
    case 0x01: case 0x08: return 8 * (uint64_t)channels;
    case 0x02: case 0x09: case 0x10: return 16 * (uint64_t)channels; /* half floats too */
    case 0xc0: case 0xc6: return 8; /* normalized: 1, 2, 4 channels of 8 and of 16 bits */
    case 0xc1: case 0xc7: case 0xc3: case 0xc9: return 16;
    case 0xc2: case 0xc8: case 0xc4: case 0xca: case 0x50: return 32;
    case 0xc5: case 0xcb: return 64;
    case 0xb0: case 0x53: case 0x59: return 12; /* 4:2:0 of 8 bits */
    case 0x9f: case 0xa1: case 0x54: case 0x5a: return 24; /* 4:2:0 of 16 bits */
    case 0xa2: case 0xa5: case 0x51: case 0x55: case 0x5b: return 16; /* 4:2:2 */
    case 0xa3: case 0xa4: case 0xa6: case 0xa7: case 0x56: case 0x5c: return 32;
    case 0xb2: case 0xb4: case 0x57: case 0x5d: return 24; /* 4:4:4 */
    case 0xa8: case 0xa9: case 0x52: return 32;
    case 0xb3: case 0xb5: case 0x58: case 0x5e: return 48;
    case 0xb1: return 64;
    case 0x91: case 0x92: case 0x97: case 0x98: return 64; /* BC1, BC4 */
    case 0x93: case 0x94: case 0x95: case 0x96: case 0x99: case 0x9a: case 0x9b: case 0x9c: case 0x9d: case 0x9e: return 128;
    default: return 32 * (uint64_t)channels;
    }
}

static uint64_t volume_bytes(const struct volume2 *of, unsigned levels) {
    uint64_t all = 0, width = of->width, height = of->height, depth = of->depth;
    if (of->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) return 0; /* mapped later, to memory that counts */
    for (unsigned i = 0; i < levels && i < 64; i++) {
        uint64_t points = product(product(width ? width : 1, height ? height : 1), depth ? depth : 1);
        uint64_t bits = product(points, point_bits(of->format, of->channels)), bytes = bits == UINT64_MAX ? bits : (bits + 7) / 8;
        if (__builtin_add_overflow(all, bytes, &all)) return UINT64_MAX;
        width /= 2;
        height /= 2;
        depth /= 2;
    }
    return all;
}

static uint64_t array_bytes(size_t width, size_t height, int format, unsigned channels) {
    return volume_bytes(&(struct volume2){width, height, 0, format, channels, 0}, 1);
}

#define ARRAYS(symbol, size, ...) \
    uint64_t bytes = of ? (size) : 0; \
    struct claim claimed = claim(bytes); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    CUresult result = REAL(symbol)(__VA_ARGS__); \
    return claim_settle(&claimed, result, ARRAY, result == CUDA_SUCCESS ? (uint64_t)*to : 0, bytes, true)

CUresult GATE(cuArrayCreate)(CUarray *to, const struct array1 *of) {
    ARRAYS(cuArrayCreate, array_bytes(of->width, of->height, of->format, of->channels), to, of);
}

CUresult GATE(cuArrayCreate_v2)(CUarray *to, const struct array2 *of) {
    ARRAYS(cuArrayCreate_v2, array_bytes(of->width, of->height, of->format, of->channels), to, of);
}

CUresult GATE(cuArray3DCreate)(CUarray *to, const struct volume1 *of) {
    ARRAYS(cuArray3DCreate,
           volume_bytes(&(struct volume2){of->width, of->height, of->depth, of->format, of->channels, of->flags}, 1), to, of);
}

CUresult GATE(cuArray3DCreate_v2)(CUarray *to, const struct volume2 *of) {
    ARRAYS(cuArray3DCreate_v2, volume_bytes(of, 1), to, of);
}

CUresult GATE(cuMipmappedArrayCreate)(CUmipmappedArray *to, const struct volume2 *of, unsigned levels) {
    ARRAYS(cuMipmappedArrayCreate, volume_bytes(of, levels), to, of, levels);
}

CUresult GATE(cuArrayDestroy)(CUarray array) { DEALLOCATE(cuArrayDestroy, ARRAY, array, array); }

CUresult GATE(cuMipmappedArrayDestroy)(CUmipmappedArray array) { DEALLOCATE(cuMipmappedArrayDestroy, ARRAY, array, array); }

/* --- reporting ---------------------------------------------------------------------------------------------------- */

static unsigned narrow(uint64_t bytes) { return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes; }

CUresult GATE(cuMemGetInfo_v2)(size_t *free, size_t *total) {
    CUresult result = REAL(cuMemGetInfo_v2)(free, total);
    if (result == CUDA_SUCCESS && free && total) {
        uint64_t left = *free, all = *total;
        memory_visible(share_of_current(), &left, &all);
        *free = left;
        *total = all;
    }
    return result;
}

CUresult GATE(cuMemGetInfo)(unsigned *free, unsigned *total) {
    CUresult result = REAL(cuMemGetInfo)(free, total);
    if (result == CUDA_SUCCESS && free && total) {
        uint64_t left = *free, all = *total;
        memory_visible(share_of_current(), &left, &all);
        *free = narrow(left);
        *total = narrow(all);
    }
    return result;
}

CUresult GATE(cuDeviceTotalMem_v2)(size_t *bytes, CUdevice device) {
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (result == CUDA_SUCCESS && bytes) {
        uint64_t left = *bytes, all = *bytes;
        memory_visible(share_of(device), &left, &all);
        *bytes = all;
    }
    return result;
}

CUresult GATE(cuDeviceTotalMem)(unsigned *bytes, CUdevice device) {
    CUresult result = REAL(cuDeviceTotalMem)(bytes, device);
    if (result == CUDA_SUCCESS && bytes) {
        uint64_t left = *bytes, all = *bytes;
        memory_visible(share_of(device), &left, &all);
        *bytes = narrow(all);
    }
    return result;
}
