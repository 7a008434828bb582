/* payload.c - payloads, which are bytes named by SHA-256: which peer is asked for which chunk, and
 * how payloads are fetched, checked, kept and served. */
#include "sync/transfer/payload.h"

#include "base/assert.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"

/* ==== the chunk scheduler ===================================================================== */

/* Which peer is asked for which chunk of a payload, and the window of each
 * link.
 *
 *     WANTED   --PULL--> asked: one row of a link, in the order of requests
 *     asked    --CHUNK--> stored, and never requested again
 *     asked    --MISSING, link gone, or timeout--> WANTED, from another source
 *
 * A peer answers its rows in order. A chunk that arrives thus shows that the later ones are on
 * their way, and their timeouts start anew. Received chunks survive the loss of any link: their
 * bits belong to the payload, only the rows belong to the link.
 *
 * After a timeout, a link counts as silent until a chunk arrives over it. For payloads that other
 * peers may have too, a silent link is asked last.
 *
 * A payload has one source if only one peer surely holds it, and up to SOURCES_MAX if several peers
 * announced it. If bytes of several sources were wrong, the sender is unknown. From then on the
 * payload comes from one source at a time, and the next wrong byte has a known sender.
 *
 * The window of a link follows from its deliveries. With c the time per chunk and r the shortest
 * time from request to arrival:
 *
 *     window = (r + 0.2 s) / c + 1,   2 at least, PULLS_MAX at most
 *
 * This keeps a fast and long path full, and puts at most 0.2 s of data into a slow one. Until c is
 * known, the window begins at 2 and grows by 1 with each chunk, so it doubles with each round trip.
 */

#define TRANSFER_TIMEOUT_US (30 * SECOND_US) /* longest silence of a payload's only source */

#define AHEAD_US (SECOND_US / 5)
#define MEASURE_US (SECOND_US / 5) /* least time to measure a rate: chunks arrive in bursts */
#define PATIENCE_OTHERS_US (8 * SECOND_US) /* longest silence of one of several sources */
#define CHUNK_US_MAX (30 * SECOND_US)      /* ceiling of a measured time per chunk */

enum { WINDOW_LEAST = 2 };

static uint16_t idx_of(const struct tw_node *node, const struct payload *payload) {
    return (uint16_t)(payload - node->payloads);
}

static uint32_t count_bits(uint64_t set) {
    uint32_t count = 0;
    for (; set != 0; set &= set - 1) count++;
    return count;
}

/* ---- how far ahead --------------------------------------------------------------------------- */

static uint32_t window_of(const struct link *link) {
    const uint64_t ahead = link->chunk_us == 0
                               ? WINDOW_LEAST + link->measured_count + (link->measured_us != 0)
                               : (link->near_us + AHEAD_US) / link->chunk_us + 1;
    if (ahead < WINDOW_LEAST) return WINDOW_LEAST;
    return ahead < PULLS_MAX ? (uint32_t)ahead : PULLS_MAX;
}

static void measure_link(struct tw_node *node, struct link *link, uint64_t asked_us) {
    const uint64_t took_us = node->now_us - asked_us;
    /* Larger times raise the estimate only slowly; they do raise it, because routes change. */
    if (link->near_us == 0 || took_us < link->near_us) {
        link->near_us = took_us;
    } else {
        link->near_us += (took_us - link->near_us) / 64;
    }
    if (link->measured_us == 0) { /* the first chunk after a pause does not show the rate */
        link->measured_us = node->now_us;
        link->measured_count = 0;
        return;
    }
    link->measured_count++;
    const uint64_t passed_us = node->now_us - link->measured_us;
    if (passed_us < MEASURE_US) return;
    const uint64_t each_us = passed_us / link->measured_count + 1;
    link->chunk_us = link->chunk_us == 0 ? each_us : (link->chunk_us + each_us) / 2;
    /* Without this ceiling, a peer that is always late would get ever longer timeouts. */
    if (link->chunk_us > CHUNK_US_MAX) link->chunk_us = CHUNK_US_MAX;
    link->measured_us = node->now_us;
    link->measured_count = 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void remove_row(struct link *link, uint32_t row) {
    TW_ASSERT(row < link->pulls_count);
    TW_ASSERT(link->pulls_count <= PULLS_MAX);
    link->pulls_count--;
    for (uint32_t i = row; i < link->pulls_count; i++) link->pulls[i] = link->pulls[i + 1];
    if (link->pulls_count == 0) link->measured_us = 0;
}

/* Forgets the requests for this payload at `peer`. */
static void forget_rows(struct tw_node *node, uint16_t peer, struct payload *payload) {
    struct link *link = &node->links[peer];
    const uint16_t idx = idx_of(node, payload);
    for (uint32_t row = link->pulls_count; row-- > 0;) {
        if (link->pulls[row].payload != idx) continue;
        TW_ASSERT(payload->under_way > 0);
        remove_row(link, row);
        payload->under_way--;
    }
}

/* Drops all sources of the payload and its chunks under way. */
static void forget_sources(struct tw_node *node, struct payload *payload) {
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if ((payload->sources >> i & 1) != 0) forget_rows(node, i, payload);
    }
    TW_ASSERT(payload->under_way == 0);
    payload->sources = 0;
}

