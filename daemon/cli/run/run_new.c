#include "daemon/cli/run/run_new.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/auth/gate.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/common/page.h"
#include "daemon/cli/node/node_files.h"
#include "daemon/cli/node/owner_key.h"
#include "daemon/cli/run/run_wish.h"
#include "daemon/cli/run/ways.h"

static enum tw_exit write_new(const char *path, const char *text, size_t size) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) {
        return cli_fail(TW_EXIT_MANIFEST,
                        "%s exists; a manifest is never overwritten, since every "
                        "node must have the same: choose another --out",
                        path);
    }
    if (fd < 0) return cli_fail(TW_EXIT_MANIFEST, "%s: %s", path, strerror(errno));
    const bool is_written = write(fd, text, size) == (ssize_t)size && fsync(fd) == 0;
    const int why = errno;
    if (close(fd) == 0 && is_written) return TW_EXIT_OK;
    (void)unlink(path);
    return cli_fail(TW_EXIT_MANIFEST, "%s: %s", path, strerror(why));
}

/* The run's owner, if the user named none and wants no other admission. */
struct owner {
    bool is_wanted, is_new; /* is_new: the key was made by this command */
    char path[TW_PATH_BYTES];
};

/* Makes the holder of the key beside the manifest the run's owner. The manifest must be free: an
 * existing one keeps its owner. */
