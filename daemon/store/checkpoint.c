/* checkpoint.c - generations of a node's training state on disk: which is the newest, which may be
 * replaced; saving, loading, going back. */
#include "daemon/store/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "daemon/store/checkpoint_meta.h"
#include "daemon/store/file.h"

enum {
    BLOCK_BYTES = 1 << 20, /* size of a block of data, which has its own SHA-256 */
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

/* A tensor's elements in one fragment. */
struct range {
    uint64_t first, count; /* indices within the tensor */
    uint32_t fragment;
    uint8_t *memory; /* address of the first element; NULL: its kind is left out */
};

/* Streams bytes into a durable file through one block, optionally with a SHA-256 per block. */
struct stream {
    struct tw_durable *durable;
    uint8_t *block; /* BLOCK_BYTES bytes */
    size_t filled;
    uint64_t offset; /* offset of the present block in the file */
    char *hashes;    /* where the next digest is written; NULL: no digests */
    struct tw_error *err;
};

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

/* ==== the folder ============================================================================== */

static const char *const slot_names[TW_CHECKPOINT_FILES] = {
    "ckpt.a.safetensors",
    "ckpt.b.safetensors",
    [TW_CHECKPOINT_PINNED] = "ckpt.pinned.safetensors",
    [TW_CHECKPOINT_UNDONE] = "ckpt.undone.safetensors",
};

static const char *const kind_names[TW_CHECKPOINT_KINDS] = {
    [TW_CHECKPOINT_ANCHOR] = "anchor", [TW_CHECKPOINT_MOMENTUM] = "momentum",
    [TW_CHECKPOINT_LIVE] = "live",     [TW_CHECKPOINT_ADAM_M] = "adam_m",
    [TW_CHECKPOINT_ADAM_V] = "adam_v",
};

/* Writes a name such as "anchor.h.0.ln_1.weight" to name[TW_SAFETENSORS_NAME_BYTES]. */
static void print_tensor_name(enum tw_checkpoint_kind kind, const struct tw_tensor *tensor,
                              char *name) {
    _Static_assert(sizeof(tensor->name) + 16 <= TW_SAFETENSORS_NAME_BYTES, "kind, dot and name");
    (void)snprintf(name, TW_SAFETENSORS_NAME_BYTES, "%s.%.*s", kind_names[kind],
                   (int)sizeof(tensor->name) - 1, tensor->name);
}

void tw_checkpoint_arrays_set(struct tw_checkpoint_arrays *arrays, enum tw_checkpoint_kind kind,
                              const struct tw_layout *layout, void *array, bool is_bf16) {
    TW_ASSERT(kind < TW_CHECKPOINT_KINDS);
    arrays->is_bf16[kind] = is_bf16;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const uint64_t bytes = layout->fragment_begin[p] * (is_bf16 ? 2 : 4);
        arrays->at[kind][p] = array != NULL ? (uint8_t *)array + bytes : NULL;
    }
}

/* Advances *range, all zeros at first, to the tensor's next range. Returns false after the last
 * one. */
static bool next_range(const struct tw_checkpoint_arrays *arrays, enum tw_checkpoint_kind kind,
                       const struct tw_layout *layout, const struct tw_tensor *tensor,
                       struct range *range) {
    const uint64_t size = (uint64_t)tensor->rows * tensor->cols;
    range->first += range->count;
    if (range->first == size) return false;
    range->fragment = range->count == 0 ? tensor->fragment : range->fragment + 1;
    const uint64_t *begin = &layout->fragment_begin[range->fragment];
    const uint64_t at = tensor->offset + range->first;
    TW_ASSERT(at >= begin[0] && at < begin[1]);
    range->count = size - range->first < begin[1] - at ? size - range->first : begin[1] - at;
    range->memory = NULL;
    if (arrays->at[kind][0] == NULL) return true;
    TW_ASSERT(arrays->at[kind][range->fragment] != NULL);
    uint8_t *fragment = arrays->at[kind][range->fragment];
    range->memory = fragment + (at - begin[0]) * (arrays->is_bf16[kind] ? 2 : 4);
    return true;
}

