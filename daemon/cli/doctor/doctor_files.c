/* doctor_files.c - files of this node: manifest, keys, state folder, free space and speed of the
 * disk, training data. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/auth/gate.h"
#include "daemon/cli/common/checkpoint_progress.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/node/owner.h"
#include "daemon/cli/run/data_path.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/store/checkpoint.h"
#include "proto/run/layout.h"

enum {
    SPEED_BYTES = 16 << 20,
    SPEED_STEP_BYTES = 1 << 20,
    SYNCS = 8,
    LEAST_BYTES = 64 << 20, /* room for votes and logs */
};

#define MB 1e6

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void look_at_manifest(struct doctor *doctor) {
    struct tw_error err;
    const char *const path = doctor->config.node.run;
    doctor->has_run = cli_manifest_load(path, &doctor->run, &err) == TW_OK;
    if (doctor->has_run && cli_is_hidden(doctor->config.path, path))
        doctor_say(doctor, DOCTOR_WARN, "manifest", CLI_HIDDEN, "%s is in a home folder", path);
    else if (doctor->has_run)
        doctor_say(doctor, DOCTOR_OK, "manifest", NULL, "run %s, %s", doctor->run.name, path);
    else
        doctor_say(doctor, DOCTOR_FAIL, "manifest",
                   "copy the file every node of the run has, or make one with `thinwire run new`",
                   "%s", err.message);
}

static bool look_at_state(struct doctor *doctor) {
    const char *const path = doctor->config.node.state_dir;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        doctor_say(doctor, DOCTOR_FAIL, "state", "`thinwire init` makes it", "%s: %s", path,
                   errno != 0 ? strerror(errno) : "no folder");
        return false;
    }
    if (access(path, W_OK | X_OK) != 0) {
        doctor_say(doctor, DOCTOR_FAIL, "state",
                   "give the folder to the user the daemon runs as, or use sudo for this command",
                   "%s: %s", path, strerror(errno));
        return false;
    }
    if ((info.st_mode & 022) != 0) {
        doctor_say(doctor, DOCTOR_WARN, "state", "chmod go-w it: it holds keys and votes",
                   "%s may be written by others (mode %04o)", path, info.st_mode & 07777);
        return true;
    }
    doctor_say(doctor, DOCTOR_OK, "state", NULL, "%s, mode %04o", path, info.st_mode & 07777);
    return true;
}

/* In a run with an owner, checks that the certificate exists and is valid, and says for how long.
 */
static void look_at_certificate(struct doctor *doctor) {
    struct tw_gate *const gate = &doctor->gate;
    struct tw_error err = {0};
    char until[TW_UNITS_BYTES];
    if (!doctor->has_run || doctor->run.security.admission != TW_ADMISSION_OWNER) {
        doctor_say(doctor, DOCTOR_SKIP, "certificate", NULL, "only runs with an owner have them");
        return;
    }
    if (!doctor->has_identity) return;
    const struct tw_id run_id = tw_run_id(&doctor->run);
    tw_gate_init(gate, &run_id, &doctor->run.security.owner, &doctor->identity);
    enum tw_status status = tw_gate_load(gate, doctor->config.node.state_dir, &err);
    if (status == TW_OK)
        status = tw_gate_judge(gate, &gate->own, &doctor->identity.id, TW_CERT_TRAIN, 0, &err);
    doctor->has_gate = true;
    (void)tw_units_utc(until, tw_certs_until(&gate->own));
    if (status == TW_BAD_CLOCK)
        doctor_say(doctor, DOCTOR_FAIL, "certificate", "`timedatectl set-ntp true`", "%s",
                   err.message);
    else if (status != TW_OK)
        doctor_say(
            doctor, DOCTOR_FAIL, "certificate",
            "get a new ticket (`thinwire invite` on a node that admits others) and `thinwire "
            "join` again; or `thinwire owner sign`, where the owner's key is",
            "%s", err.message);
    else if (tw_gate_is_late(gate))
        doctor_say(doctor, DOCTOR_WARN, "certificate",
                   "`thinwire owner sign` where the owner's key is, then `thinwire owner import`, "
                   "unless a node that admits others renews it over a link",
                   "valid until %s; then no node admits this one", until);
    else
        doctor_say(doctor, DOCTOR_OK, "certificate", NULL, "valid until %s%s%s", until,
                   gate->own.count > 1 ? ", renewed by nodes that may admit" : "",
                   tw_certs_has_vote(&gate->own) ? "" : "; it trains, but does not vote");
}

