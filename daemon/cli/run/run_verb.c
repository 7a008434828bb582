/* run_verb.c - `thinwire run new`, `run show`, and the lists of all that a manifest can name. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/page.h"
#include "base/units.h"
#include "compress/codec.h"
#include "daemon/auth/gate.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/node/node_files.h"
#include "daemon/cli/node/owner.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/cli/run/run_speed.h"
#include "daemon/cli/run/run_wish.h"
#include "daemon/cli/run/ways.h"
#include "proto/run/run_key.h"

/* ---- lists ----------------------------------------------------------------------------------- */

static const char *const about[] = {
    [TW_PRESET_DILOCO] = "all nodes merge the whole model, now and then",
    [TW_PRESET_STREAMING] =
        "a fragment at a time, hidden behind the steps; the default of two or three nodes",
    [TW_PRESET_EAGER] = "exchange takes a period; the own share is applied at once",
    [TW_PRESET_NOLOCO] = "nodes merge in pairs, each with its own anchor; no group to wait for",
    [TW_PRESET_CO2] = "exchange takes a period; stale momentum is damped",
    [TW_PRESET_DECOUPLED] = "for unequal nodes that come and go; direction and norm merged apart",
    [TW_PRESET_SPARSELOCO] =
        "only the largest changes are sent, the rest later; the default from four nodes on",
    [TW_PRESET_LOCAL_SGD] = "plain averaging, often",
    [TW_PRESET_BTM] = "together for half of the budget, then alone; `thinwire merge` at the end",
};
enum { PRESETS_COUNT = sizeof(about) / sizeof(about[0]) };

static const struct tw_run *fitted(unsigned preset) {
    static struct tw_run run;
    tw_run_defaults(&run);
    tw_run_apply_preset(&run, (enum tw_preset)preset);
    return &run;
}

static json_t *preset_json(unsigned preset) {
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    json_t *const row = json_object();
    json_object_set_new(row, "about", json_string(about[preset]));
    for (uint32_t i = 0; i < count; i++) {
        char value[TW_RUN_VALUE_BYTES];
        if (strncmp(keys[i].name, "sync.", 5) != 0) continue;
        tw_run_key_format(&keys[i], fitted(preset), value);
        json_object_set_new(row, keys[i].name, json_string(value));
    }
    return row;
}

static void print_preset(FILE *to, unsigned preset) {
    const struct tw_run *const run = fitted(preset);
    char name[TW_RUN_VALUE_BYTES], topology[TW_RUN_VALUE_BYTES], sent[TW_RUN_VALUE_BYTES];
    char outer[TW_RUN_VALUE_BYTES], merge[TW_RUN_VALUE_BYTES], weights[TW_RUN_VALUE_BYTES];
    (void)fprintf(to, "%-11s %s\n", cli_run_word(run, "sync.preset", name), about[preset]);
    (void)fprintf(to, "            %s", cli_run_word(run, "sync.topology", topology));
    if (run->sync.topology == TW_TOPOLOGY_SOLO) {
        (void)fprintf(to, "\n\n");
        return;
    }
    (void)fprintf(
        to, ", %" PRIu32 " fragment%s, each every %" PRIu32 " steps, overlap %" PRIu32 ", %s, %s\n",
        run->sync.fragments, run->sync.fragments == 1 ? "" : "s", run->sync.period,
        run->sync.overlap, cli_run_word(run, "sync.sent", sent),
        cli_run_word(run, "sync.outer", outer));
    if (run->sync.together_millionths < 1000000)
        (void)fprintf(to, "            until %.3g %% of the budget; then alone\n",
                      run->sync.together_millionths / 1e4);
    (void)fprintf(to, "            merged by %s, weights %s; %s",
                  cli_run_word(run, "sync.merge", merge),
                  cli_run_word(run, "sync.weights", weights), tw_codec_get(run->sync.codec)->name);
    if (run->sync.feedback_millionths > 0)
        (void)fprintf(to, " with feedback %.3g (%.3g local)", run->sync.feedback_millionths / 1e6,
                      run->sync.feedback_local_millionths / 1e6);
    if (run->sync.topology == TW_TOPOLOGY_GROUP)
        (void)fprintf(to, ", results in %s", tw_codec_get(run->sync.result)->name);
    (void)fprintf(to, "\n\n");
}

static enum tw_exit cli_run_presets(struct cli *cli) {
    const enum tw_exit rc = cli_done(cli, "run presets");
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) {
        json_t *const rows = json_array();
        for (unsigned i = 0; i < PRESETS_COUNT; i++) json_array_append_new(rows, preset_json(i));
        return json_print(rows);
    }
    struct tw_page page;
    FILE *const to = tw_page_begin(&page, stdout);
    for (unsigned i = 0; i < PRESETS_COUNT; i++) print_preset(to, i);
    (void)fprintf(
        to, "`thinwire run new NAME --preset PRESET` starts from such a row, fitted to model and "
            "budget; every key of it can be changed: --set sync.period=50.\n");
    tw_page_end(&page);
    return TW_EXIT_OK;
}

