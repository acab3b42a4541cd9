/* The targets of the entries' slots (entries.S): the driver's own functions and the gate's, once they are known; a blocking
 * stub while calls are blocked.
 *
 * Nothing is looked up before the first call; then all symbols are looked up at once. The driver's functions are identified by
 * address: whatever address a lookup returns is called through the entry of that very function, gated or not, so a form newer
 * than this file is never called with the arguments of another. A function that is not in the list gets a spare entry.
 *
 * `entries_block` points all slots back to `gate_blocked`, then makes every processor that runs a thread of this process pass a
 * barrier (membarrier). On x86-64 an entry reads its slot and jumps in one instruction: a thread that read it before the
 * barrier is in the driver, one that reads it later is blocked.
 *
 * On aarch64 an entry needs two instructions, and a thread may be preempted between them for any length of time. So they form
 * a restartable sequence (rseq): the kernel restarts it in a thread that was preempted, and membarrier restarts it in running
 * threads. The C library must have registered the thread (glibc 2.35): until `find_rseq` has looked, calls go to `gate_slow`,
 * which does so first. An unregistered thread sets `gate_unrestartable` before it reads its slot, and from then on `entries_block`
 * fails. Threads that share another thread's thread pointer (`vfork`, `clone` without a TLS) are not detected.
 *
 * `entries_arm` points the slots of functions that use the GPU back to `gate_blocked` in the same way, but nobody waits there: the
 * first such call opens them all again, and is noticed by that. There is no barrier, as a call at the moment of arming belongs to
 * the time before it. */
#define _GNU_SOURCE
#include "driver/driver.h"
#include "parking/later.h"
#include "parking/marks.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert((int)FUNCTION_COUNT <= STUBS, "more functions than stubs");

enum { /* MEMBARRIER_CMD_… */
    BARRIER_EVERYWHERE = 1, BARRIER = 8, REGISTER_BARRIER = 16, RESTART = 128, REGISTER_RESTART = 256
};

#define NOBODY UINT32_MAX /* no thread's number */

extern const char gate_blocked[];
extern void *_Atomic gate_slots[ENTRIES];

static const char *const names[NAMED] = {
#define F(base, suffix, since, class) [ENTRY_##base##suffix] = #base #suffix,
#include "driver/functions.def"
#undef F
};

static const uint16_t entry_of[FUNCTION_COUNT] = {
#define AT_GATED(symbol, name, since, per_thread) [AT_##symbol] = ENTRY_##symbol,
#define AT_USED(symbol, arguments) [AT_##symbol] = ENTRY_##symbol,
    GATED(AT_GATED) USED(AT_USED)
};

static const bool is_gated[NAMED] = {
#define IS_GATED(symbol, name, since, per_thread) [ENTRY_##symbol] = true,
    GATED(IS_GATED)
};

static const uint8_t class_of[NAMED] = {
#define F(base, suffix, since, class) [ENTRY_##base##suffix] = CLASS_##class,
#include "driver/functions.def"
#undef F
};

static void *_Atomic exported[NAMED];  /* by the driver; NULL: it has no such function */
static void *_Atomic targets[ENTRIES]; /* of an open slot; NULL: not known yet, or an unused spare */
static _Atomic bool known;
static _Atomic unsigned blocker; /* the thread that may still enter; 0: all may */
static _Atomic int allowed;      /* enum allowed, for the others */
static _Atomic CUresult failure; /* what all calls return, if they are blocked by NOBODY */
static _Atomic unsigned changes; /* a futex: how often these two have changed */
static _Atomic bool measured;    /* calls of class PASS may pass, with this driver */
static _Atomic unsigned unblocking; /* number of threads that are opening slots */
static _Atomic bool armed; /* no use of the GPU since the slots of such functions were closed */

#ifdef __aarch64__
_Atomic ptrdiff_t gate_rseq __attribute__((visibility("hidden"))); /* offset from the thread pointer; 0: none */
_Atomic unsigned gate_looked __attribute__((visibility("hidden"))); /* whether that is known */
_Atomic unsigned gate_unrestartable __attribute__((visibility("hidden"))); /* an unregistered thread has entered */

/* Find the rseq area: looked up, so that the gate also loads with older C libraries. */
static void find_rseq(void) {
    const unsigned *size = process_symbol("__rseq_size");
    const ptrdiff_t *offset = process_symbol("__rseq_offset");
    if (size && offset && *size) atomic_store(&gate_rseq, *offset);
    atomic_store(&gate_looked, 1);
}

