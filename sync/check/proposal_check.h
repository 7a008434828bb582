/* proposal_check.h - does a proposed record look as if its proposer lies? */
#ifndef TW_SYNC_CHECK_PROPOSAL_CHECK_H
#define TW_SYNC_CHECK_PROPOSAL_CHECK_H

#include "sync/core/state/node.h"

/* True if no honest proposer would have written the record for this ballot, as far as this node can
 * tell. The node does not vote for such a record for a while. */
bool tw_proposal_is_rigged(struct tw_node *node, const struct tw_record *record, uint64_t ballot);
/* True if the record leaves out too many results that this node holds or may still get in time. */
bool tw_proposal_is_empty(struct tw_node *node, const struct tw_record *record, uint64_t ballot);
/* True if the record leaves out too many results that may still arrive in time, so it is judged
 * later. With NULL as the record: true if too few results are announced for any proposal. */
bool tw_proposal_is_early(struct tw_node *node, const struct tw_record *record);
/* True if part k of the record differs from the result that its owner announced to this node. */
bool tw_proposal_is_rigged_part(const struct tw_node *node, const struct tw_record *record,
                                uint32_t k);

#endif
