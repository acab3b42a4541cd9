/* The memory of contexts themselves: stacks, heaps, printf buffers.
 *
 * The first context of a process on a GPU counts nothing, as every program has one; the comparison with NVML allows a
 * constant for it. Each further context counts as what the driver reserves for it by default. Memory that cuCtxSetLimit adds
 * counts for every context, even if the driver takes it only when a kernel needs it: it is too late to refuse it then. */
#include "memory/counting.h"

enum { DEVICES = 64, PROCESSORS = 16, THREADS_EACH = 39 /* attributes of a device */ };
enum { STACK, PRINTED, HEAP, COUNTED_LIMITS };
#define DEFAULTS {1024, (uint64_t)1 << 20, (uint64_t)8 << 20}

static unsigned contexts[DEVICES]; /* under the lock */

/* Return the number of stacks: one for each thread that can run at once. */
static uint64_t stacks(CUdevice device) {
    int processors = 0, threads = 0;
    NEWER(cuDeviceGetAttribute)(&processors, PROCESSORS, device);
    NEWER(cuDeviceGetAttribute)(&threads, THREADS_EACH, device);
    return processors > 0 && threads > 0 ? (uint64_t)processors * (uint64_t)threads : 0;
}

static uint64_t by_default(CUdevice device) {
    static const uint64_t limits[COUNTED_LIMITS] = DEFAULTS;
    return limits[STACK] * stacks(device) + limits[PRINTED] + limits[HEAP];
}

/* --- counting contexts -------------------------------------------------------------------------------------------- */

static bool is_first(CUdevice device) {
    gate_lock_first();
    bool first = !contexts[device]++;
    gate_unlock();
    return first;
}

struct change {
    const struct entry *gone;
    bool done;
};

static bool uncharge(struct entry *entry, void *data) {
    struct change *change = data;
    if (entry->key != CONTEXT || entry == change->gone || entry->device != change->gone->device) return false;
    if (!entry->bytes || change->done) return false;
    memory_subtract(entry->share, entry->bytes);
    entry->bytes = 0;
    change->done = true;
    return false;
}

/* Uncount a context. If it was the one that counts nothing, another one counts nothing from now on. */
void context_uncount(struct entry *entry) {
    contexts[entry->device]--;
    if (!entry->bytes) memory_each(uncharge, &(struct change){.gone = entry});
}

unsigned contexts_all(void) {
    unsigned all = 0;
    gate_lock_own();
    for (int i = 0; i < DEVICES; i++) all += contexts[i];
    gate_unlock();
    return all;
}

void contexts_fork(void) {
    for (int i = 0; i < DEVICES; i++) contexts[i] = 0;
}

static struct claim before_create(CUdevice device) {
    if (device < 0 || device >= DEVICES || is_first(device)) return (struct claim){.share = NULL};
    struct claim claimed = claim_of(device, by_default(device));
    if (!claimed.refused) return claimed;
    gate_lock();
    contexts[device]--;
    gate_unlock();
    return claimed;
}

/* Record the context, or drop the claim: another thread may have made the primary context meanwhile. */
static CUresult after_create(struct claim *claimed, CUdevice device, CUresult result, CUcontext *made, bool primary) {
    if (device < 0 || device >= DEVICES) return result;
    gate_lock_first();
    if (result != CUDA_SUCCESS || (primary && *memory_find(CONTEXT, (uint64_t)*made))) {
        contexts[device]--;
        if (claimed->share) memory_subtract(claimed->share, claimed->bytes);
    } else {
        memory_keep((struct entry){.key = CONTEXT, .id = (uint64_t)*made, .context = *made, .device = device,
                                    .share = claimed->share, .bytes = claimed->bytes});
    }
    gate_unlock();
    return result;
}

#define CREATE(symbol, primary, ...) \
    struct claim claimed = before_create(device); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    return after_create(&claimed, device, REAL(symbol)(__VA_ARGS__), to, primary)

CUresult GATE(cuCtxCreate)(CUcontext *to, unsigned flags, CUdevice device) { CREATE(cuCtxCreate, false, to, flags, device); }

CUresult GATE(cuCtxCreate_v2)(CUcontext *to, unsigned flags, CUdevice device) { CREATE(cuCtxCreate_v2, false, to, flags, device); }

CUresult GATE(cuCtxCreate_v3)(CUcontext *to, void *affinities, int count, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate_v3, false, to, affinities, count, flags, device);
}

CUresult GATE(cuCtxCreate_v4)(CUcontext *to, void *params, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate_v4, false, to, params, flags, device);
}

/* The first retain makes a primary context. */
CUresult GATE(cuDevicePrimaryCtxRetain)(CUcontext *to, CUdevice device) {
    unsigned flags;
    int active = 0;
    if (DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || active)
        return REAL(cuDevicePrimaryCtxRetain)(to, device);
    CREATE(cuDevicePrimaryCtxRetain, true, to, device);
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(int limit, size_t value, CUdevice device) {
    uint64_t each = limit == STACK ? stacks(device) : 1, all;
    return __builtin_mul_overflow(each, value, &all) ? UINT64_MAX : all;
}

/* Count the change of a limit, from `before` to `now` bytes. */
static void settle(uint64_t id, CUcontext context, struct claim *claimed, uint64_t before, uint64_t now) {
    gate_lock();
    struct entry *entry = *memory_find(LIMIT, id);
    if (claimed->share && !entry) {
        memory_keep((struct entry){.key = LIMIT, .id = id, .share = claimed->share, .context = context});
        entry = *memory_find(LIMIT, id);
    }
    uint64_t more = now > before ? now - before : 0, less = before > now ? before - now : 0;
    if (claimed->share && claimed->bytes > more) memory_subtract(claimed->share, claimed->bytes - more);
    if (entry && more > claimed->bytes) memory_add(entry->share, more - claimed->bytes);
    if (entry && less > entry->bytes) less = entry->bytes;
    if (entry) entry->bytes = entry->bytes + more - less;
    if (entry) memory_subtract(entry->share, less);
    gate_unlock();
}

CUresult GATE(cuCtxSetLimit)(int limit, size_t value) {
    size_t before = 0, now = 0;
    CUcontext context = NULL;
    CUdevice device = 0;
    if (limit < STACK || limit >= COUNTED_LIMITS || DRIVER(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context ||
        DRIVER(cuCtxGetDevice)(&device) != CUDA_SUCCESS || NEWER(cuCtxGetLimit)(&before, limit) != CUDA_SUCCESS)
        return REAL(cuCtxSetLimit)(limit, value);
    uint64_t has = bytes_of(limit, before, device), wants = bytes_of(limit, value, device);
    struct claim claimed = wants > has ? claim_of(device, wants - has) : (struct claim){.share = NULL};
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuCtxSetLimit)(limit, value);
    if (NEWER(cuCtxGetLimit)(&now, limit) != CUDA_SUCCESS) now = result == CUDA_SUCCESS ? value : before; /* it may round */
    settle((uint64_t)context | (uint64_t)limit, context, &claimed, has, bytes_of(limit, now, device));
    return result;
}
