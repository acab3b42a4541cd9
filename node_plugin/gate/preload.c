/* Where the gate comes by LD_PRELOAD, the library that programs open is the driver itself: so their look-ups come here.
 *
 * dlsym and dlopen use their return address (RTLD_NEXT, a caller's search path): it must be the program's, so these end in
 * a jump. That is what the attribute is for: a build without optimisation must do it too. */
#define _GNU_SOURCE
#include "gate.h"

#include <dlfcn.h>

#ifndef GATE_IS_LINKED /* sanitizers look things up before anything here works: with them, programs are linked with the gate */

#define JUMPS __attribute__((optimize("O2", "optimize-sibling-calls"), no_sanitize("address", "thread", "undefined")))

typedef void *(*symbol_finder)(void *, const char *);
typedef void *(*opener)(const char *, int);

/* This library's own dlsym comes before the C library's, so that one is found by hand. */
static void *c_library(void *_Atomic *slot, const char *name) {
    void *function = atomic_load_explicit(slot, memory_order_acquire);
    if (function) return function;
    function = next_symbol(name);
    atomic_store(slot, function);
    return function;
}

static void *_Atomic real_dlsym, *_Atomic real_dlopen;

/* The gate in front of the driver's function, if it is the driver's: another library's function of that name calls the
 * driver sooner or later, and comes by here then. */
static void *find_gated(int index, void *handle, const char *name) {
    void *found = ((symbol_finder)c_library(&real_dlsym, "dlsym"))(handle, name);
    if (found && gated_is(index, found)) return driver_function((enum driver_function)index) ? found : NULL;
    return found && driver_owns(found) ? gated_instead(index, found) : found;
}

EXPORT JUMPS void *dlsym(void *restrict handle, const char *restrict name) {
    int index = gated_symbol(name);
    if (index >= 0) return find_gated(index, handle, name);
    return ((symbol_finder)c_library(&real_dlsym, "dlsym"))(handle, name);
}

/* A library that binds to its own dependencies first would find the driver before the gate. */
EXPORT JUMPS void *dlopen(const char *file, int flags) {
    return ((opener)c_library(&real_dlopen, "dlopen"))(file, flags & ~RTLD_DEEPBIND);
}

/* Another namespace has no gate, and its driver would not be this one's: everything is opened in the first. */
EXPORT JUMPS void *dlmopen(Lmid_t space, const char *file, int flags) {
    (void)space;
    return ((opener)c_library(&real_dlopen, "dlopen"))(file, flags & ~RTLD_DEEPBIND);
}

#endif