/* Drops the peer as a source of the payload. */
static void lose_source(struct tw_node *node, struct payload *payload, uint16_t peer) {
    if ((payload->sources >> peer & 1) == 0) return;
    forget_rows(node, peer, payload);
    payload->sources &= ~(UINT64_C(1) << peer);
    payload->tried |= UINT64_C(1) << peer;
    payload->progress_us = node->now_us;
}

/* Removes the request for chunk `idx`, which was stored, and measures the link. */
static void note_arrival(struct tw_node *node, struct payload *payload, uint16_t peer,
                         uint32_t idx) {
    const uint16_t at = idx_of(node, payload);
    TW_ASSERT(idx < payload->chunks);
    payload->senders |= UINT64_C(1) << peer;
    payload->is_mixed |= (payload->senders & (payload->senders - 1)) != 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        for (uint32_t row = 0; (payload->sources >> i & 1) != 0 && row < link->pulls_count; row++) {
            if (link->pulls[row].payload != at || link->pulls[row].chunk != idx) continue;
            for (uint32_t k = row; i == peer && k < link->pulls_count; k++)
                link->pulls[k].moved_us = node->now_us;
            const uint64_t asked_us = link->pulls[row].asked_us;
            TW_ASSERT(payload->under_way > 0);
            remove_row(link, row);
            payload->under_way--;
            if (i == peer) measure_link(node, link, asked_us);
            break;
        }
    }
    node->links[peer].is_silent = false;
}

void tw_chunks_decided(struct tw_node *node, struct payload *payload) {
    if (payload->is_decided || payload->state != PAYLOAD_WANTED) return;
    payload->is_decided = true;
    for (uint16_t i = 0; i < node->links_end; i++)
        if (node->links[i].is_silent) lose_source(node, payload, i);
    payload->tried = 0;
}

/* ---- sources --------------------------------------------------------------------------------- */

/* A peer may get a result later, but it packs a state again only if it is asked for it. */
static bool may_be_source(const struct tw_node *node, const struct payload *payload,
                          uint16_t peer) {
    if (payload->content == TW_CONTENT_OPAQUE && (payload->lacking >> peer & 1) != 0) return false;
    return node->links[peer].is_up && ((payload->tried | payload->sources) >> peer & 1) == 0;
}

/* True if other peers are asked before this one, because its link is an outlier or silent. */
static bool is_put_last(const struct tw_node *node, const struct payload *payload, uint16_t peer) {
    return tw_peers_is_outlier(node, peer) || (payload->is_shared && node->links[peer].is_silent);
}

static bool is_anybody_put_last(const struct tw_node *node, const struct payload *payload) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (node->links[i].is_up && is_put_last(node, payload, i)) return true;
    }
    return false;
}

static uint16_t find_other(struct tw_node *node, const struct payload *payload, bool is_last) {
    const bool is_any = payload->is_shared && payload->sources == 0;
    if (node->links_end == 0 || (!is_any && payload->offered == 0)) return NO_PEER;
    const uint16_t start = (uint16_t)tw_rng_below(&node->rng, node->links_end);
    for (uint16_t i = 0; i < node->links_end; i++) {
        const uint16_t peer = (uint16_t)((start + i) % node->links_end);
        if (!may_be_source(node, payload, peer)) continue;
        if (!is_last && is_put_last(node, payload, peer)) continue;
        if ((payload->offered >> peer & 1) != 0) return peer;
        if (is_any && tw_peers_in_lineage(node, peer)) return peer;
    }
    return NO_PEER;
}

/* Returns another peer that may have the payload, or NO_PEER. Peers that are put last are asked
 * only when no other is left. */
static uint16_t find_source(struct tw_node *node, const struct payload *payload) {
    const uint16_t from = tw_peers_find(node, &payload->from);
    const bool is_sure = from != NO_PEER && may_be_source(node, payload, from);
    if (is_sure && !is_put_last(node, payload, from)) return from;
    /* Peers that may lack the payload are asked only if a peer announced it, or if the known holder
     * is silent. */
    const bool is_chance = !is_sure || payload->offered != 0 || node->links[from].is_silent;
    const uint16_t other = is_chance ? find_other(node, payload, false) : NO_PEER;
    if (other != NO_PEER) return other;
    if (is_sure) return from;
    return is_anybody_put_last(node, payload) ? find_other(node, payload, true) : NO_PEER;
}

