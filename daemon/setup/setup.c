#include "daemon/setup/setup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/status.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/dataset/data_folder.h"
#include "daemon/store/checkpoint.h"
#include "daemon/store/file.h"
#include "proto/dataset.h"

/* ==== an owner's recall ======================================================================= */

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

/* Obeys the gate's newest recall, once. If a checkpoint generation on disk holds the named state, a
 * start loads that one from now on. Otherwise all generations stay as they are, and setup->awaited
 * is set until this node has saved a state of a lineage that is not refused. The lineages of all
 * generations are refused from then on (setup->refused).
 *
 * After a crash at any point, the next start does the rest. Returns TW_IO, TW_CORRUPT or TW_NOMEM
 * on failure. */
static enum tw_status carry_out_recall(struct tw_setup *setup, struct tw_error *err) {
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

/* ==== reading the files ======================================================================= */

/* Reads a small file into text[capacity]. Returns TW_IO, or TW_LIMIT if it does not fit. */
static enum tw_status read_file(const char *path, char *text, size_t capacity, size_t *size,
                                struct tw_error *err) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    *size = 0;
    ssize_t got = 1;
    while (got > 0 && *size < capacity) {
        got = read(fd, text + *size, capacity - *size);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            *size += (size_t)got;
    }
    const int reason = errno;
    (void)close(fd);
    if (got < 0) return tw_fail(err, TW_IO, "%s: %s", path, strerror(reason));
    if (got > 0) return tw_fail(err, TW_LIMIT, "%s is larger than %zu bytes", path, capacity);
    return TW_OK;
}

static bool join_path(char *path, const char *dir, const char *name) {
    const int size = snprintf(path, TW_PATH_BYTES, "%s/%s", dir, name);
    return size > 0 && size < TW_PATH_BYTES;
}

/* Creates `path` and its parents. */
static enum tw_status make_dirs(const char *path, mode_t mode, struct tw_error *err) {
    char partial[TW_PATH_BYTES];
    (void)snprintf(partial, sizeof(partial), "%s", path);
    for (char *at = partial + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        const char end = *at;
        *at = '\0';
        if (mkdir(partial, mode) != 0 && errno != EEXIST) {
            return tw_fail(err, TW_IO, "cannot make the folder %s: %s", partial, strerror(errno));
        }
        if (end == '\0') return TW_OK;
        *at = end;
    }
}

static enum tw_exit open_manifest(struct tw_setup *setup, struct tw_error *err) {
    char path[TW_PATH_BYTES];
    size_t size = 0;
    struct tw_error reason;
    if (setup->config.node.run[0] != '\0') {
        (void)snprintf(path, sizeof(path), "%s", setup->config.node.run);
    } else if (!join_path(path, setup->config.node.state_dir, "run.manifest")) {
        (void)tw_fail(err, TW_CONFIG, "node.state_dir is too long");
        return TW_EXIT_USAGE;
    }
    if (read_file(path, setup->manifest, TW_MANIFEST_BYTES_MAX, &size, &reason) != TW_OK) {
        (void)tw_fail(err, TW_CONFIG,
                      "no run manifest: %s (copy the file every node of the run has, or make one "
                      "with `thinwire run new`)",
                      reason.message);
        return TW_EXIT_MANIFEST;
    }
    if (tw_run_read(setup->manifest, size, &setup->run, &reason) != TW_OK) {
        (void)tw_fail(err, TW_CONFIG, "%s: %s", path, reason.message);
        return TW_EXIT_MANIFEST;
    }
    tw_run_encode(&setup->run, setup->manifest, &size);
    setup->manifest[size] = '\0';
    if (tw_layout_init(&setup->layout, &setup->run, err) != TW_OK) return TW_EXIT_MANIFEST;
    if (tw_layout_check_group(&setup->layout, err) != TW_OK) return TW_EXIT_MANIFEST;
    if (tw_config_check_run(&setup->config, &setup->run, err) != TW_OK) return TW_EXIT_USAGE;
    setup->run_id = tw_run_id(&setup->run);
    return TW_EXIT_OK;
}

