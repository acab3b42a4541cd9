/* Preloaded: lets the next call of one of a few functions of the driver fail with a code, without calling it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static volatile int next_code, failed; /* of the next call; how many calls failed */

void fail_next(int code) { next_code = code; }
int fail_count(void) { return failed; }

static int takes(void) {
    int code = __sync_lock_test_and_set(&next_code, 0);
    if (code) failed++;
    return code;
}

#define FAILING(name, parameters, arguments)                       \
    static int(*real_##name) parameters;                           \
    static int failing_##name parameters {                         \
        int code = takes();                                        \
        return code ? code : real_##name arguments;                \
    }
#define FUNCTIONS(each)                                                                                              \
    each(cuLaunchKernel,                                                                                             \
         (void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared, void *s, \
          void **p, void **x),                                                                                       \
         (f, a, b, c, d, e, g, shared, s, p, x))                                                                     \
    each(cuLaunchKernelEx, (void *config, void *f, void **p, void **x), (config, f, p, x))                           \
    each(cuMemAlloc, (uint64_t * at, size_t size), (at, size))                                                       \
    each(cuMemAllocAsync, (uint64_t * at, size_t size, void *s), (at, size, s))                                      \
    each(cuMemcpyDtoH, (void *to, uint64_t from, size_t size), (to, from, size))                                     \
    each(cuMemcpyHtoD, (uint64_t to, void *from, size_t size), (to, from, size))                                     \
    each(cuMemcpyDtoHAsync, (void *to, uint64_t from, size_t size, void *s), (to, from, size, s))                    \
    each(cuMemcpyHtoDAsync, (uint64_t to, void *from, size_t size, void *s), (to, from, size, s))                    \
    each(cuStreamSynchronize, (void *s), (s))
FUNCTIONS(FAILING)

static void *by_name(const char *name, void *found) {
    size_t length = strlen(name);
    if (length > 3 && !strcmp(name + length - 3, "_v2")) length -= 3;
#define REPLACED(known, parameters, arguments)                                      \
    if (strlen(#known) == length && !strncmp(name, #known, length)) {               \
        real_##known = (int(*) parameters)found;                                    \
        return (void *)failing_##known;                                             \
    }
    FUNCTIONS(REPLACED)
    return found;
}

static int (*real_address)(const char *, void **, int, uint64_t);
static int (*real_address_2)(const char *, void **, int, uint64_t, int *);

static int address(const char *name, void **found, int version, uint64_t flags) {
    int code = real_address(name, found, version, flags);
    if (!code && *found) *found = by_name(name, *found);
    return code;
}

static int address_2(const char *name, void **found, int version, uint64_t flags, int *status) {
    int code = real_address_2(name, found, version, flags, status);
    if (!code && found && *found && !strcmp(name, "cuGetProcAddress")) {
        real_address_2 = (int (*)(const char *, void **, int, uint64_t, int *))*found;
        *found = (void *)address_2;
    } else if (!code && found && *found) {
        *found = by_name(name, *found);
    }
    return code;
}

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *found = real(handle, name);
    if (!found || strncmp(name, "cu", 2)) return found;
    if (!strcmp(name, "cuGetProcAddress_v2")) {
        real_address_2 = (int (*)(const char *, void **, int, uint64_t, int *))found;
        return (void *)address_2;
    }
    if (!strcmp(name, "cuGetProcAddress")) {
        real_address = (int (*)(const char *, void **, int, uint64_t))found;
        return (void *)address;
    }
    return by_name(name, found);
}