static enum tw_exit cli_run_codecs(struct cli *cli) {
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    const enum tw_exit rc = cli_done(cli, "run codecs");
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) {
        json_t *const rows = json_array();
        for (uint32_t i = 0; i < count; i++) {
            json_array_append_new(rows, json_pack("{s:s,s:f,s:b,s:b}", "name", codecs[i]->name,
                                                  "bits_per_parameter", codecs[i]->bits,
                                                  "needs_feedback", codecs[i]->needs_feedback,
                                                  "is_sparse", codecs[i]->is_sparse));
        }
        return json_print(rows);
    }
    (void)printf("sync.codec  bits per parameter\n");
    for (uint32_t i = 0; i < count; i++) {
        (void)printf("  %-9s %9.2f%s%s%s\n", codecs[i]->name, codecs[i]->bits,
                     codecs[i]->needs_feedback ? "   with sync.feedback" : "",
                     codecs[i]->is_sparse ? ", most are 0" : "",
                     codecs[i]->id == TW_CODEC_AUTO ? ", or the bits that a node's budget leaves"
                                                    : "");
    }
    (void)printf("\nCodecs without feedback can also be used for `sync.result`; so can ecsq2, "
                 "ecsq1, ecsq05 and topk.\n");
    return TW_EXIT_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

enum { KEY_COLUMNS = 78, KEY_INDENT = 4 };

static const char *unit_of(enum tw_run_kind kind) {
    switch (kind) {
    case TW_RUN_TOKENS: return "tokens";
    case TW_RUN_DURATION: return "seconds";
    case TW_RUN_REAL: return "number";
    case TW_RUN_U32:
    case TW_RUN_U64: return "whole number";
    case TW_RUN_ENUM: return "word";
    case TW_RUN_NAME: return "name";
    case TW_RUN_TENSORS: return "list";
    case TW_RUN_SHA256: break;
    }
    return "sha256";
}

static json_t *key_json(const struct tw_run_key *key, const struct tw_run *defaults) {
    char value[TW_RUN_VALUE_BYTES], accepts[160];
    tw_run_key_format(key, defaults, value);
    tw_run_key_accepts(key, accepts);
    json_t *const row = json_pack("{s:s,s:s,s:s,s:s,s:s}", "key", key->name, "about", key->help,
                                  "unit", unit_of(key->kind), "takes", accepts, "default", value);
    json_t *const words = json_array();
    for (unsigned i = 0; key->names != NULL && key->names[i] != NULL; i++) {
        json_array_append_new(words, json_string(key->names[i]));
    }
    if (key->names != NULL) json_object_set(row, "words", words);
    json_decref(words);
    return row;
}

/* Prints `text` with line breaks between words, from KEY_INDENT to the last column. */
static void print_wrapped(const char *text) {
    unsigned column = 0;
    while (*text != 0) {
        const unsigned size = (unsigned)strcspn(text, " ");
        if (column > 0 && column + 1 + size > KEY_COLUMNS) {
            (void)putchar('\n');
            column = 0;
        }
        (void)printf("%*s%.*s", column == 0 ? KEY_INDENT : 1, "", (int)size, text);
        column += (column == 0 ? KEY_INDENT : 1) + size;
        text += size + strspn(text + size, " ");
    }
    (void)putchar('\n');
}

static void print_key(const struct tw_run_key *key, const struct tw_run *defaults) {
    char value[TW_RUN_VALUE_BYTES], accepts[160], takes[224];
    tw_run_key_format(key, defaults, value);
    tw_run_key_accepts(key, accepts);
    (void)printf("%s = %s\n", key->name, value);
    print_wrapped(key->help);
    (void)snprintf(takes, sizeof(takes), "%s: %s", unit_of(key->kind), accepts);
    print_wrapped(takes);
}

static enum tw_exit cli_run_keys(struct cli *cli) {
    static struct tw_run defaults;
    uint32_t count;
    const struct tw_run_key *const keys = tw_run_keys(&count);
    const enum tw_exit rc = cli_done(cli, "run keys");
    if (rc != TW_EXIT_OK) return rc;
    tw_run_defaults(&defaults);
    if (cli->json) {
        json_t *const rows = json_array();
        for (uint32_t i = 0; i < count; i++) {
            json_array_append_new(rows, key_json(&keys[i], &defaults));
        }
        return json_print(rows);
    }
    for (uint32_t i = 0; i < count; i++) print_key(&keys[i], &defaults);
    (void)printf("\n`thinwire run new NAME --set KEY=VALUE`; keys that are not set follow from\n"
                 "--model, --preset and --data, or have the values above.\n");
    return TW_EXIT_OK;
}

