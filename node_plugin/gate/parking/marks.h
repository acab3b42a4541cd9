/* Which threads are inside the calls that end a process if they are made while its GPU is parked. */
#ifndef GATE_MARKS_H
#define GATE_MARKS_H

#include <stdbool.h>

/* The mark of a thread: how many such calls it is in. */
struct mark;
struct mark *mark_enter(void);
void mark_leave(struct mark *mark);
/* Make the driver's call of a function that ends a parked process. */
#define MARKED(call) \
    ({ \
        struct mark *mark = mark_enter(); \
        CUresult answer = (call); \
        mark_leave(mark); \
        answer; \
    })

/* A thread that waits at an entry is in no call of the driver: take its mark off, and put it on again before it goes on. */
unsigned mark_pause(void);
void mark_resume(unsigned calls);
/* After entries_block: return whether no thread is in such a call. */
bool marks_none(void);
void marks_fork(void);

#endif
