/* Memory that is kept for later allocations: by pools, up to their release threshold, and by graphs.
 *
 * The driver reports the exact amount. It is queried without the lock, as the call may wait for another call on the same
 * pool; the pool is not destroyed meanwhile. The amount is known only after the memory has been taken, so it counts even above
 * the limit, and nothing more is granted then. Memory that a pool keeps above its threshold does not count, as it is released
 * at the program's next synchronization. */
#include "memory/counting.h"
#include "parking/marks.h"

#include <stdlib.h>

enum { THRESHOLD = 4, RESERVED = 5, USED = 7 /* attributes of pools */, OF_GRAPHS = 2 /* what graphs reserve */ };

struct reserve {
    struct reserve *next;
    CUmemoryPool pool; /* NULL: the graphs of a device */
    struct share *share; /* NULL: nothing counts yet */
    CUdevice device;
    uint64_t threshold, bytes; /* the pool keeps nothing above this; bytes counted in addition to its allocations */
    uint64_t answered;         /* number of the latest query that was answered */
    unsigned readers;
    bool ends; /* a thread is destroying it */
};

static struct reserve *first; /* under the lock */
static uint64_t queries;
static _Atomic bool any;  /* some reserve may count */
static _Atomic unsigned trims;

static struct reserve *find(CUmemoryPool pool, CUdevice device) {
    for (struct reserve *reserve = first; reserve; reserve = reserve->next)
        if (reserve->pool == pool && (pool || reserve->device == device) && !reserve->ends) return reserve;
    return NULL;
}

static struct reserve *add(CUmemoryPool pool, CUdevice device) {
    struct reserve *reserve = calloc(1, sizeof *reserve);
    if (!reserve) return NULL;
    *reserve = (struct reserve){.next = first, .pool = pool, .device = device};
    first = reserve;
    return reserve;
}

static void count(struct reserve *reserve, uint64_t bytes) {
    if (bytes > reserve->bytes) memory_add(reserve->share, bytes - reserve->bytes);
    else memory_subtract(reserve->share, reserve->bytes - bytes);
    reserve->bytes = bytes;
}

/* --- reading the driver ------------------------------------------------------------------------------------------- */

/* Query the driver, without the lock. */
static bool kept(CUmemoryPool pool, CUdevice device, uint64_t threshold, uint64_t *bytes) {
    uint64_t reserved = 0, used = 0;
    if (!pool) return NEWER(cuDeviceGetGraphMemAttribute)(device, OF_GRAPHS, bytes) == CUDA_SUCCESS;
    if (NEWER(cuMemPoolGetAttribute)(pool, RESERVED, &reserved) != CUDA_SUCCESS) return false;
    if (NEWER(cuMemPoolGetAttribute)(pool, USED, &used) != CUDA_SUCCESS) return false;
    uint64_t stays = reserved < threshold ? reserved : threshold;
    *bytes = stays > used ? stays - used : 0;
    return true;
}

/* Call `each`, without the lock, for all reserves that count, of one share or of all (NULL). */
static void for_each_unlocked(struct share *share, void (*each)(struct reserve *)) {
    gate_lock();
    for (struct reserve *reserve = first; reserve; reserve = reserve->next) {
        if (!reserve->share || reserve->ends || (share && reserve->share != share)) continue;
        reserve->readers++;
        gate_unlock();
        each(reserve);
        gate_lock();
        if (!--reserve->readers && reserve->ends) share_changed(reserve->share);
    }
    gate_unlock();
}

static void read_one(struct reserve *reserve) {
    uint64_t bytes = 0;
    gate_lock();
    uint64_t number = ++queries, threshold = reserve->threshold;
    gate_unlock();
    if (!kept(reserve->pool, reserve->device, threshold, &bytes)) return;
    gate_lock();
    if (number > reserve->answered && threshold == reserve->threshold) { /* otherwise another thread has a newer answer */
        reserve->answered = number;
        count(reserve, bytes);
    }
    gate_unlock();
}

void reserves_read(void) {
    if (atomic_load(&any)) for_each_unlocked(NULL, read_one);
}

CUresult GATE(cuMemPoolTrimTo)(CUmemoryPool, size_t);
CUresult GATE(cuDeviceGraphMemTrim)(CUdevice);

static void trim_one(struct reserve *reserve) {
    if (reserve->pool) REAL(cuMemPoolTrimTo)(reserve->pool, 0);
    else GATE(cuDeviceGraphMemTrim)(reserve->device);
    read_one(reserve);
}

static uint64_t counted(struct share *share) {
    uint64_t all = 0;
    gate_lock();
    for (struct reserve *reserve = first; reserve; reserve = reserve->next)
        if (reserve->share == share) all += reserve->bytes;
    gate_unlock();
    return all;
}

bool reserves_trim(struct share *share) {
    if (!atomic_load(&any)) return false;
    uint64_t before = counted(share);
    if (!before) return false;
    for_each_unlocked(share, trim_one);
    return counted(share) < before;
}

unsigned reserve_trims(void) { return atomic_load(&trims); }

void reserves_fork(void) { first = NULL; }