/* Restart every thread that is inside the sequence. The slots must be blocked already. */
static bool restart_sequences(void) {
    return syscall(SYS_membarrier, REGISTER_RESTART, 0) == 0 && syscall(SYS_membarrier, RESTART, 0) == 0 &&
           atomic_load(&gate_rseq) && !atomic_load(&gate_unrestartable);
}
#else
static void find_rseq(void) {}
static bool restart_sequences(void) { return true; }
#endif

static unsigned this_thread(void) { return (unsigned)syscall(SYS_gettid); }

static CUresult not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

static CUresult succeeded(void) { return CUDA_SUCCESS; }

static CUresult failing(void) { return atomic_load(&failure); }

static void *blocked_at(unsigned number) { return (void *)(gate_blocked + (size_t)ENTRY_SIZE * number); }

static bool is_entry(const void *address) { return (const char *)address >= gate_entries && (const char *)address < gate_blocked; }

/* Return whether a call by this entry is use of the GPU. The gate's own calls are not. */
static bool is_use(unsigned number) { return number < NAMED ? class_of[number] == CLASS_WORK : number < FIRST_STUB; }

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void open_slot(unsigned number) {
    void *target = atomic_load_explicit(&targets[number], memory_order_relaxed);
    if (target) atomic_store_explicit(&gate_slots[number], target, memory_order_release);
}

/* Open the slots from `first` up to `end`, unless calls are blocked; those that are armed stay closed. entries_block and
 * entries_arm wait for threads that are in here. */
static void open_slots(unsigned first, unsigned end) {
    atomic_fetch_add(&unblocking, 1);
    bool closed = atomic_load(&armed);
    if (!atomic_load(&blocker))
        for (unsigned number = first; number < end; number++)
            if (!closed || !is_use(number)) open_slot(number);
    atomic_fetch_sub(&unblocking, 1);
}

/* Wait until no thread is opening slots; false: one has been stopped there. */
static bool none_opening(void) {
    for (int tries = 0; atomic_load(&unblocking); tries++) {
        if (tries > 1000000) return false;
        syscall(SYS_sched_yield);
    }
    return true;
}

/* Look up the driver's functions. Several threads may do so at once, with the same result. */
static void load_driver(void) {
    find_rseq();
    library_exports("libcuda.so.1", names, exported, NAMED);
    for (unsigned i = 0; i < NAMED; i++) {
        void *real = atomic_load(&exported[i]);
        if (!is_gated[i]) atomic_store(&targets[i], real ? real : (void *)not_supported);
    }
    for (unsigned i = 0; i < FUNCTION_COUNT; i++) {
        void *real = atomic_load(&exported[entry_of[i]]), *none = NULL;
        if (i < GATED_COUNT) atomic_store(&targets[entry_of[i]], gated_function(i));
        atomic_compare_exchange_strong(&targets[FIRST_STUB + i], &none, real ? real : (void *)not_supported);
    }
    atomic_store(&known, true);
    open_slots(0, ENTRIES);
}

/* Return where a call goes while calls are blocked; NULL: it has to wait. The gate's own calls are made by threads that were on
 * their way through the gate. */
static void *allowed_way(unsigned number, const uint64_t arguments[2]) {
    int what = atomic_load(&allowed);
    bool own = number >= FIRST_STUB;
    unsigned named = own ? entry_of[number - FIRST_STUB] : number;
    int class = named < NAMED ? class_of[named] : CLASS_WORK;
    if (class == CLASS_PASS && what == ALLOW_PARKED && atomic_load(&measured)) return atomic_load(&targets[number]);
    if (class == CLASS_ANSWER && what != ALLOW_NOTHING) return (void *)succeeded;
    if (class == CLASS_LATER && what == ALLOW_PARKED && !own && later_keep(number, arguments)) return (void *)succeeded;
    return NULL;
}

/* Return where a call goes that reached a blocked slot, perhaps after waiting: to its entry, to run it again, if calls are not
 * blocked any more. The thread that blocked them may pass. */
static void *way(unsigned number, const uint64_t arguments[2]) {
    for (;;) {
        unsigned seen = atomic_load(&changes), by = atomic_load(&blocker);
        if (!by) return entry_at(number);
        if (by == NOBODY) return (void *)failing;
        void *to = by == this_thread() ? atomic_load(&targets[number]) : allowed_way(number, arguments);
        if (to) return to;
        unsigned marked = mark_pause();
        syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        mark_resume(marked);
    }
}

