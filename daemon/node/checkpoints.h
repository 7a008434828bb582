/* checkpoints.h - the state on disk: the vote, and checkpoints. */
#ifndef TW_DAEMON_NODE_CHECKPOINTS_H
#define TW_DAEMON_NODE_CHECKPOINTS_H

#include "daemon/node/runtime.h"

/* ==== the vote ================================================================================ */

/* Stores the vote of the open round durably, before the core sends it.
 *
 * While a vote is being written, at most one more waits. A newer vote replaces the waiting one,
 * because TW_EV_STORED with a number also covers all smaller numbers. A failed write is repeated
 * once a second. */

struct tw_status_view;

/* Reads the vote of the run. A damaged vote counts as lost. Returns TW_IO if the store cannot be
 * opened. */
enum tw_status tw_daemon_votes_open(struct tw_daemon *daemon, struct tw_error *err);

/* Returns the vote found on disk, or NULL if there is none or it was forgotten. */
const struct tw_vote *tw_daemon_votes_loaded(const struct tw_daemon *daemon);

/* Starts to write the vote. TW_EV_STORED reports the end. */
void tw_daemon_votes_store(struct tw_daemon *daemon, const struct tw_action *action);
bool tw_daemon_votes_is_saving(const struct tw_daemon *daemon);

void tw_daemon_votes_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_votes_close(struct tw_daemon *daemon);
void tw_daemon_votes_free(struct tw_daemon *daemon);

/* ==== checkpoints ============================================================================= */

/* Saves the state to disk now and then, and loads it at the start.
 *
 *   IDLE      -> SNAPSHOT  due; or wanted by an API request, the end of the run, or leaving
 *   SNAPSHOT  -> FREEZE    the worker took a snapshot, is late, or there is none
 *   FREEZE    -> COPY      (phi, u) is not being changed
 *   COPY      -> WRITE     copied in memory, on a thread; (phi, u) may change again
 *   WRITE     -> IDLE      written to disk, on a thread; SNAPSHOT if wanted again meanwhile
 *
 * The core's position is read while (phi, u) is frozen, so the two belong together. Merges wait
 * only until the state is copied in memory, not until it is on disk.
 *
 * Nothing is written while nothing changed. A periodic checkpoint also waits for a successful step:
 * a model with which no step succeeds must not replace the generations before it. */

struct tw_evaluations_now;
struct tw_status_view;

enum tw_status tw_daemon_checkpoints_open(struct tw_daemon *daemon, struct tw_error *err);

/* Loads the newest valid generation into the worker's memory. If there is none, formats the memory.
 * The position is used only together with the vote that belongs to it. On failure returns the exit
 * status, with the reason in `err`. */
enum tw_exit tw_daemon_checkpoints_load(struct tw_daemon *daemon, struct tw_error *err);
/* Warns if the disk has no room for the next checkpoint. `steps_before`: this node's steps at the
 * end of the process before. Call after the load. */
void tw_daemon_checkpoints_measure(struct tw_daemon *daemon, uint64_t steps_before);
/* Returns the loaded position, or NULL if the core starts without one. */
const struct tw_position *tw_daemon_checkpoints_position(const struct tw_daemon *daemon);

/* Returns the wall clock at which the loaded checkpoint was saved, and its rounds; 0: none was
 * loaded. */
uint64_t tw_daemon_checkpoints_saved_unix_s(const struct tw_daemon *daemon, uint64_t *rounds);

/* Keeps the loaded checkpoint as the undone one (daemon/store/checkpoint.h). Returns false if there
 * is none, if a later checkpoint has replaced it, or with a sentence in `err`. */
bool tw_daemon_checkpoints_set_aside(struct tw_daemon *daemon, struct tw_error *err);

/* Starts a checkpoint, or requests another one after the one in progress. When it ends, it answers
 * the API request `*request`, unless `request` is NULL. */
void tw_daemon_checkpoints_save(struct tw_daemon *daemon, const uint32_t *request);
bool tw_daemon_checkpoints_is_saving(const struct tw_daemon *daemon);
/* Returns true if the worker has not taken its snapshot or frozen (phi, u) in time. */
bool tw_daemon_checkpoints_is_late(const struct tw_daemon *daemon, uint64_t now_us);

/* Called when the snapshot was taken, or when no worker is left to take one. */
void tw_daemon_checkpoints_snapshot_done(struct tw_daemon *daemon);
void tw_daemon_checkpoints_frozen(struct tw_daemon *daemon);

/* Two signs by which daemon/store/generations.h chooses the generation to keep. `judged`: an
 * evaluation, where is_hurt means that merging hurts the anchor. `wild`: a result far above the
 * usual size. */
void tw_daemon_checkpoints_judged(struct tw_daemon *daemon, float loss, bool is_hurt);
void tw_daemon_checkpoints_wild(struct tw_daemon *daemon);

void tw_daemon_checkpoints_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Fills in the newest checkpoint on disk. */
void tw_daemon_checkpoints_newest(const struct tw_daemon *daemon, struct tw_evaluations_now *now);
void tw_daemon_checkpoints_fill(const struct tw_daemon *daemon, uint64_t now_us,
                                struct tw_status_view *view);
void tw_daemon_checkpoints_free(struct tw_daemon *daemon);

#endif
