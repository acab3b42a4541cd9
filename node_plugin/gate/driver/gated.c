/* The table of gated functions, and the choice of the form that a lookup means. It needs only their addresses, so no header
 * that declares them is included. */
#include "driver/driver.h"

#include <string.h>

#define DECLARE(symbol, name, since, per_thread) extern void GATE(symbol)(void);
GATED(DECLARE)

#define ROW(symbol, name, since, per_thread) {#symbol, name, since, per_thread, GATE(symbol)},
static const struct {
    const char *symbol, *name;
    int since;
    bool per_thread;
    void (*gate)(void);
} table[GATED_COUNT] = {GATED(ROW)};

static int gated_symbol(const char *symbol) {
    if (!symbol) return -1;
    for (int i = 0; i < GATED_COUNT; i++)
        if (strcmp(table[i].symbol, symbol) == 0) return i;
    return -1;
}

int gated_form(const char *name, int version, uint64_t flags) {
    enum { PER_THREAD = 2 };
    int best = -1;
    for (int i = 0; name && i < GATED_COUNT; i++) {
        if (strcmp(table[i].name, name) != 0 || table[i].since > version) continue;
        if (table[i].per_thread && !(flags & PER_THREAD)) continue;
        if (best < 0 || table[i].per_thread > table[best].per_thread ||
            (table[i].per_thread == table[best].per_thread && table[i].since > table[best].since))
            best = i;
    }
    return best < 0 ? gated_symbol(name) : best;
}

void *gated_function(unsigned index) { return (void *)table[index].gate; }
