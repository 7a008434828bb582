/* peers.c - links to other nodes: heartbeats both ways, and who counts as alive. */
#include "sync/node_internal.h"

/* The first bytes of an id, which nearly always tell it from others. */
static uint64_t key_of(const struct tw_id *id) {
    return tw_get_u64(id->bytes);
}

uint16_t tw_peers_find(const struct tw_node *node, const struct tw_id *id) {
    const uint64_t key = key_of(id);
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (node->link_keys[i] != key) continue;
        if (node->links[i].is_up && tw_id_equal(&node->links[i].id, id)) return i;
    }
    return NO_PEER;
}

bool tw_peers_is_live(const struct tw_node *node, uint16_t peer) {
    return node->links[peer].is_up && node->links[peer].has_status;
}

bool tw_peers_in_lineage(const struct tw_node *node, uint16_t peer) {
    return tw_peers_is_live(node, peer) &&
           tw_id_equal(&node->links[peer].status.lineage, &node->at.lineage);
}

bool tw_peers_is_donor(const struct tw_node *node, uint16_t peer) {
    return tw_peers_in_lineage(node, peer) && node->links[peer].status.state != TW_STATE_RECEIVER;
}

bool tw_peers_member_live(const struct tw_node *node, uint32_t idx) {
    const struct tw_id *id = &node->roster.members[idx].id;
    if (tw_id_equal(id, &node->cfg.self)) return true;
    const uint16_t peer = tw_peers_find(node, id);
    /* A receiver of that id may vote, if its seat stands, but nobody waits for it. */
    return peer != NO_PEER && tw_peers_is_donor(node, peer);
}

bool tw_peers_member_seated(const struct tw_node *node, uint32_t idx) {
    const struct tw_member *member = &node->roster.members[idx];
    if (tw_peers_member_live(node, idx)) return true;
    const uint16_t peer = tw_peers_find(node, &member->id);
    return peer != NO_PEER && tw_peers_in_lineage(node, peer) &&
           node->links[peer].status.nonce == member->nonce;
}

bool tw_peers_member_parted(struct tw_node *node, uint32_t idx) {
    if (node->member_left[idx]) return true;
    const struct tw_member *member = &node->roster.members[idx];
    const uint16_t peer = tw_peers_find(node, &member->id);
    if (peer == NO_PEER || !tw_peers_is_live(node, peer)) return false;
    if (node->links[peer].status.nonce == member->nonce) return false;
    /* Who was just let in may not have said so yet. */
    const uint64_t due_us = node->member_seen_us[idx] + RETRY_US;
    if (node->now_us < due_us) tw_node_wake(node, due_us);
    return node->now_us >= due_us;
}

bool tw_peers_is_at_round(const struct tw_node *node, uint16_t peer) {
    return tw_peers_in_lineage(node, peer) && node->links[peer].status.rounds == node->at.rounds &&
           tw_roster_find(&node->roster, &node->links[peer].id) >= 0;
}

void tw_peers_broadcast(struct tw_node *node, const struct tw_message *message) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!node->links[i].is_up) continue;
        const bool is_member = tw_roster_find(&node->roster, &node->links[i].id) >= 0;
        if (is_member || tw_peers_in_lineage(node, i)) tw_act_send(node, message, i);
    }
}

void tw_peers_up(struct tw_node *node, uint16_t peer, const struct tw_id *id) {
    struct link *link = &node->links[peer];
    TW_ASSERT(!link->is_up);
    TW_ASSERT(!tw_id_equal(id, &node->cfg.self));
    if (peer >= node->links_end) node->links_end = (uint16_t)(peer + 1);
    *link = (struct link){.is_up = true, .id = *id, .up_us = node->now_us};
    node->link_keys[peer] = key_of(id);
    link->heard_us = node->now_us;
    node->status_us = 0; /* introduce ourselves at once */
    tw_lineage_hold(node, SOLO_HOLD_US);
}