/* True if a round of requests counts as failed: every peer was asked and no chunk arrived. In a
 * group without any linked peer it does not count, because holders may return. A node alone or in
 * pairs has no other holder to wait for. */
static bool is_failed_round(const struct tw_node *node, const struct payload *payload) {
    if (payload->is_put_off) return false;
    if (node->cfg.is_pair || node->roster.count == 1) return true;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_in_lineage(node, i)) return true;
    }
    return false;
}

static void choose_sources(struct tw_node *node, struct payload *payload) {
    const uint32_t most = payload->is_alone ? 1 : SOURCES_MAX;
    while (count_bits(payload->sources) < most) {
        const uint16_t peer = find_source(node, payload);
        if (peer == NO_PEER) break;
        payload->sources |= UINT64_C(1) << peer;
        payload->progress_us = node->now_us;
    }
    if (payload->sources != 0) return;
    if (node->now_us >= payload->progress_us + RETRY_US) { /* every peer was tried: start over */
        payload->tried = 0;
        payload->failed_rounds += is_failed_round(node, payload);
        payload->is_put_off = false;
        payload->progress_us = node->now_us;
    }
    tw_act_wake(node, payload->progress_us + RETRY_US);
}

/* Drops sources that do not deliver in time. */
static void judge_sources(struct tw_node *node, struct payload *payload) {
    const uint16_t at = idx_of(node, payload);
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        if ((payload->sources >> i & 1) == 0) continue;
        const bool has_others = (payload->sources & ~(UINT64_C(1) << i)) != 0;
        uint64_t patience_us = has_others ? PATIENCE_OTHERS_US : TRANSFER_TIMEOUT_US;
        if (patience_us < 4 * link->chunk_us) patience_us = 4 * link->chunk_us;
        uint64_t oldest_us = UINT64_MAX;
        for (uint32_t row = 0; row < link->pulls_count; row++) {
            const struct pull *pull = &link->pulls[row];
            if (pull->payload == at && pull->moved_us < oldest_us) oldest_us = pull->moved_us;
        }
        if (oldest_us == UINT64_MAX) continue;
        if (node->now_us >= oldest_us + patience_us) {
            link->is_silent = true;
            lose_source(node, payload, i);
        } else {
            tw_act_wake(node, oldest_us + patience_us);
        }
    }
}

/* Drops sources that do not deliver, and finds others. */
static void prepare_sources(struct tw_node *node, struct payload *payload) {
    judge_sources(node, payload);
    choose_sources(node, payload);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Marks chunks that need no request: stored, or requested already. */
static void mark_taken(const struct tw_node *node, const struct payload *payload,
                       uint64_t taken[TW_CHUNKS_MAX / 64]) {
    const uint16_t at = idx_of(node, payload);
    for (uint32_t i = 0; i < TW_CHUNKS_MAX / 64; i++) taken[i] = payload->have[i];
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct link *link = &node->links[i];
        for (uint32_t row = 0; (payload->sources >> i & 1) != 0 && row < link->pulls_count; row++) {
            const struct pull *pull = &link->pulls[row];
            if (pull->payload == at) taken[pull->chunk / 64] |= UINT64_C(1) << (pull->chunk % 64);
        }
    }
}

/* Returns the number of chunks of this payload that may be requested from the peer now. If other
 * payloads fill the peer's window, one more chunk is allowed: no payload waits until another is
 * whole. */
static uint32_t room_of(const struct tw_node *node, const struct payload *payload, uint16_t peer) {
    TW_ASSERT(peer < node->links_end);
    const struct link *link = &node->links[peer];
    const uint32_t most = window_of(link);
    if (link->pulls_count < most) return most - link->pulls_count;
    const uint16_t at = idx_of(node, payload);
    if (link->pulls_count == PULLS_MAX) return 0;
    for (uint32_t row = 0; row < link->pulls_count; row++) {
        if (link->pulls[row].payload == at) return 0;
    }
    return 1;
}

/* Charges up to `wanted` chunks to the download cap, and returns the number charged. The last one
 * may leave a debt, which delays the next request. */
