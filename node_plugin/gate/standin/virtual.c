/* Memory that a program maps itself, and memory shared with other processes: anonymous files. */
#define _GNU_SOURCE
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

struct properties { /* the used part of CUmemAllocationProp */
    int type, handles, place, ordinal;
    char rest[16];
};

struct physical {
    int file;
    size_t bytes;
    struct device *device;
    unsigned uses; /* handles and mappings */
    int counted;   /* counted here, not in the process that it comes from */
    struct properties properties;
};

static struct physical *make(int file, size_t bytes, struct device *device, int counted) {
    struct physical *physical = calloc(1, sizeof *physical);
    *physical = (struct physical){.file = file, .bytes = bytes, .device = device, .uses = 1, .counted = counted};
    physical->properties = (struct properties){1, 1, 1, (int)(device - standin_devices), ""};
    return physical;
}

static void drop(struct physical *physical) {
    if (--physical->uses) return;
    if (physical->counted) board_take(&physical->device->board, -(int64_t)physical->bytes);
    close(physical->file);
    free(physical);
}

API CUresult cuMemGetAllocationGranularity(size_t *granularity, const struct properties *properties, int option) {
    (void)option;
    if (!granularity || !properties) return INVALID_VALUE;
    *granularity = GRANULE;
    return standin_state;
}

API CUresult cuMemCreate(struct physical **handle, size_t bytes, const struct properties *properties, uint64_t flags) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!handle || !properties || flags || !bytes || bytes % GRANULE || properties->place != 1) return INVALID_VALUE;
    if (known_device(properties->ordinal)) return INVALID_DEVICE;
    struct device *device = &standin_devices[properties->ordinal];
    if (!board_take(&device->board, (int64_t)bytes)) return OUT_OF_MEMORY;
    int file = memfd_create("stand-in GPU", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes)) return UNKNOWN;
    *handle = make(file, bytes, device, 1);
    return OK;
}

API CUresult cuMemRelease(struct physical *handle) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!handle) return INVALID_VALUE;
    drop(handle);
    return OK;
}

API CUresult cuMemGetAllocationPropertiesFromHandle(struct properties *properties, struct physical *handle) {
    if (!properties || !handle) return INVALID_VALUE;
    *properties = handle->properties;
    return standin_state;
}

API CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wish, uint64_t flags) {
    (void)wish;
    if (standin_state) return standin_state;
    if (alignment < GRANULE) alignment = GRANULE;
    if (!pointer || !bytes || bytes % GRANULE || flags || alignment & (alignment - 1)) return INVALID_VALUE;
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *base = mmap(NULL, bytes + alignment, PROT_NONE, how, -1, 0);
    if (base == MAP_FAILED) return OUT_OF_MEMORY;
    char *start = (char *)(((uintptr_t)base + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (start > base) munmap(base, (size_t)(start - base));
    munmap(start + bytes, (size_t)(base + alignment - start));
    *pointer = (CUdeviceptr)(uintptr_t)start;
    return OK;
}

API CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
    if (standin_state) return standin_state;
    return munmap((void *)(uintptr_t)pointer, bytes) ? INVALID_VALUE : OK;
}

API CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, struct physical *handle, uint64_t flags) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!pointer || !handle || flags || offset + bytes > handle->bytes || allocation_at(pointer)) return INVALID_VALUE;
    void *base = (void *)(uintptr_t)pointer;
    if (mmap(base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->file, (off_t)offset) == MAP_FAILED) return UNKNOWN;
    remember(base, bytes, MAPPED, handle->device)->physical = handle;
    handle->uses++;
    return OK;
}

/* Each access: type and number of the location, and 0 none, 1 read, 3 read and write. */
API CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const int *access, size_t count) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!access || !count) return INVALID_VALUE;
    int how = access[2] == 3 ? PROT_READ | PROT_WRITE : access[2] == 1 ? PROT_READ : PROT_NONE;
    return mprotect((void *)(uintptr_t)pointer, bytes, how) ? INVALID_VALUE : OK;
}

API CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
    ENTER(WAITS);
    struct context *context;
    if (standin_state) return standin_state;
    if (!current(&context)) context_wait(context); /* a real driver may wait here */
    for (CUdeviceptr at = pointer; at < pointer + bytes;) {
        struct allocation *allocation = allocation_at(at);
        if (!allocation || allocation->kind != MAPPED) return INVALID_VALUE;
        at = (CUdeviceptr)(uintptr_t)allocation->base + allocation->bytes;
        drop(allocation->physical);
        forget(allocation);
    }
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap((void *)(uintptr_t)pointer, bytes, PROT_NONE, how, -1, 0) == MAP_FAILED ? UNKNOWN : OK;
}

API CUresult cuMemRetainAllocationHandle(struct physical **handle, void *address) {
    ENTER(WAITS);
    struct allocation *allocation = allocation_at((CUdeviceptr)(uintptr_t)address);
    if (!allocation || allocation->kind != MAPPED) return INVALID_VALUE;
    *handle = allocation->physical;
    (*handle)->uses++;
    return standin_state;
}

API CUresult cuMemExportToShareableHandle(void *shared, struct physical *handle, int type, uint64_t flags) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!shared || !handle || type != 1 || flags) return INVALID_VALUE;
    *(int *)shared = fcntl(handle->file, F_DUPFD_CLOEXEC, 0);
    return OK;
}

API CUresult cuMemImportFromShareableHandle(struct physical **handle, void *shared, int type) {
    ENTER(WAITS);
    struct stat status;
    if (standin_state) return standin_state;
    int file = type == 1 ? fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 0) : -1;
    if (!handle || file < 0 || fstat(file, &status)) return INVALID_VALUE;
    *handle = make(file, (size_t)status.st_size, &standin_devices[0], 0);
    return OK;
}

struct ipc { /* 64 bytes, as CUipcMemHandle */
    int pid, file, ordinal, zero;
    size_t bytes;
    char rest[40];
};

/* Move the memory to a file, with its contents. */
static int share(struct allocation *allocation) {
    if (allocation->file) return 1;
    int file = memfd_create("stand-in GPU", MFD_CLOEXEC);
    size_t left = allocation->bytes;
    while (file >= 0 && left) {
        ssize_t written = write(file, allocation->base + allocation->bytes - left, left);
        if (written <= 0) return 0;
        left -= (size_t)written;
    }
    int how = MAP_SHARED | MAP_FIXED;
    if (file < 0 || mmap(allocation->base, allocation->bytes, PROT_READ | PROT_WRITE, how, file, 0) == MAP_FAILED) return 0;
    allocation->file = file;
    return 1;
}

API CUresult cuIpcGetMemHandle(struct ipc *handle, CUdeviceptr pointer) {
    ENTER(FAILS);
    if (standin_state) return standin_state;
    struct allocation *allocation = allocation_at(pointer);
    if (!handle || !allocation || allocation->kind != DEVICE) return INVALID_VALUE;
    if (!share(allocation)) return UNKNOWN;
    int ordinal = (int)(allocation->device - standin_devices);
    *handle = (struct ipc){getpid(), allocation->file, ordinal, 0, allocation->bytes, ""};
    return OK;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, struct ipc handle, unsigned flags) {
    ENTER(WAITS);
    char path[64];
    (void)flags;
    if (standin_state) return standin_state;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || known_device(handle.ordinal)) return INVALID_VALUE;
    void *base = mmap(NULL, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (base == MAP_FAILED) return INVALID_VALUE;
    remember(base, handle.bytes, IMPORTED, &standin_devices[handle.ordinal]);
    *pointer = (CUdeviceptr)(uintptr_t)base;
    return OK;
}
ALSO(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle)

API CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
    ENTER(WAITS);
    struct allocation *allocation = allocation_at(pointer);
    if (!allocation || allocation->kind != IMPORTED) return INVALID_VALUE;
    release(allocation);
    return standin_state;
}