enum tw_status tw_checkpoint_create(struct tw_checkpoint **checkpoint,
                                    const struct tw_file_ops *ops, const char *dir_path,
                                    const struct tw_layout *layout, const struct tw_id *run,
                                    struct tw_error *err) {
    enum { HEADER_ROOM = 1 << 20, TENSOR_TEXT_BYTES = 512, SPARE_TENSORS = 256 };
    const int dir = ops->dir_open(ops->ctx, dir_path);
    if (dir < 0) {
        return tw_fail(err, TW_IO, "cannot open the checkpoint folder %s: %s", dir_path,
                       strerror(-dir));
    }
    struct tw_checkpoint *new = calloc(1, sizeof(*new));
    if (new == NULL) {
        (void)ops->close(ops->ctx, dir);
        return tw_fail(err, TW_NOMEM, "no memory for checkpoints");
    }
    const uint64_t data_bytes = layout->params * 4 * TW_CHECKPOINT_KINDS;
    new->ops = ops;
    new->layout = layout;
    new->run = *run;
    new->dir = dir;
    new->hashes_capacity = (data_bytes / BLOCK_BYTES + 1) * DIGEST_DIGITS;
    new->header_capacity = HEADER_ROOM + new->hashes_capacity +
                           (size_t)layout->tensors_count *TW_CHECKPOINT_KINDS *TENSOR_TEXT_BYTES;
    new->header = malloc(new->header_capacity);
    new->hashes = malloc(new->hashes_capacity);
    new->block = malloc(BLOCK_BYTES);
    /* Room to parse the header of a somewhat larger model. A model beyond that is only reported as
     * larger. */
    const uint32_t tensors_count = layout->tensors_count * TW_CHECKPOINT_KINDS;
    const uint32_t cuts = layout->fragments_count * TW_CHECKPOINT_KINDS;
    new->pieces = calloc(tensors_count + cuts, sizeof(*new->pieces));
    new->st.tensors_capacity = 2 * tensors_count + SPARE_TENSORS;
    new->st.tensors = calloc(new->st.tensors_capacity, sizeof(*new->st.tensors));
    if (new->header == NULL || new->hashes == NULL || new->block == NULL || new->pieces == NULL ||
        new->st.tensors == NULL) {
        tw_checkpoint_destroy(new);
        return tw_fail(err, TW_NOMEM, "no memory for checkpoints");
    }
    *checkpoint = new;
    return TW_OK;
}

void tw_checkpoint_destroy(struct tw_checkpoint *checkpoint) {
    if (checkpoint == NULL) return;
    free(checkpoint->st.tensors);
    free(checkpoint->pieces);
    free(checkpoint->block);
    free(checkpoint->hashes);
    free(checkpoint->header);
    (void)checkpoint->ops->close(checkpoint->ops->ctx, checkpoint->dir);
    free(checkpoint);
}

uint64_t tw_checkpoint_generation(const struct tw_checkpoint *checkpoint) {
    return checkpoint->generation;
}

uint32_t tw_checkpoint_newest_file(const struct tw_checkpoint *checkpoint) {
    return checkpoint->newest_slot;
}

/* ==== saving ================================================================================== */

/* Writes one generation from memory to a durable file.
 *
 * The data pass through a buffer of one block, which is hashed and then written. The digests thus
 * match the file even if the memory changes meanwhile. The header is written last, when the digests
 * are known, into the space left for it. The file has no name until then. */

static enum tw_status flush_stream(struct stream *stream) {
    char hex[TW_ID_HEX_BYTES];
    if (stream->filled == 0) return TW_OK;
    if (stream->hashes != NULL) {
        const struct tw_id hash = tw_sha256(stream->block, stream->filled);
        tw_id_hex(&hash, hex);
        memcpy(stream->hashes, hex, DIGEST_DIGITS);
        stream->hashes += DIGEST_DIGITS;
    }
    TW_TRY(tw_durable_write(stream->durable, stream->block, stream->filled, stream->offset,
                            stream->err));
    stream->offset += stream->filled;
    stream->filled = 0;
    return TW_OK;
}

static enum tw_status put_stream(struct stream *stream, const uint8_t *bytes, uint64_t size) {
    while (size > 0) {
        uint64_t piece = BLOCK_BYTES - stream->filled;
        if (piece > size) piece = size;
        memcpy(stream->block + stream->filled, bytes, piece);
        stream->filled += piece;
        bytes += piece;
        size -= piece;
        if (stream->filled == BLOCK_BYTES) TW_TRY(flush_stream(stream));
    }
    return TW_OK;
}

/* Adds the tensors of one kind to st, named `KIND.NAME`. */
static void describe_kind(struct tw_safetensors *st, const struct tw_layout *layout,
                          enum tw_checkpoint_kind kind, bool is_bf16) {
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *from = &layout->tensors[i];
        TW_ASSERT(st->tensors_count < st->tensors_capacity);
        struct tw_safetensors_tensor *to = &st->tensors[st->tensors_count++];
        memset(to, 0, sizeof(*to));
        print_tensor_name(kind, from, to->name);
        to->dtype = is_bf16 ? TW_DTYPE_BF16 : TW_DTYPE_F32;
        to->rank = from->shape.rank;
        for (uint32_t s = 0; s < to->rank; s++) to->shape[s] = from->shape.sides[s];
    }
}

/* Lists the float32 kinds first, so that all tensors are aligned. Returns the number of kinds. */
static uint32_t kinds_in_order(const struct tw_checkpoint_arrays *arrays,
                               enum tw_checkpoint_kind order[TW_CHECKPOINT_KINDS]) {
    uint32_t count = 0;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
            if (arrays->at[k][0] == NULL || arrays->is_bf16[k] != (bf16 == 1)) continue;
            order[count++] = (enum tw_checkpoint_kind)k;
        }
    }
    return count;
}

static enum tw_status stream_kind(struct stream *stream, const struct tw_layout *layout,
                                  const struct tw_checkpoint_arrays *arrays,
                                  enum tw_checkpoint_kind kind) {
    const uint64_t element = arrays->is_bf16[kind] ? 2 : 4;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        struct range range = {0};
        while (next_range(arrays, kind, layout, &layout->tensors[i], &range))
            TW_TRY(put_stream(stream, range.memory, range.count * element));
    }
    return TW_OK;
}

