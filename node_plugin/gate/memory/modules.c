/* Variables of modules whose image states their sizes uncompressed: cubins and PTX. Packed fat binaries, and code, which the
 * driver loads on first use, show only in the comparison with NVML. */
#define _GNU_SOURCE
#include "memory/image.h"
#include "memory/counting.h"
#include "parking/marks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Less than this is never refused: a program that has used up its memory must still be able to load its kernels. */
#define FEW ((uint64_t)1 << 20)

static struct claim claim_variables(uint64_t bytes) {
    struct claim claimed = bytes ? claim(bytes) : (struct claim){.share = NULL};
    return claimed.refused && bytes < FEW ? (struct claim){.share = NULL} : claimed;
}

static uint64_t in_file(const char *path) {
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    off_t size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
    void *image = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    uint64_t bytes = image == MAP_FAILED ? 0 : image_globals(image, (size_t)size);
    if (image != MAP_FAILED) munmap(image, (size_t)size);
    if (file >= 0) close(file);
    return bytes;
}

#define LOAD(symbol, key, in_context, variables, ...) \
    struct claim claimed = claim_variables(variables); \
    if (claimed.refused) return CUDA_ERROR_OUT_OF_MEMORY; \
    CUresult result = REAL(symbol)(__VA_ARGS__); \
    return claim_settle(&claimed, result, key, result == CUDA_SUCCESS ? (uint64_t)*to : 0, claimed.bytes, in_context)

CUresult GATE(cuModuleLoad)(CUmodule *to, const char *path) { LOAD(cuModuleLoad, MODULE, true, in_file(path), to, path); }

CUresult GATE(cuModuleLoadData)(CUmodule *to, const void *image) {
    LOAD(cuModuleLoadData, MODULE, true, image_globals(image, SIZE_MAX), to, image);
}

CUresult GATE(cuModuleLoadDataEx)(CUmodule *to, const void *image, unsigned count, void *options, void *values) {
    LOAD(cuModuleLoadDataEx, MODULE, true, image_globals(image, SIZE_MAX), to, image, count, options, values);
}

CUresult GATE(cuModuleUnload)(CUmodule module) {
    struct entry *entry = memory_remove(MODULE, (uint64_t)module);
    return memory_after_free(entry, MARKED(REAL(cuModuleUnload)(module)));
}

/* A library belongs to no context: it counts on the device that is current when it is loaded. */
#define LIBRARY_TAKES void *jit, void *jit_values, unsigned jits, void *options, void *values, unsigned count
#define LIBRARY_GIVES jit, jit_values, jits, options, values, count

CUresult GATE(cuLibraryLoadData)(CUlibrary *to, const void *image, LIBRARY_TAKES) {
    LOAD(cuLibraryLoadData, LIBRARY, false, image_globals(image, SIZE_MAX), to, image, LIBRARY_GIVES);
}

CUresult GATE(cuLibraryLoadFromFile)(CUlibrary *to, const char *path, LIBRARY_TAKES) {
    LOAD(cuLibraryLoadFromFile, LIBRARY, false, in_file(path), to, path, LIBRARY_GIVES);
}

CUresult GATE(cuLibraryUnload)(CUlibrary library) {
    struct entry *entry = memory_remove(LIBRARY, (uint64_t)library);
    return memory_after_free(entry, REAL(cuLibraryUnload)(library));
}
