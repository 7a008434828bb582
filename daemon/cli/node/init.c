/* init.c - `thinwire init`: identity, run secret, folders and configuration of a new node. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/auth/identity.h"
#include "daemon/auth/secret.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/common/page.h"
#include "daemon/cli/node/init_ask.h"
#include "daemon/cli/node/node_files.h"
#include "daemon/cli/run/manifest_text.h"

struct init {
    struct node_files files;
    const char *secret_from; /* file with the run's secret; "-": standard input; NULL: none */
};

/* Checks that no file is in the way, before anything is written. */
static enum tw_exit is_free(const struct init *init) {
    const char *const config = init->files.config_path, *const key = init->files.key_path;
    const bool has_sudo = cli_needs_sudo(config);
    char check[CLI_COMMAND_BYTES], start[CLI_COMMAND_BYTES];
    if (access(config, F_OK) == 0)
        return cli_fail(
            TW_EXIT_USAGE,
            "%s exists and is not overwritten. Change that file as you like, then `%s` and `%s`. "
            "Another node needs a place of its own: --config NAME or --dir FOLDER",
            config, cli_command(config, has_sudo, "config check", check),
            cli_command(config, has_sudo, "start", start));
    if (access(key, F_OK) == 0)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s exists and is not overwritten: another node has this state folder, or "
                        "`init` was interrupted. Name another --state-dir, or move the key away",
                        key);
    return TW_EXIT_OK;
}

static enum tw_exit read_secret(const char *from, char hex[TW_SECRET_BYTES * 2 + 2]) {
    FILE *const file = strcmp(from, "-") == 0 ? stdin : fopen(from, "re");
    if (file == NULL) return cli_fail(TW_EXIT_IDENTITY, "%s: %s", from, strerror(errno));
    const bool is_read = fgets(hex, TW_SECRET_BYTES * 2 + 2, file) != NULL;
    if (file != stdin) (void)fclose(file);
    if (!is_read) return cli_fail(TW_EXIT_IDENTITY, "%s: holds no secret", from);
    hex[strcspn(hex, "\r\n")] = 0;
    return TW_EXIT_OK;
}