/* Writes the data, then the header into the `header_size` bytes left in front of the data. */
static enum tw_status write_file(struct tw_checkpoint *checkpoint,
                                 const struct tw_checkpoint_arrays *arrays,
                                 struct tw_durable *durable, size_t header_size,
                                 struct tw_error *err) {
    enum tw_checkpoint_kind order[TW_CHECKPOINT_KINDS];
    size_t size;
    struct stream stream = {.durable = durable,
                            .block = checkpoint->block,
                            .offset = header_size,
                            .hashes = checkpoint->hashes,
                            .err = err};
    const uint32_t kinds = kinds_in_order(arrays, order);
    for (uint32_t i = 0; i < kinds; i++) {
        TW_TRY(stream_kind(&stream, checkpoint->layout, arrays, order[i]));
    }
    TW_TRY(flush_stream(&stream));

    struct tw_safetensors *st = &checkpoint->st;
    uint8_t *header = checkpoint->header;
    TW_TRY(tw_safetensors_encode(st, header, checkpoint->header_capacity, &size, err));
    TW_ASSERT(size == header_size);
    const struct tw_id digest = tw_sha256(header, size);
    tw_id_hex(&digest, checkpoint->meta.digest);
    TW_TRY(tw_safetensors_encode(st, header, checkpoint->header_capacity, &size, err));
    TW_ASSERT(size == header_size);
    return tw_durable_write(durable, header, size, 0, err);
}

/* Fills checkpoint->st with names, shapes and offsets. The digests are still zeros. */
static uint64_t describe_all(struct tw_checkpoint *checkpoint,
                             const struct tw_checkpoint_state *state, uint64_t generation,
                             const struct tw_checkpoint_arrays *arrays) {
    enum tw_checkpoint_kind order[TW_CHECKPOINT_KINDS];
    uint64_t data_bytes = 0;
    struct tw_safetensors *st = &checkpoint->st;
    st->tensors_count = 0;
    const uint32_t kinds = kinds_in_order(arrays, order);
    for (uint32_t i = 0; i < kinds; i++) {
        const bool is_bf16 = arrays->is_bf16[order[i]];
        describe_kind(st, checkpoint->layout, order[i], is_bf16);
        data_bytes += checkpoint->layout->params * (is_bf16 ? 2 : 4);
    }
    const size_t hashes_size =
        (size_t)((data_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES) * DIGEST_DIGITS;
    TW_ASSERT(hashes_size <= checkpoint->hashes_capacity);
    memset(checkpoint->hashes, '0', hashes_size);
    tw_checkpoint_meta_encode(&checkpoint->meta, generation, &checkpoint->run, state,
                              checkpoint->layout->fragments_count);
    tw_checkpoint_meta_list(st, &checkpoint->meta, checkpoint->hashes, hashes_size);
    return data_bytes;
}

void tw_checkpoint_keep_replaced(struct tw_checkpoint *checkpoint, bool is_kept) {
    checkpoint->is_replaced_kept = is_kept;
}

void tw_checkpoint_keep_older(struct tw_checkpoint *checkpoint, bool is_kept) {
    checkpoint->is_older_kept = is_kept;
}

/* Renames the older checkpoint file to the pinned one before the save replaces it. A damaged one
 * is no use, and must not take the place of a good one: a file that this process has neither loaded
 * nor written is checked first. The save's sync
 * makes the rename durable as well. The other file has a newer generation, so a crash in between
 * loses nothing. */
static void keep_replaced(struct tw_checkpoint *checkpoint, uint32_t slot) {
    const struct tw_file_ops *ops = checkpoint->ops;
    if (!checkpoint->is_replaced_kept || checkpoint->generation == 0) return;
    if (!checkpoint->is_proven[slot] && tw_checkpoint_verify(checkpoint, slot, NULL) != TW_OK)
        return;
    (void)ops->rename(ops->ctx, checkpoint->dir, slot_names[slot],
                      slot_names[TW_CHECKPOINT_PINNED]);
}

enum tw_status tw_checkpoint_save(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_state *state,
                                  const struct tw_checkpoint_arrays *arrays, struct tw_error *err) {
    struct tw_durable durable;
    size_t header_size;
    TW_ASSERT(checkpoint->is_loaded_from);
    TW_ASSERT(arrays->at[TW_CHECKPOINT_ANCHOR][0] != NULL);
    if (checkpoint->is_foreign) {
        return tw_fail(err, TW_DENIED,
                       "the checkpoint folder belongs to another run: nothing is written to it");
    }
    memset(checkpoint->is_verified, 0, sizeof(checkpoint->is_verified)); /* a file is replaced */
    const uint64_t newest = checkpoint->generation_seen > checkpoint->generation
                                ? checkpoint->generation_seen
                                : checkpoint->generation;
    const uint64_t generation = newest + 1;
    uint32_t slot = checkpoint->generation > 0 ? 1 - checkpoint->newest_slot : 0;
    if (checkpoint->generation > 0 && checkpoint->is_older_kept) slot = checkpoint->newest_slot;
    const uint64_t data_bytes = describe_all(checkpoint, state, generation, arrays);
    TW_TRY(tw_safetensors_encode(&checkpoint->st, checkpoint->header, checkpoint->header_capacity,
                                 &header_size, err));
    TW_TRY(tw_durable_begin(&durable, checkpoint->ops, checkpoint->dir, slot_names[slot],
                            header_size + data_bytes, err));
    const enum tw_status status = write_file(checkpoint, arrays, &durable, header_size, err);
    if (status != TW_OK) {
        tw_durable_abort(&durable);
        return status;
    }
    if (!checkpoint->is_older_kept) keep_replaced(checkpoint, slot);
    TW_TRY(tw_durable_commit(&durable, err));
    checkpoint->generation = generation;
    checkpoint->newest_slot = slot;
    checkpoint->is_proven[slot] = true;
    return TW_OK;
}

/* ==== one file ================================================================================ */

/* Loads one checkpoint file, such as ckpt.a. Its bytes are not trusted: the header is checked
 * first, then each block before any of it is copied. */

/* ---- header --------------------------------------------------------------------------------- */

enum { SHAPE_BYTES = 24 * TW_SAFETENSORS_RANK_MAX };

/* "(2, 3)" */
static void shape_text(const uint64_t *sides, uint32_t rank, char text[SHAPE_BYTES]) {
    int used = snprintf(text, SHAPE_BYTES, "(");
    for (uint32_t i = 0; i < rank; i++)
        used += snprintf(text + used, (size_t)(SHAPE_BYTES - used), "%s%llu", i > 0 ? ", " : "",
                         (unsigned long long)sides[i]);
    (void)snprintf(text + used, (size_t)(SHAPE_BYTES - used), ")");
}

static enum tw_status wrong_shape(const struct tw_safetensors_tensor *there,
                                  const struct tw_tensor *here, struct tw_error *err) {
    char shape[SHAPE_BYTES], wanted[SHAPE_BYTES];
    uint64_t sides[TW_TENSOR_RANK_MAX];
    for (uint32_t i = 0; i < here->shape.rank; i++) sides[i] = here->shape.sides[i];
    shape_text(there->shape, there->rank, shape);
    shape_text(sides, here->shape.rank, wanted);
    return tw_fail(err, TW_CONFIG, "tensor %s is %s there and %s in this run's model", there->name,
                   shape, wanted);
}

static enum tw_status check_tensor(const struct tw_safetensors_tensor *there,
                                   const struct tw_tensor *here, struct tw_error *err) {
    bool is_same = there->rank == here->shape.rank;
    for (uint32_t i = 0; is_same && i < here->shape.rank; i++)
        is_same = there->shape[i] == here->shape.sides[i];
    if (!is_same) return wrong_shape(there, here, err);
    if (there->dtype != TW_DTYPE_F32 && there->dtype != TW_DTYPE_BF16) {
        return tw_fail(err, TW_CONFIG, "tensor %s is %s there; F32 or BF16 can be loaded",
                       there->name, tw_dtype_name(there->dtype));
    }
    if (there->begin % tw_dtype_bytes(there->dtype) == 0) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "tensor %s is not aligned to its elements", there->name);
}

