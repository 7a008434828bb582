/* state_transfer.c - (phi, u) of a fragment, given to other nodes and fetched from them, and the
 * word of other voters on a fetched state. */
#include "sync/transfer/state_transfer.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/transfer/payload.h"
#include "sync/transfer/state_proof.h"

/* ==== the word of other voters ================================================================ */

/* The word of other voters on a state that one donor offers.
 *
 * A donor may lie, and its bytes match the digest that it names. So a node that fetches a state
 * meanwhile asks other voters which (phi, u) they had after the same rounds: STATE_GET with
 * `rounds`. Nothing is packed or sent for that; each voter remembers the digests of its last
 * states, as many as it keeps records. f is the number of voters that may lie.
 *
 *   proven      a decided record names the digest (state_proof.h); nobody else is asked then
 *   borne out   more than f voters say the same as the donor, which counts if it is a voter. If
 *               fewer than f + 1 voters are linked for WITNESS_LINKS_US, all linked ones do, and no
 *               record to come can prove the state
 *   refuted     a decided record names another digest; or more than f voters, and more than bear
 *               it out, say otherwise: the state is dropped, and the donor is reported and rests
 *   unheard     neither after WITNESS_PATIENCE_US: the donor rests, and another one is asked. If no
 *               other is left, and nobody objects, the state is taken
 *
 * A state that more than f voters bore out, f > 0, counts as proven. Any other is once the record
 * of the fragment's next round names it, or that round shows that most voters have the same anchor
 * (round/round.c). If they have another one, the donor is reported then. A node is no witness of a
 * state that is not proven: with its donor's word, one liar would have many. */

enum witness {
    WITNESS_WAITING,
    WITNESS_BORNE_OUT,
    WITNESS_REFUTED,
    WITNESS_CONTESTED, /* unheard, and somebody objects or another donor may be borne out */
};

#define WITNESS_ASK_US (5 * SECOND_US) /* time between two questions to one voter */
/* Time after which a state that too few voters spoke of is given up, or taken. */
#define WITNESS_PATIENCE_US (15 * SECOND_US)
/* Time for which links to more voters are awaited, once for all fragments of a state. */
#define WITNESS_LINKS_US (15 * SECOND_US)

/* ---- the witness ----------------------------------------------------------------------------- */

/* Rounds that the (phi, u) of a fragment held by this node includes, as STATE tells them. */
static uint64_t rounds_held(const struct tw_node *node, uint32_t fragment) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    const uint64_t rounds = node->at.fragment_rounds[fragment];
    return rounds < node->at.first_round ? node->at.first_round : rounds;
}

static uint64_t key_of(const struct tw_node *node) {
    return tw_get_u64(node->at.lineage.bytes);
}

void tw_witness_remember(struct tw_node *node, uint32_t fragment) {
    TW_ASSERT(node->old_states.next < TW_ROUNDS_KEPT);
    struct state_memory *const newest = &node->memory[fragment];
    if (node->at.fragment_rounds[fragment] == NOT_HELD) return;
    const struct state_memory state = {.lineage_key = key_of(node),
                                       .rounds = rounds_held(node, fragment),
                                       .digest = node->at.fragment_digests[fragment],
                                       .fragment = fragment};
    if (!tw_id_is_zero(&newest->digest) && !tw_id_equal(&newest->digest, &state.digest)) {
        node->old_states.rows[node->old_states.next] = *newest;
        node->old_states.next = (node->old_states.next + 1) % TW_ROUNDS_KEPT;
    }
    *newest = state;
}

/* True if the fragment has the same state after so many rounds of the lineage: they differ only in
 * rounds of other fragments. */
static bool is_same_state(const struct tw_node *node, uint32_t fragment, uint64_t rounds,
                          uint64_t others) {
    return tw_progress_from(node, fragment, rounds) == tw_progress_from(node, fragment, others);
}

/* Returns the digest of this node's (phi, u) of the fragment after so many rounds, or NULL. */
static const struct tw_id *remembered(const struct tw_node *node, uint32_t fragment,
                                      uint64_t rounds) {
    if (node->at.fragment_rounds[fragment] != NOT_HELD &&
        is_same_state(node, fragment, rounds_held(node, fragment), rounds))
        return &node->at.fragment_digests[fragment];
    for (uint32_t i = 0; i < TW_ROUNDS_KEPT; i++) {
        const struct state_memory *const row = &node->old_states.rows[i];
        if (row->fragment == fragment && row->lineage_key == key_of(node) &&
            !tw_id_is_zero(&row->digest) && is_same_state(node, fragment, row->rounds, rounds))
            return &row->digest;
    }
    return NULL;
}

