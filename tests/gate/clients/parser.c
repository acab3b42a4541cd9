/* Feeds the message reader with invalid messages: a seed, a number of rounds. Exits normally, unless a sanitizer stops it. */
#include "../../../node_plugin/gate/connection/protocol.h"

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

/* Do the same as message_read, written differently. */
static int is_message(const unsigned char *from, uint64_t *fields) {
    for (int i = 0; i < 3; i++) memcpy(&fields[i], from + 8 + 8 * i, 8);
    if (from[0] != 1 || from[2] || from[3] || from[4] || from[5] || from[6] || from[7]) return 0;
    if (from[1] == 16) return fields[1] != 0 && fields[2] < 4;
    if (from[1] == 17) return fields[0] != 0 && fields[1] == 0 && fields[2] == 0;
    return from[1] == 18;
}

static void fill(unsigned char *bytes) {
    static const unsigned char kinds[] = {0, 1, 2, 3, 15, 16, 17, 18, 19, 255};
    struct message message = {kinds[number() % sizeof kinds], number() % 3 ? number() : 0, number() % 3, number() % 5};
    message_write(bytes, message);
    if (number() % 4 == 0) bytes[number() % MESSAGE_SIZE] = (unsigned char)number();
    if (number() % 16 == 0)
        for (int i = 0; i < MESSAGE_SIZE; i++) bytes[i] = (unsigned char)number();
}

int main(int count, char **arguments) {
    assert(count == 3);
    state = strtoull(arguments[1], NULL, 10) * 2 + 1;
    long rounds = atol(arguments[2]), read = 0;
    for (long round = 0; round < rounds; round++) {
        enum { MOST = 8 };
        size_t messages = number() % MOST + 1, size = messages * MESSAGE_SIZE, at = 0;
        unsigned char *bytes = malloc(size); /* exactly this long, so that reads beyond it are detected */
        struct reader reader = {.have = 0};
        for (size_t i = 0; i < messages; i++) fill(bytes + i * MESSAGE_SIZE);
        for (size_t sent = 0, broken = 0; sent < size && !broken;) { /* in pieces of any length */
            size_t piece = number() % (size - sent) + 1;
            const unsigned char *from = bytes + sent;
            struct message message;
            uint64_t fields[3];
            int found;
            sent += piece;
            while ((found = reader_next(&reader, &from, &piece, &message))) {
                assert(found == (is_message(bytes + at, fields) ? 1 : -1));
                assert(message.kind == bytes[at + 1] && message.a == fields[0] && message.b == fields[1] && message.c == fields[2]);
                at += MESSAGE_SIZE;
                read++;
                if (found < 0) { broken = 1; break; }
            }
            assert(broken || (piece == 0 && reader.have == sent % MESSAGE_SIZE));
        }
        free(bytes);
    }
    printf("%ld\n", read);
    return 0;
}
