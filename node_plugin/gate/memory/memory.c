/* The memory that this process has allocated, and the share's limit.
 *
 * The server adds up the processes of a share, so the gate requests memory there (NEED) before it is used. Far from the limit
 * it requests chunks, so that small allocations seldom wait for an answer; near it, exact amounts. It gives unused memory back
 * after a while. Imported memory of another process is in no table here, and so counts once. */
#include "launches/launches.h"
#include "memory/counting.h"

#define CHUNK ((uint64_t)16 << 20)
enum { NEAR = 8 /* chunks */ };
enum { TRIM = 100000000, OTHERS_TRIM = 250000000 }; /* ns */

/* --- requests and answers, under the lock ------------------------------------------------------------------------- */

static void send_need(struct share *share, uint64_t bytes) {
    if (share->socket < 0) return;
    share->reported = bytes;
    if (share->allowed > bytes) share->allowed = bytes; /* memory that is given back may not be used before it is granted again */
    share->unanswered++;
    connection_send(share, (struct message){.kind = NEED, .a = bytes, .b = KNOWS_ONCE | KNOWS_AHEAD | KNOWS_SINGLE});
}

void memory_on_connect(struct share *share) {
    share->connection++;
    share->unanswered = 0;
    send_need(share, share->used);
}

void memory_on_disconnect(struct share *share) { share->allowed = 0; }

void memory_on_message(struct share *share, struct message message) {
    share->limit = message.b;
    share->all = message.c;
    share->others = message.c > message.a ? message.c - message.a : 0;
    share->limits_known = true;
    share->allowed = message.a < share->reported ? message.a : share->reported;
    if (share->unanswered && --share->unanswered) {
        ; /* the answer to an older request: another is on its way */
    } else if (message.a > share->reported) {
        send_need(share, share->reported); /* it crossed the latest request */
    } else {
        share->reported = message.a;
    }
    share_changed(share);
}

/* Return whether more is in use than the server knows, and no thread is asking for more. */
static bool must_report(const struct share *share) {
    return !share->growing && !share->unanswered && share->used > share->reported;
}

/* Give back memory that was requested in advance; report use that the server does not know. Return when to call again. */
uint64_t memory_tick(struct share *share, uint64_t now) {
    if (now >= share->excess_at + SECOND && must_report(share)) {
        share->excess_at = now; /* the report may be refused if it exceeds the limit; report it again, but not at once */
        send_need(share, share->used);
    }
    if (share->growing || share->unanswered || share->reported <= share->used) return share->used ? SECOND : FOREVER;
    if (now < share->used_changed_at + TRIM) return share->used_changed_at + TRIM - now;
    send_need(share, share->used);
    return SECOND;
}

static bool is_near(const struct share *share) {
    return share->limit != NO_LIMIT && share->all + NEAR * CHUNK > share->limit;
}

void memory_subtract(struct share *share, uint64_t bytes) {
    share->used -= bytes < share->used ? bytes : share->used;
    share->used_changed_at = now_ns();
    uint64_t spare = share->reported > share->used ? share->reported - share->used : 0;
    if (!share->growing && spare > (is_near(share) ? 0 : 2 * CHUNK)) send_need(share, share->used);
}

void memory_add(struct share *share, uint64_t bytes) {
    if (!bytes) return;
    share->used += bytes;
    share->used_changed_at = now_ns();
    if (must_report(share)) send_need(share, share->used);
}

/* Return whether the share has no limit, and uses the whole GPU without a server. */
static bool is_free(struct share *share) { return share->limit == NO_LIMIT && lease_is_alone(share); }

/* Request `bytes` and wait for the answer, at most until `end`. Repeat the request after a reconnection. */
static bool ask(struct share *share, uint64_t bytes, uint64_t end) {
    for (;;) {
        while ((share->socket < 0 || share->unanswered) && !is_free(share) && now_ns() < end) share_wait(share, SECOND / 4);
        if (is_free(share)) return true;
        if (now_ns() >= end) return false;
        unsigned connection = share->connection;
        send_need(share, bytes > share->used ? bytes : share->used);
        while (connection == share->connection && share->socket >= 0 && share->unanswered && now_ns() < end)
            share_wait(share, SECOND / 4);
        if (connection == share->connection && share->socket >= 0) return !share->unanswered;
    }
}

static bool fits(struct share *share, uint64_t bytes) {
    if (!is_free(share) && (share->allowed < share->used || bytes > share->allowed - share->used)) return false;
    share->used += bytes;
    share->used_changed_at = now_ns();
    return true;
}

/* Request more memory: first some in advance, then the exact amount, then again after other processes have given back unused
 * memory. If another thread takes the granted memory, request it again. */
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

/* Under the lock: one request at a time for each share. */
static void begin_asking(struct share *share) {
    while (share->growing) share_wait(share, SECOND / 4);
    share->growing = true;
}

static void end_asking(struct share *share) {
    share->growing = false;
    share_changed(share);
}

static bool ask_for(struct share *share, uint64_t bytes) {
    gate_lock();
    begin_asking(share);
    bool may = grow(share, bytes);
    end_asking(share);
    gate_unlock();
    return may;
}

/* Use `bytes` more and return whether that is allowed. Before refusing, release memory kept for later allocations, as a driver
 * does when the GPU is full. */
static bool use(struct share *share, uint64_t bytes) {
    gate_lock();
    bool may = fits(share, bytes);
    gate_unlock();
    if (may || bytes > UINT64_MAX / 4) return may;
    return ask_for(share, bytes) || (reserves_trim(share) && ask_for(share, bytes));
}

/* --- claims ------------------------------------------------------------------------------------------------------- */

struct claim claim_from(struct share *share, uint64_t bytes) {
    return (struct claim){.share = share, .bytes = bytes, .refused = share && bytes && !use(share, bytes)};
}

struct claim claim(uint64_t bytes) { return claim_from(share_of_current(), bytes); }

struct claim claim_of(CUdevice device, uint64_t bytes) { return claim_from(share_of(device), bytes); }

CUresult claim_settle(struct claim *claim, CUresult result, enum key key, uint64_t id, uint64_t bytes, bool of_context) {
    struct entry values = {.key = key, .id = id, .bytes = bytes, .share = claim->share};
    if (!claim->share) return result;
    if (of_context && result == CUDA_SUCCESS) DRIVER(cuCtxGetCurrent)(&values.context);
    gate_lock();
    if (result != CUDA_SUCCESS)
        memory_subtract(claim->share, claim->bytes);
    else if (bytes < claim->bytes)
        memory_subtract(claim->share, claim->bytes - bytes);
    else
        memory_add(claim->share, bytes - claim->bytes);
    if (result == CUDA_SUCCESS) memory_keep(values);
    gate_unlock();
    return result;
}

/* Ask how much the other processes have, unless a thread already waits for the answer; return whether it is known. */
static bool has_answer(struct share *share) {
    uint64_t end = now_ns() + SECOND;
    while (share->growing && !share->limits_known && now_ns() < end) share_wait(share, SECOND / 4);
    if (!share->growing) {
        share->growing = true;
        ask(share, share->reported, end);
        end_asking(share);
    }
    return share->limits_known;
}

void memory_visible(struct share *share, uint64_t *free, uint64_t *total) {
    if (!share) return;
    gate_lock();
    if (has_answer(share) && share->limit != NO_LIMIT) {
        uint64_t taken = share->others + share->used, left = share->limit > taken ? share->limit - taken : 0;
        if (*total > share->limit) *total = share->limit;
        if (*free > left) *free = left;
    }
    gate_unlock();
}