static uint32_t pay_chunks(struct tw_node *node, uint32_t wanted) {
    struct tw_rate *download = node->cfg.download;
    if (download == NULL) return wanted;
    uint32_t paid = 0;
    for (; paid < wanted; paid++) {
        const uint64_t wait_us = tw_rate_wait_us(download, 1, node->now_us);
        if (wait_us > 0) {
            tw_act_wake(node, node->now_us + wait_us);
            break;
        }
        tw_rate_spend(download, TW_CHUNK_BYTES_MAX, node->now_us);
    }
    return paid;
}

/* Requests at most `count` chunks. Returns the number requested. */
static uint32_t request_chunks(struct tw_node *node, struct payload *payload, uint16_t peer,
                               uint32_t first, uint32_t count) {
    TW_ASSERT(count > 0 && first + count <= payload->chunks);
    struct link *link = &node->links[peer];
    struct tw_message *message = tw_act_message(node, TW_MSG_PULL);
    if (message == NULL) return 0; /* this event has no message left: the next walk retries */
    count = pay_chunks(node, count);
    if (count == 0) {
        TW_ASSERT(message + 1 == node->queue.messages + node->queue.messages_count);
        node->queue.messages_count--; /* gives the unused message back */
        return 0;
    }
    message->u.pull = (struct tw_msg_pull){.hash = payload->hash, .first = first, .count = count};
    tw_act_send(node, message, peer);
    for (uint32_t i = 0; i < count; i++) {
        TW_ASSERT(link->pulls_count < PULLS_MAX);
        link->pulls[link->pulls_count++] = (struct pull){.asked_us = node->now_us,
                                                         .moved_us = node->now_us,
                                                         .payload = idx_of(node, payload),
                                                         .chunk = (uint16_t)(first + i)};
    }
    payload->asked |= UINT64_C(1) << peer;
    payload->under_way += count;
    TW_ASSERT(payload->chunks_have + payload->under_way <= payload->chunks);
    return count;
}

/* Requests as many chunks from the sources as their windows allow. */
static void ask_chunks(struct tw_node *node, struct payload *payload) {
    uint64_t taken[TW_CHUNKS_MAX / 64];
    bool is_marked = false;
    for (uint16_t peer = 0; peer < node->links_end; peer++) {
        if ((payload->sources >> peer & 1) == 0) continue;
        uint32_t room = room_of(node, payload, peer), first = 0;
        while (room > 0 && payload->chunks_have + payload->under_way < payload->chunks) {
            if (!is_marked) mark_taken(node, payload, taken);
            is_marked = true;
            while ((taken[first / 64] >> (first % 64) & 1) != 0) first++;
            uint32_t count = 0;
            while (count < room && count < PULL_RUN_MAX && first + count < payload->chunks &&
                   (taken[(first + count) / 64] >> ((first + count) % 64) & 1) == 0)
                count++;
            count = request_chunks(node, payload, peer, first, count);
            if (count == 0) return;
            for (uint32_t i = 0; i < count; i++)
                taken[(first + i) / 64] |= UINT64_C(1) << ((first + i) % 64);
            room -= count;
        }
    }
}

/* ==== the payload table ======================================================================= */

/* Payloads, which are bytes named by SHA-256: fetching, keeping and serving them.
 *
 *   FREE -> WANTED      this node needs it: EXPECT makes room, PULL asks a holder for chunks
 *   WANTED -> CHECKING  the last chunk arrived: VERIFY
 *   CHECKING -> HELD    SHA-256 and trial decode are right
 *   CHECKING -> UNFIT   SHA-256 is right but the bytes do not decode: no node has better ones
 *   CHECKING -> WANTED  SHA-256 is wrong: fetched from another holder
 *   any -> FREE         this node does not need it any more: DROP */

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
    forget_sources(node, payload);
    if (payload->is_expected || payload->state == PAYLOAD_HELD)
        tw_act_payload(node, TW_ACT_DROP, payload);
    TW_ASSERT(payload->under_way == 0 && payload->sources == 0);
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
        TW_ASSERT(payload->chunks <= TW_CHUNKS_MAX);
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
    TW_ASSERT(part->bytes > 0);
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
    if (payload != NULL) forget_sources(node, payload);
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

enum tw_drop tw_payload_chunk(struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                              uint32_t idx) {
    node->links[peer].received_us = node->now_us;
    if (!tw_payload_wants_chunk(node, peer, hash, idx)) return TW_DROP_UNASKED;
    struct payload *payload = tw_payload_find(node, hash);
    payload->have[idx / 64] |= UINT64_C(1) << (idx % 64);
    payload->chunks_have++;
    TW_ASSERT(payload->chunks_have <= payload->chunks);
    payload->failed_rounds = 0;
    payload->progress_us = node->lineage.moved_us = node->now_us;
    note_arrival(node, payload, peer, idx);
    if (payload->chunks_have == payload->chunks) forget_sources(node, payload);
    if (payload->chunks_have == payload->chunks && TW_IS_MUTANT(node, TW_MUTANT_UNVERIFIED)) {
        payload->state = PAYLOAD_HELD;
    } else if (payload->chunks_have == payload->chunks) {
        payload->state = PAYLOAD_CHECKING;
        tw_act_payload(node, TW_ACT_VERIFY, payload);
    }
    return TW_DROP_NONE;
}

