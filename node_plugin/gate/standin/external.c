/* Memory imported from another interface, passed as a file. It counts here, as nothing else counts it. */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct external {
    struct device *device;
    uint64_t bytes;
    int file;
    unsigned uses; /* the import and its buffers */
};

struct description { /* CUDA_EXTERNAL_MEMORY_HANDLE_DESC */
    int type;
    union {
        int file;
        void *other[2];
    };
    uint64_t bytes;
    unsigned flags;
};

struct part { /* CUDA_EXTERNAL_MEMORY_BUFFER_DESC */
    uint64_t offset, bytes;
    unsigned flags;
};

API CUresult cuImportExternalMemory(struct external **external, const struct description *from) {
    ENTER(WAITS);
    struct context *context;
    struct stat status;
    CUresult failed = current(&context);
    if (failed) return failed;
    if (!external || !from || from->type != 1 || fstat(from->file, &status) || (uint64_t)status.st_size < from->bytes)
        return INVALID_VALUE;
    if (!board_take(&context->device->board, (int64_t)from->bytes)) return OUT_OF_MEMORY;
    *external = calloc(1, sizeof **external);
    **external = (struct external){context->device, from->bytes, from->file, 1}; /* the import owns the file from now on */
    return OK;
}

void external_drop(struct external *external) {
    if (__atomic_sub_fetch(&external->uses, 1, __ATOMIC_ACQ_REL)) return;
    board_take(&external->device->board, -(int64_t)external->bytes);
    close(external->file);
    free(external);
}

API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, struct external *external, const struct part *part) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!pointer || !external || !part || part->flags || part->offset + part->bytes > external->bytes) return INVALID_VALUE;
    void *base = mmap(NULL, part->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, external->file, (off_t)part->offset);
    if (base == MAP_FAILED) return INVALID_VALUE;
    __atomic_add_fetch(&external->uses, 1, __ATOMIC_ACQ_REL);
    remember(base, part->bytes, EXTERNAL, external->device)->external = external;
    *pointer = (CUdeviceptr)(uintptr_t)base;
    return OK;
}

API CUresult cuDestroyExternalMemory(struct external *external) {
    ENTER(WAITS);
    if (standin_state || !external) return standin_state ? standin_state : INVALID_VALUE;
    external_drop(external);
    return OK;
}
