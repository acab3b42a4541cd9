/* What contexts take themselves: stacks, heaps, what kernels print.
 *
 * The first context of a process on a GPU counts nothing, as without one there is no program; the comparison with NVML allows
 * for it by a constant. Each further one counts as what the driver reserves for it by its default limits, and what
 * cuCtxSetLimit adds to any counts, too: also where the driver takes it only when a kernel needs it, as then nothing can be
 * refused any more. */
#include "memory/counting.h"

enum { DEVICES = 64, PROCESSORS = 16, THREADS_EACH = 39 /* attributes of a device */ };
enum { STACK, PRINTED, HEAP, COUNTED_LIMITS };
#define DEFAULTS {1024, (uint64_t)1 << 20, (uint64_t)8 << 20}

static unsigned contexts[DEVICES]; /* under the lock */

/* How many stacks there are: of the threads that run at once. */
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

/* --- how many there are ------------------------------------------------------------------------------------------- */

static bool is_first(CUdevice device) {
    gate_enter_first();
    bool first = !contexts[device]++;
    gate_leave();
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
    memory_unuse(entry->share, entry->bytes);
    entry->bytes = 0;
    change->done = true;
    return false;
}

/* If it was the one that counts nothing, another one is now. */
void context_uncounts(struct entry *entry) {
    contexts[entry->device]--;
    if (!entry->bytes) memory_each(uncharge, &(struct change){.gone = entry});
}

void contexts_fork(void) {
    for (int i = 0; i < DEVICES; i++) contexts[i] = 0;
}

static struct claim before_one(CUdevice device) {
    if (device < 0 || device >= DEVICES || is_first(device)) return (struct claim){.share = NULL};
    struct claim claimed = claim_of(device, by_default(device));
    if (!claimed.refused) return claimed;
    gate_enter();
    contexts[device]--;
    gate_leave();
    return claimed;
}

/* A primary context may have been made by another thread meanwhile. */
static CUresult after_one(struct claim *claimed, CUdevice device, CUresult result, CUcontext *made, bool primary) {
    if (device < 0 || device >= DEVICES) return result;
    gate_enter_first();
    if (result != CUDA_SUCCESS || (primary && *memory_find(CONTEXT, (uint64_t)*made))) {
        contexts[device]--;
        if (claimed->share) memory_unuse(claimed->share, claimed->bytes);
    } else {
        memory_keep((struct entry){.key = CONTEXT, .id = (uint64_t)*made, .context = *made, .device = device,
                                    .share = claimed->share, .bytes = claimed->bytes});
    }
    gate_leave();
    return result;
}

#define CREATE(symbol, primary, ...) \
    struct claim claimed = before_one(device); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    return after_one(&claimed, device, REAL(symbol)(__VA_ARGS__), to, primary)

CUresult GATE(cuCtxCreate)(CUcontext *to, unsigned flags, CUdevice device) { CREATE(cuCtxCreate, false, to, flags, device); }

CUresult GATE(cuCtxCreate_v2)(CUcontext *to, unsigned flags, CUdevice device) { CREATE(cuCtxCreate_v2, false, to, flags, device); }

CUresult GATE(cuCtxCreate_v3)(CUcontext *to, void *affinities, int count, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate_v3, false, to, affinities, count, flags, device);
}

CUresult GATE(cuCtxCreate_v4)(CUcontext *to, void *params, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate_v4, false, to, params, flags, device);
}

/* A primary one is made when it is retained first. */
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

/* What of the limit counts, from `before` to `now` of its bytes. */
static void settle(uint64_t id, CUcontext context, struct claim *claimed, uint64_t before, uint64_t now) {
    gate_enter();
    struct entry *entry = *memory_find(LIMIT, id);
    if (claimed->share && !entry) {
        memory_keep((struct entry){.key = LIMIT, .id = id, .share = claimed->share, .context = context});
        entry = *memory_find(LIMIT, id);
    }
    uint64_t more = now > before ? now - before : 0, less = before > now ? before - now : 0;
    if (claimed->share && claimed->bytes > more) memory_unuse(claimed->share, claimed->bytes - more);
    if (entry && more > claimed->bytes) memory_more(entry->share, more - claimed->bytes);
    if (entry && less > entry->bytes) less = entry->bytes;
    if (entry) entry->bytes = entry->bytes + more - less;
    if (entry) memory_unuse(entry->share, less);
    gate_leave();
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
