/* pass.c - drops or changes messages that the honest core inside a traitor sends. */
#include <string.h>

#include "tests/traitor/coven.h"

enum { HUGE_PARTS = 1 << 29 };

/* ---- messages of the honest core --------------------------------------------------------------
 */

static void twist_status(struct tw_traitor *traitor, struct tw_msg_status *status) {
    const uint64_t lie = tw_rng_below(&traitor->rng, 6);
    if (lie == 0) status->rounds += 1 + tw_rng_below(&traitor->rng, 100);
    if (lie == 1) status->rounds -= status->rounds > 0;
    if (lie == 2) status->nonce = tw_rng_next(&traitor->rng);
    if (lie == 3) status->state = (enum tw_node_state)tw_rng_below(&traitor->rng, 4);
    if (lie == 4) status->upload_kib_s = UINT32_MAX;
    if (lie == 5) status->tip = tw_traitor_draw_id(traitor);
}

static void twist_contrib(struct tw_traitor *traitor, struct tw_msg_contrib *contrib) {
    const uint64_t lie = tw_rng_below(&traitor->rng, 4);
    bool is_of_nothing = true;
    for (uint32_t k = 0; k < contrib->parts_count; k++) is_of_nothing &= contrib->bytes[k] == 0;
    if (is_of_nothing) return;
    if (lie == 0) contrib->tokens += tw_rng_below(&traitor->rng, UINT64_C(1) << 40);
    if (lie == 1) contrib->hashes[0] = tw_traitor_draw_id(traitor);
    if (lie == 2) contrib->base = tw_traitor_draw_id(traitor);
    if (lie == 3) contrib->fragment_tokens = UINT64_C(1) << 47;
    tw_traitor_sign_contrib(traitor, contrib);
}

static void twist_result(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                         struct tw_msg_result *result) {
    if (result->bytes == 0) return;
    const uint64_t lie = tw_rng_below(&traitor->rng, 4);
    if (lie == 0) result->hash = tw_traitor_draw_id(traitor);
    if (lie == 1 && result->contributors_count > 1) result->contributors_count--;
    if (lie == 2) result->bytes += HUGE_PARTS / 4;
    if (lie == 3) {
        *result = (struct tw_msg_result){
            .lineage = result->lineage, .round = result->round, .part = result->part};
    }
    tw_traitor_sign_result(traitor, view, result);
}

/* Raises numbers to the largest values that a message can hold. */
static void twist_numbers(struct tw_traitor *traitor, struct tw_message *message) {
    switch ((int)message->kind) {
    case TW_MSG_CONTRIB:
        message->u.contrib.fragment_steps = UINT32_MAX;
        message->u.contrib.tokens = (UINT64_C(1) << 48) + tw_traitor_draws(traitor, 2);
        message->u.contrib.fragment_tokens = UINT64_C(1) << 48;
        if (tw_traitor_draws(traitor, 4)) message->u.contrib.bytes[0] = TW_PAYLOAD_BYTES_MAX;
        tw_traitor_sign_contrib(traitor, &message->u.contrib);
        break;
    case TW_MSG_RESULT:
        message->u.result.refused = tw_traitor_draws(traitor, 2) ? UINT64_MAX : 0;
        break;
    case TW_MSG_PREPARE: message->u.prepare.ballot += (uint64_t)TW_MEMBERS_MAX << 32; break;
    case TW_MSG_NACK: message->u.nack.promised = UINT64_MAX; break;
    case TW_MSG_LOG_GET: message->u.log_get.round = UINT64_MAX; break;
    case TW_MSG_LOG_NONE: message->u.log_none.oldest_round = UINT64_MAX; break;
    case TW_MSG_JOIN:
        message->u.join.rounds = UINT64_MAX;
        tw_traitor_sign_join(traitor, &message->u.join);
        break;
    case TW_MSG_STATE: message->u.state.rounds = UINT64_MAX; break;
    case TW_MSG_STATUS:
        message->u.status.step = message->u.status.tokens = UINT64_MAX;
        message->u.status.tokens_per_s = message->u.status.boot = UINT32_MAX;
        break;
    default: break;
    }
}

/* Changes the honest core's proposal, for some members only. */
static void split_proposal(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                           struct tw_msg_propose *propose) {
    if (!tw_coven_is_open(traitor->coven, &propose->record.lineage, propose->record.round)) return;
    struct tw_coven_ballot *row =
        tw_coven_put_ballot(traitor->coven, propose->ballot, &propose->record);
    tw_coven_put_signatures(row, propose);
    tw_traitor_spoil(traitor, view, &propose->record);
    struct tw_error err;
    if (tw_record_check(&propose->record, &err) == TW_OK)
        tw_coven_vote(traitor->coven, view,
                      tw_coven_put_ballot(traitor->coven, propose->ballot, &propose->record));
}