/* Handle a call that reached a blocked slot; called by entries.S, with the first two arguments in registers. */
void *gate_slow(unsigned number, const uint64_t arguments[2]) {
    int error = errno;
    if (!atomic_load(&known)) load_driver();
    void *to = way(number, arguments);
    bool noticed = to == entry_at(number) && is_use(number) && atomic_exchange(&armed, false);
    if (noticed) open_slots(0, FIRST_STUB);
    else if (to == entry_at(number)) open_slots(number, number + 1);
    errno = error;
    return to;
}

/* --- blocking ----------------------------------------------------------------------------------------------------- */

static bool pass_barrier(void) {
    if (syscall(SYS_membarrier, REGISTER_BARRIER, 0) == 0 && syscall(SYS_membarrier, BARRIER, 0) == 0) return true;
    return syscall(SYS_membarrier, BARRIER_EVERYWHERE, 0) == 0; /* older systems; takes some ms */
}

static void changed(void) {
    atomic_fetch_add(&changes, 1);
    syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

bool entries_block(void) {
    if (!atomic_load(&known)) load_driver();
    atomic_store(&allowed, ALLOW_NOTHING);
    atomic_store(&blocker, this_thread());
    bool alone = none_opening();
    for (unsigned i = 0; i < ENTRIES; i++) atomic_store(&gate_slots[i], blocked_at(i));
    if (alone && pass_barrier() && restart_sequences()) return true;
    entries_unblock();
    return false;
}

void entries_unblock(void) {
    atomic_store(&blocker, 0);
    open_slots(0, ENTRIES);
    changed();
}

void entries_allow(enum allowed what) {
    int version = 0;
    atomic_store(&measured, NEWER(cuDriverGetVersion)(&version) == CUDA_SUCCESS && version == CLASSES_OF);
    if (what == ALLOW_PARKED) later_start();
    atomic_store(&allowed, what);
    changed();
}

void entries_fail(CUresult code) {
    atomic_store(&failure, code);
    atomic_store(&blocker, NOBODY);
    changed();
}

void entries_fork(void) {
    atomic_store(&unblocking, 0);
    atomic_store(&armed, false); /* another thread may have been arming the entries */
    later_fork();
    if (atomic_load(&blocker)) entries_fail(CUDA_ERROR_NOT_INITIALIZED); /* as the driver does in a child */
}

/* --- arming ------------------------------------------------------------------------------------------------------- */

bool entries_arm(void) {
    if (atomic_exchange(&armed, true)) return false;
    if (none_opening()) { /* a thread that began earlier might open some again */
        for (unsigned i = 0; i < FIRST_STUB; i++)
            if (is_use(i)) atomic_store_explicit(&gate_slots[i], blocked_at(i), memory_order_release);
    } else {
        atomic_store(&armed, false);
    }
    return true;
}

/* --- by address --------------------------------------------------------------------------------------------------- */

/* Return the number of the function at this address; -1: it is not in the list. If the address has several names, prefer one
 * with the requested prefix. */
static int number_of(const void *address, const char *name) {
    int any = -1;
    for (unsigned i = 0; i < NAMED; i++) {
        if (atomic_load_explicit(&exported[i], memory_order_relaxed) != address) continue;
        if (name && strncmp(names[i], name, strlen(name)) == 0) return (int)i;
        if (any < 0) any = (int)i;
    }
    return any;
}

static void *spare_entry(void *found) {
    for (unsigned number = FIRST_SPARE; number < FIRST_SPARE + SPARES; number++) {
        void *there = NULL;
        if (atomic_compare_exchange_strong(&targets[number], &there, found) || there == found) return entry_at(number);
    }
    return found; /* more than any driver has */
}

void *entry_for(const char *name, int version, uint64_t flags, void *found) {
    if (!found || is_entry(found)) return found;
    if (!atomic_load(&known)) load_driver();
    int form = gated_form(name, version, flags);
    if (form >= 0 && atomic_load(&exported[entry_of[form]]) == found) return entry_at(entry_of[form]);
    int number = number_of(found, name);
    if (number >= 0) return entry_at((unsigned)number);
    if (form < 0 || version > FUNCTIONS_UNTIL) return spare_entry(found);
    void *none = (void *)not_supported; /* this driver returns addresses that it does not export; the version tells the form */
    if (atomic_compare_exchange_strong(&targets[FIRST_STUB + form], &none, found)) open_slots(FIRST_STUB + form, FIRST_STUB + form + 1);
    return entry_at(entry_of[form]);
}

/* --- the gate's own calls ----------------------------------------------------------------------------------------- */

void *driver_function(enum driver_function which) {
    if (!atomic_load_explicit(&known, memory_order_acquire)) load_driver();
    return atomic_load_explicit(&targets[FIRST_STUB + which], memory_order_relaxed) == (void *)not_supported ? NULL : driver_real(which);
}
