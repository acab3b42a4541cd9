/* image_globals under sanitizers: image SEED ROUNDS. Damaged cubins and PTX are read without going out of bounds. */
#include "../../../node_plugin/gate/memory/image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t cubin(unsigned char *to) {
    static const char names[] = "\0.nv.global\0.nv.global.init\0.text";
    Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64}, .e_shoff = 128,
                       .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 4, .e_shstrndx = 3};
    Elf64_Shdr sections[4] = {{.sh_name = 1, .sh_type = SHT_NOBITS, .sh_size = 1000}, {.sh_name = 12, .sh_size = 24},
                              {.sh_name = 29, .sh_size = 7}, {.sh_offset = 64, .sh_size = sizeof names}};
    memset(to, 0, 128);
    memcpy(to, &head, sizeof head);
    memcpy(to + 64, names, sizeof names);
    memcpy(to + 128, sections, sizeof sections);
    return 128 + sizeof sections;
}

static size_t ptx(unsigned char *to) {
    static const char text[] = "// made\n.version 8.0\n.visible .global .align 8 .v2 .f64 a[3][4] = {0};\n.global .b8 b;\n";
    memcpy(to, text, sizeof text);
    return sizeof text - 1;
}

int main(int count, char **arguments) {
    unsigned char whole[1024];
    unsigned long read = 0;
    srand((unsigned)atoi(arguments[count - 2]));
    size_t size = cubin(whole);
    printf("%lu ", (unsigned long)image_globals(whole, size));
    size = ptx(whole);
    printf("%lu\n", (unsigned long)image_globals(whole, size));
    for (long i = atol(arguments[count - 1]); i; i--) {
        size = rand() % 2 ? cubin(whole) : ptx(whole);
        for (int j = rand() % 4; j; j--) whole[(size_t)rand() % size] = (unsigned char)rand();
        if (rand() % 2) size = (size_t)rand() % (size + 1);
        unsigned char *exact = malloc(size);
        memcpy(exact, whole, size);
        read += image_globals(exact, size) != 0;
        free(exact);
    }
    printf("%lu\n", read);
    return 0;
}
