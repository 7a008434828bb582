/* test_allowance.c - a node stays within its budget, for any amount of other traffic on its
 * socket. */
#include "daemon/config/quota.h"

#include "tests/test.h"

enum { SECOND = 1000 * 1000, RATE = 100000, MONTH_GB = 50 };

/* A simulated node with a round every `round_s`, a model in one fragment, and `rest` bytes per
 * second of other traffic. The socket carries a contribution in the seconds after the node makes
 * it. */
struct node {
    struct tw_allowance allowance;
    uint64_t now_s, traffic, contributed, round_s, rest, least, most, besides;
    uint32_t rounds, made;
    uint64_t largest;
};

static void node_init(struct node *node, uint64_t bytes, bool is_month) {
    const struct tw_budget_config config = {.bytes = bytes, .is_month = is_month};
    *node = (struct node){.round_s = 10, .least = 1000, .most = UINT64_MAX};
    tw_allowance_init(&node->allowance, &config);
}

static void node_run(struct node *node, uint64_t seconds) {
    uint64_t queued = 0;
    for (const uint64_t end = node->now_s + seconds; node->now_s < end; node->now_s++) {
        const uint64_t moved = queued < 400000 ? queued : 400000;
        queued -= moved;
        node->traffic += moved + node->rest;
        tw_allowance_look(&node->allowance, (node->now_s + 1) * SECOND, node->traffic);
        if (node->now_s % node->round_s != 0) continue;
        const struct tw_allowance_ask ask = {.cycle_us = node->round_s * SECOND,
                                             .share = 1.0,
                                             .least = node->least,
                                             .besides = node->besides};
        uint64_t bytes_max;
        node->rounds++;
        if (!tw_allowance_ask(&node->allowance, &ask, &bytes_max)) continue;
        const uint64_t bytes = bytes_max < node->most ? bytes_max : node->most;
        assert_true(bytes >= node->least || node->most < node->least);
        tw_allowance_sent(&node->allowance, bytes);
        node->made++;
        node->contributed += bytes;
        if (bytes > node->largest) node->largest = bytes;
        queued += bytes + node->besides;
    }
}

static void assert_share(double value, double want, double off) {
    if (value < want - off || value > want + off)
        fail_msg("%.3f, expected %.3f within %.3f", value, want, off);
}

TEST(without_a_budget_everything_may_go) {
    struct node node;
    uint64_t bytes_max;
    node_init(&node, 0, false);
    const struct tw_allowance_ask ask = {.cycle_us = 0, .share = 1.0, .least = 5};
    assert_true(tw_allowance_ask(&node.allowance, &ask, &bytes_max));
    assert_true(bytes_max == UINT64_MAX);
    assert_false(tw_allowance_is_hopeless(&node.allowance));
}

TEST(the_remainder_goes_to_contributions) {
    static const uint64_t rests[] = {0, 20000, 60000};
    for (unsigned i = 0; i < 3; i++) {
        struct node node;
        node_init(&node, RATE, false);
        node.rest = rests[i];
        node_run(&node, 600);
        const uint64_t before = node.traffic;
        node_run(&node, 3000);
        /* Traffic is measured at the socket, so packet headers are not included. */
        assert_share((double)(node.traffic - before) / 3000 / RATE, 0.96, 0.04);
        /* The node stays within its rate because it accounts for other traffic, not by paying off
         * debt. */
        assert_true(node.allowance.credit > -0.5 * RATE * 10);
        assert_int_equal(node.made, node.rounds);
    }
}

/* In pairs an anchor accompanies each contribution. The node includes it from the first
 * contribution on. */
TEST(accompanying_bytes_are_known_from_the_first_contribution_on) {
    struct node node;
    node_init(&node, RATE, false);
    node.besides = 5 * RATE; /* half of a round */
    node_run(&node, 1);      /* the first contribution is made */
    assert_int_equal(node.made, 1);
    assert_in_range(node.contributed, RATE * 10 * 2 / 5, RATE * 10 / 2);
    node_run(&node, 39);
    assert_true(node.traffic <= UINT64_C(40) * RATE);
    const uint64_t before = node.traffic;
    node_run(&node, 3000);
    assert_share((double)(node.traffic - before) / 3000 / RATE, 0.96, 0.04);
    assert_int_equal(node.made, node.rounds);
}

/* The node saves up for a contribution and its anchor together. If it saved for the contribution
 * alone, the anchor would overdraw the credit. */
TEST(accompanying_bytes_are_saved_up_for_too) {
    struct node node;
    node_init(&node, RATE, false);
    node.besides = 10 * 3 * RATE; /* as much as the node may send in three rounds */
    node_run(&node, 1000);
    const uint64_t before = node.traffic;
    const uint32_t rounds = node.rounds, made = node.made;
    node_run(&node, 10000);
    assert_share((double)(node.traffic - before) / 10000 / RATE, 0.95, 0.05);
    assert_share((double)(node.made - made) / (node.rounds - rounds), 0.31, 0.05);
}

