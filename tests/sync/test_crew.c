/* test_crew.c - a head contributes the work of its hands, and a hand learns from the record and the
 * head's CREW whether its own is in the anchor. */
#include "sync/core/state.h"
#include "sync/crew/crew.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "tests/sync/lone_node.h"

#define FACT(name) TEST_IN(set_up_head, tear_down, name)

enum { FRAGMENT = ROUNDS % FRAGMENTS, HAND = 3, WORK_BYTES = 100 };

/* All work up to step 1000 is listed. */
static void note_listed(void) {
    node->at.tokens_listed = 1000;
    for (uint32_t p = 0; p < FRAGMENTS; p++)
        node->at.delta_tokens[p] = node->at.delta_steps[p] = 1000;
}

static int set_up_head(void **state) {
    const int status = set_up(state);
    node->cfg.crew_max = 4;
    worker_up();
    note_listed();
    return status;
}

static void greet_hand(uint16_t peer) {
    struct tw_message *message = message_of(TW_MSG_STATUS);
    link_up(peer);
    message->u.status.state = TW_STATE_RECEIVER;
    message->u.status.lineage = start.lineage;
    message->u.status.rounds = ROUNDS;
    say(peer, message);
}

static struct tw_id work_of_hand(uint16_t peer) {
    struct tw_id hash = name_of("work of a hand");
    hash.bytes[0] = (uint8_t)peer;
    return hash;
}

/* Returns the CONTRIB of a hand that trained `steps` steps of 10 tokens. */
static struct tw_message *contribution(uint16_t peer, uint32_t steps) {
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[FRAGMENT];
    contrib->tokens = contrib->fragment_tokens = 10 * (uint64_t)steps;
    contrib->fragment_steps = steps;
    contrib->parts_count = 1;
    contrib->hashes[0] = work_of_hand(peer);
    contrib->bytes[0] = WORK_BYTES;
    return message;
}

static enum tw_drop why_dropped(uint16_t peer, const struct tw_message *message) {
    say(peer, message);
    return tw_node_dropped(node);
}

/* The worker encodes the head's own work, of 10 steps and tokens, as one payload. */
static void encode_own(void) {
    step_to(1010);
    const struct tw_action *encode = find_action(TW_ACT_ENCODE);
    assert_non_null(encode);
    assert_int_equal(encode->u.encode.parts_count, 1);
    assert_int_equal(encode->u.encode.parts[0].count, node->cfg.fragment_elements[FRAGMENT]);
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = true};
    event.u.encoded.round = ROUNDS;
    event.u.encoded.step = event.u.encoded.tokens = 1010;
    event.u.encoded.parts_count = 1;
    event.u.encoded.hashes[0] = name_of("own work");
    event.u.encoded.bytes[0] = WORK_BYTES;
    feed(&event);
}

static void deliver(uint16_t peer, struct tw_id hash) {
    struct tw_event event = {.kind = TW_EV_CHUNK, .ok = true, .peer = peer};
    event.u.chunk.hash = hash;
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    feed(&event);
}

static void merge(uint64_t refused) {
    struct tw_event event = {.kind = TW_EV_GATHERED, .ok = true};
    event.u.encoded.round = ROUNDS;
    event.u.encoded.parts_count = 3;
    event.u.encoded.refused = refused;
    for (uint32_t k = 0; k < 3; k++) {
        event.u.encoded.hashes[k] = name_of(k == 0 ? "x" : k == 1 ? "y" : "z");
        event.u.encoded.bytes[k] = WORK_BYTES;
    }
    feed(&event);
}

/* Lets hands 3, 4, ... contribute these steps, and the head merge them with its own work. */
static const struct tw_msg_contrib *contribute_with(const uint32_t *steps, uint16_t count,
                                                    uint64_t refused) {
    for (uint16_t i = 0; i < count; i++) {
        greet_hand(HAND + i);
        assert_int_equal(why_dropped(HAND + i, contribution(HAND + i, steps[i])), TW_DROP_NONE);
    }
    encode_own();
    for (uint16_t i = 0; i < count; i++) {
        assert_non_null(find_message(TW_MSG_GATHER, HAND + i));
        assert_null(find_action(TW_ACT_GATHER));
        deliver(HAND + i, work_of_hand(HAND + i));
    }
    const struct tw_action *gather = find_action(TW_ACT_GATHER);
    assert_non_null(gather);
    assert_int_equal(gather->u.gather.inputs_count, 1u + count);
    merge(refused);
    const struct tw_message *sent = find_message(TW_MSG_CONTRIB, 1);
    assert_non_null(sent);
    return &sent->u.contrib;
}

FACT(head_contributes_the_work_of_its_hands) {
    const uint32_t steps[] = {10, 13};
    const struct tw_msg_contrib *contrib = contribute_with(steps, 2, 0);
    assert_int_equal(contrib->crew_count, 3);
    assert_int_equal(contrib->tokens, 10 + 100 + 130);
    assert_int_equal(contrib->fragment_tokens, 10 + 100 + 130);
    assert_int_equal(contrib->fragment_steps, 11); /* the mean */
    for (uint16_t peer = 1; peer <= HAND + 1; peer++) {
        const struct tw_message *list = find_message(TW_MSG_CREW, peer);
        assert_non_null(list);
        assert_int_equal(list->u.crew.rows_count, 3);
        const struct tw_id root = tw_crew_root(list->u.crew.rows, 3);
        assert_memory_equal(&root, &contrib->crew_root, sizeof(root));
    }
    assert_null(find_message(TW_MSG_CONTRIB, HAND)); /* a hand has no use for it */
}

