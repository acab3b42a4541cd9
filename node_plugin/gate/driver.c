/* Finds functions by walking the loaded objects and their hash tables, as the loader does. */
#define _GNU_SOURCE
#include "driver.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden"))); /* of this library */

struct object {
    ElfW(Addr) base;
    const ElfW(Dyn) *dynamic;
    const ElfW(Sym) *symbols;
    const char *strings, *name;
    const uint32_t *gnu_hash, *sysv_hash;
};

/* glibc has made the addresses in a dynamic section absolute, musl and the vDSO have not. */
static const void *at(const struct object *object, ElfW(Addr) value) {
    return (const void *)(value < object->base ? object->base + value : value);
}

static bool open_object(const struct dl_phdr_info *info, struct object *object) {
    *object = (struct object){.base = info->dlpi_addr};
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object->dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (!object->dynamic) return false;
    ElfW(Addr) name = 0;
    for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB: object->symbols = at(object, entry->d_un.d_ptr); break;
        case DT_STRTAB: object->strings = at(object, entry->d_un.d_ptr); break;
        case DT_GNU_HASH: object->gnu_hash = at(object, entry->d_un.d_ptr); break;
        case DT_HASH: object->sysv_hash = at(object, entry->d_un.d_ptr); break;
        case DT_SONAME: name = entry->d_un.d_val; break;
        default: break;
        }
    }
    if (!object->symbols || !object->strings) return false;
    if (name) object->name = object->strings + name;
    return true;
}

static void *defined(const struct object *object, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &object->symbols[index];
    if (symbol->st_shndx == SHN_UNDEF || strcmp(object->strings + symbol->st_name, name) != 0) return NULL;
    return (void *)(object->base + symbol->st_value);
}

static void *by_gnu_hash(const struct object *object, const char *name) {
    const uint32_t *table = object->gnu_hash;
    uint32_t buckets = table[0], first = table[1], words = table[2], hash = 5381;
    if (!buckets) return NULL;
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + words), *chain = bucket + buckets;
    for (uint32_t index = bucket[hash % buckets]; index >= first; index++) {
        void *found = (chain[index - first] | 1) == (hash | 1) ? defined(object, index, name) : NULL;
        if (found) return found;
        if (chain[index - first] & 1) break;
    }
    return NULL;
}

static void *by_sysv_hash(const struct object *object, const char *name) {
    const uint32_t *table = object->sysv_hash;
    for (uint32_t index = 1; index < table[1]; index++) { /* rare, and a count of symbols is all that is asked of it */
        void *found = defined(object, index, name);
        if (found) return found;
    }
    return NULL;
}

struct search {
    const char *name; /* of the function */
    enum { ANYWHERE, IN_DRIVER } where;
    void *found;
};

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    struct object object;
    if (!open_object(info, &object)) return 0;
    if (object.dynamic == _DYNAMIC) return 0;
    if (search->where == IN_DRIVER && !(object.name && strcmp(object.name, "libcuda.so.1") == 0)) return 0;
    if (object.gnu_hash)
        search->found = by_gnu_hash(&object, search->name);
    else if (object.sysv_hash)
        search->found = by_sysv_hash(&object, search->name);
    return search->found != NULL;
}

static void *run(struct search search) {
    dl_iterate_phdr(look, &search);
    return search.found;
}

void *process_symbol(const char *name) { return run((struct search){.name = name, .where = ANYWHERE}); }

#define NAME_GATED(symbol, name, since, per_thread) #symbol,
#define NAME_USED(symbol, arguments) #symbol,
static const char *const names[FUNCTION_COUNT] = {GATED(NAME_GATED) USED(NAME_USED)};

static void *_Atomic functions[FUNCTION_COUNT];

void driver_remember(enum driver_function which, void *function) {
    void *none = NULL;
    atomic_compare_exchange_strong(&functions[which], &none, function);
}

void *driver_function(enum driver_function which) {
    void *function = atomic_load_explicit(&functions[which], memory_order_acquire);
    if (function) return function;
    function = run((struct search){.name = names[which], .where = IN_DRIVER});
    if (function) driver_remember(which, function);
    return function;
}

static CUresult missing(void) { return CUDA_ERROR_NOT_SUPPORTED; }

void *driver_real(enum driver_function which) {
    void *function = driver_function(which);
    return function ? function : (void *)missing;
}
