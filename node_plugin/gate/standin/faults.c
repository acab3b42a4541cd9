/* Faults that tests ask for by the variable JUPYTER_GPU_STANDIN_PARK_FAULT, which is read at each step. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *fault(void) {
    const char *value = getenv("JUPYTER_GPU_STANDIN_PARK_FAULT");
    return value ? value : "";
}

int fault_is(const char *name) { return !strcmp(fault(), name); }

void fault_kill(const char *step) {
    char name[32];
    snprintf(name, sizeof name, "kill-%s", step);
    if (fault_is(name)) raise(SIGKILL);
}

void fault_hang(const char *step) {
    char name[32];
    snprintf(name, sizeof name, "%s-hang", step);
    while (fault_is(name)) usleep(1000);
}

int fault_count(const char *name) {
    static long times;
    size_t length = strlen(name);
    if (strncmp(fault(), name, length) || fault()[length] != ':') return 0;
    return times++ < strtol(fault() + length + 1, NULL, 10);
}
