/* A preloaded library that counts who gets host memory from malloc, and can serve large pieces from a pool that was
 * written before: whether fresh pages are what makes a checkpoint slow, and whether the driver asks malloc for them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { LARGE = 1 << 20 };

static char *pool;
static size_t pool_size;
static _Atomic size_t pool_used;
static _Atomic uint64_t counted[8]; /* mallocs, bytes; callocs, bytes; aligned, bytes; mmaps, bytes: of large pieces */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_memalign(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static void count(int kind, size_t size) {
    atomic_fetch_add(&counted[2 * kind], 1);
    atomic_fetch_add(&counted[2 * kind + 1], size);
}

static void *take(size_t size, size_t align) {
    if (!pool) return NULL;
    size_t whole = (size + align + 4095) & ~(size_t)4095, at = atomic_fetch_add(&pool_used, whole);
    if (at + whole > pool_size) return NULL;
    return (void *)(((uintptr_t)pool + at + align - 1) & ~(uintptr_t)(align - 1));
}

static int ours(const void *place) { return pool && (const char *)place >= pool && (const char *)place < pool + pool_size; }

void *malloc(size_t size) {
    if (size < LARGE) return __libc_malloc(size);
    count(0, size);
    void *got = take(size, 4096);
    return got ? got : __libc_malloc(size);
}
void *calloc(size_t count_, size_t size) {
    if (count_ * size >= LARGE) count(1, count_ * size);
    return __libc_calloc(count_, size);
}
static void *aligned(size_t align, size_t size) {
    if (size < LARGE) return __libc_memalign(align, size);
    count(2, size);
    void *got = take(size, align < 4096 ? 4096 : align);
    return got ? got : __libc_memalign(align, size);
}
void *memalign(size_t align, size_t size) { return aligned(align, size); }
void *aligned_alloc(size_t align, size_t size) { return aligned(align, size); }
int posix_memalign(void **out, size_t align, size_t size) { return (*out = aligned(align, size)) ? 0 : 12; }
void *realloc(void *old, size_t size) {
    if (!ours(old)) return __libc_realloc(old, size);
    void *got = malloc(size);
    size_t left = (size_t)(pool + pool_size - (char *)old);
    if (got) memcpy(got, old, size < left ? size : left);
    return got;
}
void free(void *place) {
    if (!ours(place)) __libc_free(place);
}
void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "mmap");
    if (size >= LARGE && (flags & MAP_ANONYMOUS)) count(3, size);
    return real(at, size, prot, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset) { return mmap(at, size, prot, flags, fd, offset); }

/* From now on large pieces come from this memory; NULL: from malloc again. */
void preload_pool(void *place, size_t size) {
    pool_size = size;
    atomic_store(&pool_used, 0);
    pool = place;
}
void preload_counted(uint64_t *out) {
    for (int i = 0; i < 8; i++) out[i] = atomic_load(&counted[i]);
}