/* Answers a STATE_GET with `rounds`, if this node remembers its state after these rounds. */
static enum tw_drop bear_witness(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_state_get *get) {
    if (get->rounds > ROUNDS_MAX) return TW_DROP_IMPOSSIBLE;
    const struct tw_id *digest = remembered(node, get->fragment, get->rounds);
    if (digest == NULL || node->fetch[get->fragment].is_unproven) return TW_DROP_UNKNOWN;
    struct tw_message *message = tw_act_message(node, TW_MSG_STATE);
    if (message == NULL) return TW_DROP_NONE;
    message->u.state = (struct tw_msg_state){.lineage = node->at.lineage,
                                             .fragment = get->fragment,
                                             .rounds = get->rounds,
                                             .digest = *digest};
    tw_act_send(node, message, peer);
    return TW_DROP_NONE;
}

/* ---- the node that fetches ------------------------------------------------------------------- */

/* Set of linked peers whose word counts: voters of the lineage that hold their state. */
static uint64_t witnesses(const struct tw_node *node) {
    uint64_t peers = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i) && tw_membership_voter(node, i) >= 0)
            peers |= UINT64_C(1) << i;
    }
    return peers;
}

/* Call when the donor `peer` has made an offer, which is in node->fetch[fragment]. */
static void call_witnesses(struct tw_node *node, uint32_t fragment, uint16_t peer) {
    TW_ASSERT(node->fetch[fragment].has_offer);
    struct state_fetch *fetch = &node->fetch[fragment];
    fetch->agreeing = UINT64_C(1) << peer;
    fetch->objecting = 0;
    fetch->witness_us = fetch->here_us = 0;
}

/* Takes the word of a peer on the state that is being fetched. */
static enum tw_drop hear_witness(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_state *state) {
    struct state_fetch *fetch = &node->fetch[state->fragment];
    const uint64_t bit = UINT64_C(1) << peer;
    if (!fetch->has_offer || state->rounds != fetch->offer.rounds) return TW_DROP_UNUSABLE;
    if (((fetch->agreeing | fetch->objecting) & bit) != 0)
        return TW_DROP_TWICE; /* its first word counts */
    if (tw_id_equal(&state->digest, &fetch->offer.digest))
        fetch->agreeing |= bit;
    else
        fetch->objecting |= bit;
    TW_ASSERT((fetch->agreeing & fetch->objecting) == 0);
    return TW_DROP_NONE;
}

/* Forgets the word of a peer whose number may be given to another link. */
static void forget_witness(struct tw_node *node, uint16_t peer) {
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        node->fetch[p].agreeing &= ~(UINT64_C(1) << peer);
        node->fetch[p].objecting &= ~(UINT64_C(1) << peer);
    }
}

/* Asks as many voters as could be needed at most. */
static void ask(struct tw_node *node, uint32_t fragment, uint64_t voters, uint32_t liars) {
    struct state_fetch *fetch = &node->fetch[fragment];
    const uint64_t silent = voters & ~(fetch->agreeing | fetch->objecting);
    uint32_t left = 2 * liars + 1;
    if (fetch->witness_us != 0 && node->now_us < fetch->witness_us + WITNESS_ASK_US) {
        tw_act_wake(node, fetch->witness_us + WITNESS_ASK_US);
        return;
    }
    if (silent == 0) return;
    fetch->witness_us = node->now_us;
    tw_act_wake(node, node->now_us + WITNESS_ASK_US);
    const uint32_t start = (uint32_t)tw_rng_below(&node->rng, TW_PEERS_MAX);
    for (uint32_t i = 0; i < TW_PEERS_MAX && left > 0; i++) {
        const uint16_t peer = (uint16_t)((start + i) % TW_PEERS_MAX);
        if ((silent >> peer & 1) == 0) continue;
        struct tw_message *message = tw_act_message(node, TW_MSG_STATE_GET);
        if (message == NULL) return;
        message->u.state_get = (struct tw_msg_state_get){.lineage = node->at.lineage,
                                                         .digest = fetch->offer.digest,
                                                         .wanted = fetch->offer.digest,
                                                         .rounds = fetch->offer.rounds,
                                                         .fragment = fragment};
        tw_act_send(node, message, peer);
        left--;
    }
}

/* Returns how many voters must agree: one more than may lie. If fewer are linked, all of them must,
 * but only after a while in which more may link: the first links may all be to liars. */
static uint32_t count_needed(struct tw_node *node, uint32_t linked) {
    /* A lineage that has decided no round has no voters yet. */
    const uint32_t needed = node->voters != 0 ? tw_membership_liars_max(node) + 1 : 0;
    if (linked >= needed) {
        node->few_witnesses_us = 0;
        return needed;
    }
    if (node->few_witnesses_us == 0) node->few_witnesses_us = node->now_us;
    const uint64_t end_us = node->few_witnesses_us + WITNESS_LINKS_US;
    if (node->now_us >= end_us) return linked;
    tw_act_wake(node, end_us);
    return needed;
}

