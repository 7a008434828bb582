/* thinwire init - identity, run secret, folders and configuration of a new node. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/manifest_text.h"
#include "daemon/identity.h"
#include "daemon/secret.h"

enum { EXAMPLE_BYTES = 32 * 1024, VALUES_MAX = 12 };
_Static_assert(VALUES_MAX >= 10, "every flag may be given");

/* What goes into the configuration instead of a commented line. */
struct value {
    const char *key, *text;
};

struct values {
    unsigned count;
    struct value list[VALUES_MAX];
};

/* What a person types is relative to where they are; what a file says, to the file. */
static const char *from_here(const char *path, char absolute[TW_PATH_BYTES]) {
    char here[TW_PATH_BYTES];
    if (*path == '/') return path;
    if (getcwd(here, sizeof(here)) == NULL) return NULL;
    const int n = snprintf(absolute, TW_PATH_BYTES, "%s/%s", here, path);
    return n < TW_PATH_BYTES ? absolute : NULL;
}

static void put(struct values *values, const char *key, const char *text) {
    if (text != NULL) values->list[values->count++] = (struct value){key, text};
}

static const struct value *find_value(const struct values *values, const char *line) {
    for (unsigned i = 0; line[0] == '#' && i < values->count; i++) {
        const size_t size = strlen(values->list[i].key);
        if (strncmp(line + 1, values->list[i].key, size) != 0) continue;
        if (strncmp(line + 1 + size, " =", 2) == 0) return &values->list[i];
    }
    return NULL;
}

/* A list goes one entry a line: lines of the file are short. */
static void print_value(FILE *to, const struct value *value) {
    const bool is_list = strcmp(value->key, "peers") == 0 || strcmp(value->key, "listen") == 0;
    const char *rest = value->text;
    size_t size = 0;
    do {
        rest += size + (size > 0);
        size = is_list ? strcspn(rest, ",") : strlen(rest);
        (void)fprintf(to, "%s = %.*s\n", value->key, (int)size, rest);
    } while (size > 0 && rest[size] == ',');
}

/* The commented example with the given keys filled in. */
static void fill_example(FILE *to, const struct values *values) {
    static char example[EXAMPLE_BYTES];
    (void)tw_config_example(example, sizeof(example));
    for (const char *line = example; *line != 0;) {
        const size_t size = strcspn(line, "\n");
        const struct value *const value = find_value(values, line);
        if (value != NULL) {
            print_value(to, value);
        } else {
            (void)fprintf(to, "%.*s\n", (int)size, line);
        }
        line += size + (line[size] == '\n');
    }
}

/* mkdir -p; the last folder gets `mode`. */
static enum tw_exit make_folder(const char *path, mode_t mode, enum tw_exit code) {
    char part[TW_PATH_BYTES];
    (void)snprintf(part, sizeof(part), "%s", path);
    for (char *slash = part + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        if (mkdir(part, 0755) != 0 && errno != EEXIST) break;
        *slash = '/';
    }
    if (mkdir(path, mode) == 0) return TW_EXIT_OK;
    const int why = errno;
    struct stat info;
    if (why == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        if (access(path, W_OK) == 0) return TW_EXIT_OK;
        return cli_fail(code, "%s is not writable; use sudo, or choose another folder", path);
    }
    return cli_fail(code, "%s: %s; use sudo, or choose another folder", path, strerror(why));
}

struct init {
    char config_path[TW_PATH_BYTES], key_path[TW_PATH_BYTES];
    struct tw_config config;
    struct values values;
    const char *secret_from; /* file with the secret of the run, "-" = standard input; or NULL */
};

