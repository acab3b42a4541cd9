/* Arrays and mipmapped arrays: boxes of elements, row after row. */
#include "memory.h"

#include <stdlib.h>

struct shape { /* CUDA_ARRAY3D_DESCRIPTOR */
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

struct flat_shape { /* CUDA_ARRAY_DESCRIPTOR */
    size_t width, height;
    int format;
    unsigned channels;
};

struct array {
    struct shape shape;
    size_t element;
    struct allocation *allocation;
};

struct mipmap {
    unsigned count;
    struct array *levels[];
};

static size_t at_least_1(size_t size) { return size ? size : 1; }

char *array_at(const struct array *array, size_t x, size_t y, size_t z) {
    return array->allocation->base + (z * at_least_1(array->shape.height) + y) * array->shape.width * array->element + x;
}

size_t array_element(const struct array *array) { return array->element; }

/* Return the bytes of one channel. */
static size_t size_of(int format) {
    switch (format) {
    case 0x01: case 0x08: case 0xc0: case 0xc1: case 0xc2: return 1;
    case 0x02: case 0x09: case 0x10: case 0xc3: case 0xc4: case 0xc5: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 0;
    }
}

static CUresult create(struct array **array, struct shape shape) {
    struct context *context;
    CUresult failed = current(&context);
    if (failed) return failed;
    size_t element = size_of(shape.format) * shape.channels;
    int channels_fit = shape.channels == 1 || shape.channels == 2 || shape.channels == 4;
    if (!array || !shape.width || !element || !channels_fit) return INVALID_VALUE;
    size_t bytes = shape.width * at_least_1(shape.height) * at_least_1(shape.depth) * element;
    struct allocation *allocation = obtain(context->device, bytes, ARRAY);
    if (!allocation) return OUT_OF_MEMORY;
    *array = malloc(sizeof **array);
    **array = (struct array){shape, element, allocation};
    return OK;
}

API CUresult cuArray3DCreate_v2(struct array **array, const struct shape *shape) {
    ENTER(WAITS);
    return shape ? create(array, *shape) : INVALID_VALUE;
}

API CUresult cuArrayCreate_v2(struct array **array, const struct flat_shape *flat) {
    ENTER(WAITS);
    if (!flat) return INVALID_VALUE;
    return create(array, (struct shape){flat->width, flat->height, 0, flat->format, flat->channels, 0});
}

API CUresult cuArray3DGetDescriptor_v2(struct shape *shape, struct array *array) {
    if (!shape || !array) return INVALID_VALUE;
    *shape = array->shape;
    return standin_state;
}

API CUresult cuArrayGetDescriptor_v2(struct flat_shape *flat, struct array *array) {
    if (!flat || !array) return INVALID_VALUE;
    const struct shape *shape = &array->shape;
    *flat = (struct flat_shape){shape->width, shape->height, shape->format, shape->channels};
    return standin_state;
}

API CUresult cuArrayDestroy(struct array *array) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!array) return INVALID_HANDLE;
    release(array->allocation);
    free(array);
    return OK;
}

API CUresult cuMipmappedArrayDestroy(struct mipmap *mipmap) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!mipmap) return INVALID_HANDLE;
    for (unsigned level = 0; level < mipmap->count; level++) cuArrayDestroy(mipmap->levels[level]);
    free(mipmap);
    return OK;
}

static size_t half(size_t size) { return size > 1 ? size / 2 : size; }

API CUresult cuMipmappedArrayCreate(struct mipmap **mipmap, const struct shape *whole, unsigned levels) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!mipmap || !whole || !levels || levels > 32) return INVALID_VALUE;
    struct mipmap *made = calloc(1, sizeof *made + levels * sizeof *made->levels);
    struct shape shape = *whole;
    for (; made->count < levels; made->count++) {
        CUresult failed = create(&made->levels[made->count], shape);
        if (failed) {
            cuMipmappedArrayDestroy(made);
            return failed;
        }
        shape.width = half(shape.width), shape.height = half(shape.height), shape.depth = half(shape.depth);
    }
    *mipmap = made;
    return OK;
}

API CUresult cuMipmappedArrayGetLevel(struct array **array, struct mipmap *mipmap, unsigned level) {
    if (!array || !mipmap || level >= mipmap->count) return INVALID_VALUE;
    *array = mipmap->levels[level];
    return standin_state;
}