/* True if another donor is linked and does not rest: somebody may bear out its state. */
static bool has_other_donor(const struct tw_node *node, const struct tw_id *donor) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i) && !tw_id_equal(&node->links[i].id, donor) &&
            !tw_conduct_is_resting(node, &node->links[i].id))
            return true;
    }
    return false;
}

/* True if too few voters spoke of the state, but a record to come may prove it. Once the bytes are
 * here, this node is owed no data until then. */
static bool must_await_record(struct tw_node *node, uint32_t fragment, bool is_here) {
    const bool is_to_come = tw_state_is_provable(node, fragment);
    if (is_to_come && is_here) node->lineage.moved_us = node->now_us;
    return is_to_come;
}

/* Asks voters that have not answered, and returns the verdict so far. `is_here`: the bytes have
 * arrived, so that nothing else is waited for. */
static enum witness judge_witnesses(struct tw_node *node, uint32_t fragment, bool is_here) {
    struct state_fetch *fetch = &node->fetch[fragment];
    const uint64_t voters = witnesses(node);
    const uint32_t liars = tw_membership_liars_max(node), linked = tw_bits(voters);
    const uint32_t agreeing = tw_bits(fetch->agreeing & voters),
                   objecting = tw_bits(fetch->objecting & voters);
    if (objecting > liars && objecting > agreeing) return WITNESS_REFUTED;
    const uint32_t needed = count_needed(node, linked);
    const bool is_enough = agreeing >= needed && agreeing >= objecting;
    if (is_enough && (agreeing > liars || !must_await_record(node, fragment, is_here)))
        return WITNESS_BORNE_OUT;
    ask(node, fragment, voters, liars);
    if (!is_here || linked < needed || is_enough) return WITNESS_WAITING;
    if (fetch->here_us == 0) fetch->here_us = node->now_us;
    if (node->now_us < fetch->here_us + WITNESS_PATIENCE_US) {
        tw_act_wake(node, fetch->here_us + WITNESS_PATIENCE_US);
        return WITNESS_WAITING;
    }
    if (objecting > 0 || has_other_donor(node, &fetch->donor)) return WITNESS_CONTESTED;
    return must_await_record(node, fragment, is_here) ? WITNESS_WAITING : WITNESS_BORNE_OUT;
}

/* Returns the word of the decided records on an offer, or else that of other voters. */
static enum witness judge_offer(struct tw_node *node, uint32_t fragment, bool is_here) {
    if (node->cfg.is_pair || tw_id_equal(&node->fetch[fragment].donor, &node->cfg.self) ||
        TW_IS_MUTANT(node, TW_MUTANT_DONOR_BELIEVED))
        return WITNESS_BORNE_OUT;
    switch (tw_state_prove(node, fragment)) {
    case TW_STATE_PROVEN: return WITNESS_BORNE_OUT;
    case TW_STATE_REFUTED: return WITNESS_REFUTED;
    case TW_STATE_AWAITED: return WITNESS_WAITING;
    case TW_STATE_UNPROVEN: break;
    }
    return judge_witnesses(node, fragment, is_here);
}

/* True if so many voters bear out the state about to be loaded that one of them is honest. Where no
 * voter may lie, the donor alone would be enough, which proves nothing. */
static bool is_proven(struct tw_node *node, uint32_t fragment) {
    const struct state_fetch *fetch = &node->fetch[fragment];
    const uint32_t liars = tw_membership_liars_max(node);
    if (tw_id_equal(&fetch->donor, &node->cfg.self)) return true;
    if (tw_state_prove(node, fragment) == TW_STATE_PROVEN) return true;
    return liars > 0 && tw_bits(fetch->agreeing & witnesses(node)) > liars;
}

void tw_state_accuse(struct tw_node *node, const struct tw_id *id, uint32_t fragment) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    tw_conduct_note_donor(node, id);
    struct tw_report *report = tw_act_report(node, TW_REPORT_FALSE_STATE, id);
    if (report != NULL) report->part = fragment;
}

/* ==== giving and fetching ===================================================================== */

