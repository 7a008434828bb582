/* claim.h - the claim of a peer that it is in a better lineage, and its proof. */
#ifndef TW_SYNC_HISTORY_CLAIM_H
#define TW_SYNC_HISTORY_CLAIM_H

#include "sync/core/state.h"

/* Asks the next peer of another lineage for its newest records, unless a claim is being checked. */
void tw_claim_advance(struct tw_node *node);
/* Handles a record that may answer the LOG_GET of the check. Returns UNASKED if it does not. */
enum tw_drop tw_claim_record(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_commit *commit);
/* Handles LOG_NONE: the peer's log has only newer records than those requested. Returns UNASKED if
 * the check did not request them. */
enum tw_drop tw_claim_none(struct tw_node *node, uint16_t peer, const struct tw_msg_log_none *none);
/* Returns a proven claim whose peer is still linked, or NULL. */
const struct claim *tw_claim_proven(const struct tw_node *node);
/* Returns the supporters of the proven lineage, as far as this node can tell. */
struct support tw_claim_support(const struct tw_node *node);
/* Ends the check, proven or not. */
void tw_claim_close(struct tw_node *node);

#endif
