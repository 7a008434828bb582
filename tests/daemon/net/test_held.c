/* Tests of daemon/net/admit.c: a node (the hub), and two processes that use the same key. */
#include "daemon/net/sockopt.h"
#include "daemon/net/transport_impl.h"
#include "proto/frame.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static struct world_node *hub, *first, *second;
static struct tw_identity spare;

static void with_short_answer(struct tw_transport_config *config) {
    config->twin_us = 200 * 1000;
}

static void with_second_boot(struct tw_transport_config *config) {
    config->boot = 2;
}

static struct world_node *start_copy(void (*change)(struct tw_transport_config *config)) {
    second = &world.nodes[5];
    spare = second->identity;
    second->identity = first->identity;
    return world_start(&world, 5, change);
}

/* Starts the hub and the two processes. The hub has the lower id if hub_at is 0, the higher id
 * if it is 1. */
static void begin(unsigned hub_at, void (*change)(struct tw_transport_config *config)) {
    world_init(&world);
    hub = world_start(&world, hub_at, change);
    first = world_start(&world, 1 - hub_at, NULL);
    (void)start_copy(with_second_boot);
    world_dial(first, hub);
    WAIT_WHILE(&world, !world_has_bulk(first) || !world_has_bulk(hub));
}

static void end(void) {
    world_stop(second);
    second->identity = spare;
    world_deinit(&world);
}

static uint16_t peer_of_first(void) {
    const int peer = world_peer_of(hub, first);
    assert_true(peer >= 0);
    return (uint16_t)peer;
}

static void address_of(const struct world_node *node, char address[TW_ADDR_BYTES]) {
    (void)snprintf(address, TW_ADDR_BYTES, "127.0.0.1:%u",
                   (unsigned)tw_transport_port(node->transport, 0));
}

/* Checks that the node has found exactly one twin, at the address of `other`. */
static void names(const struct world_node *node, bool is_self, const struct world_node *other) {
    struct tw_twin_info twins[TW_TWIN_INFOS_MAX];
    char address[TW_ADDR_BYTES];
    address_of(other, address);
    assert_int_equal(tw_transport_twins(node->transport, twins), 1);
    assert_int_equal(twins[0].is_self, is_self);
    assert_true(tw_id_equal(&twins[0].id, &first->identity.id));
    assert_string_equal(twins[0].address, address);
    assert_int_equal(node->twins, 1);
}

static void copy_is_refused_and_all_three_say_so(unsigned hub_at) {
    begin(hub_at, NULL);
    world_dial_pinned(second, hub, &hub->identity.id);
    WAIT_WHILE(&world, second->dials < 1);
    assert_int_equal(second->dial_status, TW_TWIN);
    assert_int_equal(second->dial_cause, TW_DIAL_TWIN);
    assert_int_equal(hub->ups, 1);
    assert_int_equal(hub->downs + first->downs, 0); /* the first process keeps its link */
    names(hub, false, second);
    names(first, true, second);
    names(second, true, first);
    /* The copy dials repeatedly. No link breaks, and no new finding appears. */
    world_dial_pinned(second, hub, &hub->identity.id);
    WAIT_WHILE(&world, second->dials < 2);
    assert_int_equal(second->dial_status, TW_TWIN);
    assert_int_equal(hub->ups, 1);
    names(hub, false, second);
    names(first, true, second);
    names(second, true, first);
    end();
}

TEST(copy_of_a_higher_node_is_refused) {
    copy_is_refused_and_all_three_say_so(0);
}

TEST(copy_of_a_lower_node_is_refused) {
    copy_is_refused_and_all_three_say_so(1);
}

static void restart_waits_for_the_dead_link(unsigned hub_at) {
    begin(hub_at, with_short_answer);
    /* `first` no longer reads, so it answers nothing */
    world_hold(first, world_peer_of(first, hub), false);
    world_dial(second, hub);
    WAIT_WHILE(&world, second->ups < 1);
    assert_int_equal(second->dial_status, TW_OK);
    assert_int_equal(hub->downs, 1);
    assert_int_equal(world_peers(hub), 1);
    assert_int_equal(hub->twins + second->twins, 0);
    end();
}

TEST(restarted_higher_node_replaces_its_dead_link) {
    restart_waits_for_the_dead_link(0);
}

TEST(restarted_lower_node_replaces_its_dead_link) {
    restart_waits_for_the_dead_link(1);
}

/* While the newcomer is held, the kernel of the first machine reports that the old process
 * ended. */
TEST(restart_enters_as_soon_as_the_old_link_ends) {
    begin(0, NULL);
    world_hold(first, world_peer_of(first, hub), false);
    world_dial(second, hub);
    WAIT_WHILE(&world, hub->transport->held[0].conn == NULL);
    const uint64_t begin_us = tw_now_us();
    tw_transport_close(hub->transport, peer_of_first(), TW_OK, "gone");
    WAIT_WHILE(&world, second->ups < 1);
    assert_true(tw_now_us() - begin_us < TW_TWIN_ANSWER_US);
    assert_int_equal(hub->twins, 0);
    end();
}