static void split(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                  struct tw_message *message) {
    switch ((int)message->kind) {
    case TW_MSG_CONTRIB: twist_contrib(traitor, &message->u.contrib); break;
    case TW_MSG_RESULT: twist_result(traitor, view, &message->u.result); break;
    case TW_MSG_PROPOSE: split_proposal(traitor, view, &message->u.propose); break;
    default: break;
    }
}

/* Changes the honest core's proposal so that the run ends with its round. */
static void end_run(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                    struct tw_msg_propose *propose) {
    if (!tw_coven_is_open(traitor->coven, &propose->record.lineage, propose->record.round)) return;
    propose->record.finals = TW_FRAGMENTS_MAX;
    struct tw_coven_ballot *row =
        tw_coven_put_ballot(traitor->coven, propose->ballot, &propose->record);
    tw_coven_put_signatures(row, propose);
    tw_coven_vote(traitor->coven, view, row);
}

/* Changes the honest core's proposal so that it names a state that nobody has. */
static void name_false_state(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                             struct tw_msg_propose *propose) {
    if (!tw_coven_is_open(traitor->coven, &propose->record.lineage, propose->record.round)) return;
    if (propose->lock.ballot != 0) return;
    propose->record.base = tw_traitor_draw_id(traitor);
    struct tw_coven_ballot *row =
        tw_coven_put_ballot(traitor->coven, propose->ballot, &propose->record);
    tw_coven_put_signatures(row, propose);
    tw_coven_vote(traitor->coven, view, row);
}

static void break_signature(struct tw_message *message) {
    switch ((int)message->kind) {
    case TW_MSG_CONTRIB: message->u.contrib.signature[0] ^= 1; break;
    case TW_MSG_PROMISE: message->u.promise.signature[0] ^= 1; break;
    case TW_MSG_ACCEPT: message->u.accept.signature[0] ^= 1; break;
    case TW_MSG_RESULT: message->u.result.signature[0] ^= 1; break;
    case TW_MSG_LOCK: message->u.lock.proof.signatures[0][0] ^= 1; break;
    case TW_MSG_COMMIT: message->u.commit.proof.signatures[0][0] ^= 1; break;
    case TW_MSG_PROPOSE: message->u.propose.promises.signatures[0][0] ^= 1; break;
    default: break;
    }
}

enum tw_traitor_verdict tw_traitor_pass(struct tw_traitor *traitor,
                                        const struct tw_traitor_view *view, const struct tw_id *to,
                                        struct tw_message *message) {
    struct tw_error err;
    const uint64_t kind = (uint64_t)message->kind;
    tw_traitor_turn(traitor, view);
    if (message->kind == TW_MSG_STATUS && !tw_traitor_tells(traitor, TW_LIE_LINEAGE) &&
        !tw_id_equal(&message->u.status.lineage, &traitor->coven->group))
        return TW_TRAITOR_DROPS; /* lies led the traitor's own core into another lineage */
    if (tw_traitor_tells(traitor, TW_LIE_MUTE) && message->kind != TW_MSG_STATUS &&
        tw_traitor_side(traitor, to, kind + 64 * (view->rounds / 8)) % 3 == 0)
        return TW_TRAITOR_DROPS;
    if (message->kind == TW_MSG_PROMISE && tw_traitor_tells(traitor, TW_LIE_VOTES)) {
        message->u.promise.lock.ballot = message->u.promise.lock.voters = 0;
        tw_traitor_sign_promise(traitor, view, &message->u.promise);
    }
    if (message->kind == TW_MSG_STATUS && tw_traitor_tells(traitor, TW_LIE_STATUS) &&
        tw_traitor_draws(traitor, 2))
        twist_status(traitor, &message->u.status);
    if (tw_traitor_tells(traitor, TW_LIE_SPLIT) &&
        tw_traitor_side(traitor, to, view->rounds) % 2 == 0)
        split(traitor, view, message);
    if (message->kind == TW_MSG_PROPOSE && tw_traitor_tells(traitor, TW_LIE_END))
        end_run(traitor, view, &message->u.propose);
    if (message->kind == TW_MSG_PROPOSE && tw_traitor_tells(traitor, TW_LIE_BASE))
        name_false_state(traitor, view, &message->u.propose);
    if (tw_traitor_tells(traitor, TW_LIE_HUGE) && tw_traitor_draws(traitor, 4))
        twist_numbers(traitor, message);
    if (tw_traitor_tells(traitor, TW_LIE_CRUDE) && tw_traitor_draws(traitor, 64))
        break_signature(message);
    if (tw_message_check(message, &err) != TW_OK) return TW_TRAITOR_DROPS;
    if (tw_traitor_tells(traitor, TW_LIE_LATE) && message->kind != TW_MSG_STATUS &&
        tw_traitor_draws(traitor, 2))
        return TW_TRAITOR_DELAYS;
    return TW_TRAITOR_SENDS;
}