/* The configuration as text, parsed: what the new file will mean. */
static enum tw_exit plan(struct init *init) {
    static char text[EXAMPLE_BYTES];
    struct tw_error err;
    FILE *const memory = fmemopen(text, sizeof(text), "w");
    if (memory == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    fill_example(memory, &init->values);
    (void)fclose(memory);
    if (tw_config_parse(&init->config, init->config_path, text, strlen(text), &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    const int n = snprintf(init->key_path, sizeof(init->key_path), "%s/identity.key",
                           init->config.node.state_dir);
    if (n >= (int)sizeof(init->key_path)) return cli_fail(TW_EXIT_USAGE, "state_dir is too long");
    /* Nothing is made before everything is known to be free. */
    const char *const taken[] = {init->config_path, init->key_path};
    for (unsigned i = 0; i < 2; i++) {
        if (access(taken[i], F_OK) != 0) continue;
        return cli_fail(i == 0 ? TW_EXIT_USAGE : TW_EXIT_IDENTITY,
                        "%s exists and is not overwritten; move it away, or set up another node "
                        "with --config NAME",
                        taken[i]);
    }
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
    const char *const path = init->config.network.secret_file;
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

static enum tw_exit write_config(const struct init *init) {
    const int fd = open(init->config_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *const file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        return cli_fail(TW_EXIT_USAGE, "%s: %s", init->config_path, strerror(errno));
    }
    fill_example(file, &init->values);
    const bool is_good = ferror(file) == 0;
    if (fclose(file) == 0 && is_good) return TW_EXIT_OK;
    (void)unlink(init->config_path);
    return cli_fail(TW_EXIT_USAGE, "%s: the disk is full or failing", init->config_path);
}

static enum tw_exit make(const struct init *init, char hex[TW_ID_HEX_BYTES], bool *is_new_secret) {
    char folder[TW_PATH_BYTES];
    struct tw_error err;
    struct tw_identity identity;
    (void)snprintf(folder, sizeof(folder), "%s", init->config_path);
    enum tw_exit rc = make_folder(init->config.node.state_dir, 0700, TW_EXIT_STATE_DIR);
    if (rc == TW_EXIT_OK) rc = make_folder(dirname(folder), 0755, TW_EXIT_USAGE);
    if (rc == TW_EXIT_OK) rc = make_secret(init, is_new_secret);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_identity_create(init->key_path, &err) != TW_OK ||
        tw_identity_open(init->key_path, &identity, &err) != TW_OK) {
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    }
    tw_id_hex(&identity.id, hex);
    tw_identity_close(&identity);
    return write_config(init);
}

/* Whether systemd will run it, daemon and worker as units of their own. */
static bool is_service(const struct init *init) {
    return strncmp(init->config_path, "/etc/thinwire/", 14) == 0;
}

/* Does the manifest that is there name an owner? Then no secret lets the node in. */
static bool has_owner(const struct tw_config *config) {
    static struct tw_run run;
    return cli_manifest_load(config->node.run, &run, NULL) == TW_OK &&
           run.security.admission == TW_ADMISSION_OWNER;
}

static void say_next(const struct init *init, const char *hex, bool is_new_secret) {
    const struct tw_config *const config = &init->config;
    const bool is_system = is_service(init);
    (void)printf("This node is %s\n\n  %-14s%s\n  %-14s%s\n  %-14s%s (%s)\n\nWhat to do next:\n",
                 hex, "configuration", init->config_path, "identity", init->key_path, "run secret",
                 config->network.secret_file, is_new_secret ? "new" : "as given");
    int n = 1;
    if (access(config->node.run, R_OK) != 0) {
        (void)printf(
            "  %d. Put the run's manifest at %s\n     (`thinwire run new NAME --data TEXT` "
            "makes one for a new run).\n",
            n++, config->node.run);
    }
    if (config->node.data[0] == 0) {
        (void)printf(
            "  %d. Name the training text with `data = ` in the configuration, unless the run\n"
            "     is trained on a dataset: that is fetched from the other nodes.\n",
            n++);
    }
    if (has_owner(config)) {
        (void)printf("  %d. Have the run's owner sign a certificate: `thinwire owner sign\n"
                     "     %s`;\n"
                     "     then `thinwire owner import FILE` here. This run needs no secret.\n",
                     n++, hex);
    } else if (is_new_secret) {
        (void)printf("  %d. Give the run secret, by a safe way, to the other nodes of the run:\n"
                     "     `thinwire init --secret-file FILE` there. Who has it may join.\n",
                     n++);
    }
    if (config->network.peers_count == 0) {
        (void)printf("  %d. To meet other nodes, name one with `peers = host:port`.\n", n++);
    }
    if (is_system) {
        (void)printf("  %d. `thinwire --config %s config check`, then\n"
                     "     `systemctl enable --now thinwired@%s thinwire-worker@%s`\n",
                     n, config->instance, config->instance, config->instance);
    } else {
        (void)printf("  %d. `thinwire --config %s config check`, then\n"
                     "     `thinwired --config %s`\n",
                     n, init->config_path, init->config_path);
    }
    (void)printf("  %d. `thinwire --config %s status` shows how it does.\n", n + 1,
                 is_system ? config->instance : init->config_path);
}

enum tw_exit cli_init(struct cli *cli) {
    static const char *const OPTIONS[] = {
        "--name",   "--state-dir", "--run-dir", "--run",         "--data",    "--listen", "--peers",
        "--upload", "--config",    "--json",    "--secret-file", "--threads", NULL};
    enum { PATHS = 4 }; /* the first ones */
    static const char *const KEYS[] = {"state_dir", "run_dir", "run",    "data",   "name",
                                       "listen",    "peers",   "upload", "threads"};
    static const char *const FLAGS[] = {"--state-dir", "--run-dir", "--run",
                                        "--data",      "--name",    "--listen",
                                        "--peers",     "--upload",  "--threads"};
    static char paths[PATHS][TW_PATH_BYTES];
    static struct init init;
    struct tw_error err;
    char hex[TW_ID_HEX_BYTES];
    bool is_new_secret = false;
    for (unsigned i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        const char *value = NULL;
        if (!cli_option(cli, FLAGS[i], &value)) continue;
        if (i < PATHS) value = from_here(value, paths[i]);
        if (value == NULL) return cli_fail(TW_EXIT_USAGE, "%s: the path is too long", FLAGS[i]);
        put(&init.values, KEYS[i], value);
    }
    (void)cli_option(cli, "--secret-file", &init.secret_from);
    enum tw_exit rc = cli_done(cli, "init", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_config_find(cli->config_option, init.config_path, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    if (is_service(&init)) put(&init.values, "spawn_worker", "off");
    rc = plan(&init);
    if (rc == TW_EXIT_OK) rc = make(&init, hex, &is_new_secret);
    if (rc != TW_EXIT_OK) return rc;
    if (!cli->json) {
        say_next(&init, hex, is_new_secret);
        return TW_EXIT_OK;
    }
    json_t *const json =
        json_pack("{s:s,s:s,s:s,s:s}", "id", hex, "config", init.config_path, "identity",
                  init.key_path, "secret", init.config.network.secret_file);
    (void)json_dumpf(json, stdout, JSON_INDENT(1));
    (void)fputc('\n', stdout);
    json_decref(json);
    return TW_EXIT_OK;
}
