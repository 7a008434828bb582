/* checkpoint_load.c - loads one checkpoint file, such as ckpt.a. Its bytes are not trusted: the
 * header is checked first, then each block before any of it is copied. */
#include "daemon/store/checkpoint_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

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
            tw_checkpoint_tensor_name((enum tw_checkpoint_kind)k, &layout->tensors[i], name);
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

void tw_checkpoint_slot_open(struct tw_checkpoint *checkpoint, uint32_t index, struct slot *slot) {
    const struct tw_file_ops *ops = checkpoint->ops;
    const char *name = tw_checkpoint_slot_names[index];
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
            tw_checkpoint_tensor_name(kind, &layout->tensors[i], name);
            const struct tw_safetensors_tensor *there = tw_safetensors_find(&checkpoint->st, name);
            if (there == NULL) continue;
            const uint64_t element = tw_dtype_bytes(there->dtype);
            struct tw_checkpoint_range range = {0};
            while (tw_checkpoint_range_next(arrays, kind, layout, &layout->tensors[i], &range)) {
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

enum tw_status tw_checkpoint_slot_load(struct tw_checkpoint *checkpoint, const struct slot *slot,
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
