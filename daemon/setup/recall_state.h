/* recall_state.h - the owner's recall on this node's disk: at a start, the state of the named round
 * takes the place of the newest one, or this node waits for it. */
#ifndef TW_DAEMON_SETUP_RECALL_STATE_H
#define TW_DAEMON_SETUP_RECALL_STATE_H

#include "base/status.h"
#include "daemon/setup/setup.h"

/* Obeys the newest recall of the gate, once. If a generation on disk holds the named state, it
 * becomes the one that a start loads. Otherwise all generations stay as they are, and
 * setup->awaited is set until this node has saved the state of a lineage that is not refused. The
 * lineages of all generations are refused from then on (setup->refused).
 *
 * A crash at any point repeats the rest at the next start. TW_IO, TW_CORRUPT, TW_NOMEM. */
enum tw_status tw_setup_recall(struct tw_setup *setup, struct tw_error *err);

#endif
