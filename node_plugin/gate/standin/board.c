#define _GNU_SOURCE
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIRST_BYTE ((off_t)1 << 40) /* offset of the bytes whose locks show which processes are alive: beyond the file's end */
#define NEARLY 20                   /* a waiter does not sleep again this many microseconds before the end */

_Static_assert(sizeof(struct work) == 96, "board.py reads entries of this size");
_Static_assert(offsetof(struct sheet, slots) == 256 && sizeof(struct slot) == 16, "board.py reads slots there");

static uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t board_now(void) { return nanoseconds() / 1000; }

void board_wait(uint64_t until) {
    static _Thread_local int exact;
    for (;;) {
        uint64_t now = board_now();
        if (now >= until) return;
        if (until - now <= NEARLY) {
            sched_yield();
            continue;
        }
        if (!exact) exact = prctl(PR_SET_TIMERSLACK, 1UL) == 0;
        uint64_t wake = until - NEARLY;
        struct timespec at = {(time_t)(wake / 1000000), (long)(wake % 1000000) * 1000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

/* Take the lock. If a process was killed while it held it, the log has no half-written entry, so nothing needs repair. */
static void lock(struct sheet *sheet) {
    if (pthread_mutex_lock(&sheet->lock) == EOWNERDEAD) pthread_mutex_consistent(&sheet->lock);
}

static void unlock(struct sheet *sheet) { pthread_mutex_unlock(&sheet->lock); }

static size_t size_for(uint32_t entries) { return sizeof(struct sheet) + (size_t)entries * sizeof(struct work); }

/* Create the file under a temporary name and link it, so that it appears complete or not at all, whichever process is first. */
static int make(const char *path, const char *uuid, uint64_t memory, uint32_t entries) {
    char name[4096];
    snprintf(name, sizeof name, "%s.%d.new", path, (int)getpid());
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return errno;
    int failed = ftruncate(file, (off_t)size_for(entries)) ? errno : 0;
    struct sheet *sheet = failed ? MAP_FAILED : mmap(NULL, sizeof *sheet, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!failed && sheet == MAP_FAILED) failed = errno;
    if (!failed) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&sheet->lock, &kind);
        sheet->memory = memory;
        sheet->capacity = entries;
        snprintf(sheet->uuid, sizeof sheet->uuid, "%s", uuid);
        sheet->magic = BOARD_MAGIC;
        munmap(sheet, sizeof *sheet);
        if (link(name, path) && errno != EEXIST) failed = errno;
    }
    unlink(name);
    close(file);
    return failed;
}

static int attach(struct board *board, const char *path) {
    struct stat status;
    board->file = open(path, O_RDWR | O_CLOEXEC);
    if (board->file < 0) return errno;
    if (fstat(board->file, &status)) return errno;
    if ((size_t)status.st_size < size_for(1)) return EPROTO;
    board->sheet = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, board->file, 0);
    if (board->sheet == MAP_FAILED) return errno;
    if (board->sheet->magic != BOARD_MAGIC || size_for(board->sheet->capacity) != (size_t)status.st_size) return EPROTO;
    return 0;
}

static int byte_lock(struct board *board, int command, uint32_t slot, short *type) {
    struct flock range = {.l_type = *type, .l_whence = SEEK_SET, .l_start = FIRST_BYTE + slot, .l_len = 1};
    int failed = fcntl(board->file, command, &range) ? errno : 0;
    *type = range.l_type;
    return failed;
}

/* Return whether that process still has the GPU open. Works across pid namespaces, and for zombies. */
static int is_alive(struct board *board, uint32_t slot) {
    if (slot == board->slot) return 1;
    short type = F_WRLCK;
    return board->sheet->slots[slot].process && (byte_lock(board, F_GETLK, slot, &type) || type != F_UNLCK);
}

/* Take a free slot. A second copy of this library in the same process would share the first one's locks. So first skip slots
 * with this pid; those may also belong to a process of another container, or to one that has ended. */
static int enter(struct board *board) {
    struct sheet *sheet = board->sheet;
    board->pid = (uint32_t)getpid();
    for (uint32_t i = 0; i < 2 * BOARD_SLOTS; i++) {
        uint32_t slot = i % BOARD_SLOTS;
        short type = F_WRLCK;
        if (i < BOARD_SLOTS && sheet->slots[slot].process && sheet->slots[slot].pid == board->pid) continue;
        if (byte_lock(board, F_SETLK, slot, &type)) continue;
        board->slot = slot;
        board->process = ++sheet->processes;
        sheet->slots[slot] = (struct slot){board->process, board->pid, 0};
        return 0;
    }
    return EUSERS;
}

