/* What the files of this folder share: launches, streams, events. */
#ifndef GATE_WINDOW_H
#define GATE_WINDOW_H

#include "launches/launches.h"

/* --- lease.c ------------------------------------------------------------------------------------------------------ */

struct lane;
struct pass { /* of one launch */
    struct lane *lane; /* NULL: nothing holds it */
    struct share *share;
    uint64_t now; /* 0: the GPU is whole */
    unsigned kind;
    int cancels;
};
/* Before and after a launch on `stream`; `kind` stands for the kernel and its size, 0: any. */
void pass_enter(struct pass *pass, CUstream stream, unsigned kind);
void pass_leave(struct pass *pass);

/* --- window.c, lanes.c, marks.c, rests.c --------------------------------------------------------------------------- */

/* A stream that was launched on. Lanes stay for ever, as drivers use their handles again. Each thread has one for its own
 * default stream in each context; when it has ended and its work too, another thread gets it. */
enum { MARKS = 32 };

struct lane {
    struct lane *next, *other; /* in its bucket, or of its thread; of all */
    CUstream stream;
    CUcontext key, context;        /* `key` is NULL where the stream says the context */
    struct share *_Atomic share;   /* NULL: the stream or its context is gone */
    struct share *owner;           /* whose work it is */
    long thread;                   /* whose default stream it is; 0: it is another stream, or the thread has ended */
    bool waits;                    /* for the legacy stream, which waits for it */
    uint64_t handed;               /* launches up to the last of threads that ended, which only an event here can stand for */
    unsigned ending;               /* threads that are ending its context: it is not touched, and its work counts */
    bool gone;                     /* one of them has ended it */
    uint64_t last;                 /* launches when the first of them began */
    _Atomic uint64_t launched;     /* launches let through */
    _Atomic uint64_t covered;      /* of these, before an event that is recorded */
    _Atomic uint64_t over;         /* of these, seen to have ended */
    unsigned waiters;              /* threads that wait for a lease to launch here */
    _Atomic uint64_t latest;       /* when the program launched last, or waited for leave to */
    uint64_t seen;                 /* of these, when it was looked at last */
    _Atomic uint64_t begun;        /* when the first one that is not covered came */
    _Atomic unsigned step, marked; /* launches an event; events that were not seen to have happened */
    _Atomic unsigned open;         /* launches of the last one, which is recorded again behind the next; 0: it is not */
    _Atomic bool is_long;          /* what ended last was one launch that took very long */
    _Atomic uint64_t queued;       /* ns of GPU work that is marked, as far as known */
    _Atomic uint64_t next_at;      /* before that, no second launch; 0: at once */
    uint64_t recent;               /* when an event was put last, for the thread itself */
    uint64_t lead, learnt;         /* ns of a launch that are left then; when that was learnt */
    _Atomic bool held;             /* a launch waited for next_at since the stream rested last */
    uint64_t ended;                /* when the last event was seen to have happened */
    uint64_t lease;                /* of the last launch */
    unsigned first;
    struct mark {
        CUevent event;
        uint64_t begun, count, expected, upto; /* `upto`: of `launched` */
        unsigned kind; /* if it was one launch alone */
        bool full;     /* recorded because of the number of launches */
    } marks[MARKS]; /* the one before the first is that which happened last */
};

struct lane *lane_of(CUstream stream);
/* Whether the share of one stream comes before that of the other, in an order that is the same in every process. */
bool lane_before(CUstream one, CUstream other);
bool lane_capturing(struct lane *lane);
/* A launch comes at `now`: what may be queued begins small if the program has rested. */
void window_comes(struct lane *lane, uint64_t now);
/* Waits while more is queued than may be; after a launch: puts an event behind it if it is time. */
void window_wait(struct lane *lane, struct share *share);
void window_launched(struct lane *lane, unsigned kind, uint64_t now);
/* Under the lock. Whether work of this share is on the GPU, or was let through since the last call: events are put behind
 * what has none as soon as nothing more comes, or now if nothing can come. SILENT: all else has ended, and of the last launches of
 * threads that launch no more nothing is known before the door is shut. */
enum work { NONE, SILENT, BUSY };
enum work window_busy(struct share *share, bool closed);
/* Under the lock. What is on the GPU, in ns as far as known; whether a thread waits to launch on a stream that has no work. */
uint64_t window_queued(const struct share *share, bool *beside);
/* Under the lock, while the program ends: whether the driver may be asked. It is there for threads that launch. */
void window_allow(bool may);
/* Before it goes. */
void window_stream_ends(CUstream stream);
/* Puts an event behind what was launched before, and none until it has begun. */
void window_begins_capture(CUstream stream);
void window_began_capture(void);
/* Under the lock, before it may go, and when that is over; several threads can be between. */
void window_context_ends(CUcontext context);
void window_context_ended(CUcontext context, bool gone);

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
