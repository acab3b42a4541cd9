/* All of the gate built into this program, to test its entries in front of the stand-in driver.
 *
 *     entries rate COUNT      ns of a call of a function, by an entry, and by a jump as the linker makes them for a library; the
 *                             entry is armed before each round of so many calls
 *     entries arming TIMES    ns of arming, and of the first call after it
 *     entries armed           the functions that are noticed, and whether calls of others, and of such ones, were
 *     entries missed TIMES    threads call all the time while entries are armed, and calls blocked between: how often none was noticed
 *     entries block TIMES     threads call all the time while calls are blocked and unblocked: how many entered while blocked
 *     entries step            stop a thread at each instruction of an entry while calls are blocked: what it did then
 *     entries alone           whether blocking works, and whether it still does after a thread has entered that is not registered
 *                             for restartable sequences
 */
#define _GNU_SOURCE
#include "connection/share.h"

#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int (*function)(long);
enum { THREADS = 6 };

static volatile long inside[THREADS];

__attribute__((noinline)) static int enter(long thread) { return (int)inside[thread]++; }

__attribute__((noinline, aligned(64))) static int nothing(long unused) {
    __asm__ volatile("");
    return (int)unused;
}

#ifdef __x86_64__
/* The least that stands between a program and a function of a library: one jump through a variable. */
extern int linked(long unused) __attribute__((visibility("hidden")));
static __attribute__((used)) function linked_to = nothing;
__asm__(".text\n.p2align 4\nlinked: jmp *linked_to(%rip)\n");
#else
#define linked nothing
#endif

static function by_entry(function real) { return (function)entry_for("cuFormToCome", 1000000, 0, (void *)real); }

static double each(function call, long count) {
    uint64_t begin = now_ns();
    for (long i = 0; i < count; i++) call(i);
    return (double)(now_ns() - begin) / (double)count;
}

static void rate(long count) {
    function ways[3] = {nothing, by_entry(nothing), linked};
    double best[3] = {1e9, 1e9, 1e9};
    for (int round = 0; round < 20; round++) {
        entries_arm();
        for (int way = 0; way < 3; way++) {
            double one = each(ways[way], count);
            if (one < best[way]) best[way] = one;
        }
    }
    printf("%.3f %.3f %.3f\n", best[0], best[1], best[2]);
}

