/* membership.c - which nodes are there: rounds known and due, links, the graph of links, and the
 * members of the roster that vote, contribute and are waited for. */
#include "sync/core/membership.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "sync/core/actions.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"

/* ---- the position: rounds known, rounds due, the run clock ----------------------------------- */

#define SPEED_IDLE_US (15 * SECOND_US) /* least time without a step that counts as a pause */

uint32_t tw_progress_fragment(const struct tw_node *node, uint64_t round) {
    return (uint32_t)(round % node->cfg.fragments_count);
}

const struct tw_record *tw_progress_record(const struct tw_node *node, uint64_t round) {
    if (round < node->log.begin || round >= node->at.rounds) return NULL;
    const struct tw_record *const record = &node->log.records[round % TW_ROUNDS_KEPT];
    TW_ASSERT(record->round == round); /* the log has no gap */
    return record;
}

uint64_t tw_progress_due(const struct tw_node *node, uint32_t fragment) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    return tw_progress_next(node, fragment, node->at.fragment_rounds[fragment]);
}

uint64_t tw_progress_from(const struct tw_node *node, uint32_t fragment, uint64_t round) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    if (round < node->at.first_round) round = node->at.first_round;
    const uint32_t count = node->cfg.fragments_count;
    const uint32_t residue = (uint32_t)(round % count);
    return round + (fragment + count - residue) % count;
}

uint64_t tw_progress_next(const struct tw_node *node, uint32_t fragment, uint64_t round) {
    /* In a pair run, rounds are applied before they are committed, so none is ever due. */
    if (round == NOT_HELD || node->cfg.is_pair) return UINT64_MAX;
    round = tw_progress_from(node, fragment, round);
    return round < node->at.rounds ? round : UINT64_MAX;
}

bool tw_progress_is_applying(const struct tw_node *node, uint32_t fragment) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    return tw_fragment_set_has(&node->worker.applying, fragment);
}

bool tw_progress_is_current(const struct tw_node *node) {
    if (node->lineage.needs_tip || node->at.is_moving != 0) return false;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (node->at.fragment_rounds[p] == NOT_HELD || tw_progress_due(node, p) != UINT64_MAX)
            return false;
    }
    return true;
}

uint64_t tw_progress_held_tokens(const struct tw_node *node) {
    return node->at.has_held != 0 ? node->at.held.clock_tokens : 0;
}

/* After together_tokens, a node learns nothing about the training of other nodes. The run clock
 * assumes that each of them trains as many tokens as this node. */
uint64_t tw_progress_clock_tokens(const struct tw_node *node) {
    if (node->at.has_tip == 0) return 0;
    const uint64_t listed = node->at.tip.clock_tokens;
    const bool is_ours = node->roster.count == 1 && node->round.self_idx == 0;
    if (!tw_progress_is_apart(node) || !is_ours || node->worker.tokens <= node->at.tokens_listed)
        return listed;
    const uint64_t own = node->worker.tokens - node->at.tokens_listed,
                   share = tw_progress_share(node);
    return own < (UINT64_MAX - listed) / share ? listed + own * share : UINT64_MAX;
}

uint32_t tw_progress_speed(const struct tw_node *node) {
    enum { IDLE_STEPS = 8 }; /* a step so many times as long as usual does not come */
    const uint64_t patience_us = SPEED_IDLE_US + IDLE_STEPS * node->worker.step_us;
    const bool is_idle = node->now_us > node->worker.stepped_us + patience_us;
    return is_idle ? 0 : node->worker.tokens_per_s;
}

bool tw_progress_is_final(const struct tw_node *node) {
    const uint64_t half = TW_IS_MUTANT(node, TW_MUTANT_EARLY_FINISH) ? 1 : 0;
    return node->at.has_tip != 0 &&
           tw_progress_clock_tokens(node) >= node->cfg.budget_tokens >> half;
}

uint32_t tw_progress_finals(const struct tw_node *node) {
    return node->cfg.fragments_count + !node->cfg.is_pair;
}

bool tw_progress_is_closing(const struct tw_node *node, const struct tw_record *record) {
    return !node->cfg.is_pair && record->finals > node->cfg.fragments_count;
}

bool tw_progress_closes(const struct tw_node *node) {
    return !node->cfg.is_pair && tw_progress_is_final(node) &&
           node->at.tip.finals >= node->cfg.fragments_count;
}

