/* traitor.c - sets traitors up, and signs for them with the keys of all traitors. */
#include "tests/traitor/traitor.h"

#include <string.h>

#include "base/hash.h"
#include "tests/traitor/coven.h"

static const struct {
    const char *name;
} lies[] = {
#define X(upper, text, lie) {text},
    TW_LIE_LIST(X)
#undef X
};

enum tw_lie tw_lie_find(const char *name) {
    for (uint32_t i = 0; i < TW_LIES_COUNT; i++) {
        if (strcmp(lies[i].name, name) == 0) return (enum tw_lie)i;
    }
    return TW_LIES_COUNT;
}

const char *tw_lie_name(enum tw_lie lie) {
    return lies[lie].name;
}

void tw_coven_init(struct tw_coven *coven, const struct tw_id *run) {
    memset(coven, 0, sizeof *coven);
    coven->run = *run;
}

void tw_traitor_init(struct tw_traitor *traitor, struct tw_coven *coven, const struct tw_id *id,
                     const struct tw_signing *signing, uint64_t seed, uint32_t lies_wanted) {
    *traitor = (struct tw_traitor){.coven = coven, .id = *id, .signing = *signing};
    tw_rng_seed(&traitor->rng, seed);
    traitor->salt = tw_rng_next(&traitor->rng);
    traitor->lies = lies_wanted;
    while (traitor->lies == 0) { /* each lie with probability 1/3, broken signatures less often */
        for (uint32_t i = 0; i < TW_LIES_DRAWN; i++)
            traitor->lies |= (uint32_t)(tw_rng_below(&traitor->rng, 3) == 0) << i;
        if (tw_rng_below(&traitor->rng, 4) != 0) traitor->lies &= ~(1u << TW_LIE_CRUDE);
    }
    if (coven->count < TW_COVEN_MAX) coven->traitors[coven->count++] = traitor;
}

bool tw_traitor_tells(const struct tw_traitor *traitor, enum tw_lie lie) {
    return (traitor->lies >> lie & 1) != 0;
}

bool tw_traitor_draws(struct tw_traitor *traitor, uint64_t one_in) {
    return tw_rng_below(&traitor->rng, one_in) == 0;
}

struct tw_id tw_traitor_draw_id(struct tw_traitor *traitor) {
    const uint64_t bits = tw_rng_next(&traitor->rng);
    return tw_sha256(&bits, sizeof bits);
}

/* Returns one of a few ids of nodes that do not exist. */
struct tw_id tw_traitor_draw_stranger(struct tw_traitor *traitor) {
    const uint64_t number = tw_rng_below(&traitor->rng, 4);
    return tw_sha256_pair(&traitor->coven->run, sizeof traitor->coven->run, &number, sizeof number);
}

/* Returns a number that depends on the member and the subject only, so that a traitor tells each
 * member a consistent story. */
uint64_t tw_traitor_side(const struct tw_traitor *traitor, const struct tw_id *to,
                         uint64_t subject) {
    const uint64_t words[2] = {traitor->salt, subject};
    const struct tw_id mixed = tw_sha256_pair(words, sizeof words, to, sizeof *to);
    return mixed.bytes[0];
}

bool tw_coven_has(const struct tw_coven *coven, const struct tw_id *id) {
    for (uint32_t i = 0; i < coven->count; i++) {
        if (tw_id_equal(&coven->traitors[i]->id, id)) return true;
    }
    return false;
}

/* ---- signatures ----------------------------------------------------------------------------- */

void tw_traitor_sign_vote(const struct tw_traitor *traitor, const struct tw_ballot_vote *vote,
                          uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(vote, text);
    traitor->signing.sign(traitor->signing.key, text, sizeof text, signature);
}

static uint64_t nonce_of(const struct tw_traitor_view *view) {
    return view->idx < 0 ? 0 : view->roster->members[view->idx].nonce;
}

void tw_traitor_sign_accept(const struct tw_traitor *traitor, const struct tw_traitor_view *view,
                            struct tw_msg_accept *accept) {
    const struct tw_ballot_vote vote = {.run = traitor->coven->run,
                                        .nonce = nonce_of(view),
                                        .lineage = accept->lineage,
                                        .round = accept->round,
                                        .ballot = accept->ballot,
                                        .phase = accept->phase,
                                        .digest = accept->digest};
    tw_traitor_sign_vote(traitor, &vote, accept->signature);
}

void tw_traitor_sign_promise(const struct tw_traitor *traitor, const struct tw_traitor_view *view,
                             struct tw_msg_promise *promise) {
    const struct tw_ballot_vote vote = {.run = traitor->coven->run,
                                        .nonce = nonce_of(view),
                                        .lineage = promise->lineage,
                                        .round = promise->round,
                                        .ballot = promise->ballot,
                                        .lock_ballot = promise->lock.ballot,
                                        .phase = TW_VOTE_PROMISE};
    tw_traitor_sign_vote(traitor, &vote, promise->signature);
}

void tw_traitor_sign_result(const struct tw_traitor *traitor, const struct tw_traitor_view *view,
                            struct tw_msg_result *result) {
    if (result->bytes == 0) return;
    const struct tw_part part = tw_result_part(result);
    const struct tw_ballot_vote vote = {.run = traitor->coven->run,
                                        .nonce = nonce_of(view),
                                        .lineage = result->lineage,
                                        .round = result->round,
                                        .ballot = result->part + 1,
                                        .phase = TW_VOTE_RESULT,
                                        .digest = tw_part_digest(&part)};
    tw_traitor_sign_vote(traitor, &vote, result->signature);
}

void tw_traitor_sign_join(const struct tw_traitor *traitor, struct tw_msg_join *join) {
    const struct tw_ballot_vote vote = {.run = traitor->coven->run,
                                        .nonce = join->nonce,
                                        .lineage = join->lineage,
                                        .round = join->rounds,
                                        .phase = TW_VOTE_JOIN};
    tw_traitor_sign_vote(traitor, &vote, join->signature);
}

void tw_traitor_sign_row(const struct tw_traitor *traitor, const struct tw_id *lineage,
                         uint64_t round, struct tw_contributor *row) {
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    tw_contributor_text(&traitor->coven->run, lineage, round, row, text);
    traitor->signing.sign(traitor->signing.key, text, sizeof text, row->signature);
}

void tw_traitor_sign_contrib(const struct tw_traitor *traitor, struct tw_msg_contrib *contrib) {
    struct tw_contributor row = {.fragment_steps = contrib->fragment_steps,
                                 .tokens = contrib->tokens,
                                 .fragment_tokens = contrib->fragment_tokens};
    row.root = tw_contribution_root(contrib->hashes, contrib->parts_count);
    tw_traitor_sign_row(traitor, &contrib->lineage, contrib->round, &row);
    memcpy(contrib->signature, row.signature, sizeof row.signature);
}
