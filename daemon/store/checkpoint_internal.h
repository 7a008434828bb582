/* checkpoint_internal.h - shared by the files daemon/store/checkpoint*.c; private to them.
 *
 *   checkpoint.c         the folder: which generation is in which file
 *   checkpoint_back.c    lists the files, and goes back to the generation in one of them
 *   checkpoint_meta.c    counters and digests to metadata texts and back
 *   checkpoint_save.c    memory to file          checkpoint_load.c   file to memory */
#ifndef TW_DAEMON_STORE_CHECKPOINT_INTERNAL_H
#define TW_DAEMON_STORE_CHECKPOINT_INTERNAL_H

#include "daemon/store/checkpoint.h"
#include "daemon/store/durable.h"
#include "proto/safetensors.h"
#include "sync/core/position.h"

enum {
    BLOCK_BYTES = 1 << 20, /* size of a block of data, which has its own SHA-256 */
    DIGEST_DIGITS = 64,
    NUMBER_BYTES = 21,                            /* size of a u64 in decimal, with NUL */
    LIST_BYTES = TW_FRAGMENTS_MAX * NUMBER_BYTES, /* size of TW_FRAGMENTS_MAX such numbers, with
                                                     commas */
};

/* The metadata as texts. */
struct meta {
    char generation[NUMBER_BYTES], step[NUMBER_BYTES], tokens[NUMBER_BYTES], updates[NUMBER_BYTES],
        cursor[NUMBER_BYTES], fragments[NUMBER_BYTES];
    char run[TW_ID_HEX_BYTES], digest[TW_ID_HEX_BYTES];
    char rng[LIST_BYTES], live_rounds[LIST_BYTES], judged[LIST_BYTES];
    char position[2 * TW_POSITION_BYTES_MAX + 1]; /* hex */
};

/* A tensor's elements in one fragment: their place in the file, and their address in memory (NULL:
 * they are only checked). */
struct piece {
    uint64_t begin, end; /* byte offsets from the start of the data */
    uint8_t *memory;
    bool file_is_bf16, memory_is_bf16;
};

struct tw_checkpoint {
    const struct tw_file_ops *ops;
    const struct tw_layout *layout;
    struct tw_id run;
    int dir;
    bool is_loaded_from;   /* the load has read ckpt.a and ckpt.b */
    bool is_replaced_kept; /* the next save keeps the generation that it would replace, as the
                              pinned one */
    bool is_older_kept;    /* the next save replaces the newest generation, not the older one */
    bool is_foreign;       /* the files belong to another run or shape: never write to the folder */
    /* this process has loaded or written the file, and found every byte right */
    bool is_proven[TW_CHECKPOINT_SLOTS];
    bool is_verified[TW_CHECKPOINT_FILES]; /* tw_checkpoint_verify has found every byte right */
    void (*progress)(void *user, uint64_t read_bytes, uint64_t all_bytes); /* or NULL */
    void *progress_user;
    uint32_t newest_slot;     /* index of the file that holds `generation`, unless that is 0 */
    uint64_t generation;      /* newest generation known to be intact */
    uint64_t generation_seen; /* highest generation in any intact header */
    struct tw_safetensors st; /* header of the file being read or written */
    uint8_t *header;          /* header_capacity bytes */
    size_t header_capacity;
    char *hashes; /* SHA-256 digests of all blocks in hex, concatenated */
    size_t hashes_capacity;
    uint8_t *block;       /* BLOCK_BYTES bytes */
    struct piece *pieces; /* kinds * (tensors + fragments of the layout) entries */
    struct meta meta;
};

extern const char *const tw_checkpoint_slot_names[TW_CHECKPOINT_FILES];

/* Writes a name such as "anchor.h.0.ln_1.weight" to name[TW_SAFETENSORS_NAME_BYTES]. */
void tw_checkpoint_tensor_name(enum tw_checkpoint_kind kind, const struct tw_tensor *tensor,
                               char *name);

/* A tensor's elements in one fragment. */
struct tw_checkpoint_range {
    uint64_t first, count; /* indices within the tensor */
    uint32_t fragment;
    uint8_t *memory; /* address of the first element; NULL: its kind is left out */
};

/* Advances *range, all zeros at first, to the tensor's next range. Returns false after the last
 * one. */
bool tw_checkpoint_range_next(const struct tw_checkpoint_arrays *arrays,
                              enum tw_checkpoint_kind kind, const struct tw_layout *layout,
                              const struct tw_tensor *tensor, struct tw_checkpoint_range *range);

/* ---- checkpoint_meta.c ---------------------------------------------------------------------- */

/* Writes all texts of `meta`. The header's digest is set to zeros. */
void tw_checkpoint_meta_encode(struct meta *meta, uint64_t generation, const struct tw_id *run,
                               const struct tw_checkpoint_state *state, uint32_t fragments_count);

/* Makes the texts and `hashes` the metadata of st, which borrows them. */
void tw_checkpoint_meta_list(struct tw_safetensors *st, const struct meta *meta, const char *hashes,
                             size_t hashes_size);

/* Recomputes the digest of the header from which st was parsed, and compares it. Overwrites it with
 * zeros in `header`. */
enum tw_status tw_checkpoint_meta_verify(const struct tw_safetensors *st, uint8_t *header,
                                         size_t header_size, struct tw_error *err);

enum tw_status tw_checkpoint_meta_generation(const struct tw_safetensors *st, uint64_t *generation,
                                             struct tw_id *run, struct tw_error *err);
enum tw_status tw_checkpoint_meta_state(const struct tw_safetensors *st, uint32_t fragments_count,
                                        struct tw_checkpoint_state *state, struct tw_error *err);

/* ---- checkpoint_save.c ---------------------------------------------------------------------- */

/* Streams bytes into a durable file through one block, optionally with a SHA-256 per block. */
struct stream {
    struct tw_durable *durable;
    uint8_t *block; /* BLOCK_BYTES bytes */
    size_t filled;
    uint64_t offset; /* offset of the present block in the file */
    char *hashes;    /* where the next digest is written; NULL: no digests */
    struct tw_error *err;
};

enum tw_status tw_checkpoint_stream_put(struct stream *stream, const uint8_t *bytes, uint64_t size);
enum tw_status tw_checkpoint_stream_flush(struct stream *stream);

/* Adds the tensors of one kind to st, named `KIND.NAME`. */
void tw_checkpoint_describe(struct tw_safetensors *st, const struct tw_layout *layout,
                            enum tw_checkpoint_kind kind, bool is_bf16);

/* ---- checkpoint_load.c ---------------------------------------------------------------------- */

/* One checkpoint file, such as ckpt.a, and the result of checking its header: digest, run, shapes.
 */
struct slot {
    const char *name;
    bool exists;
    enum tw_status status;
    int file; /* file handle, open if status is TW_OK */
    uint64_t generation, data_begin, data_bytes;
    bool has_kind[TW_CHECKPOINT_KINDS];
    struct tw_error err;
};

/* Reads a file's header into checkpoint->st. If slot->status is TW_OK, the caller must close
 * slot->file. */
void tw_checkpoint_slot_open(struct tw_checkpoint *checkpoint, uint32_t index, struct slot *slot);

/* Checks every block of the open file, and copies the kinds of tensors that have an address in
 * `arrays`. */
enum tw_status tw_checkpoint_slot_load(struct tw_checkpoint *checkpoint, const struct slot *slot,
                                       const struct tw_checkpoint_arrays *arrays,
                                       struct tw_checkpoint_state *state, struct tw_error *err);

#endif
