/* payload.c - bytes by name: which are wanted, from whom they come, and who gets ours.
 *
 *   FREE -> WANTED    somebody needs it: EXPECT makes room, PULL asks a holder for chunks
 *   WANTED -> CHECKING  the last chunk came: VERIFY
 *   CHECKING -> HELD    SHA-256 and trial decode were right
 *   CHECKING -> UNFIT   the name was right, and it does not decode: nobody can have better bytes
 *   CHECKING -> WANTED  the name was wrong: another holder
 *   any -> FREE         nobody needs it any more: DROP */
#include "sync/node_internal.h"

struct payload *tw_payload_find(struct tw_node *node, const struct tw_id *hash) {
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state != PAYLOAD_FREE && tw_id_equal(&payload->hash, hash)) return payload;
    }
    return NULL;
}

static void drop(struct tw_node *node, struct payload *payload) {
    if (payload->is_expected || payload->state == PAYLOAD_HELD)
        tw_act_payload(node, TW_ACT_DROP, payload);
    payload->state = PAYLOAD_FREE;
    while (node->payloads_end > 0 && node->payloads[node->payloads_end - 1].state == PAYLOAD_FREE)
        node->payloads_end--;
}

static struct payload *add(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                           enum payload_state state) {
    for (uint32_t i = 0; i < TW_PAYLOADS_MAX; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state != PAYLOAD_FREE) continue;
        *payload = (struct payload){.hash = *hash, .bytes = bytes, .source = NO_PEER};
        payload->chunks = (bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX;
        payload->progress_us = node->now_us;
        payload->state = state;
        if (i >= node->payloads_end) node->payloads_end = i + 1;
        return payload;
    }
    return NULL; /* full: whoever wants it asks again when others were dropped */
}

bool tw_payload_is_as(const struct tw_node *node, const struct payload *payload,
                      enum tw_content content, uint64_t elements) {
    /* A merge and a contribution are the same bytes where one codec does for both; an anchor is
     * coded in no codec. */
    const bool is_alike = !node->cfg.has_result_codec && payload->content != TW_CONTENT_PHI &&
                          content != TW_CONTENT_PHI;
    return payload->elements == elements && (payload->content == content || is_alike);
}

struct payload *tw_payload_want(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                                enum tw_content content, uint64_t elements) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload != NULL && (payload->bytes == bytes || payload->state >= PAYLOAD_HELD))
        return payload;
    if (payload != NULL) drop(node, payload); /* somebody lied about its size */
    if (bytes == 0 || bytes > TW_PAYLOAD_BYTES_MAX) return NULL;
    payload = add(node, hash, bytes, PAYLOAD_WANTED);
    if (payload == NULL) return NULL;
    payload->content = content;
    payload->elements = elements;
    return payload;
}

struct payload *tw_payload_want_result(struct tw_node *node, const struct tw_part *part,
                                       uint32_t fragment, uint64_t begin, uint64_t count) {
    struct payload *payload =
        tw_payload_want(node, &part->result, part->bytes, TW_CONTENT_RESULT, count);
    if (payload == NULL) return NULL;
    payload->fragment = fragment;
    payload->begin = begin;
    payload->is_shared = true;
    if (payload->keep_round < tw_round_keep(node)) payload->keep_round = tw_round_keep(node);
    return payload;
}

void tw_payload_hold(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                     enum tw_content content, uint64_t elements, uint64_t keep_round) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload == NULL) payload = add(node, hash, bytes, PAYLOAD_HELD);
    if (payload == NULL) { /* no row left: the shell may forget it */
        tw_act_payload(node, TW_ACT_DROP, &(struct payload){.hash = *hash, .bytes = bytes});
        return;
    }
    payload->state = PAYLOAD_HELD;
    payload->is_insane = false; /* we made it */
    payload->bytes = bytes;
    payload->chunks = (bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX;
    payload->content = content;
    payload->elements = elements;
    payload->is_shared = true;
    if (payload->keep_round < keep_round) payload->keep_round = keep_round;
}

bool tw_payload_is_held(struct tw_node *node, const struct tw_id *hash) {
    const struct payload *payload = tw_payload_find(node, hash);
    return payload != NULL && payload->state == PAYLOAD_HELD;
}