/* Plans to fetch the data if node.data is not set. Only a dataset can be fetched. */
static enum tw_exit plan_fetch(struct tw_setup *setup, struct tw_error *err) {
    const char *const where =
        setup->config.path[0] != '\0' ? setup->config.path : "the configuration";
    const bool reduces = setup->config.node.role == TW_NODE_ROLE_REDUCE; /* needs no data */
    if (tw_run_has_own_data(&setup->run)) return TW_EXIT_OK;
    if (reduces && setup->run.data.form == TW_FORM_FILE) return TW_EXIT_OK;
    if (setup->run.data.form == TW_FORM_FILE) {
        (void)tw_fail(err, TW_DATA, "no training text: set node.data in %.80s; %s", where,
                      tw_id_is_zero(&setup->run.data.sha256)
                          ? "in this run each node brings its own"
                          : "a plain text is not fetched from others, a dataset would be (see "
                            "`thinwire data prepare`)");
        return TW_EXIT_DATA;
    }
    if (!setup->config.network.links) {
        (void)tw_fail(err, TW_DATA,
                      "no training data: with network.links = off nobody can be asked for the "
                      "run's dataset; set node.data in %.100s to a folder that holds it",
                      where);
        return TW_EXIT_DATA;
    }
    setup->is_data_fetched = true;
    return TW_EXIT_OK;
}

/* Checks that the user's folder is the run's dataset and holds at least one whole training shard.
 */
static enum tw_exit check_dataset(const char *path, const struct tw_run *run,
                                  struct tw_error *err) {
    struct tw_data_folder folder;
    struct tw_error reason = {0};
    enum tw_status status =
        tw_data_folder_open(&folder, tw_file_system(), path, &run->data.sha256, false, &reason);
    if (status != TW_OK) {
        (void)tw_fail(err, TW_DATA,
                      "%.130s (node.data names it): name the dataset's folder, or leave node.data "
                      "out, and it is fetched",
                      reason.message);
        return TW_EXIT_DATA;
    }
    status = tw_data_folder_load(&folder, &reason);
    if (status == TW_OK) status = tw_dataset_check_run(&folder.index, run, &reason);
    const uint32_t train_whole = tw_data_folder_train_whole(&folder);
    tw_data_folder_close(&folder);
    if (status == TW_AGAIN) {
        (void)tw_fail(err, TW_DATA,
                      "%.100s is no dataset, and the run is trained on one (node.data names it): "
                      "leave node.data out, and it is fetched from the other nodes",
                      path);
    } else if (status != TW_OK) {
        (void)tw_fail(err, TW_DATA, "training data %.60s: %.180s (node.data names it)", path,
                      reason.message);
    } else if (train_whole == 0) {
        (void)tw_fail(err, TW_DATA,
                      "%.100s holds no whole training shard (node.data names it): copy the files "
                      "its index names, or leave node.data out, and they are fetched",
                      path);
    } else {
        return TW_EXIT_OK;
    }
    return TW_EXIT_DATA;
}

static enum tw_exit check_data(struct tw_setup *setup, struct tw_error *err) {
    const char *path = setup->config.node.data;
    if (path[0] == '\0') return plan_fetch(setup, err);
    (void)snprintf(setup->data_path, sizeof(setup->data_path), "%s", path);
    struct stat info;
    if (stat(path, &info) != 0 || access(path, R_OK) != 0) {
        (void)tw_fail(err, TW_DATA, "training data %s: %s (node.data names them)", path,
                      strerror(errno));
        return TW_EXIT_DATA;
    }
    if (setup->run.data.form == TW_FORM_DATASET) {
        return check_dataset(path, &setup->run, err);
    }
    const bool is_file = S_ISREG(info.st_mode) && info.st_size > 0;
    if (!is_file && !S_ISDIR(info.st_mode)) { /* the worker checks a folder's contents */
        (void)tw_fail(err, TW_DATA, "training text %s is %s (node.data names it)", path,
                      S_ISREG(info.st_mode) ? "empty" : "neither a file nor a folder");
        return TW_EXIT_DATA;
    }
    return TW_EXIT_OK;
}

