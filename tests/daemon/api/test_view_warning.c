/* test_view_warning.c - warnings of a node with one fault: the sentence, and the suggested
 * remedy. */
#include "daemon/api/view_warning.h"

#include <string.h>

#include "tests/daemon/api/view_sample.h"
#include "tests/test.h"

static struct tw_status_view view;
static struct tw_warning warnings[TW_WARNINGS_MAX];

/* Returns the warning that contains this text, or NULL. */
static const struct tw_warning *find_warning(const char *text) {
    const uint32_t count = tw_view_warnings(&view, warnings);
    for (uint32_t i = 0; i < count; i++) {
        if (strstr(warnings[i].what, text) != NULL) return &warnings[i];
    }
    return NULL;
}

TEST(merging_that_hurts_is_named_with_both_losses) {
    tw_status_view_init(&view);
    view_sample(&view);
    assert_null(find_warning("Merging hurts"));
    view.train.is_anchor_bad = true;
    view.train.loss_live = 1.43f;
    view.train.loss_anchor = 2.63f;
    const struct tw_warning *warning = find_warning("Merging hurts");
    assert_non_null(warning);
    assert_non_null(strstr(warning->what, "2.630 against 1.430 nats"));
    assert_non_null(strstr(warning->way_out, "thinwire peers"));
    assert_true(strlen(warning->what) + 1 < sizeof(warning->what)); /* whole sentences */
    assert_true(strlen(warning->way_out) + 1 < sizeof(warning->way_out));
}

TEST(lost_work_is_counted) {
    tw_status_view_init(&view);
    view_sample(&view);
    assert_null(find_warning("lost"));
    view.lost = (struct tw_view_lost){.is_lost = true,
                                      .rounds_before = 130,
                                      .rounds = 81,
                                      .clock_before = 3000000,
                                      .tokens = 1200000,
                                      .steps = 518,
                                      .work_us = UINT64_C(360000000)};
    const struct tw_warning *warning = find_warning("lost");
    assert_non_null(warning);
    assert_string_equal(warning->what,
                        "This node was at round 130 of the run. After the restart the run goes on "
                        "from round 81: 49 rounds, 1.20M tokens and 518 steps of this node, about "
                        "6 min of work were lost");
    assert_true(tw_warning_is_urgent(warning->kind)); /* the hook runs */
    view.lost.is_anew = true;
    warning = find_warning("After the restart no node had a checkpoint, and the run began anew");
    assert_null(warning); /* the run had rounds when this node came back */
    warning = find_warning("While it was away the run began anew, without that work: 1.20M tokens");
    assert_non_null(warning);
    assert_non_null(strstr(warning->way_out, "nothing brings it back"));
    view.lost.is_kept = true;
    assert_non_null(strstr(find_warning("began anew")->way_out, "`thinwire rollback`"));
    view.lost.rounds = 0;
    assert_non_null(find_warning("After the restart no node had a checkpoint"));
    view.lost.rounds_before = view.lost.rounds = view.lost.tokens = view.lost.steps = UINT64_MAX;
    view.lost.is_anew = false;
    char text[TW_VIEW_TEXT_BYTES];
    tw_view_lost_text(&view.lost, text);
    assert_true(strlen(text) + 1 < sizeof(text)); /* whole sentences */
}

TEST(twins_are_named_with_the_address_of_the_other_machine) {
    tw_status_view_init(&view);
    view_sample(&view);
    assert_null(find_warning("key"));
    view.twins_count = 2;
    view.twins[0] = (struct tw_view_twin){.id = {{0xab}}, .is_self = true};
    (void)snprintf(view.twins[0].address, TW_ADDR_BYTES, "127.0.0.1:14949");
    view.twins[1] = (struct tw_view_twin){.id = {{0xcd}}};
    (void)snprintf(view.twins[1].linked, TW_ADDR_BYTES, "10.0.0.1:4300");
    const struct tw_warning *warning = find_warning("this node's key");
    assert_non_null(warning);
    assert_string_equal(warning->what, "Another machine, at 127.0.0.1:14949, has this node's key");
    assert_string_equal(warning->way_out, "give the copy its own: `thinwire init --new-key` on it, "
                                          "then `thinwire leave` and `thinwire start`");
    warning = find_warning("of node cd000000");
    assert_non_null(warning);
    assert_string_equal(
        warning->what,
        "Another machine has the key of node cd000000 at 10.0.0.1:4300 and is refused");
}