static enum tw_exit take_owner(struct tw_run *run, const char *path, struct owner *owner) {
    char folder[TW_PATH_BYTES];
    struct tw_error err;
    if (!owner_key_beside(path, owner->path))
        return cli_fail(TW_EXIT_MANIFEST, "--out: the path is too long");
    (void)snprintf(folder, sizeof(folder), "%s", path);
    if (access(path, F_OK) == 0 || access(dirname(folder), W_OK | X_OK) != 0)
        return write_new(path, "", 0); /* fails, and says why */
    if (owner_key_have(owner->path, &run->security.owner, &owner->is_new, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY,
                        "the owner's key: %s; or describe the run in another folder: --out FILE",
                        err.message);
    run->security.admission = TW_ADMISSION_OWNER;
    return TW_EXIT_OK;
}

static void explain_owner(FILE *to, const struct owner *owner) {
    if (!owner->is_wanted) return;
    if (!owner->is_new) {
        (void)fprintf(to, "Its owner is the holder of %s, as of other runs of that folder.\n",
                      owner->path);
        return;
    }
    (void)fprintf(to,
                  "The key of its owner is now in %s: its holder decides which nodes "
                  "are in the run. A running node does not need it. Keep a copy on another "
                  "machine: if it is lost, " OWNER_KEY_LOSS ".\n",
                  owner->path);
}

static enum tw_exit print_json(const struct tw_run *run, const char *path,
                               const struct cli_wish *wish, const struct owner *owner) {
    json_t *const json = cli_manifest_json(run, path);
    if (owner->is_wanted) (void)json_object_set_new(json, "owner_key", json_string(owner->path));
    if (cli_wish_has_budget(wish, run))
        (void)json_object_set_new(json, "budget", ways_budget_json(run, wish));
    if (cli_wish_fits_way(wish, run))
        (void)json_object_set_new(json, "expected_loss_ratio", json_real(ways_loss(run, wish)));
    if (wish->speed.is_measured)
        (void)json_object_set_new(json, "measured_step_s", json_real(1 / wish->speed.steps_per_s));
    const int rc = json_dumpf(json, stdout, JSON_INDENT(1));
    (void)fputc('\n', stdout);
    json_decref(json);
    return rc == 0 ? TW_EXIT_OK : TW_EXIT_FAILURE;
}

static void explain_data(FILE *to, const struct tw_run *run, const struct cli_data *data,
                         const char *path) {
    char bytes[TW_UNITS_BYTES], tokens[TW_UNITS_BYTES];
    const uint64_t each = data->is_dataset ? data->train_tokens : data->bytes;
    const double times = (double)run->train.tokens / (double)each;
    char passes[TW_UNITS_BYTES];
    (void)snprintf(passes, sizeof(passes), times < 0.95 ? "%.1g" : "%.1f", times);
    if (times >= 1000) (void)tw_units_short(passes, times);
    if (!data->is_dataset) {
        (void)fprintf(to, "            %s is %s, read %s times over by all nodes together\n", path,
                      tw_units_bytes(bytes, (double)data->bytes), passes);
        return;
    }
    (void)fprintf(to,
                  "            %s has %s tokens for training, read %s times over by all nodes "
                  "together;"
                  " it sets data.tokenizer = %s, data.heldout = %.6g, "
                  "data.separator = %u, model.vocab = %u\n",
                  path, tw_units_count(tokens, (double)data->train_tokens), passes,
                  run->data.tokenizer == TW_TOKENIZER_BYTES ? "bytes" : "ids",
                  run->data.heldout_millionths / 1e6, run->data.separator, run->model.vocab);
}

/* Explains which keys were derived from which others, and why. */
static void explain_fit(FILE *to, const struct tw_run *run, const struct cli_wish *wish) {
    static struct tw_run row;
    char time[TW_UNITS_BYTES];
    row = *run;
    tw_run_apply_preset(&row, run->sync.preset);
    if (run->sync.fragments < row.sync.fragments && !cli_wish_has(wish, "sync.fragments"))
        (void)fprintf(to,
                      "  Fit       %u fragment%s: the %u of the preset do not divide sync.period = "
                      "%u\n",
                      run->sync.fragments, tw_units_s(run->sync.fragments), row.sync.fragments,
                      run->sync.period);
    if (wish->speed.is_measured)
        (void)fprintf(to,
                      "  Speed     a step takes %s here, measured (%s)%s; give "
                      "--step-time if that of the nodes differs\n",
                      tw_units_duration(time, 1 / wish->speed.steps_per_s), wish->speed.engine,
                      wish->speed.sequences < wish->speed.batch ? " in part" : "");
    if (cli_wish_fits_way(wish, run)) ways_explain(to, run, wish);
    if (cli_wish_has_budget(wish, run)) {
        ways_budget_explain(to, run, wish);
    } else if (wish->budget.bytes > 0) {
        (void)fprintf(to, "  Budget    any will do: nothing is sent while training\n");
    }
}

static void explain_pick(FILE *to, const struct cli_pick *pick) {
    char all[TW_UNITS_BYTES];
    (void)fprintf(to, "  Tensors   %u of the %u of %s", pick->tensors, pick->seen, pick->path);
    (void)fprintf(to, ", which have %s parameters",
                  tw_units_count(all, (double)pick->elements_seen));
    if (pick->no_floats > 0)
        (void)fprintf(to, "; without the %u of whole numbers", pick->no_floats);
    (void)fprintf(to, "\n");
}

/* Returns true if the only node of this machine, or the one that the user named, has this manifest.
 */
static bool find_node(const struct cli *cli, const char *manifest, struct tw_config *config) {
    char path[TW_PATH_BYTES];
    struct tw_error err;
    return tw_config_find(cli->config_option, path, &err) == TW_OK &&
           tw_config_load(config, path, &err) == TW_OK && strcmp(config->node.run, manifest) == 0;
}

/* True if the node waits for the run to have its right to take part: `init` completes it. */
static bool is_incomplete(const struct tw_config *config, const struct tw_run *run) {
    char path[TW_PATH_BYTES + 32];
    if (run->security.admission == TW_ADMISSION_SECRET)
        return access(config->network.secret_file, F_OK) != 0;
    (void)snprintf(path, sizeof(path), "%s/%s", config->node.state_dir, TW_CERT_FILE);
    return run->security.admission == TW_ADMISSION_OWNER && access(path, F_OK) != 0;
}

/* Prints the next step: a node for the run, or the completion and start of the one that waited for
 * the manifest. */
static void say_next(const struct cli *cli, const struct tw_run *run, const char *path,
                     const char *data) {
    static struct tw_config config;
    static struct node_files files;
    char manifest[TW_PATH_BYTES], text[TW_PATH_BYTES];
    static const char *const NEXT[] = {"init", "start", NULL};
    const char *const whole = node_files_from_here(path, manifest);
    const char *const from = data != NULL ? node_files_from_here(data, text) : NULL;
    if (whole == NULL) return;
    if (find_node(cli, whole, &config)) {
        if (config.node.data[0] == '\0' && run->data.form == TW_FORM_FILE &&
            !tw_run_has_own_data(run))
            (void)printf("\nIts node names no text yet: write `data = %s` below [node] of %s.\n",
                         from != NULL ? from : "/path/of/the.txt", config.path);
        (void)printf("\nNext:\n");
        memcpy(files.config_path, config.path, sizeof(files.config_path));
        node_files_say_next(&files, NEXT + (is_incomplete(&config, run) ? 0 : 1));
        return;
    }
    const bool is_root = geteuid() == 0;
    if (is_root && from != NULL && cli_is_hidden(TW_CONFIG_FOLDER "/", from))
        (void)printf("\nFirst the data: " CLI_HIDDEN ".\n");
    (void)printf("\nNext, on this machine:\n\n    %sthinwire init %s %s%s --run ",
                 is_root && getenv("SUDO_USER") != NULL ? "sudo " : "",
                 is_root ? "--config" : "--dir", run->name,
                 !is_root && access(run->name, F_OK) == 0 ? "-node" : "");
    node_files_print_word(whole);
    if (from != NULL) (void)printf(" --data ");
    if (from != NULL) node_files_print_word(from);
    (void)putchar('\n');
}

/* Returns whether `--model list` or `--model help` asks for the list of models. */
static bool is_list(const char *model) {
    return model != NULL && (strcmp(model, "help") == 0 || strcmp(model, "list") == 0);
}

struct words {
    const char *out;
    bool wants_all; /* --explain: everything about the run, as `run show` prints it */
};

static enum tw_exit read_words(struct cli *cli, struct cli_wish *wish, struct words *words) {
    static const char *const OPTIONS[] = {CLI_WISH_OPTIONS, "--out", "--explain", NULL};
    (void)cli_option(cli, "--out", &words->out);
    words->wants_all = cli_flag(cli, "--explain");
    enum tw_exit rc = cli_wish_read(cli, wish);
    if (rc != TW_EXIT_OK || is_list(wish->model)) return rc;
    wish->name = cli_operand(cli);
    rc = cli_done(cli, "run new", OPTIONS);
    if (rc == TW_EXIT_OK && wish->name == NULL)
        return cli_fail(TW_EXIT_USAGE, "run new: name the run: `thinwire run new bible`");
    return rc;
}

enum tw_exit cli_run_new(struct cli *cli) {
    static struct tw_run run;
    static struct cli_wish wish;
    static struct owner owner;
    char text[TW_MANIFEST_BYTES_MAX], path[TW_PATH_BYTES];
    struct words words = {.out = NULL};
    enum tw_exit rc = read_words(cli, &wish, &words);
    if (rc != TW_EXIT_OK) return rc;
    if (is_list(wish.model)) {
        cli->argc = 0; /* the other words describe no run then */
        return cli_run_models(cli);
    }
    owner.is_wanted = cli_wish_lacks_owner(&wish);
    rc = cli_wish_make(&wish, &run);
    if (rc != TW_EXIT_OK) return rc;
    size_t size;
    (void)snprintf(path, sizeof(path), "%s%s", words.out != NULL ? words.out : run.name,
                   words.out != NULL ? "" : ".manifest");
    if (owner.is_wanted) rc = take_owner(&run, path, &owner);
    if (rc != TW_EXIT_OK) return rc;
    tw_run_encode(&run, text, &size);
    rc = write_new(path, text, size);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) return print_json(&run, path, &wish, &owner);
    const struct cli_pace pace = cli_wish_pace(&wish, &run);
    struct page page;
    FILE *const to = page_begin(&page, stdout);
    (words.wants_all ? cli_manifest_explain : cli_manifest_sum_up)(to, &run, &pace);
    if (wish.data != NULL) explain_data(to, &run, &wish.found, wish.data);
    if (wish.pick.path != NULL) explain_pick(to, &wish.pick);
    explain_fit(to, &run, &wish);
    (void)fprintf(to,
                  "\nWritten to %s; `thinwire run show %s` explains all of it. A ticket brings it "
                  "to the other machines%s.\n",
                  path, path,
                  run.data.form == TW_FORM_FILE && !tw_id_is_zero(&run.data.sha256)
                      ? ", but not the text: each needs the same file"
                      : "");
    explain_owner(to, &owner);
    page_end(&page);
    say_next(cli, &run, path, wish.data);
    return TW_EXIT_OK;
}
