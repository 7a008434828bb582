/* coven.h - functions of the traitors that the files of this folder share. */
#ifndef TW_TESTS_TRAITOR_COVEN_H
#define TW_TESTS_TRAITOR_COVEN_H

#include "tests/traitor/traitor.h"

/* ---- traitor.c: draws and signatures */
bool tw_traitor_tells(const struct tw_traitor *traitor, enum tw_lie lie);
bool tw_traitor_draws(struct tw_traitor *traitor, uint64_t one_in);
struct tw_id tw_traitor_draw_id(struct tw_traitor *traitor);
/* Returns one of a few ids of nodes that do not exist. All traitors use the same few. */
struct tw_id tw_traitor_draw_stranger(struct tw_traitor *traitor);
/* Returns a pseudo-random number that depends on the member and the subject only, so that a traitor
 * tells each member a consistent story. */
uint64_t tw_traitor_side(const struct tw_traitor *traitor, const struct tw_id *to,
                         uint64_t subject);
bool tw_coven_has(const struct tw_coven *coven, const struct tw_id *id);
void tw_traitor_sign_vote(const struct tw_traitor *traitor, const struct tw_ballot_vote *vote,
                          uint8_t signature[TW_SIGNATURE_BYTES]);
void tw_traitor_sign_accept(const struct tw_traitor *traitor, const struct tw_traitor_view *view,
                            struct tw_msg_accept *accept);
void tw_traitor_sign_promise(const struct tw_traitor *traitor, const struct tw_traitor_view *view,
                             struct tw_msg_promise *promise);
void tw_traitor_sign_result(const struct tw_traitor *traitor, const struct tw_traitor_view *view,
                            struct tw_msg_result *result);
void tw_traitor_sign_join(const struct tw_traitor *traitor, struct tw_msg_join *join);
void tw_traitor_sign_row(const struct tw_traitor *traitor, const struct tw_id *lineage,
                         uint64_t round, struct tw_contributor *row);
void tw_traitor_sign_contrib(const struct tw_traitor *traitor, struct tw_msg_contrib *contrib);

/* ---- coven.c: the open round */
bool tw_coven_is_open(const struct tw_coven *coven, const struct tw_id *lineage, uint64_t round);
/* Moves the coven to the traitor's round; an earlier round is forgotten. */
void tw_traitor_turn(struct tw_traitor *traitor, const struct tw_traitor_view *view);
struct tw_coven_ballot *tw_coven_put_ballot(struct tw_coven *coven, uint64_t ballot,
                                            const struct tw_record *record);
/* Copies the signatures that a proposal carries. */
void tw_coven_put_signatures(struct tw_coven_ballot *row, const struct tw_msg_propose *propose);
/* Returns one of the known proposals, or NULL. */
struct tw_coven_ballot *tw_traitor_draw_ballot(struct tw_traitor *traitor);
/* All traitors vote for this record in both phases. */
void tw_coven_vote(struct tw_coven *coven, const struct tw_traitor_view *view,
                   struct tw_coven_ballot *row);
/* All traitors promise the ballot, and claim to have no lock. */
void tw_coven_promise(struct tw_coven *coven, const struct tw_traitor_view *view, uint64_t ballot);

/* ---- wish.c */
/* Changes the record of a round in one way. */
void tw_traitor_spoil(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                      struct tw_record *record);
/* Proposes the record of a proposal that a traitor has heard, mostly changed, or an empty round. */
void tw_traitor_wish(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                     struct tw_msg_propose *propose);

#endif
