/* Declarations for all files of the stand-in driver. The names of types are this project's own; their layouts and the error
 * numbers are those of the driver's ABI. */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "board.h"

#define API __attribute__((visibility("default")))

/* Define further symbols of a function above in the same file, for forms that do not differ here. */
#define ALSO(function, symbol) extern __typeof__(function) symbol __attribute__((alias(#function), visibility("default")));

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;

enum { DECOMPRESSES = 4 /* LZ4 */, MOST_DECOMPRESSED = 1 << 22 };

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    SYSTEM_ERROR = 304,
    ILLEGAL_STATE = 401,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, /* not allowed in a stream that is captured */
    CAPTURE_INVALIDATED = 901,
    CAPTURE_IMPLICIT = 906,    /* the legacy stream would wait for a captured one */
    UNKNOWN = 999,
};

#define MAX_DEVICES 16
#define QUEUE 1024 /* launches of one context that may be queued on the device; another one waits */

#define LEGACY ((struct stream *)1)
#define PER_THREAD ((struct stream *)2)

struct device {
    struct board board;
    int node; /* its device node, open; or -1 */
    int bus;  /* of its PCI address */
    char uuid[16];
    uint64_t memory;
    struct context *primary;
    struct pool *pool;         /* the current one */
    struct pool *default_pool; /* never destroyed */
    uint64_t graph_reserved, graph_used; /* memory of graphs: reserved across launches; used by graphs that did not free theirs */
};

struct calls { /* the host functions of a stream, up to that number */
    const struct stream *stream;
    unsigned number;
};

struct stream {
    struct context *context;
    struct stream *next;
    unsigned flags; /* 1: does not wait for the legacy stream */
    int priority;
    unsigned long long id;
    uint64_t end;      /* of everything launched on it */
    uint64_t earliest; /* from waiting for events of other devices */
    unsigned calls, calls_done; /* host functions: requested, done */
    struct calls behind; /* of another stream, for the legacy one */
    pthread_t thread;  /* whose default stream it is, if it is one */
    int is_per_thread;
    struct graph *capture; /* the graph that it is recording */
    int invalid;           /* that capture is invalid */
};

struct context {
    struct context *next; /* of all */
    struct device *device;
    int ordinal;
    unsigned flags;
    unsigned uses; /* of a primary context */
    unsigned long long id;
    uint64_t bytes;      /* taken by the context itself, including its limits */
    uint64_t limits[11]; /* by number; 0: never set */
    uint64_t end; /* of all streams */
    struct stream legacy;
    struct stream *streams;
    uint64_t queue[QUEUE]; /* ends of the latest launches */
    uint64_t launches;
};

struct module {
    struct module *next;     /* of those with memory */
    struct context *context; /* whose end frees that memory, or NULL */
    struct device *device;
    uint64_t bytes;
    struct function *functions;
    struct global *globals;
};

struct function {
    struct function *next;
    struct module *module;
    char *name;
    long microseconds; /* of one launch, or -1: the default */
    int per_block;     /* a microsecond for each block along x */
    int attributes[20];
};

extern pthread_mutex_t standin_lock; /* guards everything in this process that is not on a board */
extern struct device standin_devices[MAX_DEVICES];
extern int standin_count;
extern int standin_version; /* of the driver, as programs see it */
extern int standin_state; /* an error until cuInit has succeeded */
extern uint64_t standin_default_us;
extern uint64_t standin_copy_rate; /* bytes in a microsecond, from or to the host */
extern uint64_t standin_context;   /* bytes that a context takes */

CUresult known_device(CUdevice device);

/* Read a number below a bound from the variable of that ending, if it is set. */
CUresult standin_number(const char *ending, uint64_t most, uint64_t *number);

/* Close a GPU's board and device node; and open those of the GPU with that UUID. The result is 801 for a node that may not be opened,
 * and 2 if the GPU's free memory does not suffice, which leaves both open. */
void device_close(struct device *device);
CUresult device_reopen(struct device *device, const char uuid[16]);
int device_fits(const struct device *device, const char uuid[16]); /* whether there is such a GPU, with as much memory */

/* What a function does while the process is locked, and while it is parked: as driver 580 (docs/designs/real-gpu.md). Functions
 * without ENTER return as ever in both. */
enum answer {
    WAITS,         /* until the process is unlocked */
    ENDS,          /* returns; ends the process */
    WAITS_OR_ENDS, /* waits; ends the process */
    FAILS,         /* returns; 304 */
};

