/* checkpoint_save.c - writes one generation from memory to a durable file.
 *
 * The data pass through a buffer of one block, which is hashed and then written. The digests thus
 * match the file even if the memory changes meanwhile. The header is written last, when the digests
 * are known, into the space left for it. The file has no name until then. */
#include "daemon/store/checkpoint_internal.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

enum tw_status tw_checkpoint_stream_flush(struct stream *stream) {
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

enum tw_status tw_checkpoint_stream_put(struct stream *stream, const uint8_t *bytes,
                                        uint64_t size) {
    while (size > 0) {
        uint64_t piece = BLOCK_BYTES - stream->filled;
        if (piece > size) piece = size;
        memcpy(stream->block + stream->filled, bytes, piece);
        stream->filled += piece;
        bytes += piece;
        size -= piece;
        if (stream->filled == BLOCK_BYTES) TW_TRY(tw_checkpoint_stream_flush(stream));
    }
    return TW_OK;
}

void tw_checkpoint_describe(struct tw_safetensors *st, const struct tw_layout *layout,
                            enum tw_checkpoint_kind kind, bool is_bf16) {
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *from = &layout->tensors[i];
        TW_ASSERT(st->tensors_count < st->tensors_capacity);
        struct tw_safetensors_tensor *to = &st->tensors[st->tensors_count++];
        memset(to, 0, sizeof(*to));
        tw_checkpoint_tensor_name(kind, from, to->name);
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
        struct tw_checkpoint_range range = {0};
        while (tw_checkpoint_range_next(arrays, kind, layout, &layout->tensors[i], &range))
            TW_TRY(tw_checkpoint_stream_put(stream, range.memory, range.count * element));
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
    TW_TRY(tw_checkpoint_stream_flush(&stream));

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
        tw_checkpoint_describe(st, checkpoint->layout, order[i], is_bf16);
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
    (void)ops->rename(ops->ctx, checkpoint->dir, tw_checkpoint_slot_names[slot],
                      tw_checkpoint_slot_names[TW_CHECKPOINT_PINNED]);
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
    TW_TRY(tw_durable_begin(&durable, checkpoint->ops, checkpoint->dir,
                            tw_checkpoint_slot_names[slot], header_size + data_bytes, err));
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
