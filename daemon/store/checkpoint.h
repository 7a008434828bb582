/* checkpoint.h - generations of a node's training state on disk.
 *
 * A generation is one safetensors file, alternately ckpt.a.safetensors and ckpt.b.safetensors. It
 * holds whole tensors by name: `anchor.h.0.ln_1.weight`, `momentum.*`, `live.*`, `adam_m.*`,
 * `adam_v.*`. Its __metadata__ holds the counters, the node's position in its lineage, and SHA-256
 * digests: one per MiB of data and one of the header itself (computed with that digest set to
 * zeros). Any wrong bit is thus found.
 *
 * Tensors are found by name, so a file loads into any fragment layout of the same model. If the
 * number of fragments differs, the position is not usable: has_position is false, live_rounds is
 * zero. Padding between fragments is neither stored nor written by a load.
 *
 * A save that is acknowledged is durable (file.h). The newest good generation is never
 * overwritten before the next one is on disk.
 *
 * The folder has two more files, which a load does not choose. ckpt.pinned.safetensors is a
 * generation that was kept instead of being replaced. ckpt.undone.safetensors was the newest
 * generation before a rollback, or before this node joined a run that began anew. */
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
    TW_CHECKPOINT_SLOTS = 2, /* alternating files: a and b */
    TW_CHECKPOINT_PINNED = TW_CHECKPOINT_SLOTS,
    TW_CHECKPOINT_UNDONE,
    TW_CHECKPOINT_FILES,
    /* Maximum disk space for checkpoints, in bytes per parameter: all files and the one being
     * written, each with phi, u, theta and two moments of four bytes. */
    TW_CHECKPOINTS_BYTES_PARAM = (TW_CHECKPOINT_FILES + 1) * 20,
};

/* Addresses of the tensors of each kind, by fragment: at[kind][p] points at element
 * fragment_begin[p] of the layout. One fragment may be in the spare buffer. A kind with at[kind][0]
 * NULL is left out. is_bf16: two bytes per element instead of four. Borrowed. */
struct tw_checkpoint_arrays {
    void *at[TW_CHECKPOINT_KINDS][TW_FRAGMENTS_MAX];
    bool is_bf16[TW_CHECKPOINT_KINDS];
};

/* A generation's state besides its tensors. */
struct tw_checkpoint_state {
    uint64_t step, tokens;                  /* inner steps and tokens of this node in total */
    uint64_t updates;                       /* optimizer steps that adam_m and adam_v have seen */
    uint64_t rng[4];                        /* random state, of a trainer that has one */
    uint64_t cursor;                        /* position in the data, in tokens drawn */
    uint64_t live_rounds[TW_FRAGMENTS_MAX]; /* anchor's round when live was copied, per fragment */
    uint64_t least_e6, is_wild;             /* fields of struct tw_generations */
    bool has_position;
    struct tw_position position; /* consistent with anchor and momentum */
};

/* Result of a load. */
struct tw_checkpoint_found {
    bool is_loaded;
    uint32_t slot;
    uint64_t generation;
    bool has_kind[TW_CHECKPOINT_KINDS];
    /* Why a file was not used, as one sentence; "" for the loaded file and for a missing one. */
    char refused[TW_CHECKPOINT_SLOTS][256];
};

/* Contents of one file's header. */
struct tw_checkpoint_about {
    bool exists;
    uint64_t generation, step, tokens;
    bool has_position;
    uint64_t rounds; /* committed rounds in the position */
    struct tw_id lineage;
    char refused[256]; /* why the file cannot be used, as one sentence; "": it can */
};

struct tw_checkpoint;

/* Returns a file name such as "ckpt.a.safetensors". `file` is below TW_CHECKPOINT_FILES. Static
 * storage. */
const char *tw_checkpoint_file_name(uint32_t file);

/* Points all fragments of `kind` into one array in layout order. */
void tw_checkpoint_arrays_set(struct tw_checkpoint_arrays *arrays, enum tw_checkpoint_kind kind,
                              const struct tw_layout *layout, void *array, bool is_bf16);

