/* checkpoint_back.c - lists the checkpoint files, and rolls back to one of them. */
#include "daemon/store/checkpoint_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

const char *tw_checkpoint_file_name(uint32_t file) {
    TW_ASSERT(file < TW_CHECKPOINT_FILES);
    return tw_checkpoint_slot_names[file];
}

void tw_checkpoint_look(struct tw_checkpoint *checkpoint, uint32_t file,
                        struct tw_checkpoint_about *about) {
    static struct tw_checkpoint_state state; /* static because it is large; only one caller at a
                                                time */
    struct slot slot;
    memset(about, 0, sizeof(*about));
    tw_checkpoint_slot_open(checkpoint, file, &slot);
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
    tw_checkpoint_slot_open(checkpoint, file, &slot);
    if (!slot.exists) {
        return tw_fail(err, TW_IO, "%s is not there", tw_checkpoint_slot_names[file]);
    }
    if (slot.status != TW_OK) return tw_fail(err, slot.status, "%s", slot.err.message);
    const enum tw_status status = tw_checkpoint_slot_load(checkpoint, &slot, &nowhere, &state, err);
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
        tw_checkpoint_slot_open(checkpoint, i, &slot);
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
    const char *const *names = tw_checkpoint_slot_names;
    if (file != older) TW_TRY(name_too(checkpoint, names[file], names[older], err));
    if (newest == TW_CHECKPOINT_SLOTS) return TW_OK;
    return move(checkpoint, names[newest], names[TW_CHECKPOINT_UNDONE], err);
}

enum tw_status tw_checkpoint_set_aside(struct tw_checkpoint *checkpoint, uint32_t file,
                                       struct tw_error *err) {
    TW_ASSERT(file < TW_CHECKPOINT_SLOTS);
    return name_too(checkpoint, tw_checkpoint_slot_names[file],
                    tw_checkpoint_slot_names[TW_CHECKPOINT_UNDONE], err);
}
