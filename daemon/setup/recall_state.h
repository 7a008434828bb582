/* recall_state.h - effect of the owner's recall on this node's disk. At a start, the state of the
 * recalled round replaces the newest one, or this node waits for it from its peers. */
#ifndef TW_DAEMON_SETUP_RECALL_STATE_H
#define TW_DAEMON_SETUP_RECALL_STATE_H

#include "base/status.h"
#include "daemon/setup/setup.h"

/* Obeys the gate's newest recall, once. If a checkpoint generation on disk holds the named state, a
 * start loads that one from now on. Otherwise all generations stay as they are, and setup->awaited
 * is set until this node has saved a state of a lineage that is not refused. The lineages of all
 * generations are refused from then on (setup->refused).
 *
 * After a crash at any point, the next start does the rest. Returns TW_IO, TW_CORRUPT or TW_NOMEM
 * on failure. */
enum tw_status tw_setup_recall(struct tw_setup *setup, struct tw_error *err);

#endif
