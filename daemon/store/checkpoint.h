/* checkpoint.h - generations of a node's training state on disk.
 *
 * A generation is one safetensors file, ckpt.a.safetensors or ckpt.b.safetensors in turn. It holds
 * whole tensors by name: `anchor.h.0.ln_1.weight`, `momentum.*`, `live.*`, `adam_m.*`, `adam_v.*`.
 * Its __metadata__ holds the counters, the node's position in its lineage, and a SHA-256 of each
 * MiB of data and of the header itself (computed with that digest set to zeros). One wrong bit
 * anywhere is thus found.
 *
 * Tensors are found by name, so a file loads into any fragment layout of the same model. With
 * another number of fragments there is no position: has_position is false, live_rounds is zero.
 * Padding between fragments is neither stored nor written by a load.
 *
 * Acknowledged means durable, and the newest good generation is never overwritten: durable.h.
 *
 * Two more files lie beside the two that take turns: ckpt.pinned.safetensors, a generation that was
 * kept when its turn to be replaced came, and ckpt.undone.safetensors, the newest generation before
 * a rollback. A load does not choose them. */
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

enum {
    TW_CHECKPOINT_SLOTS = 2, /* the files that take turns: a and b */
    TW_CHECKPOINT_PINNED = TW_CHECKPOINT_SLOTS,
    TW_CHECKPOINT_UNDONE,
    TW_CHECKPOINT_FILES,
    /* Most disk that a node needs for them: all files and the one being written, each with phi, u,
     * theta and two moments of four bytes. */
    TW_CHECKPOINTS_BYTES_PARAM = (TW_CHECKPOINT_FILES + 1) * 20,
};

/* Addresses of the tensors of each kind, fragment by fragment; a displaced fragment may be in the
 * spare buffer. at[kind][p] points at element fragment_begin[p] of the layout. A kind with
 * at[kind][0] NULL is left out. is_bf16: two bytes per element instead of four. Borrowed. */
struct tw_checkpoint_arrays {
    void *at[TW_CHECKPOINT_KINDS][TW_FRAGMENTS_MAX];
    bool is_bf16[TW_CHECKPOINT_KINDS];
};

/* The rest of a generation. */
struct tw_checkpoint_state {
    uint64_t step, tokens;                  /* totals of this node */
    uint64_t updates;                       /* optimizer steps that made adam_m and adam_v */
    uint64_t rng[4];                        /* random state of a trainer that has one */
    uint64_t cursor;                        /* position in the data, in tokens drawn */
    uint64_t live_rounds[TW_FRAGMENTS_MAX]; /* anchor's round when live was copied, by fragment */
    uint64_t least_e6, is_wild;             /* members of struct tw_generations */
    bool has_position;
    struct tw_position position; /* consistent with anchor and momentum */
};

/* Result of a load. */
struct tw_checkpoint_found {
    bool is_loaded;
    uint32_t slot;
    uint64_t generation;
    bool has_kind[TW_CHECKPOINT_KINDS];
    /* Why a file was not used, one sentence; "" for the used file and an absent one. */
    char refused[TW_CHECKPOINT_SLOTS][256];
};

/* The header of one file. */
struct tw_checkpoint_about {
    bool exists;
    uint64_t generation, step, tokens;
    bool has_position;
    uint64_t rounds; /* rounds of the position: the core's state in the file */
    struct tw_id lineage;
    char refused[256]; /* why the file cannot be used, one sentence; "": it can */
};

struct tw_checkpoint;

/* "ckpt.a.safetensors". `file` is below TW_CHECKPOINT_FILES. Static storage. */
const char *tw_checkpoint_file_name(uint32_t file);

/* Points all fragments of `kind` into one array in layout order. */
void tw_checkpoint_arrays_set(struct tw_checkpoint_arrays *arrays, enum tw_checkpoint_kind kind,
                              const struct tw_layout *layout, void *array, bool is_bf16);

/* Opens the folder. `layout` and `ops` are borrowed until destroy. Allocates all memory it ever
 * needs: about 2 MiB, 5 KiB per tensor of the model and 128 bytes per MiB of a generation. TW_IO:
 * no such folder. */
enum tw_status tw_checkpoint_create(struct tw_checkpoint **checkpoint,
                                    const struct tw_file_ops *ops, const char *dir_path,
                                    const struct tw_layout *layout, const struct tw_id *run,
                                    struct tw_error *err);
void tw_checkpoint_destroy(struct tw_checkpoint *checkpoint);

/* Loads the newest intact generation. Must precede the first save. Kinds with an address in
 * `arrays` are filled (float32 and bf16 are converted as needed, to nearest even). The others are
 * only checked. has_kind: kinds that the file holds.
 *   TW_OK       is_loaded, or the folder holds no checkpoint at all: a fresh start
 *   TW_CORRUPT  checkpoints exist, but none is intact
 *   TW_IO       the same, and one could not be read in two attempts
 *   TW_DENIED   an intact checkpoint of another run; the folder is not written to
 *   TW_CONFIG   an intact checkpoint of another shape; the folder is not written to
 * On failure the arrays are undefined. Never start from zeros silently: fetch from peers, or ask. A
 * later save uses a generation above every one seen. */
enum tw_status tw_checkpoint_load(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_arrays *arrays,
                                  struct tw_checkpoint_state *state,
                                  struct tw_checkpoint_found *found, struct tw_error *err);

/* Saves the next generation from memory that should not change meanwhile. If it does change, the
 * file is still intact, but its values are mixed. Copies through a buffer of 1 MiB. TW_OK means
 * durable. On TW_IO older generations are unchanged and the save may be repeated. Any thread, one
 * call at a time; takes as long as the disk needs. No heap. */
enum tw_status tw_checkpoint_save(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_state *state,
                                  const struct tw_checkpoint_arrays *arrays, struct tw_error *err);

/* Whether the next save keeps the generation that it replaces, as the pinned one. */
void tw_checkpoint_keep_replaced(struct tw_checkpoint *checkpoint, bool is_kept);

/* Reads the header of one file; the arrays are not read. */
void tw_checkpoint_look(struct tw_checkpoint *checkpoint, uint32_t file,
                        struct tw_checkpoint_about *about);

/* Reads every byte of one file. TW_CORRUPT, TW_IO: the file is damaged or missing. */
enum tw_status tw_checkpoint_verify(struct tw_checkpoint *checkpoint, uint32_t file,
                                    struct tw_error *err);

/* Makes the generation in `file` the one that the next load finds, after a check of every byte. It
 * keeps its name, too. The newest generation moves to the undone file. Durable when TW_OK; a crash
 * leaves the state before or after. TW_CORRUPT, TW_IO: nothing was changed, for the file is not
 * intact, or another one cannot be read. */
enum tw_status tw_checkpoint_go_back(struct tw_checkpoint *checkpoint, uint32_t file,
                                     struct tw_error *err);

/* Generation of the newest acknowledged save or load, 0 = none yet, and its file. */
uint64_t tw_checkpoint_generation(const struct tw_checkpoint *checkpoint);
uint32_t tw_checkpoint_newest_file(const struct tw_checkpoint *checkpoint);

#endif
