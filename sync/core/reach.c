/* reach.c - which members are linked to each other, from their LINKS messages. */
#include "sync/core/reach.h"

#include <string.h>

#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/peers.h"

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
    return node->reach.peers[idx];
}

bool tw_reach_is_present(const struct tw_node *node, uint32_t idx) {
    return (node->reach.present >> idx & 1) != 0;
}

uint32_t tw_reach_count(const struct tw_node *node, uint32_t idx) {
    return tw_bits(node->reach.of[idx] & (node->reach.present | UINT64_C(1) << idx));
}

bool tw_reach_has_majority(const struct tw_node *node, uint32_t idx) {
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
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((among >> i & 1) != 0 && tw_reach_count(node, i) >= least) owners |= UINT64_C(1) << i;
    }
    return owners;
}
