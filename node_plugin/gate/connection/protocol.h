/* The messages between a program and the arbiter of its node: twin of jupyter_gpu_node/shares/rules/protocol.py.
 *
 * 32 bytes, little-endian: u8 version, u8 kind, u16 0, u32 0, u64 a, b, c. What a kind does not use is 0 and must be.
 * Pure, so that it can be fuzzed: bytes in, numbers out. */
#ifndef GATE_PROTOCOL_H
#define GATE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MESSAGE_SIZE = 32, MESSAGE_VERSION = 1 };

/* a of ASK: µs that the work will take, 0 unknown; b: 1 if it has the GPU still, by the server before this
 * one (the whole of it, or work that has not ended), or by this one, which has asked for it, and its work takes longer; 3 if
 * that work also stands still while a launch waits here, as it may wait for that one.
 * a of DONE: µs still wanted + 1, 0 none; b: µs of GPU work measured; c: the number of the lease given back; 0: none is,
 * and b is work that passed without a lease since this was said last (small copies), which older servers do not charge.
 * a of NEED: bytes that this process has in all. The first one of a connection says what it has already.
 * b of NEED: which of the leases below are known here, as bits. Older gates say less, and are never given those. */
enum from_gate { ASK = 1, DONE = 2, NEED = 3 };
enum { KNOWS_ONCE = 1, KNOWS_AHEAD = 2 };
enum { KEEPS = 1, STUCK = 3 };

/* a of GRANT: µs from now; b: the number of the lease, counted by the server from 1 for each connection. The same number
 * again is an extension; one that was given back is void, as messages of the two ends cross. c: ONCE if it is for one launch;
 * AHEAD if no other share would wait for what is queued. ONCE for a lease that was asked back: one launch more.
 * a of REVOKE: that number.
 * a of MEMORY: bytes that this process may have in all; b: the share's limit; c: bytes of all its processes. */
enum from_server { GRANT = 16, REVOKE = 17, MEMORY = 18 };
enum { ONCE = 1, AHEAD = 2 };

#define FOREVER UINT64_MAX  /* a GRANT of a whole GPU */
#define NO_LIMIT UINT64_MAX /* a share without a limit of memory */

struct message {
    uint8_t kind;
    uint64_t a, b, c;
};

static inline void message_put(unsigned char *to, uint64_t value) {
    for (int i = 0; i < 8; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static inline uint64_t message_get(const unsigned char *from) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value |= (uint64_t)from[i] << 8 * i;
    return value;
}

static inline void message_write(unsigned char to[MESSAGE_SIZE], struct message message) {
    message_put(to, (uint64_t)MESSAGE_VERSION | (uint64_t)message.kind << 8);
    message_put(to + 8, message.a);
    message_put(to + 16, message.b);
    message_put(to + 24, message.c);
}

/* What a server says; false: this is no message, and nothing after it can be trusted. */
static inline bool message_read(const unsigned char from[MESSAGE_SIZE], struct message *message) {
    uint64_t head = message_get(from);
    *message = (struct message){(uint8_t)(head >> 8), message_get(from + 8), message_get(from + 16), message_get(from + 24)};
    if ((head & 0xff) != MESSAGE_VERSION || head >> 16) return false;
    switch (message->kind) {
    case GRANT: return message->b && message->c <= AHEAD;
    case REVOKE: return message->a && !message->b && !message->c;
    case MEMORY: return true;
    default: return false;
    }
}

/* Cuts what comes into messages. */
struct reader {
    unsigned char rest[MESSAGE_SIZE];
    size_t have;
};

/* Takes bytes from `*from` (`*size` of them) until one message is whole: 1 and the message; 0: all taken; -1: no message. */
static inline int reader_next(struct reader *reader, const unsigned char **from, size_t *size, struct message *message) {
    while (*size && reader->have < MESSAGE_SIZE) {
        reader->rest[reader->have++] = *(*from)++;
        --*size;
    }
    if (reader->have < MESSAGE_SIZE) return 0;
    reader->have = 0;
    return message_read(reader->rest, message) ? 1 : -1;
}

#endif
