/* rollback.c - `thinwire rollback`: lists the generations of the model on this node's disk, and
 * goes back to one of them. The daemon must be stopped. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/cli/common/checkpoint_progress.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/store/checkpoint.h"
#include "daemon/store/notes.h"

struct rollback {
    struct tw_config config;
    struct tw_run run;
    struct tw_layout layout;
    struct tw_id run_id;
    char folder[TW_PATH_BYTES]; /* the run's state folder */
    struct tw_checkpoint *files;
    struct tw_checkpoint_about about[TW_CHECKPOINT_FILES];
    uint64_t saved_s[TW_CHECKPOINT_FILES];
    uint64_t step; /* of the running daemon; 0: none answers */
    int lock_fd;
};

static const char *const NAMES[TW_CHECKPOINT_FILES] = {
    "a", "b", [TW_CHECKPOINT_PINNED] = "pinned", [TW_CHECKPOINT_UNDONE] = "undone"};

/* ---- the list -------------------------------------------------------------------------- */

static enum tw_exit open_folder(const struct cli *cli, struct rollback *back) {
    char hex[TW_ID_HEX_BYTES];
    struct tw_error err = {0};
    const enum tw_exit rc = cli_node_config(cli, &back->config);
    if (rc != TW_EXIT_OK) return rc;
    if (cli_manifest_load(back->config.node.run, &back->run, &err) != TW_OK ||
        tw_layout_init(&back->layout, &back->run, &err) != TW_OK) {
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    }
    back->run_id = tw_run_id(&back->run);
    tw_id_hex(&back->run_id, hex);
    const int size =
        snprintf(back->folder, sizeof(back->folder), "%s/%.16s", back->config.node.state_dir, hex);
    if (size >= (int)sizeof(back->folder)) return cli_fail(TW_EXIT_USAGE, "state_dir is too long");
    if (tw_checkpoint_create(&back->files, tw_file_system(), back->folder, &back->layout,
                             &back->run_id, &err) != TW_OK) {
        return cli_fail(TW_EXIT_STATE_DIR, "rollback: %s", err.message);
    }
    return TW_EXIT_OK;
}

/* Reads the headers. `is_whole`: checks every byte of every file, too. */
static void look(struct rollback *back, bool is_whole) {
    char path[TW_PATH_BYTES + 32];
    struct stat info;
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        struct tw_error err = {0};
        tw_checkpoint_look(back->files, i, &back->about[i]);
        const bool is_readable = back->about[i].exists && back->about[i].refused[0] == 0;
        if (is_whole && is_readable && tw_checkpoint_verify(back->files, i, &err) != TW_OK)
            (void)snprintf(back->about[i].refused, sizeof(back->about[i].refused), "%s",
                           err.message);
        (void)snprintf(path, sizeof(path), "%s/%s", back->folder, tw_checkpoint_file_name(i));
        back->saved_s[i] = stat(path, &info) == 0 ? (uint64_t)info.st_mtime : 0;
    }
}

/* Asks the node's daemon, if it runs, for its step: steps after the newest checkpoint count too. */
static uint64_t ask_step(const struct rollback *back) {
    const struct cli cli = {.socket_option = back->config.api.socket, .is_quiet = true};
    long code = 0;
    char *body = NULL;
    json_error_t err;
    if (cli_request(&cli, "GET", "/v1/status", &code, &body) != TW_EXIT_OK) return 0;
    json_t *const json = json_loads(body, 0, &err);
    const json_int_t step =
        json_integer_value(json_object_get(json_object_get(json, "train"), "steps"));
    json_decref(json);
    free(body);
    return step > 0 ? (uint64_t)step : 0;
}

/* Returns the file that a start loads, or TW_CHECKPOINT_FILES if there is none. */
static uint32_t find_newest(const struct rollback *back) {
    uint32_t newest = TW_CHECKPOINT_FILES;
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        const struct tw_checkpoint_about *const about = &back->about[i];
        if (!about->exists || about->refused[0] != 0) continue;
        if (newest == TW_CHECKPOINT_FILES || about->generation > back->about[newest].generation) {
            newest = i;
        }
    }
    return newest;
}

/* Returns the number of this node's steps that going back to the file would undo. */
static uint64_t count_lost(const struct rollback *back, uint32_t file) {
    const uint32_t newest = find_newest(back);
    if (newest == TW_CHECKPOINT_FILES) return 0;
    const uint64_t saved = back->about[newest].step, then = back->about[file].step;
    const uint64_t now = back->step > saved ? back->step : saved;
    return now > then ? now - then : 0;
}

