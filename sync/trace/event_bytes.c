#include "sync/trace/event_bytes.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "proto/control.h"

enum { IS_OK = 1, IS_RELAYED = 2, LACKS_ROLES = 4, LACKS_VOTE = 8, HEAD_BYTES = 4 };
#define FLAGS (IS_OK | IS_RELAYED | LACKS_ROLES | LACKS_VOTE)

/* One pass over the fields, encoding or decoding: the list of fields of a kind is thus written
 * once. */
struct pass {
    uint8_t *to;         /* output when encoding; NULL when decoding */
    const uint8_t *from; /* decoding */
    size_t size;         /* bytes written so far, or bytes left to read */
    bool is_short;       /* decoding: the input ended too early */
};

static const uint8_t *take(struct pass *pass, size_t size) {
    static const uint8_t zeros[8];
    TW_ASSERT(size <= sizeof(zeros));
    if (pass->is_short || size > pass->size) {
        pass->is_short = true;
        return zeros;
    }
    const uint8_t *const bytes = pass->from;
    pass->from += size;
    pass->size -= size;
    return bytes;
}

static void pass_u64(struct pass *pass, uint64_t *value) {
    if (pass->to == NULL) {
        *value = tw_get_u64(take(pass, 8));
        return;
    }
    tw_put_u64(pass->to + pass->size, *value);
    pass->size += 8;
}

static void pass_u32(struct pass *pass, uint32_t *value) {
    if (pass->to == NULL) {
        *value = tw_get_u32(take(pass, 4));
        return;
    }
    tw_put_u32(pass->to + pass->size, *value);
    pass->size += 4;
}

static void pass_bool(struct pass *pass, bool *value) {
    uint32_t word = *value ? 1 : 0;
    pass_u32(pass, &word);
    *value = word != 0;
}

static void pass_id(struct pass *pass, struct tw_id *id) {
    for (size_t i = 0; i < sizeof(id->bytes); i += 8) {
        uint64_t word = tw_get_u64(id->bytes + i);
        pass_u64(pass, &word);
        tw_put_u64(id->bytes + i, word);
    }
}

static void pass_worker(struct pass *pass, struct tw_worker_state *worker) {
    pass_u64(pass, &worker->step);
    pass_u64(pass, &worker->tokens);
    for (uint32_t f = 0; f < TW_FRAGMENTS_MAX; f++) {
        pass_u64(pass, &worker->fragment_rounds[f]);
        pass_id(pass, &worker->fragment_digests[f]);
    }
}

static void pass_encoded(struct pass *pass, struct tw_event *event) {
    pass_u64(pass, &event->u.encoded.round);
    pass_u64(pass, &event->u.encoded.step);
    pass_u64(pass, &event->u.encoded.tokens);
    pass_u64(pass, &event->u.encoded.cursor);
    pass_u32(pass, &event->u.encoded.parts_count);
    if (event->u.encoded.parts_count > TW_PARTS_MAX) pass->is_short = true;
    for (uint32_t k = 0; !pass->is_short && k < event->u.encoded.parts_count; k++) {
        pass_id(pass, &event->u.encoded.hashes[k]);
        pass_u32(pass, &event->u.encoded.bytes[k]);
    }
}

static void pass_reduced(struct pass *pass, struct tw_event *event) {
    pass_u64(pass, &event->u.reduced.round);
    pass_u64(pass, &event->u.reduced.refused);
    pass_u32(pass, &event->u.reduced.part);
    pass_u32(pass, &event->u.reduced.bytes);
    pass_id(pass, &event->u.reduced.hash);
    pass_bool(pass, &event->u.reduced.is_audit);
}

static void pass_applied(struct pass *pass, struct tw_event *event) {
    pass_u32(pass, &event->u.applied.fragment);
    pass_u64(pass, &event->u.applied.rounds);
    pass_id(pass, &event->u.applied.digest);
    pass_bool(pass, &event->u.applied.is_alone);
    pass_bool(pass, &event->u.applied.is_outlier);
}

static void pass_exported(struct pass *pass, struct tw_event *event) {
    pass_u32(pass, &event->u.exported.fragment);
    pass_u64(pass, &event->u.exported.rounds);
    pass_id(pass, &event->u.exported.digest);
    pass_id(pass, &event->u.exported.hash);
    pass_u32(pass, &event->u.exported.bytes);
}

static void pass_measured(struct pass *pass, struct tw_event *event) {
    pass_u32(pass, &event->u.measured.upload_kib_s);
    pass_u64(pass, &event->u.measured.odd);
    pass_bool(pass, &event->u.measured.is_relay);
    pass_bool(pass, &event->u.measured.is_short);
}

static void pass_judged(struct pass *pass, struct tw_event *event) {
    uint32_t score = (uint32_t)event->u.judged.score;
    pass_u64(pass, &event->u.judged.round);
    pass_u32(pass, &score);
    pass_u32(pass, &event->u.judged.share);
    event->u.judged.score = (int32_t)score;
}

