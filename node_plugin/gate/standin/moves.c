/* The movement of a process's GPU memory when it is parked: its pages leave their addresses, which cannot be accessed meanwhile.
 * Nothing is copied, so memory that was never written costs nothing; checkpoint.c takes the time. */
#define _GNU_SOURCE
#include "memory.h"

#include <sys/mman.h>

static void *contexts; /* host memory for what contexts have on the GPU */
static size_t contexts_bytes;

static int is_on_gpu(const struct allocation *allocation) { return allocation->kind != HOST && allocation->kind != IMPORTED; }

struct search {
    enum kind kind;
    int found;
};

static void match(struct allocation *allocation, void *data) {
    struct search *search = data;
    search->found |= allocation->kind == search->kind;
}

int any_allocation(enum kind kind) {
    struct search search = {kind, 0};
    each_allocation(match, &search);
    return search.found;
}

static void move_back(struct allocation *allocation, void *failed) {
    if (!allocation->parked) return;
    void *base = allocation->base;
    if (mremap(allocation->parked, allocation->bytes, allocation->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, base) == MAP_FAILED)
        *(int *)failed = 1;
    allocation->parked = NULL;
}

/* A mapping of which a program has protected parts differently cannot be moved, and stays. */
static void move_away(struct allocation *allocation, void *failed) {
    if (!is_on_gpu(allocation) || *(int *)failed) return;
    void *there = mremap(allocation->base, allocation->bytes, allocation->bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (there == MAP_FAILED) {
        *(int *)failed = allocation->kind != MAPPED;
        return;
    }
    allocation->parked = there;
    mprotect(allocation->base, allocation->bytes, PROT_NONE);
}

int move_in(void) {
    int failed = 0;
    each_allocation(move_back, &failed);
    if (contexts) munmap(contexts, contexts_bytes);
    contexts = NULL;
    return !failed;
}

int move_out(void) {
    int failed = 0;
    contexts_bytes = 0;
    for (struct context *context = standin_contexts; context; context = context->next) contexts_bytes += context->bytes;
    if (contexts_bytes) {
        int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
        contexts = mmap(NULL, contexts_bytes, PROT_READ | PROT_WRITE, how, -1, 0);
        if (contexts == MAP_FAILED) contexts = NULL, failed = 1;
    }
    each_allocation(move_away, &failed);
    if (failed) move_in();
    return !failed;
}
