/* Memory imported from other interfaces, such as Vulkan. It is not counted where it was allocated, so it counts here, until
 * the import and its mappings are gone. Memory of another CUDA process (cuIpcOpenMemHandle) counts in that process. */
#include "memory/counting.h"

#include <stdlib.h>

CUresult GATE(cuImportExternalMemory)(CUexternalMemory *to, const struct external_memory *of) {
    struct claim claimed = of ? claim(of->size) : (struct claim){.share = NULL};
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuImportExternalMemory)(to, of);
    if (!claimed.share) return result;
    struct physical *physical = result == CUDA_SUCCESS ? malloc(sizeof *physical) : NULL;
    CUcontext context = NULL;
    if (physical) DRIVER(cuCtxGetCurrent)(&context);
    gate_lock();
    if (physical) {
        *physical = (struct physical){.share = claimed.share, .bytes = claimed.bytes, .references = 1};
        memory_keep((struct entry){.key = EXTERNAL, .id = (uint64_t)*to, .physical = physical, .context = context});
    } else if (result != CUDA_SUCCESS) {
        memory_subtract(claimed.share, claimed.bytes);
    }
    gate_unlock();
    return result;
}

/* Record a mapping, which keeps the memory until it is freed as `key`. */
static CUresult mapped(CUexternalMemory external, CUresult result, enum key key, uint64_t id) {
    if (result != CUDA_SUCCESS) return result;
    gate_lock();
    struct entry *entry = *memory_find(EXTERNAL, (uint64_t)external);
    if (entry) {
        entry->physical->references++;
        memory_keep((struct entry){.key = key, .id = id, .physical = entry->physical, .context = entry->context});
    }
    gate_unlock();
    return result;
}

CUresult GATE(cuExternalMemoryGetMappedBuffer)(CUdeviceptr *to, CUexternalMemory external, const void *part) {
    CUresult result = REAL(cuExternalMemoryGetMappedBuffer)(to, external, part);
    return mapped(external, result, POINTER, result == CUDA_SUCCESS ? *to : 0);
}

CUresult GATE(cuExternalMemoryGetMappedMipmappedArray)(CUmipmappedArray *to, CUexternalMemory external, const void *part) {
    CUresult result = REAL(cuExternalMemoryGetMappedMipmappedArray)(to, external, part);
    return mapped(external, result, ARRAY, result == CUDA_SUCCESS ? (uint64_t)*to : 0);
}

CUresult GATE(cuDestroyExternalMemory)(CUexternalMemory external) {
    struct entry *entry = memory_remove(EXTERNAL, (uint64_t)external);
    return memory_after_free(entry, REAL(cuDestroyExternalMemory)(external));
}
