/* payload.c - payloads, which are bytes named by SHA-256: fetching, keeping and serving them.
 *
 *   FREE -> WANTED      this node needs it: EXPECT makes room, PULL asks a holder for chunks
 *   WANTED -> CHECKING  the last chunk arrived: VERIFY
 *   CHECKING -> HELD    SHA-256 and trial decode are right
 *   CHECKING -> UNFIT   SHA-256 is right but the bytes do not decode: no node has better ones
 *   CHECKING -> WANTED  SHA-256 is wrong: fetched from another holder
 *   any -> FREE         this node does not need it any more: DROP */
#include "sync/transfer/payload.h"

#include "base/assert.h"
#include "sync/core/actions.h"
#include "sync/core/peers.h"
#include "sync/core/state/node.h"
#include "sync/transfer/chunk_scheduler.h"

enum {
    FAILED_ROUNDS_MAX = 2
}; /* failed rounds of requests that a payload survives; after one
      more, it is lost */

/* Time for which a packed state is kept for a peer that was pulling it, if the link to the peer
 * breaks, or if its last chunks need long for a slow line. */
#define STATE_RESUME_US (120 * SECOND_US)

struct payload *tw_payload_find(struct tw_node *node, const struct tw_id *hash) {
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state != PAYLOAD_FREE && tw_id_equal(&payload->hash, hash)) return payload;
    }
    return NULL;
}

/* Tells the peers that may still wait for chunks of a packed state that none will come. */
static void tell_pullers(struct tw_node *node, const struct payload *payload) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if ((payload->pullers >> i & 1) == 0 || !node->links[i].is_up) continue;
        struct tw_message *message = tw_act_message(node, TW_MSG_MISSING);
        if (message == NULL) return;
        message->u.missing = (struct tw_msg_missing){.hash = payload->hash};
        tw_act_send(node, message, i);
    }
}

static void drop_payload(struct tw_node *node, struct payload *payload) {
    if (payload->state == PAYLOAD_HELD && payload->packed > 0) tell_pullers(node, payload);
    tw_chunks_forget(node, payload);
    if (payload->is_expected || payload->state == PAYLOAD_HELD)
        tw_act_payload(node, TW_ACT_DROP, payload);
    payload->state = PAYLOAD_FREE;
    while (node->payloads_end > 0 && node->payloads[node->payloads_end - 1].state == PAYLOAD_FREE)
        node->payloads_end--;
}

static struct payload *add_payload(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                                   enum payload_state state) {
    for (uint32_t i = 0; i < TW_PAYLOADS_MAX; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state != PAYLOAD_FREE) continue;
        *payload = (struct payload){.hash = *hash, .bytes = bytes};
        payload->chunks = (bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX;
        payload->progress_us = node->now_us;
        payload->state = state;
        if (i >= node->payloads_end) node->payloads_end = i + 1;
        return payload;
    }
    return NULL; /* table full: the caller tries again once other payloads are dropped */
}

bool tw_payload_is_as(const struct tw_node *node, const struct payload *payload,
                      enum tw_content content, uint64_t elements) {
    /* If results and contributions share one codec, their checks are the same. An anchor has a
     * format of its own. */
    const bool is_alike = !node->cfg.has_result_codec && payload->content != TW_CONTENT_PHI &&
                          content != TW_CONTENT_PHI;
    return payload->elements == elements && (payload->content == content || is_alike);
}

bool tw_payload_is_possible(const struct tw_node *node, enum tw_content content, uint64_t elements,
                            uint64_t bytes) {
    const struct tw_sizes *sizes = &node->cfg.sizes;
    if (bytes > TW_PAYLOAD_BYTES_MAX) return false;
    return sizes->bytes_max == NULL || bytes <= sizes->bytes_max(sizes->run, content, elements);
}

struct payload *tw_payload_want(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                                enum tw_content content, uint64_t elements) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload != NULL && (payload->bytes == bytes || payload->state >= PAYLOAD_HELD))
        return payload;
    if (payload != NULL)
        drop_payload(node, payload); /* the two announced sizes differ, so one is
                                        false */
    if (bytes == 0 || bytes > TW_PAYLOAD_BYTES_MAX) return NULL;
    payload = add_payload(node, hash, bytes, PAYLOAD_WANTED);
    if (payload == NULL) return NULL;
    payload->content = content;
    payload->elements = elements;
    return payload;
}