static int by_ns(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void arming(long times) {
    function entry = by_entry(nothing);
    double *arms = calloc((size_t)times, sizeof *arms), *calls = calloc((size_t)times, sizeof *calls);
    for (long i = 0; i < times; i++) {
        entry(0);
        uint64_t begin = now_ns();
        entries_arm();
        uint64_t between = now_ns();
        entry(0);
        calls[i] = (double)(now_ns() - between);
        arms[i] = (double)(between - begin);
    }
    qsort(arms, (size_t)times, sizeof *arms, by_ns);
    qsort(calls, (size_t)times, sizeof *calls, by_ns);
    printf("%.0f %.0f\n", arms[times / 2], calls[times / 2]);
}

static function entry_of_enter;

extern void *_Atomic gate_slots[ENTRIES] __attribute__((visibility("hidden")));
extern const char gate_blocked[] __attribute__((visibility("hidden")));

static bool is_closed(unsigned number) { return atomic_load(&gate_slots[number]) == (void *)(gate_blocked + ENTRY_SIZE * number); }

static void armed(void) {
    static const char *const names[NAMED] = {
#define F(base, suffix, since, class) [ENTRY_##base##suffix] = #base #suffix,
#include "driver/functions.def"
#undef F
    };
    extern CUresult cuDriverGetVersion(int *), cuStreamQuery(CUstream), cuEventDestroy_v2(CUevent), cuCtxGetLimit(size_t *, int);
    extern CUresult cuEventCreate(CUevent *, unsigned);
    int version;
    size_t limit;
    CUevent event;
    printf("%d", entries_arm());
    for (unsigned i = 0; i < FIRST_STUB; i++)
        if (i < NAMED && is_closed(i)) printf(" %s", names[i]);
    cuDriverGetVersion(&version), cuStreamQuery(NULL), cuEventDestroy_v2(NULL), cuCtxGetLimit(&limit, 0);
    printf("\n%d", entries_arm());
    cuEventCreate(&event, 0);
    printf(" %d", entries_arm());
    printf(" %d", entries_arm());
    entry_of_enter(0); /* of a function that is not in the list */
    printf(" %d", entries_arm());
    gate_lock();
    if (!entries_block()) exit(7);
    entries_unblock();
    gate_unlock();
    printf(" %d", entries_arm());
    cuEventCreate(&event, 0);
    printf(" %d\n", entries_arm());
}

static volatile bool over;

static void *calls(void *thread) {
    while (!over) entry_of_enter((long)thread);
    return NULL;
}

static void pause_for(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

static void block(long times) {
    pthread_t threads[THREADS];
    long before[THREADS], wrong = 0, moved = 0, refused = 0;
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, calls, (void *)i);
    for (long round = 0; round < times; round++) {
        gate_lock();
        refused += !entries_block();
        for (int i = 0; i < THREADS; i++) before[i] = inside[i];
        pause_for(2000000);
        for (int i = 0; i < THREADS; i++) wrong += inside[i] > before[i] + 1; /* a thread that was inside counts itself later */
        entries_unblock();
        gate_unlock();
        for (int i = 0; i < THREADS; i++) before[i] = inside[i];
        for (int tries = 0, all = 0; !all && tries < 60000; tries++) {
            pause_for(100000);
            all = 1;
            for (int i = 0; i < THREADS; i++) all &= inside[i] > before[i];
            moved += all;
        }
    }
    over = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("refused %ld wrong %ld moved %ld\n", refused, wrong, moved);
}

static bool any_moved(const long *before) {
    for (int i = 0; i < THREADS; i++)
        if (inside[i] > before[i] + 1) return true; /* a thread that was inside counts itself later */
    return false;
}

static void missed(long times) {
    pthread_t threads[THREADS];
    long before[THREADS], none = 0, refused = 0;
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, calls, (void *)i);
    for (long round = 0; round < times; round++) {
        entries_arm();
        gate_lock();
        if (round % 2 == 0) refused += !entries_block();
        if (round % 2 == 0) entries_unblock();
        gate_unlock();
        for (int i = 0; i < THREADS; i++) before[i] = inside[i];
        while (!any_moved(before)) sched_yield();
        none += !entries_arm();
    }
    over = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("refused %ld missed %ld\n", refused, none);
}

/* --- instruction by instruction ----------------------------------------------------------------------------------- */

static int words[2], answers[2];

static char hear(int from) {
    char word = 0;
    if (read(from, &word, 1) != 1) exit(8);
    return word;
}

static void tell(int to, char word) {
    if (write(to, &word, 1) != 1) exit(8);
}

static void *stepped(void *unused) {
    int self = (int)syscall(SYS_gettid);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) exit(9);
    if (write(answers[1], &self, sizeof self) != sizeof self) exit(8);
    syscall(SYS_tgkill, getpid(), self, SIGSTOP);
    entry_of_enter(0);
    return unused;
}

static void child(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, stepped, NULL);
    hear(words[0]);
    gate_lock();
    tell(answers[1], entries_block() ? 's' : 'r');
    hear(words[0]);
    tell(answers[1], inside[0] ? 'i' : 'h');
    entries_unblock();
    gate_unlock();
    pthread_join(thread, NULL);
    tell(answers[1], inside[0] == 1 ? 'i' : 'h');
    exit(0);
}

static struct user_regs_struct registers_of(int thread) {
    struct user_regs_struct registers;
    struct iovec all = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &all)) exit(9);
    return registers;
}

static void run(int request, int thread) {
    int status;
    if (ptrace(request, thread, 0, 0) || waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) exit(9);
}

/* Run the thread up to the instruction of that number on its way through the entry; false: it has left the entry before. */
static bool run_to(int thread, int number);

#ifdef __x86_64__
static bool run_to(int thread, int number) {
    uint64_t entry = (uint64_t)(uintptr_t)entry_of_enter;
    while (registers_of(thread).rip != entry) run(PTRACE_SINGLESTEP, thread);
    for (int i = 0; i < number; i++) run(PTRACE_SINGLESTEP, thread);
    return registers_of(thread).rip - entry < ENTRY_SIZE;
}
#else
extern const char gate_through[], gate_through_end[];
enum { WORD = 4, OWN = 2, BRK = (int)0xd4200000 }; /* an entry has two instructions of its own */