TEST(a_change_besides_is_made_up_for) {
    struct node node;
    node_init(&node, RATE, false);
    node_run(&node, 1000);
    node.rest = 70000; /* results for one more member */
    node_run(&node, 600);
    const uint64_t before = node.traffic;
    node_run(&node, 2000);
    assert_share((double)(node.traffic - before) / 2000 / RATE, 0.96, 0.04);
}

TEST(a_node_that_cannot_afford_every_round_takes_part_in_some) {
    struct node node;
    node_init(&node, RATE, false);
    node.rest = 60000;
    /* as many bytes as other traffic leaves in three rounds */
    node.least = 3 * 10 * (RATE - 60000);
    node_run(&node, 1000);
    const uint64_t before = node.traffic;
    const uint32_t rounds = node.rounds, made = node.made;
    node_run(&node, 10000);
    assert_share((double)(node.made - made) / (node.rounds - rounds), 0.31, 0.05);
    assert_share((double)(node.traffic - before) / 10000 / RATE, 0.95, 0.05);
}

TEST(a_rest_above_the_budget_leaves_nothing) {
    struct node node;
    node_init(&node, RATE, false);
    node.rest = 2 * RATE;
    node_run(&node, 600);
    const uint32_t made = node.made;
    node_run(&node, 2000);
    assert_int_equal(node.made, made);
    assert_true(tw_allowance_is_hopeless(&node.allowance));
    node.rest = RATE / 2; /* now the allowance suffices */
    node_run(&node, 3000);
    assert_true(node.made > made + 200);
    assert_false(tw_allowance_is_hopeless(&node.allowance));
}

TEST(unused_budget_makes_no_burst) {
    struct node node;
    node_init(&node, RATE, false);
    node.most = 1000;
    node_run(&node, 5000);
    node.most = UINT64_MAX;
    node.largest = 0;
    node_run(&node, 10);
    /* At most the budget of two cycles is saved up, and a contribution may spend half of it. */
    assert_true(node.largest <= (uint64_t)RATE * 20);
}

TEST(a_month_keeps_its_debt) {
    struct node node;
    const double month_bytes = MONTH_GB * 1e9;
    node_init(&node, (uint64_t)month_bytes, true);
    node.round_s = 60;
    node_run(&node, 3600);
    node.traffic += (uint64_t)month_bytes / 30; /* a joining node fetched the budget of a day */
    const uint32_t made = node.made;
    node_run(&node, 6 * 3600);
    assert_int_equal(node.made, made);
    node_run(&node, 24 * 3600);
    assert_true(node.made > made);
    assert_true((double)node.traffic <= month_bytes / 30 * (31.0 / 24 + 0.1));
}

/* A node that does not know the interval of its rounds does not guess: it spends its credit. */
TEST(an_unknown_cycle_lives_on_credit) {
    struct node node;
    uint64_t bytes_max;
    node_init(&node, RATE, false);
    const struct tw_allowance_ask ask = {.cycle_us = 0, .share = 1.0, .least = 1000};
    assert_false(tw_allowance_ask(&node.allowance, &ask, &bytes_max));
    tw_allowance_look(&node.allowance, SECOND, 0);
    tw_allowance_look(&node.allowance, 2 * SECOND, 0);
    assert_true(tw_allowance_ask(&node.allowance, &ask, &bytes_max));
    assert_int_equal(bytes_max, 1000);
}

TEST(parts_share_by_elements_and_by_links) {
    struct tw_allowance_part parts[4] = {{.elements = 100, .link_max = UINT64_MAX},
                                         {.elements = 200, .link_max = 50},
                                         {.elements = 100, .link_max = UINT64_MAX},
                                         {.elements = 0, .link_max = 0}};
    tw_allowance_deal(parts, 4, 1000);
    /* includes a share of the bytes that the slow link cannot carry */
    assert_int_equal(parts[0].bytes_max, 475);
    assert_int_equal(parts[1].bytes_max, 50);
    assert_int_equal(parts[2].bytes_max, 475);
    assert_int_equal(parts[3].bytes_max, 0);
    parts[0].link_max = parts[2].link_max = 10;
    tw_allowance_deal(parts, 4, 1000);
    assert_int_equal(parts[0].bytes_max + parts[1].bytes_max + parts[2].bytes_max, 70);
    /* This link becomes too slow only after the first excess is distributed. */
    parts[0].link_max = 400;
    parts[2].link_max = UINT64_MAX;
    tw_allowance_deal(parts, 4, 1000);
    assert_int_equal(parts[0].bytes_max, 400);
    assert_int_equal(parts[2].bytes_max, 550);
    tw_allowance_deal(parts, 0, 1000);
}