/* Each kind must be complete or absent, in this run's shapes. The file must hold nothing else. */
static enum tw_status check_shapes(const struct tw_checkpoint *checkpoint, bool *has_kind,
                                   struct tw_error *err) {
    const struct tw_layout *layout = checkpoint->layout;
    char name[TW_SAFETENSORS_NAME_BYTES];
    uint32_t known = 0;
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            print_tensor_name((enum tw_checkpoint_kind)k, &layout->tensors[i], name);
            const struct tw_safetensors_tensor *there = tw_safetensors_find(&checkpoint->st, name);
            if (there == NULL) continue;
            TW_TRY(check_tensor(there, &layout->tensors[i], err));
            count++;
        }
        has_kind[k] = count > 0;
        known += count;
        if (count == 0 && k != TW_CHECKPOINT_ANCHOR) continue;
        if (count == layout->tensors_count) continue;
        return tw_fail(err, TW_CONFIG, "it holds %u of the %u tensors of this run's model", count,
                       layout->tensors_count);
    }
    if (known == checkpoint->st.tensors_count) return TW_OK;
    return tw_fail(err, TW_CONFIG, "it holds %u tensors that this run's model lacks",
                   checkpoint->st.tensors_count - known);
}

static enum tw_status check_run(const struct tw_checkpoint *checkpoint, const struct tw_id *run,
                                struct tw_error *err) {
    char there[TW_ID_HEX_BYTES], here[TW_ID_HEX_BYTES];
    if (tw_id_equal(run, &checkpoint->run)) return TW_OK;
    tw_id_hex(run, there);
    tw_id_hex(&checkpoint->run, here);
    return tw_fail(err, TW_DENIED,
                   "it is of run %.16s.., this is run %.16s..; move it away or use "
                   "another state folder",
                   there, here);
}

