/* Modules, libraries and functions. Nothing is compiled or run: any name is a kernel, and states its duration.
 *
 * A name with `_us` and a number takes that many microseconds for each launch (`train_us1000`), one with `_usx` a
 * microsecond for each block along x, and any other the default of the environment. If there are several, the last one
 * counts. Mangled names work too. */
#define _GNU_SOURCE
#include "../memory/image.h"
#include "standin.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct global {
    struct global *next;
    char *name;
    char bytes[4096];
};

static void read_name(struct function *function) {
    function->microseconds = -1;
    for (const char *at = function->name; (at = strstr(at, "_us")); at += 3) {
        if (at[3] == 'x') function->per_block = 1;
        if (!isdigit((unsigned char)at[3])) continue;
        function->per_block = 0;
        function->microseconds = strtol(at + 3, NULL, 10);
    }
}

uint64_t duration_of(const struct function *function, unsigned blocks_along_x) {
    if (function->per_block) return blocks_along_x;
    return function->microseconds >= 0 ? (uint64_t)function->microseconds : standin_default_us;
}

static struct module *modules;

/* Load an image. `context` is NULL for a library, which belongs to none; its variables are on the current device, if there
 * is one. */
static CUresult load(struct module **module, struct context *context, const void *image, size_t size) {
    struct context *there = NULL;
    if (!module || !image) return INVALID_VALUE;
    current(&there);
    *module = calloc(1, sizeof **module);
    (*module)->context = context;
    (*module)->device = there ? there->device : NULL;
    (*module)->bytes = there ? image_globals(image, size) : 0;
    if (there && !board_take(&there->device->board, (int64_t)(*module)->bytes)) {
        free(*module);
        return OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&standin_lock);
    (*module)->next = modules;
    modules = *module;
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

/* Release the memory of the variables. The module itself stays, as functions may refer to it. */
static void unload(struct module *module) {
    if (module->device) board_take(&module->device->board, -(int64_t)module->bytes);
    module->bytes = 0;
}

void release_modules(const struct context *context) {
    pthread_mutex_lock(&standin_lock);
    for (struct module *module = modules; module; module = module->next)
        if (module->context == context) unload(module);
    pthread_mutex_unlock(&standin_lock);
}

static CUresult load_data(struct module **module, const void *image, size_t size) {
    struct context *context;
    CUresult failed = current(&context);
    return failed ? failed : load(module, context, image, size);
}

static CUresult load_file(struct module **module, const char *path, int in_context) {
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat status;
    if (file < 0 || fstat(file, &status)) return 301; /* file not found */
    size_t size = (size_t)status.st_size;
    void *image = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (image == MAP_FAILED) return 200; /* invalid image */
    CUresult failed = in_context ? load_data(module, image, size) : load(module, NULL, image, size);
    munmap(image, size);
    return failed;
}

API CUresult cuModuleLoadData(struct module **module, const void *image) { ENTER(WAITS); return load_data(module, image, SIZE_MAX); }

API CUresult cuModuleLoadDataEx(struct module **module, const void *image, unsigned n, int *options, void **values) {
    ENTER(WAITS);
    (void)n, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

API CUresult cuModuleLoadFatBinary(struct module **module, const void *image) {
    ENTER(WAITS);
    return cuModuleLoadData(module, image);
}

API CUresult cuModuleLoad(struct module **module, const char *path) {
    ENTER(WAITS);
    return load_file(module, path, 1);
}

API CUresult cuModuleUnload(struct module *module) {
    ENTER(WAITS_OR_ENDS);
    if (standin_state || !module) return standin_state ? standin_state : INVALID_HANDLE;
    pthread_mutex_lock(&standin_lock);
    unload(module);
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

API CUresult cuModuleGetLoadingMode(int *mode) {
    *mode = 1;
    return standin_state;
}

API CUresult cuModuleGetFunction(struct function **function, struct module *module, const char *name) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!module) return INVALID_HANDLE;
    if (!function || !name || !*name) return INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    struct function *found = module->functions;
    while (found && strcmp(found->name, name)) found = found->next;
    if (!found) {
        found = calloc(1, sizeof *found);
        *found = (struct function){.next = module->functions, .module = module, .name = strdup(name)};
        static const int attributes[20] = {1024, 0, 0, 0, 32, 80, 80, 0, 49152};
        memcpy(found->attributes, attributes, sizeof attributes);
        read_name(found);
        module->functions = found;
    }
    pthread_mutex_unlock(&standin_lock);
    *function = found;
    return OK;
}

API CUresult cuModuleGetFunctionCount(unsigned *count, struct module *module) {
    *count = 0;
    for (struct function *function = module->functions; function; function = function->next) ++*count;
    return standin_state;
}

/* Any name is a global of 4 KiB. */
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, struct module *module, const char *name) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!module || !name) return INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    struct global *found = module->globals;
    while (found && strcmp(found->name, name)) found = found->next;
    if (!found) {
        found = calloc(1, sizeof *found);
        found->next = module->globals;
        found->name = strdup(name);
        module->globals = found;
    }
    pthread_mutex_unlock(&standin_lock);
    if (pointer) *pointer = (CUdeviceptr)(uintptr_t)found->bytes;
    if (bytes) *bytes = sizeof found->bytes;
    return OK;
}

