/* Launches, queues and events: for the files of this folder. */
#ifndef GATE_WINDOW_H
#define GATE_WINDOW_H

#include "launches/launches.h"

/* --- lease.c ------------------------------------------------------------------------------------------------------ */

struct queue;
struct pass { /* one launch */
    struct queue *queue; /* NULL: it is not gated */
    struct share *share;
    uint64_t now; /* 0: the whole GPU is leased */
    unsigned kind;
    int cancels;
};
/* Called before and after a launch on `stream`. `kind` stands for the kernel and its size, 0: unknown. */
void pass_enter(struct pass *pass, CUstream stream, unsigned kind);
void pass_leave(struct pass *pass);

/* --- window.c ----------------------------------------------------------------------------------------------------- */

/* The gate's record of a stream with launches. Queues are never freed, as drivers reuse handles. Each thread has one for its
 * per-thread default stream in each context; when the thread and its work have ended, another thread takes the queue over. */
enum { MOST_EVENTS = 32 };

struct queue {
    struct queue *next;             /* in its bucket, or of its thread */
    struct queue *next_of_all;
    CUstream stream;
    CUcontext key, context;         /* `key` is NULL if the driver can tell the stream's context */
    struct share *_Atomic share;    /* NULL: the stream or its context is gone */
    struct share *owner;            /* the share of its work */
    long thread;                    /* the thread with this default stream; 0: another stream, or the thread has ended */
    bool waits;                     /* whether this stream and the legacy stream wait for each other */
    uint64_t handed_over;           /* launches up to the last one of an ended thread: they need an event here */
    unsigned ending;                /* threads that are destroying the context: it is not used, and its work counts */
    bool context_gone;              /* one of them has destroyed it */
    uint64_t last;                  /* launches when the first of them began */
    _Atomic uint64_t launched;      /* launches let through */
    _Atomic uint64_t covered;       /* of these, before a recorded event */
    _Atomic uint64_t completed;     /* of these, known to have ended */
    unsigned waiters;               /* threads that wait for a lease to launch here */
    _Atomic uint64_t last_launch_at; /* when the program last launched, or waited to */
    uint64_t launched_seen;         /* `launched` at the last check */
    _Atomic uint64_t uncovered_since; /* when the first launch that is not covered came */
    _Atomic unsigned step, pending; /* launches for each event; events not known to have completed */
    _Atomic unsigned open;          /* launches of the open event, which is recorded again after the next launch; 0: none */
    _Atomic bool is_long;           /* the last work that ended was one very long launch */
    _Atomic uint64_t queued;        /* ns of GPU work with an event, as far as known */
    _Atomic uint64_t next_at;       /* earliest time of a second launch; 0: at once */
    uint64_t recorded_at;           /* when the thread last recorded an event for itself */
    uint64_t lead, learned_at;      /* ns that are left of a launch at `next_at`; when that was learned */
    _Atomic bool paced;             /* a launch waited for `next_at` since the stream was last idle */
    uint64_t completed_at;          /* when the last event was seen to have completed */
    uint64_t lease;                 /* lease of the last launch */
    unsigned first;
    struct event {
        CUevent handle;
        uint64_t begun, count, expected, upto; /* `upto`: value of `launched` */
        unsigned kind; /* if it stands for one launch */
        bool full;     /* recorded because of the number of launches */
    } events[MOST_EVENTS];          /* the one before `first` completed last */
};

struct queue *queue_of(CUstream stream);
/* Return whether the share of one stream comes before that of the other, in an order that is the same in all processes. */
bool queue_before(CUstream one, CUstream other);
bool queue_is_capturing(struct queue *queue);
/* A launch comes at `now`: start with little queued work if the stream was idle. */
void window_before_launch(struct queue *queue, uint64_t now);
/* Wait while too much is queued; after a launch, record an event if one is due. */
void window_wait(struct queue *queue, struct share *share);
void window_after_launch(struct queue *queue, unsigned kind, uint64_t now);
/* Under the lock: return whether work of this share is on the GPU, or was let through since the last call. Records events
 * after work that has none once no more comes, or at once if no more can come (`closed`). UNKNOWN: all other work has ended,
 * but some threads have stopped launching, and until launches are stopped, nothing shows when their last ones end. */
