/* checkpoints.h - checkpoints: memory to disk now and then, disk to memory at the start.
 *
 *   IDLE --due, verb, finish, end--> SNAPSHOT --done, late or no worker--> FREEZE --no change of
 *   (phi, u) under way--> COPY (thread) --thaw--> WRITE (thread) --> IDLE, or once more
 *
 * The core's position is taken when frozen: it is the one that belongs to (phi, u). The copy keeps
 * merges waiting for as long as memory takes, not for as long as the disk takes. */
#ifndef TW_DAEMON_NODE_CHECKPOINTS_H
#define TW_DAEMON_NODE_CHECKPOINTS_H

#include "daemon/node/runtime.h"

struct tw_status_view;

enum tw_status tw_daemon_checkpoints_open(struct tw_daemon *daemon, struct tw_error *err);

/* Reads the newest whole generation into the worker's memory, or formats the memory when there is
 * none. Needs the votes: a position without its vote is given up. On failure returns the exit
 * status, with the sentence in `err`. */
enum tw_exit tw_daemon_checkpoints_load(struct tw_daemon *daemon, struct tw_error *err);
/* The loaded position; NULL: the core starts without one. */
const struct tw_position *tw_daemon_checkpoints_position(const struct tw_daemon *daemon);

/* Starts a checkpoint, or asks for another one after the one under way. The API ticket, or NULL, is
 * answered by the checkpoint. */
void tw_daemon_checkpoints_save(struct tw_daemon *daemon, const uint32_t *ticket);
bool tw_daemon_checkpoints_is_saving(const struct tw_daemon *daemon);
/* The worker has not answered in time. */
bool tw_daemon_checkpoints_is_late(const struct tw_daemon *daemon, uint64_t now_us);

/* Answers of the worker: the snapshot is made, or will never be; (phi, u) is frozen. */
void tw_daemon_checkpoints_snapshot_done(struct tw_daemon *daemon);
void tw_daemon_checkpoints_frozen(struct tw_daemon *daemon);

void tw_daemon_checkpoints_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_checkpoints_fill(const struct tw_daemon *daemon, uint64_t now_us,
                                struct tw_status_view *view);
void tw_daemon_checkpoints_free(struct tw_daemon *daemon);

#endif