/* (phi, u) of a fragment, given to other nodes and fetched from them.
 *
 *   ask      STATE_GET goes to one member. The answer is "nothing to transfer", or the name of a
 *            packed (phi, u).
 *   fetch    Its chunks are pulled. STATE_GET with the digest (`wanted`) finds members with the
 *            same (phi, u). Packing is deterministic, so all of them serve the same name.
 *   cut off  If the link breaks, received chunks stay, and `wanted` finds another holder. The
 *            state changes with every round, so a donor (the node that gives its state) keeps the
 *            state that a peer was pulling.
 *   lost     No node has the rest: another state is fetched.
 *   load     Happens at a step boundary. Rounds decided meanwhile are replayed from their results.
 */

/* Time without a source after which another state is fetched. */
#define STATE_LOST_US (10 * SECOND_US)
#define STATE_OTHERS_US (5 * SECOND_US) /* time between two searches for more sources */
/* Time for which other holders of a state are looked for, once its donor has dropped it. */
#define STATE_GONE_US (2 * RETRY_US)

/* ---- donor ----------------------------------------------------------------------------------- */

static void send_state(struct tw_node *node, uint16_t peer, const struct tw_msg_state *offer) {
    struct tw_message *message = tw_act_message(node, TW_MSG_STATE);
    if (message == NULL) return;
    message->u.state = *offer;
    tw_act_send(node, message, peer);
}

/* Offers the (phi, u) of this digest again, if this node still holds its packed payload. */
static bool offer_again(struct tw_node *node, uint16_t peer, const struct tw_msg_state *offer,
                        const struct tw_id *wanted) {
    if (offer->bytes == 0 || !tw_id_equal(&offer->digest, wanted)) return false;
    struct payload *payload = tw_payload_find(node, &offer->hash);
    if (payload == NULL || payload->state != PAYLOAD_HELD) return false;
    if (payload->keep_us < node->now_us + STATE_KEEP_US)
        payload->keep_us = node->now_us + STATE_KEEP_US;
    send_state(node, peer, offer);
    return true;
}

/* Notes that the peer no longer pulls other states. Fragments are fetched one by one, so a peer
 * that asks for this fragment most likely has all states that it pulled before. */
static void release_others(struct tw_node *node, uint16_t peer, const struct state_export *asked) {
    const uint64_t self = UINT64_C(1) << peer;
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state != PAYLOAD_HELD || payload->packed == 0) continue;
        if ((payload->pullers & self) == 0) continue;
        if (tw_id_equal(&payload->hash, &asked->offer.hash) ||
            tw_id_equal(&payload->hash, &asked->old.hash))
            continue;
        payload->pullers &= ~self;
        payload->is_left = payload->pullers == 0;
    }
}

enum tw_drop tw_state_get(struct tw_node *node, uint16_t peer, const struct tw_msg_state_get *get) {
    if (!tw_id_equal(&get->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (get->fragment >= node->cfg.fragments_count) return TW_DROP_IMPOSSIBLE;
    if (node->state == TW_STATE_RECEIVER || !node->worker.is_up ||
        node->at.fragment_rounds[get->fragment] == NOT_HELD)
        return TW_DROP_NOT_READY;
    if (get->rounds != 0) return bear_witness(node, peer, get);
    tw_peers_hold_solo_for(node, peer, SOLO_HOLD_US);
    release_others(node, peer, &node->exports[get->fragment]);
    const struct tw_id *digest = &node->at.fragment_digests[get->fragment];
    struct state_export *export = &node->exports[get->fragment];
    if (!tw_id_is_zero(&get->wanted)) {
        if (offer_again(node, peer, &export->offer, &get->wanted) ||
            offer_again(node, peer, &export->old, &get->wanted))
            return TW_DROP_NONE;
        if (!tw_id_equal(&get->wanted, digest))
            return TW_DROP_UNKNOWN; /* another node may have the requested state */
    }
    if (tw_id_equal(&get->digest, digest) && !tw_progress_is_applying(node, get->fragment)) {
        send_state(node, peer,
                   &(struct tw_msg_state){.lineage = node->at.lineage,
                                          .fragment = get->fragment,
                                          .rounds = rounds_held(node, get->fragment),
                                          .digest = *digest});
        return TW_DROP_NONE;
    }
    export->waiting |= UINT64_C(1) << peer;
    return TW_DROP_NONE;
}

void tw_state_refused(struct tw_node *node, uint16_t peer) {
    node->links[peer].refused_us = node->now_us;
}

void tw_state_peer_status(struct tw_node *node, uint16_t peer) {
    if (!tw_peers_is_donor(node, peer)) return;
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_HELD && payload->packed > 0)
            tw_payload_release(node, payload, peer);
    }
}

void tw_state_peer_down(struct tw_node *node, uint16_t peer) {
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        node->exports[p].waiting &= ~(UINT64_C(1) << peer);
    forget_witness(node, peer);
}

/* True if there is room to pack another state. A peer may pull a kept state for any time, and too
 * many kept states would use up the room of rounds. Sizes count in unpacked elements. */
