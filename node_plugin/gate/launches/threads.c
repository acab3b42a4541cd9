/* Per-thread default streams: each thread finds its own queues, one for each context, and hands them over when it ends.
 *
 * They are kept in a thread-specific key of the C library (pthread_key_create): __thread variables need glibc's loader, or
 * musl's refuses them. If no key is left, queues are found by the thread's number, under the lock. */
#define _GNU_SOURCE
#include "launches/window.h"

#include <sys/syscall.h>
#include <unistd.h>

static int (*create)(pthread_key_t *, void (*)(void *));
static void *(*get)(pthread_key_t);
static int (*set)(pthread_key_t, const void *);
static pthread_key_t key_of_queues;
static _Atomic bool has_key;

struct queue *threads_own_queues(void) { return atomic_load_explicit(&has_key, memory_order_acquire) ? get(key_of_queues) : NULL; }

long threads_number(void) { return syscall(SYS_gettid); }

static void thread_ended(void *first) {
    gate_lock_own(); /* it calls no driver, and is not to wait while the process is parked */
    for (struct queue *queue = first, *next; queue; queue = next) {
        next = queue->next;
        queue_hand_over(queue);
        queue->thread = 0;
    }
    gate_unlock();
}

/* Under the lock, once. Older C libraries have these functions in another library. */
static void find_key(void) {
    static bool tried;
    if (tried) return;
    tried = true;
    create = (__typeof__(create))process_symbol("pthread_key_create");
    get = (__typeof__(get))process_symbol("pthread_getspecific");
    set = (__typeof__(set))process_symbol("pthread_setspecific");
    atomic_store(&has_key, create && get && set && create(&key_of_queues, thread_ended) == 0);
}

struct queue *threads_find(CUcontext key, long number) {
    find_key();
    for (struct queue *queue = queues; queue; queue = queue->next_of_all)
        if (queue->stream == STREAM_PER_THREAD && queue->key == key && queue->thread == number) return queue;
    for (struct queue *queue = queues; queue; queue = queue->next_of_all) {
        bool over = !queue->ending && !atomic_load(&queue->pending) && atomic_load(&queue->launched) == atomic_load(&queue->covered);
        if (queue->stream == STREAM_PER_THREAD && !queue->thread && over && (queue->key == key || !queue->context)) return queue;
    }
    return NULL;
}

void threads_take(struct queue *queue, CUcontext key, long number) {
    struct queue *first = threads_own_queues(), *one = first;
    while (one && one != queue) one = one->next;
    if (one) return;
    queue->key = key;
    queue->thread = number;
    queue->next = first;
    if (atomic_load(&has_key)) set(key_of_queues, queue);
}

bool queue_hand_over(struct queue *queue) {
    uint64_t none = 0, launched = atomic_load(&queue->launched), left = launched - atomic_load(&queue->covered);
    if (!left || !queue->context || queue->ending) return true; /* or the launches ended with their context */
    struct queue *legacy = queue_find(STREAM_LEGACY, queue->context);
    if (!legacy) legacy = queue_add(STREAM_LEGACY, queue->context);
    if (!legacy) return false;
    if (!legacy->context) queue_bind(legacy, queue->context, queue->owner, false);
    legacy->handed_over = atomic_fetch_add(&legacy->launched, left) + left;
    atomic_compare_exchange_strong(&legacy->uncovered_since, &none, atomic_load(&queue->uncovered_since));
    atomic_store(&queue->covered, launched);
    atomic_store(&queue->completed, launched);
    atomic_store(&queue->uncovered_since, 0);
    return true;
}

void threads_fork(void) {
    if (atomic_load(&has_key)) set(key_of_queues, NULL);
}
