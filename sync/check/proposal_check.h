/* proposal_check.h - what no honest proposer writes into a record, as far as this node can tell. */
#ifndef TW_SYNC_CHECK_PROPOSAL_CHECK_H
#define TW_SYNC_CHECK_PROPOSAL_CHECK_H

#include "sync/core/state/node.h"

/* No honest proposer would have written it, as far as this node can tell. Not voted for, for a
 * while. */
bool tw_proposal_is_rigged(struct tw_node *node, const struct tw_record *record);
/* It leaves out more than it may of the results that are here or have yet to come. */
bool tw_proposal_is_empty(struct tw_node *node, const struct tw_record *record);
/* It leaves out more than it may of the results that have yet to come, and is judged when they are
 * here. NULL: so few are announced that nothing can be proposed yet. */
bool tw_proposal_is_early(struct tw_node *node, const struct tw_record *record);
/* Its part k is not what the owner of the part announced to this node. */
bool tw_proposal_is_rigged_part(const struct tw_node *node, const struct tw_record *record,
                                uint32_t k);

#endif