/* Says where the owner's key is on a node that admits others, and the effect of its loss. */
static void look_at_owner_key(struct doctor *doctor) {
    char path[TW_PATH_BYTES];
    struct tw_identity key;
    if (!doctor->has_gate || !tw_gate_is_admitter(&doctor->gate.own)) return;
    const enum owner_key_state state =
        owner_key_look(&doctor->run, doctor->config.node.run, path, &key);
    if (state == OWNER_KEY_HERE) tw_identity_close(&key);
    if (state == OWNER_KEY_NONE)
        doctor_say(doctor, DOCTOR_OK, "owner.key", NULL,
                   "not beside the manifest, and not needed there; if it is lost, " OWNER_KEY_LOSS);
    else
        doctor_say(doctor, DOCTOR_OK, "owner.key", NULL,
                   "%s: keep a copy on another machine; if it is lost, " OWNER_KEY_LOSS, path);
}

static void look_at_keys(struct doctor *doctor) {
    char path[TW_PATH_BYTES + 16];
    struct tw_error err;
    (void)snprintf(path, sizeof(path), "%s/identity.key", doctor->config.node.state_dir);
    doctor->has_identity = tw_identity_open(path, &doctor->identity, &err) == TW_OK;
    if (doctor->has_identity) {
        char hex[9];
        tw_id_short(&doctor->identity.id, hex);
        doctor_say(doctor, DOCTOR_OK, "identity", NULL, "node %s, only its owner can read it", hex);
    } else {
        doctor_say_error(doctor, "identity", &err, NULL);
    }
    look_at_certificate(doctor);
    look_at_owner_key(doctor);
    if (doctor->has_run && doctor->run.security.admission != TW_ADMISSION_SECRET) {
        doctor_say(doctor, DOCTOR_SKIP, "secret", NULL, "this run has none");
        return;
    }
    const char *const secret = doctor->config.network.secret_file;
    if (!doctor->has_run && access(secret, F_OK) != 0) {
        doctor_say(doctor, DOCTOR_SKIP, "secret", NULL, "unknown without the manifest");
        return;
    }
    doctor->has_secret = tw_secrets_open(secret, &doctor->secrets, &err) == TW_OK;
    if (doctor->has_secret)
        doctor_say(doctor, DOCTOR_OK, "secret", NULL, "%s, only its owner can read it%s", secret,
                   doctor->secrets.count > 1 ? "; another one replaces it" : "");
    else
        doctor_say_error(doctor, "secret", &err,
                         "copy run.secret from a node of the run over a secure channel");
}

/* ---- disk ---------------------------------------------------------------------------------- */

/* Returns true if the daemon fetches the run's dataset into the state folder. */
static bool is_fetched(const struct doctor *doctor) {
    return doctor->has_run && doctor->run.data.form == TW_FORM_DATASET &&
           doctor->config.node.data[0] == '\0';
}

/* Returns true if a daemon has begun to fetch the dataset. */
static bool has_data_folder(const struct doctor *doctor) {
    char hex[TW_ID_HEX_BYTES], path[TW_PATH_BYTES + 32];
    const struct tw_id id = tw_run_id(&doctor->run);
    tw_id_hex(&id, hex);
    (void)snprintf(path, sizeof(path), "%s/%.16s/data", doctor->config.node.state_dir, hex);
    return access(path, F_OK) == 0;
}

/* Returns the bytes that the daemon needs free: its own definition. Sets *least_bytes to those
 * without which it cannot save, and *is_left if data are yet to be fetched. */
static double bytes_wanted(const struct doctor *doctor, double *least_bytes, bool *is_left) {
    static struct tw_layout layout;
    struct run_memory memory;
    *least_bytes = LEAST_BYTES;
    *is_left = false;
    if (!doctor_memory(doctor, &memory) || tw_layout_init(&layout, &doctor->run, NULL) != TW_OK)
        return LEAST_BYTES;
    const double wanted =
        (double)tw_memory_plan_disk(&memory.plan, &layout, doctor->status != NULL);
    const json_t *const data = json_object_get(doctor->status, "data");
    const double all = json_number_value(json_object_get(data, "bytes")),
                 here = json_number_value(json_object_get(data, "bytes_here"));
    *is_left = is_fetched(doctor) &&
               (doctor->status != NULL ? all == 0 || here < all : !has_data_folder(doctor));
    if (*is_left)
        *least_bytes = wanted;
    else
        *least_bytes += (double)layout.params * TW_CHECKPOINTS_BYTES_PARAM;
    return wanted + (*is_left && all > here ? all - here : 0);
}