/* Starts again: the bytes were wrong, or the runtime has no room for them. */
static void begin_anew(struct tw_node *node, struct payload *payload, bool is_wrong) {
    TW_ASSERT(payload->state == PAYLOAD_WANTED);
    if (is_wrong && payload->is_mixed && !payload->is_alone) {
        payload->is_alone =
            true; /* one of several peers sent wrong bytes, and it is not known which */
    } else {
        payload->tried |= payload->sources | payload->senders;
    }
    forget_sources(node, payload);
    payload->asked = payload->senders = 0;
    payload->is_mixed = false;
    payload->chunks_have = 0;
    payload->progress_us = node->now_us;
    for (uint32_t i = 0; i < TW_CHUNKS_MAX / 64; i++) payload->have[i] = 0;
}

enum tw_drop tw_payload_verified(struct tw_node *node, const struct tw_event *event) {
    struct payload *payload = tw_payload_find(node, &event->u.chunk.hash);
    const bool ok = event->ok;
    if (payload == NULL) return TW_DROP_UNKNOWN;
    /* If the payload is not CHECKING, a refusal means that the runtime had no room for it. */
    if (payload->state == PAYLOAD_CHECKING && ok) {
        payload->state = PAYLOAD_HELD;
        const bool is_result = payload->content == TW_CONTENT_RESULT;
        payload->sanity = is_result ? event->u.chunk.sanity : TW_SANITY_FAIR;
        return TW_DROP_NONE;
    }
    if (payload->state >= PAYLOAD_HELD || ok) return TW_DROP_UNASKED;
    if (payload->state == PAYLOAD_CHECKING && event->u.chunk.is_unfit) {
        tw_act_payload(node, TW_ACT_DROP, payload);
        payload->is_expected = false;
        payload->state = PAYLOAD_UNFIT;
        return TW_DROP_NONE;
    }
    if (payload->is_expected) tw_act_payload(node, TW_ACT_DROP, payload);
    payload->is_expected = false;
    const bool is_wrong = payload->state == PAYLOAD_CHECKING;
    payload->state = PAYLOAD_WANTED;
    payload->is_put_off = !is_wrong;
    begin_anew(node, payload, is_wrong);
    return TW_DROP_NONE;
}

/* Keeps the payload for a slow peer, unless the table is half full: peers must not fill it by
 * pulling. */
static void keep_until(struct tw_node *node, struct payload *payload, uint64_t until_us) {
    const bool has_room = node->payloads_end <= TW_PAYLOADS_MAX / 2;
    TW_ASSERT(payload->state != PAYLOAD_FREE);
    if (has_room && payload->keep_us < until_us) payload->keep_us = until_us;
}

void tw_payload_release(struct tw_node *node, struct payload *payload, uint16_t peer) {
    TW_ASSERT(peer < TW_PEERS_MAX);
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

enum tw_drop tw_payload_pull(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_pull *request) {
    struct payload *payload = tw_payload_find(node, &request->hash);
    if (payload == NULL || payload->state != PAYLOAD_HELD) {
        struct tw_message *message = tw_act_message(node, TW_MSG_MISSING);
        if (message != NULL) message->u.missing = (struct tw_msg_missing){.hash = request->hash};
        tw_act_send(node, message, peer);
        return TW_DROP_UNKNOWN;
    }
    if (request->count == 0 || request->count > PULL_RUN_MAX || request->first >= payload->chunks ||
        request->count > payload->chunks - request->first) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
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
    return TW_DROP_NONE;
}

enum tw_drop tw_payload_missing(struct tw_node *node, uint16_t peer, const struct tw_id *hash) {
    struct payload *payload = tw_payload_find(node, hash);
    if (payload == NULL || payload->state != PAYLOAD_WANTED) return TW_DROP_UNASKED;
    payload->offered &= ~(UINT64_C(1) << peer);
    payload->lacking |= UINT64_C(1) << peer;
    lose_source(node, payload, peer);
    return TW_DROP_NONE;
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
        lose_source(node, payload, peer);
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
    prepare_sources(node, payload);
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
                ask_chunks(node, arriving[i]);
        }
    }
}
