/* What the parts of the stand-in driver share. Types are this project's own words for what the driver's ABI fixes: sizes
 * and orders of fields, numbers of errors. */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "board.h"

#define API __attribute__((visibility("default")))

/* Further symbols of a function above in the same file: forms that do not differ here. */
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
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, /* what a stream that records a graph does not allow */
    CAPTURE_INVALIDATED = 901,
    CAPTURE_IMPLICIT = 906,    /* what would have the legacy stream wait for one that records */
    UNKNOWN = 999,
};

#define MAX_DEVICES 16
#define QUEUE 1024 /* launches of one context that may wait on the device; a further one waits for its turn */

#define LEGACY ((struct stream *)1)
#define PER_THREAD ((struct stream *)2)

struct device {
    struct board board;
    char uuid[16];
    uint64_t memory;
    struct context *primary;
    struct pool *pool;         /* in use by default */
    struct pool *default_pool; /* never destroyed */
    uint64_t graph_reserved, graph_used; /* memory of graphs: kept from launch to launch; of those that did not free theirs */
};

struct calls { /* host functions of a stream, up to that number */
    const struct stream *stream;
    unsigned number;
};

struct stream {
    struct context *context;
    struct stream *next;
    unsigned flags; /* 1: does not wait for the legacy stream */
    int priority;
    unsigned long long id;
    uint64_t end;      /* of what was launched on it */
    uint64_t earliest; /* from waiting for events of other devices */
    unsigned calls, calls_done; /* host functions: asked for, done */
    struct calls behind; /* of another stream, by the legacy one */
    pthread_t thread;  /* whose default stream it is, where it is one */
    int is_per_thread;
    struct graph *capture; /* that it records */
    int spoilt;            /* that recording */
};

struct context {
    struct device *device;
    int ordinal;
    unsigned flags;
    unsigned uses; /* of a primary context */
    unsigned long long id;
    uint64_t bytes;      /* that it takes itself, by its limits too */
    uint64_t limits[11]; /* by number; 0 as long as nobody has set it */
    uint64_t end; /* of all streams */
    struct stream legacy;
    struct stream *streams;
    uint64_t queue[QUEUE]; /* ends of the newest launches */
    uint64_t launches;
};

struct module {
    struct module *next;     /* of those that take memory */
    struct context *context; /* whose end frees that, or NULL */
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

extern pthread_mutex_t standin_lock; /* of everything in this process that is not on a board */
extern struct device standin_devices[MAX_DEVICES];
extern int standin_count;
extern int standin_state; /* an error until cuInit has succeeded */
extern uint64_t standin_default_us;
extern uint64_t standin_copy_rate; /* bytes in a microsecond, from or to the host */
extern uint64_t standin_context;   /* bytes that a context takes */

CUresult known_device(CUdevice device);

/* The context of the calling thread, or an error for the caller. */
CUresult current(struct context **context);
struct context *primary_context(struct device *device);

/* Of a handle: NULL and the two fixed ones too; `per_thread` says what NULL means. Takes the lock. */
CUresult find_stream(struct stream **stream, struct stream *handle, int per_thread);

/* Needs the lock, before something is put in the stream: the legacy one comes behind all others and before what follows in
 * them, but for those made not to wait. */
void stream_acts(struct stream *stream);

/* Needs the lock. */
uint64_t stream_end(const struct stream *stream);

/* Whether the legacy stream would wait for a stream that records a graph; `spoil`: and these recordings fail then. */
int would_wait_for_capture(const struct stream *legacy, int spoil);

CUresult stream_wait(struct stream *stream);
void context_wait(struct context *context);

/* What a launch of that takes, in microseconds. */
uint64_t duration_of(const struct function *function, unsigned blocks_along_x);
CUresult run_on(struct stream *stream, uint64_t microseconds, unsigned kernels);

/* Calls a function when what was launched on the stream until now has ended; the second, as soon as `ready` says so, too. */
CUresult call_later(struct stream *stream, void (*function)(void *), void *data);
CUresult call_when(struct stream *stream, int (*ready)(void *), void (*function)(void *), void *data);

/* Adds what was launched on a stream that records a graph. */
CUresult capture_kernel(struct graph *graph, uint64_t microseconds);
CUresult capture_call(struct graph *graph, void (*function)(void *), void *data);
CUresult capture_allocation(struct graph *graph, CUdeviceptr *pointer, size_t bytes);
CUresult capture_free(struct graph *graph, CUdeviceptr pointer);

/* Memory for a graph that is launched: as much as it has at once, and what is left of it when it has ended. */
CUresult graph_memory(struct device *device, uint64_t peak, int64_t left);

struct place {
    size_t x, y, z, level; /* x in bytes */
    int type;              /* 1 host, 2 device, 3 array, 4 whichever it is */
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

/* Both forms of a function that works in a stream: `on` is what its `stream` means. */
#define FORMS(symbol, takes, result) \
    API CUresult symbol takes { struct stream *on = stream ? stream : LEGACY; return result; } \
    API CUresult symbol##_ptsz takes { struct stream *on = stream ? stream : PER_THREAD; return result; }

/* Takes the time of so many bytes from or to the host, and within the GPU. */
CUresult spend(struct stream *stream, uint64_t bytes, uint64_t within);
int on_gpu(CUdeviceptr pointer);
int place_on_gpu(const struct place *place);
CUresult copy_box(const struct copy *copy);
CUresult fill_box(const struct fill *fill);

/* Where an array's element is, for copies. */
char *array_at(const struct array *array, size_t x, size_t y, size_t z);
size_t array_element(const struct array *array);

/* Gives back what was allocated in a context that ends. */
void release_all(struct context *context);
void release_modules(const struct context *context);
void release_pooled(struct device *device);

struct pool *make_pool(int ordinal);
/* What was waited for: pools give back what they need not keep. */
void pools_settle(const struct device *device);

#endif
