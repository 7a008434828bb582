/* snapshot.h - the training state of a step in the shared memory, so that a killed worker loses the
 * steps since, and nothing else. Sealing and checksums are proto/shm.h's. */
#ifndef TW_WORKER_LOOP_SNAPSHOT_H
#define TW_WORKER_LOOP_SNAPSHOT_H

#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "worker/learn/train_state.h"

/* Copies the state into the older slot and seals it; *slot_out says which. m and v are rounded to
 * bf16 (nearest, ties to even) in that mode. TW_CORRUPT, and no slot touched, when something is not
 * finite; *slot_out = TW_SNAPSHOT_NONE and TW_OK when snapshots are off. */
enum tw_status tw_snapshot_save(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                const struct tw_train_state *state, uint32_t *slot_out,
                                struct tw_error *err);

/* The inverse. A fragment whose (phi, u) has seen other rounds than when the snapshot was taken
 * gets theta := phi: that merge is in phi, but not in the snapshot's theta. *fragments_reset (may
 * be NULL) counts those. TW_CORRUPT when the slot is not whole; *state is then unchanged. */
enum tw_status tw_snapshot_load(const struct tw_shm *shm, enum tw_snapshot_mode mode, uint32_t slot,
                                struct tw_train_state *state, uint32_t *fragments_reset,
                                struct tw_error *err);

#endif
