/* Reads messages of the node's: 32 bytes each on standard input, and prints for each its numbers, or "invalid".
 *
 *     parking SEED ROUNDS     instead feed the reader with messages of which many are invalid, in pieces of any length */
#include "../../../node_plugin/gate/parking/protocol.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t number(void) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
}

static void read_all(void) {
    unsigned char bytes[MESSAGE_SIZE];
    while (fread(bytes, sizeof bytes, 1, stdin)) {
        struct message message;
        if (told_read(bytes, &message))
            printf("%u %llu %llu %llu\n", message.kind, (unsigned long long)message.a, (unsigned long long)message.b, (unsigned long long)message.c);
        else
            printf("invalid\n");
    }
}

static void fill(unsigned char *bytes) {
    struct message message = {(uint8_t)(46 + number() % 9), number() % 3, number() % 100, number() % 2 ? number() % 100 : 0};
    message_write(bytes, message);
    if (number() % 4 == 0) bytes[number() % MESSAGE_SIZE] = (unsigned char)number();
}

static long feed(long rounds) {
    long read = 0;
    while (rounds--) {
        enum { MOST = 8 };
        size_t size = (number() % MOST + 1) * MESSAGE_SIZE, at = 0;
        unsigned char *bytes = malloc(size); /* exactly this long, so that reads beyond it are detected */
        struct reader reader = {.have = 0};
        for (size_t i = 0; i < size; i += MESSAGE_SIZE) fill(bytes + i);
        for (size_t sent = 0, broken = 0; sent < size && !broken;) {
            size_t piece = number() % (size - sent) + 1;
            const unsigned char *from = bytes + sent;
            struct message message, whole;
            int found;
            sent += piece;
            while (!broken && (found = told_next(&reader, &from, &piece, &message))) {
                assert(found == (told_read(bytes + at, &whole) ? 1 : -1));
                assert(message.kind == whole.kind && message.a == whole.a && message.b == whole.b && message.c == whole.c);
                at += MESSAGE_SIZE;
                read++;
                broken = found < 0;
            }
            assert(broken || (piece == 0 && reader.have == sent % MESSAGE_SIZE));
        }
        free(bytes);
    }
    return read;
}

int main(int count, char **arguments) {
    if (count < 3) return read_all(), 0;
    state = strtoull(arguments[1], NULL, 10) * 2 + 1;
    printf("%ld\n", feed(atol(arguments[2])));
    return 0;
}
