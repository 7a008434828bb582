/* checkpoints.h - saves the state to disk now and then, and loads it at the start.
 *
 *   IDLE      -> SNAPSHOT  due; or wanted by an API request, the end of the run, or leaving
 *   SNAPSHOT  -> FREEZE    the worker took a snapshot, is late, or there is none
 *   FREEZE    -> COPY      no change of (phi, u) is under way
 *   COPY      -> WRITE     copied in memory, on a thread; (phi, u) may change again
 *   WRITE     -> IDLE      written to disk, on a thread; SNAPSHOT if wanted again meanwhile
 *
 * The core's position is read while (phi, u) is frozen, so the two belong together. Merges wait
 * only until the state is copied in memory, not until it is on disk.
 *
 * Nothing is written while nothing changed, and a periodic checkpoint waits for a step: a model
 * with which no step succeeds does not replace those before it. */
#ifndef TW_DAEMON_NODE_CHECKPOINTS_H
#define TW_DAEMON_NODE_CHECKPOINTS_H

#include "daemon/node/runtime.h"

struct tw_evaluations_now;
struct tw_status_view;

enum tw_status tw_daemon_checkpoints_open(struct tw_daemon *daemon, struct tw_error *err);

/* Loads the newest valid generation into the worker's memory; without any, formats the memory. The
 * position is used only together with the vote that belongs to it. On failure returns the exit
 * status, with the reason in `err`. */
enum tw_exit tw_daemon_checkpoints_load(struct tw_daemon *daemon, struct tw_error *err);
/* The loaded position; NULL: the core starts without one. */
const struct tw_position *tw_daemon_checkpoints_position(const struct tw_daemon *daemon);

/* Starts a checkpoint; during one, requests another after it. The checkpoint answers the API
 * request with this number, if not NULL. */
void tw_daemon_checkpoints_save(struct tw_daemon *daemon, const uint32_t *request);
bool tw_daemon_checkpoints_is_saving(const struct tw_daemon *daemon);
/* True when the worker has not answered the checkpoint in time. */
bool tw_daemon_checkpoints_is_late(const struct tw_daemon *daemon, uint64_t now_us);

/* The snapshot was taken, or no worker is left to take one. */
void tw_daemon_checkpoints_snapshot_done(struct tw_daemon *daemon);
void tw_daemon_checkpoints_frozen(struct tw_daemon *daemon);

/* Signs from which daemon/store/generations.h finds the generation to pin: an evaluation (is_hurt:
 * merging hurts the anchor); a result far above the usual size. */
void tw_daemon_checkpoints_judged(struct tw_daemon *daemon, float loss, bool is_hurt);
void tw_daemon_checkpoints_wild(struct tw_daemon *daemon);

void tw_daemon_checkpoints_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Fills in the newest checkpoint on disk. */
void tw_daemon_checkpoints_newest(const struct tw_daemon *daemon, struct tw_evaluations_now *now);
void tw_daemon_checkpoints_fill(const struct tw_daemon *daemon, uint64_t now_us,
                                struct tw_status_view *view);
void tw_daemon_checkpoints_free(struct tw_daemon *daemon);

#endif
