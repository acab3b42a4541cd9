/* Lanes: the streams that a program launches on, and what ends them. */
#include "launches/window.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUCKETS = 256, NON_BLOCKING = 1 };
static struct lane *_Atomic buckets[BUCKETS];
struct lane *lanes;
unsigned lanes_beginning;

static struct lane *_Atomic *bucket_of(CUstream stream, CUcontext key) {
    uint64_t mixed = ((uintptr_t)stream ^ (uintptr_t)key << 7) * 0x9e3779b97f4a7c15ull;
    return &buckets[mixed >> 56];
}

/* Under the lock: its context is gone, and with it its events and its first `launched` launches. */
static void drop(struct lane *lane, uint64_t launched) {
    for (int i = 0; i < MARKS; i++) lane->marks[i].event = NULL;
    atomic_store(&lane->marked, 0);
    atomic_store(&lane->open, 0);
    atomic_store(&lane->queued, 0);
    atomic_store(&lane->covered, launched);
    atomic_store(&lane->over, launched);
    atomic_store(&lane->next_at, 0);
    lane->seen = lane->handed = launched;
    if (launched != atomic_load(&lane->launched)) return; /* in a new context */
    lane->context = NULL;
    atomic_store(&lane->share, NULL);
}

struct lane *lane_add(CUstream stream, CUcontext key) {
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane) return NULL;
    *lane = (struct lane){.other = lanes, .stream = stream, .key = key, .step = 1, .lead = LEAST_LEAD};
    lanes = lane;
    if (stream == STREAM_PER_THREAD) return lane;
    struct lane *_Atomic *bucket = bucket_of(stream, key);
    lane->next = atomic_load(bucket);
    atomic_store(bucket, lane);
    return lane;
}

struct lane *lane_find(CUstream stream, CUcontext key) {
    struct lane *lane = stream == STREAM_PER_THREAD ? threads_own_lanes() : atomic_load(bucket_of(stream, key));
    while (lane && !(lane->stream == stream && lane->key == key)) lane = lane->next;
    return lane;
}

void lane_begins(struct lane *lane, CUcontext context, struct share *share, bool waits) {
    if (lane->context && lane->context != context) { /* a handle that is used again */
        drop(lane, atomic_load(&lane->launched));
        lane->ending = 0;
        lane->gone = false;
    }
    lane->context = context;
    lane->owner = share;
    lane->waits = waits;
    atomic_store(&lane->share, share);
}

/* In its context. */
static bool waits_for_legacy(CUstream stream) {
    unsigned flags = 0;
    if (stream == STREAM_LEGACY || stream == STREAM_PER_THREAD || !DRIVER(cuStreamGetFlags)) return stream != STREAM_LEGACY;
    return DRIVER(cuStreamGetFlags)(stream, &flags) != CUDA_SUCCESS || !(flags & NON_BLOCKING);
}

/* Slow, once a stream: finds its context, device and share. */
static struct lane *lane_make(CUstream stream, CUcontext key) {
    CUcontext context = key;
    CUdevice device;
    if (!key && (!DRIVER(cuStreamGetCtx) || DRIVER(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS))
        if (DRIVER(cuCtxGetCurrent)(&context) != CUDA_SUCCESS) return NULL;
    int mode;
    if (!context_enter(context, &mode)) return NULL;
    CUresult result = DRIVER(cuCtxGetDevice)(&device);
    bool waits = waits_for_legacy(stream);
    context_leave(mode);
    struct share *share = result == CUDA_SUCCESS ? share_of(device) : NULL;
    if (!share) return NULL;
    bool own = stream == STREAM_PER_THREAD;
    long number = own ? threads_number() : 0;
    gate_enter();
    struct lane *lane = own ? threads_find(key, number) : lane_find(stream, key);
    if (!lane) lane = lane_add(stream, key);
    if (lane && own) threads_take(lane, key, number);
    if (lane) lane_begins(lane, context, share, waits);
    gate_leave();
    return lane;
}

struct lane *lane_of(CUstream stream) {
    CUcontext key = NULL;
    if (stream == STREAM_LEGACY || stream == STREAM_PER_THREAD) /* of the current context; others know theirs */
        if (!DRIVER(cuCtxGetCurrent) || DRIVER(cuCtxGetCurrent)(&key) != CUDA_SUCCESS || !key) return NULL;
    struct lane *lane = lane_find(stream, key);
    return lane && atomic_load_explicit(&lane->share, memory_order_relaxed) ? lane : lane_make(stream, key);
}

bool lane_before(CUstream one, CUstream other) {
    struct lane *first = lane_of(one), *second = lane_of(other);
    struct share *a = first ? atomic_load(&first->share) : NULL, *b = second ? atomic_load(&second->share) : NULL;
    return a && b && strcmp(a->uuid, b->uuid) < 0;
}

bool lane_capturing(struct lane *lane) { return stream_capturing(lane->stream); }

/* --- what goes away ----------------------------------------------------------------------------------------------- */

/* Under the lock: whether there was room for an event, where one was needed. In the legacy stream none can be recorded while
 * another one is captured, so that is done before, where it does no harm; else its work counts until the capture has ended. */
static bool close_lanes(CUstream stream, bool ends) {
    bool all_closed = true;
    long number = stream == STREAM_PER_THREAD ? threads_number() : 0;
    for (struct lane *lane = lanes; lane; lane = lane->other) {
        bool same = lane->stream == stream && lane->thread == number;
        if (!(same || (lane->stream == STREAM_LEGACY && !ends)) || !atomic_load(&lane->share) || lane->ending) continue;
        marks_retire(lane);
        if (same)
            marks_put(lane, 0, WINDOW, LAST);
        else
            marks_cover(lane, false);
        if (same && stream != STREAM_LEGACY && atomic_load(&lane->launched) != atomic_load(&lane->covered))
            all_closed = false;
        else if (ends)
            atomic_store(&lane->share, NULL);
    }
    return all_closed;
}

static void close_stream(CUstream stream, bool ends) {
    for (bool closed = false; !closed && !gate_ending();) {
        gate_enter();
        closed = close_lanes(stream, ends);
        if (closed && !ends) lanes_beginning++;
        gate_leave();
        if (!closed) nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    }
}

void window_stream_ends(CUstream stream) { close_stream(stream, true); }

void window_begins_capture(CUstream stream) { close_stream(stream, false); }

void window_began_capture(void) {
    gate_enter();
    if (lanes_beginning) lanes_beginning--;
    gate_leave();
}

void window_context_ends(CUcontext context) {
    for (struct lane *lane = lanes; lane; lane = lane->other)
        if (context && lane->context == context && !lane->ending++) lane->last = atomic_load(&lane->launched);
}

void window_context_ended(CUcontext context, bool gone) {
    for (struct lane *lane = lanes; lane; lane = lane->other) {
        if (!context || lane->context != context || !lane->ending) continue;
        lane->gone |= gone;
        if (--lane->ending) continue;
        if (lane->gone) drop(lane, lane->last);
        lane->gone = false;
    }
}

void window_fork(void) {
    for (int i = 0; i < BUCKETS; i++) atomic_store(&buckets[i], NULL);
    lanes = NULL;
    threads_fork();
    lanes_beginning = 0;
}
