/* The thread that is connected to park.sock: it says who this process is and what it does, and passes on what the node asks.
 *
 * The steps are done by the thread in park.c, which may be long in one of them. So this one never waits for it: it looks every
 * few ms while a step is under way, and meanwhile hears that the order is called off. The state of the process is the truth: a
 * node that connects anew is told it first. */
#define _GNU_SOURCE
#include "parking/link.h"

#include "connection/share.h"
#include "memory/memory.h"
#include "parking/park.h"
#include "parking/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HIGH_NUMBER = 200, FIRST_PAUSE = 10, LONGEST_PAUSE = 500, UNDER_WAY = 5, QUIET = 1000 }; /* pauses in ms */
enum doing { NOTHING, PARKS, RETURNS };

static _Atomic bool started;
static _Atomic int own_socket; /* the descriptor + 1; 0: none */
static _Atomic uint64_t own_cookie;
static bool introduced, needs, said_need; /* under the gate's lock */

/* Found once, before the thread starts: while calls are blocked the driver cannot be asked. */
static struct {
    int version;
    uint64_t abilities, count;
    unsigned char uuids[MOST_MAPS][16];
} about;

/* The thread's alone. */
static enum doing doing;
static uint64_t order, parked_bytes; /* of the last park */
static struct message waiting; /* came while a step was under way; kind 0: none */
static struct message said_use;
static uint64_t used_at;

static uint64_t cookie_of(int socket) {
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) ? 0 : cookie;
}

/* The program may have closed the descriptor, and have a file of its own there. */
static bool is_ours(int socket) { return cookie_of(socket) == atomic_load(&own_cookie); }

