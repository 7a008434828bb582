/* veto.h - results and proposals that this node refuses to vote for. */
#ifndef TW_SYNC_CHECK_VETO_H
#define TW_SYNC_CHECK_VETO_H

#include "sync/core/state/node.h"

/* Set of parts of the open round's record whose results are here and refused. */
uint32_t tw_veto_find(struct tw_node *node, const struct tw_record *record);
/* The proposer of the offer is passed over if nothing comes of it: its results do not come here. */
void tw_veto_pass(struct tw_node *node);
/* The same, and this node refuses the offer as it is. */
void tw_veto_proposer(struct tw_node *node);
/* The offer is accepted after all: it was early, or this node was. */
void tw_veto_not(struct tw_node *node);
/* Refuses these parts of the offer: NACK to its proposer, and the offer is forgotten. */
void tw_veto_offer(struct tw_node *node, uint32_t parts);
/* A member refused these parts of our proposal. True: no majority is left for it; the parts that
 * most members refused are in round.left_out. */
bool tw_veto_is_ballot_lost(struct tw_node *node, uint32_t member, uint32_t parts);
/* The proposer of this rank is passed over: this node refused its proposal. */
bool tw_veto_is_passed(struct tw_node *node, uint32_t rank);
/* This node must find out whether a value that it refuses has to be carried on. */
bool tw_veto_must_look(struct tw_node *node);
/* The promises so far require that round.best is proposed again. *is_open: more promises may tell
 * otherwise. */
bool tw_veto_must_carry(struct tw_node *node, bool *is_open);

#endif
