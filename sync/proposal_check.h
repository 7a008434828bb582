/* proposal_check.h - what no honest proposer writes into the manifest of the open round, as far as
 * this node can tell. */
#ifndef TW_SYNC_PROPOSAL_CHECK_H
#define TW_SYNC_PROPOSAL_CHECK_H

#include <stdbool.h>
#include <stdint.h>

struct tw_record;
struct tw_node;

/* No honest proposer would have written it, as far as this node can tell: not voted for, for a
 * while. */
bool tw_proposal_is_rigged(struct tw_node *node, const struct tw_record *record);
/* It leaves out more than it may of what is here, or has yet to come. */
bool tw_proposal_is_empty(struct tw_node *node, const struct tw_record *record);
/* It leaves out more than it may of what has yet to come alone, and will be judged when that is
 * here. NULL: so much is not even told that nothing can be proposed yet. */
bool tw_proposal_is_early(struct tw_node *node, const struct tw_record *record);
/* Its part k is not what the owner of that told this node. */
bool tw_proposal_is_rigged_part(const struct tw_node *node, const struct tw_record *record,
                                uint32_t k);

#endif