static enum tw_status read_header(struct tw_checkpoint *checkpoint, struct slot *slot,
                                  struct tw_error *err) {
    const char *name = slot->name;
    const struct tw_file_ops *ops = checkpoint->ops;
    uint8_t *header = checkpoint->header;
    struct tw_id run;
    uint64_t json_bytes;
    const int64_t size = ops->size(ops->ctx, slot->file);
    if (size < 0) return tw_fail(err, TW_IO, "%s", strerror((int)-size));
    if (size < TW_SAFETENSORS_PREFIX_BYTES) {
        return tw_fail(err, TW_CORRUPT, "its %lld bytes are no checkpoint", (long long)size);
    }
    TW_TRY(tw_durable_read(ops, slot->file, name, header, TW_SAFETENSORS_PREFIX_BYTES, 0, err));
    uint64_t most = checkpoint->header_capacity - TW_SAFETENSORS_PREFIX_BYTES;
    if (most > TW_SAFETENSORS_JSON_MAX) most = TW_SAFETENSORS_JSON_MAX;
    TW_TRY(tw_safetensors_prefix(header, (uint64_t)size, most, &json_bytes, err));
    TW_TRY(tw_durable_read(ops, slot->file, name, header + TW_SAFETENSORS_PREFIX_BYTES,
                           (size_t)json_bytes, TW_SAFETENSORS_PREFIX_BYTES, err));
    slot->data_begin = TW_SAFETENSORS_PREFIX_BYTES + json_bytes;
    slot->data_bytes = (uint64_t)size - slot->data_begin;
    TW_TRY(tw_safetensors_parse(&checkpoint->st, (const char *)header + TW_SAFETENSORS_PREFIX_BYTES,
                                (size_t)json_bytes, slot->data_bytes, err));
    TW_TRY(tw_checkpoint_meta_verify(&checkpoint->st, header, (size_t)slot->data_begin, err));
    TW_TRY(tw_checkpoint_meta_generation(&checkpoint->st, &slot->generation, &run, err));
    TW_TRY(check_run(checkpoint, &run, err));
    if (slot->generation > checkpoint->generation_seen) {
        checkpoint->generation_seen = slot->generation;
    }
    return check_shapes(checkpoint, slot->has_kind, err);
}

/* Puts the file name in front of the error sentence. */
static void prefix_name(struct slot *slot) {
    const struct tw_error said = slot->err;
    (void)tw_fail(&slot->err, slot->status, "%s: %.220s", slot->name, said.message);
}

/* Reads a file's header into checkpoint->st. If slot->status is TW_OK, the caller must close
 * slot->file. */
static void open_slot(struct tw_checkpoint *checkpoint, uint32_t index, struct slot *slot) {
    const struct tw_file_ops *ops = checkpoint->ops;
    const char *name = slot_names[index];
    memset(slot, 0, sizeof(*slot));
    slot->name = name;
    slot->file = ops->open(ops->ctx, checkpoint->dir, name);
    slot->exists = slot->file != -ENOENT;
    slot->status = TW_IO;
    if (slot->file < 0) {
        if (slot->exists) {
            (void)tw_fail(&slot->err, TW_IO, "%s: cannot be opened: %s", name,
                          strerror(-slot->file));
        }
        return;
    }
    slot->status = read_header(checkpoint, slot, &slot->err);
    if (slot->status == TW_LIMIT)
        slot->status = TW_CONFIG; /* TW_LIMIT: the file is of a much
                                     larger model */
    if (slot->status == TW_OK) return;
    (void)ops->close(ops->ctx, slot->file);
    prefix_name(slot);
}

/* ---- data ----------------------------------------------------------------------------------- */

static int compare_pieces(const void *a, const void *b) {
    const struct piece *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Lists the ranges of all tensors in the file, with their addresses in memory, in file order. */
static uint32_t list_pieces(struct tw_checkpoint *checkpoint,
                            const struct tw_checkpoint_arrays *arrays) {
    const struct tw_layout *layout = checkpoint->layout;
    char name[TW_SAFETENSORS_NAME_BYTES];
    uint32_t count = 0;
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
        const enum tw_checkpoint_kind kind = (enum tw_checkpoint_kind)k;
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            print_tensor_name(kind, &layout->tensors[i], name);
            const struct tw_safetensors_tensor *there = tw_safetensors_find(&checkpoint->st, name);
            if (there == NULL) continue;
            const uint64_t element = tw_dtype_bytes(there->dtype);
            struct range range = {0};
            while (next_range(arrays, kind, layout, &layout->tensors[i], &range)) {
                const uint64_t begin = there->begin + range.first * element;
                checkpoint->pieces[count++] = (struct piece){
                    .begin = begin,
                    .end = begin + range.count * element,
                    .memory = range.memory,
                    .file_is_bf16 = there->dtype == TW_DTYPE_BF16,
                    .memory_is_bf16 = arrays->is_bf16[k],
                };
            }
        }
    }
    qsort(checkpoint->pieces, count, sizeof(*checkpoint->pieces), compare_pieces);
    return count;
}

/* bf16 is the upper half of a float32. */
static void widen_bf16(uint8_t *to, const uint8_t *from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        to[4 * i] = to[4 * i + 1] = 0;
        to[4 * i + 2] = from[2 * i];
        to[4 * i + 3] = from[2 * i + 1];
    }
}

/* Rounds to nearest, ties to even. NaN stays NaN. */
static void narrow_to_bf16(uint8_t *to, const uint8_t *from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[4 * i] | (uint32_t)from[4 * i + 1] << 8 |
                        (uint32_t)from[4 * i + 2] << 16 | (uint32_t)from[4 * i + 3] << 24;
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            bits |= 0x00400000u;
        } else {
            bits += 0x7fffu + (bits >> 16 & 1);
        }
        to[2 * i] = (uint8_t)(bits >> 16);
        to[2 * i + 1] = (uint8_t)(bits >> 24);
    }
}