int board_open(struct board *board, const char *folder, const char *uuid, uint64_t memory, uint32_t entries,
               const char *owner) {
    char path[4000];
    if (mkdir(folder, 0777) && errno != EEXIST) return errno;
    snprintf(path, sizeof path, "%s/%s.board", folder, uuid);
    int failed = access(path, F_OK) ? make(path, uuid, memory, entries) : 0;
    if (!failed) failed = attach(board, path);
    if (failed) {
        board->sheet = NULL;
        return failed;
    }
    if (owner) snprintf(board->owner, sizeof board->owner, "%s", owner);
    else snprintf(board->owner, sizeof board->owner, "%d", (int)getpid());
    board->slot = BOARD_SLOTS;
    lock(board->sheet);
    failed = enter(board);
    unlock(board->sheet);
    return failed;
}

static int entry_lives(struct board *board, const struct work *entry) {
    for (uint32_t slot = 0; slot < BOARD_SLOTS; slot++)
        if (board->sheet->slots[slot].process == entry->process) return is_alive(board, slot);
    return 0;
}

/* Drop the work of processes that have ended, as a GPU does. */
static void drop_ended(struct board *board, uint64_t now) {
    struct sheet *sheet = board->sheet;
    uint64_t entries = sheet->entries, first = entries;
    while (first && entries - first < sheet->capacity && sheet->log[(first - 1) % sheet->capacity].end > now) first--;
    for (uint64_t i = first; i < entries; i++) {
        struct work *entry = &sheet->log[i % sheet->capacity];
        const struct work *before = i ? &sheet->log[(i - 1) % sheet->capacity] : NULL;
        if (!entry_lives(board, entry)) {
            entry->flags |= BOARD_CUT;
            if (entry->start > now) entry->start = now;
            entry->end = now;
        }
        entry->busy = (before ? before->busy : 0) + entry->end - entry->start;
    }
}

uint64_t board_run(struct board *board, uint64_t earliest, uint64_t duration, uint32_t kernels) {
    static const struct work nothing;
    struct sheet *sheet = board->sheet;
    lock(sheet);
    uint64_t entries = sheet->entries, now = board_now();
    const struct work *last = entries ? &sheet->log[(entries - 1) % sheet->capacity] : &nothing;
    if (last->end > now && last->process != board->process) drop_ended(board, now);
    int overlap = last->end > now && strcmp(last->owner, board->owner) != 0;
    uint64_t start = last->end > now ? last->end : now;
    if (start < earliest) start = earliest;
    struct work *entry = &sheet->log[entries % sheet->capacity];
    struct work made = {start, start + duration, last->busy + duration, last->overlaps + (uint64_t)overlap,
                         board->pid, board->process, overlap ? BOARD_OVERLAP : 0, kernels, now, ""};
    memcpy(made.owner, board->owner, sizeof made.owner);
    *entry = made;
    sheet->entries = entries + 1;
    unlock(sheet);
    return start + duration;
}

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* some functions count memory while the board is closed */

static uint64_t taken(struct board *board) {
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < BOARD_SLOTS; slot++)
        if (board->sheet->slots[slot].bytes && is_alive(board, slot)) bytes += board->sheet->slots[slot].bytes;
    return bytes;
}

static int take(struct board *board, int64_t bytes) {
    lock(board->sheet);
    int enough = bytes <= 0 || (uint64_t)bytes <= board->sheet->memory - taken(board);
    if (enough) board->sheet->slots[board->slot].bytes += (uint64_t)bytes;
    unlock(board->sheet);
    return enough;
}

int board_take(struct board *board, int64_t bytes) {
    pthread_mutex_lock(&opening);
    int enough = !board->sheet || take(board, bytes);
    if (enough) board->bytes += (uint64_t)bytes;
    pthread_mutex_unlock(&opening);
    return enough;
}

void board_close(struct board *board) {
    struct sheet *sheet = board->sheet;
    pthread_mutex_lock(&opening);
    lock(sheet);
    sheet->slots[board->slot] = (struct slot){0};
    unlock(sheet);
    munmap(sheet, size_for(sheet->capacity));
    close(board->file);
    board->sheet = NULL;
    pthread_mutex_unlock(&opening);
}

int board_reopen(struct board *board, const char *folder, const char *uuid, uint64_t memory, uint32_t entries,
                 const char *owner) {
    pthread_mutex_lock(&opening);
    int failed = board_open(board, folder, uuid, memory, entries, owner);
    if (!failed && !take(board, (int64_t)board->bytes)) failed = ENOSPC;
    pthread_mutex_unlock(&opening);
    return failed;
}

uint64_t board_free(struct board *board) {
    lock(board->sheet);
    uint64_t bytes = board->sheet->memory - taken(board);
    unlock(board->sheet);
    return bytes;
}
