/* The time and memory of one simulated GPU, in a file that all processes using that GPU map.
 *
 * The GPU's work is a log. The newest entry has the owner of the current work, the time when it ends, and sums over all
 * entries. An entry is written first and counted afterwards, by a single store, so a process that is killed at any point leaves
 * no partial entry, and readers need no lock. tests/gate/standin/board.py reads the same layout. */
#ifndef STANDIN_BOARD_H
#define STANDIN_BOARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define BOARD_MAGIC UINT64_C(0x32306472616f6267) /* "gboard02" */
#define BOARD_SLOTS 256
#define BOARD_OWNER 40

/* Flags of a piece of work. */
#define BOARD_OVERLAP 1u /* came while another owner's work was still on the GPU */
#define BOARD_CUT 2u     /* its process ended first: `end` is when that was noticed, not when the work would have ended */

/* One launch: a kernel, or all of one graph. Times are whole microseconds of CLOCK_MONOTONIC. */
struct work {
    uint64_t start, end;
    uint64_t busy;     /* sum over all entries up to this one */
    uint64_t overlaps; /* the same */
    uint32_t pid;
    uint32_t process; /* number of the process on this GPU, counted from 1 and never reused, unlike pids */
    uint32_t flags;
    uint32_t kernels;
    uint64_t queued; /* when it was launched, which may be long before its start */
    char owner[BOARD_OWNER];
};

/* A process that has the GPU open. It also holds a lock on one byte of the file, which is released however the process ends. */
struct slot {
    uint32_t process;
    uint32_t pid;
    uint64_t bytes; /* device memory in use */
};

struct sheet {
    uint64_t magic;
    uint64_t memory; /* bytes of the GPU */
    uint32_t capacity; /* entries of the log */
    uint32_t processes; /* so far */
    _Atomic uint64_t entries; /* so far: the newest is log[(entries - 1) % capacity] */
    char uuid[48];
    char unused[48];
    union {
        pthread_mutex_t lock;
        char space[128];
    };
    struct slot slots[BOARD_SLOTS];
    struct work log[];
};

struct board {
    struct sheet *sheet; /* NULL while closed */
    uint64_t bytes;      /* device memory in use; what it would be while closed */
    int file;
    uint32_t slot;
    uint32_t process;
    uint32_t pid;
    char owner[BOARD_OWNER];
};

/* Open a GPU's board, created on demand; `entries` and `memory` are used only when it is created. Return 0 or an errno. */
int board_open(struct board *board, const char *folder, const char *uuid, uint64_t memory, uint32_t entries,
               const char *owner);

/* Queue work after all that the GPU has to do, and not before `earliest`; return when it will end. */
uint64_t board_run(struct board *board, uint64_t earliest, uint64_t duration, uint32_t kernels);

/* Take device memory, or give it back (below 0). Return whether there was enough. */
int board_take(struct board *board, int64_t bytes);

/* Close the board: the process no longer has the GPU, nor memory there. */
void board_close(struct board *board);

/* Open the board of the same GPU or another one, and take the memory that the process had. Return 0 or an errno: ENOSPC if there is
 * not enough, and then it stays open. */
int board_reopen(struct board *board, const char *folder, const char *uuid, uint64_t memory, uint32_t entries,
                 const char *owner);

/* Return the bytes of the GPU that no living process uses. */
uint64_t board_free(struct board *board);

uint64_t board_now(void);

/* Wait until that time, to about 10 µs, without using a core. */
void board_wait(uint64_t until);

#endif