TEST(every_attack_has_a_whole_sentence_and_a_way_out) {
    static const char *const words[TW_ATTACKS] = {
        [TW_ATTACK_FORGED] = "Node ab000000 sent a round",
        [TW_ATTACK_TWO_FACED] = "Node ab000000 signed two statements",
        [TW_ATTACK_LEFT] = "left its group for the history of node ab000000",
        [TW_ATTACK_MERGE] = "Node ab000000 made a result that is not the merge",
        [TW_ATTACK_OVERSIZED] = "Node ab000000 sends work",
        [TW_ATTACK_STATE] = "Node ab000000 gave this node a state",
        [TW_ATTACK_UNTRAINED] = "Node ab000000 sends work that was not trained",
        [TW_ATTACK_PROTOCOL] = "Node ab000000 broke the protocol",
    };
    for (enum tw_attack_kind kind = 0; kind < TW_ATTACKS; kind++) {
        tw_status_view_init(&view);
        view_sample(&view);
        assert_null(find_warning(words[kind]));
        view.attacks_count = 1;
        view.attacks[0] = (struct tw_attack){
            .kind = kind, .id = {{0xab}}, .count = UINT32_MAX, .others = UINT32_MAX};
        const struct tw_warning *const warning = find_warning(words[kind]);
        assert_non_null(warning);
        assert_non_null(
            strstr(warning->what, " (4294967295 times); other nodes did so 4294967295 times"));
        assert_true(strlen(warning->way_out) > 20);
        assert_true(strlen(warning->what) + 1 < TW_ATTACK_TEXT_BYTES);
    }
}

/* A thousand nodes with one attack each push neither another kind of attack out of the status nor
 * the nodes that were there first, and none of them is left uncounted. */
TEST(many_attackers_hide_no_other_warning) {
    enum { CROWD = 1000 };
    struct tw_attacks attacks = {0};
    const struct tw_id liar = {{0x11}};
    uint64_t sum = 0;
    tw_attacks_note(&attacks, TW_ATTACK_FORGED, &liar, 1);
    for (uint32_t i = 0; i < CROWD; i++) {
        const struct tw_id id = {{(uint8_t)i, (uint8_t)(i >> 8), 1}};
        tw_attacks_note(&attacks, TW_ATTACK_PROTOCOL, &id, i + 2);
    }
    tw_status_view_init(&view);
    view_sample(&view);
    view.train.is_anchor_bad = true;
    view.attacks_count = tw_attacks_recent(&attacks, CROWD + 2, view.attacks);
    assert_int_equal(view.attacks_count, 1 + TW_ATTACKS_PER_KIND);
    /* one of each kind comes first, the newest kind before the others */
    assert_int_equal(view.attacks[0].kind, TW_ATTACK_PROTOCOL);
    assert_int_equal(view.attacks[0].at_us, CROWD + 1);
    assert_int_equal(view.attacks[1].kind, TW_ATTACK_FORGED);
    for (uint32_t i = 0; i < view.attacks_count; i++) {
        if (view.attacks[i].kind == TW_ATTACK_PROTOCOL)
            sum += view.attacks[i].count + view.attacks[i].others;
    }
    assert_int_equal(sum, CROWD);
    for (uint32_t i = 2; i < view.attacks_count; i++) /* the first of the crowd */
        assert_int_equal(view.attacks[i].at_us, 1 + view.attacks_count - i);
    assert_non_null(find_warning("Node 11000000 sent a round"));
    assert_non_null(find_warning("other nodes did so 996 times"));
    assert_non_null(find_warning("Merging hurts"));
    const struct tw_id again = {{0, 0, 1}}; /* a node with a row */
    tw_attacks_note(&attacks, TW_ATTACK_PROTOCOL, &again, 3000);
    assert_int_equal(tw_attacks_recent(&attacks, 3000, view.attacks), 1 + TW_ATTACKS_PER_KIND);
    assert_int_equal(view.attacks[0].count, 2);
    assert_int_equal(view.attacks[0].others, CROWD - TW_ATTACKS_PER_KIND);
    assert_int_equal(tw_attacks_recent(&attacks, 3001 + TW_ATTACK_SHOWN_US, view.attacks), 0);
}

