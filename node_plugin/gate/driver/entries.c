/* What the slots of the entries lead to (entries.S): the driver's own functions and the gate's, once they are known; nowhere
 * while the way is shut.
 *
 * Nothing is looked for before the first call, and then all at once. The driver's functions are told by their addresses: what
 * a look-up gives is let through by the entry of the very function, gated or not, so that a form of a function that is newer
 * than this file is never called with the arguments of another. What the list does not have gets a spare entry.
 *
 * `entries_shut` leads all slots back to `gate_closed`, and then has every processor that runs a thread of this process pass a
 * barrier (membarrier). An entry reads its slot and jumps by one instruction (x86-64): whoever read it before that barrier is
 * in the driver, whoever reads it later is held.
 *
 * On aarch64 these are two instructions, and a thread may stand between them for as long as it does not run. So they are a
 * restartable sequence: whoever does not run is sent back to its beginning by the kernel when it does again, and whoever
 * runs is by a membarrier for that. It needs a C library that has told the kernel of the thread (glibc 2.35): a thread of
 * another one says that it enters (`gate_unrestartable`), before it reads its slot, and from then on `entries_shut`
 * says that it cannot. Not seen are threads that share another one's thread pointer: `vfork`, `clone` without a TLS. */
#define _GNU_SOURCE
#include "driver/driver.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert((int)FUNCTION_COUNT <= STUBS, "more functions than stubs");

enum { /* MEMBARRIER_CMD_… */
    BARRIER_EVERYWHERE = 1, BARRIER = 8, REGISTER_BARRIER = 16, RESTART = 128, REGISTER_RESTART = 256
};

extern const char gate_closed[];
extern void *_Atomic gate_slots[ENTRIES];