static enum tw_exit make_secret(const struct init *init, bool *is_new) {
    struct tw_error err;
    const char *const path = init->files.config.network.secret_file;
    *is_new = false;
    if (access(path, F_OK) == 0 && init->secret_from == NULL) return TW_EXIT_OK;
    enum tw_status status;
    if (init->secret_from != NULL) {
        char hex[TW_SECRET_BYTES * 2 + 2];
        struct tw_secrets secrets = {.count = 1};
        const enum tw_exit rc = read_secret(init->secret_from, hex);
        if (rc != TW_EXIT_OK) return rc;
        status = tw_secret_parse(hex, &secrets.list[0], &err);
        if (status == TW_OK && access(path, F_OK) == 0)
            status = tw_fail(&err, TW_CONFIG, "%s exists already and is kept", path);
        if (status == TW_OK) status = tw_secrets_save(path, &secrets, &err);
        explicit_bzero(hex, sizeof(hex));
        tw_secrets_wipe(&secrets);
    } else {
        status = tw_secret_create(path, &err);
        *is_new = true;
    }
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

/* Makes the folders, and the secret and the key if they do not exist. */
static enum tw_exit make_keys(const struct init *init, bool has_secret, char hex[TW_ID_HEX_BYTES],
                              bool *is_new_secret) {
    struct tw_error err;
    struct tw_identity identity;
    enum tw_exit rc = node_files_folders(&init->files);
    if (rc == TW_EXIT_OK && has_secret) rc = make_secret(init, is_new_secret);
    if (rc != TW_EXIT_OK) return rc;
    if ((access(init->files.key_path, F_OK) != 0 &&
         tw_identity_create(init->files.key_path, &err) != TW_OK) ||
        tw_identity_open(init->files.key_path, &identity, &err) != TW_OK) {
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    }
    tw_id_hex(&identity.id, hex);
    tw_identity_close(&identity);
    return TW_EXIT_OK;
}

static enum tw_exit make_node(const struct init *init, char hex[TW_ID_HEX_BYTES],
                              bool *is_new_secret) {
    enum tw_exit rc = make_keys(init, true, hex, is_new_secret);
    if (rc == TW_EXIT_OK) rc = node_files_write_config(&init->files);
    return rc == TW_EXIT_OK ? node_files_hand_over(&init->files) : rc;
}

/* Returns true if the manifest exists and names an owner. Such a run has no secret. */
static bool has_owner(const struct tw_config *config) {
    static struct tw_run run;
    return cli_manifest_load(config->node.run, &run, NULL) == TW_OK &&
           run.security.admission == TW_ADMISSION_OWNER;
}

/* Returns true if the manifest exists and its trainers bring their own data. */
static bool has_own_data(const struct tw_config *config) {
    static struct tw_run run;
    return cli_manifest_load(config->node.run, &run, NULL) == TW_OK && tw_run_has_own_data(&run);
}

static void say_next(const struct init *init, const char *hex, bool is_new_secret) {
    const struct tw_config *const config = &init->files.config;
    static const char *const NEXT[] = {"config check", "start", "status --watch", "invite", NULL};
    struct page page;
    FILE *const to = page_begin(&page, stdout);
    (void)fprintf(to, "This node is %s\n\n  %-14s%s\n  %-14s%s\n  %-14s%s (%s)\n\nNext steps:\n",
                  hex, "configuration", init->files.config_path, "identity", init->files.key_path,
                  "run secret", config->network.secret_file, is_new_secret ? "new" : "as given");
    int n = 1;
    if (access(config->node.run, R_OK) != 0) {
        (void)fprintf(to,
                      "  %d.   Put the run's manifest at %s (`thinwire run new NAME --data TEXT` "
                      "makes one for a new run).\n",
                      n++, config->node.run);
    }
    if (config->node.data[0] == 0 && !has_own_data(config)) {
        (void)fprintf(
            to,
            "  %d.  Name the training text with `data = ` in the configuration, unless the run "
            "trains on a dataset, which is fetched from the other nodes.\n",
            n++);
    }
    if (has_owner(config)) {
        (void)fprintf(to,
                      "  %d.  Have the run's owner sign a certificate: `thinwire owner sign "
                      "%s`; "
                      "then `thinwire owner import FILE` here. This run needs no secret.\n",
                      n++, hex);
    }
    if (!is_new_secret && config->network.peers_count == 0) {
        (void)fprintf(
            to, "  %d.  Name a node of the run with `peers = host:port` in the configuration.\n",
            n++);
    }
    (void)fprintf(
        to,
        "  %d.  Check the configuration, start, and look at the status; `invite` prints a line "
        "with which another machine joins:\n",
        n);
    page_end(&page);
    node_files_say_next(&init->files, NEXT);
}

/* Gives a configured node another key, for a copy of another node. The old key stays beside it. */
static enum tw_exit renew_key(struct cli *cli) {
    static const char *const OPTIONS[] = {"--new-key", "--config", "--json", NULL};
    static struct tw_config config;
    char path[TW_PATH_BYTES + 16], old[TW_PATH_BYTES + 24], hex[TW_ID_HEX_BYTES];
    struct tw_error err;
    struct tw_identity identity;
    struct stat owner;
    enum tw_exit rc = cli_done(cli, "init", OPTIONS);
    if (rc == TW_EXIT_OK) rc = cli_config(cli, &config);
    if (rc != TW_EXIT_OK) return rc;
    (void)snprintf(path, sizeof(path), "%s/identity.key", config.node.state_dir);
    (void)snprintf(old, sizeof(old), "%s.old", path);
    if (stat(path, &owner) != 0 || rename(path, old) != 0)
        return cli_fail(TW_EXIT_IDENTITY, "%s: %s", path, strerror(errno));
    /* With sudo, the key of a service must stay its user's. */
    if (tw_identity_create(path, &err) != TW_OK ||
        tw_identity_open(path, &identity, &err) != TW_OK ||
        (geteuid() == 0 && chown(path, owner.st_uid, owner.st_gid) != 0)) {
        (void)unlink(path);
        (void)rename(old, path);
        return cli_fail(TW_EXIT_IDENTITY, "the new key cannot be written; the old one stays");
    }
    tw_id_hex(&identity.id, hex);
    tw_identity_close(&identity);
    if (cli->json)
        (void)printf("{\"id\": \"%s\", \"identity\": \"%s\"}\n", hex, path);
    else
        (void)printf("This node is now %s; its old key is %s.\n"
                     "Restart it: `thinwire leave`, then `thinwire start`. In a run with an owner, "
                     "it needs a certificate for the new key first.\n",
                     hex, old);
    return TW_EXIT_OK;
}

/* ---- a node that lacks files ---------------------------------------------------------------- */

/* Finds a configured node that lacks its key or its secret. It is the node that other commands
 * mean, while a new one would be elsewhere if this folder has only one node of another name.
 * Returns false if there is none, or if flags describe a new node. */
static bool find_incomplete(const struct cli *cli, struct init *init) {
    static const char *const NEW[] = {"run",   "data",   "name",   "listen",
                                      "peers", "upload", "threads"};
    struct node_files *const files = &init->files;
    char path[TW_PATH_BYTES];
    struct tw_error err;
    bool is_new = init->secret_from != NULL;
    for (size_t i = 0; i < sizeof(NEW) / sizeof(NEW[0]); i++)
        is_new = is_new || node_files_value(files, NEW[i]) != NULL;
    memcpy(path, files->config_path, sizeof(path));
    if (is_new || (path[0] == 0 && tw_config_find(cli->config_option, path, &err) != TW_OK) ||
        access(path, F_OK) != 0 || tw_config_load(&files->config, path, &err) != TW_OK)
        return false;
    const int size = snprintf(files->key_path, sizeof(files->key_path), "%s/identity.key",
                              files->config.node.state_dir);
    const bool lacks_secret =
        !has_owner(&files->config) && access(files->config.network.secret_file, F_OK) != 0;
    if (size >= (int)sizeof(files->key_path) ||
        (access(files->key_path, F_OK) == 0 && !lacks_secret))
        return false;
    memcpy(files->config_path, path, sizeof(path));
    return true;
}

/* Makes the files that the node lacks. Its configuration stays. */
static enum tw_exit complete_node(const struct cli *cli, const struct init *init) {
    const struct tw_config *const config = &init->files.config;
    const bool is_new_key = access(init->files.key_path, F_OK) != 0;
    char hex[TW_ID_HEX_BYTES];
    bool is_new_secret = false;
    enum tw_exit rc = make_keys(init, !has_owner(config), hex, &is_new_secret);
    if (rc == TW_EXIT_OK) rc = node_files_hand_over(&init->files);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) {
        (void)printf("{\"id\": \"%s\"}\n", hex);
        return TW_EXIT_OK;
    }
    (void)printf("%s is configured already, and lacked this:\n", init->files.config_path);
    if (is_new_key) (void)printf("  identity   %s, of node %s\n", init->files.key_path, hex);
    if (is_new_secret)
        (void)printf("  run secret %s, for a new run: put the secret of another run there, if this "
                     "node is to be in it\n",
                     config->network.secret_file);
    return TW_EXIT_OK;
}

