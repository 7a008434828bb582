/* checkpoint.c - the folder of checkpoints: which generation is the newest, which may be replaced.
 */
#include "daemon/store/checkpoint_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

const char *const tw_checkpoint_slot_names[TW_CHECKPOINT_FILES] = {
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

void tw_checkpoint_tensor_name(enum tw_checkpoint_kind kind, const struct tw_tensor *tensor,
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

bool tw_checkpoint_range_next(const struct tw_checkpoint_arrays *arrays,
                              enum tw_checkpoint_kind kind, const struct tw_layout *layout,
                              const struct tw_tensor *tensor, struct tw_checkpoint_range *range) {
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

/* ---- load the newest intact one of the files ckpt.a and ckpt.b ------------------------------ */

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
        tw_checkpoint_slot_open(checkpoint, index, slot);
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
        slot->status = tw_checkpoint_slot_load(checkpoint, slot, arrays, state, &slot->err);
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
        tw_checkpoint_slot_open(checkpoint, i, &slot);
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