static bool has_room(struct tw_node *node, uint32_t fragment) {
    uint64_t kept = 0, until_us = UINT64_MAX;
    TW_ASSERT(!node->worker.is_exporting);
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        if (payload->state != PAYLOAD_HELD || payload->packed == 0) continue;
        if (payload->keep_us <= node->now_us) continue;
        kept += payload->packed;
        if (payload->keep_us < until_us) until_us = payload->keep_us;
    }
    const uint64_t most = tw_progress_kept(node).states - node->cfg.fragment_elements[fragment];
    for (uint32_t i = 0; i < node->payloads_end && kept > most; i++) {
        struct payload *payload = &node->payloads[i];
        if (!payload->is_left || payload->keep_us <= node->now_us) continue;
        payload->keep_us = node->now_us;
        kept -= payload->packed;
    }
    if (kept <= most) return true;
    tw_act_wake(node, until_us);
    return false;
}

/* Packs one fragment at a time, and only while no merge is changing it. */
void tw_state_export(struct tw_node *node) {
    if (!node->worker.is_up || node->worker.is_exporting) return;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        struct state_export *export = &node->exports[p];
        if (export->waiting == 0 || tw_progress_is_applying(node, p)) continue;
        if (node->at.fragment_rounds[p] == NOT_HELD || node->state == TW_STATE_RECEIVER) {
            export->waiting = 0;
            continue;
        }
        if (export->is_valid && tw_payload_is_held(node, &export->offer.hash)) {
            for (uint16_t i = 0; i < node->links_end; i++) {
                if ((export->waiting >> i & 1) != 0) send_state(node, i, &export->offer);
            }
            export->waiting = 0;
            continue;
        }
        if (!has_room(node, p)) continue;
        struct tw_action *action = tw_act_body(node, TW_ACT_EXPORT);
        action->u.export.fragment = p;
        node->worker.is_exporting = true;
        return;
    }
}

void tw_state_exported(struct tw_node *node, const struct tw_event *event) {
    const uint32_t fragment = event->u.exported.fragment;
    TW_ASSERT(fragment < node->cfg.fragments_count);
    node->worker.is_exporting = false;
    struct state_export *export = &node->exports[fragment];
    struct payload *payload = NULL;
    if (event->ok) {
        tw_payload_hold(node, &event->u.exported.hash, event->u.exported.bytes, TW_CONTENT_OPAQUE,
                        0, 0);
        payload = tw_payload_find(node, &event->u.exported.hash);
    }
    if (payload == NULL) { /* no room now: the peers will ask again */
        export->waiting = 0;
        return;
    }
    payload->keep_us = node->now_us + STATE_KEEP_US;
    TW_ASSERT(payload->state == PAYLOAD_HELD);
    payload->packed = node->cfg.fragment_elements[fragment];
    payload->fragment = fragment;
    if (!tw_id_equal(&export->offer.hash, &event->u.exported.hash)) export->old = export->offer;
    /* If a merge was applied meanwhile, the packed state is outdated and is packed again. */
    export->is_valid = tw_id_equal(&event->u.exported.digest, &node->at.fragment_digests[fragment]);
    export->offer = (struct tw_msg_state){.lineage = node->at.lineage,
                                          .fragment = fragment,
                                          .rounds = rounds_held(node, fragment),
                                          .digest = event->u.exported.digest,
                                          .hash = event->u.exported.hash,
                                          .bytes = event->u.exported.bytes};
}

/* ---- receiver -------------------------------------------------------------------------------- */

void tw_state_refetch(struct tw_node *node, uint32_t fragment, enum tw_load_mode mode) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    struct state_fetch *fetch = &node->fetch[fragment];
    if (node->at.is_moving != 0) mode = TW_LOAD_KEEP;
    /* If an earlier fetch of this fragment has not finished, the smaller of the two modes is used:
     * a smaller mode keeps less of theta. */
    if (node->at.fragment_rounds[fragment] != NOT_HELD || mode < fetch->mode) fetch->mode = mode;
    node->at.fragment_rounds[fragment] = NOT_HELD;
    fetch->has_offer = false;
    fetch->asked_us = 0;
    node->exports[fragment].is_valid = false;
    tw_membership_derive_state(node);
}

/* Notes another holder of the state that is being fetched. Returns false if the peer is none. */
static bool note_donor(struct tw_node *node, uint16_t peer, const struct state_fetch *fetch,
                       const struct tw_msg_state *state) {
    struct payload *payload = tw_payload_find(node, &fetch->offer.hash);
    if (!tw_id_equal(&state->hash, &fetch->offer.hash) || state->bytes != fetch->offer.bytes)
        return false;
    if (payload == NULL || payload->state != PAYLOAD_WANTED) return false;
    payload->offered |= UINT64_C(1) << peer;
    payload->lacking &= ~(UINT64_C(1) << peer);
    return true;
}

