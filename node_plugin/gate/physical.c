/* Memory that is created and mapped: it lives until its handles are released and its mappings are gone, so a program that
 * maps, releases the handle and forgets it does not get more than its limit. */
#include "memory.h"

#include <stdlib.h>

/* Under the lock. */
static void let_go(struct physical *physical) {
    if (--physical->holds) return;
    memory_unuse(physical->share, physical->bytes);
    free(physical);
}

static bool on_a_device(const struct allocation *of) { return of && of->location.type == LOCATION_DEVICE; }

CUresult GATE(cuMemCreate)(CUmemHandle *to, size_t size, const struct allocation *of, unsigned long long flags) {
    struct claim claimed = on_a_device(of) ? claim_of(of->location.id, size) : (struct claim){.share = NULL};
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(to, size, of, flags);
    if (!claimed.share) return result;
    struct physical *physical = result == CUDA_SUCCESS ? malloc(sizeof *physical) : NULL;
    gate_enter();
    if (physical) {
        *physical = (struct physical){claimed.share, size, 1};
        memory_keep((struct entry){.key = HANDLE, .id = *to, .physical = physical, .handles = 1});
    } else if (result != CUDA_SUCCESS) {
        memory_unuse(claimed.share, size);
    }
    gate_leave();
    return result;
}

CUresult GATE(cuMemRelease)(CUmemHandle handle) {
    struct entry *entry = memory_lift(HANDLE, handle);
    CUresult result = REAL(cuMemRelease)(handle);
    if (!entry) return result;
    gate_enter();
    if (result == CUDA_SUCCESS) {
        entry->handles--;
        let_go(entry->physical);
    }
    if (entry->handles) memory_keep(*entry);
    gate_leave();
    free(entry);
    return result;
}

CUresult GATE(cuMemMap)(CUdeviceptr at, size_t size, size_t offset, CUmemHandle handle, unsigned long long flags) {
    CUresult result = REAL(cuMemMap)(at, size, offset, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    gate_enter();
    struct entry *entry = *memory_find(HANDLE, handle);
    if (entry) {
        struct physical *physical = entry->physical;
        physical->holds++;
        memory_keep((struct entry){.key = MAPPING, .id = at, .bytes = size, .physical = physical});
    }
    gate_leave();
    return result;
}

struct range {
    CUdeviceptr at;
    uint64_t size;
    struct entry *found;
};

static bool unmap(struct entry *entry, void *data) {
    const struct range *range = data;
    if (entry->key != MAPPING || entry->id - range->at >= range->size) return false;
    let_go(entry->physical);
    return true;
}

/* Under the lock all the way: else another thread may map there before this one has forgotten what was. */
CUresult GATE(cuMemUnmap)(CUdeviceptr at, size_t size) {
    gate_enter();
    CUresult result = REAL(cuMemUnmap)(at, size);
    if (result == CUDA_SUCCESS) memory_each(unmap, &(struct range){at, size, NULL});
    gate_leave();
    return result;
}

static bool around(struct entry *entry, void *data) {
    struct range *range = data;
    if (entry->key == MAPPING && range->at - entry->id < entry->bytes) range->found = entry;
    return false;
}

CUresult GATE(cuMemRetainAllocationHandle)(CUmemHandle *to, void *address) {
    CUresult result = REAL(cuMemRetainAllocationHandle)(to, address);
    if (result != CUDA_SUCCESS) return result;
    struct range range = {.at = (CUdeviceptr)address};
    gate_enter();
    memory_each(around, &range);
    if (range.found) { /* else it is another process's */
        struct entry *entry = *memory_find(HANDLE, *to);
        range.found->physical->holds++;
        if (entry)
            entry->handles++;
        else
            memory_keep((struct entry){.key = HANDLE, .id = *to, .physical = range.found->physical, .handles = 1});
    }
    gate_leave();
    return result;
}
