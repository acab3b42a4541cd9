/* What a program gives back while its GPU is parked: memory and handles, often by a garbage collector. That is no reason to bring
 * the GPU back, so such a call succeeds at once and is made after the return. None has more than two arguments. */
#define _GNU_SOURCE
#include "parking/later.h"

#include "driver/driver.h"

#include <pthread.h>

enum { MOST = 1 << 16 };

static struct call {
    uint64_t arguments[2];
    CUcontext context; /* current in the thread that called */
    unsigned number;   /* of the entry */
} calls[MOST];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned count;
static bool keeping;

void later_start(void) {
    pthread_mutex_lock(&mutex);
    keeping = true;
    pthread_mutex_unlock(&mutex);
}

bool later_keep(unsigned number, const uint64_t arguments[2]) {
    CUcontext context = NULL;
    NEWER(cuCtxGetCurrent)(&context); /* passes, also while parked */
    pthread_mutex_lock(&mutex);
    bool kept = keeping && count < MOST;
    if (kept) calls[count++] = (struct call){{arguments[0], arguments[1]}, context, number};
    pthread_mutex_unlock(&mutex);
    return kept;
}

static void make(const struct call *call) {
    CUcontext popped;
    bool pushed = call->context && NEWER(cuCtxPushCurrent_v2)(call->context) == CUDA_SUCCESS;
    ((CUresult(*)(uint64_t, uint64_t))entry_at(call->number))(call->arguments[0], call->arguments[1]);
    if (pushed) NEWER(cuCtxPopCurrent_v2)(&popped);
}

void later_run(void) {
    pthread_mutex_lock(&mutex);
    keeping = false;
    pthread_mutex_unlock(&mutex);
    for (unsigned i = 0; i < count; i++) make(&calls[i]);
    count = 0;
}

void later_fork(void) {
    pthread_mutex_init(&mutex, NULL);
    keeping = false;
    count = 0;
}