/* A process was too slow to answer, so the copy replaced it. Now this process returns. */
TEST(replaced_process_that_comes_back_is_refused) {
    begin(0, with_short_answer);
    world_hold(first, world_peer_of(first, hub), false);
    world_dial(second, hub);
    WAIT_WHILE(&world, second->ups < 1);
    WAIT_WHILE(&world, world_peers(first) > 0); /* the first node's bulk connection breaks */
    world_dial(first, hub);
    WAIT_WHILE(&world, first->dials < 2 || second->twins < 1);
    assert_int_equal(first->dial_status, TW_TWIN);
    assert_int_equal(world_peers(second), 1);
    names(hub, false, first);
    names(second, true, first);
    names(first, true, second);
    end();
}

TEST(newcomer_that_leaves_while_held_is_forgotten) {
    begin(0, with_short_answer);
    world_hold(first, world_peer_of(first, hub), false);
    world_dial(second, hub);
    WAIT_WHILE(&world, hub->transport->held[0].conn == NULL);
    world_stop(second);
    WAIT_WHILE(&world, hub->transport->held[0].conn != NULL);
    WAIT_WHILE(&world, hub->downs < 1); /* the link to the silent process is closed nevertheless */
    second->identity = spare;
    world_deinit(&world);
}

TEST(machine_with_our_key_is_met_by_its_own_dial) {
    begin(0, NULL);
    world_dial(second, first);
    WAIT_WHILE(&world, second->dials < 1);
    assert_int_equal(second->dial_status, TW_TWIN);
    names(first, true, second);
    names(second, true, first);
    assert_int_equal(first->downs, 0);
    end();
}

static void on_every_address(struct tw_transport_config *config) {
    (void)snprintf(config->listen[0], TW_ADDR_BYTES, "0.0.0.0:0");
}

/* A node listens on a wildcard by default. That is no address at which a person finds a machine. */
TEST(wildcard_is_no_address_of_a_twin) {
    world_init(&world);
    first = world_start(&world, 0, on_every_address);
    (void)start_copy(on_every_address);
    world_dial(second, first);
    WAIT_WHILE(&world, second->dials < 1);
    assert_int_equal(second->dial_status, TW_TWIN);
    assert_null(strstr(second->dial_sentence, "0.0.0.0"));
    names(second, true, first);
    end();
}

TEST(own_address_is_no_twin) {
    begin(0, NULL);
    world_dial(first, first);
    WAIT_WHILE(&world, first->dials < 2);
    assert_int_equal(first->dial_status, TW_SELF);
    assert_int_equal(first->twins, 0);
    end();
}

/* ---- lies ---------------------------------------------------------------------------------- */

/* Anybody may answer at an address that is configured without an id, and name any address. */
TEST(word_of_an_unproven_node_is_no_twin) {
    begin(0, NULL);
    char told[TW_ADDR_BYTES];
    address_of(first, told);
    world_dial(second, hub); /* it never met the hub before */
    WAIT_WHILE(&world, second->dials < 1);
    assert_int_equal(second->dial_status, TW_TWIN);
    assert_int_equal(second->twins, 0);
    assert_null(strstr(second->dial_sentence, told));
    assert_non_null(strstr(second->dial_sentence, "has not proved"));
    struct tw_twin_info twins[TW_TWIN_INFOS_MAX];
    assert_int_equal(tw_transport_twins(second->transport, twins), 0);
    end();
}

static void send_word(struct world_node *from, uint16_t peer, const void *body, uint32_t size) {
    tw_transport_send_control(from->transport, peer, TW_FRAME_TWIN, body, size);
}

TEST(answer_without_a_question_changes_nothing) {
    begin(0, NULL);
    const struct tw_twin_word word = {.nonce = 1, .is_answer = true};
    uint8_t body[TW_TWIN_BYTES_MAX];
    const uint32_t size = tw_twin_encode(&word, body);
    send_word(first, (uint16_t)world_peer_of(first, hub), body, size);
    const uint32_t frames = hub->frames;
    tw_transport_send_control(first->transport, (uint16_t)world_peer_of(first, hub), 7, NULL, 0);
    WAIT_WHILE(&world, hub->frames == frames);
    assert_int_equal(hub->twins + hub->downs, 0);
    end();
}

TEST(broken_word_closes_the_link) {
    begin(0, NULL);
    send_word(first, (uint16_t)world_peer_of(first, hub), "short", 5);
    WAIT_WHILE(&world, hub->downs < 1);
    assert_int_equal(hub->down_reason, TW_PROTO);
    end();
}
