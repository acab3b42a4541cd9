/* The thread that parks this process and brings it back. It alone calls the driver's checkpoint, always for this process.
 *
 *     block -> lock -> drain -> checkpoint -> parked -> restore -> unlock -> open
 *
 * Until the checkpoint each step can be undone, and is undone in reverse if a later one fails. While calls are blocked no thread
 * of the program holds the gate's lock: they wait before they take it (gate_lock). The gate's other threads take it
 * (gate_lock_own), and call no driver. The lock of the driver waits for all submitted work, so from then on all launches count
 * as completed, and each share gives its lease back.
 *
 * A step that has begun cannot be cancelled, and one that hangs is never interrupted: who has asked is told that it is under way. */
#define _GNU_SOURCE
#include "parking/park.h"

#include "launches/launches.h"
#include "parking/later.h"
#include "parking/marks.h"
#include "parking/nvml.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
enum { LEAVE = 50, DRAIN = 1000, FIRST_RETRY = 100, MOST_RETRY = 2000, AGAIN = 1000 }; /* ms */
enum { RUNNING, LOCKED }; /* the driver's states of a process */

static const uint64_t nothing[8]; /* the arguments of a step */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for what follows */
static bool started;
static struct park_answer now;
static struct {
    void (*run)(unsigned ms);
    unsigned ms;
} request;
static _Atomic bool called_off;
static _Atomic uint64_t parked_at;
static _Atomic unsigned asked, answered; /* futexes: the number of the latest request, and of the latest answer */

static void pause_ns(uint64_t ns) {
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)}, NULL);
}

static void wait_for_change(_Atomic unsigned *word, unsigned seen, const struct timespec *most) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, most, NULL, 0);
}

