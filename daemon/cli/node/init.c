/* init.c - `thinwire init`: identity, right to be in the run, folders and configuration of a new
 * node. The right is a certificate if the owner's key is beside the manifest, or the run secret. */
#include "daemon/cli/node/init.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/page.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/node/node_files.h"
#include "daemon/cli/node/node_start.h"
#include "daemon/cli/node/owner.h"
#include "daemon/cli/run/data_path.h"
#include "daemon/cli/run/manifest_text.h"

/* ---- questions on a terminal ----------------------------------------------------------------- */

enum { TRIES = 3 };

struct question {
    const char *key, *text;
    enum tw_status (*check)(const char *answer, struct tw_error *err);
};

static enum tw_status check_run(const char *answer, struct tw_error *err) {
    static struct tw_run run;
    return cli_manifest_load(answer, &run, err);
}

static enum tw_status check_data(const char *answer, struct tw_error *err) {
    if (access(answer, R_OK) == 0) return TW_OK;
    return tw_fail(err, TW_IO, "%s: %s", answer, strerror(errno));
}

static enum tw_status check_upload(const char *answer, struct tw_error *err) {
    static struct tw_config config;
    char text[TW_PATH_BYTES + 32];
    (void)snprintf(text, sizeof(text), "[network]\nupload = %s\n", answer);
    if (tw_config_parse(&config, "answer", text, strlen(text), err) == TW_OK) return TW_OK;
    const char *const reason = strstr(err->message, "upload: "); /* skips the file and line in front
                                                                    of the reason */
    if (reason != NULL) memmove(err->message, reason, strlen(reason) + 1);
    return TW_CONFIG;
}

/* Files of the folder that are looked at for a suggestion, and bytes of all that are hashed. */
enum { SUGGEST_FILES_MAX = 100, SUGGEST_BYTES_MAX = 256 << 20 };

static const struct question QUESTIONS[] = {
    {"run", "Manifest of the run (`thinwire run new` makes one)", check_run},
    {"data", "Text or dataset to train on, unless other nodes have it", check_data},
    {"upload", "Most upload, such as 5mbit, unless it may take the whole line", check_upload},
};

enum { QUESTIONS_COUNT = sizeof(QUESTIONS) / sizeof(QUESTIONS[0]) };

/* Checks that the address is one. That the machine cannot listen there now is no error: when the
 * node starts, the address may be up, or the process that uses it may have ended. */
static enum tw_exit check_listen(const struct tw_config *config) {
    const struct tw_egress any = {.interface = ""};
    for (uint32_t i = 0; i < config->network.listen_count; i++) {
        const char *const address = config->network.listen[i].text;
        struct tw_error err;
        const enum tw_status status = cli_listen_check(address, &any, false, false, &err);
        if (status == TW_CONFIG)
            return cli_fail(TW_EXIT_USAGE, "--listen: %s; nothing was made", err.message);
        if (status != TW_OK) tw_page_say("for the start: %s", err.message);
    }
    return TW_EXIT_OK;
}

/* Checks one answer. `is_there` is false for a file that this command makes. A path must also be
 * visible for the node. */
static enum tw_status check_answer(const struct node_files *files, const struct question *question,
                                   const char *answer, bool is_there, struct tw_error *err) {
    char absolute[TW_PATH_BYTES];
    const char *const path = node_files_from_here(answer, absolute);
    if (is_there) TW_TRY(question->check(answer, err));
    if (question->check == check_upload || path == NULL || !cli_is_hidden(files->config_path, path))
        return TW_OK;
    return tw_fail(err, TW_CONFIG, "%.80s: " CLI_HIDDEN, path);
}

enum tw_exit init_check(const struct node_files *files, bool has_run) {
    struct tw_error err;
    for (unsigned i = 0; i < QUESTIONS_COUNT; i++) {
        const struct question *const question = &QUESTIONS[i];
        const char *const value = node_files_value(files, question->key);
        const bool is_there = has_run || question->check != check_run;
        if (value == NULL || check_answer(files, question, value, is_there, &err) == TW_OK)
            continue;
        return cli_fail(TW_EXIT_USAGE, "--%s: %s; nothing was made", question->key, err.message);
    }
    return node_files_value(files, "listen") != NULL ? check_listen(&files->config) : TW_EXIT_OK;
}

