/* veto.h - results and proposals that this node does not take. */
#ifndef TW_SYNC_VETO_H
#define TW_SYNC_VETO_H

#include <stdbool.h>
#include <stdint.h>

struct tw_record;
struct tw_id;
struct tw_node;

/* Set of parts of the open round's manifest whose results are here and not taken. */
uint32_t tw_veto_find(struct tw_node *node, const struct tw_record *record);
/* The result of that name, of so many elements, is here and not taken. */
/* Who made the offer is passed over if nothing comes of it: its results do not come here. */
void tw_veto_pass(struct tw_node *node);
/* And we do not take it as it is. */
void tw_veto_proposer(struct tw_node *node);
/* After all the offer is accepted: it was early, or we were. */
void tw_veto_not(struct tw_node *node);
/* Does not take these parts of the offer: says so to its proposer, and forgets the offer. */
void tw_veto_offer(struct tw_node *node, uint32_t parts);
/* A member did not take these parts of our proposal. */
bool tw_veto_is_ballot_lost(struct tw_node *node, uint32_t member, uint32_t parts);
/* The proposer of this rank is passed over: it proposed what we do not take. */
bool tw_veto_is_passed(struct tw_node *node, uint32_t rank);
/* It is ours to find out whether what we do not take has to be carried on. */
bool tw_veto_must_look(struct tw_node *node);
/* Is what a member accepted, as the promises so far say, to be proposed again? If not yet known,
 * more promises are awaited: *is_open. */
bool tw_veto_must_carry(struct tw_node *node, bool *is_open);

#endif