bool tw_progress_is_apart(const struct tw_node *node) {
    if (node->cfg.alone_nodes == 0) return false;
    return node->cfg.together_tokens == 0 ||
           (node->at.has_tip != 0 && node->at.tip.clock_tokens >= node->cfg.together_tokens);
}

uint64_t tw_progress_share(const struct tw_node *node) {
    return tw_progress_is_apart(node) ? node->cfg.alone_nodes : 1;
}

uint64_t tw_progress_overlap(const struct tw_node *node) {
    const uint64_t most = node->cfg.overlap_steps;
    if (node->cfg.pace_us == 0 || node->worker.step_us == 0) return most;
    const uint64_t steps = node->cfg.overlap_us / node->worker.step_us;
    return steps < most ? steps : most;
}

struct tw_kept tw_progress_kept(const struct tw_node *node) {
    const struct tw_sizes *const sizes = &node->cfg.sizes;
    uint64_t elements = 0, largest = 0;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (node->cfg.fragment_elements[p] > largest) largest = node->cfg.fragment_elements[p];
        elements += node->cfg.fragment_elements[p];
    }
    const uint64_t bytes = sizes->bytes_max == NULL || largest == 0
                               ? 0
                               : sizes->bytes_max(sizes->run, TW_CONTENT_RESULT, largest);
    return tw_kept(elements, largest, bytes, TW_RESULT_ROUNDS_MAX);
}

/* ---- links: heartbeats both ways, and the peers that count as alive -------------------------- */

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
    TW_ASSERT(peer < TW_PEERS_MAX);
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
    TW_ASSERT(tw_peers_find(node, id) <= peer); /* found by its key */
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
    TW_ASSERT(node->links_end == 0 || node->links[node->links_end - 1].is_up);
}

enum tw_drop tw_peers_status(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_status *status) {
    TW_ASSERT(node->links[peer].is_up);
    if (tw_id_is_zero(&status->lineage) || status->rounds > ROUNDS_MAX) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    if (node->links[peer].has_left) return TW_DROP_LEFT;
    node->links[peer].status = *status;
    node->links[peer].has_status = true;
    const int idx = tw_roster_find(&node->roster, &node->links[peer].id);
    if (idx >= 0 && node->roster.members[idx].nonce == status->nonce)
        node->seats[idx].has_left = false; /* the member that had left is back, and can vote */
    return TW_DROP_NONE;
}

void tw_peers_left(struct tw_node *node, uint16_t peer) {
    TW_ASSERT(node->links[peer].is_up);
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
static enum tw_node_role own_role(const struct tw_node *node) {
    if (node->cfg.role != TW_NODE_ROLE_REDUCE) return node->cfg.role;
    bool can_reduce = node->worker.is_up;
    for (uint16_t i = 0; i < node->links_end; i++)
        can_reduce &= !node->links[i].is_up || !node->links[i].lacks_roles;
    return can_reduce ? TW_NODE_ROLE_REDUCE : TW_NODE_ROLE_FOLLOW;
}

static void send_status(struct tw_node *node) {
    struct tw_message *message = tw_act_message(node, TW_MSG_STATUS);
    if (message == NULL) {
        node->status_us = node->now_us + ASK_US; /* the event has no room left: with a later one */
        return;
    }
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
        .role = own_role(node),
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

/* ---- the graph of links, from LINKS messages ------------------------------------------------- */

enum {
    /* number of rounds without listed work of a member, after which other members' claims to be
     * linked to it no longer count */
    HEARSAY_ROUNDS = 8,
    REACH_ONE_IN = 16, /* an owner may lack links to one present member in this many */
};

#define LINKS_US SECOND_US /* between two LINKS */

/* True if the peer lists node `id` among its links. */
static bool is_listed(const struct link *link, const struct tw_id *id) {
    for (uint32_t i = 0; i < link->linked_count; i++) {
        if (tw_id_equal(&link->linked[i], id)) return true;
    }
    return false;
}

/* Looks the nodes up that a peer lists. Only one peer's list is searched for each LINKS, because
 * a member may send LINKS as often as it likes. */
static void find_linked_members(const struct tw_node *node, struct link *link) {
    link->linked_members = 0;
    for (uint32_t i = 0; i < link->linked_count; i++) {
        const int at = tw_roster_find(&node->roster, &link->linked[i]);
        if (at >= 0) link->linked_members |= UINT64_C(1) << at;
    }
}

static void derive(struct tw_node *node) {
    struct reach *reach = &node->reach;
    uint64_t known = 0, linked = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        reach->of[i] = UINT64_C(1) << i;
        reach->peers[i] = NO_PEER;
    }
    for (uint16_t peer = 0; peer < node->links_end; peer++) {
        const struct link *link = &node->links[peer];
        const int at = link->is_up ? tw_roster_find(&node->roster, &link->id) : -1;
        if (at < 0) continue;
        reach->peers[at] = peer;
        linked |= UINT64_C(1) << at;
        if (!link->has_links) continue;
        known |= UINT64_C(1) << at;
        reach->of[at] |= link->linked_members;
        for (uint32_t i = 0; i < node->roster.count; i++)
            reach->of[i] |= (link->linked_members >> i & 1) << at;
    }
    const int self = tw_roster_find(&node->roster, &node->cfg.self);
    if (self >= 0) linked |= UINT64_C(1) << self;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((linked >> i & 1) == 0) continue;
        if ((int)i == self) reach->of[i] |= linked;
        if (self >= 0) reach->of[i] |= UINT64_C(1) << self;
        /* Two peers are taken to be linked to each other while neither has sent LINKS. */
        if ((known >> i & 1) == 0 && (int)i != self) reach->of[i] |= linked & ~known;
    }
}