struct payload *tw_payload_want_result(struct tw_node *node, const struct tw_part *part,
                                       uint32_t fragment, uint64_t begin, uint64_t count,
                                       uint64_t keep_round) {
    struct payload *payload =
        tw_payload_want(node, &part->result, part->bytes, TW_CONTENT_RESULT, count);
    if (payload == NULL) return NULL;
    payload->fragment = fragment;
    payload->begin = begin;
    payload->is_shared = true;
    if (payload->keep_round < keep_round) payload->keep_round = keep_round;
    return payload;
}

void tw_payload_hold(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                     enum tw_content content, uint64_t elements, uint64_t keep_round) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload == NULL) payload = add_payload(node, hash, bytes, PAYLOAD_HELD);
    if (payload != NULL) tw_chunks_forget(node, payload);
    if (payload == NULL) { /* no row left: the runtime may drop the bytes */
        tw_act_payload(node, TW_ACT_DROP, &(struct payload){.hash = *hash, .bytes = bytes});
        return;
    }
    payload->state = PAYLOAD_HELD;
    payload->sanity = TW_SANITY_FAIR; /* we made it */
    payload->bytes = bytes;
    payload->chunks = (bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX;
    payload->content = content;
    payload->elements = elements;
    payload->is_shared = true;
    if (payload->keep_round < keep_round) payload->keep_round = keep_round;
}

bool tw_payload_is_lost(const struct payload *payload) {
    return payload->state == PAYLOAD_UNFIT ||
           (payload->state == PAYLOAD_WANTED && payload->failed_rounds > FAILED_ROUNDS_MAX);
}

bool tw_payload_is_held(struct tw_node *node, const struct tw_id *hash) {
    const struct payload *payload = tw_payload_find(node, hash);
    return payload != NULL && payload->state == PAYLOAD_HELD;
}

bool tw_payload_is_refused(struct tw_node *node, const struct tw_id *hash, uint64_t count) {
    const struct payload *payload = tw_payload_find(node, hash);
    if (payload == NULL || !tw_payload_is_as(node, payload, TW_CONTENT_RESULT, count)) return false;
    const bool is_judged = node->roster.count >= node->cfg.judges_min;
    const bool is_large =
        payload->sanity == TW_SANITY_EXTREME || (payload->sanity == TW_SANITY_OUTLIER && is_judged);
    return (is_large && payload->state == PAYLOAD_HELD &&
            !TW_IS_MUTANT(node, TW_MUTANT_INSANE_TAKEN)) ||
           payload->state == PAYLOAD_UNFIT;
}

bool tw_payload_is_state(const struct tw_node *node, const struct tw_id *hash) {
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_HELD && tw_id_equal(&payload->hash, hash))
            return payload->packed > 0;
    }
    return false;
}

static bool has_chunk(const struct payload *payload, uint32_t idx) {
    return (payload->have[idx / 64] >> (idx % 64) & 1) != 0;
}

bool tw_payload_wants_chunk(const struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                            uint32_t idx) {
    TW_ASSERT(peer < TW_PEERS_MAX);
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        if (payload->state != PAYLOAD_WANTED || !tw_id_equal(&payload->hash, hash)) continue;
        return (payload->asked >> peer & 1) != 0 && idx < payload->chunks &&
               !has_chunk(payload, idx);
    }
    return false;
}

void tw_payload_chunk(struct tw_node *node, uint16_t peer, const struct tw_id *hash, uint32_t idx) {
    node->links[peer].received_us = node->now_us;
    if (!tw_payload_wants_chunk(node, peer, hash, idx)) return;
    struct payload *payload = tw_payload_find(node, hash);
    payload->have[idx / 64] |= UINT64_C(1) << (idx % 64);
    payload->chunks_have++;
    payload->failed_rounds = 0;
    payload->progress_us = node->lineage.moved_us = node->now_us;
    tw_chunks_arrived(node, payload, peer, idx);
    if (payload->chunks_have == payload->chunks) tw_chunks_forget(node, payload);
    if (payload->chunks_have == payload->chunks && TW_IS_MUTANT(node, TW_MUTANT_UNVERIFIED)) {
        payload->state = PAYLOAD_HELD;
    } else if (payload->chunks_have == payload->chunks) {
        payload->state = PAYLOAD_CHECKING;
        tw_act_payload(node, TW_ACT_VERIFY, payload);
    }
}