static void look_at_room(struct doctor *doctor) {
    struct statvfs info;
    if (statvfs(doctor->config.node.state_dir, &info) != 0) {
        doctor_say(doctor, DOCTOR_SKIP, "disk.room", NULL, "%s", strerror(errno));
        return;
    }
    char free_text[TW_UNITS_BYTES], wanted_text[TW_UNITS_BYTES];
    double least_bytes = 0;
    bool is_left = false;
    const double free_bytes = (double)info.f_bavail * (double)info.f_frsize;
    const double wanted_bytes = bytes_wanted(doctor, &least_bytes, &is_left);
    const bool is_short = free_bytes < wanted_bytes,
               has_inodes = info.f_files == 0 || info.f_favail > 64;
    doctor_say(doctor,
               free_bytes < least_bytes || !has_inodes ? DOCTOR_FAIL
               : is_short                              ? DOCTOR_WARN
                                                       : DOCTOR_OK,
               "disk.room",
               is_short      ? "free some space, or set node.state_dir to a larger disk"
               : !has_inodes ? "the disk has no room for more files: remove some"
                             : NULL,
               "%s free, %s needed for checkpoints and logs%s",
               tw_units_bytes(free_text, free_bytes), tw_units_bytes(wanted_text, wanted_bytes),
               !is_left                 ? ""
               : doctor->status == NULL ? ", beside the dataset"
                                        : " and the rest of the dataset");
}

/* Measures writing a file, and syncing small changes to it. Returns false with the reason in `err`.
 */
static bool disk_measure(const char *dir, double *mb_per_s, double *sync_s, struct tw_error *err) {
    char path[TW_PATH_BYTES + 32];
    static uint8_t block[SPEED_STEP_BYTES];
    (void)snprintf(path, sizeof(path), "%s/.doctor.XXXXXX", dir);
    const int fd = mkstemp(path);
    if (fd < 0) {
        (void)tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
        return false;
    }
    (void)unlink(path);
    memset(block, 0x5a, sizeof(block));
    const double begin_s = now_s();
    bool is_good = true;
    for (unsigned at = 0; at < SPEED_BYTES && is_good; at += SPEED_STEP_BYTES)
        is_good = pwrite(fd, block, sizeof(block), at) == (ssize_t)sizeof(block);
    is_good = is_good && fsync(fd) == 0;
    *mb_per_s = SPEED_BYTES / MB / (now_s() - begin_s);
    *sync_s = 0;
    for (unsigned i = 0; i < SYNCS && is_good; i++) {
        const double sync_begin_s = now_s();
        is_good = pwrite(fd, block, 512, 0) == 512 && fsync(fd) == 0;
        if (now_s() - sync_begin_s > *sync_s) *sync_s = now_s() - sync_begin_s;
    }
    if (!is_good) (void)tw_fail(err, TW_IO, "writing there fails: %s", strerror(errno));
    (void)close(fd);
    return is_good;
}

static void look_at_speed(struct doctor *doctor) {
    double mb_per_s, sync_s;
    struct tw_error err;
    if (!disk_measure(doctor->config.node.state_dir, &mb_per_s, &sync_s, &err)) {
        struct statvfs room;
        if (statvfs(doctor->config.node.state_dir, &room) == 0 && room.f_bavail == 0)
            doctor_say(doctor, DOCTOR_SKIP, "disk.speed", NULL, "the disk is full");
        else
            doctor_say(doctor, DOCTOR_FAIL, "disk.speed",
                       "repair or change the disk of node.state_dir", "%s", err.message);
        return;
    }
    const bool is_slow = mb_per_s<20, is_late = sync_s> 0.5;
    doctor_say(doctor, is_slow || is_late ? DOCTOR_WARN : DOCTOR_OK, "disk.speed",
               is_late   ? "votes wait for this disk, which slows rounds down: use a faster one"
               : is_slow ? "checkpoints will take long: set node.state_dir to a faster disk"
                         : NULL,
               "writes %.0f MB/s, the slowest of %d syncs took %.0f ms", mb_per_s, SYNCS,
               sync_s * 1e3);
}