static const char *const names[NAMED] = {
#define F(base, suffix, since) [ENTRY_##base##suffix] = #base #suffix,
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

static void *_Atomic exported[NAMED];  /* by the driver; NULL: it has no such function */
static void *_Atomic targets[ENTRIES]; /* of a slot that is open; NULL: not known yet, or a spare one */
static _Atomic bool known;
static _Atomic unsigned shut; /* a futex: the thread that may pass, 0: all may */
static _Atomic unsigned opening; /* threads that open slots, as far as they may */

#ifdef __aarch64__
_Atomic ptrdiff_t gate_rseq __attribute__((visibility("hidden"))); /* of a thread, from its thread pointer; 0: has none */
_Atomic unsigned gate_unrestartable __attribute__((visibility("hidden"))); /* a thread without has entered */

/* No symbol of the newer C library may be needed. */
static void learn_rseq(void) {
    const unsigned *size = process_symbol("__rseq_size");
    const ptrdiff_t *offset = process_symbol("__rseq_offset");
    if (size && offset && *size) atomic_store(&gate_rseq, *offset);
}

/* Once the slots are closed: every thread that stands in the sequence begins it anew. */
static bool restart_entering(void) {
    return syscall(SYS_membarrier, REGISTER_RESTART, 0) == 0 && syscall(SYS_membarrier, RESTART, 0) == 0 &&
           atomic_load(&gate_rseq) && !atomic_load(&gate_unrestartable);
}
#else
static void learn_rseq(void) {}
static bool restart_entering(void) { return true; }
#endif

static unsigned this_thread(void) { return (unsigned)syscall(SYS_gettid); }

static CUresult missing(void) { return CUDA_ERROR_NOT_SUPPORTED; }

static void *entry_at(unsigned number) { return (void *)(gate_entries + (size_t)ENTRY_SIZE * number); }

static void *closed_at(unsigned number) { return (void *)(gate_closed + (size_t)ENTRY_SIZE * number); }

static bool is_entry(const void *address) { return (const char *)address >= gate_entries && (const char *)address < gate_closed; }

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void open_slot(unsigned number) {
    void *target = atomic_load(&targets[number]);
    if (target) atomic_store(&gate_slots[number], target);
}

/* Those from `first` up to `end`, unless it is shut: who shuts waits for whoever looked before. */
static void open_slots(unsigned first, unsigned end) {
    atomic_fetch_add(&opening, 1);
    if (!atomic_load(&shut))
        for (unsigned number = first; number < end; number++) open_slot(number);
    atomic_fetch_sub(&opening, 1);
}

/* Any number of threads at once: all find the same. */
static void learn(void) {
    learn_rseq();
    driver_exports(names, exported, NAMED);
    for (unsigned i = 0; i < NAMED; i++) {
        void *real = atomic_load(&exported[i]);
        if (!is_gated[i]) atomic_store(&targets[i], real ? real : (void *)missing);
    }
    for (unsigned i = 0; i < FUNCTION_COUNT; i++) {
        void *real = atomic_load(&exported[entry_of[i]]), *none = NULL;
        if (i < GATED_COUNT) atomic_store(&targets[entry_of[i]], table_gate(i));
        atomic_compare_exchange_strong(&targets[FIRST_STUB + i], &none, real ? real : (void *)missing);
    }
    atomic_store(&known, true);
    open_slots(0, ENTRIES);
}

/* Where a call that found no way goes on: at its entry once more. The thread that has shut it passes. */
void *gate_slow(unsigned number) {
    int error = errno;
    if (!atomic_load(&known)) learn();
    unsigned by = atomic_load(&shut);
    void *to = by && by == this_thread() ? atomic_load(&targets[number]) : entry_at(number);
    while (to == entry_at(number) && (by = atomic_load(&shut)))
        syscall(SYS_futex, &shut, FUTEX_WAIT_PRIVATE, by, NULL, NULL, 0);
    if (to == entry_at(number)) open_slots(number, number + 1);
    errno = error;
    return to;
}

/* --- shut --------------------------------------------------------------------------------------------------------- */

static bool pass_barrier(void) {
    if (syscall(SYS_membarrier, REGISTER_BARRIER, 0) == 0 && syscall(SYS_membarrier, BARRIER, 0) == 0) return true;
    return syscall(SYS_membarrier, BARRIER_EVERYWHERE, 0) == 0; /* older systems; takes some ms */
}

bool entries_shut(void) {
    if (!atomic_load(&known)) learn();
    atomic_store(&shut, this_thread());
    for (int tries = 0; atomic_load(&opening); tries++) {
        if (tries > 1000000) break; /* a thread that stands still there */
        syscall(SYS_sched_yield);
    }
    for (unsigned i = 0; i < ENTRIES; i++) atomic_store(&gate_slots[i], closed_at(i));
    if (!atomic_load(&opening) && pass_barrier() && restart_entering()) return true;
    entries_open();
    return false;
}

void entries_open(void) {
    atomic_store(&shut, 0);
    open_slots(0, ENTRIES);
    syscall(SYS_futex, &shut, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

void entries_fork(void) {
    atomic_store(&opening, 0);
    if (atomic_load(&shut)) entries_open(); /* the thread that had shut it is not here */
}

/* --- by address --------------------------------------------------------------------------------------------------- */

/* The function at this address; of several names of one, one that begins as it was asked for. -1: none of the list. */
static int number_of(const void *address, const char *name) {
    int any = -1;
    for (unsigned i = 0; i < NAMED; i++) {
        if (atomic_load_explicit(&exported[i], memory_order_relaxed) != address) continue;
        if (name && strncmp(names[i], name, strlen(name)) == 0) return (int)i;
        if (any < 0) any = (int)i;
    }
    return any;
}

static void *spare(void *found) {
    for (unsigned number = FIRST_SPARE; number < FIRST_SPARE + SPARES; number++) {
        void *there = NULL;
        if (atomic_compare_exchange_strong(&targets[number], &there, found) || there == found) return entry_at(number);
    }
    return found; /* more than any driver has */
}

void *entry_for(const char *name, int version, uint64_t flags, void *found) {
    if (!found || is_entry(found)) return found;
    if (!atomic_load(&known)) learn();
    int form = gated_form(name, version, flags);
    if (form >= 0 && atomic_load(&exported[entry_of[form]]) == found) return entry_at(entry_of[form]);
    int number = number_of(found, name);
    if (number >= 0) return entry_at((unsigned)number);
    if (form < 0 || version > FUNCTIONS_UNTIL) return spare(found);
    void *none = (void *)missing; /* this driver hands out others than it exports, and what it means is known */
    if (atomic_compare_exchange_strong(&targets[FIRST_STUB + form], &none, found)) open_slots(FIRST_STUB + form, FIRST_STUB + form + 1);
    return entry_at(entry_of[form]);
}

/* --- the gate's own calls ----------------------------------------------------------------------------------------- */

void *driver_function(enum driver_function which) {
    if (!atomic_load_explicit(&known, memory_order_acquire)) learn();
    return atomic_load_explicit(&targets[FIRST_STUB + which], memory_order_relaxed) == (void *)missing ? NULL : driver_real(which);
}