static void pass_chunk(struct pass *pass, struct tw_event *event) {
    uint32_t sanity = (uint32_t)event->u.chunk.sanity;
    pass_id(pass, &event->u.chunk.hash);
    pass_u32(pass, &event->u.chunk.idx);
    pass_u32(pass, &sanity);
    pass_bool(pass, &event->u.chunk.is_unfit);
    if (sanity > TW_SANITY_EXTREME) pass->is_short = true;
    event->u.chunk.sanity = (enum tw_sanity)sanity;
}

/* Passes over the fields of every kind but MESSAGE. Returns false if there is no such kind. */
static bool pass_fields(struct pass *pass, struct tw_event *event) {
    switch (event->kind) {
    case TW_EV_TICK:
    case TW_EV_PEER_DOWN:
    case TW_EV_WORKER_DOWN:
    case TW_EV_REFUSED:
    case TW_EV_LEAVE: return true;
    case TW_EV_PEER_UP: pass_id(pass, &event->u.id); return true;
    case TW_EV_MESSAGE:
    case TW_EV_WORKER_UP: return false;
    case TW_EV_CHUNK:
    case TW_EV_VERIFIED: pass_chunk(pass, event); return true;
    case TW_EV_STEP:
        pass_u64(pass, &event->u.step.step);
        pass_u64(pass, &event->u.step.tokens);
        return true;
    case TW_EV_ENCODED: pass_encoded(pass, event); return true;
    case TW_EV_REDUCED: pass_reduced(pass, event); return true;
    case TW_EV_APPLIED: pass_applied(pass, event); return true;
    case TW_EV_EXPORTED: pass_exported(pass, event); return true;
    case TW_EV_STORED: pass_u64(pass, &event->u.store_seq); return true;
    case TW_EV_MEASURED: pass_measured(pass, event); return true;
    case TW_EV_JUDGED: pass_judged(pass, event); return true;
    }
    return false;
}

size_t tw_event_encode(const struct tw_event *event, uint8_t bytes[TW_EVENT_BYTES_MAX]) {
    bytes[0] = (uint8_t)event->kind;
    bytes[1] =
        (uint8_t)((event->ok ? IS_OK : 0) | (event->is_relayed ? IS_RELAYED : 0) |
                  (event->lacks_roles ? LACKS_ROLES : 0) | (event->lacks_vote ? LACKS_VOTE : 0));
    tw_put_u16(bytes + 2, event->peer);
    if (event->kind == TW_EV_MESSAGE) {
        size_t size = 0;
        tw_put_u16(bytes + HEAD_BYTES, (uint16_t)event->u.message->kind);
        TW_ASSERT(tw_control_encode(event->u.message, bytes + HEAD_BYTES + 2, TW_CONTROL_BYTES_MAX,
                                    &size, NULL) == TW_OK);
        return HEAD_BYTES + 2 + size;
    }
    struct pass pass = {.to = bytes, .size = HEAD_BYTES};
    /* a pass needs a writable event, but encoding changes nothing */
    if (event->kind == TW_EV_WORKER_UP) {
        struct tw_worker_state copy = *event->u.worker;
        pass_worker(&pass, &copy);
        return pass.size;
    }
    struct tw_event copy = *event;
    TW_ASSERT(pass_fields(&pass, &copy));
    return pass.size;
}

enum tw_status tw_event_decode(const uint8_t *bytes, size_t size, struct tw_event *event,
                               struct tw_message *message, struct tw_worker_state *worker,
                               struct tw_error *err) {
    if (size < HEAD_BYTES || bytes[0] > TW_EV_REFUSED || bytes[1] > FLAGS)
        return tw_fail(err, TW_CORRUPT, "an event of no known kind");
    memset(event, 0, sizeof(*event));
    event->kind = (enum tw_event_kind)bytes[0];
    event->ok = (bytes[1] & IS_OK) != 0;
    event->is_relayed = (bytes[1] & IS_RELAYED) != 0;
    event->lacks_roles = (bytes[1] & LACKS_ROLES) != 0;
    event->lacks_vote = (bytes[1] & LACKS_VOTE) != 0;
    event->peer = tw_get_u16(bytes + 2);
    if (event->peer >= TW_PEERS_MAX) return tw_fail(err, TW_CORRUPT, "an event of no known peer");
    struct pass pass = {.from = bytes + HEAD_BYTES, .size = size - HEAD_BYTES};
    if (event->kind == TW_EV_MESSAGE) {
        const uint16_t kind = tw_get_u16(take(&pass, 2));
        event->u.message = message;
        if (tw_control_decode(kind, pass.from, pass.size, message, err) != TW_OK)
            return tw_fail(err, TW_CORRUPT, "a message of kind %u that does not decode", kind);
        return TW_OK;
    }
    bool is_known = true;
    if (event->kind == TW_EV_WORKER_UP) {
        event->u.worker = worker;
        pass_worker(&pass, worker);
    } else {
        is_known = pass_fields(&pass, event);
    }
    if (!is_known || pass.is_short || pass.size > 0)
        return tw_fail(err, TW_CORRUPT, "an event of the wrong size");
    return TW_OK;
}
