/* What this process has allocated, and the share's limit.
 *
 * The server adds up the processes of a share, so what is counted here is asked for there first (NEED). That is done in
 * chunks as long as the limit is far, so that small allocations seldom wait for an answer, and to the byte where it is
 * near; what was asked for and is not used goes back after a while. Memory that another process owns and this one imports
 * is in no table here, and so counts once. */
#include "launches/launches.h"
#include "memory/counting.h"

#define CHUNK ((uint64_t)16 << 20)
enum { NEAR = 8 /* chunks */ };
enum { TRIM = 100000000, OTHERS_TRIM = 250000000 }; /* ns */

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

/* More is in use than the server knows, and nobody asks for more. */
static bool owes_word(const struct share *share) {
    return !share->growing && !share->unanswered && share->used > share->told;
}

/* Gives back what was asked for ahead. */
uint64_t memory_tick(struct share *share, uint64_t now) {
    if (now >= share->pressed + SECOND && owes_word(share)) {
        share->pressed = now; /* it may be refused: what counts then, whatever the limit, is told again, but not at once */
        say_need(share, share->used);
    }
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

void memory_more(struct share *share, uint64_t bytes) {
    if (!bytes) return;
    share->used += bytes;
    share->changed = now_ns();
    if (owes_word(share)) say_need(share, share->used);
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

static bool ask_for(struct share *share, uint64_t bytes) {
    gate_enter();
    begin_asking(share);
    bool may = grow(share, bytes);
    end_asking(share);
    gate_leave();
    return may;
}

/* Whether `bytes` more may be allocated: they count from now on. Before they are refused, what is kept for later allocations
 * goes back to the GPU, as with a GPU that is full. */
static bool use(struct share *share, uint64_t bytes) {
    gate_enter();
    bool may = fits(share, bytes);
    gate_leave();
    if (may || bytes > UINT64_MAX / 4) return may;
    return ask_for(share, bytes) || (reserves_trim(share) && ask_for(share, bytes));
}

/* --- of one allocation -------------------------------------------------------------------------------------------- */

struct claim claim_from(struct share *share, uint64_t bytes) {
    return (struct claim){.share = share, .bytes = bytes, .refused = share && bytes && !use(share, bytes)};
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
        memory_more(claim->share, bytes - claim->bytes);
    if (result == CUDA_SUCCESS) memory_keep(values);
    gate_leave();
    return result;
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