void tw_reach_received(struct tw_node *node, uint16_t peer, const struct tw_msg_links *links) {
    TW_ASSERT(node->links[peer].is_up);
    struct link *link = &node->links[peer];
    link->has_links = true;
    link->is_relay = links->is_relay != 0;
    link->direct_count = links->direct_count;
    link->linked_count = links->direct_count + links->relayed_count;
    memcpy(link->linked, links->direct, links->direct_count * sizeof(links->direct[0]));
    memcpy(link->linked + links->direct_count, links->relayed,
           links->relayed_count * sizeof(links->relayed[0]));
    find_linked_members(node, link);
    derive(node);
}

void tw_reach_changed(struct tw_node *node) {
    node->reach.is_due = true;
    derive(node);
}

void tw_reach_set_roster(struct tw_node *node) {
    struct reach *reach = &node->reach;
    bool is_same = reach->ids_count == node->roster.count;
    for (uint32_t i = 0; i < node->roster.count && is_same; i++)
        is_same = tw_id_equal(&reach->ids[i], &node->roster.members[i].id);
    if (is_same) return;
    TW_ASSERT(node->roster.count <= TW_MEMBERS_MAX);
    reach->ids_count = node->roster.count;
    for (uint32_t i = 0; i < node->roster.count; i++) reach->ids[i] = node->roster.members[i].id;
    for (uint16_t i = 0; i < node->links_end; i++) find_linked_members(node, &node->links[i]);
    derive(node);
    tw_reach_note(node);
}

void tw_reach_note(struct tw_node *node) {
    uint64_t live = 0, heard = 0, linked = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const bool is_self = tw_id_equal(&node->roster.members[i].id, &node->cfg.self);
        if (is_self || tw_reach_peer(node, i) != NO_PEER) linked |= UINT64_C(1) << i;
        if (!tw_membership_is_live(node, i)) continue;
        live |= UINT64_C(1) << i;
        if (!is_self) heard |= node->reach.of[i];
    }
    heard &= ~linked; /* for a linked member, this node's own view overrides the claims */
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const bool may_hear = node->seats[i].unlisted < HEARSAY_ROUNDS && !node->seats[i].has_left;
        if (!may_hear || TW_IS_MUTANT(node, TW_MUTANT_UNLINKED_IS_DEAD))
            heard &= ~(UINT64_C(1) << i);
    }
    node->reach.present = live | heard;
    TW_ASSERT((live & ~linked) == 0);
}

void tw_reach_send(struct tw_node *node) {
    struct reach *reach = &node->reach;
    if (!reach->is_due) return;
    const uint64_t due_us = reach->announced_us + LINKS_US;
    if (reach->announced_us != 0 && node->now_us < due_us) {
        tw_act_wake(node, due_us);
        return;
    }
    struct tw_message *message = tw_act_message(node, TW_MSG_LINKS);
    if (message == NULL) return;
    struct tw_msg_links *links = &message->u.links;
    links->is_relay = node->measured.is_relay;
    links->direct_count = links->relayed_count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct link *link = &node->links[i];
        if (!link->is_up) continue;
        if (link->is_relayed) {
            links->relayed[links->relayed_count++] = link->id;
        } else {
            links->direct[links->direct_count++] = link->id;
        }
    }
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (node->links[i].is_up) tw_act_send(node, message, i);
    }
    reach->is_due = false;
    reach->announced_us = node->now_us;
}

