/* How often the program has started NVML. NVML counts that itself and closes the GPUs at the last end; while calls are shut it
 * cannot be asked, so starts and ends are noted, and made up for when the GPU is back. */
#define _GNU_SOURCE
#include "nvml/nvml.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_MS = 1000 }; /* that a park waits for a thread that starts NVML, which takes long on machines with many GPUs */
enum { THREADS = 256 };  /* more wait for their turn */

/* Under the lock: */
static int starts; /* less ends; as many as NVML has counted, and `owed` more */
static int owed;   /* starts, or ends if negative */
static unsigned inside[THREADS]; /* threads that are starting NVML, or shutting it down; 0: a free place */

bool nvml_started(void) { return starts > 0; }

/* Under the lock: note a start (1) or an end (-1). NVML cannot be started while it has no GPU open that comes back: then the
 * result is `answer`, as of other calls. */
static int note(int change, int answer) {
    if (change > 0 && starts == owed) return answer;
    if (change < 0 && !starts) return NVML_UNINITIALIZED;
    starts += change;
    owed += change;
    return NVML_SUCCESS;
}

static void pause_ms(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static unsigned this_thread(void) { return (unsigned)syscall(SYS_gettid); }

/* Under the lock: return the place of a thread, or a free one (0); NULL: there is none. */
static unsigned *place_of(unsigned thread) {
    for (unsigned *place = inside; place < inside + THREADS; place++)
        if (*place == thread) return place;
    return NULL;
}

/* Under the lock, which is released while there is no free place. */
static void enter(void) {
    unsigned *place;
    while (!(place = place_of(0))) {
        nvml_unlock();
        pause_ms();
        nvml_lock();
    }
    *place = this_thread();
}

static void leave(void) { *place_of(this_thread()) = 0; }

/* Make a change, or note it; `call` is NVML's function. NVML may call its own functions by these entries. */
static int change_by(int change, int (*call)(unsigned), unsigned flags) {
    nvml_lock();
    int answer = nvml_answer(), code = NVML_SUCCESS;
    bool nested = place_of(this_thread());
    if (answer != NVML_SUCCESS && !nested) code = note(change, answer);
    else if (!nested) enter();
    nvml_unlock();
    if (nested) return call(flags);
    if (answer != NVML_SUCCESS) return code;
    code = call(flags);
    nvml_lock();
    leave();
    if (code == NVML_SUCCESS) starts += change;
    if (code == NVML_UNINITIALIZED) starts = 0;
    nvml_unlock();
    return code;
}

#define REAL(name) ((int (*)(unsigned))nvml_real(NVML_##name)) /* those without arguments ignore it */

int nvml_start(void) { return change_by(1, REAL(nvmlInit), 0); }

int nvml_start_v2(void) { return change_by(1, REAL(nvmlInit_v2), 0); }

int nvml_start_with_flags(unsigned flags) { return change_by(1, REAL(nvmlInitWithFlags), flags); }

int nvml_shut_down(void) { return change_by(-1, REAL(nvmlShutdown), 0); }

bool nvml_starts_end(void) {
    for (int ms = 0;; ms++) {
        nvml_lock();
        bool none = true;
        for (int i = 0; i < THREADS; i++) none &= !inside[i];
        nvml_unlock();
        if (none || ms == MOST_MS) return none;
        pause_ms();
    }
}

void nvml_make_up(void) {
    nvml_lock();
    for (int made = owed; made; made = owed) {
        owed = 0;
        enter();
        nvml_unlock();
        for (; made > 0; made--) REAL(nvmlInit_v2)(0);
        for (; made < 0; made++) REAL(nvmlShutdown)(0);
        nvml_lock();
        leave();
    }
    nvml_unlock();
}

void nvml_starts_fork(void) { memset(inside, 0, sizeof inside); }
