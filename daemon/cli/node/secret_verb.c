/* secret_verb.c - `thinwire secret`: the run secret of this node, and its replacement without a
 * gap. A running daemon notices the changed file within seconds. Secrets are shown only by their
 * marks. */
#include <errno.h>
#include <string.h>

#include "daemon/auth/identity.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/run/manifest_text.h"

static enum tw_exit save_secrets(const char *path, const struct tw_secrets *secrets) {
    struct tw_error err = {0};
    if (tw_secrets_save(path, secrets, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    return TW_EXIT_OK;
}

static enum tw_exit show_marks(const struct cli *cli, const char *path,
                               const struct tw_secrets *secrets) {
    char mark[TW_SECRET_MARK_BYTES];
    json_t *const list = json_array();
    for (uint32_t i = 0; i < secrets->count; i++) {
        tw_secret_mark(&secrets->list[i], mark);
        (void)json_array_append_new(list, json_string(mark));
        if (!cli->json)
            (void)printf("%s  %s\n", mark, i == 0 ? "in use, and accepted" : "accepted");
    }
    if (cli->json) {
        json_t *const json = json_pack("{s:s,s:o}", "file", path, "marks", json_incref(list));
        (void)json_print(json);
    } else {
        (void)printf("\n%s\n", path);
    }
    json_decref(list);
    return TW_EXIT_OK;
}

/* Returns the index of the secret with this mark. Otherwise prints an error and returns -1. */
static int find_mark(const struct tw_secrets *secrets, const char *verb, const char *mark) {
    char own[TW_SECRET_MARK_BYTES];
    for (uint32_t i = 0; mark != NULL && i < secrets->count; i++) {
        tw_secret_mark(&secrets->list[i], own);
        if (strcmp(own, mark) == 0) return (int)i;
    }
    (void)cli_fail(TW_EXIT_USAGE,
                   "secret %s: no secret has the mark %.20s; `thinwire secret show` lists "
                   "the marks",
                   verb, mark != NULL ? mark : "nothing");
    return -1;
}

/* Reads the file `from` and chooses the first secret that this node does not have: another node's
 * file may also contain the old one. If `file` is NULL, draws a fresh secret. */
static enum tw_exit read_secret(FILE *file, const char *from, const struct tw_secrets *here,
                                struct tw_secret *secret) {
    struct tw_error err = {0};
    char hex[2 * TW_SECRET_BYTES + 3];
    if (file == NULL) {
        if (tw_secret_draw(secret, &err) == TW_OK) return TW_EXIT_OK;
        return cli_fail(TW_EXIT_FAILURE, "%s", err.message);
    }
    enum tw_status status = tw_fail(&err, TW_CONFIG, "it has no secret that is not here already");
    bool is_found = false;
    while (!is_found && fgets(hex, sizeof(hex), file) != NULL) {
        hex[strcspn(hex, "\r\n")] = 0;
        status = tw_secret_parse(hex, secret, &err);
        if (status != TW_OK) break;
        is_found = tw_secrets_find(here, secret) < 0;
        if (!is_found) status = tw_fail(&err, TW_CONFIG, "it is here already");
    }
    explicit_bzero(hex, sizeof(hex));
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_IDENTITY, "%s: %s", from, err.message);
}

static enum tw_exit add_secret(const char *path, struct tw_secrets *secrets, FILE *file,
                               const char *from) {
    if (secrets->count == TW_SECRETS_MAX)
        return cli_fail(TW_EXIT_USAGE,
                        "secret add: there are %d already; `secret remove` one first",
                        TW_SECRETS_MAX);
    const enum tw_exit rc = read_secret(file, from, secrets, &secrets->list[secrets->count]);
    if (rc != TW_EXIT_OK) return rc;
    secrets->count++;
    return save_secrets(path, secrets);
}

static enum tw_exit use_secret(const char *path, struct tw_secrets *secrets, const char *mark) {
    const int at = find_mark(secrets, "use", mark);
    if (at < 0) return TW_EXIT_USAGE;
    const struct tw_secret first = secrets->list[0];
    secrets->list[0] = secrets->list[at];
    secrets->list[at] = first;
    return save_secrets(path, secrets);
}

static enum tw_exit take_out(const char *path, struct tw_secrets *secrets, const char *mark) {
    const int at = find_mark(secrets, "remove", mark);
    if (at < 0) return TW_EXIT_USAGE;
    if (secrets->count == 1)
        return cli_fail(TW_EXIT_USAGE, "secret remove: it is the only one; `secret add` the "
                                       "new one first");
    secrets->list[0] = secrets->list[1 - at];
    secrets->count = 1;
    return save_secrets(path, secrets);
}

/* Loads the secrets. Prints errors itself; a run with an owner has none. */
static enum tw_exit load_secrets(const struct tw_config *config, struct tw_secrets *secrets) {
    static struct tw_run run;
    struct tw_error err = {0};
    if (cli_manifest_load(config->node.run, &run, NULL) == TW_OK &&
        run.security.admission == TW_ADMISSION_OWNER)
        return cli_fail(TW_EXIT_USAGE,
                        "secret: run %s has an owner and no secret; `thinwire owner revoke` shuts "
                        "a node out",
                        run.name);
    if (tw_secrets_open(config->network.secret_file, secrets, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

enum tw_exit cli_secret(struct cli *cli) {
    static struct tw_config config;
    struct tw_secrets secrets = {0};
    const char *const verb = cli_operand(cli), *const what = cli_operand(cli);
    enum tw_exit rc = cli_done(cli, "secret");
    if (rc != TW_EXIT_OK) return rc;
    /* `add` opens its file as the caller, before this process becomes the node's user. */
    const bool is_given = verb != NULL && strcmp(verb, "add") == 0 && what != NULL;
    FILE *const file = !is_given ? NULL : strcmp(what, "-") == 0 ? stdin : fopen(what, "re");
    if (is_given && file == NULL)
        return cli_fail(TW_EXIT_IDENTITY, "%s: %s", what, strerror(errno));
    rc = cli_node_config(cli, &config);
    const char *const path = config.network.secret_file;
    if (rc == TW_EXIT_OK) rc = load_secrets(&config, &secrets);
    if (rc != TW_EXIT_OK) {
    } else if (verb == NULL || strcmp(verb, "show") == 0) {
        rc = TW_EXIT_OK;
    } else if (strcmp(verb, "add") == 0) {
        rc = add_secret(path, &secrets, file, what);
    } else if (strcmp(verb, "use") == 0) {
        rc = use_secret(path, &secrets, what);
    } else if (strcmp(verb, "remove") == 0) {
        rc = take_out(path, &secrets, what);
    } else {
        rc = cli_fail(TW_EXIT_USAGE, "secret: `%s` is unknown; it is show, add, use or remove",
                      verb);
    }
    if (rc == TW_EXIT_OK) rc = show_marks(cli, path, &secrets);
    if (file != NULL && file != stdin) (void)fclose(file);
    tw_secrets_wipe(&secrets);
    return rc;
}