/* --- graphs ------------------------------------------------------------------------------------------------------- */

void reserve_graphs(struct share *share) {
    gate_lock();
    struct reserve *reserve = find(NULL, share->device);
    if (!reserve) reserve = add(NULL, share->device);
    if (reserve) reserve->share = share;
    gate_unlock();
    atomic_store(&any, true);
}

static uint64_t of_graphs(CUdevice device) {
    gate_lock_first();
    const struct reserve *reserve = find(NULL, device);
    uint64_t bytes = reserve ? reserve->bytes : 0;
    gate_unlock();
    return bytes;
}

bool reserve_covers(struct share *share, uint64_t bytes) {
    bool has = of_graphs(share->device) >= bytes;
    gate_lock();
    has = has && share->used <= share->limit;
    gate_unlock();
    return has;
}

CUresult GATE(cuDeviceGraphMemTrim)(CUdevice device) {
    uint64_t before = of_graphs(device);
    CUresult result = REAL(cuDeviceGraphMemTrim)(device);
    reserves_read();
    if (of_graphs(device) < before) atomic_fetch_add(&trims, 1);
    return result;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct claim reserve_claim(CUmemoryPool pool, uint64_t bytes) {
    struct share *share = share_of_current();
    uint64_t spent = 0;
    if (share && atomic_load(&any)) {
        if (!pool) NEWER(cuDeviceGetMemPool)(&pool, share->device);
        gate_lock();
        struct reserve *reserve = find(pool, share->device);
        if (pool && reserve && reserve->share == share) spent = bytes < reserve->bytes ? bytes : reserve->bytes;
        if (spent) reserve->bytes -= spent;
        gate_unlock();
    }
    struct claim claimed = claim_from(share, bytes - spent);
    claimed.bytes = bytes;
    if (!claimed.refused || !spent) return claimed;
    gate_lock();
    memory_subtract(share, spent);
    gate_unlock();
    reserves_read(); /* it is still kept, or was released */
    return claimed;
}

/* Return the device of a pool that the program did not make; -1: unknown. */
static CUdevice default_of(CUmemoryPool pool) {
    CUmemoryPool one;
    for (CUdevice device = 0; NEWER(cuDeviceGetDefaultMemPool)(&one, device) == CUDA_SUCCESS; device++)
        if (one == pool) return device;
    return -1;
}

static void set_threshold(CUmemoryPool pool, uint64_t threshold) {
    gate_lock();
    struct reserve *reserve = find(pool, 0);
    CUdevice device = reserve ? reserve->device : -1;
    bool counts = reserve && reserve->share;
    gate_unlock();
    if (!counts && !threshold) return;
    if (!reserve) device = default_of(pool);
    struct share *share = device < 0 ? NULL : share_of(device);
    if (!share) return;
    gate_lock();
    reserve = find(pool, 0);
    if (!reserve) reserve = add(pool, device);
    if (reserve) {
        reserve->share = share;
        reserve->threshold = threshold;
    }
    gate_unlock();
    atomic_store(&any, true);
    reserves_read();
}

CUresult GATE(cuMemPoolSetAttribute)(CUmemoryPool pool, int attribute, void *value) {
    CUresult result = REAL(cuMemPoolSetAttribute)(pool, attribute, value);
    if (result == CUDA_SUCCESS && attribute == THRESHOLD) set_threshold(pool, *(const uint64_t *)value);
    return result;
}

CUresult GATE(cuMemPoolTrimTo)(CUmemoryPool pool, size_t least) {
    CUresult result = REAL(cuMemPoolTrimTo)(pool, least);
    reserves_read();
    return result;
}

CUresult GATE(cuMemPoolCreate)(CUmemoryPool *to, const struct allocation *of) {
    CUresult result = REAL(cuMemPoolCreate)(to, of);
    if (result != CUDA_SUCCESS || !of || of->location.type != LOCATION_DEVICE) return result;
    gate_lock_first();
    add(*to, of->location.id);
    gate_unlock();
    return result;
}

/* Under the lock: wait for readers, and let no more in. */
static struct reserve *begin_destroy(CUmemoryPool pool) {
    struct reserve *reserve = pool ? find(pool, 0) : NULL;
    if (!reserve) return NULL;
    reserve->ends = true;
    while (reserve->readers) share_wait(reserve->share, SECOND / 4);
    return reserve;
}

/* A destroyed pool's memory goes when all of it is free; until then it counts as allocations. */
CUresult GATE(cuMemPoolDestroy)(CUmemoryPool pool) {
    gate_lock_first();
    struct reserve *reserve = begin_destroy(pool);
    gate_unlock();
    CUresult result = MARKED(REAL(cuMemPoolDestroy)(pool));
    if (!reserve) return result;
    gate_lock();
    reserve->ends = false;
    if (result == CUDA_SUCCESS) {
        struct reserve **at = &first;
        while (*at != reserve) at = &(*at)->next;
        *at = reserve->next;
        if (reserve->share) memory_subtract(reserve->share, reserve->bytes);
        free(reserve);
    }
    gate_unlock();
    return result;
}
