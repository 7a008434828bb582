/* votes.h - stores the vote of the open round durably, before the core sends it.
 *
 * While a vote is being written, at most one more waits. A newer vote replaces the waiting one,
 * because TW_EV_STORED with a number also covers all smaller numbers. A failed write is repeated
 * once a second. */
#ifndef TW_DAEMON_NODE_VOTES_H
#define TW_DAEMON_NODE_VOTES_H

#include "daemon/node/runtime.h"

struct tw_status_view;

/* Reads the vote of the run. A damaged vote counts as lost. Returns TW_IO if the store cannot be
 * opened. */
enum tw_status tw_daemon_votes_open(struct tw_daemon *daemon, struct tw_error *err);

/* Returns the vote found on disk, or NULL if there is none or it was forgotten. */
const struct tw_vote *tw_daemon_votes_loaded(const struct tw_daemon *daemon);
/* Returns true if no vote was loaded: this node may then have voted without remembering it. */
bool tw_daemon_votes_is_lost(const struct tw_daemon *daemon);
/* Discards the loaded vote, which belongs to no position: the core must start without it. */
void tw_daemon_votes_forget(struct tw_daemon *daemon);

/* Starts to write the vote. TW_EV_STORED reports the end. */
void tw_daemon_votes_store(struct tw_daemon *daemon, const struct tw_action *action);
bool tw_daemon_votes_is_saving(const struct tw_daemon *daemon);

void tw_daemon_votes_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_votes_close(struct tw_daemon *daemon);
void tw_daemon_votes_free(struct tw_daemon *daemon);

#endif