/* Old rows are free again, and attacks of an hour ago are not counted among the others. */
TEST(attacks_of_an_hour_ago_take_no_room) {
    struct tw_attacks attacks = {0};
    struct tw_attack rows[TW_ATTACKS_MAX];
    const uint64_t later_us = 100 + 2 * TW_ATTACK_SHOWN_US;
    for (uint8_t i = 1; i <= 20; i++)
        tw_attacks_note(&attacks, TW_ATTACK_PROTOCOL, &(struct tw_id){{i}}, i);
    for (uint8_t i = 0; i < TW_ATTACKS_PER_KIND + 1; i++)
        tw_attacks_note(&attacks, TW_ATTACK_PROTOCOL, &(struct tw_id){{100, i}}, later_us + i);
    assert_int_equal(tw_attacks_recent(&attacks, later_us + 9, rows), TW_ATTACKS_PER_KIND);
    assert_int_equal(rows[0].others, 1);
    for (uint32_t i = 0; i < TW_ATTACKS_PER_KIND; i++) assert_int_equal(rows[i].id.bytes[0], 100);
}

/* Each kind of attack has its place, even if all kinds are seen at once. */
TEST(each_kind_of_attack_is_shown) {
    struct tw_attacks attacks = {0};
    tw_status_view_init(&view);
    view_sample(&view);
    for (enum tw_attack_kind kind = 0; kind < TW_ATTACKS; kind++) {
        for (uint8_t i = 0; i < 2; i++)
            tw_attacks_note(&attacks, kind, &(struct tw_id){{(uint8_t)kind, i}}, 10 + i);
    }
    view.attacks_count = tw_attacks_recent(&attacks, 20, view.attacks);
    for (uint32_t i = 0; i < view.attacks_count; i++)
        assert_int_equal(view.attacks[i].at_us, i < TW_ATTACKS ? 11 : 10);
    assert_non_null(find_warning("sent a round that its group did not decide"));
    assert_non_null(find_warning("broke the protocol"));
    assert_non_null(find_warning("sends work far too large"));
}

TEST(every_finding_has_a_whole_sentence_and_a_way_out) {
    static const char *const words[TW_FINDINGS] = {
        [TW_FINDING_REFUSED] = "refused in 5 of the last 6 rounds, last by node ab000000",
        [TW_FINDING_LEFT_OUT] = "None of the last 6 rounds",
        [TW_FINDING_TAKES_OVER] = "takes over the others' state",
        [TW_FINDING_FAR] = "80 %, at most 20.0 % before",
        [TW_FINDING_RISING] = "4.000 nats, after 2.000",
        [TW_FINDING_STUCK] = "Round 12 is open for 90 s",
        [TW_FINDING_DIFFERS] = "not that of the others 7 times, last in round 12",
        [TW_FINDING_NO_SEAT] = "asked for a seat in the group for 80 s",
    };
    for (enum tw_finding f = 0; f < TW_FINDINGS; f++) {
        tw_status_view_init(&view);
        view_sample(&view);
        assert_null(find_warning(words[f]));
        view.health = (struct tw_view_health){.rounds = 6,
                                              .refused = 5,
                                              .refused_by = {{0xab}},
                                              .distance = 0.8f,
                                              .distance_most = 0.2f,
                                              .live = 4.0f,
                                              .live_least = 2.0f,
                                              .open_us = 90000000,
                                              .open_round = 12,
                                              .seatless_us = 80000000,
                                              .differed = 7,
                                              .differed_round = 12,
                                              .members = 4,
                                              .members_here = 3};
        view.health.has[f] = true;
        const struct tw_warning *warning = find_warning(words[f]);
        assert_non_null(warning);
        assert_true(strlen(warning->what) + 1 < TW_VIEW_TEXT_BYTES); /* whole */
        assert_true(strlen(warning->way_out) > 0);
        assert_true(strlen(warning->way_out) + 1 < sizeof(warning->way_out));
    }
}

/* A view in which work of peer 0 was merged, and no peer is alive. */
static struct tw_view_peer *lose_peer(enum tw_view_link link, uint64_t absent_us) {
    struct tw_view_peer *const peer = &view.peers[0];
    tw_status_view_init(&view);
    view_sample(&view);
    view.twins_count = view.attacks_count = 0;
    view.node.uptime_us = view.net.open_us = UINT64_C(3600000000);
    peer->link = link;
    peer->absent_us = absent_us;
    peer->has_merged = true;
    (void)snprintf(peer->name, sizeof(peer->name), "barn");
    return peer;
}