uint16_t tw_reach_peer(const struct tw_node *node, uint32_t idx) {
    TW_ASSERT(idx < node->roster.count);
    return node->reach.peers[idx];
}

bool tw_reach_is_present(const struct tw_node *node, uint32_t idx) {
    return (node->reach.present >> idx & 1) != 0;
}

uint32_t tw_reach_count(const struct tw_node *node, uint32_t idx) {
    TW_ASSERT(idx < node->roster.count);
    return tw_bits(node->reach.of[idx] & (node->reach.present | UINT64_C(1) << idx));
}

bool tw_reach_has_majority(const struct tw_node *node, uint32_t idx) {
    TW_ASSERT(idx < node->roster.count);
    const uint64_t seen = node->reach.of[idx] & (node->reach.present | UINT64_C(1) << idx);
    return tw_bits(seen & node->voters) >= tw_membership_votes_needed(node);
}

bool tw_reach_is_known(const struct tw_node *node, const struct tw_id *id) {
    uint32_t count = 0;
    if (tw_peers_find(node, id) != NO_PEER) return true;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct link *link = &node->links[i];
        count += link->is_up && tw_membership_voter(node, i) >= 0 && is_listed(link, id);
    }
    if (TW_IS_MUTANT(node, TW_MUTANT_STRANGERS_KNOWN)) return count > 0;
    return node->roster.count > 0 && count > tw_membership_liars_max(node);
}

bool tw_reach_sees_voters(const struct tw_node *node, const struct tw_id *id) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *const member = &node->roster.members[i].id;
        const uint16_t peer = tw_reach_peer(node, i);
        if ((node->voters >> i & 1) == 0) continue;
        count +=
            tw_id_equal(member, id) || (tw_id_equal(member, &node->cfg.self)
                                            ? tw_peers_find(node, id) != NO_PEER
                                            : peer != NO_PEER && is_listed(&node->links[peer], id));
    }
    return node->voters != 0 && count >= tw_membership_votes_needed(node);
}

uint64_t tw_reach_owners(const struct tw_node *node, uint64_t among) {
    uint32_t most = 0;
    uint64_t owners = 0;
    if (TW_IS_MUTANT(node, TW_MUTANT_UNREACHED_OWNER)) return among;
    among &= node->reach.present;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const uint32_t count = (among >> i & 1) != 0 ? tw_reach_count(node, i) : 0;
        if (count > most) most = count;
    }
    const uint32_t least = most - most / REACH_ONE_IN;
    TW_ASSERT(most <= node->roster.count);
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((among >> i & 1) != 0 && tw_reach_count(node, i) >= least) owners |= UINT64_C(1) << i;
    }
    return owners;
}

/* ---- members of the roster ------------------------------------------------------------------- */

uint32_t tw_membership_votes_needed(const struct tw_node *node) {
    const uint32_t voters = tw_bits(node->voters);
    if (TW_IS_MUTANT(node, TW_MUTANT_HALF_QUORUM)) return (voters + 1) / 2;
    const uint32_t needed = voters > 0 ? tw_votes_needed(voters) : 1;
    TW_ASSERT(2 * needed > voters);
    TW_ASSERT(needed <= (voters > 0 ? voters : 1));
    return needed;
}

uint32_t tw_membership_liars_max(const struct tw_node *node) {
    const uint32_t voters = tw_bits(node->voters);
    const uint32_t liars = voters > 0 ? tw_liars_max(voters) : 0;
    TW_ASSERT(3 * liars < voters || voters == 0);
    return liars;
}

bool tw_membership_has_judges(const struct tw_node *node) {
    return tw_bits(node->voters) >= node->cfg.judges_min || tw_membership_liars_max(node) > 0;
}

bool tw_membership_sees_most(const struct tw_node *node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *id = &node->roster.members[i].id;
        if ((node->voters >> i & 1) == 0) continue;
        count += tw_id_equal(id, &node->cfg.self) || tw_peers_find(node, id) != NO_PEER;
    }
    return node->roster.count > 0 && count >= tw_membership_votes_needed(node);
}

