/* A CUDA program that allocates both through the gate and around it: around DRIVER THROUGH AROUND. THROUGH bytes are taken
 * through the gate, in pieces of 64 KiB; then each line read takes AROUND more bytes directly from DRIVER, a full path. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIECE = 64 << 10 };

static void call(void *library, const char *symbol, uintptr_t a, uintptr_t b, uintptr_t c) {
    int answer = ((int (*)(uintptr_t, uintptr_t, uintptr_t))dlsym(library, symbol))(a, b, c);
    if (!answer) return;
    fprintf(stderr, "%s: %d\n", symbol, answer);
    exit(3);
}

static void say(const char *text) {
    puts(text);
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    long through = atol(arguments[2]), around = atol(arguments[3]);
    void *gate = dlopen("libcuda.so.1", RTLD_NOW), *driver = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL), *context;
    uint64_t at;
    char line[64];
    if (!gate || !driver) return 4;
    void *first = through ? gate : driver; /* without memory through the gate, its context has none either */
    call(first, "cuInit", 0, 0, 0);
    call(first, "cuCtxCreate_v2", (uintptr_t)&context, 0, 0);
    for (long i = 0; i < through / PIECE; i++) call(gate, "cuMemAlloc_v2", (uintptr_t)&at, PIECE, 0);
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        call(driver, "cuMemAlloc_v2", (uintptr_t)&at, (uintptr_t)around, 0);
        say("taken");
    }
    return 0;
}
