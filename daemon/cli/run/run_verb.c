/* run_verb.c - `thinwire run show`, `run models`, and the dispatch of the words after `run`. */
#include <string.h>

#include "base/nearest.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/page.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/cli/run/run_lists.h"
#include "daemon/cli/run/run_new.h"
#include "daemon/cli/run/run_speed.h"

enum tw_exit cli_run_models(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json", "--trainers", "--config", "--socket", NULL};
    char verb[] = "models", json[] = "--json", trainers[] = "--trainers";
    char *argv[] = {verb, NULL, NULL};
    int count = 1;
    if (cli_flag(cli, "--trainers")) argv[count++] = trainers;
    if (cli->json) argv[count++] = json;
    const enum tw_exit rc = cli_done(cli, "run models", OPTIONS);
    return rc == TW_EXIT_OK ? cli_become("thinwire-engine", count, argv) : rc;
}

static enum tw_exit print_json(const struct tw_run *run, const char *path) {
    json_t *const json = cli_manifest_json(run, path);
    const int rc = json_dumpf(json, stdout, JSON_INDENT(1));
    (void)fputc('\n', stdout);
    json_decref(json);
    return rc == 0 ? TW_EXIT_OK : TW_EXIT_FAILURE;
}

static void explain(const struct tw_run *run, const struct cli_speed *speed) {
    const struct cli_pace pace = cli_speed_pace(speed, run);
    struct page page;
    cli_manifest_explain(page_begin(&page, stdout), run, &pace);
    page_end(&page);
}

static enum tw_exit run_show(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json",   "--steps-per-s", "--step-time",
                                          "--config", "--socket",      NULL};
    static struct tw_run run;
    struct tw_error err;
    struct cli_speed speed;
    enum tw_exit rc = cli_speed_read(cli, &speed);
    const char *const path = cli_operand(cli);
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "run show", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    if (path != NULL) {
        if (cli_manifest_load(path, &run, &err) != TW_OK) {
            return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
        }
        if (cli->json) return print_json(&run, path);
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
