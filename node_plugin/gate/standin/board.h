/* The time and the memory of one simulated GPU, in a file that every process which uses that GPU maps.
 *
 * What the GPU does is its log: the newest entry says until when it is busy and whose work that is, and carries the sums
 * over all entries before it. An entry is written first and counted afterwards, by one store, so a process that is killed
 * at any point leaves nothing half done, and readers need no lock. tests/gate/standin/board.py reads the same layout.
 */
#ifndef STANDIN_BOARD_H
#define STANDIN_BOARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define BOARD_MAGIC UINT64_C(0x31306472616f6267) /* "gboard01" */
#define BOARD_SLOTS 256
#define BOARD_OWNER 40

/* Of a piece of work. */
#define BOARD_OVERLAP 1u /* came while another owner's work was still on the GPU */
#define BOARD_CUT 2u     /* its process ended first: `end` is when that was noticed, not when the work ended */

/* One launch: a kernel, or all of one graph. Times are whole microseconds of CLOCK_MONOTONIC. */
struct work {
    uint64_t start, end;
    uint64_t busy;     /* of all entries up to this one */
    uint64_t overlaps; /* the same */
    uint32_t pid;
    uint32_t process; /* which process of this GPU, counted from 1 and never used again, as pids are */
    uint32_t flags;
    uint32_t kernels;
    char owner[BOARD_OWNER];
};

/* One process that has the GPU open; it also holds a lock on one byte of the file, which ends with it however it ends. */
struct slot {
    uint32_t process;
    uint32_t pid;
    uint64_t bytes; /* device memory that it has */
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
    struct sheet *sheet;
    int file;
    uint32_t slot;
    uint32_t process;
    uint32_t pid;
    char owner[BOARD_OWNER];
};

/* Opens the board of a GPU, made on demand; `entries` and `memory` count for the process that makes it. 0, or an errno. */
int board_open(struct board *board, const char *folder, const char *uuid, uint64_t memory, uint32_t entries,
               const char *owner);

/* Puts work behind what the GPU has to do, not before `earliest`; returns when it will have ended. */
uint64_t board_run(struct board *board, uint64_t earliest, uint64_t duration, uint32_t kernels);

/* Takes (or, below 0, gives back) device memory. Whether there was enough. */
int board_take(struct board *board, int64_t bytes);

/* Bytes of the GPU that no living process has. */
uint64_t board_free(struct board *board);

uint64_t board_now(void);

/* Returns at that time, to about 10 µs, without taking a core meanwhile. */
void board_wait(uint64_t until);

#endif