/* Copies the bytes of a piece that lie in the verified block [at, at + size). */
static void copy_part(const struct piece *piece, const uint8_t *block, uint64_t at, uint64_t size) {
    const uint64_t begin = piece->begin > at ? piece->begin : at;
    const uint64_t end = piece->end < at + size ? piece->end : at + size;
    if (piece->memory == NULL || begin >= end) return;
    const uint8_t *from = block + (begin - at);
    const uint64_t file_element = piece->file_is_bf16 ? 2 : 4;
    const uint64_t first = (begin - piece->begin) / file_element;
    const uint64_t count = (end - begin) / file_element;
    if (piece->file_is_bf16 == piece->memory_is_bf16) {
        memcpy(piece->memory + first * file_element, from, end - begin);
    } else if (piece->file_is_bf16) {
        widen_bf16(piece->memory + first * 4, from, count);
    } else {
        narrow_to_bf16(piece->memory + first * 2, from, count);
    }
}

static enum tw_status load_blocks(struct tw_checkpoint *checkpoint, const struct slot *slot,
                                  uint32_t pieces_count, struct tw_error *err) {
    const struct tw_safetensors_text *hashes = tw_safetensors_metadata(&checkpoint->st, "sha256");
    const uint64_t blocks = (slot->data_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    uint32_t first = 0;
    if (hashes == NULL || hashes->size != blocks * DIGEST_DIGITS) {
        return tw_fail(err, TW_CORRUPT, "its list of SHA-256 does not fit its data");
    }
    for (uint64_t i = 0; i < blocks; i++) {
        char hex[TW_ID_HEX_BYTES];
        const uint64_t at = i * BLOCK_BYTES, left = slot->data_bytes - at;
        const size_t size = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        if (checkpoint->progress != NULL && i % 64 == 0)
            checkpoint->progress(checkpoint->progress_user, at, slot->data_bytes);
        TW_TRY(tw_durable_read(checkpoint->ops, slot->file, slot->name, checkpoint->block, size,
                               slot->data_begin + at, err));
        const struct tw_id hash = tw_sha256(checkpoint->block, size);
        tw_id_hex(&hash, hex);
        if (memcmp(hex, hashes->bytes + i * DIGEST_DIGITS, DIGEST_DIGITS) != 0) {
            return tw_fail(err, TW_CORRUPT, "MiB %llu of its data does not match its SHA-256",
                           (unsigned long long)i);
        }
        while (first < pieces_count && checkpoint->pieces[first].end <= at) first++;
        for (uint32_t k = first; k < pieces_count && checkpoint->pieces[k].begin < at + size; k++) {
            copy_part(&checkpoint->pieces[k], checkpoint->block, at, size);
        }
    }
    return TW_OK;
}

/* Checks every block of the open file, and copies the kinds of tensors that have an address in
 * `arrays`. */
static enum tw_status load_slot(struct tw_checkpoint *checkpoint, const struct slot *slot,
                                const struct tw_checkpoint_arrays *arrays,
                                struct tw_checkpoint_state *state, struct tw_error *err) {
    struct tw_error inner;
    enum tw_status status = tw_checkpoint_meta_state(
        &checkpoint->st, checkpoint->layout->fragments_count, state, &inner);
    if (status == TW_OK) {
        status = load_blocks(checkpoint, slot, list_pieces(checkpoint, arrays), &inner);
    }
    if (status == TW_OK) return TW_OK;
    return tw_fail(err, status, "%s (generation %llu): %.180s", slot->name,
                   (unsigned long long)slot->generation, inner.message);
}

/* ==== loading the newest ====================================================================== */

/* Loads the newest intact one of the files ckpt.a and ckpt.b. */

enum { ATTEMPTS = 2 };

static void note_refusal(struct tw_checkpoint_found *found, uint32_t index,
                         const struct tw_error *err) {
    _Static_assert(sizeof(found->refused[0]) >= sizeof(err->message), "a whole sentence");
    (void)snprintf(found->refused[index], sizeof(found->refused[index]), "%s", err->message);
}

/* Reads the header of a file and notes its faults. An unreadable file is tried twice, so that a
 * transient error does not make the load fall back to the older generation. */
static void header_look(struct tw_checkpoint *checkpoint, uint32_t index, struct slot *slot,
                        struct tw_checkpoint_found *found) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        open_slot(checkpoint, index, slot);
        if (!slot->exists || slot->status != TW_IO) break;
    }
    if (slot->exists && slot->status != TW_OK) note_refusal(found, index, &slot->err);
}

static void close_slot(struct tw_checkpoint *checkpoint, const struct slot *slot) {
    if (slot->status == TW_OK) (void)checkpoint->ops->close(checkpoint->ops->ctx, slot->file);
}

/* Reads one checkpoint file completely and fills *slot with the result. */
static void read_slot(struct tw_checkpoint *checkpoint, uint32_t index, struct slot *slot,
                      const struct tw_checkpoint_arrays *arrays, struct tw_checkpoint_state *state,
                      struct tw_checkpoint_found *found) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        header_look(checkpoint, index, slot,
                    found); /* reads the header again, because both files share one header buffer */
        if (!slot->exists || slot->status != TW_OK) return;
        slot->status = load_slot(checkpoint, slot, arrays, state, &slot->err);
        (void)checkpoint->ops->close(checkpoint->ops->ctx, slot->file);
        if (slot->status == TW_OK) return;
        note_refusal(found, index, &slot->err);
        if (slot->status != TW_IO) return;
    }
}

