/* doctor_checkpoint.c - reads the newest checkpoint of this node, every byte of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/common/checkpoint_progress.h"
#include "daemon/cli/doctor/doctor.h"

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

void doctor_checkpoint(struct doctor *doctor) {
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
