/* Default streams of threads: each thread finds its own lanes, and gives them up when it ends.
 *
 * It finds them, one for each context, by a key of the C library: variables of a thread (__thread) need the loader of
 * glibc or are refused by that of musl. Where there is no key left, they are found by the thread's number, under the lock. */
#define _GNU_SOURCE
#include "launches/window.h"

#include <sys/syscall.h>
#include <unistd.h>

static int (*create)(pthread_key_t *, void (*)(void *));
static void *(*get)(pthread_key_t);
static int (*set)(pthread_key_t, const void *);
static pthread_key_t key_of_lanes;
static _Atomic bool has_key;

struct lane *threads_own_lanes(void) { return atomic_load_explicit(&has_key, memory_order_acquire) ? get(key_of_lanes) : NULL; }

long threads_number(void) { return syscall(SYS_gettid); }

static void thread_ended(void *first) {
    gate_enter();
    for (struct lane *lane = first, *next; lane; lane = next) {
        next = lane->next;
        lane_hand_over(lane);
        lane->thread = 0;
    }
    gate_leave();
}

/* Under the lock, once. These functions are in another library in older C libraries. */
static void find_key(void) {
    static bool tried;
    if (tried) return;
    tried = true;
    create = (__typeof__(create))process_symbol("pthread_key_create");
    get = (__typeof__(get))process_symbol("pthread_getspecific");
    set = (__typeof__(set))process_symbol("pthread_setspecific");
    atomic_store(&has_key, create && get && set && create(&key_of_lanes, thread_ended) == 0);
}

struct lane *threads_find(CUcontext key, long number) {
    find_key();
    for (struct lane *lane = lanes; lane; lane = lane->other)
        if (lane->stream == STREAM_PER_THREAD && lane->key == key && lane->thread == number) return lane;
    for (struct lane *lane = lanes; lane; lane = lane->other) {
        bool over = !lane->ending && !atomic_load(&lane->marked) && atomic_load(&lane->launched) == atomic_load(&lane->covered);
        if (lane->stream == STREAM_PER_THREAD && !lane->thread && over && (lane->key == key || !lane->context)) return lane;
    }
    return NULL;
}

void threads_take(struct lane *lane, CUcontext key, long number) {
    struct lane *first = threads_own_lanes(), *one = first;
    while (one && one != lane) one = one->next;
    if (one) return;
    lane->key = key;
    lane->thread = number;
    lane->next = first;
    if (atomic_load(&has_key)) set(key_of_lanes, lane);
}

bool lane_hand_over(struct lane *lane) {
    uint64_t none = 0, launched = atomic_load(&lane->launched), left = launched - atomic_load(&lane->covered);
    if (!left || !lane->context || lane->ending) return true; /* or they are over with their context */
    struct lane *legacy = lane_find(STREAM_LEGACY, lane->context);
    if (!legacy) legacy = lane_add(STREAM_LEGACY, lane->context);
    if (!legacy) return false;
    if (!legacy->context) lane_begins(legacy, lane->context, lane->owner, false);
    legacy->handed = atomic_fetch_add(&legacy->launched, left) + left;
    atomic_compare_exchange_strong(&legacy->begun, &none, atomic_load(&lane->begun));
    atomic_store(&lane->covered, launched);
    atomic_store(&lane->over, launched);
    atomic_store(&lane->begun, 0);
    return true;
}

void threads_fork(void) {
    if (atomic_load(&has_key)) set(key_of_lanes, NULL);
}
