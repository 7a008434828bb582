/* test_stall.c - what one member, or one path, can hold up: a healthy group commits once a second,
 * and with one that lies, or that hears or delivers nothing, it commits half as often at least. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "sync/node_internal.h"
#include "tests/sync/mesh.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)
#define MINUTES(n) (60 * SECONDS(n))

enum { HEALTHY = 600 }; /* commits in ten minutes */

static struct mesh mesh;
static bool is_on;       /* the fault, or the lie */
static uint32_t culprit; /* the last node */

static void open_group(uint32_t nodes_count) {
    is_on = false;
    culprit = nodes_count - 1;
    mesh_init(&mesh, nodes_count, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, MINUTES(1));
    is_on = true;
}

/* Links that were closed are made anew. Returns the commits of node 0. */
static uint32_t commits_in(uint64_t for_us) {
    const uint64_t end_us = mesh.now_us + for_us;
    const uint32_t before = mesh.commits[0];
    while (mesh.now_us < end_us) {
        mesh_run(&mesh, SECONDS(5));
        mesh_link_all(&mesh);
    }
    printf("%u commits of %u\n", mesh.commits[0] - before, HEALTHY);
    return mesh.commits[0] - before;
}

static void close_group(void) {
    for (uint32_t i = 1; i < culprit; i++) assert_true(mesh_agree(&mesh, 0, i));
    mesh_deinit(&mesh);
}

static void healthy_group_commits_once_a_second(void **state) {
    (void)state;
    open_group(5);
    assert_in_range(commits_in(MINUTES(10)), HEALTHY - 5, HEALTHY + 5);
    close_group();
}

/* ---- paths ---------------------------------------------------------------------------------- */

static bool gives_no_contribution(struct mesh *world, uint32_t from, uint32_t to,
                                  const struct tw_id *hash) {
    (void)to;
    const struct payload *payload = tw_payload_find(world->nodes[from], hash);
    return !is_on || from != culprit || payload == NULL || payload->content != TW_CONTENT_DELTA;
}

/* Everybody says what it should, and what one contributes never arrives. */
static void contributions_that_never_come_are_waited_for_ever_more_seldom(void **state) {
    (void)state;
    open_group(5);
    mesh.gives = gives_no_contribution;
    assert_true(commits_in(MINUTES(10)) >= HEALTHY / 2);
    assert_true(commits_in(MINUTES(10)) >= HEALTHY * 3 / 4);
    close_group();
}

static bool gives_node_0_nothing(struct mesh *world, uint32_t from, uint32_t to,
                                 const struct tw_id *hash) {
    (void)world;
    (void)hash;
    return !is_on || from != culprit || to != 0;
}

/* No chunk of one member reaches another: the others have what it gave them. */
static void dead_path_between_two_holds_up_neither(void **state) {
    (void)state;
    open_group(5);
    mesh.gives = gives_node_0_nothing;
    assert_true(commits_in(MINUTES(10)) >= HEALTHY / 2);
    assert_true(commits_in(MINUTES(10)) >= HEALTHY * 3 / 4);
    is_on = false; /* and when it carries again, so it does */
    assert_true(commits_in(MINUTES(10)) >= HEALTHY * 9 / 10);
    close_group();
}

/* ---- lies ------------------------------------------------------------------------------------ */

/* Whether somebody asks for a vote, and in which ballot. */
static bool is_asking(const struct tw_message *said, struct tw_msg_prepare *ballot) {
    if (said->kind == TW_MSG_PREPARE) *ballot = said->u.prepare;
    if (said->kind == TW_MSG_PROPOSE)
        *ballot = (struct tw_msg_prepare){.lineage = said->u.propose.close.lineage,
                                          .round = said->u.propose.close.round,
                                          .ballot = said->u.propose.ballot};
    return said->kind == TW_MSG_PREPARE || said->kind == TW_MSG_PROPOSE;
}

static bool is_vote(const struct tw_message *said) {
    return said->kind == TW_MSG_PROMISE || said->kind == TW_MSG_ACCEPT;
}

/* It closes nothing, votes for nothing, and has always promised a higher ballot. */
static bool says_no(struct mesh *world, uint32_t from, uint32_t to, struct tw_message *said) {
    struct tw_msg_prepare asked;
    if (!is_on || (from != culprit && to != culprit)) return true;
    if (from == culprit) return !is_vote(said) && !is_asking(said, &asked);
    if (!is_asking(said, &asked)) return true;
    struct tw_message no = {.kind = TW_MSG_NACK};
    no.u.nack = (struct tw_msg_nack){
        .lineage = asked.lineage, .round = asked.round, .promised = asked.ballot + TW_MEMBERS_MAX};
    mesh_say(world, culprit, from, &no);
    return false;
}

static void promise_that_one_claims_ends_no_ballot(void **state) {
    (void)state;
    open_group(5);
    mesh.says = says_no;
    assert_true(commits_in(MINUTES(10)) >= HEALTHY / 2);
    close_group();
}

static bool says_no_result(struct mesh *world, uint32_t from, uint32_t to,
                           struct tw_message *said) {
    (void)world;
    (void)to;
    return !is_on || from != culprit || said->kind != TW_MSG_RESULT;
}

static void owner_that_tells_nothing_is_waited_for_twice(void **state) {
    (void)state;
    open_group(5);
    mesh.says = says_no_result;
    assert_true(commits_in(MINUTES(10)) >= HEALTHY / 3);
    assert_true(commits_in(MINUTES(10)) >= HEALTHY * 3 / 4);
    close_group();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_group_commits_once_a_second),
        cmocka_unit_test(contributions_that_never_come_are_waited_for_ever_more_seldom),
        cmocka_unit_test(dead_path_between_two_holds_up_neither),
        cmocka_unit_test(promise_that_one_claims_ends_no_ballot),
        cmocka_unit_test(owner_that_tells_nothing_is_waited_for_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