static bool has_chunk(const struct payload *payload, uint32_t idx) {
    return (payload->have[idx / 64] >> (idx % 64) & 1) != 0;
}

/* Asks the source for the next run of missing chunks, a window ahead of what has come. */
static void pull(struct tw_node *node, struct payload *payload) {
    while (payload->chunks_asked < payload->chunks &&
           payload->chunks_asked < payload->chunks_have + PULL_WINDOW) {
        uint32_t first = payload->chunks_asked;
        if (has_chunk(payload, first)) {
            payload->chunks_asked++;
            continue;
        }
        uint32_t count = 0;
        while (first + count < payload->chunks && count < PULL_WINDOW &&
               !has_chunk(payload, first + count))
            count++;
        struct tw_message *message = tw_act_message(node, TW_MSG_PULL);
        if (message == NULL) return;
        message->u.pull =
            (struct tw_msg_pull){.hash = payload->hash, .first = first, .count = count};
        tw_act_send(node, message, payload->source);
        payload->asked |= UINT64_C(1) << payload->source;
        payload->chunks_asked = first + count;
    }
}

bool tw_node_wants_chunk(const struct tw_node *node, uint16_t peer, const struct tw_id *hash,
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
    node->links[peer].heard_us = node->now_us;
    if (!tw_node_wants_chunk(node, peer, hash, idx)) return;
    struct payload *payload = tw_payload_find(node, hash);
    payload->have[idx / 64] |= UINT64_C(1) << (idx % 64);
    payload->chunks_have++;
    payload->progress_us = node->now_us;
    if (payload->chunks_have == payload->chunks && TW_PLANTED(node, TW_PLANT_UNVERIFIED)) {
        payload->state = PAYLOAD_HELD;
    } else if (payload->chunks_have == payload->chunks) {
        payload->state = PAYLOAD_CHECKING;
        tw_act_payload(node, TW_ACT_VERIFY, payload);
    } else if (payload->source == peer) {
        pull(node, payload);
    }
}

/* The source was no good: forget it, and its bytes if they were wrong. */
static void give_up_source(struct tw_node *node, struct payload *payload, bool is_wrong) {
    if (payload->source != NO_PEER) payload->tried |= UINT64_C(1) << payload->source;
    payload->source = NO_PEER;
    payload->chunks_asked = 0;
    payload->progress_us = node->now_us;
    if (!is_wrong) return;
    payload->asked = 0;
    payload->chunks_have = 0;
    for (uint32_t i = 0; i < TW_CHUNKS_MAX / 64; i++) payload->have[i] = 0;
}

void tw_payload_verified(struct tw_node *node, const struct tw_id *hash, bool ok,
                         enum tw_verdict verdict) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload == NULL) return;
    /* Not CHECKING: the shell had no room for it, and says so this way. */
    if (payload->state == PAYLOAD_CHECKING && ok) {
        payload->state = PAYLOAD_HELD;
        payload->is_insane = verdict == TW_VERDICT_INSANE && payload->content == TW_CONTENT_RESULT;
        return;
    }
    if (payload->state >= PAYLOAD_HELD || ok) return;
    if (payload->state == PAYLOAD_CHECKING && verdict == TW_VERDICT_UNFIT) {
        tw_act_payload(node, TW_ACT_DROP, payload);
        payload->is_expected = false;
        payload->state = PAYLOAD_UNFIT;
        return;
    }
    if (payload->is_expected) tw_act_payload(node, TW_ACT_DROP, payload);
    payload->is_expected = false;
    payload->state = PAYLOAD_WANTED;
    give_up_source(node, payload, true);
}