/* Writes the manifest that an empty answer means: the only one of this folder or, for a service, of
 * /etc, where the guide has it. "" if there is none, or more than one. */
static void suggest_run(const struct node_files *files, char path[TW_PATH_BYTES]) {
    const char *const patterns[] = {"*.manifest", "/etc/*.manifest"};
    path[0] = '\0';
    for (unsigned i = 0; i < (cli_is_service(files->config_path) ? 2 : 1) && path[0] == '\0'; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0) continue;
        if (found.gl_pathc == 1 && strlen(found.gl_pathv[0]) < TW_PATH_BYTES)
            (void)snprintf(path, TW_PATH_BYTES, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
}

/* Writes the data that an empty answer means: the only text or dataset of this folder that is the
 * run's, of the manifest that was named. "" if there is none, or more than one. */
static void suggest_data(const struct node_files *files, char path[TW_PATH_BYTES]) {
    static struct tw_run run;
    static struct cli_data data;
    const char *const manifest = node_files_value(files, "run");
    struct tw_error err;
    glob_t found;
    path[0] = '\0';
    if (manifest == NULL || cli_manifest_load(manifest, &run, &err) != TW_OK ||
        tw_id_is_zero(&run.data.sha256) || glob("*", 0, NULL, &found) != 0)
        return;
    off_t left_bytes = SUGGEST_BYTES_MAX;
    for (size_t i = 0, count = 0; i < found.gl_pathc && i < SUGGEST_FILES_MAX; i++) {
        struct stat info;
        const char *const name = found.gl_pathv[i];
        if (strlen(name) >= TW_PATH_BYTES || stat(name, &info) != 0 || info.st_size > left_bytes)
            continue;
        left_bytes -= info.st_size;
        if (cli_data_of_run(name, &run, &data, &err) != TW_OK) continue;
        (void)snprintf(path, TW_PATH_BYTES, "%s", count++ == 0 ? name : "");
    }
    globfree(&found);
}

/* Asks one question. An empty line sets `answer` to the suggestion in brackets, or to "". */
static enum tw_exit ask(const struct node_files *files, const struct question *question,
                        char answer[TW_PATH_BYTES]) {
    struct tw_error err = {0};
    char suggested[TW_PATH_BYTES] = "";
    if (question->check == check_run) suggest_run(files, suggested);
    if (question->check == check_data) suggest_data(files, suggested);
    if (check_answer(files, question, suggested, true, &err) != TW_OK) suggested[0] = '\0';
    for (unsigned i = 0; i < TRIES; i++) {
        const bool has = suggested[0] != '\0';
        (void)printf("%s%s%s%s: ", question->text, has ? " [" : "", suggested, has ? "]" : "");
        (void)fflush(stdout);
        if (fgets(answer, TW_PATH_BYTES, stdin) == NULL)
            return cli_fail(TW_EXIT_USAGE, "init: no answer; nothing was made");
        answer[strcspn(answer, "\r\n")] = '\0';
        if (answer[0] == '\0') memcpy(answer, suggested, sizeof(suggested));
        if (answer[0] == '\0' || check_answer(files, question, answer, true, &err) == TW_OK)
            return TW_EXIT_OK;
        (void)printf("  %s\n", err.message);
    }
    return cli_fail(TW_EXIT_USAGE, "init: nothing was made; --%s gives the answer", question->key);
}

/* Asks for run, data and upload, unless a flag has set the key, or standard input or output is not
 * a terminal. An unusable answer is asked for again; an empty one sets nothing. Call once per
 * process, because `files` borrows the answers. Returns TW_EXIT_USAGE if the input ends, or if no
 * answer is usable. */
static enum tw_exit init_ask(const struct cli *cli, struct node_files *files) {
    static char answers[QUESTIONS_COUNT][TW_PATH_BYTES], absolute[QUESTIONS_COUNT][TW_PATH_BYTES];
    bool is_first = true;
    if (cli->json || isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) return TW_EXIT_OK;
    for (unsigned i = 0; i < QUESTIONS_COUNT; i++) {
        const struct question *const question = &QUESTIONS[i];
        if (node_files_value(files, question->key) != NULL) continue;
        if (is_first)
            (void)printf("An empty answer takes the suggestion in brackets, or leaves a question "
                         "open. Without a\nmanifest the node cannot start.\n\n");
        is_first = false;
        const enum tw_exit rc = ask(files, question, answers[i]);
        if (rc != TW_EXIT_OK) return rc;
        if (answers[i][0] == '\0') continue;
        const char *value = answers[i];
        if (question->check != check_upload) value = node_files_from_here(value, absolute[i]);
        if (value == NULL)
            return cli_fail(TW_EXIT_USAGE, "init: the path is too long; nothing was made");
        node_files_put(files, question->key, value);
    }
    if (!is_first) (void)putchar('\n');
    return TW_EXIT_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

struct init {
    struct node_files files;
    const char *secret_from; /* file with the run's secret; "-": standard input; NULL: none */
    bool has_run;            /* the manifest is there */
    struct tw_run run;
    /* This node's right to be in the run: its files, and which of them are new. */
    bool has_secret, is_new_secret, has_certs, is_new_certs;
    char owner_key[TW_PATH_BYTES];
};

static bool has_owner(const struct init *init) {
    return init->has_run && init->run.security.admission == TW_ADMISSION_OWNER;
}

/* Without a manifest it is open whether the run has a secret: then only a given one is taken. */
static bool wants_secret(const struct init *init) {
    return init->secret_from != NULL ||
           (init->has_run && init->run.security.admission == TW_ADMISSION_SECRET);
}

/* Reads the manifest, if it is there, and checks that --secret-file has an effect. */
static enum tw_exit look_at_run(struct init *init) {
    const char *const path = init->files.config.node.run;
    init->has_run = cli_manifest_load(path, &init->run, NULL) == TW_OK;
    if (init->secret_from == NULL || !has_owner(init)) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "--secret-file: the run of %s has an owner and no secret. Leave it out; the "
                    "owner signs a certificate for this node (`thinwire help owner`)",
                    path);
}

/* Returns true if the node has no certificate of its run with an owner. */
static bool wants_certs(const struct init *init, const struct tw_config *config) {
    char path[TW_PATH_BYTES + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", config->node.state_dir, TW_CERT_FILE);
    return has_owner(init) && access(path, F_OK) != 0;
}

/* Says why `init` has nothing to add to a configured node, and names the way on. */
static enum tw_exit explain_existing(struct init *init) {
    static struct tw_config config;
    const char *const path = init->files.config_path;
    const bool has_sudo = cli_needs_sudo(path);
    static const char NAME[] = "init --run FILE";
    char check[CLI_COMMAND_BYTES], start[CLI_COMMAND_BYTES], name[CLI_COMMAND_BYTES];
    struct tw_error err;
    if (tw_config_load(&config, path, &err) == TW_OK) {
        init->has_run = cli_manifest_load(config.node.run, &init->run, &err) == TW_OK;
        if (!init->has_run)
            return cli_fail(TW_EXIT_MANIFEST,
                            "%s exists, but its node has no manifest: %s. `%s` names another one, "
                            "best the one beside its owner.key",
                            path, err.message, cli_command(path, has_sudo, NAME, name));
        if (wants_certs(init, &config))
            return cli_fail(
                TW_EXIT_IDENTITY,
                "%s exists, but its node has no certificate, and no %s of the run is beside %s. "
                "Name the manifest beside that key (`%s`), or have the run's owner sign one "
                "(`thinwire help owner`)",
                path, OWNER_KEY_FILE, config.node.run, cli_command(path, has_sudo, NAME, name));
    }
    return cli_fail(
        TW_EXIT_USAGE,
        "%s exists and is not overwritten. Change that file as you like, then `%s` and `%s`. "
        "Another node needs a place of its own: --config NAME or --dir FOLDER",
        path, cli_command(path, has_sudo, "config check", check),
        cli_command(path, has_sudo, "start", start));
}

/* Checks that no file is in the way, before anything is written. */
static enum tw_exit is_free(struct init *init) {
    const char *const key = init->files.key_path;
    if (access(init->files.config_path, F_OK) == 0) return explain_existing(init);
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

static enum tw_exit make_secret(struct init *init) {
    struct tw_error err;
    const char *const path = init->files.config.network.secret_file;
    init->has_secret = true;
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
        init->is_new_secret = true;
    }
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

/* Signs this node's certificate if the owner's key is beside the manifest and there is none yet. */
static enum tw_exit make_certs(struct init *init, const struct tw_id *node) {
    const char *const folder = init->files.config.node.state_dir;
    char path[TW_PATH_BYTES + 32];
    struct tw_error err;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_CERT_FILE);
    init->has_certs = access(path, F_OK) == 0;
    if (init->has_certs) return TW_EXIT_OK;
    const enum tw_status status =
        owner_key_admit(&init->files.config, &init->run, node, init->owner_key, &err);
    if (status == TW_AGAIN) return TW_EXIT_OK;
    if (status != TW_OK) return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
    init->has_certs = init->is_new_certs = true;
    return TW_EXIT_OK;
}

/* Makes the folders, and those of key, secret and certificate that belong to the node and do not
 * exist. */
static enum tw_exit make_keys(struct init *init, char hex[TW_ID_HEX_BYTES]) {
    struct tw_error err;
    struct tw_identity identity;
    enum tw_exit rc = node_files_folders(&init->files);
    if (rc == TW_EXIT_OK && wants_secret(init)) rc = make_secret(init);
    if (rc != TW_EXIT_OK) return rc;
    if ((access(init->files.key_path, F_OK) != 0 &&
         tw_identity_create(init->files.key_path, &err) != TW_OK) ||
        tw_identity_open(init->files.key_path, &identity, &err) != TW_OK) {
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    }
    tw_id_hex(&identity.id, hex);
    if (has_owner(init)) rc = make_certs(init, &identity.id);
    tw_identity_close(&identity);
    return rc;
}

static enum tw_exit make_node(struct init *init, char hex[TW_ID_HEX_BYTES]) {
    enum tw_exit rc = make_keys(init, hex);
    if (rc == TW_EXIT_OK) rc = node_files_write_config(&init->files);
    return rc == TW_EXIT_OK ? node_files_hand_over(&init->files) : rc;
}

static void say_files(FILE *to, const struct init *init, const char *hex) {
    (void)fprintf(to, "This node is %s\n\n  %-14s%s\n  %-14s%s\n", hex, "configuration",
                  init->files.config_path, "identity", init->files.key_path);
    if (init->has_secret)
        (void)fprintf(to, "  %-14s%s (%s)\n", "run secret", init->files.config.network.secret_file,
                      init->is_new_secret ? "new" : "as given");
    if (init->is_new_certs)
        (void)fprintf(
            to, "  %-14s%s/%s, signed with %s: this node trains, votes and invites others\n",
            "certificate", init->files.config.node.state_dir, TW_CERT_FILE, init->owner_key);
    (void)fprintf(to, "\nNext steps:\n");
}

/* Prints the steps before the start. Returns the number of the next step. */
static int say_missing(FILE *to, const struct init *init, const char *hex) {
    const struct tw_config *const config = &init->files.config;
    char command[CLI_COMMAND_BYTES];
    int n = 1;
    if (!init->has_run)
        (void)fprintf(to,
                      "  %d.  Name the run's manifest: `%s` (`thinwire run new NAME --data TEXT` "
                      "makes one for a new run), or put it at %s. Beside it, `init` finds the "
                      "owner's key and adds this node's right to be in the run.\n",
                      n++,
                      cli_command(init->files.config_path, cli_needs_sudo(init->files.config_path),
                                  "init --run FILE", command),
                      config->node.run);
    if (config->node.data[0] == 0 && !(init->has_run && tw_run_has_own_data(&init->run)))
        (void)fprintf(
            to,
            "  %d.  Name the training text with `data = ` in the configuration, unless the run "
            "trains on a dataset, which is fetched from the other nodes.\n",
            n++);
    if (has_owner(init) && !init->has_certs)
        (void)fprintf(to,
                      "  %d.  Have the run's owner sign a certificate: `thinwire owner sign "
                      "%s` where the owner's key is; then `thinwire owner import FILE` here.\n",
                      n++, hex);
    const bool is_first = init->is_new_certs || init->is_new_secret || !init->has_run;
    if (!is_first && config->network.peers_count == 0)
        (void)fprintf(
            to, "  %d.  Name a node of the run with `peers = host:port` in the configuration.\n",
            n++);
    return n;
}

static void say_next(const struct init *init, const char *hex) {
    static const char *const NEXT[] = {"init",           "config check", "start",
                                       "status --watch", "invite",       NULL};
    struct tw_page page;
    FILE *const to = tw_page_begin(&page, stdout);
    say_files(to, init, hex);
    const int n = say_missing(to, init, hex);
    (void)fprintf(
        to,
        "  %d.  Check the configuration, start, and look at the status; `invite` prints a line "
        "with which another machine joins:\n",
        n);
    tw_page_end(&page);
    node_files_say_next(&init->files, init->has_run ? NEXT + 1 : NEXT);
}

/* Signs a certificate for the new key if the owner's key is beside the manifest. Returns the
 * sentence for a person who must do something else. */
static const char *renew_certs(const struct tw_config *config, const struct tw_id *node) {
    static struct tw_run run;
    char path[TW_PATH_BYTES];
    struct tw_error err;
    if (cli_manifest_load(config->node.run, &run, NULL) != TW_OK ||
        run.security.admission != TW_ADMISSION_OWNER)
        return "";
    if (owner_key_admit(config, &run, node, path, &err) != TW_OK)
        return " First it needs a certificate for the new key: join again with a new ticket, or "
               "have the owner sign one.";
    return " It has a new certificate.";
}

/* Gives a configured node another key, for a copy of another node. The old key stays beside it. */
static enum tw_exit renew_key(struct cli *cli) {
    static struct tw_config config;
    char path[TW_PATH_BYTES + 16], old[TW_PATH_BYTES + 24], hex[TW_ID_HEX_BYTES];
    struct tw_error err;
    struct tw_identity identity;
    struct stat owner;
    enum tw_exit rc = cli_done(cli, "init");
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
    const char *const lacks = renew_certs(&config, &identity.id);
    tw_identity_close(&identity);
    if (cli->json)
        (void)printf("{\"id\": \"%s\", \"identity\": \"%s\"}\n", hex, path);
    else
        (void)printf("This node is now %s; its old key is %s.\n"
                     "Restart it: `thinwire leave`, then `thinwire start`.%s\n",
                     hex, old, lacks);
    return TW_EXIT_OK;
}

/* ---- a node that lacks files ---------------------------------------------------------------- */

/* Returns true if the node has no certificate and the owner's key is there to sign one. */
static bool lacks_certs(const struct init *init) {
    const struct tw_config *const config = &init->files.config;
    char path[TW_PATH_BYTES];
    struct tw_identity key;
    if (!wants_certs(init, config)) return false;
    if (owner_key_look(&init->run, config->node.run, path, &key) != OWNER_KEY_HERE) return false;
    tw_identity_close(&key);
    return true;
}

/* Finds a configured node that lacks its key, its secret or its certificate. It is the node that
 * other commands mean, while a new one would be elsewhere if this folder has only one node of
 * another name. Returns false if there is none, or if flags describe a new node. */
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
    if (size >= (int)sizeof(files->key_path) || look_at_run(init) != TW_EXIT_OK) return false;
    const bool lacks_secret =
        wants_secret(init) && access(files->config.network.secret_file, F_OK) != 0;
    if (access(files->key_path, F_OK) == 0 && !lacks_secret && !lacks_certs(init)) return false;
    memcpy(files->config_path, path, sizeof(path));
    return true;
}

/* Writes --run, --data and --upload into the configuration of a node that cannot be in its run yet,
 * for want of a manifest or of a certificate. The flags are then used up. Does nothing for a new
 * node, or if other flags describe one. */
static enum tw_exit take_values(const struct cli *cli, struct init *init) {
    static const char *const TAKEN[] = {"run", "data", "upload"};
    static const char *const NEW[] = {"name", "listen", "peers", "threads"};
    static struct tw_config config;
    struct node_files *const files = &init->files;
    char path[TW_PATH_BYTES];
    struct tw_error err;
    bool is_other = init->secret_from != NULL || node_files_value(files, "run") == NULL;
    for (unsigned i = 0; i < sizeof(NEW) / sizeof(NEW[0]); i++)
        is_other = is_other || node_files_value(files, NEW[i]) != NULL;
    memcpy(path, files->config_path, sizeof(path));
    const bool is_named = path[0] != 0 || cli->config_option != NULL;
    if (is_other || !is_named ||
        (path[0] == 0 && tw_config_find(cli->config_option, path, &err) != TW_OK) ||
        access(path, F_OK) != 0 || tw_config_load(&config, path, &err) != TW_OK)
        return TW_EXIT_OK;
    init->has_run = cli_manifest_load(config.node.run, &init->run, NULL) == TW_OK;
    if (init->has_run && !wants_certs(init, &config)) return TW_EXIT_OK; /* a whole node */
    memcpy(files->config_path, path, sizeof(path));
    enum tw_exit rc = init_check(files, true);
    for (unsigned i = 0; i < sizeof(TAKEN) / sizeof(TAKEN[0]) && rc == TW_EXIT_OK; i++) {
        const char *const value = node_files_value(files, TAKEN[i]);
        if (value == NULL) continue;
        rc = node_files_add_value(files, TAKEN[i], value);
        if (rc == TW_EXIT_OK) tw_page_say("%s now has %s = %s", path, TAKEN[i], value);
    }
    files->count = 0;
    return rc;
}

/* Makes the files that the node lacks. Its configuration stays. */
static enum tw_exit complete_node(const struct cli *cli, struct init *init) {
    const struct tw_config *const config = &init->files.config;
    static const char *const NEXT[] = {"config check", "start", NULL};
    const bool is_new_key = access(init->files.key_path, F_OK) != 0;
    char hex[TW_ID_HEX_BYTES];
    enum tw_exit rc = make_keys(init, hex);
    if (rc == TW_EXIT_OK) rc = node_files_hand_over(&init->files);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) {
        (void)printf("{\"id\": \"%s\"}\n", hex);
        return TW_EXIT_OK;
    }
    (void)printf("%s is configured already, and lacked this:\n", init->files.config_path);
    if (is_new_key) (void)printf("  identity   %s, of node %s\n", init->files.key_path, hex);
    if (init->is_new_secret)
        (void)printf("  run secret %s, for a new run: put the secret of another run there, if this "
                     "node is to be in it\n",
                     config->network.secret_file);
    if (init->is_new_certs)
        (void)printf("  certificate %s/%s, signed with %s\n", config->node.state_dir, TW_CERT_FILE,
                     init->owner_key);
    (void)printf("\nNext steps:\n");
    node_files_say_next(&init->files, NEXT);
    return TW_EXIT_OK;
}

