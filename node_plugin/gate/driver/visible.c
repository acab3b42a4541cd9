/* Update of CUDA_VISIBLE_DEVICES just before the driver reads it, in the program's first cuInit. */
#define _GNU_SOURCE
#include "driver/visible.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_GPUS = 64, LONGEST_UUID = 96, LONGEST_INDEX = 9 };
static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-", digits[] = "0123456789";

struct word { const char *begin; size_t size; };

struct hint {
    bool simulated, enforced;
    int count;
    struct gpu { struct word uuid; long index; } gpus[MOST_GPUS];
};

static bool is_word(struct word word, const char *text) { return strlen(text) == word.size && !memcmp(word.begin, text, word.size); }

static bool same(const char *one, const char *other) { return one && other && !strcmp(one, other); }

/* Return the next part of `*rest`, up to `separator` or the end; `*rest` becomes NULL after the last part. */
static struct word next(const char **rest, const char *separator) {
    struct word word = {*rest, strcspn(*rest, separator)};
    *rest = word.begin[word.size] ? word.begin + word.size + 1 : NULL;
    return word;
}

static bool is_index(struct word word) { return word.size && word.size <= LONGEST_INDEX && strspn(word.begin, digits) >= word.size; }

/* Return the value of at most LONGEST_INDEX digits. New compilers replace strtol by a symbol that older C libraries lack. */
static long number(const char *text) {
    long value = 0;
    for (; *text >= '0' && *text <= '9'; text++) value = value * 10 + (*text - '0');
    return value;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static bool read_gpu(struct hint *hint, const char *line) {
    size_t uuid = strspn(line, letters), index = uuid && line[uuid] == ' ' ? strspn(line + uuid + 1, digits) : 0;
    if (!index || uuid > LONGEST_UUID || index > LONGEST_INDEX || line[uuid + 1 + index] != ' ') return false;
    if (hint->count == MOST_GPUS) return false;
    hint->gpus[hint->count++] = (struct gpu){{line, uuid}, number(line + uuid + 1)};
    return true;
}

/* Parse the file that jupyter_gpu/common/attached.py writes. */
static bool read_hint(struct hint *hint, const char *text) {
    int simulated = -1, enforced = -1;
    hint->count = 0;
    for (const char *rest = text; rest;) {
        struct word line = next(&rest, "\n");
        if (is_word(line, "simulated 0") || is_word(line, "simulated 1")) simulated = line.begin[line.size - 1] == '1';
        else if (is_word(line, "enforced 0") || is_word(line, "enforced 1")) enforced = line.begin[line.size - 1] == '1';
        else if (!strncmp(line.begin, "gpu ", 4) && !read_gpu(hint, line.begin + 4)) return false;
        else if (is_word(line, "end")) {
            hint->simulated = simulated == 1, hint->enforced = enforced == 1;
            return simulated >= 0 && enforced >= 0 && rest && !*rest;
        }
    }
    return false;
}

/* --- the value ---------------------------------------------------------------------------------------------------- */

static bool append(char to[VISIBLE_ROOM], struct word word) {
    size_t size = strlen(to), comma = size != 0;
    if (size + comma + word.size >= VISIBLE_ROOM) return false;
    if (comma) to[size] = ',';
    memcpy(to + size + comma, word.begin, word.size);
    to[size + comma + word.size] = 0;
    return true;
}

static bool append_number(char to[VISIBLE_ROOM], long number) {
    char text[LONGEST_INDEX + 1], *begin = text + sizeof text;
    do *--begin = (char)('0' + number % 10);
    while (number /= 10);
    return append(to, (struct word){begin, (size_t)(text + sizeof text - begin)});
}

static void name_all(const struct hint *hint, bool by_index, char to[VISIBLE_ROOM]) {
    for (int i = 0; i < hint->count; i++)
        if (!(by_index ? append_number(to, hint->enforced ? i : hint->gpus[i].index) : append(to, hint->gpus[i].uuid))) return;
}

/* Return the only GPU whose UUID starts with this word; NULL if there is none or more than one. */
static const struct gpu *by_uuid(const struct hint *hint, struct word word) {
    const struct gpu *found = NULL;
    if (word.size <= 4 || memcmp(word.begin, "GPU-", 4)) return NULL;
    for (const struct gpu *gpu = hint->gpus; gpu < hint->gpus + hint->count; gpu++) {
        if (gpu->uuid.size < word.size || memcmp(gpu->uuid.begin, word.begin, word.size)) continue;
        if (found) return NULL;
        found = gpu;
    }
    return found;
}

static bool name_index(const struct hint *hint, struct word word, bool by_bus, char to[VISIBLE_ROOM]) {
    long index = number(word.begin);
    for (const struct gpu *gpu = hint->gpus; gpu < hint->gpus + hint->count; gpu++)
        if (gpu->index == index && !append(to, by_bus ? word : gpu->uuid)) return false;
    return true;
}

static struct word trimmed(struct word word) {
    while (word.size && strchr(" \t", *word.begin)) word.begin++, word.size--;
    while (word.size && strchr(" \t", word.begin[word.size - 1])) word.size--;
    return word;
}

static void narrow(const struct hint *hint, const char *own, bool by_bus, char to[VISIBLE_ROOM]) {
    for (const char *rest = own; rest;) {
        struct word word = trimmed(next(&rest, ","));
        const struct gpu *gpu = is_index(word) ? NULL : by_uuid(hint, word);
        if (!(is_index(word) ? name_index(hint, word, by_bus, to) : gpu && append(to, gpu->uuid))) return;
    }
}

bool visible_value(const char *text, const struct visible *now, char to[VISIBLE_ROOM], const char **own) {
    struct hint hint;
    bool by_bus = same(now->order, "PCI_BUS_ID");
    *to = 0;
    *own = same(now->given, now->ours) ? now->wanted : now->given;
    if (!read_hint(&hint, text) || hint.simulated || (hint.enforced && (*own || !now->given))) return false;
    if (*own) narrow(&hint, *own, by_bus, to);
    else name_all(&hint, by_bus && same(now->by, "index"), to);
    return true;
}

/* --- the process -------------------------------------------------------------------------------------------------- */

/* Read a whole file; return false if that fails. */
static bool read_file(const char *path, char text[VISIBLE_FILE]) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    size_t size = 0;
    ssize_t got = -1;
    if (file < 0) return false;
    while (size < VISIBLE_FILE - 1 && (got = read(file, text + size, VISIBLE_FILE - 1 - size)) > 0) size += (size_t)got;
    close(file);
    text[size] = 0;
    return got == 0;
}