/* Opens the folder. `layout` and `ops` are borrowed until destroy. Allocates all memory it ever
 * needs: about 2 MiB, 5 KiB per tensor of the model and 128 bytes per MiB of a generation. Returns
 * TW_IO if there is no such folder. */
enum tw_status tw_checkpoint_create(struct tw_checkpoint **checkpoint,
                                    const struct tw_file_ops *ops, const char *dir_path,
                                    const struct tw_layout *layout, const struct tw_id *run,
                                    struct tw_error *err);
void tw_checkpoint_destroy(struct tw_checkpoint *checkpoint);

/* Loads the newest intact generation. Must precede the first save. Kinds with an address in
 * `arrays` are filled; float32 and bf16 are converted as needed, to nearest even. The others are
 * only checked. has_kind: kinds that the file holds.
 *   TW_OK       is_loaded, or the folder holds no checkpoint at all: a fresh start
 *   TW_CORRUPT  checkpoints exist, but none is intact
 *   TW_IO       the same, and one could not be read in two attempts
 *   TW_DENIED   a checkpoint of another run; the folder is never written to
 *   TW_CONFIG   a checkpoint of another shape; the folder is never written to
 * On failure the arrays are undefined. Never start from zeros silently: fetch from peers, or ask. A
 * later save uses a generation above every one seen. */
enum tw_status tw_checkpoint_load(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_arrays *arrays,
                                  struct tw_checkpoint_state *state,
                                  struct tw_checkpoint_found *found, struct tw_error *err);

/* Saves the next generation. The arrays should not change meanwhile: if they do, the file is still
 * intact, but its values are of different moments. Copies through a buffer of 1 MiB. TW_OK means
 * durable. On TW_IO older generations are unchanged, and the save may be repeated. Any thread, one
 * call at a time; blocks for as long as the disk needs. No heap. */
enum tw_status tw_checkpoint_save(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_state *state,
                                  const struct tw_checkpoint_arrays *arrays, struct tw_error *err);

/* Sets whether the next save keeps the generation that it would replace, as the pinned one. */
void tw_checkpoint_keep_replaced(struct tw_checkpoint *checkpoint, bool is_kept);

/* Sets whether the next save replaces the newest generation instead of the older one, which stays
 * as it is. Needs both files. As in any save, a crash leaves the replaced file or the new one. */
void tw_checkpoint_keep_older(struct tw_checkpoint *checkpoint, bool is_kept);

/* Reads the header of one file, but not its arrays. */
void tw_checkpoint_look(struct tw_checkpoint *checkpoint, uint32_t file,
                        struct tw_checkpoint_about *about);

/* Checks every byte of one file. Returns TW_CORRUPT or TW_IO if it is damaged or missing. */
enum tw_status tw_checkpoint_verify(struct tw_checkpoint *checkpoint, uint32_t file,
                                    struct tw_error *err);

/* Sets a function that loads and verifications call every 64 MiB, with the bytes of data read and
 * those of the file. NULL: none. */
void tw_checkpoint_watch(struct tw_checkpoint *checkpoint,
                         void (*progress)(void *user, uint64_t read_bytes, uint64_t all_bytes),
                         void *user);

/* Makes the generation in `file` the one that the next load finds, after checking every byte of it.
 * It also keeps its old name. The newest generation moves to the undone file. TW_OK means durable;
 * a crash leaves the state before or after. On TW_CORRUPT or TW_IO nothing was changed: the file is
 * not intact, or another file cannot be read. */
enum tw_status tw_checkpoint_go_back(struct tw_checkpoint *checkpoint, uint32_t file,
                                     struct tw_error *err);

/* Durably keeps the file ckpt.a or ckpt.b under the name of the undone one, in whose place it
 * comes, too. Copies no bytes. May be called while another thread saves to the other of the two. */
enum tw_status tw_checkpoint_set_aside(struct tw_checkpoint *checkpoint, uint32_t file,
                                       struct tw_error *err);

/* Generation of the newest acknowledged save or load (0: none yet), and the index of its file. */
uint64_t tw_checkpoint_generation(const struct tw_checkpoint *checkpoint);
uint32_t tw_checkpoint_newest_file(const struct tw_checkpoint *checkpoint);

#endif