static void say(int socket, uint8_t kind, uint64_t a, uint64_t b, uint64_t c) {
    unsigned char bytes[MESSAGE_SIZE];
    message_write(bytes, (struct message){kind, a, b, c});
    if (is_ours(socket) && send(socket, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof bytes)
        shutdown(socket, SHUT_RDWR); /* its end is seen, and it connects again */
}

/* --- what it says -------------------------------------------------------------------------------------------------- */

static uint64_t capped(uint64_t us) { return us > UINT32_MAX ? UINT32_MAX : us; }

/* Under the lock: a node that is told of a need has been told who needs it. */
static void tell_need(void) {
    if (introduced && needs != said_need) say(atomic_load(&own_socket) - 1, SAY_NEED, said_need = needs, 0, 0);
}

static void introduce(int socket) {
    struct park_answer now;
    bool under_way = park_look(&now), has_order = under_way || now.state == PARK_PARKED;
    if (!under_way) doing = NOTHING; /* the state says how it has ended */
    uint64_t state = !under_way ? (uint64_t)now.state : doing == RETURNS ? SAID_RETURNING : SAID_PARKING;
    uint64_t age = now.state == PARK_PARKED ? park_age() / 1000000 : 0;
    say(socket, SAY_HELLO, (uint64_t)about.version, about.abilities, about.count);
    for (uint64_t i = 0; i < about.count; i++)
        say(socket, SAY_GPU, message_get(about.uuids[i]), message_get(about.uuids[i] + 8), i);
    say(socket, SAY_STATE, has_order ? order : 0, has_order ? parked_bytes : 0, state | age << 8);
    said_use = (struct message){0};
    gate_lock_own();
    introduced = true;
    said_need = false;
    tell_need();
    gate_unlock();
}

/* Say once a second whether the use has changed. */
static void tell_use(int socket) {
    static uint64_t told_at;
    struct park_answer now;
    uint64_t at = now_ns();
    if (park_look(&now) || now.state != PARK_RUNNING || at < told_at + SECOND) return;
    told_at = at;
    bool busy = entries_arm();
    if (busy) used_at = at;
    struct message use = {SAY_USE, busy ? USE_BUSY : 0, busy ? 0 : (at - used_at) / 1000000, shares_used()};
    if (use.kind == said_use.kind && use.a == said_use.a && use.c == said_use.c) return;
    said_use = use;
    say(socket, use.kind, use.a, use.b, use.c);
}

static void answer_check(int socket, uint64_t number) {
    struct park_answer now;
    bool under_way = park_look(&now);
    uint64_t obstacle = !(about.abilities & ABLE_TO_PARK) ? OBSTACLE_DRIVER
                        : under_way || now.state == PARK_PARKED ? OBSTACLE_HANGS
                        : now.state != PARK_RUNNING ? OBSTACLE_BROKEN : 0;
    if (obstacle)
        say(socket, SAY_CANNOT, number, obstacle, obstacle == OBSTACLE_DRIVER ? (uint64_t)about.version : 0);
    else
        say(socket, SAY_CAN, number, shares_used(), contexts_all());
}

static void fail(int socket, uint64_t number, const struct park_answer *now, unsigned step, uint64_t code) {
    say(socket, SAY_FAILED, number, step | (uint64_t)now->state << 8, code);
}

/* Answer when the step that was asked for has ended; `now` is how. */
static void answer(int socket, const struct park_answer *now) {
    if (doing == PARKS && now->state == PARK_PARKED)
        say(socket, SAY_PARKED, order, parked_bytes, capped(now->us[PARK_LOCK]) | capped(now->us[PARK_CHECKPOINT]) << 32);
    else if (doing == RETURNS && now->state == PARK_RUNNING)
        say(socket, SAY_RUNNING, order, now->us[PARK_RESTORE], now->us[PARK_UNLOCK]);
    else
        fail(socket, order, now, now->step ? (unsigned)now->step : PARK_THREAD, (uint64_t)now->code);
    doing = NOTHING;
}

/* --- what it is told ----------------------------------------------------------------------------------------------- */

static void begin_park(int socket, const struct message *told, struct park_answer *now) {
    bool again = now->state == PARK_PARKED && told->a == order;
    if (!again && now->state != PARK_RUNNING) {
        fail(socket, told->a, now, PARK_LOCK, CUDA_ERROR_ILLEGAL_STATE);
        return;
    }
    doing = PARKS;
    if (again) return;
    order = told->a;
    parked_bytes = shares_used();
    jupyter_gpu_park((unsigned)told->b, 0, now);
}

static void begin_return(int socket, const struct message *told, struct park_answer *now) {
    if (told->b) {
        fail(socket, told->a, now, PARK_RESTORE, CUDA_ERROR_NOT_SUPPORTED); /* to other GPUs */
        return;
    }
    doing = RETURNS;
    if (now->state == PARK_PARKED) jupyter_gpu_return((unsigned)told->c, 0, now);
}

static void handle(int socket, const struct message *told) {
    struct park_answer now;
    bool under_way = park_look(&now);
    if (!under_way && doing != NOTHING) answer(socket, &now);
    if (told->kind == TOLD_CHECK) answer_check(socket, told->a);
    else if (told->kind == TOLD_CANCEL && told->a == order && doing == PARKS) park_cancel();
    else if (under_way) waiting = *told;
    else if (told->kind == TOLD_PARK) begin_park(socket, told, &now);
    else if (told->kind == TOLD_RESTORE) begin_return(socket, told, &now);
}

/* Do what is due when nothing is under way: answer, and go on with what came meanwhile. */
static void go_on(int socket) {
    struct park_answer now;
    struct message next = waiting;
    if (park_look(&now)) return;
    if (doing != NOTHING) answer(socket, &now);
    waiting.kind = 0;
    if (next.kind) handle(socket, &next);
}

/* Read what has come; false: the connection is of no use any more. */
static bool read_messages(int socket, struct reader *reader) {
    unsigned char bytes[64 * MESSAGE_SIZE];
    const unsigned char *from = bytes;
    struct message told;
    int found;
    ssize_t got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    for (size_t size = (size_t)got; (found = told_next(reader, &from, &size, &told)) > 0;) handle(socket, &told);
    return found == 0;
}

static void serve(int socket) {
    struct reader reader = {.have = 0};
    waiting.kind = 0;
    introduce(socket);
    while (is_ours(socket)) {
        go_on(socket);
        tell_use(socket);
        struct pollfd next = {.fd = socket, .events = POLLIN};
        if (poll(&next, 1, doing == NOTHING ? QUIET : UNDER_WAY) <= 0) continue;
        if (is_ours(socket) && !read_messages(socket, &reader)) break;
    }
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

/* Connect by way of the folder, as paths may be longer than addresses. */
static bool connect_through_folder(int socket) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open(gate_directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return false;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/park.sock", folder);
    bool there = connect(socket, (struct sockaddr *)&address, sizeof address) == 0;
    close(folder);
    return there;
}

/* Return a socket, or -1. A child that is forked from now on closes its copy. */
static int open_socket(void) {
    int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int high = fcntl(low, F_DUPFD_CLOEXEC, HIGH_NUMBER); /* programs rarely touch high numbers */
    if (high >= 0) close(low);
    int one = high >= 0 ? high : low;
    if (one < 0) return -1;
    atomic_store(&own_cookie, cookie_of(one));
    atomic_store(&own_socket, one + 1);
    return one;
}

static void close_socket(int socket) {
    gate_lock_own();
    introduced = false;
    gate_unlock();
    atomic_store(&own_socket, 0);
    if (is_ours(socket)) close(socket);
}

static void *link_thread(void *unused) {
    prctl(PR_SET_NAME, "jupyter-gpu");
    for (int pause = FIRST_PAUSE;; pause = pause < LONGEST_PAUSE ? 2 * pause : LONGEST_PAUSE) {
        int socket = open_socket();
        if (socket >= 0 && connect_through_folder(socket)) {
            uint64_t since = now_ns();
            serve(socket);
            if (doing == PARKS) park_cancel(); /* nobody could give it back: undo it, if that is possible yet */
            if (now_ns() - since >= SECOND) pause = FIRST_PAUSE; /* else it refuses this process */
        }
        if (socket >= 0) close_socket(socket);
        nanosleep(&(struct timespec){.tv_sec = pause / 1000, .tv_nsec = pause % 1000 * 1000000l}, NULL);
    }
    return unused;
}

static void look_around(void) {
    DRIVER(cuDriverGetVersion)(&about.version);
    about.abilities = ABLE_TO_SHUT | (DRIVER(cuCheckpointProcessLock) ? ABLE_TO_PARK : 0);
    for (about.count = 0; about.count < MOST_MAPS; about.count++)
        if (DRIVER(cuDeviceGetUuid)(about.uuids[about.count], (CUdevice)about.count) != CUDA_SUCCESS) break;
}

static bool is_offered(void) {
    char path[4096];
    const char *folder = gate_directory();
    return folder && snprintf(path, sizeof path, "%s/park.sock", folder) < (int)sizeof path && access(path, F_OK) == 0;
}

void link_start(void) {
    if (atomic_load(&started) || !is_offered() || atomic_exchange(&started, true)) return;
    look_around();
    gate_lock_first();
    bool runs = gate_start_thread(link_thread, NULL);
    gate_unlock();
    if (!runs) atomic_store(&started, false); /* the next cuInit tries again */
}

void link_need(bool now) {
    gate_lock_own();
    needs = now;
    tell_need();
    gate_unlock();
}

void link_fork(void) {
    int socket = atomic_exchange(&own_socket, 0) - 1;
    if (socket >= 0 && is_ours(socket)) close(socket);
    atomic_store(&started, false);
    doing = NOTHING;
    introduced = needs = false;
}
