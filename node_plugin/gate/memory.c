/* What this process has allocated, and the share's limit.
 *
 * The server adds up the processes of a share, so what is counted here is asked for there first (NEED). That is done in
 * chunks as long as the limit is far, so that small allocations seldom wait for an answer, and to the byte where it is
 * near; what was asked for and is not used goes back after a while. Memory that another process owns and this one imports
 * is in no table here, and so counts once. */
#include "memory.h"

#include <stdlib.h>

#define CHUNK ((uint64_t)16 << 20)
enum { NEAR = 8 /* chunks */, BUCKETS = 4096 };
enum { TRIM = 100000000, OTHERS_TRIM = 250000000 }; /* ns */

static struct entry *buckets[BUCKETS];
static uint64_t made; /* entries so far */

/* --- the table, under the lock ------------------------------------------------------------------------------------ */

static struct entry **bucket_of(enum key key, uint64_t id) { return &buckets[((id ^ key) * 0x9e3779b97f4a7c15ull) >> 52]; }

struct entry **memory_find(enum key key, uint64_t id) {
    struct entry **at = bucket_of(key, id);
    while (*at && !((*at)->key == key && (*at)->id == id)) at = &(*at)->next;
    return at;
}

static void put(struct entry *entry) {
    struct entry **bucket = bucket_of(entry->key, entry->id);
    entry->next = *bucket;
    *bucket = entry;
}

struct entry *memory_take(struct entry **at) {
    struct entry *entry = *at;
    if (entry) *at = entry->next;
    return entry;
}

void memory_keep(struct entry values) {
    struct entry *entry = malloc(sizeof *entry);
    if (!entry) return; /* it counts until the process ends */
    *entry = values;
    entry->made = ++made;
    put(entry);
}

void memory_each(bool (*drop)(struct entry *, void *), void *data) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry **at = &buckets[i]; *at;) {
            if (drop(*at, data))
                free(memory_take(at));
            else
                at = &(*at)->next;
        }
}

/* --- what the server says, under the lock ------------------------------------------------------------------------- */

static void say_need(struct share *share, uint64_t bytes) {
    if (share->socket < 0) return;
    share->told = bytes;
    if (share->allowed > bytes) share->allowed = bytes; /* what is given back is not used before it is granted again */
    share->unanswered++;
    link_say(share, (struct message){.kind = NEED, .a = bytes, .b = KNOWS_ONCE | KNOWS_AHEAD});
}

void memory_connected(struct share *share) {
    share->connection++;
    share->unanswered = 0;
    say_need(share, share->used);
}

void memory_lost(struct share *share) { share->allowed = 0; }

void memory_message(struct share *share, struct message message) {
    share->limit = message.b;
    share->all = message.c;
    share->others = message.c > message.a ? message.c - message.a : 0;
    share->heard = true;
    share->allowed = message.a < share->told ? message.a : share->told;
    if (share->unanswered && --share->unanswered) {
        ; /* an answer to an older question: another is on its way */
    } else if (message.a > share->told) {
        say_need(share, share->told); /* it crossed with our last word */
    } else {
        share->told = message.a;
    }
    share_changed(share);
}

/* Gives back what was asked for ahead. */
uint64_t memory_tick(struct share *share, uint64_t now) {
    if (share->growing || share->unanswered || share->told <= share->used) return share->used ? SECOND : FOREVER;
    if (now < share->changed + TRIM) return share->changed + TRIM - now;
    say_need(share, share->used);
    return SECOND;
}

static bool is_near(const struct share *share) {
    return share->limit != NO_LIMIT && share->all + NEAR * CHUNK > share->limit;
}

void memory_unuse(struct share *share, uint64_t bytes) {
    share->used -= bytes < share->used ? bytes : share->used;
    share->changed = now_ns();
    uint64_t spare = share->told > share->used ? share->told - share->used : 0;
    if (!share->growing && spare > (is_near(share) ? 0 : 2 * CHUNK)) say_need(share, share->used);
}

/* Where nothing limits the share, and its whole GPU is in use without a server. */
static bool is_free(struct share *share) { return share->limit == NO_LIMIT && lease_is_alone(share); }

/* Says `bytes` and waits until that is answered, at most until `end`; a lost connection is asked again. */
static bool ask(struct share *share, uint64_t bytes, uint64_t end) {
    for (;;) {
        while ((share->socket < 0 || share->unanswered) && !is_free(share) && now_ns() < end) share_wait(share, SECOND / 4);
        if (is_free(share)) return true;
        if (now_ns() >= end) return false;
        unsigned connection = share->connection;
        say_need(share, bytes > share->used ? bytes : share->used);
        while (connection == share->connection && share->socket >= 0 && share->unanswered && now_ns() < end)
            share_wait(share, SECOND / 4);
        if (connection == share->connection && share->socket >= 0) return !share->unanswered;
    }
}