static bool try_slot(struct tw_checkpoint *checkpoint, uint32_t index, struct slot *slot,
                     const struct tw_checkpoint_arrays *arrays, struct tw_checkpoint_state *state,
                     struct tw_checkpoint_found *found) {
    read_slot(checkpoint, index, slot, arrays, state, found);
    if (!slot->exists || slot->status != TW_OK) return false;
    found->refused[index][0] = '\0';
    found->is_loaded = true;
    found->slot = index;
    found->generation = slot->generation;
    memcpy(found->has_kind, slot->has_kind, sizeof(found->has_kind));
    checkpoint->generation = slot->generation;
    checkpoint->newest_slot = index;
    checkpoint->is_proven[index] = true;
    return true;
}

/* Notes the generations in the pinned and the undone file: after a rollback they may be the
 * highest, and numbers are never reused. */
static void see_others(struct tw_checkpoint *checkpoint) {
    struct slot slot;
    for (uint32_t i = TW_CHECKPOINT_SLOTS; i < TW_CHECKPOINT_FILES; i++) {
        open_slot(checkpoint, i, &slot);
        close_slot(checkpoint, &slot);
    }
}

static enum tw_status unusable_report(const struct slot *slots,
                                      const struct tw_checkpoint_found *found,
                                      struct tw_error *err) {
    enum tw_status status = TW_CORRUPT;
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        if (slots[i].exists && slots[i].status == TW_IO) status = TW_IO;
    }
    const char *first = found->refused[0][0] != '\0' ? found->refused[0] : found->refused[1];
    return tw_fail(err, status, "no checkpoint can be used: %.180s", first);
}

enum tw_status tw_checkpoint_load(struct tw_checkpoint *checkpoint,
                                  const struct tw_checkpoint_arrays *arrays,
                                  struct tw_checkpoint_state *state,
                                  struct tw_checkpoint_found *found, struct tw_error *err) {
    struct slot slots[TW_CHECKPOINT_SLOTS];
    memset(found, 0, sizeof(*found));
    memset(state, 0, sizeof(*state));
    checkpoint->is_loaded_from = true;
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        header_look(checkpoint, i, &slots[i], found);
        close_slot(checkpoint, &slots[i]);
    }
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        const enum tw_status status = slots[i].status;
        if (!slots[i].exists || (status != TW_DENIED && status != TW_CONFIG)) continue;
        checkpoint->is_foreign = true;
        return tw_fail(err, status, "%s", slots[i].err.message);
    }
    see_others(checkpoint);
    if (!slots[0].exists && !slots[1].exists) return TW_OK;
    const bool is_b_newer = slots[1].exists && slots[1].status == TW_OK &&
                            !(slots[0].exists && slots[0].status == TW_OK &&
                              slots[0].generation >= slots[1].generation);
    const uint32_t first = is_b_newer ? 1 : 0;
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        if (!slots[i].exists || slots[i].generation > 0) continue;
        /* The generation of an unreadable file is unknown, but at most one above the other file's.
         * That number must never be reused. */
        checkpoint->generation_seen++;
    }
    if (try_slot(checkpoint, first, &slots[first], arrays, state, found)) return TW_OK;
    if (try_slot(checkpoint, 1 - first, &slots[1 - first], arrays, state, found)) return TW_OK;
    return unusable_report(slots, found, err);
}

/* ==== looking, checking, going back =========================================================== */

/* Lists the checkpoint files, and rolls back to one of them. */

const char *tw_checkpoint_file_name(uint32_t file) {
    TW_ASSERT(file < TW_CHECKPOINT_FILES);
    return slot_names[file];
}

void tw_checkpoint_look(struct tw_checkpoint *checkpoint, uint32_t file,
                        struct tw_checkpoint_about *about) {
    static struct tw_checkpoint_state state; /* static because it is large; only one caller at a
                                                time */
    struct slot slot;
    memset(about, 0, sizeof(*about));
    open_slot(checkpoint, file, &slot);
    about->exists = slot.exists;
    if (!slot.exists) return;
    if (slot.status == TW_OK) {
        (void)checkpoint->ops->close(checkpoint->ops->ctx, slot.file);
        slot.status = tw_checkpoint_meta_state(&checkpoint->st, checkpoint->layout->fragments_count,
                                               &state, &slot.err);
    }
    if (slot.status != TW_OK) {
        (void)snprintf(about->refused, sizeof(about->refused), "%s", slot.err.message);
        return;
    }
    about->generation = slot.generation;
    about->step = state.step;
    about->tokens = state.tokens;
    about->has_position = state.has_position;
    about->rounds = state.position.rounds;
    about->lineage = state.position.lineage;
}

