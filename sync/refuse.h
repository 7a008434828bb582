/* refuse.h - results and proposals that this node does not take. */
#ifndef TW_SYNC_REFUSE_H
#define TW_SYNC_REFUSE_H

#include <stdbool.h>
#include <stdint.h>

struct tw_record;
struct tw_id;
struct tw_node;

/* Set of parts of the open round's manifest whose results are here and not taken. */
uint32_t tw_refuse_find(struct tw_node *node, const struct tw_record *record);
/* The result of that name, of so many elements, is here and not taken. */
bool tw_refuse_is_bad(struct tw_node *node, const struct tw_id *hash, uint64_t count);
/* Who made the offer is passed over if nothing comes of it: its results do not come here. */
void tw_refuse_pass(struct tw_node *node);
/* And we do not take it as it is. */
void tw_refuse_closer(struct tw_node *node);
/* After all the offer is accepted: it was early, or we were. */
void tw_refuse_not(struct tw_node *node);
/* Does not take these parts of the offer: says so to its closer, and forgets the offer. */
void tw_refuse_offer(struct tw_node *node, uint32_t parts);
/* A member did not take these parts of our proposal. */
void tw_refuse_heard(struct tw_node *node, uint32_t member, uint32_t parts);
/* The closer of this rank is passed over: it proposed what we do not take. */
bool tw_refuse_is_passed(struct tw_node *node, uint32_t rank);
/* It is ours to find out whether what we do not take has to be carried on. */
bool tw_refuse_must_look(struct tw_node *node);
/* Is what a member accepted, as the promises so far say, to be proposed again? If not yet known,
 * more promises are awaited: *is_open. */
bool tw_refuse_must_carry(struct tw_node *node, bool *is_open);

#endif