TEST(clocks_that_differ_are_told) {
    struct tw_view_peer *const first = lose_peer(TW_VIEW_LINK_ALIVE, 0);
    uint32_t linked = 0;
    for (uint32_t i = 0; i < view.peers_count; i++) {
        struct tw_view_peer *const peer = &view.peers[i];
        peer->ahead_s = 0;
        linked += peer->link == TW_VIEW_LINK_UP || peer->link == TW_VIEW_LINK_ALIVE;
    }
    assert_true(linked >= 3);
    first->ahead_s = TW_WARNING_CLOCK_S;
    assert_null(find_warning("clock"));
    first->ahead_s = 3 * 3600;
    const struct tw_warning *warning =
        find_warning("The clock of barn (1b1b1b1b) is 3 h 0 min ahead of");
    assert_non_null(warning);
    assert_int_equal(warning->kind, TW_WARNING_CLOCK_DIFFERS);
    assert_non_null(strstr(warning->what, "is 3 h 0 min ahead of this machine's"));
    first->ahead_s = -120;
    assert_non_null(find_warning("is 2 min behind this machine's"));
    for (uint32_t i = 0; i < view.peers_count; i++) view.peers[i].ahead_s = -120;
    warning = find_warning("This machine's clock differs from those of");
    assert_non_null(warning);
    assert_non_null(strstr(warning->what, "it is 2 min ahead of that of barn (1b1b1b1b)"));
    assert_string_equal(warning->about, "");
    first->link = TW_VIEW_LINK_AWAY;
    for (uint32_t i = 0; i < view.peers_count; i++) view.peers[i].ahead_s = TW_VIEW_NO_CLOCK;
    first->ahead_s = 3600; /* it is gone */
    assert_null(find_warning("clock"));
}

TEST(silent_member_is_missed_until_it_is_back) {
    struct tw_view_peer *const peer = lose_peer(TW_VIEW_LINK_AWAY, 5 * UINT64_C(60000000));
    view.sync.alive = 2;
    const struct tw_warning *warning = find_warning("has not been heard");
    assert_non_null(warning);
    assert_int_equal(warning->kind, TW_WARNING_MEMBER_LOST);
    assert_string_equal(warning->what, "barn (1b1b1b1b) has not been heard for 5 min; the run goes "
                                       "on with 2 others");
    assert_string_equal(warning->about, "1b1b1b1b");
    peer->absent_us = TW_WARNING_LOST_US - 1; /* a restart */
    assert_null(find_warning("has not been heard"));
    peer->absent_us = TW_WARNING_LOST_US;
    assert_non_null(find_warning("has not been heard"));
    peer->has_merged = false; /* it only looked in */
    assert_null(find_warning("has not been heard"));
    peer->has_merged = true;
    view.net.open_us = TW_WARNING_LOST_US - 1; /* this node has just come back itself */
    assert_null(find_warning("has not been heard"));
    view.net.open_us = TW_WARNING_LOST_US;
    static const enum tw_view_link links[] = {TW_VIEW_LINK_LEFT, TW_VIEW_LINK_PAUSED,
                                              TW_VIEW_LINK_GONE, TW_VIEW_LINK_ALIVE};
    for (unsigned i = 0; i < 4; i++) { /* they said goodbye, or are long forgotten, or here */
        peer->link = links[i];
        assert_null(find_warning("has not been heard"));
    }
}

