/* The messages between a program and the part of its node that parks: twin of jupyter_gpu_node/parking/rules/protocol.py.
 *
 * Their form is that of all messages (connection/message.h), their kinds are none of those of shares. An order has a number,
 * which is never 0: answers repeat it, and it names the park until the return. */
#ifndef GATE_PARKING_PROTOCOL_H
#define GATE_PARKING_PROTOCOL_H

#include "../connection/message.h"

/* HELLO, first: a: the driver's CUDA version. b: abilities. c: how many GPUs follow.
 *
 * GPU: a GPU that was seen at cuInit. a, b: the 16 bytes of its uuid. c: its number, from 0.
 *
 * STATE, after these: a: the order by which the process is parked, or the one under way; 0: none. b: bytes that are parked. c: the
 * state, and from bit 8 on the ms since it was parked.
 *
 * USE, when it changes: a: bits. b: ms since the last use, 0 if in use. c: bytes on the GPUs.
 *
 * CAN: a: order. b: bytes on the GPUs. c: contexts. CANNOT: a: order. b: the number of the obstacle. c: a figure.
 *
 * PARKED: a: order. b: bytes that were on the GPUs. c: µs of the lock, from bit 32 on µs of the checkpoint.
 *
 * RUNNING: a: order. b: µs of the restore. c: µs of the unlock.
 *
 * FAILED, of a park or a return: a: order. b: the step (park.h), and from bit 8 on the state now. c: the driver's code; 0: it was
 * called off.
 *
 * NEED: a: 1: a call waits for the GPUs; 0: no longer. */
enum said { SAY_HELLO = 32, SAY_GPU, SAY_STATE, SAY_USE, SAY_CAN, SAY_CANNOT, SAY_PARKED, SAY_RUNNING, SAY_FAILED, SAY_NEED };
enum ability {
    ABLE_TO_PARK = 1,  /* the driver has the calls */
    ABLE_TO_SHUT = 2,  /* calls can be blocked in this process */
    ABLE_CELLS = 4,    /* the program tells when cells begin and end */
    ABLE_NVML = 8      /* NVML has entries as well */
};
enum said_state { SAID_RUNNING, SAID_PARKED, SAID_BROKEN, SAID_LOST, SAID_PARKING, SAID_RETURNING };
enum use { USE_BUSY = 1, USE_CELL = 2 };
enum obstacle {
    OBSTACLE_DRIVER = 1, /* it is too old, or lacks the calls; figure: its CUDA version */
    OBSTACLE_BROKEN,
    OBSTACLE_MANAGED,    /* managed memory */
    OBSTACLE_IMPORTED,   /* memory of other processes or GPUs is in reach */
    OBSTACLE_EXPORTED,   /* other processes may use its memory */
    OBSTACLE_SPACE,      /* a limit of the address space; figure: bytes that are missing */
    OBSTACLE_IN_USE,
    OBSTACLE_HANGS,      /* a step is under way */
    OBSTACLE_SHUT        /* calls cannot be blocked */
};

/* CHECK: a: order. It asks whether a park could begin, and changes nothing.
 *
 * PARK: a: order. b: ms that the lock may wait for submitted work.
 *
 * RESTORE: a: order. b: how many MAP follow, 0: the GPUs are the same. c: ms for which it is tried again while a GPU cannot be
 * opened.
 *
 * MAP: a, b: the uuid of the GPU that takes the place of one seen at cuInit. c: the number of that one.
 *
 * CANCEL: a: order. Undo its park as soon as the step that runs has ended, if that is not the checkpoint. */
enum told { TOLD_CHECK = 48, TOLD_PARK, TOLD_RESTORE, TOLD_MAP, TOLD_CANCEL };
enum { MOST_MAPS = 64, LONGEST_MS = 3600000 };

/* Decode a message of the node's; false: it is invalid, and nothing after it can be trusted. */
static inline bool told_read(const unsigned char from[MESSAGE_SIZE], struct message *message) {
    if (!message_split(from, message)) return false;
    switch (message->kind) {
    case TOLD_CHECK:
    case TOLD_CANCEL: return message->a && !message->b && !message->c;
    case TOLD_PARK: return message->a && message->b <= LONGEST_MS && !message->c;
    case TOLD_RESTORE: return message->a && message->b <= MOST_MAPS && message->c <= LONGEST_MS;
    case TOLD_MAP: return message->c < MOST_MAPS;
    default: return false;
    }
}

/* Read bytes as reader_next does. */
static inline int told_next(struct reader *reader, const unsigned char **from, size_t *size, struct message *message) {
    if (!reader_fill(reader, from, size)) return 0;
    return told_read(reader->rest, message) ? 1 : -1;
}

#endif