static enum tw_exit say_json(const struct init *init, const char *hex) {
    char certs[TW_PATH_BYTES + 32];
    (void)snprintf(certs, sizeof(certs), "%s/%s", init->files.config.node.state_dir, TW_CERT_FILE);
    json_t *const json = json_pack(
        "{s:s,s:s,s:s,s:s?,s:s?,s:s?}", "id", hex, "config", init->files.config_path, "identity",
        init->files.key_path, "secret",
        init->has_secret ? init->files.config.network.secret_file : NULL, "certificate",
        init->has_certs ? certs : NULL, "owner_key", init->is_new_certs ? init->owner_key : NULL);
    return json_print(json);
}

enum tw_exit cli_init(struct cli *cli) {
    if (cli_flag(cli, "--new-key")) return renew_key(cli);
    static struct init init;
    char hex[TW_ID_HEX_BYTES];
    enum tw_exit rc = node_files_options(cli, &init.files);
    if (rc != TW_EXIT_OK) return rc;
    (void)cli_option(cli, "--secret-file", &init.secret_from);
    rc = cli_done(cli, "init");
    if (rc == TW_EXIT_OK) rc = take_values(cli, &init);
    if (rc == TW_EXIT_OK && find_incomplete(cli, &init)) return complete_node(cli, &init);
    if (rc == TW_EXIT_OK) rc = node_files_find(cli, &init.files);
    if (rc == TW_EXIT_OK) rc = node_files_plan(&init.files);
    if (rc == TW_EXIT_OK) rc = is_free(&init);
    if (rc == TW_EXIT_OK) rc = init_check(&init.files, true);
    if (rc == TW_EXIT_OK) rc = init_ask(cli, &init.files);
    if (rc == TW_EXIT_OK) rc = node_files_plan(&init.files);
    if (rc == TW_EXIT_OK) rc = look_at_run(&init);
    if (rc == TW_EXIT_OK) rc = make_node(&init, hex);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) return say_json(&init, hex);
    say_next(&init, hex);
    return TW_EXIT_OK;
}
