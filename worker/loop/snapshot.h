/* snapshot.h - the training state of a step in shared memory, so that a killed worker loses only
 * the steps since then. proto/shm.h seals slots and computes checksums. */
#ifndef TW_WORKER_LOOP_SNAPSHOT_H
#define TW_WORKER_LOOP_SNAPSHOT_H

#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "worker/learn/train_state.h"

/* Copies the state into the older slot, seals it and sets *slot_out to its index. In BF16_MOMENTS
 * mode m and v are rounded to bf16 (nearest, ties to even). TW_CORRUPT, with no slot touched, when
 * a value is not finite. When snapshots are off: TW_OK and *slot_out = TW_SNAPSHOT_NONE. */
enum tw_status tw_snapshot_save(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                const struct tw_train_state *state, uint32_t *slot_out,
                                struct tw_error *err);

/* Loads a snapshot. If (phi, u) of a fragment had other rounds when the snapshot was taken, theta
 * := phi for this fragment: the merges since then are in phi, but not in the snapshot's theta.
 * *fragments_reset (may be NULL) counts these fragments. TW_CORRUPT when the slot is not whole;
 * *state is then unchanged. */
enum tw_status tw_snapshot_load(const struct tw_shm *shm, enum tw_snapshot_mode mode, uint32_t slot,
                                struct tw_train_state *state, uint32_t *fragments_reset,
                                struct tw_error *err);

#endif
