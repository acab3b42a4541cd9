/* What the parts of the window share: lanes.c, threads.c, marks.c, rests.c, window.c. */
#ifndef GATE_WINDOW_H
#define GATE_WINDOW_H

#include "gate.h"

enum { WINDOW = 1000000, SHORT = WINDOW / 2, LONG = 10 * WINDOW, ENOUGH = 20 * WINDOW }; /* ns */
enum { FEW = 4, MOST_LAUNCHES = 128 };
enum { PAUSE = 20000, LEAST_LEAD = 400000 }; /* ns */

/* --- lanes.c: under the lock -------------------------------------------------------------------------------------- */

extern struct lane *lanes;       /* all of them, by `other` */
extern unsigned lanes_beginning; /* captures that begin: nothing is recorded meanwhile, as it might be in what is captured, or spoil it */

struct lane *lane_add(CUstream stream, CUcontext key);
/* Without the lock, too. */
struct lane *lane_find(CUstream stream, CUcontext key);
/* Its context, share, and whether it waits for the legacy stream. */
void lane_begins(struct lane *lane, CUcontext context, struct share *share, bool waits);

/* --- threads.c: under the lock, but for the first two --------------------------------------------------------------- */

/* The lanes of the calling thread, by `next`; and the number of the thread. */
struct lane *threads_own_lanes(void);
long threads_number(void);
/* The lane of that thread, or that of a thread that has ended, as its work has. */
struct lane *threads_find(CUcontext key, long number);
/* The calling thread has it from now on. */
void threads_take(struct lane *lane, CUcontext key, long number);
void threads_fork(void);
/* The thread has ended, or is silent: its launches are left to an event in the legacy stream, which comes behind all that it
 * waits for. False: there is no memory for that, and they stay as they are. */
bool lane_hand_over(struct lane *lane);

/* --- marks.c: under the lock -------------------------------------------------------------------------------------- */

/* At the end of the program the driver may be gone any moment, except for a thread that launches itself. */
bool driver_may_be_asked(void);
/* Makes a context current, in the relaxed mode of capture; and as it was. */
bool context_enter(CUcontext context, int *mode);
void context_leave(int mode);
bool stream_capturing(CUstream stream);

/* Whether a stream that the legacy one waits for is captured, in the lane's context. */
bool marks_captured(const struct lane *lane);

/* How long a kernel of that kind took, in ns; 0: not known. */
unsigned duration_of(unsigned kind);
/* Forgets the events that have happened. An error means the same: the context is broken or gone. */
void marks_retire(struct lane *lane);
/* All but the one that is recorded again behind the next launch. */
void marks_retire_closed(struct lane *lane);
/* What an event is: recorded again behind the next launch; as many launches as may be; anything else. */
enum mark_end { OPEN, FULL, LAST };
/* Puts an event behind all that was launched, in the lane's own stream: of a thread's, by that thread. `expected`: ns of GPU
 * work. */
void marks_put(struct lane *lane, unsigned kind, uint64_t expected, enum mark_end end);
/* The same by any thread, or nothing where no event can be put now without harm. `shut`: no launch may pass. */
void marks_cover(struct lane *lane, bool shut);
/* Events that are not recorded again. */
unsigned marks_closed(const struct lane *lane);

/* --- rests.c: under the lock -------------------------------------------------------------------------------------- */

/* When the next launch may follow. */
void rests_plan(struct lane *lane);
/* Before a launch is marked: learns how much is to be left of the one before when the next is let in. */
void rests_learn(struct lane *lane, uint64_t now);

#endif
