/* Physical memory that is created and mapped. It counts until its handles are released and its mappings are gone, so a program
 * cannot exceed its limit by mapping memory and releasing the handle. */
#include "memory/counting.h"

#include <stdlib.h>

static bool on_a_device(const struct allocation *of) { return of && of->location.type == LOCATION_DEVICE; }

CUresult GATE(cuMemCreate)(CUmemHandle *to, size_t size, const struct allocation *of, unsigned long long flags) {
    struct claim claimed = on_a_device(of) ? claim_of(of->location.id, size) : (struct claim){.share = NULL};
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(to, size, of, flags);
    if (!claimed.share) return result;
    struct physical *physical = result == CUDA_SUCCESS ? malloc(sizeof *physical) : NULL;
    gate_lock();
    if (physical) {
        *physical = (struct physical){.share = claimed.share, .bytes = size, .references = 1};
        memory_keep((struct entry){.key = HANDLE, .id = *to, .physical = physical, .handles = 1});
    } else if (result != CUDA_SUCCESS) {
        memory_subtract(claimed.share, size);
    }
    gate_unlock();
    return result;
}

CUresult GATE(cuMemRelease)(CUmemHandle handle) {
    struct entry *entry = memory_remove(HANDLE, handle);
    CUresult result = REAL(cuMemRelease)(handle);
    if (!entry) return result;
    gate_lock();
    if (result == CUDA_SUCCESS) {
        entry->handles--;
        physical_release(entry->physical);
    }
    if (entry->handles) memory_keep(*entry);
    gate_unlock();
    free(entry);
    return result;
}

CUresult GATE(cuMemMap)(CUdeviceptr at, size_t size, size_t offset, CUmemHandle handle, unsigned long long flags) {
    CUresult result = REAL(cuMemMap)(at, size, offset, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    gate_lock();
    struct entry *entry = *memory_find(HANDLE, handle);
    if (entry) {
        struct physical *physical = entry->physical;
        physical->references++;
        memory_keep((struct entry){.key = MAPPING, .id = at, .bytes = size, .physical = physical});
    }
    gate_unlock();
    return result;
}

struct range {
    CUdeviceptr at;
    uint64_t size, before;
    struct entry *found;
};

static bool unmap(struct entry *entry, void *data) {
    const struct range *range = data;
    if (entry->key != MAPPING || entry->made > range->before || entry->id - range->at >= range->size) return false;
    physical_release(entry->physical);
    return true;
}

/* Another thread may map the same range before this one has forgotten the old mappings, so newer ones stay. */
CUresult GATE(cuMemUnmap)(CUdeviceptr at, size_t size) {
    gate_lock();
    struct range range = {at, size, memory_now(), NULL};
    gate_unlock();
    CUresult result = REAL(cuMemUnmap)(at, size);
    if (result != CUDA_SUCCESS) return result;
    gate_lock();
    memory_each(unmap, &range);
    gate_unlock();
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
    gate_lock();
    memory_each(around, &range);
    if (range.found) { /* otherwise it belongs to another process */
        struct entry *entry = *memory_find(HANDLE, *to);
        range.found->physical->references++;
        if (entry)
            entry->handles++;
        else
            memory_keep((struct entry){.key = HANDLE, .id = *to, .physical = range.found->physical, .handles = 1});
    }
    gate_unlock();
    return result;
}

/* --- export and import -------------------------------------------------------------------------------------------- */

CUresult GATE(cuMemExportToShareableHandle)(void *to, CUmemHandle handle, int type, unsigned long long flags) {
    CUresult result = REAL(cuMemExportToShareableHandle)(to, handle, type, flags);
    if (result != CUDA_SUCCESS) return result;
    gate_lock();
    struct entry *entry = *memory_find(HANDLE, handle);
    if (entry && entry->physical->share) entry->physical->exported = true;
    gate_unlock();
    return result;
}

/* Count the memory that this process has exported, or add references to it. */
static bool exported(struct entry *entry, void *data) {
    struct physical *import = data, *one = entry->physical;
    if ((entry->key != HANDLE && entry->key != MAPPING) || !one->exported) return false;
    for (unsigned i = 0; import->others && i < import->count; i++)
        if (import->others[i] == one) return false;
    if (import->others) {
        import->others[import->count] = one;
        one->references++;
    }
    import->count++;
    return false;
}

/* Return an import with references to everything that this process has exported, as the driver does not tell which memory was
 * imported. Memory of this process must count even when its original handle is gone; that of other processes counts there. */
static struct physical *import_of_ours(void) {
    struct physical *import = calloc(1, sizeof *import);
    if (!import) return NULL;
    memory_each(exported, import);
    if (import->count) import->others = malloc(import->count * sizeof *import->others);
    import->count = 0;
    if (!import->others) {
        free(import);
        return NULL;
    }
    memory_each(exported, import);
    import->references = 1;
    return import;
}

CUresult GATE(cuMemImportFromShareableHandle)(CUmemHandle *to, void *from, int type) {
    CUresult result = REAL(cuMemImportFromShareableHandle)(to, from, type);
    if (result != CUDA_SUCCESS) return result;
    gate_lock();
    struct entry *entry = *memory_find(HANDLE, *to);
    struct physical *import = entry ? NULL : import_of_ours();
    if (entry) { /* the same handle again */
        entry->handles++;
        entry->physical->references++;
    } else if (import) {
        memory_keep((struct entry){.key = HANDLE, .id = *to, .physical = import, .handles = 1});
    }
    gate_unlock();
    return result;
}
