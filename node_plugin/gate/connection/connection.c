/* The shares of this process, their sockets, and one thread for each that reads the server's messages.
 *
 * The gate connects at the first launch or allocation. It needs threads of its own, because a program that computes for a
 * minute between two launches must still answer a revoke. */
#define _GNU_SOURCE
#include "connection/share.h"
#include "launches/launches.h"
#include "memory/memory.h"
#include "parking/link.h"
#include "parking/park.h"

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

enum { DEVICES = 64, HIGH_NUMBER = 200, TRIES_BEFORE_WARNING = 14 };
enum { FIRST_PAUSE = 10000000, WHOLE_PAUSE = 1000000, HURRY_PAUSE = 10000000, START_PAUSE = 50000000 }; /* ns */
enum { END = 50000000, END_POLL = 100000 }; /* ns */

pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct share *_Atomic shares[DEVICES];
static _Atomic bool ending;
static bool registered;

static int cancels; /* under the lock: the former cancel state of the thread that holds it */

static _Atomic unsigned parking; /* a futex: enum parking */

enum parking gate_parking(void) { return atomic_load_explicit(&parking, memory_order_relaxed); }

void gate_set_parking(enum parking next) {
    atomic_store(&parking, next);
    syscall(SYS_futex, &parking, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* Lock the mutex while the entries are open. */
static void lock_while_open(void) {
    for (;;) {
        pthread_mutex_lock(&gate_mutex);
        unsigned seen = atomic_load_explicit(&parking, memory_order_relaxed);
        if (seen == CALLS_OPEN) return;
        pthread_mutex_unlock(&gate_mutex);
        syscall(SYS_futex, &parking, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
}

void gate_lock(void) {
    int before = gate_disable_cancel();
    lock_while_open();
    cancels = before;
}

void gate_lock_own(void) {
    int before = gate_disable_cancel();
    pthread_mutex_lock(&gate_mutex);
    cancels = before;
}

void gate_unlock(void) {
    int before = cancels;
    pthread_mutex_unlock(&gate_mutex);
    gate_restore_cancel(before);
}

int gate_disable_cancel(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void gate_restore_cancel(int before) { pthread_setcancelstate(before, NULL); }

void gate_cancel_point(void) { nanosleep(&(struct timespec){0}, NULL); } /* a cancellation point */

bool gate_ending(void) { return atomic_load_explicit(&ending, memory_order_relaxed); }

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static bool start_thread(struct share *share);

/* Warn that the thread could not be started, usually because of a limit on processes or memory. That may be temporary, so
 * waiting threads try again. */
static void warn_no_thread(void) {
    static _Atomic bool said;
    if (!atomic_exchange(&said, true))
        dprintf(2, "jupyter-gpu: this program waits: it cannot start the thread that asks for its part of the GPU, usually "
                   "because of a limit on processes or memory (ulimit -u, -v). It goes on by itself as soon as there is room.\n");
}

void share_wait(struct share *share, uint64_t ns) {
    bool started = share->started || start_thread(share);
    if (!started && ns > START_PAUSE) ns = START_PAUSE;
    struct timespec most = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
    unsigned word = atomic_load(&share->word);
    int before = cancels; /* while it waits, the thread is counted in `waiters` or elsewhere */
    pthread_mutex_unlock(&gate_mutex);
    if (!started) warn_no_thread();
    syscall(SYS_futex, &share->word, FUTEX_WAIT_PRIVATE, word, &most, NULL, 0); /* a signal ends it too: callers check again */
    lock_while_open();
    cancels = before;
}

void share_changed(struct share *share) {
    atomic_fetch_add(&share->word, 1);
    syscall(SYS_futex, &share->word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

#ifndef GATE_DIRECTORY
/* Return whether the environment comes from another machine or an earlier boot, where no server could answer: jobs and shells
 * may carry it along. If the boot ID cannot be read, assume this machine. */
bool gate_environment_is_foreign(void) {
    const char *named = getenv("JUPYTER_GPU_GATE_BOOT");
    char now[36];
    int file = named && *named ? open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return false;
    ssize_t got = read(file, now, sizeof now);
    close(file);
    return got == sizeof now && (strlen(named) != sizeof now || memcmp(named, now, sizeof now) != 0);
}
#endif

/* Return the directory of the sockets; NULL: nothing is gated. In the shim it is compiled in, so that a changed variable
 * cannot disable the gate. */
static const char *directory(void) {
#ifdef GATE_DIRECTORY
    return GATE_DIRECTORY;
#else
    static char copy[4096 - 64]; /* leaves room for the name of a socket */
    static _Atomic int known; /* 1: there is none; 2: there is one */
    if (!atomic_load(&known)) {
        gate_lock();
        const char *named = getenv("JUPYTER_GPU_GATE");
        if (named && *named && !atomic_load(&known) && !gate_environment_is_foreign()) snprintf(copy, sizeof copy, "%s", named);
        atomic_store(&known, *copy ? 2 : 1);
        gate_unlock();
    }
    return atomic_load(&known) == 2 ? copy : NULL;
#endif
}

const char *gate_directory(void) { return directory(); }

static uint64_t cookie_of(int socket) {
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) ? 0 : cookie;
}

/* Programs may close descriptors that they did not open, and reuse the gate's number for a file of their own. */
static bool is_own_socket(const struct share *share) { return share->socket >= 0 && cookie_of(share->socket) == share->cookie; }

enum { LONGEST = 4096 };

static bool path_of(const struct share *share, char path[LONGEST]) {
    return snprintf(path, LONGEST, "%s/%s.sock", directory(), share->uuid) < LONGEST;
}

static struct socket_file socket_file_of(const struct share *share) {
    char path[LONGEST];
    struct stat about; /* stat() is a newer symbol */
    if (!path_of(share, path) || syscall(SYS_newfstatat, AT_FDCWD, path, &about, 0)) return (struct socket_file){0};
    return (struct socket_file){about.st_dev, about.st_ino, (uint64_t)about.st_mtim.tv_sec * SECOND + (uint64_t)about.st_mtim.tv_nsec};
}

static bool same_socket_file(struct socket_file one, struct socket_file other) {
    return one.made && one.device == other.device && one.number == other.number && one.made == other.made;
}

/* Connect by way of the socket's folder, as paths may be longer than addresses. Return 0, or -1. */
static int connect_through_folder(int socket, const struct share *share) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open(directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s.sock", folder, share->uuid);
    int result = connect(socket, (struct sockaddr *)&address, sizeof address), why = errno;
    close(folder);
    errno = why;
    return result;
}

static int connect_path(int socket, const struct share *share) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[LONGEST];
    if (!path_of(share, path) || strlen(path) >= sizeof address.sun_path) return connect_through_folder(socket, share);
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect(socket, (struct sockaddr *)&address, sizeof address);
}

/* Return a socket that is connected to the server at that path, or -1. */
static int open_connection(const struct share *share, struct socket_file socket_file) {
    int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int high = fcntl(low, F_DUPFD_CLOEXEC, HIGH_NUMBER); /* programs rarely touch high numbers */
    if (high >= 0) close(low);
    int one = high >= 0 ? high : low;
    bool there = one >= 0 && connect_path(one, share) == 0;
    if (there && same_socket_file(socket_file, socket_file_of(share))) return one;
    int why = there ? EAGAIN : errno; /* the socket was replaced meanwhile: it is unknown which server this is */
    if (one >= 0) close(one);
    errno = why;
    return -1;
}

void connection_send(struct share *share, struct message message) {
    unsigned char bytes[MESSAGE_SIZE];
    message_write(bytes, message);
    if (is_own_socket(share) && send(share->socket, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof bytes)
        shutdown(share->socket, SHUT_RDWR); /* the thread sees the end and reconnects */
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* Under the lock: handle all messages; return false at the first invalid one. `gone`: their server has ended. */
static bool handle_messages(struct share *share, struct reader *reader, const unsigned char *bytes, size_t size, bool gone) {
    struct message message;
    int found;
    while ((found = reader_next(reader, &bytes, &size, &message)) > 0) {
        if (message.kind == MEMORY)
            memory_on_message(share, message);
        else
            lease_on_message(share, message, now_ns(), gone);
    }
    return found == 0;
}

/* Return whether the other end is closed. Call this after reading, as the program may have been stopped between poll and
 * read. */
static bool has_hung_up(int socket) {
    struct pollfd end = {.fd = socket};
    return poll(&end, 1, 0) > 0 && (end.revents & POLLHUP);
}

/* Serve the connection until it ends; return whether messages arrived and all were valid. If the program closes the descriptor
 * during poll(), poll() keeps the connection open, but requests are no longer sent, and the next poll() would be for another
 * file. So wake up every second, and check before each poll() that the descriptor is still the gate's socket. */
static bool run_connection(struct share *share) {
    struct reader reader = {.have = 0};
    for (bool heard = false;;) {
        unsigned char bytes[64 * MESSAGE_SIZE];
        gate_lock_own();
        uint64_t now = now_ns(), lease = lease_tick(share, now), memory = memory_tick(share, now);
        bool is_ours = is_own_socket(share);
        gate_unlock();
        if (!is_ours) return heard;
        uint64_t ns = lease < memory ? lease : memory;
        if (ns > SECOND) ns = SECOND;
        struct timespec most = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
        struct pollfd next = {.fd = share->socket, .events = POLLIN};
        if (ppoll(&next, 1, &most, NULL) <= 0) continue;
        if (!is_own_socket(share)) return heard;
        ssize_t got = recv(share->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) return heard;
        gate_lock_own();
        bool sound = handle_messages(share, &reader, bytes, (size_t)got, has_hung_up(share->socket));
        gate_unlock();
        if (!sound) return false;
        heard = true;
    }
}

static void on_connect(struct share *share, int socket, struct socket_file socket_file) {
    gate_lock_own();
    bool again = same_socket_file(socket_file, share->socket_file);
    share->socket_file = socket_file;
    share->socket = socket;
    share->cookie = cookie_of(socket);
    memory_on_connect(share);
    lease_on_connect(share, again);
    share_changed(share);
    gate_unlock();
}

static void on_disconnect(struct share *share) {
    gate_lock_own();
    if (is_own_socket(share)) close(share->socket);
    share->socket = -1;
    lease_on_disconnect(share);
    memory_on_disconnect(share);
    share_changed(share);
    gate_unlock();
}

/* Handle a failed connection (`why`: its errno); return whether the program continues without a server. */
static bool continues_alone(struct share *share, struct socket_file socket_file, uint64_t when, int why) {
    if (why != ECONNREFUSED || !same_socket_file(socket_file, share->socket_file)) return false;
    gate_lock_own();
    bool alone = lease_continue_alone(share, when);
    gate_unlock();
    return alone;
}

/* Return whether work is still on the GPU: the next server must learn of it as soon as it starts. */
static bool must_hurry(struct share *share) {
    gate_lock_own();
    bool drains = lease_is_draining(share);
    gate_unlock();
    return drains;
}

static void warn_waiting(const struct share *share, bool refused, int why) {
    dprintf(2, "jupyter-gpu: this program waits for its part of the GPU: %s/%s.sock (%s). It goes on by itself as soon as its "
               "notebook server has the GPU; to end the wait, end the program or restart the kernel.\n",
            directory(), share->uuid, refused ? "refused: it does not count as a program of that server" : strerror(why));
}

static void *connection_thread(void *data) {
    struct share *share = data;
    long pause = FIRST_PAUSE;
    prctl(PR_SET_NAME, "jupyter-gpu");
    prctl(PR_SET_TIMERSLACK, 1); /* notices a drained GPU 50 µs sooner */
    for (int tries = 1;; tries++) {
        struct socket_file socket_file = socket_file_of(share);
        uint64_t when = now_ns();
        int socket = open_connection(share, socket_file), why = errno;
        bool alone = socket < 0 && continues_alone(share, socket_file, when, why), heard = false;
        if (socket >= 0) {
            on_connect(share, socket, socket_file);
            heard = run_connection(share);
            on_disconnect(share);
        }
        if (heard || alone) {
            pause = FIRST_PAUSE;
            tries = 0;
        } else if (tries == TRIES_BEFORE_WARNING) {
            warn_waiting(share, socket >= 0, why);
        }
        long soon = heard && share->whole ? WHOLE_PAUSE : pause < HURRY_PAUSE || alone || must_hurry(share) ? HURRY_PAUSE : pause;
        nanosleep(&(struct timespec){.tv_nsec = soon}, NULL);
        if (!heard && !alone && pause < (long)SECOND / 2) pause *= 2;
    }
    return NULL;
}

/* --- shares ------------------------------------------------------------------------------------------------------- */

/* Reset everything in a forked child: it has no gate threads, no lease and no GPU memory. Close its copies of the sockets,
 * which would keep the connections open after the parent has ended. */
static void after_fork(void) {
    gate_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* the thread that held it is not in the child */
    for (int i = 0; i < DEVICES; i++) {
        struct share *share = atomic_exchange(&shares[i], NULL);
        if (share && is_own_socket(share)) close(share->socket);
    }
    window_fork();
    memory_fork();
    park_fork();
    link_fork();
    entries_fork();
    atomic_store(&parking, CALLS_OPEN);
}

/* Under the lock. */
static void end_parked(void) {
    if (gate_parking() == CALLS_OPEN) return;
    atomic_store(&ending, true);
    entries_fail(CUDA_ERROR_DEINITIALIZED);
    gate_set_parking(CALLS_OPEN);
}

void gate_end_parked(void) {
    gate_lock_own();
    end_parked();
    gate_unlock();
}

/* Give the work on the GPU time to finish, because the driver cannot be queried during later exit handlers, which may be
 * slow. */
static void at_exit(void) {
    for (uint64_t latest = now_ns() + END;; nanosleep(&(struct timespec){.tv_nsec = END_POLL}, NULL)) {
        bool busy = false;
        gate_lock_own();
        end_parked();
        if (gate_ending()) break;
        for (int i = 0; i < DEVICES; i++) {
            struct share *share = atomic_load(&shares[i]);
            if (share && lease_end(share)) busy = true;
        }
        if (!busy || now_ns() >= latest) break;
        gate_unlock();
    }
    atomic_store(&ending, true); /* under the lock, so that no call of the gate is in the driver while it shuts down */
    gate_unlock();
}

/* Under the lock. */
static void register_once(void) {
    if (registered) return;
    registered = true;
    run_in_children(after_fork);
    atexit(at_exit);
}

void gate_lock_first(void) {
    gate_lock();
    register_once();
}

/* Under the lock. The function is looked up, because older C libraries have it in libpthread, which every program that uses a
 * GPU has loaded. */
bool gate_start_thread(void *(*run)(void *), void *data) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(create))process_symbol("pthread_create");
    sigset_t every, before;
    pthread_t thread;
    register_once();
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, &before); /* signals are for the program's own threads */
    bool is_started = create && create(&thread, NULL, run, data) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static bool start_thread(struct share *share) {
    share->started = gate_start_thread(connection_thread, share);
    return share->started;
}

static struct share *create_share(CUdevice device) {
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
    gate_lock();
    share = atomic_load(&shares[device]);
    if (!share) atomic_store(&shares[device], share = create_share(device));
    register_once();
    if (share && !share->started) start_thread(share);
    gate_unlock();
    return share;
}

struct share *share_of_current(void) {
    CUdevice device;
    return directory() && DRIVER(cuCtxGetDevice) && DRIVER(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? share_of(device) : NULL;
}

uint64_t shares_used(void) {
    uint64_t bytes = 0;
    gate_lock_own();
    for (int i = 0; i < DEVICES; i++)
        if (atomic_load(&shares[i])) bytes += atomic_load(&shares[i])->used;
    gate_unlock();
    return bytes;
}

void shares_parked(void) {
    window_parked();
    for (int i = 0; i < DEVICES; i++)
        if (atomic_load(&shares[i])) lease_parked(atomic_load(&shares[i]));
}