TEST(merged_work_that_stopped_is_told_on_every_node) {
    lose_peer(TW_VIEW_LINK_LEFT, 5 * UINT64_C(60000000));
    view.sync.alive = view.net.bootstrap_count = 0; /* the first node has no configured peers */
    assert_null(find_warning("alone"));             /* it never merged */
    view.sync.alone_us = 5 * UINT64_C(60000000);
    const struct tw_warning *warning = find_warning("alone");
    assert_non_null(warning);
    assert_int_equal(warning->kind, TW_WARNING_TRAINS_ALONE);
    assert_string_equal(warning->what, "This node merged with others, and has trained alone for 5 "
                                       "min: barn (1b1b1b1b) left 5 min ago");
    /* A node that is away without a word is named alone, and none that was shut out. */
    view.peers_count = 3;
    view.peers[1] = view.peers[2] = view.peers[0];
    memset(&view.peers[1].id, 2, sizeof(view.peers[1].id));
    view.peers[1].link = TW_VIEW_LINK_AWAY;
    (void)snprintf(view.peers[1].name, sizeof(view.peers[1].name), "shed");
    view.peers[2].is_shut_out = true;
    assert_non_null(find_warning("alone for 5 min: shed (02020202) "));
    assert_null(find_warning("barn"));
    view.net.is_offline = true;
    assert_string_equal(find_warning("alone for 5 min")->way_out,
                        "look at this machine's own cable or wireless link, which is down; merging "
                        "goes on once it is back");
    view.net.is_offline = false;
    view.peers_count = 1;
    view.net.bootstrap_count = 1; /* told once */
    assert_null(find_warning("configured peer"));
    view.sync.alone_us = TW_VIEW_NEVER;
    assert_non_null(find_warning("configured peer"));
    view.sync.alone_us = TW_WARNING_LOST_US - 1;
    assert_null(find_warning("alone"));
    view.sync.alone_us = TW_WARNING_LOST_US;
    view.node.state = TW_STATE_FINISHED;
    assert_null(find_warning("alone"));
    view.node.state = TW_STATE_MEMBER;
    view.pause.age_us = 5000000;
    assert_null(find_warning("alone"));
    view.pause.age_us = TW_VIEW_NEVER;
    view.sync.topology = TW_TOPOLOGY_SOLO;
    assert_null(find_warning("alone"));
}

TEST(many_lost_members_leave_whole_sentences) {
    lose_peer(TW_VIEW_LINK_AWAY, 5 * UINT64_C(60000000));
    view.peers_count = 64;
    for (uint32_t i = 1; i < 64; i++) {
        view.peers[i] = view.peers[0];
        memset(&view.peers[i].id, (int)i, sizeof(view.peers[i].id));
        (void)snprintf(view.peers[i].name, sizeof(view.peers[i].name),
                       "a-name-as-long-as-a-name-may-be%u", i % 10);
    }
    view.sync.alive = 3;
    assert_non_null(find_warning("a-name-as-long-as-a-name-may-be1 (01010101) has not been heard"));
    view.sync.alive = 0;
    view.sync.alone_us = 5 * UINT64_C(60000000);
    const struct tw_warning *const warning = find_warning("trained alone");
    assert_non_null(warning);
    assert_true(strlen(warning->what) + 1 < sizeof(warning->what));
    assert_string_equal(warning->what + strlen(warning->what) - strlen("5 min"), "5 min");
    assert_true(strlen(warning->way_out) + 1 < sizeof(warning->way_out));
}

/* The owner asked for the pause, so no warning is needed. */
TEST(a_pause_is_no_warning) {
    tw_status_view_init(&view);
    view_sample(&view);
    view.sync.mixed = view.twins_count = 0;
    view.node.uptime_us = UINT64_C(3600000000);
    assert_non_null(find_warning("none of their work was merged here lately"));
    view.worker.state = TW_VIEW_WORKER_PAUSED;
    view.pause.is_by_owner = true;
    view.pause.age_us = 5000000;
    assert_null(find_warning("was merged here lately"));
    view.caps.resting = "pause"; /* the worker's memory is given back too */
    view.pause.is_memory_back = true;
    view.sync.alive = 0;
    assert_null(find_warning("reachable"));
    assert_null(find_warning("rest"));
}

TEST(a_missing_trainer_has_a_way_out_of_its_own) {
    view.worker.state = TW_VIEW_WORKER_ABSENT;
    view.node.uptime_us = UINT64_C(60) * 1000 * 1000;
    const struct tw_warning *warning = find_warning("No worker is attached");
    assert_non_null(warning);
    assert_non_null(strstr(warning->way_out, "thinwire-worker"));
    view.run.is_any_model = true;
    warning = find_warning("No trainer is attached");
    assert_non_null(warning);
    assert_non_null(strstr(warning->way_out, "start your trainer"));
}

/* Its work comes once it has the state: nobody has to look at it. */
TEST(a_peer_that_fetches_the_state_is_no_warning) {
    tw_status_view_init(&view);
    view_sample(&view);
    view.node.uptime_us = UINT64_C(3600) * 1000 * 1000;
    view.sync.alive = view.peers_count = 1;
    view.sync.mixed = 0;
    view.sync.rounds_committed = 1000;
    view.peers[0].link = TW_VIEW_LINK_ALIVE;
    view.peers[0].state = TW_STATE_SOLO;
    assert_non_null(find_warning("its work was not merged here lately"));
    view.peers[0].state = TW_STATE_RECEIVER;
    assert_null(find_warning("its work was not merged here lately"));
}