enum tw_exit cli_init(struct cli *cli) {
    if (cli_flag(cli, "--new-key")) return renew_key(cli);
    static const char *const OPTIONS[] = {NODE_FILES_OPTIONS, "--secret-file", "--new-key", NULL};
    static struct init init;
    char hex[TW_ID_HEX_BYTES];
    bool is_new_secret = false;
    enum tw_exit rc = node_files_options(cli, &init.files);
    if (rc != TW_EXIT_OK) return rc;
    (void)cli_option(cli, "--secret-file", &init.secret_from);
    rc = cli_done(cli, "init", OPTIONS);
    if (rc == TW_EXIT_OK && find_incomplete(cli, &init)) return complete_node(cli, &init);
    if (rc == TW_EXIT_OK) rc = node_files_find(cli, &init.files);
    if (rc == TW_EXIT_OK) rc = node_files_plan(&init.files);
    if (rc == TW_EXIT_OK) rc = is_free(&init);
    if (rc == TW_EXIT_OK) rc = init_check(&init.files);
    if (rc == TW_EXIT_OK) rc = init_ask(cli, &init.files);
    if (rc == TW_EXIT_OK) rc = node_files_plan(&init.files);
    if (rc == TW_EXIT_OK) rc = make_node(&init, hex, &is_new_secret);
    if (rc != TW_EXIT_OK) return rc;
    if (!cli->json) {
        say_next(&init, hex, is_new_secret);
        return TW_EXIT_OK;
    }
    json_t *const json =
        json_pack("{s:s,s:s,s:s,s:s}", "id", hex, "config", init.files.config_path, "identity",
                  init.files.key_path, "secret", init.files.config.network.secret_file);
    (void)json_dumpf(json, stdout, JSON_INDENT(1));
    (void)fputc('\n', stdout);
    json_decref(json);
    return TW_EXIT_OK;
}