API CUresult cuLibraryLoadData(struct module **library, const void *image, int *options, void **values, unsigned n,
                               int *more, void **more_values, unsigned m) {
    (void)options, (void)values, (void)n, (void)more, (void)more_values, (void)m;
    if (standin_state) return standin_state;
    return load(library, NULL, image, SIZE_MAX); /* a library belongs to no context */
}

API CUresult cuLibraryLoadFromFile(struct module **library, const char *path, int *options, void **values, unsigned n,
                                   int *more, void **more_values, unsigned m) {
    ENTER(WAITS);
    (void)options, (void)values, (void)n, (void)more, (void)more_values, (void)m;
    return standin_state ? standin_state : load_file(library, path, 0);
}

API CUresult cuLibraryUnload(struct module *library) { return cuModuleUnload(library); }

API CUresult cuLibraryGetModule(struct module **module, struct module *library) {
    ENTER(WAITS);
    *module = library;
    return standin_state;
}

API CUresult cuLibraryGetKernel(struct function **kernel, struct module *library, const char *name) {
    return cuModuleGetFunction(kernel, library, name);
}

API CUresult cuLibraryGetKernelCount(unsigned *count, struct module *library) {
    return cuModuleGetFunctionCount(count, library);
}

API CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, struct module *library, const char *name) {
    ENTER(WAITS);
    return cuModuleGetGlobal_v2(pointer, bytes, library, name);
}

API CUresult cuKernelGetFunction(struct function **function, struct function *kernel) {
    ENTER(WAITS);
    *function = kernel;
    return standin_state;
}

API CUresult cuKernelGetLibrary(struct module **library, struct function *kernel) {
    *library = kernel->module;
    return standin_state;
}

API CUresult cuFuncGetModule(struct module **module, struct function *function) {
    return cuKernelGetLibrary(module, function);
}

API CUresult cuFuncGetName(const char **name, struct function *function) {
    *name = function->name;
    return standin_state;
}

API CUresult cuKernelGetName(const char **name, struct function *kernel) { return cuFuncGetName(name, kernel); }

API CUresult cuFuncGetAttribute(int *value, int attribute, struct function *function) {
    if (standin_state) return standin_state;
    if (!function) return INVALID_HANDLE;
    if (!value || attribute < 0 || attribute > 19) return INVALID_VALUE;
    *value = function->attributes[attribute];
    return OK;
}

API CUresult cuFuncSetAttribute(struct function *function, int attribute, int value) {
    ENTER(WAITS);
    if (standin_state) return standin_state;
    if (!function) return INVALID_HANDLE;
    if (attribute < 0 || attribute > 19) return INVALID_VALUE;
    function->attributes[attribute] = value;
    return OK;
}

API CUresult cuKernelGetAttribute(int *value, int attribute, struct function *kernel, CUdevice device) {
    (void)device;
    return cuFuncGetAttribute(value, attribute, kernel);
}

API CUresult cuKernelSetAttribute(int attribute, int value, struct function *kernel, CUdevice device) {
    ENTER(WAITS);
    (void)device;
    return cuFuncSetAttribute(kernel, attribute, value);
}

API CUresult cuFuncSetCacheConfig(struct function *function, int config) {
    ENTER(WAITS);
    (void)config;
    return function ? standin_state : INVALID_HANDLE;
}

API CUresult cuKernelSetCacheConfig(struct function *kernel, int config, CUdevice device) {
    ENTER(WAITS);
    (void)device;
    return cuFuncSetCacheConfig(kernel, config);
}

API CUresult cuFuncSetSharedMemConfig(struct function *function, int config) {
    ENTER(WAITS);
    return cuFuncSetCacheConfig(function, config);
}

API CUresult cuFuncIsLoaded(int *state, struct function *function) {
    *state = 1;
    return function ? standin_state : INVALID_HANDLE;
}

API CUresult cuFuncLoad(struct function *function) { return function ? standin_state : INVALID_HANDLE; }

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct function *function, int size, size_t shared) {
    ENTER(WAITS);
    (void)function, (void)shared;
    if (size < 1) return INVALID_VALUE;
    *blocks = 2048 / size > 32 ? 32 : 2048 / size;
    return standin_state;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, struct function *function, int size,
                                                                  size_t shared, unsigned flags) {
    ENTER(WAITS);
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, size, shared);
}

API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, struct function *function, void *call,
                                              size_t shared, int limit) {
    ENTER(WAITS);
    (void)function, (void)call, (void)shared;
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    *grid = 216;
    return standin_state;
}

API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, struct function *function, void *call,
                                                       size_t shared, int limit, unsigned flags) {
    ENTER(WAITS);
    (void)flags;
    return cuOccupancyMaxPotentialBlockSize(grid, block, function, call, shared, limit);
}

API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, struct function *function, int blocks, int size) {
    ENTER(WAITS);
    (void)function, (void)blocks, (void)size;
    *bytes = 49152;
    return standin_state;
}