static const char *reason_of(uint32_t file, uint32_t newest) {
    if (file == newest) return "the newest; a start continues it";
    if (file < TW_CHECKPOINT_SLOTS) return "the one before";
    return file == TW_CHECKPOINT_PINNED
               ? "from before the newest bad change of the anchor, if any"
               : "the newest before a rollback, or before the run began anew";
}

static void list_json(const struct rollback *back) {
    json_t *const rows = json_array();
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        const struct tw_checkpoint_about *const about = &back->about[i];
        char hex[TW_ID_HEX_BYTES];
        if (!about->exists) continue;
        tw_id_hex(&about->lineage, hex);
        json_t *const row = json_pack(
            "{s:s,s:I,s:I,s:I,s:I,s:s,s:I,s:b}", "file", NAMES[i], "round",
            (json_int_t)about->rounds, "step", (json_int_t)about->step, "lost_steps",
            (json_int_t)count_lost(back, i), "tokens", (json_int_t)about->tokens, "lineage", hex,
            "saved_unix_s", (json_int_t)back->saved_s[i], "newest", i == find_newest(back));
        if (about->refused[0] != 0) {
            static const char *const unknown[] = {"round", "step", "lost_steps", "tokens",
                                                  "lineage"};
            for (unsigned k = 0; k < sizeof(unknown) / sizeof(unknown[0]); k++)
                (void)json_object_set_new(row, unknown[k], json_null());
            (void)json_object_set_new(row, "error", json_string(about->refused));
        }
        (void)json_array_append_new(rows, row);
    }
    json_t *const json = json_pack("{s:s,s:o}", "folder", back->folder, "generations", rows);
    (void)json_print(json);
}

static void list(const struct rollback *back) {
    const uint32_t newest = find_newest(back);
    uint32_t count = 0;
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) count += back->about[i].exists;
    if (count == 0) {
        (void)printf("There is no generation in %s yet: the daemon writes one at each "
                     "node.checkpoint_interval.\n",
                     back->folder);
        return;
    }
    (void)printf("FILE    ROUND     STEP       LOST STEPS  SAVED                 LINEAGE   WHY\n");
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        const struct tw_checkpoint_about *const about = &back->about[i];
        char saved[TW_UNITS_BYTES], lineage[9];
        if (!about->exists) continue;
        if (about->refused[0] != 0) {
            (void)printf("%-7s %s\n", NAMES[i], about->refused);
            continue;
        }
        (void)tw_units_utc(saved, back->saved_s[i]);
        tw_id_short(&about->lineage, lineage);
        (void)printf("%-7s %-9" PRIu64 " %-10" PRIu64 " %-11" PRIu64 " %-21s %s  %s\n", NAMES[i],
                     about->rounds, about->step, count_lost(back, i), saved, lineage,
                     reason_of(i, newest));
    }
    (void)printf("\n%s\n", back->folder);
}

/* ---- going back ---------------------------------------------------------------------------- */

/* Finds the file that `word` names, by its file name or by its round. */
static enum tw_exit find_file(const struct rollback *back, const char *word, uint32_t *file) {
    char *end = NULL;
    errno = 0;
    const uint64_t round = strtoull(word, &end, 10);
    const bool is_round = word[0] >= '0' && word[0] <= '9' && *end == 0 && errno == 0;
    *file = TW_CHECKPOINT_FILES;
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        const struct tw_checkpoint_about *const about = &back->about[i];
        const bool is_it =
            is_round ? about->has_position && about->rounds == round : strcmp(word, NAMES[i]) == 0;
        if (!about->exists || !is_it) continue;
        if (about->refused[0] != 0) {
            return cli_fail(TW_EXIT_CORRUPT, "rollback: %s", about->refused);
        }
        if (*file == TW_CHECKPOINT_FILES || about->step > back->about[*file].step) *file = i;
    }
    if (*file < TW_CHECKPOINT_FILES) return TW_EXIT_OK;
    return cli_fail(
        TW_EXIT_USAGE,
        "rollback: there is no generation `%.20s` on this node's disk; `thinwire rollback` "
        "lists them. Perhaps another node has it",
        word);
}

