/* log.h - the committed rounds of the lineage: learned from peers, served to peers, applied. */
#ifndef TW_SYNC_HISTORY_LOG_H
#define TW_SYNC_HISTORY_LOG_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

/* Commits the open round. `proof` shows that it is decided. */
void tw_log_commit(struct tw_node *node, const struct tw_record *record,
                   const struct tw_proof *proof);
enum tw_drop tw_log_received(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_commit *commit);
enum tw_drop tw_log_get(struct tw_node *node, uint16_t peer, const struct tw_msg_log_get *get);
enum tw_drop tw_log_none(struct tw_node *node, uint16_t peer, const struct tw_msg_log_none *none);
/* Returns NONE if a message is about the open round. A sender that is behind gets our log, and a
 * sender that is ahead is asked for its log. */
enum tw_drop tw_log_is_at(struct tw_node *node, uint16_t peer, const struct tw_id *lineage,
                          uint64_t round);
void tw_log_applied(struct tw_node *node, const struct tw_event *event);
void tw_log_advance(struct tw_node *node);

/* Sends the run clock to the worker. */
void tw_log_clock(struct tw_node *node);
/* Updates at.held, the newest record that (phi, u) contain. Called after every commit, apply and
 * load. */
void tw_log_note_held(struct tw_node *node);
/* Restarts the log at this record, without older ones; NULL: before the first round. With `proof`
 * NULL, the record cannot be proven to others. */
void tw_log_begin_at(struct tw_node *node, const struct tw_record *tip,
                     const struct tw_proof *proof);
/* Takes over the newest record of a lineage that this node begins to follow, and keeps its proof
 * for members that check it. */
void tw_log_adopt_tip(struct tw_node *node, const struct tw_record *tip,
                      const struct tw_proof *proof);
/* True if every fragment is held, and none is so far behind that peers may drop its results soon.
 */
bool tw_log_is_close(const struct tw_node *node);

#endif
