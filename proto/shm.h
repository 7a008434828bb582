/* shm.h - the memory shared by daemon and worker: where things lie, how a fragment is published,
 * how a snapshot is sealed. worker_msg.h tells the story; these are the only functions that touch
 * the control page's protocol words.
 *
 * One writer at a time: the worker, or the daemon while no worker is attached (a checkpoint is
 * loaded). The daemon copies only while it asks nothing of the worker that publishes. Nothing here
 * trusts the page: pointers come from the caller's own geometry, and a bad word in the page yields
 * stale data, never an address outside it. */
#ifndef TW_PROTO_SHM_H
#define TW_PROTO_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/worker_msg.h"

/* One mapping of the memfd, with everything needed to find a fragment in it. */
struct tw_shm {
    uint8_t *base;                   /* borrowed */
    struct tw_shm_geometry geometry; /* a private copy: never read from the page */
    uint32_t fragments_count;
    uint64_t fragment_begin[TW_FRAGMENTS_MAX + 1]; /* elements; as in the layout */
    _Atomic uint64_t *hashed; /* borrowed: grows by the bytes of snapshots hashed; NULL: not told */
};

/* Lays out the memfd for this model: page-aligned regions in the order of worker_msg.h.
 * TW_LIMIT when the sum does not fit in 63 bits. geometry->bytes is the size to ask for. */
enum tw_status tw_shm_geometry_init(struct tw_shm_geometry *geometry,
                                    const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                    uint64_t pool_bytes, struct tw_error *err);

/* Is a geometry that came from outside the one tw_shm_geometry_init would make? TW_PROTO with the
 * field that differs. `bytes_mapped`: what fstat says. */
enum tw_status tw_shm_geometry_check(const struct tw_shm_geometry *geometry,
                                     const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                     uint64_t bytes_mapped, struct tw_error *err);

/* Binds a mapping of at least geometry->bytes. The geometry has been checked. Nobody is told what
 * is hashed. */
void tw_shm_bind(struct tw_shm *shm, void *base, const struct tw_shm_geometry *geometry,
                 const struct tw_layout *layout);

/* Makes a zeroed mapping valid: magic, everything at home, no snapshot. The daemon, once. */
void tw_shm_format(const struct tw_shm *shm);

/* TW_CORRUPT when the page does not carry the magic of this version. */
enum tw_status tw_shm_check_magic(const struct tw_shm *shm, struct tw_error *err);

struct tw_shm_control *tw_shm_control(const struct tw_shm *shm);
uint64_t tw_shm_fragment_elements(const struct tw_shm *shm, uint32_t fragment);

/* [offset, offset + bytes) lies inside the pool: then its address, else NULL. */
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

/* Copies a displaced fragment home: then phi and u are whole arrays of `elements` in their regions.
 * Changes no fragment's state. */
void tw_shm_settle(const struct tw_shm *shm);

/* Empties the spare (copies a displaced fragment home) and lends it: phi', u' of the fragment go
 * to *phi, *u, (elements) each. What is written there is invisible until publish; calling begin
 * again forgets it. */
void tw_shm_stage_begin(const struct tw_shm *shm, uint32_t fragment, float **phi, float **u);

/* Makes the staged (phi', u') the fragment, with one store. The state is written before it. */
void tw_shm_stage_publish(const struct tw_shm *shm, uint32_t fragment,
                          const struct tw_shm_state *state);

/* For filling the memory before anybody reads it (fresh start, checkpoint): home addresses, and the
 * state of what was written there. No fragment may be displaced: tw_shm_format came before. */
void tw_shm_home(const struct tw_shm *shm, uint32_t fragment, float **phi, float **u);
void tw_shm_home_set(const struct tw_shm *shm, uint32_t fragment, const struct tw_shm_state *state);

/* SHA-256 over phi, then u: (elements) each, little-endian float32. Needs tw_hash. */
struct tw_id tw_shm_digest(const float *phi, const float *u, uint64_t elements);

/* ---- snapshots ----------------------------------------------------------------------------- */

/* Bytes of one slot: theta, m, v. 0 when OFF. */
uint64_t tw_shm_snapshot_bytes(uint64_t elements, enum tw_snapshot_mode mode);

void *tw_shm_snapshot_data(const struct tw_shm *shm, uint32_t slot);

/* begin: the slot is torn from here on, its data may be written. end: takes the fields
 * of `meta` (seq, checksum and bytes are filled in here) and makes the slot whole. */
void tw_shm_snapshot_begin(const struct tw_shm *shm, uint32_t slot);
void tw_shm_snapshot_end(const struct tw_shm *shm, uint32_t slot,
                         const struct tw_snapshot_slot *meta);

/* A private copy of the slot's fields, checksum verified against the data: TW_CORRUPT when the slot
 * is empty, torn, overtaken while it was checked, or does not match. Reads the whole slot. */
enum tw_status tw_shm_snapshot_check(const struct tw_shm *shm, uint32_t slot,
                                     struct tw_snapshot_slot *meta, struct tw_error *err);

/* The slot to write next: the torn, empty or older one. */
uint32_t tw_shm_snapshot_oldest(const struct tw_shm *shm);

/* The newest whole slot, or -1. Verifies checksums: reads up to all slots. */
int tw_shm_snapshot_newest(const struct tw_shm *shm, struct tw_snapshot_slot *meta);

#endif
