/* Lanes: the streams that a program launches on, and what ends them. */
#include "window.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUCKETS = 256 };
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
    atomic_store(&lane->queued, 0);
    atomic_store(&lane->covered, launched);
    atomic_store(&lane->over, launched);
    atomic_store(&lane->next_at, 0);
    lane->seen = launched;
    if (launched != atomic_load(&lane->launched)) return; /* in a new context */
    lane->context = NULL;
    atomic_store(&lane->share, NULL);
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
    context_leave(mode);
    struct share *share = result == CUDA_SUCCESS ? share_of(device) : NULL;
    if (!share) return NULL;
    gate_enter();
    struct lane *_Atomic *bucket = bucket_of(stream, key);
    struct lane *lane = atomic_load(bucket);
    while (lane && !(lane->stream == stream && lane->key == key)) lane = lane->next;
    if (lane) { /* a handle that is used again */
        if (lane->context != context) {
            drop(lane, atomic_load(&lane->launched));
            lane->ending = 0;
            lane->gone = false;
        }
    } else if ((lane = calloc(1, sizeof *lane))) {
        *lane = (struct lane){.next = atomic_load(bucket), .other = lanes, .stream = stream, .key = key, .step = 1, .lead = LEAST_LEAD};
        lanes = lane;
        atomic_store(bucket, lane);
    }
    if (lane) {
        lane->context = context;
        lane->owner = share;
        atomic_store(&lane->share, share);
    }
    gate_leave();
    return lane;
}

struct lane *lane_of(CUstream stream) {
    CUcontext key = NULL;
    if (stream == STREAM_LEGACY || stream == STREAM_PER_THREAD) /* of the current context; others know theirs */
        if (!DRIVER(cuCtxGetCurrent) || DRIVER(cuCtxGetCurrent)(&key) != CUDA_SUCCESS || !key) return NULL;
    for (struct lane *lane = atomic_load(bucket_of(stream, key)); lane; lane = lane->next)
        if (lane->stream == stream && lane->key == key && atomic_load_explicit(&lane->share, memory_order_relaxed))
            return lane;
    return lane_make(stream, key);
}

bool lane_before(CUstream one, CUstream other) {
    struct lane *first = lane_of(one), *second = lane_of(other);
    struct share *a = first ? atomic_load(&first->share) : NULL, *b = second ? atomic_load(&second->share) : NULL;
    return a && b && strcmp(a->uuid, b->uuid) < 0;
}

bool lane_capturing(struct lane *lane) { return stream_capturing(lane->stream); }

/* --- what goes away ----------------------------------------------------------------------------------------------- */

/* Under the lock: whether there was room for an event, where one was needed. In the legacy stream none can be recorded while
 * another is captured. */
static bool close_lanes(CUstream stream, bool ends) {
    bool all_closed = true;
    for (struct lane *lane = lanes; lane; lane = lane->other) {
        bool other = lane->stream != stream && (ends || lane->stream != STREAM_LEGACY);
        if (other || !atomic_load(&lane->share) || lane->ending) continue;
        marks_retire(lane);
        marks_put(lane, 0, WINDOW, false, false);
        if (atomic_load(&lane->launched) != atomic_load(&lane->covered))
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
    lanes_beginning = 0;
}