int tw_membership_voter(const struct tw_node *node, uint16_t peer) {
    const int idx = peer == NO_PEER ? node->round.self_idx
                                    : tw_roster_find(&node->roster, &node->links[peer].id);
    return idx >= 0 && (node->voters >> idx & 1) != 0 ? idx : -1;
}

bool tw_membership_is_voter(const struct tw_node *node) {
    return tw_membership_takes_part(node) && tw_membership_voter(node, NO_PEER) >= 0;
}

bool tw_membership_takes_part(const struct tw_node *node) {
    return !node->has_left && !node->lineage.needs_tip && node->round.self_idx >= 0 &&
           node->at.rounds >= node->acceptor.vote_floor && node->state != TW_STATE_FINISHED;
}

bool tw_membership_is_live(const struct tw_node *node, uint32_t idx) {
    TW_ASSERT(idx < node->roster.count);
    if (tw_id_equal(&node->roster.members[idx].id, &node->cfg.self)) return true;
    const uint16_t peer = tw_reach_peer(node, idx);
    /* A receiver with a seat may vote, but only donors of the lineage are worth waiting for. */
    return peer != NO_PEER && tw_peers_is_donor(node, peer);
}

bool tw_membership_is_seated(const struct tw_node *node, uint32_t idx) {
    const struct tw_member *member = &node->roster.members[idx];
    if (tw_membership_is_live(node, idx)) return true;
    const uint16_t peer = tw_reach_peer(node, idx);
    return peer != NO_PEER && tw_peers_in_lineage(node, peer) &&
           node->links[peer].status.nonce == member->nonce;
}

bool tw_membership_is_parted(struct tw_node *node, uint32_t idx) {
    if (node->seats[idx].has_left) return true;
    const struct tw_member *member = &node->roster.members[idx];
    const uint16_t peer = tw_reach_peer(node, idx);
    if (peer == NO_PEER || !tw_peers_is_live(node, peer)) return false;
    if (node->links[peer].status.nonce == member->nonce) return false;
    /* A member that just joined may not have sent STATUS with its new nonce yet. */
    const uint64_t due_us = node->seats[idx].seen_us + RETRY_US;
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us >= due_us;
}

/* Member `idx` claims a role; an unlinked one trains, for want of a claim. */
static enum tw_node_role role_of(const struct tw_node *node, uint32_t idx) {
    TW_ASSERT(idx < node->roster.count);
    if (tw_id_equal(&node->roster.members[idx].id, &node->cfg.self)) return own_role(node);
    const uint16_t peer = tw_reach_peer(node, idx);
    if (peer == NO_PEER || !tw_peers_is_live(node, peer)) return TW_NODE_ROLE_TRAIN;
    return node->links[peer].status.role;
}

bool tw_membership_trains(const struct tw_node *node, uint32_t idx) {
    return role_of(node, idx) == TW_NODE_ROLE_TRAIN;
}

bool tw_membership_reduces(const struct tw_node *node, uint32_t idx) {
    return role_of(node, idx) == TW_NODE_ROLE_REDUCE;
}

bool tw_membership_has_roles(const struct tw_node *node) {
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (!tw_membership_trains(node, i)) return true;
    }
    return false;
}

bool tw_membership_has_trainer(const struct tw_node *node) {
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (tw_membership_is_live(node, i) && tw_membership_trains(node, i)) return true;
    }
    return false;
}

/* Waits for contributions count these members alone: a group waits as its trainers alone would. */
uint32_t tw_membership_lying_trainers(const struct tw_node *node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) count += tw_membership_trains(node, i);
    return count > 0 ? tw_liars_max(count) : 0;
}

uint64_t tw_membership_pacers(const struct tw_node *node) {
    uint64_t trainers = 0;
    for (uint32_t i = 0; i < node->roster.count; i++)
        trainers |= (uint64_t)tw_membership_trains(node, i) << i;
    const uint64_t known = trainers & node->voters;
    return node->cfg.has_rights || known == 0 ? trainers : known;
}

bool tw_membership_is_silent(const struct tw_node *node, uint32_t idx) {
    TW_ASSERT(idx < node->roster.count);
    return (int)idx != node->round.self_idx &&
           (node->seats[idx].has_left || node->now_us - node->seats[idx].seen_us > MEMBER_DEAD_US);
}

