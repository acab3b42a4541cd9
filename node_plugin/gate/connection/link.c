/* The shares of this process, their sockets, and one thread for each that reads what the server says.
 *
 * Nothing happens before the first launch or allocation. A thread of our own is needed, since a program that computes for
 * a minute between two launches must still answer a revoke. */
#define _GNU_SOURCE
#include "connection/share.h"
#include "launches/launches.h"
#include "memory/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { DEVICES = 64, HIGH_NUMBER = 200, TRIES_BEFORE_WORDS = 14 };
enum { FIRST_PAUSE = 10000000, WHOLE_PAUSE = 1000000, HURRY_PAUSE = 10000000, START_PAUSE = 50000000, END = 50000000, END_LOOK = 100000 }; /* ns */

pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static struct share *_Atomic shares[DEVICES];
static _Atomic bool ending;
static bool registered;

static int cancels; /* under the lock: whether the thread that has it can be cancelled without it */

void gate_enter(void) {
    int before = gate_uncancelled();
    pthread_mutex_lock(&gate_lock);
    cancels = before;
}

void gate_leave(void) {
    int before = cancels;
    pthread_mutex_unlock(&gate_lock);
    gate_cancelled_as(before);
}

int gate_uncancelled(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void gate_cancelled_as(int before) { pthread_setcancelstate(before, NULL); }

void gate_cancellable(void) { nanosleep(&(struct timespec){0}, NULL); } /* the C library looks there */

bool gate_ending(void) { return atomic_load_explicit(&ending, memory_order_relaxed); }

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static bool start(struct share *share);

/* Its thread could not start, mostly for a limit on processes or memory, which may go by: who waits tries again. */
static void say_why(void) {
    static _Atomic bool said;
    if (!atomic_exchange(&said, true))
        dprintf(2, "jupyter-gpu: this program waits: it cannot start the thread that asks for its part of the GPU, mostly for "
                   "a limit on processes or memory (ulimit -u, -v). It goes on by itself as soon as there is room.\n");
}

void share_wait(struct share *share, uint64_t ns) {
    bool started = share->started || start(share);
    if (!started && ns > START_PAUSE) ns = START_PAUSE;
    struct timespec most = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
    unsigned word = atomic_load(&share->word);
    int before = cancels; /* what waits has counted itself somewhere */
    pthread_mutex_unlock(&gate_lock);
    if (!started) say_why();
    syscall(SYS_futex, &share->word, FUTEX_WAIT_PRIVATE, word, &most, NULL, 0); /* a signal ends it too: the caller looks again */
    pthread_mutex_lock(&gate_lock);
    cancels = before;
}

void share_changed(struct share *share) {
    atomic_fetch_add(&share->word, 1);
    syscall(SYS_futex, &share->word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* --- where the sockets are ---------------------------------------------------------------------------------------- */

#ifndef GATE_DIRECTORY
/* Whether the environment is of another machine or an earlier start of this one, to which jobs and shells can take it: there
 * is no server then that could ever answer. What cannot be read counts as ours. */
bool gate_elsewhere(void) {
    const char *named = getenv("JUPYTER_GPU_GATE_BOOT");
    char now[36];
    int file = named && *named ? open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return false;
    ssize_t got = read(file, now, sizeof now);
    close(file);
    return got == sizeof now && (strlen(named) != sizeof now || memcmp(named, now, sizeof now) != 0);
}
#endif

/* Of the sockets; NULL: nothing is gated. A shim has it built in, so that no variable takes the gate away. */
static const char *directory(void) {
#ifdef GATE_DIRECTORY
    return GATE_DIRECTORY;
#else
    static char copy[4096 - 64]; /* with the name of a socket it is a path */
    static _Atomic int known; /* 1: there is none; 2: there is one */
    if (!atomic_load(&known)) {
        gate_enter();
        const char *named = getenv("JUPYTER_GPU_GATE");
        if (named && *named && !atomic_load(&known) && !gate_elsewhere()) snprintf(copy, sizeof copy, "%s", named);
        atomic_store(&known, *copy ? 2 : 1);
        gate_leave();
    }
    return atomic_load(&known) == 2 ? copy : NULL;
#endif
}

static uint64_t cookie_of(int socket) {
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) ? 0 : cookie;
}

/* Programs close numbers that they did not open, and get ours for a file of their own. */
static bool ours(const struct share *share) { return share->socket >= 0 && cookie_of(share->socket) == share->cookie; }

enum { LONGEST = 4096 };

static bool path_of(const struct share *share, char path[LONGEST]) {
    return snprintf(path, LONGEST, "%s/%s.sock", directory(), share->uuid) < LONGEST;
}

static struct place place_of(const struct share *share) {
    char path[LONGEST];
    struct stat about; /* the C library's function is a newer symbol */
    if (!path_of(share, path) || syscall(SYS_newfstatat, AT_FDCWD, path, &about, 0)) return (struct place){0};
    return (struct place){about.st_dev, about.st_ino, (uint64_t)about.st_mtim.tv_sec * SECOND + (uint64_t)about.st_mtim.tv_nsec};
}

static bool same_place(struct place one, struct place other) {
    return one.made && one.device == other.device && one.number == other.number && one.made == other.made;
}

/* Paths may be longer than addresses: then it is found through its directory. 0, or -1. */
static int dial_through(int socket, const struct share *share) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open(directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s.sock", folder, share->uuid);
    int result = connect(socket, (struct sockaddr *)&address, sizeof address), why = errno;
    close(folder);
    errno = why;
    return result;
}

static int dial_path(int socket, const struct share *share) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[LONGEST];
    if (!path_of(share, path) || strlen(path) >= sizeof address.sun_path) return dial_through(socket, share);
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect(socket, (struct sockaddr *)&address, sizeof address);
}

/* A socket that is connected to the server at that place, or -1. */
static int dial(const struct share *share, struct place place) {
    int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int high = fcntl(low, F_DUPFD_CLOEXEC, HIGH_NUMBER); /* where programs seldom look */
    if (high >= 0) close(low);
    int one = high >= 0 ? high : low;
    bool there = one >= 0 && dial_path(one, share) == 0;
    if (there && same_place(place, place_of(share))) return one;
    int why = there ? EAGAIN : errno; /* it was made anew meanwhile: whose socket that is cannot be told */
    if (one >= 0) close(one);
    errno = why;
    return -1;
}

void link_say(struct share *share, struct message message) {
    unsigned char bytes[MESSAGE_SIZE];
    message_write(bytes, message);
    if (ours(share) && send(share->socket, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof bytes)
        shutdown(share->socket, SHUT_RDWR); /* the thread sees the end, and connects again */
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* Under the lock: what came, up to the first that is no message. */
static bool take(struct share *share, struct reader *reader, const unsigned char *bytes, size_t size) {
    struct message message;
    int found;
    while ((found = reader_next(reader, &bytes, &size, &message)) > 0) {
        if (message.kind == MEMORY)
            memory_message(share, message);
        else
            lease_message(share, message, now_ns());
    }
    return found == 0;
}

/* Until the connection ends; whether anything was said that made sense to the end. What waits in poll keeps our socket, and so the
 * connection, after the program has closed it, but the next poll is for another file: so it looks before each whether it still is
 * ours, and at rest wakes up for that, as nothing else wakes it then: what a thread asks goes nowhere. */
static bool converse(struct share *share) {
    struct reader reader = {.have = 0};
    for (bool heard = false;;) {
        unsigned char bytes[64 * MESSAGE_SIZE];
        gate_enter();
        uint64_t now = now_ns(), lease = lease_tick(share, now), memory = memory_tick(share, now);
        bool is_ours = ours(share);
        gate_leave();
        if (!is_ours) return heard;
        uint64_t ns = lease < memory ? lease : memory;
        if (ns > SECOND) ns = SECOND;
        struct timespec most = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
        struct pollfd poll = {.fd = share->socket, .events = POLLIN};
        if (!ppoll(&poll, 1, &most, NULL)) continue;
        if (!ours(share)) return heard;
        ssize_t got = recv(share->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) return heard;
        gate_enter();
        bool sound = take(share, &reader, bytes, (size_t)got);
        gate_leave();
        if (!sound) return false;
        heard = true;
    }
}

static void connected(struct share *share, int socket, struct place place) {
    gate_enter();
    bool again = same_place(place, share->place);
    share->place = place;
    share->socket = socket;
    share->cookie = cookie_of(socket);
    memory_connected(share);
    lease_connected(share, again);
    share_changed(share);
    gate_leave();
}

static void hang_up(struct share *share) {
    gate_enter();
    if (ours(share)) close(share->socket);
    share->socket = -1;
    lease_lost(share);
    memory_lost(share);
    share_changed(share);
    gate_leave();
}

/* No server answered, for this reason: whether it goes on without one. */
static bool goes_on(struct share *share, struct place place, uint64_t when, int why) {
    if (why != ECONNREFUSED || !same_place(place, share->place)) return false;
    gate_enter();
    bool alone = lease_alone(share, when);
    gate_leave();
    return alone;
}

/* What is on the GPU must be told to the next server as soon as it is there. */
static bool hurries(struct share *share) {
    gate_enter();
    bool drains = lease_drains(share);
    gate_leave();
    return drains;
}

static void complain(const struct share *share, bool refused, int why) {
    dprintf(2, "jupyter-gpu: this program waits for its part of the GPU: %s/%s.sock (%s). It goes on by itself as soon as its "
               "notebook server has the GPU; to end the wait, end the program or restart the kernel.\n",
            directory(), share->uuid, refused ? "refused: it is not taken for a program of that server" : strerror(why));
}

static void *serve(void *data) {
    struct share *share = data;
    long pause = FIRST_PAUSE;
    prctl(PR_SET_NAME, "jupyter-gpu");
    prctl(PR_SET_TIMERSLACK, 1); /* a drained GPU is seen 50 µs sooner */
    for (int tries = 1;; tries++) {
        struct place place = place_of(share);
        uint64_t when = now_ns();
        int socket = dial(share, place), why = errno;
        bool alone = socket < 0 && goes_on(share, place, when, why), heard = false;
        if (socket >= 0) {
            connected(share, socket, place);
            heard = converse(share);
            hang_up(share);
        }
        if (heard || alone) {
            pause = FIRST_PAUSE;
            tries = 0;
        } else if (tries == TRIES_BEFORE_WORDS) {
            complain(share, socket >= 0, why);
        }
        long soon = heard && share->whole ? WHOLE_PAUSE : pause < HURRY_PAUSE || alone || hurries(share) ? HURRY_PAUSE : pause;
        nanosleep(&(struct timespec){.tv_nsec = soon}, NULL);
        if (!heard && !alone && pause < (long)SECOND / 2) pause *= 2;
    }
    return NULL;
}

/* --- shares ------------------------------------------------------------------------------------------------------- */

/* A child has none of our threads, no lease and no memory: it begins afresh. Its copies of the sockets would keep the
 * connections alive after its parent's end. */
static void forked(void) {
    gate_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* the thread that held it is not here */
    for (int i = 0; i < DEVICES; i++) {
        struct share *share = atomic_exchange(&shares[i], NULL);
        if (share && ours(share)) close(share->socket);
    }
    window_fork();
    memory_fork();
    entries_fork();
}

/* What is on the GPU now is given time to end: what follows may take long, and the driver cannot be asked meanwhile. */
static void end(void) {
    for (uint64_t latest = now_ns() + END;; nanosleep(&(struct timespec){.tv_nsec = END_LOOK}, NULL)) {
        bool busy = false;
        gate_enter();
        for (int i = 0; i < DEVICES; i++) {
            struct share *share = atomic_load(&shares[i]);
            if (share && lease_ends(share)) busy = true;
        }
        if (!busy || now_ns() >= latest) break;
        gate_leave();
    }
    atomic_store(&ending, true); /* under the lock, so that no call of ours is in the driver when it is taken down */
    gate_leave();
}

/* Under the lock. The C library's names for this differ, and a library that names one of them does not load in the other. */
static void register_once(void) {
    if (registered) return;
    registered = true;
    int (*glibc)(void (*)(void), void (*)(void), void (*)(void), void *) =
        (__typeof__(glibc))process_symbol("__register_atfork");
    int (*musl)(void (*)(void), void (*)(void), void (*)(void)) = (__typeof__(musl))process_symbol("pthread_atfork");
    if (glibc)
        glibc(NULL, NULL, forked, NULL);
    else if (musl)
        musl(NULL, NULL, forked);
    atexit(end);
}

void gate_enter_first(void) {
    gate_enter();
    register_once();
}

/* Under the lock. Threads are in another library in older C libraries; no program uses a GPU without it. */
static bool start(struct share *share) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(create))process_symbol("pthread_create");
    sigset_t every, before;
    pthread_t thread;
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, &before); /* the program's signals are for its own threads */
    share->started = create && create(&thread, NULL, serve, share) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return share->started;
}

static struct share *make(CUdevice device) {
    static const char digits[] = "0123456789abcdef";
    unsigned char id[16];
    void *room = NULL;
    if (DRIVER(cuDeviceGetUuid)(id, device) != CUDA_SUCCESS || posix_memalign(&room, 64, sizeof(struct share))) return NULL;
    struct share *share = memset(room, 0, sizeof *share);
    char *to = share->uuid;
    memcpy(to, "GPU-", 4);
    to += 4;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *to++ = '-';
        *to++ = digits[id[i] >> 4];
        *to++ = digits[id[i] & 15];
    }
    share->device = device;
    share->socket = -1;
    return share;
}

struct share *share_of(CUdevice device) {
    if (device < 0 || device >= DEVICES || !directory()) return NULL;
    struct share *share = atomic_load_explicit(&shares[device], memory_order_acquire);
    if (share && share->started) return share;
    gate_enter();
    share = atomic_load(&shares[device]);
    if (!share) atomic_store(&shares[device], share = make(device));
    register_once();
    if (share && !share->started) start(share);
    gate_leave();
    return share;
}

struct share *share_of_current(void) {
    CUdevice device;
    return directory() && DRIVER(cuCtxGetDevice) && DRIVER(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? share_of(device) : NULL;
}
