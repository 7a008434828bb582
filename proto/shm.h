/* shm.h - the memory shared by daemon and worker: its layout, publishing a fragment, completing a
 * snapshot. worker_msg.h describes the protocol; only these functions access the protocol words of
 * the control page.
 *
 * There is one writer at a time: the worker, or the daemon while no worker is attached (to load a
 * checkpoint). The daemon copies (phi, u) only while the worker has no request that publishes. The
 * control page is not trusted: pointers come from the caller's own geometry. A wrong word in the
 * page can yield stale data, but never an address outside the mapping. */
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
    struct tw_shm_geometry geometry; /* a private copy, never read from the shared page */
    enum tw_momentum momentum;       /* how u is kept */
    uint32_t fragments_count;
    uint64_t fragment_begin[TW_FRAGMENTS_MAX + 1]; /* first element of each fragment, as in the
                                                      layout */
    _Atomic uint64_t *hashed; /* borrowed progress counter: snapshot bytes hashed; NULL: none */
};

/* Lays out the memfd for this model: page-aligned regions in the order of worker_msg.h. Returns
 * TW_LIMIT if the total does not fit in 63 bits. The memfd must have geometry->bytes bytes. */
enum tw_status tw_shm_geometry_init(struct tw_shm_geometry *geometry,
                                    const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                    uint64_t pool_bytes, struct tw_error *err);

/* Checks that an untrusted geometry equals that of tw_shm_geometry_init. The TW_PROTO error names
 * the field that differs. `bytes_mapped` is the size from fstat. */
enum tw_status tw_shm_geometry_check(const struct tw_shm_geometry *geometry,
                                     const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                     uint64_t bytes_mapped, struct tw_error *err);

/* Describes a mapping of at least geometry->bytes bytes. The geometry has been checked; `hashed` is
 * set to NULL. */
void tw_shm_bind(struct tw_shm *shm, void *base, const struct tw_shm_geometry *geometry,
                 const struct tw_layout *layout);

/* Initialises a zeroed mapping: magic, an empty spare buffer, no snapshot. The daemon calls this
 * once. */
void tw_shm_format(const struct tw_shm *shm);

/* Returns TW_CORRUPT unless the page has the magic of this version. */
enum tw_status tw_shm_check_magic(const struct tw_shm *shm, struct tw_error *err);

struct tw_shm_control *tw_shm_control(const struct tw_shm *shm);
uint64_t tw_shm_fragment_elements(const struct tw_shm *shm, uint32_t fragment);

/* Returns the address of [offset, offset + bytes) if that range lies inside the pool, else NULL. */
void *tw_shm_pool(const struct tw_shm *shm, uint64_t offset, uint64_t bytes);

/* ---- reading (phi, u) ---------------------------------------------------------------------- */

struct tw_shm_view {
    const float *phi; /* (elements), in the mapping */
    const void *u;    /* (elements) of the type shm->momentum; not to be read where it is NONE */
    uint64_t elements;
    struct tw_shm_state state;
};

/* Finds the current (phi, u) of a fragment. Never fails; O(1). */
void tw_shm_view(const struct tw_shm *shm, uint32_t fragment, struct tw_shm_view *view);

/* ---- writing (phi, u): one writer ---------------------------------------------------------- */

/* Copies the fragment in the spare buffer, if any, to its home: its place in the arrays phi and u.
 * Both arrays are then complete. Changes no published value. */
void tw_shm_settle(const struct tw_shm *shm);

/* Empties the spare buffer (tw_shm_settle). The caller then writes the fragment's new phi and u to
 * *phi and *u. They stay invisible until they are published; another begin discards them. */
void tw_shm_stage_begin(const struct tw_shm *shm, uint32_t fragment, float **phi, void **u);

/* Writes the state of the staged phi and u, then publishes them with one store. */
void tw_shm_stage_publish(const struct tw_shm *shm, uint32_t fragment,
                          const struct tw_shm_state *state);

/* For filling the memory before its first use (fresh start, checkpoint). tw_shm_home returns the
 * addresses of a fragment in phi and u. tw_shm_home_set stores the rounds and digest of the values
 * that the caller wrote there. The spare buffer must be empty, as after tw_shm_format. */
void tw_shm_home(const struct tw_shm *shm, uint32_t fragment, float **phi, void **u);
void tw_shm_home_set(const struct tw_shm *shm, uint32_t fragment, const struct tw_shm_state *state);

/* SHA-256 over phi[elements] as little-endian float32, then u[elements] in the type in which the
 * run keeps u. With TW_MOMENTUM_NONE u is not read. */
struct tw_id tw_shm_digest(const float *phi, const void *u, uint64_t elements,
                           enum tw_momentum momentum);

/* ---- snapshots ----------------------------------------------------------------------------- */

/* Returns the bytes of one snapshot (theta, m, v); 0 if snapshots are off. The shared memory has
 * room for two: slots 0 and 1. */
uint64_t tw_shm_snapshot_bytes(uint64_t elements, enum tw_snapshot_mode mode);

void *tw_shm_snapshot_data(const struct tw_shm *shm, uint32_t slot);

/* begin marks the snapshot as incomplete; the caller then writes its data. end stores the fields of
 * `meta`, computes checksum and bytes, and makes the snapshot valid. */
void tw_shm_snapshot_begin(const struct tw_shm *shm, uint32_t slot);
void tw_shm_snapshot_end(const struct tw_shm *shm, uint32_t slot,
                         const struct tw_snapshot_slot *meta);

/* Copies the fields of the snapshot to *meta and verifies its checksum, which reads all its data.
 * Returns TW_CORRUPT if it is empty, incomplete or changed during the check, or if its checksum
 * differs. */
enum tw_status tw_shm_snapshot_check(const struct tw_shm *shm, uint32_t slot,
                                     struct tw_snapshot_slot *meta, struct tw_error *err);

/* Returns the slot to write next: an empty or incomplete one, else the older one. */
uint32_t tw_shm_snapshot_oldest(const struct tw_shm *shm);

/* Empties the slot, as if it had never been written. No worker may be attached. */
void tw_shm_snapshot_forget(const struct tw_shm *shm, uint32_t slot);

/* Returns the slot with the newest valid snapshot, or -1 if there is none. It verifies checksums,
 * so it may read all data of both slots. */
int tw_shm_snapshot_newest(const struct tw_shm *shm, struct tw_snapshot_slot *meta);

#endif
