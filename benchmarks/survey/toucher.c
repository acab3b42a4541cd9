/* Host memory: written for the first time by several threads, and copied by them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

struct part { char *to; const char *from; size_t size; int how; };

static void *run(void *argument) {
    struct part *part = argument;
    if (part->from) memcpy(part->to, part->from, part->size);
    else if (part->how == 1) madvise(part->to, part->size, 23 /* MADV_POPULATE_WRITE */);
    else for (size_t at = 0; at < part->size; at += 4096) part->to[at] = 1;
    return NULL;
}

/* Write (from NULL) or copy with so many threads; how: 1 by MADV_POPULATE_WRITE. */
void spread(char *to, const char *from, size_t size, int threads, int how) {
    pthread_t running[64];
    struct part parts[64];
    size_t each = (size / (size_t)threads + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    int used = 0;
    for (size_t at = 0; at < size && used < 64; at += each, used++) {
        parts[used] = (struct part){to + at, from ? from + at : NULL, size - at < each ? size - at : each, how};
        pthread_create(&running[used], NULL, run, &parts[used]);
    }
    for (int i = 0; i < used; i++) pthread_join(running[i], NULL);
}