void tw_payload_pull(struct tw_node *node, uint16_t peer, const struct tw_msg_pull *request) {
    struct payload *payload = tw_payload_find(node, &request->hash);
    if (payload == NULL || payload->state != PAYLOAD_HELD) {
        struct tw_message *message = tw_act_message(node, TW_MSG_MISSING);
        if (message == NULL) return;
        message->u.missing.hash = request->hash;
        tw_act_send(node, message, peer);
        return;
    }
    if (request->count == 0 || request->count > 2 * PULL_WINDOW ||
        request->first >= payload->chunks || request->count > payload->chunks - request->first) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return;
    }
    /* Who is slow may take longer, but nobody may fill the table by asking. */
    if (node->payloads_end <= TW_PAYLOADS_MAX / 2 &&
        payload->keep_us < node->now_us + STATE_KEEP_US)
        payload->keep_us = node->now_us + STATE_KEEP_US;
    /* A slow uplink needs long for one chunk: hold still as long as we keep the bytes. */
    if (node->solo_hold_us < node->now_us + STATE_KEEP_US)
        node->solo_hold_us = node->now_us + STATE_KEEP_US;
    for (uint32_t i = 0; i < request->count; i++)
        tw_act_chunk(node, peer, payload, request->first + i);
}

void tw_payload_missing(struct tw_node *node, uint16_t peer, const struct tw_id *hash) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload == NULL || payload->state != PAYLOAD_WANTED || payload->source != peer) return;
    give_up_source(node, payload, false);
}

void tw_payload_peer_down(struct tw_node *node, uint16_t peer) {
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_FREE) continue;
        if (payload->state == PAYLOAD_WANTED && payload->source == peer)
            give_up_source(node, payload, false);
        payload->tried &= ~(UINT64_C(1) << peer); /* the number may be somebody else's next */
        payload->asked &= ~(UINT64_C(1) << peer);
        if (payload->source == peer) payload->source = NO_PEER;
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
        if (node->payloads[i].state != PAYLOAD_FREE) drop(node, &node->payloads[i]);
    }
}

static void choose_source(struct tw_node *node, struct payload *payload) {
    const uint16_t first = tw_peers_find(node, &payload->from);
    if (first != NO_PEER && (payload->tried >> first & 1) == 0) {
        payload->source = first;
    } else if (payload->is_shared && node->links_end > 0) {
        const uint16_t start = (uint16_t)tw_rng_below(&node->rng, node->links_end);
        for (uint16_t i = 0; i < node->links_end && payload->source == NO_PEER; i++) {
            const uint16_t peer = (uint16_t)((start + i) % node->links_end);
            if (tw_peers_in_lineage(node, peer) && (payload->tried >> peer & 1) == 0)
                payload->source = peer;
        }
    }
    if (payload->source != NO_PEER) {
        payload->progress_us = node->now_us;
        return;
    }
    if (node->now_us < payload->progress_us + RETRY_US) { /* nobody left: start over later */
        tw_node_wake(node, payload->progress_us + RETRY_US);
        return;
    }
    payload->tried = 0;
    payload->cycles++;
    payload->progress_us = node->now_us;
    tw_node_wake(node, node->now_us + RETRY_US);
}

static void fetch(struct tw_node *node, struct payload *payload) {
    if (payload->source != NO_PEER && node->now_us >= payload->progress_us + TRANSFER_TIMEOUT_US)
        give_up_source(node, payload, false);
    if (payload->source == NO_PEER) choose_source(node, payload);
    if (payload->source == NO_PEER) return;
    if (!payload->is_expected) {
        payload->is_expected = true;
        tw_act_payload(node, TW_ACT_EXPECT, payload);
    }
    pull(node, payload);
    tw_node_wake(node, payload->progress_us + TRANSFER_TIMEOUT_US);
}

void tw_payload_advance(struct tw_node *node) {
    uint32_t arriving_count = 0;
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        arriving_count += payload->state == PAYLOAD_WANTED && payload->is_expected;
    }
    for (uint32_t i = node->payloads_end; i-- > 0;) {
        struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_FREE) continue;
        const bool is_needed =
            payload->keep_round >= node->at.rounds || payload->keep_us > node->now_us;
        if (!is_needed) {
            drop(node, payload);
        } else if (payload->state == PAYLOAD_WANTED) {
            /* Room is found for so many at a time; the others wait until one has come. */
            if (!payload->is_expected && arriving_count >= TW_TRANSFERS_MAX) continue;
            if (!payload->is_expected) arriving_count++;
            fetch(node, payload);
        }
    }
}
