/* Queues: a record for each stream on which the program launches. */
#include "launches/window.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUCKETS = 256, NON_BLOCKING = 1 };
static struct queue *_Atomic buckets[BUCKETS];
struct queue *queues;
unsigned captures_beginning;

static struct queue *_Atomic *bucket_of(CUstream stream, CUcontext key) {
    uint64_t mixed = ((uintptr_t)stream ^ (uintptr_t)key << 7) * 0x9e3779b97f4a7c15ull;
    return &buckets[mixed >> 56];
}

/* Under the lock: the context is gone, and with it the events and the first `launched` launches. */
static void drop(struct queue *queue, uint64_t launched) {
    for (int i = 0; i < MOST_EVENTS; i++) queue->events[i].handle = NULL;
    atomic_store(&queue->pending, 0);
    atomic_store(&queue->open, 0);
    atomic_store(&queue->queued, 0);
    atomic_store(&queue->covered, launched);
    atomic_store(&queue->completed, launched);
    atomic_store(&queue->next_at, 0);
    queue->launched_seen = queue->handed_over = launched;
    if (launched != atomic_load(&queue->launched)) return; /* there are launches in a new context */
    queue->context = NULL;
    atomic_store(&queue->share, NULL);
}

struct queue *queue_add(CUstream stream, CUcontext key) {
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue) return NULL;
    *queue = (struct queue){.next_of_all = queues, .stream = stream, .key = key, .step = 1, .lead = LEAST_LEAD};
    queues = queue;
    if (stream == STREAM_PER_THREAD) return queue;
    struct queue *_Atomic *bucket = bucket_of(stream, key);
    queue->next = atomic_load(bucket);
    atomic_store(bucket, queue);
    return queue;
}

struct queue *queue_find(CUstream stream, CUcontext key) {
    struct queue *queue = stream == STREAM_PER_THREAD ? threads_own_queues() : atomic_load(bucket_of(stream, key));
    while (queue && !(queue->stream == stream && queue->key == key)) queue = queue->next;
    return queue;
}

void queue_bind(struct queue *queue, CUcontext context, struct share *share, bool waits) {
    if (queue->context && queue->context != context) { /* the handle was reused */
        drop(queue, atomic_load(&queue->launched));
        queue->ending = 0;
        queue->context_gone = false;
    }
    queue->context = context;
    queue->owner = share;
    queue->waits = waits;
    atomic_store(&queue->share, share);
}

/* Call this in the stream's context. */
static bool waits_for_legacy(CUstream stream) {
    unsigned flags = 0;
    if (stream == STREAM_LEGACY || stream == STREAM_PER_THREAD || !DRIVER(cuStreamGetFlags)) return stream != STREAM_LEGACY;
    return DRIVER(cuStreamGetFlags)(stream, &flags) != CUDA_SUCCESS || !(flags & NON_BLOCKING);
}

/* Find a stream's context, device and share, and create its queue. Slow, but needed once for each stream only. */
static struct queue *queue_create(CUstream stream, CUcontext key) {
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
    gate_lock();
    struct queue *queue = own ? threads_find(key, number) : queue_find(stream, key);
    if (!queue) queue = queue_add(stream, key);
    if (queue && own) threads_take(queue, key, number);
    if (queue) queue_bind(queue, context, share, waits);
    gate_unlock();
    return queue;
}

struct queue *queue_of(CUstream stream) {
    CUcontext key = NULL;
    if (stream == STREAM_LEGACY || stream == STREAM_PER_THREAD) /* they belong to the current context; the driver knows that of other streams */
        if (!DRIVER(cuCtxGetCurrent) || DRIVER(cuCtxGetCurrent)(&key) != CUDA_SUCCESS || !key) return NULL;
    struct queue *queue = queue_find(stream, key);
    return queue && atomic_load_explicit(&queue->share, memory_order_relaxed) ? queue : queue_create(stream, key);
}

bool queue_before(CUstream one, CUstream other) {
    struct queue *first = queue_of(one), *second = queue_of(other);
    struct share *a = first ? atomic_load(&first->share) : NULL, *b = second ? atomic_load(&second->share) : NULL;
    return a && b && strcmp(a->uuid, b->uuid) < 0;
}

bool queue_is_capturing(struct queue *queue) { return stream_is_capturing(queue->stream); }

/* --- events before captures and ends ------------------------------------------------------------------------------ */

/* Under the lock: record events after all launches in a stream before it is captured or destroyed; return whether there was
 * room for the events. The legacy stream cannot record while another stream is captured, so record there first if that is
 * harmless; otherwise its work counts until the capture ends. */
static bool cover_queues(CUstream stream, bool ends) {
    bool all_closed = true;
    long number = stream == STREAM_PER_THREAD ? threads_number() : 0;
    for (struct queue *queue = queues; queue; queue = queue->next_of_all) {
        bool same = queue->stream == stream && queue->thread == number;
        if (!(same || (queue->stream == STREAM_LEGACY && !ends)) || !atomic_load(&queue->share) || queue->ending) continue;
        events_retire(queue);
        if (same)
            events_record(queue, 0, WINDOW, LAST);
        else
            events_cover(queue, false);
        if (same && stream != STREAM_LEGACY && atomic_load(&queue->launched) != atomic_load(&queue->covered))
            all_closed = false;
        else if (ends)
            atomic_store(&queue->share, NULL);
    }
    return all_closed;
}

static void cover_stream(CUstream stream, bool ends) {
    for (bool closed = false; !closed && !gate_ending();) {
        gate_lock();
        closed = cover_queues(stream, ends);
        if (closed && !ends) captures_beginning++;
        gate_unlock();
        if (!closed) nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    }
}

void window_before_stream_end(CUstream stream) { cover_stream(stream, true); }

void window_before_capture(CUstream stream) { cover_stream(stream, false); }

void window_after_capture(void) {
    gate_lock();
    if (captures_beginning) captures_beginning--;
    gate_unlock();
}

void window_before_context_end(CUcontext context) {
    for (struct queue *queue = queues; queue; queue = queue->next_of_all)
        if (context && queue->context == context && !queue->ending++) queue->last = atomic_load(&queue->launched);
}

void window_after_context_end(CUcontext context, bool gone) {
    for (struct queue *queue = queues; queue; queue = queue->next_of_all) {
        if (!context || queue->context != context || !queue->ending) continue;
        queue->context_gone |= gone;
        if (--queue->ending) continue;
        if (queue->context_gone) drop(queue, queue->last);
        queue->context_gone = false;
    }
}

void window_parked(void) {
    for (struct queue *queue = queues; queue; queue = queue->next_of_all) {
        uint64_t launched = atomic_load(&queue->launched);
        if (queue->owner) queue->owner->ended += atomic_load(&queue->pending);
        atomic_store(&queue->pending, 0);
        atomic_store(&queue->open, 0);
        atomic_store(&queue->queued, 0);
        atomic_store(&queue->covered, launched);
        atomic_store(&queue->completed, launched);
        atomic_store(&queue->uncovered_since, 0);
        atomic_store(&queue->next_at, 0);
        queue->launched_seen = queue->handed_over = launched;
    }
}

void window_fork(void) {
    for (int i = 0; i < BUCKETS; i++) atomic_store(&buckets[i], NULL);
    queues = NULL;
    threads_fork();
    captures_beginning = 0;
}
