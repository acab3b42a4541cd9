/* cuMemBatchDecompressAsync, for LZ4 blocks only. */
#include "memory.h"

#include <string.h>

enum { SHORTEST = 4, MORE = 15 }; /* bytes of a match; a length field of this value continues in further bytes */

struct packed { /* CUmemDecompressParams */
    size_t bytes, expected;
    uint32_t *made;
    const unsigned char *from;
    unsigned char *to;
    int algorithm;
    unsigned char nothing[20];
};

_Static_assert(sizeof(struct packed) == 64, "as programs lay it out");

struct input {
    const unsigned char *at, *end;
};

/* Read a length, which may continue in bytes of 255. */
static size_t length(struct input *in, unsigned first) {
    size_t all = first;
    for (unsigned char more = 255; first == MORE && more == 255 && in->at < in->end; all += more) more = *in->at++;
    return all;
}

/* Decompress a block of LZ4 into at most `room` bytes; return how many, or -1 if it is invalid. */
static int64_t unpack(struct input in, unsigned char *to, size_t room) {
    size_t made = 0;
    while (in.at < in.end) {
        unsigned token = *in.at++;
        size_t count = length(&in, token >> 4);
        if (count > (size_t)(in.end - in.at) || count > room - made) return -1;
        memcpy(to + made, in.at, count);
        made += count, in.at += count;
        if (in.at == in.end) return (int64_t)made; /* the last sequence has no match */
        if (in.end - in.at < 2) return -1;
        size_t back = in.at[0] | (size_t)in.at[1] << 8;
        in.at += 2;
        count = length(&in, token & MORE) + SHORTEST;
        if (!back || back > made || count > room - made) return -1;
        for (; count; count--, made++) to[made] = to[made - back];
    }
    return -1;
}

static int right(const struct packed *one) {
    int fits = one->bytes && one->expected && one->expected <= MOST_DECOMPRESSED && one->algorithm == DECOMPRESSES;
    return fits && one->made && on_gpu((CUdeviceptr)(uintptr_t)one->from) && on_gpu((CUdeviceptr)(uintptr_t)one->to);
}

/* `failed` becomes the index of the invalid element, or -1. Data that cannot be decompressed is a hardware error, reported
 * later. */
static CUresult decompress(const struct packed *list, size_t count, unsigned flags, size_t *failed, struct stream *on) {
    size_t nobody, *at = failed ? failed : &nobody;
    uint64_t bytes = 0;
    *at = SIZE_MAX;
    if (!list || !count || flags) return INVALID_VALUE;
    for (size_t i = 0; i < count; bytes += list[i++].expected) {
        if (right(&list[i])) continue;
        *at = i;
        return INVALID_VALUE;
    }
    CUresult result = spend(on, 0, bytes);
    for (size_t i = 0; !result && i < count; i++) {
        int64_t made = unpack((struct input){list[i].from, list[i].from + list[i].bytes}, list[i].to, list[i].expected);
        *list[i].made = made < 0 ? 0 : (uint32_t)made;
    }
    return result;
}

FORMS(cuMemBatchDecompressAsync, (struct packed *list, size_t count, unsigned flags, size_t *failed, struct stream *stream),
      decompress(list, count, flags, failed, on))