/* Starts again: the bytes were wrong, or the runtime has no room for them. */
static void begin_anew(struct tw_node *node, struct payload *payload, bool is_wrong) {
    if (is_wrong && payload->is_mixed && !payload->is_alone) {
        payload->is_alone =
            true; /* one of several peers sent wrong bytes, and it is not known which */
    } else {
        payload->tried |= payload->sources | payload->senders;
    }
    tw_chunks_forget(node, payload);
    payload->asked = payload->senders = 0;
    payload->is_mixed = false;
    payload->chunks_have = 0;
    payload->progress_us = node->now_us;
    for (uint32_t i = 0; i < TW_CHUNKS_MAX / 64; i++) payload->have[i] = 0;
}

void tw_payload_verified(struct tw_node *node, const struct tw_event *event) {
    struct payload *payload = tw_payload_find(node, &event->u.chunk.hash);
    const bool ok = event->ok;
    if (payload == NULL) return;
    /* If the payload is not CHECKING, a refusal means that the runtime had no room for it. */
    if (payload->state == PAYLOAD_CHECKING && ok) {
        payload->state = PAYLOAD_HELD;
        const bool is_result = payload->content == TW_CONTENT_RESULT;
        payload->sanity = is_result ? event->u.chunk.sanity : TW_SANITY_FAIR;
        return;
    }
    if (payload->state >= PAYLOAD_HELD || ok) return;
    if (payload->state == PAYLOAD_CHECKING && event->u.chunk.is_unfit) {
        tw_act_payload(node, TW_ACT_DROP, payload);
        payload->is_expected = false;
        payload->state = PAYLOAD_UNFIT;
        return;
    }
    if (payload->is_expected) tw_act_payload(node, TW_ACT_DROP, payload);
    payload->is_expected = false;
    const bool is_wrong = payload->state == PAYLOAD_CHECKING;
    payload->state = PAYLOAD_WANTED;
    payload->is_put_off = !is_wrong;
    begin_anew(node, payload, is_wrong);
}

/* Keeps the payload for a slow peer, unless the table is half full: peers must not fill it by
 * pulling. */
static void keep_until(struct tw_node *node, struct payload *payload, uint64_t until_us) {
    const bool has_room = node->payloads_end <= TW_PAYLOADS_MAX / 2;
    if (has_room && payload->keep_us < until_us) payload->keep_us = until_us;
}

void tw_payload_release(struct tw_node *node, struct payload *payload, uint16_t peer) {
    if ((payload->pullers >> peer & 1) == 0) return;
    payload->pullers &= ~(UINT64_C(1) << peer);
    payload->is_left = payload->pullers == 0;
    if (payload->is_left)
        payload->keep_us = at_most(payload->keep_us, node->now_us + STATE_KEEP_US);
}

/* A peer that pulls a state of a fragment has given up the older states of that fragment. */
static void release_older(struct tw_node *node, uint16_t peer, const struct payload *pulled) {
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload != pulled && payload->state == PAYLOAD_HELD && payload->packed > 0 &&
            payload->fragment == pulled->fragment)
            tw_payload_release(node, payload, peer);
    }
}

