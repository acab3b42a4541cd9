/* The messages between a program and the arbiter of its node: twin of jupyter_gpu_node/shares/rules/protocol.py. */
#ifndef GATE_PROTOCOL_H
#define GATE_PROTOCOL_H

#include "message.h"

/* ASK: a: µs that the work will take, 0: unknown. b: 1 (KEEPS) if the process still has the GPU: from the previous server
 * (the whole GPU, or work that has not ended), or from this server, whose lease it cannot give back yet; 3 (STUCK) if that
 * work also makes no progress while a launch waits here, as the work may depend on that launch.
 *
 * DONE: a: µs still wanted + 1, 0: none. b: µs of GPU work measured. c: number of the lease given back; 0: none, and b is the
 * work outside leases since the last report (small copies), which older servers do not charge.
 *
 * NEED: a: total bytes that this process needs; the first NEED of a connection reports what it has already. b: one bit for
 * each kind of lease below that this gate knows. Older gates send fewer bits, and never get the other kinds. */
enum from_gate { ASK = 1, DONE = 2, NEED = 3 };
enum { KNOWS_ONCE = 1, KNOWS_AHEAD = 2, KNOWS_SINGLE = 4 };
enum { KEEPS = 1, STUCK = 3 };

/* GRANT: a: µs until the lease ends. b: number of the lease, counted by the server from 1 for each connection. The same number
 * again extends that lease; a number that was given back is void, as messages may cross. c: ONCE for one launch only (after a
 * revoke: one more launch); AHEAD if no other share would have to wait for queued work; SINGLE if nothing may be queued behind
 * what runs.
 *
 * REVOKE: a: number of the lease.
 *
 * MEMORY: a: total bytes that this process may have. b: the share's limit. c: bytes of all processes of the share. */
enum from_server { GRANT = 16, REVOKE = 17, MEMORY = 18 };
enum { ONCE = 1, AHEAD = 2, SINGLE = 3 };

#define FOREVER UINT64_MAX  /* GRANT of a whole GPU */
#define NO_LIMIT UINT64_MAX /* a share without a memory limit */

/* Decode a server's message; false: it is invalid, and nothing after it can be trusted. */
static inline bool message_read(const unsigned char from[MESSAGE_SIZE], struct message *message) {
    if (!message_split(from, message)) return false;
    switch (message->kind) {
    case GRANT: return message->b && message->c <= SINGLE;
    case REVOKE: return message->a && !message->b && !message->c;
    case MEMORY: return true;
    default: return false;
    }
}

/* Read bytes from `*from` (`*size` of them) until one message is complete. 1: a message; 0: all bytes are read; -1: an invalid
 * message. */
static inline int reader_next(struct reader *reader, const unsigned char **from, size_t *size, struct message *message) {
    if (!reader_fill(reader, from, size)) return 0;
    return message_read(reader->rest, message) ? 1 : -1;
}

#endif
