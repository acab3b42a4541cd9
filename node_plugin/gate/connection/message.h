/* The form of all messages between a program and its node: twin of jupyter_gpu_node/shares/rules/framing.py.
 *
 * 32 bytes, little-endian: u8 version, u8 kind, u16 0, u32 0, u64 a, b, c. Fields that a kind does not use must be 0. Pure,
 * so that it can be fuzzed: bytes in, numbers out. */
#ifndef GATE_MESSAGE_H
#define GATE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MESSAGE_SIZE = 32, MESSAGE_VERSION = 1 };

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

/* Split a message into its numbers; false: it has another form. What they mean is checked apart, for each kind. */
static inline bool message_split(const unsigned char from[MESSAGE_SIZE], struct message *message) {
    uint64_t head = message_get(from);
    *message = (struct message){(uint8_t)(head >> 8), message_get(from + 8), message_get(from + 16), message_get(from + 24)};
    return (head & 0xff) == MESSAGE_VERSION && !(head >> 16);
}

/* Splits a byte stream into messages. */
struct reader {
    unsigned char rest[MESSAGE_SIZE];
    size_t have;
};

/* Take bytes from `*from` (`*size` of them) until one message is complete; false: all bytes are taken, and it is not. */
static inline bool reader_fill(struct reader *reader, const unsigned char **from, size_t *size) {
    while (*size && reader->have < MESSAGE_SIZE) {
        reader->rest[reader->have++] = *(*from)++;
        --*size;
    }
    if (reader->have < MESSAGE_SIZE) return false;
    reader->have = 0;
    return true;
}

#endif
