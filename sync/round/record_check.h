/* record_check.h - checks of a record on which all honest members agree: chain, owners, clock. */
#ifndef TW_SYNC_ROUND_RECORD_CHECK_H
#define TW_SYNC_ROUND_RECORD_CHECK_H

#include "sync/core/state/node.h"

/* True if an honest proposer could have written the record for the open round. */
bool tw_record_is_sound(const struct tw_node *node, const struct tw_record *record);

#endif
