/* snapshot.h - the training state of a step in shared memory, so that a killed worker loses only
 * the steps since then. There is room for two snapshots (slots); proto/shm.h has their checksums.
 */
#ifndef TW_WORKER_LOOP_SNAPSHOT_H
#define TW_WORKER_LOOP_SNAPSHOT_H

#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "worker/learn/train_state.h"

/* Writes the state over the older snapshot, with a checksum, and sets *slot_out to its index. In
 * BF16_MOMENTS mode m and v are rounded to bf16 (nearest, ties to even). TW_CORRUPT, with nothing
 * written, when a value is not finite. When snapshots are off: TW_OK and *slot_out =
 * TW_SNAPSHOT_NONE. */
enum tw_status tw_snapshot_save(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                const struct tw_train_state *state, uint32_t *slot_out,
                                struct tw_error *err);

/* Loads a snapshot. If (phi, u) of a fragment had other rounds when the snapshot was taken, theta
 * := phi for this fragment: the merges since then are in phi, but not in the snapshot's theta.
 * *fragments_reset (may be NULL) counts these fragments. TW_CORRUPT when the snapshot is incomplete
 * or damaged; *state is then unchanged. */
enum tw_status tw_snapshot_load(const struct tw_shm *shm, enum tw_snapshot_mode mode, uint32_t slot,
                                struct tw_train_state *state, uint32_t *fragments_reset,
                                struct tw_error *err);

#endif
