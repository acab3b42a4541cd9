/* The marks of threads, and the gated functions that have no other reason to be gated: those that ask whether submitted work
 * has ended, or wait for it.
 *
 * Ten functions end the process if they are called while its GPU is parked (docs/designs/real-gpu.md). Shut entries keep out
 * calls that come later; a thread that is on its way into the driver shows by its mark. Only the thread itself writes it, by
 * plain stores: the barrier of entries_block ensures that either the mark is seen, or the thread finds its slot blocked.
 *
 * Marks are found by a key of the C library, as in launches/threads.c. They are never freed, as park.c reads all of them. */
#define _GNU_SOURCE
#include "parking/marks.h"

#include "driver/driver.h"

#include <pthread.h>
#include <stdlib.h>

struct mark {
    struct mark *next;
    _Atomic unsigned inside;
    bool taken; /* by a thread that has not ended; under the mutex */
};

static struct mark crowd; /* of all threads that have none of their own, as there is no memory or no key */
static struct mark *_Atomic marks = &crowd;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *(*get)(pthread_key_t);
static int (*set)(pthread_key_t, const void *);
static pthread_key_t key;
static _Atomic bool has_key;

/* Also of a thread that was cancelled inside. */
static void thread_ended(void *data) {
    struct mark *mark = data;
    pthread_mutex_lock(&mutex);
    atomic_store(&mark->inside, 0);
    mark->taken = false;
    pthread_mutex_unlock(&mutex);
}

/* Under the mutex, once. */
static void find_key(void) {
    static bool tried;
    if (tried) return;
    tried = true;
    int (*create)(pthread_key_t *, void (*)(void *)) = (__typeof__(create))process_symbol("pthread_key_create");
    get = (__typeof__(get))process_symbol("pthread_getspecific");
    set = (__typeof__(set))process_symbol("pthread_setspecific");
    atomic_store(&has_key, create && get && set && create(&key, thread_ended) == 0);
}

/* Under the mutex: return a mark of a thread that has ended, or a new one. */
static struct mark *free_mark(void) {
    struct mark *mark = atomic_load(&marks);
    while (mark && (mark->taken || mark == &crowd)) mark = mark->next;
    if (mark || !(mark = calloc(1, sizeof *mark))) return mark;
    mark->next = atomic_load(&marks);
    atomic_store(&marks, mark);
    return mark;
}

static struct mark *new_mark(void) {
    pthread_mutex_lock(&mutex);
    find_key();
    struct mark *mark = atomic_load(&has_key) ? free_mark() : NULL;
    if (mark) mark->taken = set(key, mark) == 0;
    pthread_mutex_unlock(&mutex);
    return mark && mark->taken ? mark : &crowd;
}

static struct mark *own_mark(void) { return atomic_load_explicit(&has_key, memory_order_acquire) ? get(key) : NULL; }

static void add(struct mark *mark, unsigned calls) {
    if (mark == &crowd) {
        atomic_fetch_add(&mark->inside, calls);
        return;
    }
    unsigned before = atomic_load_explicit(&mark->inside, memory_order_relaxed);
    atomic_store_explicit(&mark->inside, before + calls, memory_order_release);
}

struct mark *mark_enter(void) {
    struct mark *mark = own_mark();
    if (!mark) mark = new_mark();
    add(mark, 1);
    return mark;
}

void mark_leave(struct mark *mark) { add(mark, -1u); }

unsigned mark_pause(void) {
    struct mark *mark = own_mark();
    unsigned calls = mark ? atomic_load_explicit(&mark->inside, memory_order_relaxed) : 0;
    if (calls) add(mark, -calls);
    return calls;
}

void mark_resume(unsigned calls) {
    if (calls) add(own_mark(), calls);
}

bool marks_none(void) {
    for (struct mark *mark = atomic_load(&marks); mark; mark = mark->next)
        if (atomic_load(&mark->inside)) return false;
    return true;
}

void marks_fork(void) {
    pthread_mutex_init(&mutex, NULL);
    for (struct mark *mark = atomic_load(&marks); mark; mark = mark->next) atomic_store(&mark->inside, 0);
}

/* --- the functions ------------------------------------------------------------------------------------------------ */

CUresult GATE(cuStreamQuery)(CUstream stream) { return MARKED(REAL(cuStreamQuery)(stream)); }

CUresult GATE(cuStreamQuery_ptsz)(CUstream stream) { return MARKED(REAL(cuStreamQuery_ptsz)(stream)); }

CUresult GATE(cuStreamSynchronize)(CUstream stream) { return MARKED(REAL(cuStreamSynchronize)(stream)); }

CUresult GATE(cuStreamSynchronize_ptsz)(CUstream stream) { return MARKED(REAL(cuStreamSynchronize_ptsz)(stream)); }

CUresult GATE(cuEventQuery)(CUevent event) { return MARKED(REAL(cuEventQuery)(event)); }

CUresult GATE(cuEventSynchronize)(CUevent event) { return MARKED(REAL(cuEventSynchronize)(event)); }

CUresult GATE(cuCtxSynchronize)(void) { return MARKED(REAL(cuCtxSynchronize)()); }

CUresult GATE(cuCtxSynchronize_v2)(CUcontext context) { return MARKED(REAL(cuCtxSynchronize_v2)(context)); }

CUresult GATE(cuEventElapsedTime)(float *ms, CUevent since, CUevent until) {
    return MARKED(REAL(cuEventElapsedTime)(ms, since, until));
}

CUresult GATE(cuEventElapsedTime_v2)(float *ms, CUevent since, CUevent until) {
    return MARKED(REAL(cuEventElapsedTime_v2)(ms, since, until));
}
