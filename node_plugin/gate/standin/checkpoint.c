/* The driver's checkpoint of its own process, with the states, results and times that were measured on driver 580
 * (docs/designs/real-gpu.md). Each step runs in the thread that calls it. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

enum { RUNNING, LOCKED, CHECKPOINTED }; /* as programs see them */
enum { MIB_PER_SECOND_OUT = 2276, MIB_PER_SECOND_IN = 6827, CHECKPOINT_MS = 400, RESTORE_MS = 300 };
enum { REFUSAL_MS = 1200, WRONG_MAP_MS = 100 };

struct pair {
    char before[16], after[16]; /* UUIDs */
};

static pthread_mutex_t stepping = PTHREAD_MUTEX_INITIALIZER; /* one step at a time */
static int state;
static int broken; /* a checkpoint has failed */
static int lost;   /* a restore has failed for good */

/* NVML's stand-in, which closes its GPUs while the process is parked: real libraries find each other by such a table, too. */
static struct {
    size_t size;
    void (*parked)(int is_parked);
} watcher = {sizeof watcher, NULL};

API CUresult cuGetExportTable(const void **table, const char uuid[16]) {
    if (!table || !uuid) return INVALID_VALUE;
    if (memcmp(uuid, "stand-in parking", 16)) return NOT_SUPPORTED;
    *table = &watcher;
    return OK;
}

static void pause_ms(uint64_t milliseconds) { board_wait(board_now() + milliseconds * 1000); }

/* Take the time of moving all GPU memory. */
static void move_time(const char *rate_name, uint64_t rate, uint64_t base) {
    uint64_t bytes = 0;
    standin_number(rate_name, UINT64_C(1) << 32, &rate);
    standin_number("_PARK_BASE", 1 << 20, &base);
    for (int i = 0; i < standin_count; i++) bytes += standin_devices[i].board.bytes;
    board_wait(board_now() + base * 1000 + (rate ? bytes / rate * 1000000 / (1 << 20) : 0));
}

static CUresult of_this_process(int pid) {
    if (pid == getpid()) return standin_state ? NOT_INITIALIZED : OK;
    return pid <= 0 || (kill(pid, 0) && errno == ESRCH) ? SYSTEM_ERROR : NOT_SUPPORTED;
}

/* Return an error for arguments of 64 bytes of which others than the `used` words are not 0. */
static CUresult check_reserved(const uint64_t *arguments, int used) {
    for (int word = used; arguments && word < 8; word++)
        if (arguments[word]) return INVALID_VALUE;
    return OK;
}

/* Run a step in a state; otherwise nothing changes. */
static CUresult step(int pid, const uint64_t *arguments, int used, int from, CUresult (*run)(const uint64_t *)) {
    static const uint64_t none[8];
    CUresult failed = of_this_process(pid);
    if (!failed) failed = check_reserved(arguments, used);
    if (failed) return failed;
    pthread_mutex_lock(&stepping);
    CUresult result = state == from ? run(arguments ? arguments : none) : ILLEGAL_STATE;
    pthread_mutex_unlock(&stepping);
    return result;
}

/* --- lock and unlock ---------------------------------------------------------------------------------------------- */

/* Wait until no thread is at work in the driver and all work has ended. */
static int drain(uint64_t milliseconds) {
    uint64_t end = board_now() + milliseconds * 1000;
    while (!standin_none_working() || !contexts_idle()) {
        if (milliseconds && board_now() >= end) return 0;
        board_wait(board_now() + 100);
    }
    return 1;
}

static CUresult lock(const uint64_t *arguments) {
    uint64_t timeout = (uint32_t)arguments[0];
    if (arguments[0] >> 32) return INVALID_VALUE;
    standin_set_stage(STAGE_LOCKED);
    fault_kill("lock");
    fault_hang("lock");
    int slow = fault_is("lock-slow");
    if (slow) pause_ms(timeout ? timeout : 1000);
    if ((slow && timeout) || !drain(timeout)) {
        standin_set_stage(STAGE_RUNNING);
        return NOT_READY;
    }
    state = LOCKED;
    return OK;
}

static CUresult unlock(const uint64_t *arguments) {
    (void)arguments;
    fault_kill("unlock");
    state = RUNNING;
    standin_set_stage(STAGE_RUNNING);
    return OK;
}

/* --- checkpoint --------------------------------------------------------------------------------------------------- */

/* After a failure the program can go on, but never be parked again. */
static CUresult refuse(CUresult result) {
    broken = 1;
    standin_set_stage(STAGE_LOCKED);
    return result;
}