/* Set a variable, unless it has the value already: other threads may be reading the environment. */
static void put(const char *name, const char *value) {
    if (!same(getenv(name), value)) setenv(name, value, 1);
}

static bool read_attached(char text[VISIBLE_FILE]) {
    const char *path = getenv(VISIBLE_ATTACHED);
    return path && *path && read_file(path, text);
}

bool visible_nothing(void) {
    char text[VISIBLE_FILE];
    struct hint hint;
    const char *given = getenv(VISIBLE), *own = same(given, getenv(VISIBLE_OURS)) ? getenv(VISIBLE_WANTED) : given;
    return !own && read_attached(text) && read_hint(&hint, text) && !hint.simulated && !hint.count;
}

void visible_follow(void) {
    char text[VISIBLE_FILE], value[VISIBLE_ROOM];
    const char *own;
    struct visible now = {getenv(VISIBLE), getenv(VISIBLE_OURS), getenv(VISIBLE_WANTED), getenv(VISIBLE_ORDER), getenv(VISIBLE_BY)};
    if (!read_attached(text) || !visible_value(text, &now, value, &own)) return;
    if (own && same(now.given, value)) return; /* everything that the user chose is attached */
    if (own) put(VISIBLE_WANTED, own);
    else if (now.wanted) unsetenv(VISIBLE_WANTED);
    put(VISIBLE_OURS, value);
    put(VISIBLE, value);
}
