/* Symbol lookup in the loaded objects and their hash tables, as the dynamic loader does it. Both libraries have it. */
#define _GNU_SOURCE
#include "driver/driver.h"

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

/* Return an address of the dynamic section as a pointer. glibc makes these addresses absolute; musl and the vDSO do not. */
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
    for (uint32_t index = 1; index < table[1]; index++) { /* rare: a linear search will do */
        void *found = defined(object, index, name);
        if (found) return found;
    }
    return NULL;
}

struct search {
    const char *name; /* of the function */
    void *found;
};

struct exports {
    const char *library, *const *names;
    void *_Atomic *found;
    unsigned count;
};

static void *find(const struct object *object, const char *name) {
    return object->gnu_hash ? by_gnu_hash(object, name) : object->sysv_hash ? by_sysv_hash(object, name) : NULL;
}

static int search_object(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    struct object object;
    if (!open_object(info, &object) || object.dynamic == _DYNAMIC) return 0;
    search->found = find(&object, search->name);
    return search->found != NULL;
}

/* Look up all names in the object with that soname that is not this library. */
static int search_library(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct exports *exports = data;
    struct object object;
    if (!open_object(info, &object) || object.dynamic == _DYNAMIC) return 0;
    if (!object.name || strcmp(object.name, exports->library) != 0) return 0;
    for (unsigned i = 0; i < exports->count; i++) atomic_store(&exports->found[i], find(&object, exports->names[i]));
    return 1;
}

void *process_symbol(const char *name) {
    struct search search = {.name = name};
    dl_iterate_phdr(search_object, &search);
    return search.found;
}

void library_exports(const char *library, const char *const *names, void *_Atomic *found, unsigned count) {
    dl_iterate_phdr(search_library, &(struct exports){library, names, found, count});
}

/* The function is looked up, because its name differs between C libraries: linked to one name, this library would not load with
 * the other. */
void run_in_children(void (*run)(void)) {
    int (*glibc)(void (*)(void), void (*)(void), void (*)(void), void *) =
        (__typeof__(glibc))process_symbol("__register_atfork");
    int (*musl)(void (*)(void), void (*)(void), void (*)(void)) = (__typeof__(musl))process_symbol("pthread_atfork");
    if (glibc)
        glibc(NULL, NULL, run, NULL);
    else if (musl)
        musl(NULL, NULL, run);
}
