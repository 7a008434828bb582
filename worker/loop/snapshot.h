/* snapshot.h - the training state of a step in shared memory, so that a killed worker loses only
 * the steps since then. There is space for two snapshots (slots); proto/shm.h has their checksums.
 */
#ifndef TW_WORKER_LOOP_SNAPSHOT_H
#define TW_WORKER_LOOP_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/learn/learner.h"
#include "worker/learn/train_state.h"
#include "worker/merge/merger.h"

/* Writes the state over the older snapshot, with a checksum, and sets *slot_out to its index. In
 * BF16_MOMENTS mode m and v are rounded to bf16 (nearest, ties to even). Returns TW_CORRUPT, with
 * nothing written, if a value is not finite. If snapshots are off, returns TW_OK with *slot_out =
 * TW_SNAPSHOT_NONE. */
enum tw_status tw_snapshot_save(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                const struct tw_train_state *state, uint32_t *slot_out,
                                struct tw_error *err);

/* Loads a snapshot. A fragment may have been merged again since the snapshot was taken. Its theta
 * is then reset to phi, because the snapshot's theta lacks those merges. *fragments_reset (may be
 * NULL) counts such fragments. Returns TW_CORRUPT, with *state unchanged, if the snapshot is
 * incomplete or damaged. */
enum tw_status tw_snapshot_load(const struct tw_shm *shm, enum tw_snapshot_mode mode, uint32_t slot,
                                struct tw_train_state *state, uint32_t *fragments_reset,
                                struct tw_error *err);

/* Copies of theta, m and v in host memory for a learner that keeps them on a device; the learner's
 * arrays are then mirrors (learner.h). They have two uses: the start of a worker writes all of
 * them, and a snapshot reads all of them. Merging works on the device (vectors.h). */

/* Copies all elements of these arrays to the host. Errors: TW_DEVICE. */
enum tw_status tw_host_mirror_pull_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err);
enum tw_status tw_host_mirror_push_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err);

/* The state of training that a worker keeps while its daemon is away, and how training goes on with
 * the daemon that comes back.
 *
 * The parameters, the optimizer and the data stay in the learner. The new daemon has the anchor
 * phi' of its checkpoint, which may be older than the anchor phi that the worker had. Per fragment:
 *
 *   no merge since the checkpoint    theta stays: all steps since then are this node's own, and
 *                                    phi' - theta contains them
 *   merges since the checkpoint      theta += phi' - phi. The node will get these merges again, by
 *                                    APPLY or LOAD, and phi' - theta contains only the steps after
 *                                    the last of them
 *
 * A round in which this node is alone (SOLO) is no merge. Work in flight returns to theta, as
 * before a change of anchor. */

struct tw_kept_state {
    float *phi; /* (elements), owned: the anchor when the link ended; NULL: nothing is kept */
    uint64_t merged_rounds[TW_FRAGMENTS_MAX]; /* tw_trainer.merged_rounds */
    uint64_t step, tokens, cursor, step_us_mean;
    uint64_t history, data_seed; /* of the last WELCOME */
};

/* Keeps the anchor, and returns work in flight to theta. The caller fills the other fields. The
 * learner is held at a step boundary afterwards. Errors: TW_NOMEM, TW_DEVICE. */
enum tw_status tw_kept_state_take(struct tw_kept_state *kept, struct tw_merger *merger,
                                  const struct tw_learner *learner, struct tw_error *err);

/* Returns whether training may go on with the kept state. If not, the daemon went back to an
 * earlier state on purpose, or its WELCOME names a measure against a worker that dies repeatedly.
 */
bool tw_kept_state_is_usable(const struct tw_kept_state *kept,
                             const struct tw_wmsg_welcome *welcome);

/* Makes theta fit the new daemon's anchor, as above. For a FRESH start it first makes that anchor.
 * Errors: TW_NOMEM, TW_DEVICE. */
enum tw_status tw_kept_state_put(const struct tw_kept_state *kept,
                                 const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                                 const struct tw_learner *learner, struct tw_error *err);

void tw_kept_state_free(struct tw_kept_state *kept); /* zeros are fine */

#endif
