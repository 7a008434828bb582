#include "daemon/setup/recall_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/store/checkpoint.h"
#include "daemon/store/durable.h"

/* File with the newest recall that this node has obeyed: "NUMBER there" or "NUMBER waits". */
static const char FILE_NAME[] = "recalled";
enum { TEXT_BYTES = 40 };

struct obeyed {
    unsigned long long version; /* 0: none yet */
    bool waits;                 /* no checkpoint on disk held the recalled state */
};

struct disk {
    const struct tw_file_ops *ops;
    int dir;
    struct tw_checkpoint *files;
    struct tw_checkpoint_about about[TW_CHECKPOINT_FILES];
};

/* ---- the mark ------------------------------------------------------------------------------ */

static enum tw_status read_obeyed(const struct disk *disk, struct obeyed *obeyed,
                                  struct tw_error *err) {
    char text[TEXT_BYTES] = "", word[8] = "", after = 0;
    *obeyed = (struct obeyed){.version = 0};
    const int file = disk->ops->open(disk->ops->ctx, disk->dir, FILE_NAME);
    if (file == -ENOENT) return TW_OK;
    if (file < 0) return tw_fail(err, TW_IO, "cannot open `recalled`: %s", strerror(-file));
    const int64_t size = disk->ops->size(disk->ops->ctx, file);
    enum tw_status status = TW_OK;
    if (size > 0 && size < TEXT_BYTES)
        status = tw_durable_read(disk->ops, file, FILE_NAME, text, (size_t)size, 0, err);
    (void)disk->ops->close(disk->ops->ctx, file);
    if (status != TW_OK) return status;
    const int fields = sscanf(text, "%20llu %7s %c", &obeyed->version, word, &after);
    obeyed->waits = strcmp(word, "waits") == 0;
    if (fields == 2 && (obeyed->waits || strcmp(word, "there") == 0)) return TW_OK;
    return tw_fail(err, TW_CORRUPT,
                   "the file `recalled` is damaged: remove it, and the newest recall is obeyed "
                   "again");
}

static enum tw_status write_obeyed(const struct disk *disk, const struct obeyed *obeyed,
                                   struct tw_error *err) {
    char text[TEXT_BYTES];
    struct tw_durable file;
    const int size = snprintf(text, sizeof(text), "%llu %s\n", obeyed->version,
                              obeyed->waits ? "waits" : "there");
    TW_TRY(tw_durable_begin(&file, disk->ops, disk->dir, FILE_NAME, (uint64_t)size, err));
    const enum tw_status status = tw_durable_write(&file, text, (size_t)size, 0, err);
    if (status == TW_OK) return tw_durable_commit(&file, err);
    tw_durable_abort(&file);
    return status;
}

/* ---- generations --------------------------------------------------------------------------- */

static bool is_readable(const struct tw_checkpoint_about *about) {
    return about->exists && about->refused[0] == '\0' && about->has_position;
}

/* Returns the newest checkpoint that a start may load, or TW_CHECKPOINT_FILES if there is none. */
static uint32_t find_newest(const struct disk *disk) {
    uint32_t newest = TW_CHECKPOINT_FILES;
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        if (!disk->about[i].exists || disk->about[i].refused[0] != '\0') continue;
        if (newest == TW_CHECKPOINT_FILES ||
            disk->about[i].generation > disk->about[newest].generation)
            newest = i;
    }
    return newest;
}

/* Returns the intact checkpoint that holds the recalled state, or TW_CHECKPOINT_FILES if there is
 * none. Reads every byte of each candidate. */
static uint32_t find_state(const struct disk *disk, const struct tw_recall *recall) {
    uint32_t best = TW_CHECKPOINT_FILES;
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        const struct tw_checkpoint_about *const about = &disk->about[i];
        if (!is_readable(about) || about->rounds != recall->rounds ||
            !tw_id_equal(&about->lineage, &recall->lineage))
            continue;
        if (best < TW_CHECKPOINT_FILES && about->step <= disk->about[best].step) continue;
        if (tw_checkpoint_verify(disk->files, i, NULL) == TW_OK) best = i;
    }
    return best;
}

static bool is_refused(const struct tw_setup *setup, const struct tw_id *lineage) {
    for (uint32_t i = 0; i < setup->refused.count; i++)
        if (tw_id_equal(&setup->refused.ids[i], lineage)) return true;
    return false;
}

/* Returns whether this node has saved a state since the recall, in a lineage that is not refused.
 */
static bool has_followed(const struct tw_setup *setup, const struct disk *disk) {
    const uint32_t newest = find_newest(disk);
    return newest < TW_CHECKPOINT_FILES && is_readable(&disk->about[newest]) &&
           !is_refused(setup, &disk->about[newest].lineage);
}

static enum tw_status obey_new(struct tw_setup *setup, const struct disk *disk,
                               struct obeyed *obeyed, struct tw_error *err) {
    const struct tw_recall *const recall = &setup->gate.recall;
    const uint32_t file = find_state(disk, recall);
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++)
        if (is_readable(&disk->about[i])) tw_lineages_add(&setup->refused, &disk->about[i].lineage);
    tw_lineages_add(&setup->refused, &recall->lineage);
    TW_TRY(tw_lineages_write(disk->ops, disk->dir, &setup->refused, err));
    if (file < TW_CHECKPOINT_FILES) TW_TRY(tw_checkpoint_go_back(disk->files, file, err));
    *obeyed = (struct obeyed){.version = recall->version, .waits = file == TW_CHECKPOINT_FILES};
    return write_obeyed(disk, obeyed, err);
}

static enum tw_status obey(struct tw_setup *setup, const struct disk *disk, struct tw_error *err) {
    struct obeyed obeyed;
    TW_TRY(read_obeyed(disk, &obeyed, err));
    if (setup->gate.recall.version > obeyed.version) {
        TW_TRY(obey_new(setup, disk, &obeyed, err));
        if (obeyed.waits) setup->awaited = tw_recall_awaited(&setup->gate.recall);
    } else if (obeyed.waits && !has_followed(setup, disk)) {
        setup->awaited = tw_recall_awaited(&setup->gate.recall);
    }
    return TW_OK;
}

enum tw_status tw_setup_recall(struct tw_setup *setup, struct tw_error *err) {
    struct disk disk = {.ops = tw_file_system()};
    if (setup->gate.recall.version == 0) return TW_OK;
    TW_TRY(tw_checkpoint_create(&disk.files, disk.ops, setup->run_state_dir, &setup->layout,
                                &setup->run_id, err));
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++)
        tw_checkpoint_look(disk.files, i, &disk.about[i]);
    disk.dir = disk.ops->dir_open(disk.ops->ctx, setup->run_state_dir);
    const enum tw_status status =
        disk.dir < 0 ? tw_fail(err, TW_IO, "%s", strerror(-disk.dir)) : obey(setup, &disk, err);
    if (disk.dir >= 0) (void)disk.ops->close(disk.ops->ctx, disk.dir);
    tw_checkpoint_destroy(disk.files);
    return status;
}