static bool fits(struct share *share, uint64_t bytes) {
    if (!is_free(share) && (share->allowed < share->used || bytes > share->allowed - share->used)) return false;
    share->used += bytes;
    share->changed = now_ns();
    return true;
}

/* Asks for more: first for some ahead, then for this alone, then once more when others have given back theirs. What was
 * granted and another thread took meanwhile is asked for again. */
static bool grow(struct share *share, uint64_t bytes) {
    bool ahead = !is_near(share), waited = false;
    while (!fits(share, bytes)) {
        uint64_t wanted = share->used + bytes + (ahead ? CHUNK : 0);
        ask(share, wanted, FOREVER);
        if (is_free(share) || share->allowed >= wanted) continue;
        if (ahead) {
            ahead = false;
        } else if (waited || !share->others) {
            return fits(share, bytes);
        } else {
            for (uint64_t end = now_ns() + OTHERS_TRIM; now_ns() < end;) share_wait(share, OTHERS_TRIM / 4);
            waited = true;
        }
    }
    return true;
}

/* Under the lock: one question at a time, of each share. */
static void begin_asking(struct share *share) {
    while (share->growing) share_wait(share, SECOND / 4);
    share->growing = true;
}

static void end_asking(struct share *share) {
    share->growing = false;
    share_changed(share);
}

/* Whether `bytes` more may be allocated: they count from now on. */
static bool use(struct share *share, uint64_t bytes) {
    gate_enter();
    bool may = fits(share, bytes);
    gate_leave();
    if (may || bytes > UINT64_MAX / 4) return may;
    gate_enter();
    begin_asking(share);
    may = grow(share, bytes);
    end_asking(share);
    gate_leave();
    return may;
}

/* --- of one allocation -------------------------------------------------------------------------------------------- */

static struct claim claim_from(struct share *share, uint64_t bytes) {
    return (struct claim){share, bytes, share && bytes && !use(share, bytes)};
}

struct claim claim(uint64_t bytes) { return claim_from(share_of_current(), bytes); }

struct claim claim_of(CUdevice device, uint64_t bytes) { return claim_from(share_of(device), bytes); }

CUresult claim_settle(struct claim *claim, CUresult result, enum key key, uint64_t id, uint64_t bytes, bool of_context) {
    struct entry values = {.key = key, .id = id, .bytes = bytes, .share = claim->share};
    if (!claim->share) return result;
    if (of_context && result == CUDA_SUCCESS) DRIVER(cuCtxGetCurrent)(&values.context);
    gate_enter();
    if (result != CUDA_SUCCESS)
        memory_unuse(claim->share, claim->bytes);
    else if (bytes < claim->bytes)
        memory_unuse(claim->share, claim->bytes - bytes);
    else
        claim->share->used += bytes - claim->bytes;
    if (result == CUDA_SUCCESS) memory_keep(values);
    gate_leave();
    return result;
}

struct entry *memory_lift(enum key key, uint64_t id) {
    gate_enter();
    struct entry *entry = memory_take(memory_find(key, id));
    gate_leave();
    return entry;
}

CUresult memory_freed(struct entry *entry, CUresult result) {
    if (!entry) return result;
    gate_enter();
    if (result == CUDA_SUCCESS)
        memory_unuse(entry->share, entry->bytes);
    else
        put(entry);
    gate_leave();
    if (result == CUDA_SUCCESS) free(entry);
    return result;
}

struct end { CUcontext context; uint64_t before; };

static bool of_context(struct entry *entry, void *data) {
    const struct end *end = data;
    if (!entry->context || entry->context != end->context || entry->made > end->before) return false;
    memory_unuse(entry->share, entry->bytes);
    return true;
}

uint64_t memory_now(void) { return made; }

void memory_context_ends(CUcontext context, uint64_t before) { memory_each(of_context, &(struct end){context, before}); }

void memory_fork(void) {
    for (int i = 0; i < BUCKETS; i++) buckets[i] = NULL;
}

/* Asks what others have, if no thread waits for an answer already; then what is known must do. */
static bool looked(struct share *share) {
    uint64_t end = now_ns() + SECOND;
    while (share->growing && !share->heard && now_ns() < end) share_wait(share, SECOND / 4);
    if (!share->growing) {
        share->growing = true;
        ask(share, share->told, end);
        end_asking(share);
    }
    return share->heard;
}

void memory_shown(struct share *share, uint64_t *free, uint64_t *total) {
    if (!share) return;
    gate_enter();
    if (looked(share) && share->limit != NO_LIMIT) {
        uint64_t taken = share->others + share->used, left = share->limit > taken ? share->limit - taken : 0;
        if (*total > share->limit) *total = share->limit;
        if (*free > left) *free = left;
    }
    gate_leave();
}