FACT(work_that_the_worker_left_out_is_not_in_the_list) {
    const uint32_t steps[] = {10, 13};
    const struct tw_msg_contrib *contrib = contribute_with(steps, 2, 2);
    assert_int_equal(contrib->crew_count, 2);
    assert_int_equal(contrib->tokens, 10 + 130);
    assert_int_equal(find_message(TW_MSG_CREW, HAND)->u.crew.rows_count, 2);
}

FACT(one_hand_cannot_claim_for_many) {
    const uint32_t steps[] = {1, 1, 1000};
    const struct tw_msg_contrib *contrib = contribute_with(steps, 3, 0);
    assert_int_equal(contrib->tokens, 10 + 10 + 10 + 4 * 10);
    assert_int_equal(contrib->fragment_steps, 3); /* of 4, 1, 1, 4 */
}

FACT(full_crew_takes_no_other_hand) {
    node->cfg.crew_max = 2;
    greet_hand(HAND);
    greet_hand(HAND + 1);
    assert_int_equal(why_dropped(HAND, contribution(HAND, 10)), TW_DROP_NONE);
    assert_int_equal(why_dropped(HAND + 1, contribution(HAND + 1, 10)), TW_DROP_CREW_FULL);
    assert_int_equal(why_dropped(HAND, contribution(HAND, 10)), TW_DROP_TWICE);
}

FACT(false_work_of_a_hand_ends_its_link) {
    greet_hand(HAND);
    struct tw_message *message = contribution(HAND, 10);
    message->u.contrib.base = name_of("another anchor");
    assert_int_equal(why_dropped(HAND, message), TW_DROP_NOT_READY);
    message = contribution(HAND, 10);
    message->u.contrib.crew_count = 2; /* a hand has no crew */
    message->u.contrib.crew_root = name_of("rows");
    assert_int_equal(why_dropped(HAND, message), TW_DROP_IMPOSSIBLE);
    assert_null(find_action(TW_ACT_CLOSE));
    message = contribution(HAND, 10);
    memset(message->u.contrib.signature, 7, TW_SIGNATURE_BYTES);
    say_unsigned(HAND, message);
    assert_int_equal(tw_node_dropped(node), TW_DROP_FALSE);
    assert_non_null(find_action(TW_ACT_CLOSE));
}

/* To a node of a version without crews, the root of such a contribution is another one. */
FACT(run_without_crews_has_no_contributions_of_crews) {
    node->cfg.crew_max = 0;
    struct tw_message *message = contribution(1, 10);
    message->u.contrib.parts_count = 3;
    message->u.contrib.crew_count = 2;
    message->u.contrib.crew_root = name_of("rows");
    say_unsigned(1, message);
    assert_int_equal(tw_node_dropped(node), TW_DROP_FALSE);
    message = message_of(TW_MSG_CREW);
    message->u.crew.rows_count = 1;
    assert_int_equal(why_dropped(2, message), TW_DROP_OTHER_RUN);
    message = message_of(TW_MSG_GATHER);
    message->u.gather = (struct tw_msg_gather){.lineage = start.lineage, .round = ROUNDS};
    assert_int_equal(why_dropped(2, message), TW_DROP_OTHER_RUN);
}

static struct tw_message *list_of(uint16_t head, uint64_t round) {
    struct tw_message *message = message_of(TW_MSG_CREW);
    struct tw_msg_crew *crew = &message->u.crew;
    crew->lineage = start.lineage;
    crew->head = id_of(head);
    crew->round = round;
    crew->parts_root = name_of("parts");
    crew->rows_count = 1;
    crew->rows[0] = (struct tw_crew_row){1, name_of("leaf")};
    return message;
}

static struct tw_id root_of_list(const struct tw_msg_crew *crew) {
    const struct tw_id rows = tw_crew_root(crew->rows, crew->rows_count);
    return tw_crew_bind(&crew->parts_root, crew->rows_count, &rows);
}

FACT(members_keep_lists_of_heads_and_give_them_to_hands) {
    struct tw_message *message = list_of(1, ROUNDS);
    assert_int_equal(why_dropped(2, message), TW_DROP_UNASKED); /* of another head */
    assert_int_equal(why_dropped(1, list_of(1, ROUNDS - 2)), TW_DROP_OLD_ROUND);
    assert_int_equal(why_dropped(1, list_of(1, ROUNDS + 2)), TW_DROP_ROUND_TO_COME);
    message = list_of(1, ROUNDS);
    assert_int_equal(why_dropped(1, message), TW_DROP_NONE);
    const struct tw_id root = root_of_list(&message->u.crew);
    greet_hand(HAND);
    message = message_of(TW_MSG_CREW_GET);
    message->u.crew_get = (struct tw_msg_crew_get){start.lineage, id_of(1), ROUNDS, root};
    assert_int_equal(why_dropped(HAND, message), TW_DROP_NONE);
    assert_non_null(find_message(TW_MSG_CREW, HAND));
    message->u.crew_get.root = name_of("another");
    assert_int_equal(why_dropped(HAND, message), TW_DROP_UNKNOWN);
}