/* `thinwire run models`. Becomes the engine, which computes the memory that each model needs on
 * this machine. Returns only if that fails. */
static enum tw_exit cli_run_models(struct cli *cli) {
    char verb[] = "models", json[] = "--json", trainers[] = "--trainers";
    char *argv[] = {verb, NULL, NULL};
    int count = 1;
    if (cli_flag(cli, "--trainers")) argv[count++] = trainers;
    if (cli->json) argv[count++] = json;
    const enum tw_exit rc = cli_done(cli, "run models");
    return rc == TW_EXIT_OK ? cli_become("thinwire-engine", count, argv) : rc;
}

/* ---- run new --------------------------------------------------------------------------------- */

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

/* Refuses a model whose fragments are too large for nodes to exchange: no daemon would start with
 * it. */
static enum tw_exit check_group(const struct tw_run *run) {
    static struct tw_layout layout;
    struct tw_error err;
    if (tw_layout_init(&layout, run, &err) == TW_OK &&
        tw_layout_check_group(&layout, &err) == TW_OK)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_MANIFEST, "run new: %s", err.message);
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
    return json_print(json);
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
    (void)cli_option(cli, "--out", &words->out);
    words->wants_all = cli_flag(cli, "--explain");
    enum tw_exit rc = cli_wish_read(cli, wish);
    if (rc != TW_EXIT_OK || is_list(wish->model)) return rc;
    wish->name = cli_operand(cli);
    rc = cli_done(cli, "run new");
    if (rc == TW_EXIT_OK && wish->name == NULL)
        return cli_fail(TW_EXIT_USAGE, "run new: name the run: `thinwire run new bible`");
    return rc;
}

static enum tw_exit cli_run_new(struct cli *cli) {
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
    if (rc == TW_EXIT_OK) rc = check_group(&run);
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
    struct tw_page page;
    FILE *const to = tw_page_begin(&page, stdout);
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
    tw_page_end(&page);
    say_next(cli, &run, path, wish.data);
    return TW_EXIT_OK;
}

/* ---- run show, and the dispatch of the words ------------------------------------------------- */

static void explain(const struct tw_run *run, const struct cli_speed *speed) {
    const struct cli_pace pace = cli_speed_pace(speed, run);
    struct tw_page page;
    cli_manifest_explain(tw_page_begin(&page, stdout), run, &pace);
    tw_page_end(&page);
}

static enum tw_exit run_show(struct cli *cli) {
    static struct tw_run run;
    struct tw_error err;
    struct cli_speed speed;
    enum tw_exit rc = cli_speed_read(cli, &speed);
    const char *const path = cli_operand(cli);
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "run show");
    if (rc != TW_EXIT_OK) return rc;
    if (path != NULL) {
        if (cli_manifest_load(path, &run, &err) != TW_OK) {
            return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
        }
        if (cli->json) return json_print(cli_manifest_json(&run, path));
        explain(&run, &speed);
        return TW_EXIT_OK;
    }
    json_t *json = NULL;
    rc = cli_get(cli, "/v1/run", &json);
    if (rc != TW_EXIT_OK || json == NULL) return rc;
    const char *const text = json_str(json, "manifest");
    if (tw_run_decode(text, strlen(text), &run, &err) == TW_OK) {
        explain(&run, &speed);
    } else {
        rc = cli_fail(TW_EXIT_MANIFEST, "the daemon's manifest: %s", err.message);
    }
    json_decref(json);
    return rc;
}

enum tw_exit cli_run(struct cli *cli) {
    static const char *const WORDS[] = {"new", "show", "models", "presets", "codecs", "keys"};
    const char *const word = cli_operand(cli);
    if (word != NULL && strcmp(word, "new") == 0) return cli_run_new(cli);
    if (word != NULL && strcmp(word, "show") == 0) return run_show(cli);
    if (word != NULL && strcmp(word, "models") == 0) return cli_run_models(cli);
    if (word != NULL && strcmp(word, "presets") == 0) return cli_run_presets(cli);
    if (word != NULL && strcmp(word, "codecs") == 0) return cli_run_codecs(cli);
    if (word != NULL && strcmp(word, "keys") == 0) return cli_run_keys(cli);
    const char *const near =
        word != NULL ? tw_nearest(word, WORDS, sizeof(WORDS) / sizeof(WORDS[0])) : NULL;
    if (near != NULL) return cli_fail(TW_EXIT_USAGE, "run: did you mean `run %s`?", near);
    return cli_fail(TW_EXIT_USAGE,
                    "run: `run new NAME` makes a manifest, `run show [FILE]` "
                    "explains one, `run models`, `run presets`, `run codecs` and `run keys` "
                    "list what it can name");
}