/* Root that starts the daemon of another user would leave files that this user cannot read. */
static enum tw_exit check_user(const struct tw_setup *setup, struct tw_error *err) {
    const char *const folder = setup->config.node.state_dir;
    const uint32_t owner = tw_private_owner(folder);
    char name[TW_USER_NAME_BYTES];
    if (owner == geteuid()) return TW_EXIT_OK;
    (void)tw_user_name(owner, name);
    (void)tw_fail(err, TW_CONFIG,
                  "the state folder %.100s belongs to user %s, and this is root: start it as user "
                  "%s, or a service by `thinwire --config %s start`",
                  folder, name, name, setup->config.instance);
    return TW_EXIT_STATE_DIR;
}

static enum tw_exit open_state(struct tw_setup *setup, struct tw_error *err) {
    const char *state_dir = setup->config.node.state_dir;
    char hex[TW_ID_HEX_BYTES], path[TW_PATH_BYTES];
    struct tw_error reason;
    tw_id_hex(&setup->run_id, hex);
    hex[16] = '\0';
    if (!join_path(setup->run_state_dir, state_dir, hex) || !join_path(path, state_dir, "lock")) {
        (void)tw_fail(err, TW_CONFIG, "node.state_dir is too long");
        return TW_EXIT_USAGE;
    }
    if (setup->is_data_fetched && !join_path(setup->data_path, setup->run_state_dir, "data")) {
        (void)tw_fail(err, TW_CONFIG, "node.state_dir is too long");
        return TW_EXIT_USAGE;
    }
    if (make_dirs(setup->run_state_dir, 0700, &reason) != TW_OK) {
        (void)tw_fail(err, TW_IO, "state folder: %s (node.state_dir; give it to this user)",
                      reason.message);
        return TW_EXIT_STATE_DIR;
    }
    setup->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (setup->lock_fd < 0 || access(setup->run_state_dir, W_OK) != 0) {
        (void)tw_fail(err, TW_IO,
                      "cannot write in the state folder %s: %s (node.state_dir; give "
                      "it to this user)",
                      state_dir, strerror(errno));
        return TW_EXIT_STATE_DIR;
    }
    if (flock(setup->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        (void)tw_fail(err, TW_IO,
                      "another daemon uses the state folder %s: stop it, or give this one its own "
                      "node.state_dir",
                      state_dir);
        return TW_EXIT_STATE_DIR;
    }
    if (make_dirs(setup->config.node.run_dir, 0755, &reason) != TW_OK) {
        (void)tw_fail(err, TW_IO, "run folder: %s (node.run_dir)", reason.message);
        return TW_EXIT_STATE_DIR;
    }
    return TW_EXIT_OK;
}

/* Replaces a small file in a folder, durably. */
static enum tw_status replace_file(const char *folder, const char *name, const char *text,
                                   size_t size, struct tw_error *err) {
    const struct tw_file_ops *ops = tw_file_system();
    struct tw_durable file;
    const int dir = ops->dir_open(ops->ctx, folder);
    if (dir < 0) return tw_fail(err, TW_IO, "%s", strerror(errno));
    enum tw_status status = tw_durable_begin(&file, ops, dir, name, size, err);
    if (status == TW_OK) {
        status = tw_durable_write(&file, text, size, 0, err);
        if (status == TW_OK) {
            status = tw_durable_commit(&file, err);
        } else {
            tw_durable_abort(&file);
        }
    }
    (void)ops->close(ops->ctx, dir);
    return status;
}

/* Copies the manifest into the folder of the checkpoints, which do not describe their model. The
 * folder's name contains the run id, so a manifest that is there already is the right one. */
static enum tw_exit keep_manifest(const struct tw_setup *setup, struct tw_error *err) {
    static const char NAME[] = "run.manifest";
    char path[TW_PATH_BYTES], text[TW_MANIFEST_BYTES_MAX];
    size_t size = 0;
    struct tw_error reason;
    if (!join_path(path, setup->run_state_dir, NAME)) {
        (void)tw_fail(err, TW_CONFIG, "node.state_dir is too long");
        return TW_EXIT_USAGE;
    }
    if (access(path, F_OK) == 0) return TW_EXIT_OK;
    tw_run_encode(&setup->run, text, &size);
    if (replace_file(setup->run_state_dir, NAME, text, size, &reason) == TW_OK) return TW_EXIT_OK;
    (void)tw_fail(err, TW_IO, "state folder %.80s: %s", setup->run_state_dir, reason.message);
    return TW_EXIT_STATE_DIR;
}

/* Writes a number of at most ten digits over a file of its own block, durably: that takes no room
 * on a full disk. A number torn by a power cut would be a lost count. */
static bool write_over(const char *path, const char *text) {
    char line[12];
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    const int size = snprintf(line, sizeof(line), "%-10.10s\n", text);
    const bool is_good = pwrite(fd, line, (size_t)size, 0) == size && fsync(fd) == 0;
    (void)close(fd);
    return is_good;
}

/* Counts the starts of this node. The new count is durable before any peer sees it. A lost count
 * restarts at the Unix time in seconds, which is higher than any count of starts. On a full disk
 * the daemon starts all the same: it says so, trains on, and saves once there is room. */
static enum tw_exit count_boot(struct tw_setup *setup, struct tw_error *err) {
    const char *state_dir = setup->config.node.state_dir;
    char path[TW_PATH_BYTES], text[32];
    size_t size = 0;
    setup->boot = 1;
    if (!join_path(path, state_dir, "boot")) return TW_EXIT_USAGE;
    if (access(path, F_OK) == 0) {
        unsigned long last = 0;
        if (read_file(path, text, sizeof(text) - 1, &size, NULL) == TW_OK) {
            text[size] = '\0';
            last = strtoul(text, NULL, 10);
        }
        setup->boot = last > 0 && last < UINT32_MAX ? (uint32_t)last + 1 : (uint32_t)time(NULL);
    }
    const int bytes = snprintf(text, sizeof(text), "%u\n", setup->boot);
    struct tw_error reason;
    if (replace_file(state_dir, "boot", text, (size_t)bytes, &reason) == TW_OK) return TW_EXIT_OK;
    text[bytes - 1] = '\0';
    if (write_over(path, text)) return TW_EXIT_OK;
    (void)tw_fail(err, TW_IO, "state folder %.80s: %s", state_dir, reason.message);
    return TW_EXIT_STATE_DIR;
}

enum tw_exit tw_setup_gate(struct tw_setup *setup, struct tw_error *err) {
    const enum tw_status status = tw_gate_load(&setup->gate, setup->config.node.state_dir, err);
    return status == TW_OK ? TW_EXIT_OK : TW_EXIT_IDENTITY;
}

static enum tw_exit open_refused(struct tw_setup *setup, struct tw_error *err) {
    const struct tw_file_ops *ops = tw_file_system();
    struct tw_error reason = {0};
    const int dir = ops->dir_open(ops->ctx, setup->run_state_dir);
    const enum tw_status status = dir < 0 ? tw_fail(&reason, TW_IO, "%s", strerror(-dir))
                                          : tw_lineages_read(ops, dir, &setup->refused, &reason);
    if (dir >= 0) (void)ops->close(ops->ctx, dir);
    if (status == TW_OK) return TW_EXIT_OK;
    (void)tw_fail(err, status, "%.100s: %s", setup->run_state_dir, reason.message);
    return TW_EXIT_STATE_DIR;
}

enum tw_status tw_setup_refuse(const struct tw_setup *setup, const struct tw_id *lineage,
                               struct tw_error *err) {
    const struct tw_file_ops *ops = tw_file_system();
    struct tw_lineages refused;
    const int dir = ops->dir_open(ops->ctx, setup->run_state_dir);
    if (dir < 0) return tw_fail(err, TW_IO, "%.100s: %s", setup->run_state_dir, strerror(-dir));
    enum tw_status status = tw_lineages_read(ops, dir, &refused, err);
    if (status == TW_OK) {
        tw_lineages_add(&refused, lineage);
        status = tw_lineages_write(ops, dir, &refused, err);
    }
    (void)ops->close(ops->ctx, dir);
    return status;
}

static enum tw_exit obey_recall(struct tw_setup *setup, struct tw_error *err) {
    struct tw_error reason = {0};
    const enum tw_status status = carry_out_recall(setup, &reason);
    if (status == TW_OK) return TW_EXIT_OK;
    (void)tw_fail(err, status, "%.100s: %s", setup->run_state_dir, reason.message);
    return TW_EXIT_STATE_DIR;
}

static enum tw_exit open_identity(struct tw_setup *setup, struct tw_error *err) {
    char path[TW_PATH_BYTES];
    if (!join_path(path, setup->config.node.state_dir, "identity.key")) return TW_EXIT_USAGE;
    if (tw_identity_open(path, &setup->identity, err) != TW_OK) return TW_EXIT_IDENTITY;
    const enum tw_admission kind = setup->run.security.admission;
    if (!setup->config.network.links || kind == TW_ADMISSION_OPEN) return TW_EXIT_OK;
    if (kind == TW_ADMISSION_OWNER) {
        setup->has_gate = true;
        tw_gate_init(&setup->gate, &setup->run_id, &setup->run.security.owner, &setup->identity);
        return tw_setup_gate(setup, err);
    }
    if (setup->config.network.secret_file[0] != '\0') {
        (void)snprintf(path, sizeof(path), "%s", setup->config.network.secret_file);
    } else if (!join_path(path, setup->config.node.state_dir, "run.secret")) {
        return TW_EXIT_USAGE;
    }
    if (tw_secrets_open(path, &setup->secrets, err) != TW_OK) return TW_EXIT_IDENTITY;
    memcpy(setup->secret_path, path, sizeof(path));
    return TW_EXIT_OK;
}

/* Makes files readable for the worker's user that were written before node.worker_user was set. */
static bool share_files(const char *folder) {
    DIR *const dir = opendir(folder);
    bool is_shared = dir != NULL;
    for (struct dirent *at; is_shared && (at = readdir(dir)) != NULL;) {
        struct stat info;
        is_shared = fstatat(dirfd(dir), at->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0;
        if (is_shared && S_ISREG(info.st_mode))
            is_shared = fchmodat(dirfd(dir), at->d_name, 0640, 0) == 0;
    }
    const int cause = errno;
    if (dir != NULL) (void)closedir(dir);
    errno = cause;
    return is_shared;
}

/* Lets the worker, which is in the daemon's group, reach the fetched dataset and read it. */
static bool share_data(const struct tw_setup *setup) {
    if (mkdir(setup->data_path, 0700) != 0 && errno != EEXIST) return false;
    return chmod(setup->config.node.state_dir, 0710) == 0 &&
           chmod(setup->run_state_dir, 0710) == 0 && chmod(setup->data_path, 0750) == 0 &&
           share_files(setup->data_path);
}

static enum tw_exit find_worker_user(struct tw_setup *setup, struct tw_error *err) {
    const char *const name = setup->config.node.worker_user;
    if (name[0] == '\0') return TW_EXIT_OK;
    const struct passwd *const user = getpwnam(name);
    if (user == NULL) {
        (void)tw_fail(err, TW_CONFIG,
                      "node.worker_user: there is no user `%s`; systemd-sysusers makes it", name);
        return TW_EXIT_USAGE;
    }
    setup->worker_uid = user->pw_uid;
    if (!setup->is_data_fetched || share_data(setup)) return TW_EXIT_OK;
    (void)tw_fail(err, TW_IO, "dataset folder %.200s: %s (node.state_dir; give it to this user)",
                  setup->data_path, strerror(errno));
    return TW_EXIT_STATE_DIR;
}

/* thinwire-worker cannot train a run of any model, so it is not started for one. */
static enum tw_exit find_worker(struct tw_setup *setup, struct tw_error *err) {
    const bool has_command = setup->config.node.worker_command[0] != '\0';
    const bool is_named = has_command || setup->config.node.worker_path[0] != '\0';
    setup->spawns_worker = setup->config.node.spawn_worker &&
                           (is_named || tw_run_check_engine(&setup->run, NULL) == TW_OK);
    if (!join_path(setup->worker_socket, setup->config.node.run_dir, "worker.sock")) {
        (void)tw_fail(err, TW_CONFIG, "node.run_dir is too long");
        return TW_EXIT_USAGE;
    }
    if (has_command) {
        (void)snprintf(setup->worker_path, sizeof(setup->worker_path), "/bin/sh");
        if (setenv("THINWIRE_WORKER_SOCKET", setup->worker_socket, 1) != 0) return TW_EXIT_USAGE;
    } else if (is_named) {
        (void)snprintf(setup->worker_path, sizeof(setup->worker_path), "%s",
                       setup->config.node.worker_path);
    } else {
        char own[TW_PATH_BYTES];
        const ssize_t size = readlink("/proc/self/exe", own, sizeof(own) - 1);
        own[size > 0 ? size : 0] = '\0';
        char *slash = strrchr(own, '/');
        if (slash != NULL) *slash = '\0';
        if (!join_path(setup->worker_path, own, "thinwire-worker")) return TW_EXIT_USAGE;
    }
    if (setup->spawns_worker && access(setup->worker_path, X_OK) != 0) {
        (void)tw_fail(err, TW_CONFIG,
                      "the worker %s: %s (set node.worker_path, or node.spawn_worker = off)",
                      setup->worker_path, strerror(errno));
        return TW_EXIT_USAGE;
    }
    return TW_EXIT_OK;
}

static enum tw_exit open_config(struct tw_setup *setup, struct tw_error *err) {
    char path[TW_PATH_BYTES];
    if (tw_config_find(setup->options.config, path, err) != TW_OK) return TW_EXIT_USAGE;
    if (tw_config_load(&setup->config, path, err) != TW_OK) return TW_EXIT_USAGE;
    return TW_EXIT_OK;
}

enum tw_exit tw_setup_open(struct tw_setup *setup, const struct tw_setup_options *options,
                           struct tw_error *err) {
    memset(setup, 0, sizeof(*setup));
    setup->options = *options;
    setup->lock_fd = -1;
    enum tw_exit code = open_config(setup, err);
    if (code == TW_EXIT_OK) code = open_manifest(setup, err);
    if (code == TW_EXIT_OK) code = check_data(setup, err);
    if (code == TW_EXIT_OK) code = find_worker(setup, err);
    if (code == TW_EXIT_OK)
        setup->memory =
            tw_memory_plan_of(&setup->config, &setup->run, &setup->layout, tw_machine_memory());
    if (code == TW_EXIT_OK) code = check_user(setup, err);
    if (code == TW_EXIT_OK) code = open_state(setup, err);
    if (code == TW_EXIT_OK) code = open_refused(setup, err);
    if (code == TW_EXIT_OK) code = find_worker_user(setup, err);
    if (code == TW_EXIT_OK) code = keep_manifest(setup, err);
    if (code == TW_EXIT_OK) code = open_identity(setup, err);
    if (code == TW_EXIT_OK) code = obey_recall(setup, err);
    if (code == TW_EXIT_OK) code = count_boot(setup, err);
    return code;
}

void tw_setup_close(struct tw_setup *setup) {
    if (setup->identity.key != NULL) tw_identity_close(&setup->identity);
    tw_secrets_wipe(&setup->secrets);
    if (setup->lock_fd >= 0) (void)close(setup->lock_fd);
    setup->lock_fd = -1;
}