/* ---- a hand ---------------------------------------------------------------------------------- */

/* The node is a hand of members 1, 2 and 3. It has sent its work of the round to its head. */
static uint16_t set_up_hand(void) {
    for (uint32_t i = 0; i < 3; i++)
        start.tip.next.members[i] =
            (struct tw_member){.id = id_of(i + 1), .nonce = 8 + i, .weight = 1};
    start_again();
    node->cfg.crew_max = 4;
    node->cfg.is_hand = true;
    link_up(3);
    say_status(3, &start.lineage, start.rounds, start.tip.clock_tokens);
    worker_up();
    note_listed();
    assert_int_equal(view_now().state, TW_STATE_RECEIVER);
    encode_own();
    for (uint16_t peer = 1; peer <= 3; peer++) {
        if (find_message(TW_MSG_CONTRIB, peer) != NULL) return peer;
    }
    fail_msg("no member got the work");
    return 0;
}

/* Returns the list of the head, with the hand's work in it or not. */
static struct tw_message *list_with(uint16_t head, bool is_in) {
    struct tw_message *message = list_of(head, ROUNDS);
    const struct tw_msg_contrib *sent = &find_message(TW_MSG_CONTRIB, head)->u.contrib;
    const struct tw_contributor row = tw_contributor_of(0, sent);
    if (!is_in) return message;
    memcpy(&message->u.crew.rows[0].key, node->cfg.self.bytes, 8);
    message->u.crew.rows[0].leaf = tw_crew_leaf(&node->cfg.self, &row);
    return message;
}

/* The members decide the round, with the contribution of the head in the part of member 1. */
static void decide(uint16_t head, const struct tw_id *root) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_record *record = &message->u.commit.record;
    *record = empty_close(&start.tip);
    record->contributors_count = 1;
    record->contributors[0] = (struct tw_contributor){
        .member_idx = head - 1u, .fragment_steps = 10, .tokens = 20, .fragment_tokens = 20};
    record->contributors[0].root = *root;
    record->clock_tokens += 20;
    record->parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) record->parts[k].owner_idx = k;
    record->parts[0].bytes = 90;
    record->parts[0].result = name_of("result");
    record->parts[0].contributors = UINT64_C(1) << (head - 1);
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    step_to(1100);
    for (uint16_t peer = 1; peer <= 3; peer++) {
        if (find_message(TW_MSG_PULL, peer) == NULL) continue;
        deliver(peer, name_of("result"));
        break;
    }
}

static void hand_learns(bool is_in) {
    const uint16_t head = set_up_hand(), other = head % 3 + 1;
    struct tw_msg_crew list = list_with(head, is_in)->u.crew;
    const struct tw_id root = root_of_list(&list);
    forget();
    decide(head, &root);
    assert_non_null(find_message(TW_MSG_CREW_GET, other));
    assert_null(find_action(TW_ACT_APPLY));             /* it cannot know yet */
    struct tw_message *message = list_of(head, ROUNDS); /* a false list */
    message->u.crew.parts_root = name_of("others");
    say(other, message);
    assert_null(find_action(TW_ACT_APPLY));
    message->u.crew = list;
    say(other, message); /* any member may give it */
    wait_us(SECONDS(1));
    if (find_action(TW_ACT_APPLY) == NULL) deliver(other, name_of("result"));
    const struct tw_action *apply = find_action(TW_ACT_APPLY);
    assert_non_null(apply);
    assert_int_equal(apply->u.apply.parts[0].mode, is_in ? TW_APPLY_MIX : TW_APPLY_SHIFT);
    assert_int_equal(node->at.tokens_listed, is_in ? 1010 : 1000);
}

FACT(hand_whose_work_is_listed_goes_on_from_there) {
    hand_learns(true);
}

FACT(hand_whose_work_is_not_listed_keeps_it) {
    hand_learns(false);
}

/* The head hides its list, and nobody else has it: the work may be in the anchor, so its tokens do
 * not count again, and the hand turns to another head. */
FACT(hand_of_a_head_that_hides_its_list_goes_on) {
    const uint16_t head = set_up_hand();
    const struct tw_id root = name_of("hidden");
    forget();
    decide(head, &root);
    wait_us(SECONDS(62));
    const struct tw_action *apply = find_action(TW_ACT_APPLY);
    assert_non_null(apply);
    assert_int_equal(apply->u.apply.parts[0].mode, TW_APPLY_SHIFT);
    assert_false(node->crew.is_out);
    assert_memory_equal(&node->crew.left[0].id, &node->roster.members[head - 1].id, 32);
    assert_int_equal(node->at.tokens_listed, node->worker.tokens);
}

int main(void) {
    return test_run(NULL, NULL);
}