/* Drops the arrived part of a state that was given up for another one. */
static void drop_old(struct tw_node *node, const struct state_fetch *fetch,
                     const struct tw_msg_state *state) {
    struct payload *payload = tw_payload_find(node, &fetch->offer.hash);
    if (payload != NULL && payload->state == PAYLOAD_WANTED &&
        payload->content == TW_CONTENT_OPAQUE && !tw_id_equal(&fetch->offer.hash, &state->hash))
        payload->keep_us = node->now_us;
}

/* True if the offered state is too old: older than this node's weights of this lineage, or so old
 * that the log lacks the rounds after it. */
static bool is_behind(const struct tw_node *node, const struct tw_msg_state *state) {
    const uint64_t next = tw_progress_next(node, state->fragment, state->rounds);
    const struct tw_record *held = &node->at.held;
    if (next == UINT64_MAX) return false;
    if (node->at.has_held != 0 && tw_id_equal(&held->lineage, &node->at.lineage) &&
        next <= held->round)
        return true;
    return next == 0 ? node->log.begin > 0 : tw_progress_record(node, next - 1) == NULL;
}

/* True if the offered state includes a round of its fragment that this node does not know to be
 * decided. Another donor may know it already, but no witness could speak of a round to come. */
static bool is_ahead(const struct tw_node *node, const struct tw_msg_state *state) {
    return !node->cfg.is_pair && tw_progress_from(node, state->fragment, state->rounds) >
                                     tw_progress_from(node, state->fragment, node->at.rounds);
}

enum tw_drop tw_state_offer(struct tw_node *node, uint16_t peer, const struct tw_msg_state *state) {
    if (!tw_id_equal(&state->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (state->fragment >= node->cfg.fragments_count) return TW_DROP_IMPOSSIBLE;
    if (!tw_payload_is_possible(node, TW_CONTENT_OPAQUE,
                                node->cfg.fragment_elements[state->fragment], state->bytes)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    tw_state_told(node, peer, state);
    if (node->at.fragment_rounds[state->fragment] != NOT_HELD) return TW_DROP_UNASKED;
    struct state_fetch *fetch = &node->fetch[state->fragment];
    if (fetch->asked_us == 0 || !tw_peers_is_donor(node, peer)) return TW_DROP_UNASKED;
    if (fetch->has_offer) {
        const enum tw_drop why = hear_witness(node, peer, state);
        const bool is_donor = note_donor(node, peer, fetch, state);
        return is_donor ? TW_DROP_NONE : why;
    }
    /* The peer's last STATUS may be slightly older than this offer. If the offer says that there is
     * nothing to transfer, the digests must agree. */
    if (state->rounds > node->links[peer].status.rounds + TW_ROUNDS_KEPT ||
        (state->bytes == 0 &&
         !tw_id_equal(&state->digest, &node->at.fragment_digests[state->fragment])) ||
        is_behind(node, state) || is_ahead(node, state))
        return TW_DROP_UNUSABLE;
    drop_old(node, fetch, state);
    fetch->has_offer = true;
    fetch->donor = node->links[peer].id;
    fetch->offer = *state;
    fetch->fed_us = node->now_us;
    fetch->fed_chunks = UINT32_MAX; /* chunks already received count as progress */
    fetch->others_us = 0;
    call_witnesses(node, state->fragment, peer);
    return TW_DROP_NONE;
}

/* Asks a member for the state of a fragment: any, or the one with digest `wanted`. Returns false if
 * this event has no room for a message. */
static bool ask_peer(struct tw_node *node, uint16_t peer, uint32_t fragment,
                     const struct tw_id *wanted) {
    struct tw_message *message = tw_act_message(node, TW_MSG_STATE_GET);
    if (message == NULL) return false;
    message->u.state_get = (struct tw_msg_state_get){.lineage = node->at.lineage,
                                                     .digest = node->at.fragment_digests[fragment],
                                                     .fragment = fragment};
    if (wanted != NULL) message->u.state_get.wanted = *wanted;
    tw_act_send(node, message, peer);
    return true;
}

uint16_t tw_state_choose_donor(struct tw_node *node) {
    if (node->links_end == 0) return NO_PEER;
    const uint16_t start = (uint16_t)tw_rng_below(&node->rng, node->links_end);
    uint16_t resting = NO_PEER;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const uint16_t peer = (uint16_t)((start + i) % node->links_end);
        if (!tw_peers_is_donor(node, peer)) continue;
        if (!tw_conduct_is_resting(node, &node->links[peer].id)) return peer;
        if (resting == NO_PEER) resting = peer;
    }
    return resting;
}

static void ask_for_state(struct tw_node *node, uint32_t fragment) {
    struct state_fetch *fetch = &node->fetch[fragment];
    if (fetch->asked_us != 0 && node->now_us < fetch->asked_us + RETRY_US) {
        tw_act_wake(node, fetch->asked_us + RETRY_US);
        return;
    }
    if (node->links_end == 0) return;
    const uint16_t peer = tw_state_choose_donor(node);
    if (peer == NO_PEER || !ask_peer(node, peer, fragment, NULL)) return;
    fetch->asked_us = node->now_us;
    tw_act_wake(node, node->now_us + RETRY_US);
}

/* Looks periodically for more holders of the state that is being fetched, up to SOURCES_MAX. */
static void ask_others(struct tw_node *node, uint32_t fragment, const struct payload *payload) {
    struct state_fetch *fetch = &node->fetch[fragment];
    const uint64_t pause_us = payload->sources == 0 ? RETRY_US : STATE_OTHERS_US;
    if (payload->chunks == 1 || node->links_end == 0) return;
    uint32_t missing = SOURCES_MAX;
    for (uint64_t set = payload->sources; set != 0 && missing > 0; set &= set - 1) missing--;
    if (missing == 0) return;
    if (fetch->others_us != 0 && node->now_us < fetch->others_us + pause_us) {
        tw_act_wake(node, fetch->others_us + pause_us);
        return;
    }
    fetch->others_us = node->now_us;
    const uint16_t start = (uint16_t)tw_rng_below(&node->rng, node->links_end);
    for (uint16_t i = 0; i < node->links_end && missing > 0; i++) {
        const uint16_t peer = (uint16_t)((start + i) % node->links_end);
        if (!tw_peers_is_donor(node, peer) || (payload->sources >> peer & 1) != 0) continue;
        if (!ask_peer(node, peer, fragment, &fetch->offer.digest)) return;
        missing--;
    }
    tw_act_wake(node, fetch->others_us + pause_us);
}

static bool has_donor(const struct tw_node *node) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i)) return true;
    }
    return false;
}