CUresult standin_enter(enum answer answer);
void standin_leave(enum answer *answer);

/* The first statement of a function of the driver: wait, fail or end as that answer says. */
#define ENTER(how) \
    __attribute__((cleanup(standin_leave))) enum answer standin_entered = how; \
    CUresult standin_refused = standin_enter(standin_entered); \
    if (standin_refused) return standin_refused

/* How far the process is parked, and the same for calls. */
enum stage { STAGE_RUNNING, STAGE_LOCKED, STAGE_PARKED };
void standin_set_stage(enum stage stage);

/* Return whether no thread is inside a function that waits while locked; and inside any function with ENTER. */
int standin_none_working(void);
int standin_none_inside(void);

/* Set `context` to that of the calling thread, or return an error for the caller. */
CUresult current(struct context **context);
struct context *primary_context(struct device *device);

/* Resolve a handle, also NULL and the two special ones; `per_thread` says what NULL means. Takes the lock. */
CUresult find_stream(struct stream **stream, struct stream *handle, int per_thread);

/* With the lock, before work is queued in the stream: order the legacy stream after all others and before what follows in
 * them, except for non-blocking streams. */
void stream_begin_work(struct stream *stream);

/* With the lock: return when everything in the stream ends. */
uint64_t stream_end(const struct stream *stream);

/* Return whether the legacy stream would wait for a stream that is captured; `invalidate`: invalidate those captures. */
int would_wait_for_capture(const struct stream *legacy, int invalidate);

CUresult stream_wait(struct stream *stream);
void context_wait(struct context *context);

/* Return whether all work of all contexts has ended. */
int contexts_idle(void);
extern struct context *standin_contexts;

/* Return the duration of one launch, in microseconds. */
uint64_t duration_of(const struct function *function, unsigned blocks_along_x);
CUresult run_on(struct stream *stream, uint64_t microseconds, unsigned kernels);

/* Call a function when everything launched on the stream so far has ended; call_when: not before `ready` returns true. */
CUresult call_later(struct stream *stream, void (*function)(void *), void *data);
CUresult call_when(struct stream *stream, int (*ready)(void *), void (*function)(void *), void *data);

/* Add work to the graph that a stream is recording. */
CUresult capture_kernel(struct graph *graph, uint64_t microseconds);
CUresult capture_call(struct graph *graph, void (*function)(void *), void *data);
CUresult capture_allocation(struct graph *graph, CUdeviceptr *pointer, size_t bytes);
CUresult capture_free(struct graph *graph, CUdeviceptr pointer);

/* Take the memory of a graph that is launched: its peak, of which `left` stays in use when it has ended. */
CUresult graph_memory(struct device *device, uint64_t peak, int64_t left);

struct place {
    size_t x, y, z, level; /* x in bytes */
    int type;              /* 1 host, 2 device, 3 array, 4 unified */
    void *host;
    CUdeviceptr device;
    struct array *array;
    void *reserved;
    size_t pitch, height;
};

struct copy { /* CUDA_MEMCPY3D */
    struct place from, to;
    size_t width, height, depth; /* width in bytes */
};

struct fill { /* CUDA_MEMSET_NODE_PARAMS */
    CUdeviceptr to;
    size_t pitch;
    unsigned value, size;
    size_t width, height;
};

struct location { /* CUmemLocation */
    int type, id;
};

/* Both forms of a function that works in a stream: `on` is what `stream` means. */
#define FORMS(symbol, takes, result) \
    API CUresult symbol takes { ENTER(WAITS); struct stream *on = stream ? stream : LEGACY; return result; } \
    API CUresult symbol##_ptsz takes { ENTER(WAITS); struct stream *on = stream ? stream : PER_THREAD; return result; }

/* Take the time of copying so many bytes from or to the host, and within the GPU. */
CUresult spend(struct stream *stream, uint64_t bytes, uint64_t within);
int on_gpu(CUdeviceptr pointer);
int place_on_gpu(const struct place *place);
CUresult copy_box(const struct copy *copy);
CUresult fill_box(const struct fill *fill);

/* Return the address of an array's element, for copies. */
char *array_at(const struct array *array, size_t x, size_t y, size_t z);
size_t array_element(const struct array *array);

/* Free all memory that was allocated in a context, at its end. */
void release_all(struct context *context);
void release_modules(const struct context *context);
void release_pooled(struct device *device);

struct pool *make_pool(int ordinal);
/* After a synchronization: release memory that pools need not keep. */
void pools_settle(const struct device *device);

#endif
