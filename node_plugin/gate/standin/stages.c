/* Who may be inside the driver while the process is locked or parked. */
#include "standin.h"

#include <signal.h>

static _Atomic int inside[2]; /* threads in functions that return while locked, and in those that wait */
static _Atomic int stage;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local int depth; /* functions of the driver call each other */

static int waits(enum answer answer) { return answer == WAITS || answer == WAITS_OR_ENDS; }

static void end_process(void) {
    for (;;) raise(SIGSEGV);
}

static void wait_until_running(void) {
    pthread_mutex_lock(&changing);
    while (stage != STAGE_RUNNING) pthread_cond_wait(&changed, &changing);
    pthread_mutex_unlock(&changing);
}

/* Count first and look then: who changes the stage does it the other way round, so that no thread is missed. */
CUresult standin_enter(enum answer answer) {
    if (depth++) return OK;
    for (int waited = 0;; waited = 1) {
        inside[waits(answer)]++;
        int now = stage;
        if (now == STAGE_PARKED && answer != WAITS && answer != FAILS && !waited) end_process();
        if (now == STAGE_PARKED && answer == FAILS) return SYSTEM_ERROR;
        if (now == STAGE_RUNNING || !waits(answer)) return OK;
        inside[1]--;
        wait_until_running();
    }
}

void standin_leave(enum answer *answer) {
    if (!--depth) inside[waits(*answer)]--;
}

void standin_set_stage(enum stage next) {
    pthread_mutex_lock(&changing);
    stage = next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&changing);
}

int standin_none_working(void) { return !inside[1]; }

int standin_none_inside(void) { return !inside[0] && !inside[1]; }

static void in_child(void) {
    pthread_mutex_init(&changing, NULL);
    pthread_cond_init(&changed, NULL);
    inside[0] = inside[1] = 0;
    stage = STAGE_RUNNING;
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }
