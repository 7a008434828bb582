/* run_lists.c - `thinwire run presets`, `run codecs` and `run keys`: the values of sync.preset and
 * sync.codec, and the keys of --set. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "compress/codec.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/page.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/cli/run/run_lists.h"
#include "proto/run/run_key.h"

static const char *const about[] = {
    [TW_PRESET_DILOCO] = "all nodes merge the whole model, now and then",
    [TW_PRESET_STREAMING] = "a fragment at a time, hidden behind the steps; the default",
    [TW_PRESET_EAGER] = "exchange takes a period; the own share is applied at once",
    [TW_PRESET_NOLOCO] = "nodes merge in pairs, each with its own anchor; no group to wait for",
    [TW_PRESET_CO2] = "exchange takes a period; stale momentum is damped",
    [TW_PRESET_DECOUPLED] = "for unequal nodes that come and go; direction and norm merged apart",
    [TW_PRESET_SPARSELOCO] = "only the largest changes are sent, the rest later",
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

static enum tw_exit print_json(json_t *rows) {
    const int rc = json_dumpf(rows, stdout, JSON_INDENT(1));
    (void)fputc('\n', stdout);
    json_decref(rows);
    return rc == 0 ? TW_EXIT_OK : TW_EXIT_FAILURE;
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

enum tw_exit cli_run_presets(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json", NULL};
    const enum tw_exit rc = cli_done(cli, "run presets", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) {
        json_t *const rows = json_array();
        for (unsigned i = 0; i < PRESETS_COUNT; i++) json_array_append_new(rows, preset_json(i));
        return print_json(rows);
    }
    struct page page;
    FILE *const to = page_begin(&page, stdout);
    for (unsigned i = 0; i < PRESETS_COUNT; i++) print_preset(to, i);
    (void)fprintf(
        to, "`thinwire run new NAME --preset PRESET` starts from such a row, fitted to model and "
            "budget; every key of it can be changed: --set sync.period=50.\n");
    page_end(&page);
    return TW_EXIT_OK;
}

enum tw_exit cli_run_codecs(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json", NULL};
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    const enum tw_exit rc = cli_done(cli, "run codecs", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) {
        json_t *const rows = json_array();
        for (uint32_t i = 0; i < count; i++) {
            json_array_append_new(rows, json_pack("{s:s,s:f,s:b,s:b}", "name", codecs[i]->name,
                                                  "bits_per_parameter", codecs[i]->bits,
                                                  "needs_feedback", codecs[i]->needs_feedback,
                                                  "is_sparse", codecs[i]->is_sparse));
        }
        return print_json(rows);
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

enum tw_exit cli_run_keys(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json", NULL};
    static struct tw_run defaults;
    uint32_t count;
    const struct tw_run_key *const keys = tw_run_keys(&count);
    const enum tw_exit rc = cli_done(cli, "run keys", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    tw_run_defaults(&defaults);
    if (cli->json) {
        json_t *const rows = json_array();
        for (uint32_t i = 0; i < count; i++) {
            json_array_append_new(rows, key_json(&keys[i], &defaults));
        }
        return print_json(rows);
    }
    for (uint32_t i = 0; i < count; i++) print_key(&keys[i], &defaults);
    (void)printf("\n`thinwire run new NAME --set KEY=VALUE`; keys that are not set follow from\n"
                 "--model, --preset and --data, or have the values above.\n");
    return TW_EXIT_OK;
}