/* Looks for files dated in the future: the clock is slow now, or was fast before. */
static void look_at_dates(struct doctor *doctor) {
    static const char *const names[] = {"identity.key", "boot", "lock"};
    const time_t now = time(NULL);
    double ahead_s = 0;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[TW_PATH_BYTES + 16];
        struct stat info;
        (void)snprintf(path, sizeof(path), "%s/%s", doctor->config.node.state_dir, names[i]);
        if (stat(path, &info) == 0 && difftime(info.st_mtime, now) > ahead_s)
            ahead_s = difftime(info.st_mtime, now);
    }
    if (ahead_s > 60)
        doctor_say(doctor, DOCTOR_WARN, "clock.files",
                   "set the clock: `timedatectl set-ntp true` under systemd",
                   "this node's own files are dated %.1f h ahead of the clock", ahead_s / 3600);
    else
        doctor_say(doctor, DOCTOR_OK, "clock.files", NULL, "no file is dated in the future");
}

/* ---- training data ------------------------------------------------------------------------- */

static void look_at_data(struct doctor *doctor) {
    static struct cli_data data;
    struct tw_error err;
    char bytes[TW_UNITS_BYTES];
    const char *const path = doctor->config.node.data;
    if (!doctor->has_run) {
        doctor_say(doctor, DOCTOR_SKIP, "data", NULL, "unknown without the manifest");
        return;
    }
    if (tw_run_has_own_data(&doctor->run)) {
        doctor_say(doctor, DOCTOR_OK, "data", NULL, "the trainer's own");
        return;
    }
    if (path[0] == '\0') {
        if (doctor->config.node.role == TW_NODE_ROLE_REDUCE)
            doctor_say(doctor, DOCTOR_OK, "data", NULL, "none: a node that reduces needs none");
        else if (doctor->run.data.form == TW_FORM_DATASET &&
                 doctor->config.network.peers_count == 0)
            doctor_say(doctor, DOCTOR_WARN, "data",
                       "the first node of a run has the dataset: set `data = ` in section [node]",
                       "no dataset is named, and no peer is configured that could send it");
        else if (doctor->run.data.form == TW_FORM_DATASET)
            doctor_say(doctor, DOCTOR_OK, "data", NULL, "a dataset, fetched from other nodes");
        else
            doctor_say(doctor, DOCTOR_FAIL, "data", "set `data = ` in section [node]",
                       "no training text is named");
        return;
    }
    if (cli_data_of_run(path, &doctor->run, &data, &err) != TW_OK) {
        doctor_say(doctor, DOCTOR_FAIL, "data",
                   doctor->run.data.form == TW_FORM_DATASET
                       ? "name the dataset of the run in node.data, or leave that out"
                       : "name the text of the run in node.data",
                   "%s", err.message);
        return;
    }
    if (cli_is_hidden(doctor->config.path, path))
        doctor_say(doctor, DOCTOR_WARN, "data", CLI_HIDDEN, "%s is in a home folder", path);
    else if (data.shards_here < data.shards)
        doctor_say(doctor, DOCTOR_WARN, "data",
                   "copy the missing ones, or leave node.data out: then they are fetched",
                   "%s has %u of %u shards", path, data.shards_here, data.shards);
    else
        doctor_say(doctor, DOCTOR_OK, "data", NULL, "%s, %s", path,
                   tw_units_bytes(bytes, (double)data.bytes));
}

/* ---- the newest checkpoint ------------------------------------------------------------------- */

/* Returns the readable file of the highest generation other than `but`; TW_CHECKPOINT_SLOTS if
 * there is none. Counts the files. */
static uint32_t find_newest(const struct tw_checkpoint_about *about, uint32_t but,
                            uint32_t *count) {
    uint32_t newest = TW_CHECKPOINT_SLOTS;
    *count = 0;
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        *count += about[i].exists;
        if (i == but || !about[i].exists || about[i].refused[0] != '\0') continue;
        if (newest == TW_CHECKPOINT_SLOTS || about[i].generation > about[newest].generation)
            newest = i;
    }
    return newest;
}

