/* test_dropped.c - a message without effect has a reason, which is counted: one of each kind. */
#include "tests/sync/lone_node.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* The message has no effect, for this reason. */
static void is_dropped(uint16_t peer, const struct tw_message *message, enum tw_drop why) {
    const uint64_t before = view_now().dropped[why];
    say_unsigned(peer, message);
    const struct tw_node_view view = view_now();
    for (enum tw_drop other = TW_DROP_NONE + 1; other < TW_DROPS_COUNT; other++) {
        if (other != why && view.dropped[other] > 0 && view.dropped[why] == before)
            print_message("message %d: %s, %d times\n", (int)message->kind, tw_drop_word(other),
                          (int)view.dropped[other]);
    }
    assert_int_equal(view.dropped[why], before + 1);
}

static struct tw_msg_contrib contrib_of(uint64_t round) {
    return (struct tw_msg_contrib){.lineage = start.lineage,
                                   .round = round,
                                   .base = start.fragment_digests[ROUNDS % FRAGMENTS],
                                   .parts_count = 3};
}

FACT(contributions_and_results_have_reasons) {
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    message->u.contrib = contrib_of(ROUNDS - 1);
    is_dropped(1, message, TW_DROP_OLD_ROUND);
    message->u.contrib = contrib_of(ROUNDS + 1);
    is_dropped(1, message, TW_DROP_ROUND_TO_COME);
    message->u.contrib = contrib_of(ROUNDS);
    message->u.contrib.lineage = name_of("another");
    is_dropped(1, message, TW_DROP_OTHER_LINEAGE);
    message->u.contrib = contrib_of(ROUNDS);
    message->u.contrib.parts_count = 2;
    is_dropped(1, message, TW_DROP_IMPOSSIBLE);
    contribute_as(1);
    message = message_of(TW_MSG_CONTRIB);
    message->u.contrib = contrib_of(ROUNDS);
    is_dropped(1, message, TW_DROP_TWICE);
    link_up(3);
    is_dropped(3, message, TW_DROP_NO_SEAT);

    message = message_of(TW_MSG_RESULT);
    message->u.result =
        (struct tw_msg_result){.lineage = start.lineage, .round = ROUNDS, .part = 1};
    is_dropped(2, message, TW_DROP_NO_OWNER);
}

FACT(votes_have_reasons) {
    struct tw_message *message = message_of(TW_MSG_PREPARE);
    message->u.prepare =
        (struct tw_msg_prepare){.lineage = start.lineage, .round = ROUNDS, .ballot = 5};
    is_dropped(1, message, TW_DROP_NO_BALLOT);
    message = message_of(TW_MSG_PROMISE);
    message->u.promise =
        (struct tw_msg_promise){.lineage = start.lineage, .round = ROUNDS, .ballot = 64};
    is_dropped(1, message, TW_DROP_NO_BALLOT);
    message->u.promise.lineage = name_of("another");
    is_dropped(1, message, TW_DROP_OTHER_LINEAGE);
    message = message_of(TW_MSG_PROPOSE);
    message->u.propose.ballot = 5;
    message->u.propose.record = empty_close(&start.tip);
    is_dropped(1, message, TW_DROP_NO_BALLOT);
    message = message_of(TW_MSG_LOCK);
    message->u.lock =
        (struct tw_msg_lock){.lineage = start.lineage, .round = ROUNDS, .proof.ballot = 5};
    message->u.lock.proof.voters = 7;
    is_dropped(1, message, TW_DROP_NO_BALLOT);
    message = message_of(TW_MSG_ACCEPT);
    message->u.accept = (struct tw_msg_accept){
        .lineage = start.lineage, .round = ROUNDS, .ballot = 64, .phase = TW_VOTE_ACCEPT};
    is_dropped(1, message, TW_DROP_NO_BALLOT);
    link_up(3);
    is_dropped(3, message, TW_DROP_NO_VOTE);
    message = message_of(TW_MSG_NACK);
    message->u.nack =
        (struct tw_msg_nack){.lineage = start.lineage, .round = ROUNDS, .promised = 64};
    is_dropped(1, message, TW_DROP_NO_BALLOT);
    message->u.nack.promised = 0;
    message->u.nack.refused_parts = 1;
    is_dropped(1, message, TW_DROP_UNKNOWN);
    message = message_of(TW_MSG_EVIDENCE);
    message->u.evidence = (struct tw_msg_evidence){.author = name_of("stranger"),
                                                   .lineage = start.lineage,
                                                   .round = ROUNDS,
                                                   .ballot = 64,
                                                   .phase = TW_VOTE_ACCEPT,
                                                   .first.digest = name_of("a"),
                                                   .second.digest = name_of("b")};
    is_dropped(1, message, TW_DROP_UNKNOWN);
}