bool tw_membership_is_asked(const struct tw_node *node) {
    uint32_t staying = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) staying += !tw_membership_is_silent(node, i);
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        const struct tw_msg_join *join = &node->lineage.joins[j].join;
        const uint64_t received_us = node->lineage.joins[j].received_us;
        if (received_us == 0 || node->now_us - received_us > JOIN_VALID_US) continue;
        if (join->rounds != node->at.rounds || !tw_id_equal(&join->lineage, &node->at.lineage))
            continue;
        const int idx = tw_roster_find(&node->roster, &node->lineage.joins[j].id);
        const bool has_seat = idx >= 0 && node->roster.members[idx].nonce == join->nonce;
        if (!has_seat && (idx >= 0 || staying < node->cfg.members_max)) return true;
    }
    return false;
}

/* True if the run is over, and this node holds the model that the closing record proves. */
static bool is_done(const struct tw_node *node) {
    if (node->at.has_tip == 0 || node->at.tip.finals < tw_progress_finals(node)) return false;
    if (!tw_progress_is_current(node)) return false;
    const struct tw_id root = tw_record_root(node->at.fragment_digests, node->cfg.fragments_count);
    return !tw_progress_is_closing(node, &node->at.tip) || tw_id_is_zero(&node->at.tip.base) ||
           !node->worker.is_up || tw_id_equal(&root, &node->at.tip.base);
}

/* True if this node holds every fragment of its lineage's state, and theta has moved there. */
static bool holds_state(const struct tw_node *node) {
    bool is_whole = !node->lineage.needs_tip && node->at.is_moving == 0;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        is_whole &= node->at.fragment_rounds[p] != NOT_HELD;
    return is_whole;
}

void tw_membership_derive_state(struct tw_node *node) {
    enum tw_node_state state = TW_STATE_RECEIVER;
    const bool is_member =
        node->round.self_idx >= 0 && node->at.rounds >= node->acceptor.vote_floor;
    if (is_done(node)) {
        state = TW_STATE_FINISHED;
    } else if (is_member && node->roster.count == 1) {
        state = TW_STATE_SOLO;
    } else if (is_member && holds_state(node)) {
        state = TW_STATE_MEMBER;
    }
    TW_ASSERT(state != TW_STATE_MEMBER || node->roster.count > 1);
    if (state == node->state) return;
    node->state = state;
    if (state == TW_STATE_MEMBER) node->worker.entered_step = node->worker.step;
    node->status_us = 0;
    node->lineage.majority_us = node->lineage.donor_us = node->now_us;
    tw_act_report(node, TW_REPORT_STATE, &node->at.lineage);
}

/* True if other voters of the roster are there and may give this node a seat, or need not be: this
 * node has no vote itself, or still fetches the state. Where no round was decided for long, a voter
 * must be linked. Otherwise a receiver that may vote founds a child lineage. */
static bool sees_a_voter(const struct tw_node *node) {
    if (node->roster.count == 0 || tw_voters_are_awaited(node) || !holds_state(node)) return true;
    if (node->now_us < node->pace.last_commit_us + node->cfg.orphan_us) return true;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((node->voters >> i & 1) != 0 && tw_membership_is_live(node, i) &&
            !tw_id_equal(&node->roster.members[i].id, &node->cfg.self))
            return true;
    }
    return false;
}

void tw_membership_note(struct tw_node *node) {
    uint32_t seated_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const bool is_live = tw_membership_is_live(node, i) || tw_reach_is_present(node, i);
        if (!is_live && !tw_membership_is_seated(node, i)) continue;
        node->seats[i].seen_us = node->now_us;
        seated_count += (node->voters >> i & 1) != 0;
        if (is_live) node->seats[i].live_us = node->now_us;
    }
    /* A majority that cannot decide its round counts as none, because the results may be lost with
     * the members that accepted them. This node then founds a child lineage, as an orphan does. */
    const uint64_t stuck_us = node->cfg.orphan_us + 4 * node->pace.patience_us;
    const bool is_stuck = node->round.is_lost || (node->round.active_us != 0 &&
                                                  node->now_us > node->round.active_us + stuck_us);
    if (seated_count >= tw_membership_votes_needed(node) && !is_stuck)
        node->lineage.majority_us = node->now_us;
    const bool has_voters = sees_a_voter(node);
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i) && (has_voters || tw_voters_may(node, i)))
            node->lineage.donor_us = node->now_us;
    }
}