enum work { NONE, UNKNOWN, BUSY };
enum work window_busy(struct share *share, bool closed);
/* Under the lock: return the ns of work on the GPU, as far as known; `beside`: a thread waits to launch on a stream without
 * work. */
uint64_t window_queued(const struct share *share, bool *beside);
/* Under the lock, at exit: set whether the driver may be called, as it may by threads that still launch. */
void window_allow_driver(bool may);
/* Before the stream is destroyed. */
void window_before_stream_end(CUstream stream);
/* Record an event after earlier launches; then record none until the capture has begun. */
void window_before_capture(CUstream stream);
void window_after_capture(void);
/* Under the lock, before a context is destroyed and afterwards; several threads may do so at once. */
void window_before_context_end(CUcontext context);
void window_after_context_end(CUcontext context, bool gone);

enum { WINDOW = 1000000, SHORT = WINDOW / 2, LONG = 10 * WINDOW, ENOUGH = 20 * WINDOW }; /* ns */
enum { FEW = 4, MOST_LAUNCHES = 128 };
enum { PAUSE = 20000, LEAST_LEAD = 400000 }; /* ns */

/* --- queues.c: under the lock ------------------------------------------------------------------------------------- */

extern struct queue *queues; /* all of them, linked by `next_of_all` */
/* Captures that are beginning. Nothing is recorded meanwhile, as it might become part of a capture or invalidate it. */
extern unsigned captures_beginning;

struct queue *queue_add(CUstream stream, CUcontext key);
/* Also without the lock. */
struct queue *queue_find(CUstream stream, CUcontext key);
/* Set the context, the share, and whether it waits for the legacy stream. */
void queue_bind(struct queue *queue, CUcontext context, struct share *share, bool waits);

/* --- threads.c: under the lock, except the first two -------------------------------------------------------------- */

/* The queues of the calling thread, linked by `next`; and the thread's number. */
struct queue *threads_own_queues(void);
long threads_number(void);
/* Return the queue of that thread, or of a thread that has ended and has no work left. */
struct queue *threads_find(CUcontext key, long number);
/* Give the queue to the calling thread. */
void threads_take(struct queue *queue, CUcontext key, long number);
void threads_fork(void);
/* Hand the launches of a thread that has ended or stopped launching over to the legacy stream: an event there waits for
 * everything that they wait for. False: there is no memory for that, and nothing has changed. */
bool queue_hand_over(struct queue *queue);

/* --- events.c: under the lock ------------------------------------------------------------------------------------- */

/* Return whether the driver may be called: not while the process is parked. At exit it may shut down at any moment, except in a
 * thread that itself launches. */
bool driver_is_usable(void);
/* Make a context current, in the relaxed capture mode; restore both. */
bool context_enter(CUcontext context, int *mode);
void context_leave(int mode);
bool stream_is_capturing(CUstream stream);

/* Return whether a stream that the legacy stream waits for is being captured, in the queue's context. */
bool legacy_is_capturing(const struct queue *queue);

/* Return how long a kernel of that kind took, in ns; 0: not known. */
unsigned duration_of(unsigned kind);
/* Remove completed events. An error counts as completed: the context is broken or gone. */
void events_retire(struct queue *queue);
/* Remove completed events, except for the open one. */
void events_retire_closed(struct queue *queue);
/* OPEN: recorded again after the next launch. FULL: stands for as many launches as possible. LAST: any other. */
enum event_kind { OPEN, FULL, LAST };
/* Record an event after everything launched, in the queue's own stream; for a per-thread stream, by that thread. `expected`:
 * ns of GPU work. */
void events_record(struct queue *queue, unsigned kind, uint64_t expected, enum event_kind end);
/* Do the same from any thread, unless an event now would do harm. `shut`: no launch may pass. */
void events_cover(struct queue *queue, bool shut);
/* Return the number of pending events without the open one. */
unsigned events_closed(const struct queue *queue);

/* --- pacing.c: under the lock ------------------------------------------------------------------------------------- */

/* Plan when the next launch may follow. */
void pacing_plan(struct queue *queue);
/* Before the event of a launch: learn how much of the previous launch should be left when the next one is let in. */
void pacing_learn(struct queue *queue, uint64_t now);

#endif