static void tell(_Atomic unsigned *word, unsigned value) {
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static void set_state(enum park_state state) {
    pthread_mutex_lock(&mutex);
    now.state = state;
    pthread_mutex_unlock(&mutex);
}

static uint64_t begin(enum park_step step) {
    pthread_mutex_lock(&mutex);
    now.step = step;
    now.code = CUDA_SUCCESS;
    pthread_mutex_unlock(&mutex);
    return now_ns();
}

static CUresult done(uint64_t since, CUresult code) {
    pthread_mutex_lock(&mutex);
    now.us[now.step] = (now_ns() - since) / 1000;
    now.code = code;
    pthread_mutex_unlock(&mutex);
    return code;
}

static CUresult block_calls(void) {
    uint64_t since = begin(PARK_BLOCK);
    if (!nvml_shut()) {
        nvml_open();
        return done(since, CUDA_ERROR_NOT_READY);
    }
    gate_lock_own();
    bool can = !gate_ending() && entries_block();
    if (can) gate_set_parking(CALLS_SHUT);
    gate_unlock();
    if (!can) nvml_open();
    return done(since, can ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
}

static void open_calls(void) {
    gate_lock_own();
    if (!gate_ending()) {
        entries_unblock();
        gate_set_parking(CALLS_OPEN);
    }
    gate_unlock();
    nvml_open();
}

/* What the program had on the GPU is lost, but the program goes on. */
static void lose(void) {
    gate_lock_own();
    if (!gate_ending()) {
        entries_fail(CUDA_ERROR_UNKNOWN);
        gate_set_parking(CALLS_OPEN);
    }
    gate_unlock();
    nvml_lose();
    set_state(PARK_LOST);
}

static bool wait_for_marks(unsigned ms) {
    for (uint64_t end = now_ns() + ms * MS; !marks_none(); pause_ns(MS / 10))
        if (now_ns() >= end) return false;
    return true;
}

static CUresult lock_driver(unsigned ms) {
    uint64_t since = begin(PARK_LOCK);
    wait_for_marks(LEAVE); /* most leave at once, and those that wait for work keep the driver from locking */
    CUresult code = NEWER(cuCheckpointProcessLock)(getpid(), (const uint64_t[8]){ms});
    if (code == CUDA_SUCCESS) {
        gate_lock_own();
        if (!gate_ending()) {
            gate_set_parking(CALLS_QUIET);
            shares_parked();
        }
        gate_unlock();
        entries_allow(ALLOW_ANSWERS);
    }
    return done(since, code);
}

static CUresult drain(void) {
    uint64_t since = begin(PARK_DRAIN);
    return done(since, wait_for_marks(DRAIN) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

static CUresult checkpoint(void) {
    uint64_t since = begin(PARK_CHECKPOINT);
    CUresult code = done(since, NEWER(cuCheckpointProcessCheckpoint)(getpid(), nothing));
    if (code == CUDA_SUCCESS) entries_allow(ALLOW_PARKED);
    return code;
}

static bool is_in_state(int wanted) {
    int state = -1;
    return NEWER(cuCheckpointProcessGetState)(getpid(), &state) == CUDA_SUCCESS && state == wanted;
}

/* Unlock the driver and let calls pass again; without that nothing of the program could go on. */
static bool go_on(void) {
    CUresult code = NEWER(cuCheckpointProcessUnlock)(getpid(), nothing);
    if (code == CUDA_SUCCESS || is_in_state(RUNNING)) open_calls();
    else lose();
    return now.state != PARK_LOST;
}

static CUresult try_to_restore(void) {
    entries_allow(ALLOW_ANSWERS);
    CUresult code = NEWER(cuCheckpointProcessRestore)(getpid(), nothing);
    if (code == CUDA_ERROR_ILLEGAL_STATE && is_in_state(LOCKED)) code = CUDA_SUCCESS;
    if (code != CUDA_SUCCESS) entries_allow(ALLOW_PARKED);
    return code;
}

/* Restore; try again while the GPU cannot be opened, and once after an error of the system, which may pass. */
static CUresult restore(unsigned retry_ms) {
    uint64_t since = begin(PARK_RESTORE), end = now_ns() + retry_ms * MS;
    bool tried = false;
    for (uint64_t wait = FIRST_RETRY;; wait = 2 * wait < MOST_RETRY ? 2 * wait : MOST_RETRY) {
        CUresult code = try_to_restore();
        bool is_closed = code == CUDA_ERROR_NOT_SUPPORTED, system = code == CUDA_ERROR_OPERATING_SYSTEM;
        bool again = (is_closed && now_ns() + wait * MS < end) || (system && !tried);
        if (!again) return done(since, code);
        tried |= system;
        pause_ns((system ? AGAIN : wait) * MS);
    }
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static void park(unsigned lock_ms) {
    if (now.state != PARK_RUNNING || block_calls() != CUDA_SUCCESS) return;
    if (atomic_load(&called_off) || lock_driver(lock_ms) != CUDA_SUCCESS) {
        open_calls();
        return;
    }
    bool goes_on = drain() == CUDA_SUCCESS && !atomic_load(&called_off);
    bool broken = goes_on && checkpoint() != CUDA_SUCCESS;
    if (goes_on && !broken) {
        atomic_store(&parked_at, now_ns());
        set_state(PARK_PARKED);
        atexit(gate_end_parked); /* before the handlers that the program has registered so far */
    } else if (go_on() && broken) {
        set_state(PARK_BROKEN);
    }
}

static void come_back(unsigned retry_ms) {
    if (now.state != PARK_PARKED) return;
    CUresult code = restore(retry_ms);
    if (code == CUDA_ERROR_OUT_OF_MEMORY || code == CUDA_ERROR_OPERATING_SYSTEM) lose();
    if (code != CUDA_SUCCESS) return;
    uint64_t since = begin(PARK_UNLOCK);
    bool runs = go_on();
    done(since, runs ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    if (!runs) return;
    set_state(PARK_RUNNING);
    later_run();
}

static void *parking_thread(void *unused) {
    prctl(PR_SET_NAME, "jupyter-gpu");
    for (unsigned number = atomic_load(&answered);; tell(&answered, number)) {
        while (atomic_load(&asked) == number) wait_for_change(&asked, number, NULL);
        request.run(request.ms);
        number++;
    }
    return unused;
}

/* Under the mutex: start the thread if there is none. */
static bool start(void) {
    if (!started) {
        gate_lock_own();
        started = gate_start_thread(parking_thread, NULL);
        gate_unlock();
    }
    if (!started) {
        now.step = PARK_THREAD;
        now.code = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return started;
}

static void wait_for_answer(unsigned number, uint64_t end) {
    for (uint64_t at; atomic_load(&answered) != number && (at = now_ns()) < end;) {
        struct timespec most = {.tv_sec = (time_t)((end - at) / SECOND), .tv_nsec = (long)((end - at) % SECOND)};
        wait_for_change(&answered, number - 1, &most);
    }
}

static int ask(void (*run)(unsigned), unsigned ms, unsigned wait_ms, struct park_answer *answer) {
    pthread_mutex_lock(&mutex);
    bool free = atomic_load(&asked) == atomic_load(&answered), asks = free && now.state != PARK_FORKED && start();
    unsigned number = atomic_load(&asked) + asks;
    if (asks) {
        request.run = run;
        request.ms = ms;
        atomic_store(&called_off, false);
        tell(&asked, number);
    }
    pthread_mutex_unlock(&mutex);
    if (asks) wait_for_answer(number, now_ns() + wait_ms * MS);
    bool late = asks && atomic_load(&answered) != number; /* before the look, which is of the end then */
    pthread_mutex_lock(&mutex);
    *answer = now;
    pthread_mutex_unlock(&mutex);
    return !free || late;
}

int jupyter_gpu_park(unsigned lock_ms, unsigned wait_ms, struct park_answer *answer) {
    return ask(park, lock_ms, wait_ms, answer);
}

int jupyter_gpu_return(unsigned retry_ms, unsigned wait_ms, struct park_answer *answer) {
    return ask(come_back, retry_ms, wait_ms, answer);
}

bool park_look(struct park_answer *answer) {
    bool under_way = atomic_load(&asked) != atomic_load(&answered); /* first: what is seen next is the end of what has ended */
    pthread_mutex_lock(&mutex);
    *answer = now;
    pthread_mutex_unlock(&mutex);
    return under_way;
}

uint64_t park_age(void) { return now_ns() - atomic_load(&parked_at); }

void park_cancel(void) { atomic_store(&called_off, true); }

void park_fork(void) {
    bool forked = gate_parking() != CALLS_OPEN || now.state == PARK_LOST;
    pthread_mutex_init(&mutex, NULL);
    started = false;
    atomic_store(&asked, 0);
    atomic_store(&answered, 0);
    now = (struct park_answer){.state = forked ? PARK_FORKED : PARK_RUNNING};
    marks_fork();
    nvml_fork();
}