/* By a breakpoint: single steps would restart the sequence each time. */
static bool run_to(int thread, int number) {
    const char *at = gate_through + WORD * (number - OWN);
    if (number < OWN) at = (const char *)entry_of_enter + WORD * number;
    bool there = at < gate_through_end || number < OWN;
    if (!there) at = (const char *)enter;
    long code = ptrace(PTRACE_PEEKTEXT, thread, at, 0);
    if (ptrace(PTRACE_POKETEXT, thread, at, (code & ~0xffffffffL) | (BRK & 0xffffffffL))) exit(9);
    run(PTRACE_CONT, thread);
    if (ptrace(PTRACE_POKETEXT, thread, at, code) || registers_of(thread).pc != (uint64_t)(uintptr_t)at) exit(9);
    return there;
}
#endif

/* Wait until the thread waits in the kernel. */
static void until_waiting(int thread) {
    char path[64], text[32];
    for (int tries = 0; tries < 600000; tries++, pause_for(100000)) {
        snprintf(path, sizeof path, "/proc/%d/syscall", thread);
        FILE *file = fopen(path, "r");
        bool waits = file && fgets(text, sizeof text, file) && atoi(text) == SYS_futex;
        if (file) fclose(file);
        if (waits || !file) return;
    }
    exit(10);
}

/* Stop a child's thread at the instruction of that number of the entry; false: there are not so many. */
static bool step(int number) {
    int thread, status;
    if (pipe(words) || pipe(answers)) exit(8);
    pid_t process = fork();
    if (!process) child();
    if (read(answers[0], &thread, sizeof thread) != sizeof thread) exit(8);
    waitpid(thread, &status, __WALL);
    bool there = run_to(thread, number);
    tell(words[1], 's');
    char answer = hear(answers[0]);
    ptrace(PTRACE_CONT, thread, 0, 0);
    if (there) until_waiting(thread);
    tell(words[1], 'o');
    char held = there ? hear(answers[0]) : (hear(answers[0]), '-');
    waitpid(thread, &status, __WALL);
    printf("%c%c%c ", answer, held, hear(answers[0]));
    fflush(stdout); /* otherwise the next child prints it again */
    waitpid(process, &status, 0);
    return there;
}

static void steps(void) {
    entry_of_enter(0); /* unblocked */
    inside[0] = 0;
    for (int number = 0; step(number); number++) continue;
    printf("\n");
}

/* --- a thread without restartable sequences ------------------------------------------------------------------------ */

#ifdef __aarch64__
#include <sys/rseq.h>

static void forget(void) {
    char *own = (char *)__builtin_thread_pointer() + __rseq_offset;
    if (__rseq_size && syscall(SYS_rseq, own, 32, RSEQ_FLAG_UNREGISTER, RSEQ_SIG)) exit(11);
}
#else
static void forget(void) {}
#endif

static void *enters(void *unused) {
    forget();
    entry_of_enter(0);
    return unused;
}

static const char *can_block(void) {
    gate_lock();
    bool can = entries_block();
    if (can) entries_unblock();
    gate_unlock();
    return can ? "shut" : "refused";
}

static void alone(void) {
    pthread_t thread;
    printf("%s, ", can_block());
    pthread_create(&thread, NULL, enters, NULL);
    pthread_join(thread, NULL);
    printf("%s\n", can_block());
}

int main(int count, char **arguments) {
    long number = count > 2 ? atol(arguments[2]) : 0;
    entry_of_enter = by_entry(enter);
    if (strcmp(arguments[1], "rate") == 0) rate(number);
    else if (strcmp(arguments[1], "arming") == 0) arming(number);
    else if (strcmp(arguments[1], "armed") == 0) armed();
    else if (strcmp(arguments[1], "missed") == 0) missed(number);
    else if (strcmp(arguments[1], "block") == 0) block(number);
    else if (strcmp(arguments[1], "alone") == 0) alone();
    else steps();
    return 0;
}