static CUresult checkpoint(const uint64_t *arguments) {
    if (arguments[0]) return standin_version < 13040 ? INVALID_VALUE : NOT_SUPPORTED; /* own storage: not for its own process */
    if (broken) return UNKNOWN;
    if (fault_is("checkpoint-2")) return refuse(OUT_OF_MEMORY);
    if (fault_is("checkpoint-801")) return refuse(NOT_SUPPORTED);
    if (any_allocation(MANAGED) || any_allocation(IMPORTED)) {
        pause_ms(REFUSAL_MS);
        return refuse(NOT_SUPPORTED);
    }
    standin_set_stage(STAGE_PARKED);
    while (!standin_none_inside()) board_wait(board_now() + 100);
    fault_hang("checkpoint");
    move_time("_PARK_OUT", MIB_PER_SECOND_OUT, CHECKPOINT_MS);
    fault_kill("checkpoint");
    if (!move_out()) return refuse(OUT_OF_MEMORY);
    for (int i = 0; i < standin_count; i++) device_close(&standin_devices[i]);
    if (watcher.parked) watcher.parked(1);
    state = CHECKPOINTED;
    return OK;
}

/* --- restore ------------------------------------------------------------------------------------------------------ */

static const struct pair *pair_of(const struct pair *pairs, unsigned count, const char uuid[16]) {
    for (unsigned i = 0; i < count; i++)
        if (!memcmp(pairs[i].before, uuid, 16)) return &pairs[i];
    return NULL;
}

/* Return whether the map names every GPU that the process had, each with one that exists, and no other. */
static int is_map(const struct pair *pairs, unsigned count) {
    if (!count) return 1;
    if (!pairs || count != (unsigned)standin_count) return 0;
    for (int i = 0; i < standin_count; i++) {
        const struct pair *pair = pair_of(pairs, count, standin_devices[i].uuid);
        if (!pair || !device_fits(&standin_devices[i], pair->after)) return 0;
        for (int j = 0; j < i; j++)
            if (!memcmp(pair_of(pairs, count, standin_devices[j].uuid)->after, pair->after, 16)) return 0;
    }
    return 1;
}

/* Open all GPUs, or none if a node may not be opened. Memory that does not suffice leaves them open, and is final. */
static CUresult open_all(const struct pair *pairs, unsigned count) {
    char after[MAX_DEVICES][16], before[MAX_DEVICES][16];
    CUresult result = OK;
    int opened = 0;
    for (int i = 0; i < standin_count; i++) {
        const struct pair *pair = pair_of(pairs, count, standin_devices[i].uuid);
        memcpy(before[i], standin_devices[i].uuid, 16);
        memcpy(after[i], pair ? pair->after : before[i], 16);
    }
    for (; !result && opened < standin_count; opened += result != NOT_SUPPORTED)
        result = device_reopen(&standin_devices[opened], after[opened]);
    if (result != NOT_SUPPORTED) return result;
    for (int i = 0; i < opened; i++) {
        device_close(&standin_devices[i]);
        memcpy(standin_devices[i].uuid, before[i], 16);
    }
    return result;
}

static CUresult restore(const uint64_t *arguments) {
    const struct pair *pairs = (const struct pair *)(uintptr_t)arguments[0];
    unsigned count = (unsigned)arguments[1];
    if (arguments[1] >> 32 || (arguments[0] && standin_version < 13000)) return INVALID_VALUE;
    if (arguments[2]) return standin_version < 13040 ? INVALID_VALUE : NOT_SUPPORTED;
    if (lost) return SYSTEM_ERROR;
    if (fault_count("restore-801")) return NOT_SUPPORTED;
    if (fault_is("restore-304")) return SYSTEM_ERROR;
    if (!is_map(pairs, count)) {
        pause_ms(WRONG_MAP_MS);
        return INVALID_VALUE;
    }
    CUresult failed = open_all(pairs, count);
    lost = failed == OUT_OF_MEMORY;
    if (failed) return failed;
    move_time("_PARK_IN", MIB_PER_SECOND_IN, RESTORE_MS);
    fault_kill("restore");
    if (!move_in()) return UNKNOWN;
    if (watcher.parked) watcher.parked(0);
    state = LOCKED;
    return OK;
}

/* --- the functions ------------------------------------------------------------------------------------------------ */

API CUresult cuCheckpointProcessLock(int pid, const uint64_t *arguments) { return step(pid, arguments, 1, RUNNING, lock); }

API CUresult cuCheckpointProcessCheckpoint(int pid, const uint64_t *arguments) {
    return step(pid, arguments, 1, LOCKED, checkpoint);
}

API CUresult cuCheckpointProcessRestore(int pid, const uint64_t *arguments) {
    return step(pid, arguments, 3, CHECKPOINTED, restore);
}

API CUresult cuCheckpointProcessUnlock(int pid, const uint64_t *arguments) { return step(pid, arguments, 0, LOCKED, unlock); }

API CUresult cuCheckpointProcessGetState(int pid, int *answer) {
    CUresult failed = of_this_process(pid);
    if (failed || !answer) return failed ? failed : INVALID_VALUE;
    pthread_mutex_lock(&stepping);
    *answer = state;
    pthread_mutex_unlock(&stepping);
    return OK;
}

/* A real driver has a thread of its own for the steps. */
API CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    CUresult failed = of_this_process(pid);
    if (failed || !thread) return failed ? failed : INVALID_VALUE;
    *thread = pid;
    return OK;
}

/* There is no such operation: own storage is not for a process that parks itself. */
API CUresult cuCheckpointOperationComplete(void *operation) {
    (void)operation;
    return standin_state ? standin_state : INVALID_VALUE;
}