enum tw_status tw_checkpoint_verify(struct tw_checkpoint *checkpoint, uint32_t file,
                                    struct tw_error *err) {
    static struct tw_checkpoint_arrays nowhere;
    static struct tw_checkpoint_state state;
    struct slot slot;
    open_slot(checkpoint, file, &slot);
    if (!slot.exists) {
        return tw_fail(err, TW_IO, "%s is not there", slot_names[file]);
    }
    if (slot.status != TW_OK) return tw_fail(err, slot.status, "%s", slot.err.message);
    const enum tw_status status = load_slot(checkpoint, &slot, &nowhere, &state, err);
    (void)checkpoint->ops->close(checkpoint->ops->ctx, slot.file);
    checkpoint->is_verified[file] = status == TW_OK;
    return status;
}

void tw_checkpoint_watch(struct tw_checkpoint *checkpoint,
                         void (*progress)(void *user, uint64_t read_bytes, uint64_t all_bytes),
                         void *user) {
    checkpoint->progress = progress;
    checkpoint->progress_user = user;
}

/* Finds the file that a load would choose: the newest intact one. *newest is its index, or
 * TW_CHECKPOINT_SLOTS if there is none. Returns TW_IO if a file cannot be read now: it may be that
 * one. */
static enum tw_status find_newest(struct tw_checkpoint *checkpoint, uint32_t *newest,
                                  uint64_t *generation, struct tw_error *err) {
    *newest = TW_CHECKPOINT_SLOTS;
    *generation = 0;
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        struct slot slot;
        open_slot(checkpoint, i, &slot);
        if (!slot.exists) continue;
        if (slot.status == TW_IO) return tw_fail(err, TW_IO, "%s", slot.err.message);
        if (slot.status != TW_OK) continue;
        (void)checkpoint->ops->close(checkpoint->ops->ctx, slot.file);
        if (slot.generation > *generation) {
            *newest = i;
            *generation = slot.generation;
        }
    }
    return TW_OK;
}

static enum tw_status move_fail(struct tw_error *err, const char *from, const char *to,
                                int result) {
    return tw_fail(err, TW_IO, "cannot rename %s to %s: %s", from, to, strerror(-result));
}

/* Renames a file. TW_OK means that the new name is durable. */
static enum tw_status move(const struct tw_checkpoint *checkpoint, const char *from, const char *to,
                           struct tw_error *err) {
    const struct tw_file_ops *ops = checkpoint->ops;
    int result = ops->rename(ops->ctx, checkpoint->dir, from, to);
    if (result >= 0) result = ops->dir_sync(ops->ctx, checkpoint->dir);
    return result >= 0 ? TW_OK : move_fail(err, from, to, result);
}

/* Durably makes `to` a hard link to the file `from`. On file systems without hard links (FAT),
 * renames the file. */
static enum tw_status name_too(const struct tw_checkpoint *checkpoint, const char *from,
                               const char *to, struct tw_error *err) {
    static const char TEMPORARY[] = "ckpt.back.tmp";
    const struct tw_file_ops *ops = checkpoint->ops;
    const int file = ops->open(ops->ctx, checkpoint->dir, from);
    if (file < 0) return move_fail(err, from, to, file);
    (void)ops->unlink(ops->ctx, checkpoint->dir, TEMPORARY); /* left over from an earlier crash */
    const bool is_named = ops->link(ops->ctx, file, checkpoint->dir, TEMPORARY) >= 0;
    (void)ops->close(ops->ctx, file);
    TW_TRY(move(checkpoint, is_named ? TEMPORARY : from, to, err));
    /* If both names are links to the same file already, rename does nothing and leaves both. */
    (void)ops->unlink(ops->ctx, checkpoint->dir, TEMPORARY);
    return TW_OK;
}

enum tw_status tw_checkpoint_go_back(struct tw_checkpoint *checkpoint, uint32_t file,
                                     struct tw_error *err) {
    struct tw_checkpoint_about about;
    uint32_t newest;
    uint64_t generation;
    TW_ASSERT(file < TW_CHECKPOINT_FILES);
    /* A caller that had to know before has read the whole file already. From here on the files
     * change their names. */
    const bool is_verified = checkpoint->is_verified[file];
    memset(checkpoint->is_verified, 0, sizeof(checkpoint->is_verified));
    if (!is_verified) TW_TRY(tw_checkpoint_verify(checkpoint, file, err));
    checkpoint->is_verified[file] = false;
    tw_checkpoint_look(checkpoint, file, &about);
    TW_TRY(find_newest(checkpoint, &newest, &generation, err));
    if (newest < TW_CHECKPOINT_SLOTS && about.generation == generation) return TW_OK;
    /* First the chosen generation replaces the older file, which a load would not choose. Once that
     * is durable, the newest generation is moved away. */
    const uint32_t older = newest == 0 ? 1 : 0;
    const char *const *names = slot_names;
    if (file != older) TW_TRY(name_too(checkpoint, names[file], names[older], err));
    if (newest == TW_CHECKPOINT_SLOTS) return TW_OK;
    return move(checkpoint, names[newest], names[TW_CHECKPOINT_UNDONE], err);
}

enum tw_status tw_checkpoint_set_aside(struct tw_checkpoint *checkpoint, uint32_t file,
                                       struct tw_error *err) {
    TW_ASSERT(file < TW_CHECKPOINT_SLOTS);
    return name_too(checkpoint, slot_names[file], slot_names[TW_CHECKPOINT_UNDONE], err);
}
