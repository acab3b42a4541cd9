#define _GNU_SOURCE
#include "memory/image.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

static uint64_t sum(uint64_t one, uint64_t other) { return one > UINT64_MAX - other ? UINT64_MAX : one + other; }

static uint64_t product(uint64_t one, uint64_t other) {
    uint64_t all;
    return __builtin_mul_overflow(one, other, &all) ? UINT64_MAX : all;
}

/* --- cubin -------------------------------------------------------------------------------------------------------- */

enum { MOST_SECTIONS = 0xff00 };
#define MOST_BYTES ((size_t)1 << 32) /* of an image of unknown size */

static bool inside(uint64_t from, uint64_t bytes, size_t size) { return from <= size && bytes <= size - from; }

static uint64_t elf_globals(const unsigned char *image, size_t size) {
    Elf64_Ehdr head;
    uint64_t all = 0;
    if (size < sizeof head) return 0;
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum >= MOST_SECTIONS ||
        head.e_shstrndx >= head.e_shnum || !inside(head.e_shoff, head.e_shnum * sizeof(Elf64_Shdr), size))
        return 0;
    Elf64_Shdr names, section;
    memcpy(&names, image + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
    if (!names.sh_size || !inside(names.sh_offset, names.sh_size, size)) return 0;
    const char *strings = (const char *)image + names.sh_offset;
    if (strings[names.sh_size - 1]) return 0;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_name >= names.sh_size) continue;
        const char *name = strings + section.sh_name;
        if (!strcmp(name, ".nv.global") || !strcmp(name, ".nv.global.init")) all = sum(all, section.sh_size);
    }
    return all;
}

/* --- PTX ---------------------------------------------------------------------------------------------------------- */

struct text {
    const char *at, *end;
};

/* The C library's functions depend on the locale. */
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool in_word(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '$' || c == '%';
}

static void spaces(struct text *text) {
    while (text->at < text->end && is_space(*text->at)) text->at++;
}

/* Read a word of letters, digits, dots and other characters of names; return its length. */
static size_t word(struct text *text, const char **from) {
    spaces(text);
    *from = text->at;
    while (text->at < text->end && in_word(*text->at)) text->at++;
    return (size_t)(text->at - *from);
}

static bool is(const char *from, size_t length, const char *what) {
    return length == strlen(what) && !memcmp(from, what, length);
}

/* Return the bytes of a type such as ".b8"; 0: it takes no memory. */
static uint64_t type_bytes(const char *from, size_t length) {
    if (length < 3 || length > 5 || from[0] != '.' || !strchr("busf", from[1])) return 0;
    uint64_t bits = 0;
    for (size_t i = 2; i < length; i++) {
        if (!is_digit(from[i])) return 0;
        bits = bits * 10 + (uint64_t)(from[i] - '0');
    }
    return bits / 8;
}

static uint64_t number(struct text *text) {
    uint64_t value = 0;
    for (spaces(text); text->at < text->end && is_digit(*text->at); text->at++)
        value = sum(product(value, 10), (uint64_t)(*text->at - '0'));
    return value;
}

/* Read the dimensions after a name. */
static uint64_t elements(struct text *text) {
    uint64_t all = 1;
    for (spaces(text); text->at < text->end && *text->at == '['; spaces(text)) {
        text->at++;
        all = product(all, number(text));
        spaces(text);
        if (text->at < text->end && *text->at == ']') text->at++;
    }
    return all;
}

/* Read one declaration after ".global", up to its name and size, as compilers write it. */
static uint64_t declared(struct text text) {
    uint64_t element = 0, vector = 1;
    const char *from;
    for (size_t length; (length = word(&text, &from));) {
        uint64_t bytes = type_bytes(from, length);
        if (bytes) element = bytes;
        else if (is(from, length, ".align")) number(&text);
        else if (is(from, length, ".v2")) vector = 2;
        else if (is(from, length, ".v4")) vector = 4;
        else if (from[0] != '.') return product(product(element, vector), elements(&text));
        else if (is(from, length, ".attribute")) return 0; /* managed */
    }
    return 0;
}

static uint64_t ptx_globals(struct text text) {
    uint64_t all = 0;
    while (text.at < text.end) {
        const char *newline = memchr(text.at, '\n', (size_t)(text.end - text.at)), *from;
        struct text line = {text.at, newline ? newline : text.end};
        size_t length = word(&line, &from);
        if (is(from, length, ".visible") || is(from, length, ".weak") || is(from, length, ".common")) length = word(&line, &from);
        if (is(from, length, ".global")) all = sum(all, declared(line));
        text.at = newline ? newline + 1 : text.end;
    }
    return all;
}

/* Return whether a text is PTX: comments, then the version. */
static bool is_ptx(struct text text) {
    const char *from;
    for (spaces(&text); text.end - text.at > 1 && text.at[0] == '/' && text.at[1] == '/'; spaces(&text))
        while (text.at < text.end && *text.at != '\n') text.at++;
    size_t length = word(&text, &from);
    return is(from, length, ".version");
}

static bool begins_text(char first) { return first == '.' || first == '/' || is_space(first); }

uint64_t image_globals(const void *image, size_t size) {
    const char *text = image;
    if (!image || !size) return 0;
    if (size == SIZE_MAX ? !strncmp(text, ELFMAG, SELFMAG) : size >= SELFMAG && !memcmp(text, ELFMAG, SELFMAG))
        return elf_globals(image, size == SIZE_MAX ? MOST_BYTES : size);
    if (!begins_text(*text)) return 0; /* its end would not be known either */
    struct text all = {text, text + (size == SIZE_MAX ? strlen(text) : strnlen(text, size))};
    return is_ptx(all) ? ptx_globals(all) : 0;
}
