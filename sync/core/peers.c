/* peers.c - links to other nodes: heartbeats both ways, and the peers that count as alive. */
#include "sync/core/peers.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "sync/core/actions.h"
#include "sync/core/progress.h"
#include "sync/core/state/node.h"

/* Returns the first bytes of an id, which nearly always differ between nodes. */
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

bool tw_peers_is_outlier(const struct tw_node *node, uint16_t peer) {
    return peer != NO_PEER && (node->measured.outliers >> peer & 1) != 0;
}

void tw_peers_hold_solo(struct tw_node *node, uint64_t for_us) {
    if (node->now_us >= node->lineage.solo_hold_us) node->lineage.hold_began_us = node->now_us;
    if (node->lineage.solo_hold_us < node->now_us + for_us)
        node->lineage.solo_hold_us = node->now_us + for_us;
}

void tw_peers_hold_solo_for(struct tw_node *node, uint16_t peer, uint64_t for_us) {
    const uint64_t refused_us = node->links[peer].refused_us;
    if (refused_us != 0 && node->now_us < refused_us + REFUSED_US) return;
    tw_peers_hold_solo(node, for_us);
}

void tw_peers_note_mixed(struct tw_node *node, const struct tw_id *id, uint64_t round) {
    uint32_t row = 0, oldest = 0;
    for (; row < TW_MEMBERS_MAX && !tw_id_equal(&node->log.mixed[row].id, id); row++) {
        if (node->log.mixed[row].round < node->log.mixed[oldest].round) oldest = row;
    }
    if (row == TW_MEMBERS_MAX) row = oldest;
    node->log.mixed[row].id = *id;
    node->log.mixed[row].round = round + 1;
}

void tw_peers_up(struct tw_node *node, uint16_t peer, const struct tw_event *event) {
    const struct tw_id *const id = &event->u.id;
    struct link *link = &node->links[peer];
    TW_ASSERT(!link->is_up);
    TW_ASSERT(!tw_id_equal(id, &node->cfg.self));
    if (peer >= node->links_end) node->links_end = (uint16_t)(peer + 1);
    *link = (struct link){.is_up = true,
                          .is_relayed = event->is_relayed,
                          .lacks_roles = event->lacks_roles,
                          .lacks_vote = event->lacks_vote,
                          .id = *id,
                          .up_us = node->now_us};
    node->link_keys[peer] = key_of(id);
    link->received_us = node->now_us;
    node->status_us = 0; /* send STATUS at once */
    tw_peers_hold_solo(node, SOLO_HOLD_US);
}

void tw_peers_down(struct tw_node *node, uint16_t peer) {
    TW_ASSERT(node->links[peer].is_up);
    node->links[peer].is_up = false;
    node->links[peer].has_status = false;
    node->measured.outliers &=
        ~(UINT64_C(1) << peer); /* the peer number may be given to another link */
    while (node->links_end > 0 && !node->links[node->links_end - 1].is_up) node->links_end--;
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
        node->seats[idx].has_left = false; /* the member that had left is back, and can vote */
}

void tw_peers_left(struct tw_node *node, uint16_t peer) {
    struct link *link = &node->links[peer];
    const int idx = tw_roster_find(&node->roster, &link->id);
    if (idx >= 0) node->seats[idx].has_left = true;
    link->has_left = true;
    link->has_status = false;
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        if (tw_id_equal(&node->lineage.joins[j].id, &link->id))
            node->lineage.joins[j].received_us = 0;
    }
}

/* Returns the state to announce. A node that is alone and without a worker serves no (phi, u) and
 * admits no node: a follower would wait until the worker starts, which may be never. */
static enum tw_node_state state_to_send(const struct tw_node *node) {
    const bool has_nothing = node->state == TW_STATE_SOLO && !node->worker.is_up;
    return has_nothing ? TW_STATE_RECEIVER : node->state;
}

/* A node that reduces owns parts once its worker is up. Nodes older than roles take only
 * contributors for owners, and would refuse its parts. */
enum tw_node_role tw_peers_own_role(const struct tw_node *node) {
    if (node->cfg.role != TW_NODE_ROLE_REDUCE) return node->cfg.role;
    bool can_reduce = node->worker.is_up;
    for (uint16_t i = 0; i < node->links_end; i++)
        can_reduce &= !node->links[i].is_up || !node->links[i].lacks_roles;
    return can_reduce ? TW_NODE_ROLE_REDUCE : TW_NODE_ROLE_FOLLOW;
}

static void send_status(struct tw_node *node) {
    struct tw_message *message = tw_act_message(node, TW_MSG_STATUS);
    if (message == NULL) return;
    node->status_us =
        node->now_us + (TW_IS_MUTANT(node, TW_MUTANT_STUCK_DEADLINE) ? 0 : TW_HEARTBEAT_US);
    message->u.status = (struct tw_msg_status){
        .state = state_to_send(node),
        .lineage = node->at.lineage,
        .rounds = node->at.rounds,
        .clock_tokens = node->at.has_tip != 0 ? node->at.tip.clock_tokens : 0,
        .step = node->worker.step,
        .tokens = node->worker.tokens,
        .tokens_per_s = tw_progress_speed(node),
        .upload_kib_s = node->measured.upload_kib_s,
        .boot = node->cfg.boot,
        .nonce = node->at.nonce,
        .tip = node->tip_digest,
        .role = tw_peers_own_role(node),
    };
    for (uint16_t i = 0; i < node->links_end; i++) tw_act_send(node, message, i);
}

void tw_peers_drop_silent(struct tw_node *node) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        if (!link->is_up) continue;
        if (node->now_us - link->received_us >= TW_PEER_SILENCE_US) {
            tw_act_report(node, TW_REPORT_PEER_DEAD, &link->id);
            tw_act_close(node, i, TW_AGAIN);
            link->received_us = node->now_us; /* PEER_DOWN follows; no second report */
            link->has_status = false;
        }
        tw_act_wake(node, link->received_us + TW_PEER_SILENCE_US);
    }
}

void tw_peers_send_status(struct tw_node *node) {
    if (node->now_us >= node->status_us) send_status(node);
    tw_act_wake(node, node->status_us);
}
