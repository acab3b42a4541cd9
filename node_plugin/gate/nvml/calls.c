/* NVML's entries: a library in front of NVML, as the gate is in front of the driver.
 *
 * All of NVML waits while the GPU of its process is parked, without end and whatever is asked (docs/designs/real-gpu.md). So the
 * gate shuts it before a park, and calls are answered here until the GPU is back. Otherwise a call is one jump (driver/entries.S,
 * with this library's list), except those that start NVML or shut it down, which are counted.
 *
 * Unlike the driver's, no function of NVML is known to end a parked process, so nobody needs to know which threads are inside
 * one. A question takes some ms at most, and a park begins only after such a time; one that takes longer waits for the return. */
#define _GNU_SOURCE
#include "nvml/nvml.h"

#include "driver/driver.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { LEAVE = 20000000 }; /* ns */

extern void *_Atomic gate_slots[NVML_FUNCTIONS];

__attribute__((visibility("default"))) _Atomic nvml_follow NVML_FOLLOW;

static const char *const names[NVML_FUNCTIONS] = {
#define F(base, suffix) [NVML_##base##suffix] = #base #suffix,
#include "nvml/functions.def"
#undef F
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for all that is not atomic */
static bool loaded;
static void *_Atomic real[NVML_FUNCTIONS]; /* NULL: this NVML has no such function */
static const _Atomic int *_Atomic gate;    /* NVML_ANSWER; NULL: the gate is not loaded, so nothing is parked */

void nvml_lock(void) { pthread_mutex_lock(&mutex); }

void nvml_unlock(void) { pthread_mutex_unlock(&mutex); }

static int not_found(void) { return NVML_FUNCTION_NOT_FOUND; }

void *nvml_real(unsigned number) {
    void *found = atomic_load(&real[number]);
    return found ? found : (void *)not_found;
}

int nvml_answer(void) {
    const _Atomic int *word = atomic_load(&gate);
    return word ? atomic_load(word) : NVML_SUCCESS;
}

/* --- answers while shut ------------------------------------------------------------------------------------------- */

/* Stands for functions with any arguments. If the GPU has come back at this moment, the caller may ask again as well. */
static int refuse(void) {
    nvml_lock();
    int code = nvml_started() ? nvml_answer() : NVML_UNINITIALIZED;
    nvml_unlock();
    return code ? code : NVML_TIMEOUT;
}

static const char *error_string(int code) {
    switch (code) {
    case NVML_SUCCESS: return "Success";
    case NVML_UNINITIALIZED: return "Uninitialized";
    case NVML_TIMEOUT: return "Timeout";
    default: return "Unknown Error";
    }
}

static void *const always[NVML_FUNCTIONS] = {
    [NVML_nvmlInit] = (void *)nvml_start, [NVML_nvmlInit_v2] = (void *)nvml_start_v2,
    [NVML_nvmlInitWithFlags] = (void *)nvml_start_with_flags, [NVML_nvmlShutdown] = (void *)nvml_shut_down,
};

static void *const while_shut[NVML_FUNCTIONS] = {[NVML_nvmlErrorString] = (void *)error_string};

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static void point_slots(void) {
    bool shut = nvml_answer() != NVML_SUCCESS;
    for (unsigned i = 0; i < NVML_FUNCTIONS; i++) {
        void *other = while_shut[i] ? while_shut[i] : (void *)refuse, *to = shut ? other : nvml_real(i);
        atomic_store(&gate_slots[i], always[i] ? always[i] : to);
    }
}

static bool follow(void) {
    atomic_store(&gate, process_symbol(NVML_TEXT(NVML_ANSWER)));
    bool shut = nvml_answer() != NVML_SUCCESS;
    if (!shut) nvml_make_up();
    nvml_lock();
    point_slots();
    bool started = nvml_started();
    nvml_unlock();
    if (!shut) return true;
    if (!nvml_starts_end()) return false;
    if (started) nanosleep(&(struct timespec){.tv_nsec = LEAVE}, NULL);
    return true;
}

static void in_child(void) {
    pthread_mutex_init(&mutex, NULL);
    nvml_starts_fork();
}

/* The gate may shut the calls at this moment: it finds `follow`, or its answer is found here. */
static void load(void) {
    nvml_lock();
    if (!loaded) {
        library_exports("libnvidia-ml.so.1", names, real, NVML_FUNCTIONS);
        run_in_children(in_child);
        atomic_store(&NVML_FOLLOW, follow);
        atomic_store(&gate, process_symbol(NVML_TEXT(NVML_ANSWER)));
        point_slots();
        loaded = true;
    }
    nvml_unlock();
}

/* Return where a call goes that is the first of all: to its entry, to run it again; called by entries.S. */
void *gate_slow(unsigned number, const uint64_t arguments[2]) {
    (void)arguments;
    int error = errno;
    load();
    errno = error;
    return entry_at(number);
}

#ifdef __aarch64__
/* No thread is restarted here: an entry may read its slot at any time. */
_Atomic ptrdiff_t gate_rseq __attribute__((visibility("hidden")));
_Atomic unsigned gate_looked __attribute__((visibility("hidden"))) = 1;
_Atomic unsigned gate_unrestartable __attribute__((visibility("hidden"))) = 1;
#endif
