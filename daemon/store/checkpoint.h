/* checkpoint.h - generations of a node's training state on disk.
 *
 * A generation is one safetensors file, ckpt.a.safetensors or ckpt.b.safetensors in turn: whole
 * tensors by name (`anchor.h.0.ln_1.weight`, `momentum.*`, `live.*`, `adam_m.*`, `adam_v.*`) and in
 * __metadata__ the counters, the node's position in its lineage, SHA-256 of each MiB of data and
 * of the header itself (with that digest set to zeros), so that one wrong bit anywhere is found.
 * Tensors are found by name: a file loads into any fragment layout of the same model (with another
 * number of fragments it has no position: has_position false, live_rounds zero). The padding
 * between fragments is not stored and not written by a load.
 *
 * Acknowledged means durable, and the newest good generation is never written over: durable.h. */
#ifndef TW_DAEMON_STORE_CHECKPOINT_H
#define TW_DAEMON_STORE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/store/file.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "sync/node.h"

enum tw_checkpoint_kind {
    TW_CHECKPOINT_ANCHOR,   /* phi */
    TW_CHECKPOINT_MOMENTUM, /* u */
    TW_CHECKPOINT_LIVE,     /* theta */
    TW_CHECKPOINT_ADAM_M,
    TW_CHECKPOINT_ADAM_V,
    TW_CHECKPOINT_KINDS
};

enum { TW_CHECKPOINT_SLOTS = 2 };

/* Where the tensors of each kind lie in memory, fragment by fragment (a displaced fragment may lie
 * in the spare buffer): at[kind][p] points at element fragment_begin[p] of the layout. A kind whose
 * at[kind][0] is NULL is left out. is_bf16: two bytes per element instead of four. Borrowed. */
struct tw_checkpoint_arrays {
    void *at[TW_CHECKPOINT_KINDS][TW_FRAGMENTS_MAX];
    bool is_bf16[TW_CHECKPOINT_KINDS];
};

/* Everything else a generation holds. */
struct tw_checkpoint_state {
    uint64_t step, tokens;                  /* totals of this node */
    uint64_t updates;                       /* optimizer steps that made adam_m and adam_v */
    uint64_t rng[4];                        /* of a trainer that has one */
    uint64_t cursor;                        /* of the data, in tokens drawn */
    uint64_t live_rounds[TW_FRAGMENTS_MAX]; /* of the anchor when live was copied, by fragment */
    bool has_position;
    struct tw_position position; /* consistent with anchor and momentum */
};

/* What a load found. */
struct tw_checkpoint_found {
    bool is_loaded;
    uint32_t slot;
    uint64_t generation;
    bool has_kind[TW_CHECKPOINT_KINDS];
    /* Why a slot was not used, one sentence; "" for the used one and an absent one. */
    char refused[TW_CHECKPOINT_SLOTS][256];
};

struct tw_checkpoint;

/* Points all fragments of `kind` into one array in layout order. */
void tw_checkpoint_arrays_set(struct tw_checkpoint_arrays *arrays, enum tw_checkpoint_kind kind,
                              const struct tw_layout *layout, void *array, bool is_bf16);

/* Opens the folder. `layout` and `ops` are borrowed until destroy. Allocates all it will ever need:
 * about 2 MiB, 2 KiB per tensor of the model and 128 bytes per MiB of a generation. TW_IO when
 * there is no such folder. */
enum tw_status tw_checkpoint_create(struct tw_checkpoint **checkpoint,
                                    const struct tw_file_ops *ops, const char *dir_path,
                                    const struct tw_layout *layout, const struct tw_id *run,
                                    struct tw_error *err);
void tw_checkpoint_destroy(struct tw_checkpoint *checkpoint);

/* Loads the newest generation that is whole. Kinds with a place in `arrays` are filled (float32 and
 * bf16 are converted as needed, to nearest even), the others only checked; has_kind says which the
 * file holds. Must precede the first save.
 *   TW_OK       is_loaded, or the folder holds no checkpoint at all: a fresh start.
 *   TW_CORRUPT  there are checkpoints and none is whole; TW_IO: and one could not be read, twice.
 * The arrays are undefined. Never start from zeros silently: fetch from peers or ask. A later save
 * goes on with a generation above every one that was seen. TW_DENIED   a whole checkpoint of
 * another run, TW_CONFIG: of another shape; both are named and this folder is not written to. */
enum tw_status tw_checkpoint_load(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_arrays *arrays,
                                  struct tw_checkpoint_state *state,
                                  struct tw_checkpoint_found *found, struct tw_error *err);

/* Saves the next generation from memory that nobody should change meanwhile (if somebody does, the
 * file is still whole, only its values are mixed): through one MiB of bounce buffer, no copy of
 * the model. TW_OK means durable. On TW_IO older generations are as they were and the save may be
 * tried again. Any thread, one call at a time; takes as long as the disk does. No heap. */
enum tw_status tw_checkpoint_save(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_state *state,
                                  const struct tw_checkpoint_arrays *arrays, struct tw_error *err);

/* Generation of the newest acknowledged save or load; 0 = none yet. */
uint64_t tw_checkpoint_generation(const struct tw_checkpoint *checkpoint);

#endif