void tw_peers_down(struct tw_node *node, uint16_t peer) {
    TW_ASSERT(node->links[peer].is_up);
    tw_pair_peer_down(node, &node->links[peer].id);
    node->links[peer].is_up = false;
    node->links[peer].has_status = false;
    node->odd &= ~(UINT64_C(1) << peer); /* the number may be somebody else's next */
    while (node->links_end > 0 && !node->links[node->links_end - 1].is_up) node->links_end--;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        node->exports[p].waiting &= ~(UINT64_C(1) << peer);
    tw_payload_peer_down(node, peer);
}

void tw_peers_status(struct tw_node *node, uint16_t peer, const struct tw_msg_status *status) {
    if (tw_id_is_zero(&status->lineage) || status->rounds > ROUNDS_MAX) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return;
    }
    if (node->links[peer].has_left) return;
    node->links[peer].status = *status;
    node->links[peer].has_status = true;
    const int idx = tw_roster_find(&node->roster, &node->links[peer].id);
    if (idx >= 0 && node->roster.members[idx].nonce == status->nonce)
        node->member_left[idx] = false; /* back, with its vote */
}

void tw_peers_left(struct tw_node *node, uint16_t peer) {
    struct link *link = &node->links[peer];
    const int idx = tw_roster_find(&node->roster, &link->id);
    if (idx >= 0) node->member_left[idx] = true;
    link->has_left = true;
    link->has_status = false;
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        if (tw_id_equal(&node->joins[j].id, &link->id)) node->joins[j].heard_us = 0;
    }
}

/* Who is alone and has no worker gives no (phi, u) and lets nobody in: who followed it would stand
 * still until it has one, which may be never. */
static enum tw_node_state state_to_say(const struct tw_node *node) {
    const bool has_nothing = node->state == TW_STATE_SOLO && !node->worker_up;
    return has_nothing ? TW_STATE_RECEIVER : node->state;
}

static void send_status(struct tw_node *node) {
    struct tw_message *message = tw_act_message(node, TW_MSG_STATUS);
    if (message == NULL) return;
    node->status_us =
        node->now_us + (TW_IS_MUTANT(node, TW_MUTANT_STUCK_DEADLINE) ? 0 : TW_HEARTBEAT_US);
    message->u.status = (struct tw_msg_status){
        .state = state_to_say(node),
        .lineage = node->at.lineage,
        .rounds = node->at.rounds,
        .clock_tokens = node->at.has_tip != 0 ? node->at.tip.clock_tokens : 0,
        .step = node->step,
        .tokens = node->tokens,
        .tokens_per_s = node->tokens_per_s,
        .upload_kib_s = node->upload_kib_s,
        .boot = node->cfg.boot,
        .nonce = node->at.nonce,
        .tip = node->tip_digest,
    };
    for (uint16_t i = 0; i < node->links_end; i++) tw_act_send(node, message, i);
}

static void note_members(struct tw_node *node) {
    uint32_t seated_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const bool is_live = tw_peers_member_live(node, i);
        if (!is_live && !tw_peers_member_seated(node, i)) continue;
        node->member_seen_us[i] = node->now_us;
        seated_count++;
        if (is_live) node->member_live_us[i] = node->now_us;
    }
    /* A majority that cannot close its round is none: its results may have died with those who
     * accepted them. Then the orphan's way out, a child lineage, is everybody's. */
    const uint64_t stuck_us = node->cfg.orphan_us + 4 * node->patience_us;
    const bool is_stuck = node->round.is_lost || (node->round.active_us != 0 &&
                                                  node->now_us > node->round.active_us + stuck_us);
    if (seated_count > node->roster.count / 2 && !is_stuck) node->majority_us = node->now_us;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i)) node->lineage_us = node->now_us;
    }
}

void tw_peers_advance(struct tw_node *node) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        if (!link->is_up) continue;
        if (node->now_us - link->heard_us >= TW_PEER_SILENCE_US) {
            tw_act_report(node, TW_REPORT_PEER_DEAD, &link->id);
            tw_act_close(node, i, TW_AGAIN);
            link->heard_us = node->now_us; /* PEER_DOWN follows; do not say it twice */
            link->has_status = false;
        }
        tw_node_wake(node, link->heard_us + TW_PEER_SILENCE_US);
    }
    note_members(node);
    if (node->now_us >= node->status_us) send_status(node);
    tw_node_wake(node, node->status_us);
}
