/* test_reach.c - the graph of links that a node derives from its own links and its peers' LINKS
 * messages, and the decisions based on that graph. */
#include "sync/core/membership.h"

#include "sync/core/state.h"

#include "tests/sync/lone_node.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* Peer `peer` is linked to this node and to the members in `set`. */
static void say_links(uint16_t peer, uint32_t set) {
    struct tw_message *message = message_of(TW_MSG_LINKS);
    for (uint32_t i = 0; i < 12; i++) {
        if (i == 0 || (set >> i & 1) != 0)
            message->u.links.direct[message->u.links.direct_count++] = id_of(i);
    }
    say(peer, message);
}

static void unlink_peer(uint16_t peer) {
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
}

/* Reports the node's own round, so that the peer counts as live. */
static void say_round(uint16_t peer) {
    say_status(peer, &start.lineage, ROUNDS, 5000);
}

FACT(node_tells_its_links_at_once_and_then_once_a_second) {
    now_us += SECONDS(2);
    forget();
    link_up(3);
    const struct tw_message *links = find_message(TW_MSG_LINKS, 1);
    assert_non_null(links);
    assert_int_equal(links->u.links.direct_count, 3);
    assert_non_null(find_message(TW_MSG_LINKS, 3));
    forget();
    unlink_peer(3);
    assert_null(find_message(TW_MSG_LINKS, 1));
    assert_true(tw_node_deadline(node) <= now_us + SECONDS(1));
    now_us += SECONDS(1);
    feed(&(struct tw_event){.kind = TW_EV_TICK});
    assert_int_equal(find_message(TW_MSG_LINKS, 1)->u.links.direct_count, 2);
    forget();
    wait_us(SECONDS(5));
    assert_null(find_message(TW_MSG_LINKS, 1)); /* nothing changed */
}

FACT(relayed_links_are_told_apart) {
    now_us += SECONDS(2);
    struct tw_event event = {.kind = TW_EV_PEER_UP, .peer = 3, .is_relayed = true};
    event.u.id = id_of(3);
    forget();
    feed(&event);
    const struct tw_message *links = find_message(TW_MSG_LINKS, 1);
    assert_int_equal(links->u.links.direct_count, 2);
    assert_int_equal(links->u.links.relayed_count, 1);
    const struct tw_id third = id_of(3);
    assert_memory_equal(&links->u.links.relayed[0], &third, sizeof(third));
}

/* A node that starts or stops relaying links of others tells its peers. */
FACT(relays_are_told) {
    now_us += SECONDS(2);
    struct tw_event event = {.kind = TW_EV_MEASURED};
    event.u.measured.is_relay = true;
    forget();
    feed(&event);
    assert_int_equal(find_message(TW_MSG_LINKS, 1)->u.links.is_relay, 1);
}

/* Peers that report no links (an older version) count as linked to each other. */
FACT(silence_means_a_full_mesh) {
    say_round(1);
    say_round(2);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(tw_reach_count(node, i), 3);
    assert_int_equal(tw_reach_owners(node, 7), 7);
}

/* This node is the centre of a star. */
FACT(middle_of_a_star_owns_everything) {
    say_round(1);
    say_round(2);
    say_links(1, 0);
    say_links(2, 0);
    assert_int_equal(tw_reach_count(node, 0), 3);
    assert_int_equal(tw_reach_count(node, 1), 2);
    assert_int_equal(tw_reach_owners(node, 7), 1);
    assert_int_equal(
        tw_reach_owners(node, 6),
        6); /* the node in the middle may not be an owner: the others have equal paths */
    assert_true(tw_reach_has_majority(node, 1)); /* two of three */
}

/* A report by one end of a link is enough: a member that denies its links removes none. */
FACT(denied_links_count_if_the_other_end_has_them) {
    say_round(1);
    say_round(2);
    say_links(1, 1u << 2);
    say_links(2, 0);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(tw_reach_count(node, i), 3);
}

/* A member without a link to this node counts as present while a live member is linked to it. */
FACT(hearsay_keeps_a_member_for_eight_rounds) {
    say_round(1);
    say_round(2);
    say_links(1, 1u << 2);
    unlink_peer(2);
    assert_true(tw_reach_is_present(node, 2));
    node->seats[2].unlisted = 7;
    feed(&(struct tw_event){.kind = TW_EV_TICK});
    assert_true(tw_reach_is_present(node, 2));
    node->seats[2].unlisted = 8;
    feed(&(struct tw_event){.kind = TW_EV_TICK});
    assert_false(tw_reach_is_present(node, 2));
    node->seats[2].unlisted = 0;
    say_links(1, 0);
    assert_false(tw_reach_is_present(node, 2));
}

/* Hearsay about a member that is linked to this node is ignored: the member's own STATUS counts. */
FACT(linked_member_speaks_for_itself) {
    say_round(1);
    say_round(2);
    say_links(1, 1u << 2);
    struct tw_message *message = message_of(TW_MSG_STATUS);
    message->u.status.state = TW_STATE_RECEIVER;
    message->u.status.lineage = start.lineage;
    message->u.status.rounds = ROUNDS;
    say(2, message);
    assert_false(tw_reach_is_present(node, 2));
}
