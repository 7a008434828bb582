/* snapshot.h - the training state of a step in shared memory, so that a killed worker loses only
 * the steps since then. There is space for two snapshots (slots); proto/shm.h has their checksums.
 */
#ifndef TW_WORKER_LOOP_SNAPSHOT_H
#define TW_WORKER_LOOP_SNAPSHOT_H

#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "worker/learn/train_state.h"

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

#endif