FACT(history_and_states_have_reasons) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = start.tip;
    is_dropped(1, message, TW_DROP_OLD_ROUND);
    message->u.commit.record = empty_close(&start.tip);
    message->u.commit.record.parent = name_of("other parent");
    is_dropped(1, message, TW_DROP_OTHER_HISTORY);
    message = message_of(TW_MSG_LOG_GET);
    message->u.log_get = (struct tw_msg_log_get){.lineage = start.lineage, .round = ROUNDS};
    is_dropped(1, message, TW_DROP_ROUND_TO_COME);
    message = message_of(TW_MSG_LOG_NONE);
    message->u.log_none = (struct tw_msg_log_none){
        .lineage = start.lineage, .oldest_round = ROUNDS, .rounds = ROUNDS + 1};
    is_dropped(1, message, TW_DROP_OLD_ROUND);
    message = message_of(TW_MSG_STATE_GET);
    message->u.state_get = (struct tw_msg_state_get){.lineage = start.lineage};
    is_dropped(1, message, TW_DROP_NOT_READY); /* no worker */
    message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){.lineage = start.lineage, .rounds = ROUNDS};
    is_dropped(1, message, TW_DROP_UNASKED);
    message = message_of(TW_MSG_JOIN);
    message->u.join = (struct tw_msg_join){.lineage = name_of("another"), .rounds = ROUNDS};
    is_dropped(1, message, TW_DROP_OTHER_LINEAGE);
    message->u.join.lineage = start.lineage;
    is_dropped(1, message, TW_DROP_FALSE); /* not signed */
}

FACT(payloads_have_reasons) {
    struct tw_message *message = message_of(TW_MSG_PULL);
    message->u.pull = (struct tw_msg_pull){.hash = name_of("unknown"), .count = 1};
    is_dropped(1, message, TW_DROP_UNKNOWN);
    assert_non_null(find_message(TW_MSG_MISSING, 1)); /* it is answered all the same */
    message = message_of(TW_MSG_MISSING);
    message->u.missing = (struct tw_msg_missing){.hash = name_of("unknown")};
    is_dropped(1, message, TW_DROP_UNASKED);
    const uint64_t before = view_now().dropped[TW_DROP_UNASKED];
    feed(&(struct tw_event){.kind = TW_EV_CHUNK, .peer = 1, .u.chunk.hash = name_of("unknown")});
    assert_int_equal(tw_node_dropped(node), TW_DROP_UNASKED);
    feed(&(struct tw_event){.kind = TW_EV_VERIFIED, .u.chunk.hash = name_of("unknown")});
    assert_int_equal(tw_node_dropped(node), TW_DROP_UNKNOWN);
    feed(&(struct tw_event){.kind = TW_EV_ENCODED, .u.encoded.round = ROUNDS - 1});
    feed(&(struct tw_event){.kind = TW_EV_REDUCED, .u.reduced.round = ROUNDS - 1});
    feed(&(struct tw_event){.kind = TW_EV_JUDGED, .u.judged.round = ROUNDS - 1});
    assert_int_equal(view_now().dropped[TW_DROP_UNASKED], before + 4);
    feed(&(struct tw_event){.kind = TW_EV_TICK});
    assert_int_equal(tw_node_dropped(node), TW_DROP_NONE);
}

FACT(messages_of_other_runs_and_former_members_have_reasons) {
    is_dropped(1, message_of(TW_MSG_PAIR_REQUEST), TW_DROP_OTHER_RUN);
    is_dropped(1, message_of(TW_MSG_PAIR_ACCEPT), TW_DROP_OTHER_RUN);
    is_dropped(1, message_of(TW_MSG_PAIR_BUSY), TW_DROP_OTHER_RUN);
    struct tw_message *message = message_of(TW_MSG_PAIR_OFFER);
    message->u.pair_offer.delta_bytes = message->u.pair_offer.phi_bytes = 1;
    is_dropped(1, message, TW_DROP_OTHER_RUN);
    message = message_of(TW_MSG_ACCUSE);
    message->u.accuse = (struct tw_msg_accuse){.lineage = start.lineage, .round = ROUNDS - 1};
    is_dropped(1, message, TW_DROP_UNKNOWN); /* the round was decided before the start */
    message->u.accuse.trainer = 1;
    is_dropped(1, message, TW_DROP_OTHER_RUN); /* no sync.jury */
    say(1, message_of(TW_MSG_LEAVE));
    message = message_of(TW_MSG_STATUS);
    message->u.status = (struct tw_msg_status){.lineage = start.lineage, .rounds = ROUNDS};
    is_dropped(1, message, TW_DROP_LEFT);
}

FACT(reasons_have_distinct_words) {
    for (enum tw_drop a = TW_DROP_NONE; a < TW_DROPS_COUNT; a++) {
        assert_true(strlen(tw_drop_sentence(a)) > 8);
        for (enum tw_drop b = TW_DROP_NONE; b < a; b++)
            assert_string_not_equal(tw_drop_word(a), tw_drop_word(b));
    }
}