/* Locks the state folder, so that no daemon can start while this process runs. */
static enum tw_exit lock_state(struct rollback *back) {
    char path[TW_PATH_BYTES + 8];
    (void)snprintf(path, sizeof(path), "%s/lock", back->config.node.state_dir);
    back->lock_fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (back->lock_fd < 0) {
        return cli_fail(TW_EXIT_STATE_DIR, "rollback: %s: %s", path, strerror(errno));
    }
    if (flock(back->lock_fd, LOCK_EX | LOCK_NB) == 0) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_STATE_DIR,
                    "rollback: the daemon of this node runs: `thinwire leave` first (systemctl "
                    "stop for a service)");
}

static enum tw_exit confirm(const struct rollback *back, uint32_t file, bool is_yes) {
    char answer[16] = "";
    if (is_yes) return TW_EXIT_OK;
    if (isatty(STDIN_FILENO) != 1) {
        return cli_fail(TW_EXIT_USAGE, "rollback: --yes says that you mean it");
    }
    (void)fprintf(stderr,
                  "This node goes back to round %" PRIu64 ", step %" PRIu64 ": %" PRIu64
                  " steps are lost. It refuses its lineages from then on. Go on? [y/N] ",
                  back->about[file].rounds, back->about[file].step, count_lost(back, file));
    if (fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y')) {
        return TW_EXIT_OK;
    }
    return cli_fail(TW_EXIT_FAILURE, "rollback: nothing was changed");
}

/* Makes this node refuse the lineages of all generations, even the chosen one's: other nodes may
 * have continued that lineage into the change that spoilt it. */
static enum tw_status refuse_lineages(const struct rollback *back, struct tw_error *err) {
    const struct tw_file_ops *ops = tw_file_system();
    struct tw_lineages refused;
    const int dir = ops->dir_open(ops->ctx, back->folder);
    if (dir < 0) return tw_fail(err, TW_IO, "%s: %s", back->folder, strerror(-dir));
    enum tw_status status = tw_lineages_read(ops, dir, &refused, err);
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        const struct tw_checkpoint_about *const about = &back->about[i];
        if (about->exists && about->refused[0] == 0 && about->has_position) {
            tw_lineages_add(&refused, &about->lineage);
        }
    }
    if (status == TW_OK) status = tw_lineages_write(ops, dir, &refused, err);
    (void)ops->close(ops->ctx, dir);
    return status;
}

static enum tw_exit go_back(struct rollback *back, uint32_t file, bool is_yes) {
    struct tw_error err = {0};
    enum tw_exit rc = lock_state(back);
    if (rc == TW_EXIT_OK) rc = confirm(back, file, is_yes);
    if (rc != TW_EXIT_OK) return rc;
    /* Verify first: refused lineages make this node leave its group, so nothing may be written if
     * the file is damaged. */
    enum tw_status status = tw_checkpoint_verify(back->files, file, &err);
    checkpoint_progress_end();
    if (status == TW_OK) status = refuse_lineages(back, &err);
    if (status == TW_OK) status = tw_checkpoint_go_back(back->files, file, &err);
    if (status != TW_OK) {
        return cli_fail(status == TW_CORRUPT ? TW_EXIT_CORRUPT : TW_EXIT_STATE_DIR, "rollback: %s",
                        err.message);
    }
    (void)printf("This node is at round %" PRIu64 ", step %" PRIu64
                 ". Its next start begins a lineage there.\n%s",
                 back->about[file].rounds, back->about[file].step,
                 file == find_newest(back) ? ""
                                           : "`thinwire rollback undone` goes forward again.\n");
    return TW_EXIT_OK;
}

enum tw_exit cli_rollback(struct cli *cli) {
    static struct rollback back;
    const bool is_yes = cli_flag(cli, "--yes");
    const char *const word = cli_operand(cli);
    enum tw_exit rc = cli_done(cli, "rollback");
    if (rc == TW_EXIT_OK) rc = open_folder(cli, &back);
    if (rc != TW_EXIT_OK) return rc;
    uint32_t file = 0;
    back.lock_fd = -1;
    checkpoint_progress_watch(back.files);
    look(&back, word == NULL); /* going back reads the chosen file alone */
    checkpoint_progress_end();
    if (word != NULL) {
        rc = find_file(&back, word, &file);
        if (rc == TW_EXIT_OK) rc = go_back(&back, file, is_yes);
    } else {
        back.step = ask_step(&back);
        (cli->json ? list_json : list)(&back);
    }
    if (back.lock_fd >= 0) (void)close(back.lock_fd);
    tw_checkpoint_destroy(back.files);
    return rc;
}