static void say_damaged(struct doctor *doctor, const char *why,
                        const struct tw_checkpoint_about *spare) {
    const bool is_up = doctor->status != NULL;
    if (spare != NULL)
        doctor_say(doctor, DOCTOR_WARN, "checkpoint",
                   is_up ? "`thinwire checkpoint` saves a good one now; look for faults of the disk"
                         : "a start uses the one before; look for faults of the disk",
                   "%s; the one before, of step %" PRIu64 ", is intact", why, spare->step);
    else
        doctor_say(doctor, DOCTOR_FAIL, "checkpoint",
                   is_up ? "`thinwire checkpoint` saves a good one now; look for faults of the disk"
                         : "`thinwire start --fresh` sets it aside, and other nodes give the model "
                           "back; look for faults of the disk",
                   "%s; no other one is intact", why);
}

static void look(struct doctor *doctor, struct tw_checkpoint *files) {
    struct tw_checkpoint_about about[TW_CHECKPOINT_SLOTS];
    struct tw_error err = {0}, ignored;
    uint32_t count = 0;
    char why[256] = "";
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        tw_checkpoint_look(files, i, &about[i]);
        if (about[i].refused[0] != '\0') (void)snprintf(why, sizeof(why), "%s", about[i].refused);
    }
    uint32_t newest = find_newest(about, TW_CHECKPOINT_SLOTS, &count);
    if (count == 0) {
        doctor_say(doctor, DOCTOR_SKIP, "checkpoint", NULL, "none yet");
        return;
    }
    if (newest < TW_CHECKPOINT_SLOTS && tw_checkpoint_verify(files, newest, &err) != TW_OK) {
        (void)snprintf(why, sizeof(why), "%s", err.message);
        newest = find_newest(about, newest, &count);
        if (newest < TW_CHECKPOINT_SLOTS && tw_checkpoint_verify(files, newest, &ignored) != TW_OK)
            newest = TW_CHECKPOINT_SLOTS;
    }
    checkpoint_progress_end();
    if (why[0] != '\0')
        say_damaged(doctor, why, newest < TW_CHECKPOINT_SLOTS ? &about[newest] : NULL);
    else
        doctor_say(doctor, DOCTOR_OK, "checkpoint", NULL,
                   "%s of step %" PRIu64 ": every byte was read, and is intact",
                   tw_checkpoint_file_name(newest), about[newest].step);
}

/* Reads the newest checkpoint, and the one before if it is damaged. */
static void look_at_checkpoint(struct doctor *doctor) {
    static struct tw_layout layout;
    char hex[TW_ID_HEX_BYTES], folder[TW_PATH_BYTES + 32];
    struct tw_checkpoint *files = NULL;
    struct tw_error err;
    if (!doctor->has_run || tw_layout_init(&layout, &doctor->run, NULL) != TW_OK) {
        doctor_say(doctor, DOCTOR_SKIP, "checkpoint", NULL, "unknown without the manifest");
        return;
    }
    const struct tw_id id = tw_run_id(&doctor->run);
    tw_id_hex(&id, hex);
    (void)snprintf(folder, sizeof(folder), "%s/%.16s", doctor->config.node.state_dir, hex);
    if (access(folder, F_OK) != 0) {
        doctor_say(doctor, DOCTOR_SKIP, "checkpoint", NULL, "none yet");
        return;
    }
    if (tw_checkpoint_create(&files, tw_file_system(), folder, &layout, &id, &err) != TW_OK) {
        doctor_say(doctor, DOCTOR_FAIL, "checkpoint",
                   "repair the disk, or the rights of the folder", "%s", err.message);
        return;
    }
    checkpoint_progress_watch(files);
    look(doctor, files);
    tw_checkpoint_destroy(files);
}

/* ---- all files ------------------------------------------------------------------------------- */

void doctor_files(struct doctor *doctor) {
    look_at_manifest(doctor);
    const bool has_state = look_at_state(doctor);
    look_at_keys(doctor);
    look_at_data(doctor);
    if (has_state) {
        look_at_room(doctor);
        look_at_speed(doctor);
        look_at_dates(doctor);
        look_at_checkpoint(doctor);
    } else {
        doctor_say(doctor, DOCTOR_SKIP, "disk.room", NULL, "there is no state folder");
        doctor_say(doctor, DOCTOR_SKIP, "disk.speed", NULL, "there is no state folder");
        doctor_say(doctor, DOCTOR_SKIP, "clock.files", NULL, "there is no state folder");
    }
}