void tw_payload_pull(struct tw_node *node, uint16_t peer, const struct tw_msg_pull *request) {
    struct payload *payload = tw_payload_find(node, &request->hash);
    if (payload == NULL || payload->state != PAYLOAD_HELD) {
        struct tw_message *message = tw_act_message(node, TW_MSG_MISSING);
        if (message == NULL) return;
        message->u.missing = (struct tw_msg_missing){.hash = request->hash};
        tw_act_send(node, message, peer);
        return;
    }
    if (request->count == 0 || request->count > PULL_RUN_MAX || request->first >= payload->chunks ||
        request->count > payload->chunks - request->first) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return;
    }
    if (payload->packed > 0) release_older(node, peer, payload);
    keep_until(node, payload,
               node->now_us + (payload->packed > 0 ? STATE_RESUME_US : STATE_KEEP_US));
    payload->pullers |= UINT64_C(1) << peer;
    payload->is_left = false;
    if (payload->packed > 0 && payload->given[peer] < payload->chunks) {
        payload->given[peer] = (uint16_t)(payload->given[peer] + request->count);
        node->lineage.fed_us = node->now_us;
    }
    /* A slow uplink needs long for one chunk, so no solo round starts while the bytes are kept. */
    tw_peers_hold_solo_for(node, peer, STATE_KEEP_US);
    for (uint32_t i = 0; i < request->count; i++)
        tw_act_chunk(node, peer, payload, request->first + i);
}

void tw_payload_missing(struct tw_node *node, uint16_t peer, const struct tw_id *hash) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload == NULL || payload->state != PAYLOAD_WANTED) return;
    payload->offered &= ~(UINT64_C(1) << peer);
    payload->lacking |= UINT64_C(1) << peer;
    tw_chunks_source_lost(node, payload, peer);
}

void tw_payload_peer_down(struct tw_node *node, uint16_t peer) {
    const uint64_t others = ~(UINT64_C(1) << peer);
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_FREE) continue;
        /* A peer whose link broke while it pulled a state will want the missing chunks of exactly
         * that state. It is kept, because the state changes with every round. */
        if ((payload->pullers & ~others) != 0 && payload->content == TW_CONTENT_OPAQUE)
            keep_until(node, payload, node->now_us + STATE_RESUME_US);
        tw_chunks_source_lost(node, payload, peer);
        payload->pullers &= others;
        payload->tried &= others; /* the peer number may be given to another link */
        payload->asked &= others;
        payload->offered &= others;
        payload->lacking &= others;
        payload->is_mixed |= (payload->senders & ~others) != 0;
        payload->senders &= others;
    }
}

void tw_payload_worker_up(struct tw_node *node) {
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_CHECKING && payload->content != TW_CONTENT_OPAQUE)
            tw_act_payload(node, TW_ACT_VERIFY, payload);
    }
}

void tw_payload_drop_all(struct tw_node *node) {
    for (uint32_t i = node->payloads_end; i-- > 0;) {
        if (node->payloads[i].state != PAYLOAD_FREE) drop_payload(node, &node->payloads[i]);
    }
}

static void prepare_transfer(struct tw_node *node, struct payload *payload) {
    tw_chunks_prepare(node, payload);
    if (payload->sources == 0 || payload->is_expected) return;
    payload->is_expected = true;
    tw_act_payload(node, TW_ACT_EXPECT, payload);
}

void tw_payload_advance(struct tw_node *node) {
    struct payload *arriving[TW_TRANSFERS_MAX];
    uint32_t arriving_count = 0, asked_count = 0;
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        /* One that is being checked must arrive again if the check fails. */
        arriving_count += (payload->state == PAYLOAD_WANTED && payload->is_expected) ||
                          payload->state == PAYLOAD_CHECKING;
    }
    for (uint32_t i = node->payloads_end; i-- > 0;) {
        struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_FREE) continue;
        const bool is_needed =
            payload->keep_round >= node->at.rounds || payload->keep_us > node->now_us;
        if (!is_needed) {
            drop_payload(node, payload);
        } else if (payload->state == PAYLOAD_WANTED) {
            /* The runtime has room for TW_TRANSFERS_MAX arriving payloads; the others wait. */
            if (!payload->is_expected && arriving_count >= TW_TRANSFERS_MAX) continue;
            if (!payload->is_expected) arriving_count++;
            prepare_transfer(node, payload);
            if (payload->is_expected) arriving[asked_count++] = payload;
        }
    }
    /* Payloads of rounds go first: the state for a newcomer may take a long time. */
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < asked_count; i++) {
            if ((arriving[i]->content == TW_CONTENT_OPAQUE) == (pass == 1))
                tw_chunks_ask(node, arriving[i]);
        }
    }
}
