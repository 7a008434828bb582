/* shm.h - the memory shared by daemon and worker: layout, publishing of a fragment, sealing of a
 * snapshot. worker_msg.h describes the protocol; only these functions touch the protocol words of
 * the control page.
 *
 * There is one writer at a time: the worker, or the daemon while no worker is attached (to load a
 * checkpoint). The daemon copies (phi, u) only while no request that publishes is at the worker.
 * The page is not trusted: pointers come from the caller's own geometry, and a bad word in the page
 * yields stale data, never an address outside the mapping. */
#ifndef TW_PROTO_SHM_H
#define TW_PROTO_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/worker_msg.h"

/* One mapping of the memfd, with the positions of all fragments. */
struct tw_shm {
    uint8_t *base;                   /* borrowed */
    struct tw_shm_geometry geometry; /* a private copy: never read from the page */
    uint32_t fragments_count;
    uint64_t fragment_begin[TW_FRAGMENTS_MAX + 1]; /* elements; as in the layout */
    _Atomic uint64_t *hashed; /* borrowed progress counter: bytes of snapshots hashed; NULL: none */
};

/* Lays out the memfd for this model: page-aligned regions in the order of worker_msg.h.
 * TW_LIMIT when the sum does not fit in 63 bits. geometry->bytes is the size to ask for. */
enum tw_status tw_shm_geometry_init(struct tw_shm_geometry *geometry,
                                    const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                    uint64_t pool_bytes, struct tw_error *err);

/* Checks that a geometry from outside equals that of tw_shm_geometry_init. TW_PROTO names the field
 * that differs. `bytes_mapped`: size by fstat. */
enum tw_status tw_shm_geometry_check(const struct tw_shm_geometry *geometry,
                                     const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                     uint64_t bytes_mapped, struct tw_error *err);

/* Binds a mapping of at least geometry->bytes, with a checked geometry and no progress counter. */
void tw_shm_bind(struct tw_shm *shm, void *base, const struct tw_shm_geometry *geometry,
                 const struct tw_layout *layout);

/* Makes a zeroed mapping valid: magic, an empty spare buffer, no snapshot. Called once by the
 * daemon. */
void tw_shm_format(const struct tw_shm *shm);

/* TW_CORRUPT when the page does not carry the magic of this version. */
enum tw_status tw_shm_check_magic(const struct tw_shm *shm, struct tw_error *err);

struct tw_shm_control *tw_shm_control(const struct tw_shm *shm);
uint64_t tw_shm_fragment_elements(const struct tw_shm *shm, uint32_t fragment);

/* Address of [offset, offset + bytes) if it lies inside the pool, else NULL. */
void *tw_shm_pool(const struct tw_shm *shm, uint64_t offset, uint64_t bytes);

/* ---- reading (phi, u) ---------------------------------------------------------------------- */

struct tw_shm_view {
    const float *phi, *u; /* (elements), in the mapping */
    uint64_t elements;
    struct tw_shm_state state;
};

/* The current (phi, u) of a fragment. Never fails; O(1). */
void tw_shm_view(const struct tw_shm *shm, uint32_t fragment, struct tw_shm_view *view);

/* ---- writing (phi, u): one writer ---------------------------------------------------------- */

/* Copies the fragment in the spare buffer, if any, to its home: its place in the arrays phi and u.
 * Both are then complete arrays of `elements`. Changes no published value. */
void tw_shm_settle(const struct tw_shm *shm);

/* Empties the spare buffer (tw_shm_settle). The caller then writes phi', u' of the fragment to
 * *phi, *u, (elements) each. The new values are invisible until publish; another begin discards
 * them. */
void tw_shm_stage_begin(const struct tw_shm *shm, uint32_t fragment, float **phi, float **u);

/* Publishes the staged (phi', u') with one store, after their state was written. */
void tw_shm_stage_publish(const struct tw_shm *shm, uint32_t fragment,
                          const struct tw_shm_state *state);

/* For filling the memory before its first use (fresh start, checkpoint). tw_shm_home returns the
 * addresses of a fragment in phi and u. tw_shm_home_set stores rounds and digest of the values that
 * the caller wrote to these addresses. The spare buffer must be empty, as after tw_shm_format. */
void tw_shm_home(const struct tw_shm *shm, uint32_t fragment, float **phi, float **u);
void tw_shm_home_set(const struct tw_shm *shm, uint32_t fragment, const struct tw_shm_state *state);

/* SHA-256 over phi, then u: (elements) each, little-endian float32. Needs tw_hash. */
struct tw_id tw_shm_digest(const float *phi, const float *u, uint64_t elements);

/* ---- snapshots ----------------------------------------------------------------------------- */

/* Bytes of one snapshot: theta, m, v. 0 when OFF. Shared memory has room for two: slots 0 and 1. */
uint64_t tw_shm_snapshot_bytes(uint64_t elements, enum tw_snapshot_mode mode);

void *tw_shm_snapshot_data(const struct tw_shm *shm, uint32_t slot);

/* begin marks the snapshot as incomplete, and the caller then writes its data. end stores the
 * fields of `meta`, sets seq, checksum and bytes, and makes the snapshot valid. */
void tw_shm_snapshot_begin(const struct tw_shm *shm, uint32_t slot);
void tw_shm_snapshot_end(const struct tw_shm *shm, uint32_t slot,
                         const struct tw_snapshot_slot *meta);

/* Copies the fields of the snapshot to *meta and verifies its checksum, for which it reads all of
 * it. TW_CORRUPT: empty, incomplete, changed during the check, or another checksum. */
enum tw_status tw_shm_snapshot_check(const struct tw_shm *shm, uint32_t slot,
                                     struct tw_snapshot_slot *meta, struct tw_error *err);

/* The slot to write next: an empty or incomplete one, else the older one. */
uint32_t tw_shm_snapshot_oldest(const struct tw_shm *shm);

/* Makes the slot empty, as if nothing had been written. No worker may be attached. */
void tw_shm_snapshot_forget(const struct tw_shm *shm, uint32_t slot);

/* The slot with the newest valid snapshot; -1: none. Verifies checksums, so it may read both. */
int tw_shm_snapshot_newest(const struct tw_shm *shm, struct tw_snapshot_slot *meta);

#endif