/* True if the transfer makes progress: a chunk arrived, or a peer is asked for the first time since
 * then. A peer that is asked repeatedly without an answer is no progress. */
static bool is_fed(struct state_fetch *fetch, const struct payload *payload) {
    if (payload->chunks_have != fetch->fed_chunks) {
        fetch->fed_chunks = payload->chunks_have;
        fetch->fed_failed_rounds = payload->failed_rounds;
        return true;
    }
    return payload->sources != 0 && payload->failed_rounds == fetch->fed_failed_rounds;
}

/* True if no linked peer has the rest of the state. Without a linked donor there is no other state
 * to fetch either, except in pairs, where every node is the donor of its own state. */
static bool is_rest_lost(struct tw_node *node, struct state_fetch *fetch,
                         const struct payload *payload) {
    const bool is_waiting = !node->cfg.is_pair && !has_donor(node);
    const uint16_t donor = tw_peers_find(node, &fetch->donor);
    if (is_fed(fetch, payload) || is_waiting) fetch->fed_us = node->now_us;
    if (payload->sources != 0) return false;
    if (donor != NO_PEER && (payload->lacking >> donor & 1) != 0) {
        if (node->now_us >= fetch->fed_us + STATE_GONE_US) return true;
        tw_act_wake(node, fetch->fed_us + STATE_GONE_US);
    }
    if (payload->failed_rounds <= 1) return false;
    if (payload->chunks_have == 0) return true;
    if (node->now_us >= fetch->fed_us + STATE_LOST_US) return true;
    tw_act_wake(node, fetch->fed_us + STATE_LOST_US);
    return false;
}

/* True if this node holds the fragment's bytes, or needs none. */
static bool fetch_state(struct tw_node *node, uint32_t fragment) {
    struct state_fetch *fetch = &node->fetch[fragment];
    if (fetch->offer.bytes == 0) return true;
    struct payload *payload =
        tw_payload_want(node, &fetch->offer.hash, fetch->offer.bytes, TW_CONTENT_OPAQUE, 0);
    if (payload == NULL) return false;
    payload->from = fetch->donor;
    payload->keep_us = node->now_us + STATE_KEEP_US;
    if (payload->state != PAYLOAD_WANTED) return payload->state == PAYLOAD_HELD;
    if (is_rest_lost(node, fetch, payload)) {
        fetch->has_offer = false;
        node->pair.is_donor_lost =
            true; /* used in pairs; in a group another donor is found anyway */
        return false;
    }
    ask_others(node, fragment, payload);
    return false;
}

