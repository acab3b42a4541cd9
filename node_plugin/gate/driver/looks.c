/* Record of failed searches for GPUs. Libraries are entered once and never removed, so readers need no lock: an entry is complete
 * before it is counted. */
#define _GNU_SOURCE
#include "driver/looks.h"
#include "driver/visible.h"

#include <errno.h> /* program_invocation_short_name */
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static struct library {
    _Atomic int state; /* 0: free; 1: being written; 2: complete */
    _Atomic unsigned times;
    char path[LOOK_PATH];
} libraries[LOOK_LIBRARIES];

static _Atomic bool read_by_guard, found; /* found: a GPU, by a later search */

struct owner {
    ElfW(Addr) address;
    char path[LOOK_PATH];
};

/* Find the object that contains an address. `dladdr` is in a library of its own on older systems. */
static int find_owner(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct owner *owner = data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || owner->address - info->dlpi_addr - part->p_vaddr >= part->p_memsz) continue;
        if (info->dlpi_name && strlen(info->dlpi_name) < LOOK_PATH && !strchr(info->dlpi_name, '\n')) strcpy(owner->path, info->dlpi_name);
        return 1;
    }
    return 0;
}

/* Return the entry of a path, a new one if there is none; NULL if all are taken. Two threads that search for the first time at
 * once may make two entries of one library; a reader adds them up. */
static struct library *entry(const char *path) {
    for (struct library *library = libraries; library < libraries + LOOK_LIBRARIES; library++) {
        int free = 0;
        if (atomic_compare_exchange_strong(&library->state, &free, 1)) {
            strcpy(library->path, path);
            atomic_store(&library->state, 2);
            return library;
        }
        if (atomic_load(&library->state) == 2 && strcmp(library->path, path) == 0) return library;
    }
    return NULL;
}

void looks_record(const void *address) {
    struct owner owner = {.address = (ElfW(Addr))address};
    dl_iterate_phdr(find_owner, &owner);
    struct library *library = entry(owner.path);
    if (library) atomic_fetch_add(&library->times, 1);
}

void looks_found(void) { atomic_store(&found, true); }

static unsigned digits(unsigned number, char to[10]) {
    char text[10], *begin = text + sizeof text;
    do *--begin = (char)('0' + number % 10);
    while (number /= 10);
    unsigned size = (unsigned)(text + sizeof text - begin);
    memcpy(to, begin, size);
    return size;
}

unsigned jupyter_gpu_looks(char *to, unsigned size) {
    unsigned all = 0, used = 0;
    atomic_store(&read_by_guard, true);
    bool fits = size != 0;
    for (const struct library *library = libraries; library < libraries + LOOK_LIBRARIES; library++) {
        unsigned times = atomic_load(&library->state) == 2 ? atomic_load(&library->times) : 0;
        if (!times) continue;
        all += times;
        char number[10];
        unsigned of_number = digits(times, number), of_path = (unsigned)strlen(library->path);
        fits = fits && used + of_number + of_path + 3 <= size;
        if (!fits) continue;
        memcpy(to + used, number, of_number);
        to[used += of_number] = ' ';
        memcpy(to + used + 1, library->path, of_path);
        to[used += of_path + 1] = '\n';
        used++;
    }
    if (size) to[used] = 0;
    return all;
}

static struct iovec piece(const char *text) { return (struct iovec){(void *)text, strlen(text)}; }

/* At the end of a program in a terminal, say that it had no GPU: there is no guard that would. */
__attribute__((destructor)) static void tell(void) {
    const char *path = libraries[0].path, *name = strrchr(path, '/'), *wanted = getenv(LOOK_TELL);
    if (atomic_load(&libraries[0].state) != 2 || atomic_load(&read_by_guard) || atomic_load(&found)) return;
    if ((wanted && strcmp(wanted, "0") == 0) || !isatty(STDERR_FILENO) || !visible_nothing()) return;
    struct iovec pieces[] = {
        piece(program_invocation_short_name), piece(": CUDA was asked for GPUs"), piece(*path ? " (by " : ""), piece(name ? name + 1 : path),
        piece(*path ? ")" : ""), piece(", and your server has none now. \"jupyter gpu resize 1\" takes one; then start the program again.\n")};
    ssize_t written = writev(STDERR_FILENO, pieces, sizeof pieces / sizeof *pieces);
    (void)written;
}
