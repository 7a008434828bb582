#include "daemon/cli/node/fresh.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/cli/common/checkpoint_progress.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/store/checkpoint.h"

struct fresh {
    struct tw_run run;
    struct tw_layout layout;
    struct tw_id run_id;
    char folder[TW_PATH_BYTES]; /* the run's state folder */
    struct tw_checkpoint *files;
};

static enum tw_exit open_files(const struct tw_config *config, struct fresh *fresh) {
    char hex[TW_ID_HEX_BYTES];
    struct tw_error err = {0};
    if (cli_manifest_load(config->node.run, &fresh->run, &err) != TW_OK ||
        tw_layout_init(&fresh->layout, &fresh->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    fresh->run_id = tw_run_id(&fresh->run);
    tw_id_hex(&fresh->run_id, hex);
    const int size =
        snprintf(fresh->folder, sizeof(fresh->folder), "%s/%.16s", config->node.state_dir, hex);
    if (size >= (int)sizeof(fresh->folder)) return cli_fail(TW_EXIT_USAGE, "state_dir is too long");
    if (tw_checkpoint_create(&fresh->files, tw_file_system(), fresh->folder, &fresh->layout,
                             &fresh->run_id, &err) != TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "start: %s", err.message);
    checkpoint_progress_watch(fresh->files);
    return TW_EXIT_OK;
}

static enum tw_exit set_aside(const struct fresh *fresh, uint32_t file, FILE *out) {
    char path[TW_PATH_BYTES + 32], aside[TW_PATH_BYTES + 48];
    (void)snprintf(path, sizeof(path), "%s/%s", fresh->folder, tw_checkpoint_file_name(file));
    (void)snprintf(aside, sizeof(aside), "%s.damaged", path);
    if (rename(path, aside) != 0)
        return cli_fail(TW_EXIT_STATE_DIR, "start: %s: %s", path, strerror(errno));
    (void)fprintf(out, "Set aside as %s\n", aside);
    return TW_EXIT_OK;
}

static enum tw_exit judge(const struct fresh *fresh, FILE *out) {
    enum tw_exit rc = TW_EXIT_OK;
    bool is_damaged[TW_CHECKPOINT_SLOTS] = {false};
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        struct tw_checkpoint_about about;
        struct tw_error err = {0};
        tw_checkpoint_look(fresh->files, i, &about);
        if (!about.exists) continue;
        const enum tw_status status = tw_checkpoint_verify(fresh->files, i, &err);
        checkpoint_progress_end();
        if (status == TW_OK) {
            (void)fprintf(out,
                          "%s is intact: the node starts from it, and --fresh changes nothing\n",
                          tw_checkpoint_file_name(i));
            return TW_EXIT_OK;
        }
        if (status != TW_CORRUPT && status != TW_IO)
            return cli_fail(TW_EXIT_MANIFEST, "start: %s", err.message);
        is_damaged[i] = true;
    }
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS && rc == TW_EXIT_OK; i++)
        if (is_damaged[i]) rc = set_aside(fresh, i, out);
    return rc;
}

enum tw_exit cli_fresh(const struct tw_config *config, FILE *out) {
    static struct fresh fresh;
    char path[TW_PATH_BYTES + 8];
    (void)snprintf(path, sizeof(path), "%s/lock", config->node.state_dir);
    const int lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0 && errno == ENOENT) return TW_EXIT_OK; /* it never ran */
    if (lock < 0) return cli_fail(TW_EXIT_STATE_DIR, "start: %s: %s", path, strerror(errno));
    enum tw_exit rc = TW_EXIT_OK;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
        rc = open_files(config, &fresh);
        if (rc == TW_EXIT_OK) rc = judge(&fresh, out);
        if (fresh.files != NULL) tw_checkpoint_destroy(fresh.files);
    }
    (void)close(lock);
    return rc;
}