/* True if this node is alone and has no donor: a LOAD was lost with the worker, or the results of a
 * round are lost. The state that it holds then becomes the state of a new lineage. */
static bool is_state_lost(const struct tw_node *node) {
    if (node->state != TW_STATE_SOLO || node->has_left) return false;
    return !has_donor(node);
}

void tw_state_loaded(struct tw_node *node, uint32_t fragment) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    const struct tw_id *const hash = &node->fetch[fragment].offer.hash;
    struct payload *const payload = tw_payload_find(node, hash);
    const bool is_own = tw_id_equal(hash, &node->exports[fragment].offer.hash) ||
                        tw_id_equal(hash, &node->exports[fragment].old.hash);
    if (payload == NULL || payload->content != TW_CONTENT_OPAQUE || is_own) return;
    if (!node->fetch[fragment].has_offer) payload->keep_us = node->now_us;
}

/* True if other voters bear out the donor's word. Drops the state if they contradict it. */
static bool is_borne_out(struct tw_node *node, uint32_t fragment, bool is_here) {
    struct state_fetch *fetch = &node->fetch[fragment];
    const enum witness said = judge_offer(node, fragment, is_here);
    if (said == WITNESS_BORNE_OUT) return true;
    if (said == WITNESS_WAITING) return false;
    if (said == WITNESS_REFUTED)
        tw_state_accuse(node, &fetch->donor, fragment);
    else
        tw_conduct_note_donor(node, &fetch->donor);
    struct payload *payload = tw_payload_find(node, &fetch->offer.hash);
    if (payload != NULL && payload->content == TW_CONTENT_OPAQUE) payload->keep_us = node->now_us;
    fetch->has_offer = false;
    return false;
}

/* True if no more chunks can be requested of the fragment's state now: all are under way or here,
 * or nobody has them. The line is then free for the next fragment's, if donors have room to pack
 * both. */
static bool is_line_free(struct tw_node *node, uint32_t fragment) {
    const struct state_fetch *fetch = &node->fetch[fragment];
    uint64_t largest = 0;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        if (node->cfg.fragment_elements[p] > largest) largest = node->cfg.fragment_elements[p];
    if (!fetch->has_offer || tw_progress_kept(node).states < 2 * largest) return false;
    const struct payload *payload = tw_payload_find(node, &fetch->offer.hash);
    if (payload == NULL || payload->state > PAYLOAD_CHECKING) return false;
    return payload->state == PAYLOAD_CHECKING || (payload->is_expected && payload->sources == 0) ||
           payload->chunks_have + payload->under_way == payload->chunks;
}

/* True if the fragment's state has arrived and may be loaded. */
static bool is_ready(struct tw_node *node, uint32_t fragment) {
    const bool is_here = fetch_state(node, fragment);
    return node->fetch[fragment].has_offer && is_borne_out(node, fragment, is_here) && is_here;
}

/* Fetches one fragment after the other, so that a slow link carries one state at a time. The next
 * one is begun when the line would have nothing else to carry. */
bool tw_state_receive(struct tw_node *node) {
    bool is_second = false, is_missing = false;
    if (node->lineage.needs_tip || !node->worker.is_up) return false;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        struct state_fetch *fetch = &node->fetch[p];
        if (node->at.fragment_rounds[p] != NOT_HELD) continue;
        is_missing = true;
        if (tw_progress_is_applying(node, p))
            continue; /* the fragment's LOAD waits for a step boundary: go on with the next one */
        if (!fetch->has_offer && tw_fragment_set_is_empty(&node->worker.applying) && !is_second &&
            is_state_lost(node)) {
            return true;
        } else if (!fetch->has_offer) {
            ask_for_state(node, p);
        } else if (is_behind(node, &fetch->offer)) {
            fetch->has_offer = false; /* the transfer took too long, and the offer is outdated */
        } else if (is_ready(node, p)) {
            struct tw_action *action = tw_act_body(node, TW_ACT_LOAD);
            action->u.load.fragment = p;
            action->u.load.rounds = fetch->offer.rounds;
            if (fetch->offer.bytes > 0) action->inputs[0] = fetch->offer.hash;
            action->u.load.digest =
                fetch->offer.bytes > 0 ? fetch->offer.digest : node->at.fragment_digests[p];
            action->u.load.mode = fetch->mode;
            tw_fragment_set_add(&node->worker.applying, p);
            fetch->is_unproven = !is_proven(node, p);
            fetch->has_offer = false;
        }
        if (is_second || !is_line_free(node, p)) return false;
        is_second = true;
    }
    if (!is_missing) node->few_witnesses_us = 0;
    return false;
}
