/* The table of allocations: the size of each address and handle, and the context with which it ends. */
#include "memory/counting.h"

#include <stdlib.h>

enum { BUCKETS = 4096 };

static struct entry *buckets[BUCKETS];
static uint64_t made; /* entries so far */

/* --- under the lock ----------------------------------------------------------------------------------------------- */

static struct entry **bucket_of(enum key key, uint64_t id) { return &buckets[((id ^ key) * 0x9e3779b97f4a7c15ull) >> 52]; }

struct entry **memory_find(enum key key, uint64_t id) {
    struct entry **at = bucket_of(key, id);
    while (*at && !((*at)->key == key && (*at)->id == id)) at = &(*at)->next;
    return at;
}

static void put(struct entry *entry) {
    struct entry **bucket = bucket_of(entry->key, entry->id);
    entry->next = *bucket;
    *bucket = entry;
}

struct entry *memory_take(struct entry **at) {
    struct entry *entry = *at;
    if (entry) *at = entry->next;
    return entry;
}

void memory_keep(struct entry values) {
    struct entry *entry = malloc(sizeof *entry);
    if (!entry) return; /* it counts until the process ends */
    *entry = values;
    entry->made = ++made;
    put(entry);
}

void memory_each(bool (*drop)(struct entry *, void *), void *data) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry **at = &buckets[i]; *at;) {
            if (drop(*at, data))
                free(memory_take(at));
            else
                at = &(*at)->next;
        }
}

uint64_t memory_now(void) { return made; }

void physical_release(struct physical *physical) {
    if (--physical->references) return;
    if (physical->share) memory_subtract(physical->share, physical->bytes);
    for (unsigned i = 0; i < physical->count; i++) physical_release(physical->others[i]);
    free(physical->others);
    free(physical);
}

static void ended(struct entry *entry) {
    if (entry->key == CONTEXT) context_uncount(entry);
    if (entry->physical) physical_release(entry->physical);
    else if (entry->share) memory_subtract(entry->share, entry->bytes);
}

struct end {
    CUcontext context;
    uint64_t before;
};

static bool of_context(struct entry *entry, void *data) {
    const struct end *end = data;
    if (!entry->context || entry->context != end->context || entry->made > end->before) return false;
    ended(entry);
    return true;
}

void memory_context_ended(CUcontext context, uint64_t before) { memory_each(of_context, &(struct end){context, before}); }

struct reset {
    CUdevice device;
    uint64_t before;
};

static bool pooled(struct entry *entry, void *data) {
    const struct reset *reset = data;
    if (entry->key != POINTER || entry->context || entry->physical || entry->made > reset->before) return false;
    if (entry->share->device != reset->device) return false;
    memory_subtract(entry->share, entry->bytes);
    return true;
}

void memory_fork(void) {
    for (int i = 0; i < BUCKETS; i++) buckets[i] = NULL;
    reserves_fork();
    contexts_fork();
}

/* --- without the lock --------------------------------------------------------------------------------------------- */

struct entry *memory_remove(enum key key, uint64_t id) {
    gate_lock();
    struct entry *entry = memory_take(memory_find(key, id));
    gate_unlock();
    return entry;
}

CUresult memory_after_free(struct entry *entry, CUresult result) {
    if (!entry) return result;
    gate_lock();
    if (result == CUDA_SUCCESS)
        ended(entry);
    else
        put(entry);
    gate_unlock();
    if (result == CUDA_SUCCESS) free(entry);
    return result;
}

void memory_reset(CUdevice device, uint64_t before) {
    gate_lock();
    memory_each(pooled, &(struct reset){device, before});
    gate_unlock();
}
