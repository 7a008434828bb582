/* config_verb.c - `thinwire config check | example | show`. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/nearest.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/node/node_start.h"
#include "daemon/cli/run/data_path.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/cli/run/run_memory.h"

enum { TEXT_BYTES = 64 * 1024 };

/* Findings of a check, each printed as one line or one JSON object. The first failure decides the
 * exit status. */
struct findings {
    enum tw_exit rc;
    json_t *list;   /* findings for --json; NULL: print lines */
    json_t *memory; /* memory of the node, for --json; NULL: not known, or lines are printed */
};

static json_t *finding_json(const char *subject, const char *problem) {
    return json_pack("{s:s,s:b,s:s?}", "what", subject, "ok", problem == NULL, "error", problem);
}

static void report_finding(struct findings *findings, enum tw_exit code, const char *subject,
                           const char *problem) {
    if (problem != NULL && findings->rc == TW_EXIT_OK) findings->rc = code;
    if (findings->list != NULL) {
        (void)json_array_append_new(findings->list, finding_json(subject, problem));
    } else {
        (void)printf("  %s  %s\n", problem == NULL ? "good" : "BAD ",
                     problem == NULL ? subject : problem);
    }
}

/* Reports a finding that does not keep the daemon from starting. */
static void report_warning(struct findings *findings, const char *subject, const char *warning) {
    if (findings->list != NULL) {
        json_t *const json = finding_json(subject, NULL);
        (void)json_object_set_new(json, "warning", json_string(warning));
        (void)json_array_append_new(findings->list, json);
    } else {
        (void)printf("  WARN  %s\n        %s\n", subject, warning);
    }
}

/* Checks the training data. A dataset that is not configured is fetched from other nodes. */
static void check_data(const struct tw_config *config, const struct tw_run *run,
                       struct findings *findings) {
    static struct cli_data data;
    struct tw_error err = {0};
    char what[TW_PATH_BYTES + 64];
    const char *const path = config->node.data;
    const bool is_fetched = path[0] == 0 && run != NULL && run->data.form == TW_FORM_DATASET;
    enum tw_status status = TW_OK;
    if (is_fetched) {
        (void)snprintf(what, sizeof(what), "training data: fetched from other nodes");
    } else {
        (void)snprintf(what, sizeof(what), "training data %s", path);
    }
    if (run != NULL && tw_run_has_own_data(run)) {
        const bool is_there = path[0] == 0 || access(path, R_OK) == 0;
        if (!is_there) (void)tw_fail(&err, TW_DATA, "%.200s: %s", path, strerror(errno));
        report_finding(findings, TW_EXIT_DATA, "training data: the trainer's own",
                       is_there ? NULL : err.message);
        return;
    }
    if (path[0] == 0 && config->node.role == TW_NODE_ROLE_REDUCE) {
        report_finding(findings, TW_EXIT_DATA, "training data: none, as the node reduces", NULL);
        return;
    }
    if (path[0] == 0 && run == NULL)
        return; /* neither data nor a manifest is configured: nothing to check */
    if (path[0] == 0 && !is_fetched) {
        status = tw_fail(&err, TW_DATA, "no training text: set `data = ` in section [node]");
    } else if (!is_fetched) {
        status = run != NULL ? cli_data_of_run(path, run, &data, &err)
                             : cli_data_read(path, &data, &err);
        if (data.shards_here < data.shards) {
            (void)snprintf(what, sizeof(what), "training data %s, %u of %u shards are here", path,
                           data.shards_here, data.shards);
        }
    }
    if (status == TW_OK && cli_is_hidden(config->path, path))
        report_warning(findings, what, CLI_HIDDEN);
    else
        report_finding(findings, TW_EXIT_DATA, what, status == TW_OK ? NULL : err.message);
}

/* Tries to listen on every configured address. If the node's daemon is running, it listens there
 * already, so nothing can be tried. */
static void check_listen(const struct tw_config *config, enum tw_admission admission,
                         struct findings *findings) {
    struct tw_error err;
    struct tw_egress egress;
    char name[TW_ADDR_BYTES + 32];
    const uint32_t count = config->network.links ? config->network.listen_count : 0;
    if (node_is_listening(config->api.socket)) {
        report_finding(findings, TW_EXIT_PORT, "addresses: the running daemon has them", NULL);
        return;
    }
    if (config->network.links && cli_line_check(config, &egress, &err) != TW_OK) {
        report_finding(findings, err.status == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE, "line",
                       err.message);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *const address = config->network.listen[i].text;
        const enum tw_status status =
            cli_listen_check(address, &egress, count > 1, admission == TW_ADMISSION_OPEN, &err);
        (void)snprintf(name, sizeof(name), "address %s", address);
        report_finding(findings, status == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE, name,
                       status == TW_OK ? NULL : err.message);
    }
    if (!config->api.has_http) return;
    const struct tw_egress any = {.interface = ""};
    const enum tw_status status = cli_listen_check(config->api.http.text, &any, false, false, &err);
    (void)snprintf(name, sizeof(name), "http %s", config->api.http.text);
    report_finding(findings, TW_EXIT_PORT, name, status == TW_OK ? NULL : err.message);
}

static void check_places(const struct tw_config *config, struct findings *findings) {
    struct tw_error err;
    /* systemd makes the folder of a service. */
    const bool is_made =
        cli_is_service(config->path) && strncmp(config->node.run_dir, "/run/thinwire/", 14) == 0;
    enum tw_status status = is_made ? TW_OK : cli_folder_check(config->node.run_dir, &err);
    report_finding(findings, TW_EXIT_STATE_DIR, "run folder", status == TW_OK ? NULL : err.message);
    status = cli_worker_check(config, &err);
    report_finding(findings, TW_EXIT_USAGE, "worker", status == TW_OK ? NULL : err.message);
    if (config->node.worker_user[0] != '\0' && getpwnam(config->node.worker_user) == NULL) {
        (void)tw_fail(&err, TW_CONFIG,
                      "node.worker_user: there is no user `%s`; systemd-sysusers makes it",
                      config->node.worker_user);
        report_finding(findings, TW_EXIT_USAGE, "worker's user", err.message);
    }
    if (config->api.group[0] == '\0' || getgrnam(config->api.group) != NULL) return;
    (void)tw_fail(&err, TW_CONFIG, "api.group: there is no group `%s`; groupadd --system makes one",
                  config->api.group);
    report_finding(findings, TW_EXIT_USAGE, "group", err.message);
}

static void check_memory(const struct tw_config *config, const struct tw_run *run,
                         struct findings *findings) {
    struct run_memory memory;
    struct run_memory_lack lack;
    char subject[RUN_MEMORY_TEXT_BYTES], warning[RUN_MEMORY_TEXT_BYTES];
    if (!run_memory_weigh(&memory, config, run, tw_machine_memory(),
                          node_is_listening(config->api.socket)))
        return;
    (void)run_memory_line(&memory, subject);
    if (run_memory_lacks(&memory, &lack)) {
        (void)snprintf(warning, sizeof(warning), "%s: %s", lack.text, lack.way_out);
        report_warning(findings, subject, warning);
    } else {
        report_finding(findings, TW_EXIT_OK, subject, NULL);
    }
    if (findings->list != NULL) findings->memory = run_memory_json(&memory);
}

static void check_files(const struct tw_config *config, struct findings *findings) {
    static struct tw_run run;
    struct tw_error err = {0};
    struct tw_identity identity;
    struct tw_secrets secrets;
    char what[TW_PATH_BYTES + 32], key[TW_PATH_BYTES + 16];
    static struct tw_gate gate;
    const bool is_run = cli_manifest_load(config->node.run, &run, &err) == TW_OK;
    (void)snprintf(what, sizeof(what), "manifest %s", config->node.run);
    if (is_run && cli_is_hidden(config->path, config->node.run))
        report_warning(findings, what, CLI_HIDDEN);
    else
        report_finding(findings, TW_EXIT_MANIFEST, what, is_run ? NULL : err.message);
    if (is_run && tw_config_check_run(config, &run, &err) != TW_OK)
        report_finding(findings, TW_EXIT_USAGE, "role", err.message);

    if (is_run) check_memory(config, &run, findings);
    check_data(config, is_run ? &run : NULL, findings);
    check_listen(config, is_run ? run.security.admission : TW_ADMISSION_SECRET, findings);

    (void)snprintf(what, sizeof(what), "state directory %s", config->node.state_dir);
    const bool is_writable = access(config->node.state_dir, W_OK | X_OK) == 0;
    if (!is_writable) {
        (void)tw_fail(&err, TW_IO, "state directory %.150s is missing or not writable by this user",
                      config->node.state_dir);
    }
    report_finding(findings, TW_EXIT_STATE_DIR, what, is_writable ? NULL : err.message);

    check_places(config, findings);
    (void)snprintf(key, sizeof(key), "%s/identity.key", config->node.state_dir);
    enum tw_status status = tw_identity_open(key, &identity, &err);
    report_finding(findings, TW_EXIT_IDENTITY, "identity", status == TW_OK ? NULL : err.message);
    if (status == TW_OK && is_run && run.security.admission == TW_ADMISSION_OWNER) {
        const struct tw_id run_id = tw_run_id(&run);
        tw_gate_init(&gate, &run_id, &run.security.owner, &identity);
        status = tw_gate_load(&gate, config->node.state_dir, &err);
        /* One that has expired keeps no daemon from starting, but everybody from admitting it. */
        if (status == TW_OK &&
            tw_gate_judge(&gate, &gate.own, &identity.id, TW_CERT_TRAIN, 0, &err) != TW_OK)
            report_warning(findings, "certificate: no node admits this one", err.message);
        else
            report_finding(findings, TW_EXIT_IDENTITY, "certificate",
                           status == TW_OK ? NULL : err.message);
        status = TW_OK;
    }
    if (status == TW_OK) tw_identity_close(&identity);
    if (!is_run || run.security.admission != TW_ADMISSION_SECRET) return;
    status = tw_secrets_open(config->network.secret_file, &secrets, &err);
    if (status == TW_OK) tw_secrets_wipe(&secrets);
    report_finding(findings, TW_EXIT_IDENTITY, "run secret", status == TW_OK ? NULL : err.message);
}

static enum tw_exit check_config(struct cli *cli) {
    static struct tw_config config;
    char what[TW_PATH_BYTES + 32];
    struct findings findings = {.rc = TW_EXIT_OK};
    struct tw_error err = {0};
    const char *const path = cli_operand(cli);
    enum tw_exit rc = cli_done(cli, "config check");
    if (rc != TW_EXIT_OK) return rc;
    if (path != NULL) cli->config_option = path;
    rc = cli_node_config(cli, &config);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) findings.list = json_array();
    (void)snprintf(what, sizeof(what), "configuration %s", config.path);
    const bool is_read = !cli_is_service(config.path) || access(config.path, R_OK) == 0;
    if (!is_read)
        (void)tw_fail(&err, TW_CONFIG, "%.100s: %s for the user of the node; `chmod go+r %.100s`",
                      config.path, strerror(errno), config.path);
    report_finding(&findings, TW_EXIT_USAGE, what, is_read ? NULL : err.message);
    check_files(&config, &findings);
    if (cli->json) {
        json_t *const json =
            json_pack("{s:b,s:i,s:o,s:o?}", "ok", findings.rc == TW_EXIT_OK, "exit_status",
                      (int)findings.rc, "findings", findings.list, "memory", findings.memory);
        (void)json_print(json);
        return findings.rc;
    }
    if (findings.rc == TW_EXIT_OK) {
        char doctor[CLI_COMMAND_BYTES];
        (void)printf("The daemon can start with this configuration.\n"
                     "Device and peers were not tried: `%s` does.\n",
                     cli_next_command(cli, "doctor", doctor));
        return TW_EXIT_OK;
    }
    return cli_fail(findings.rc,
                    "the daemon would not start with this; `thinwire help exit-codes` explains "
                    "status %d",
                    (int)findings.rc);
}

static enum tw_exit print_example(struct cli *cli) {
    static char text[TEXT_BYTES];
    const enum tw_exit rc = cli_done_text(cli, "config example");
    if (rc != TW_EXIT_OK) return rc;
    (void)tw_config_example(text, sizeof(text));
    (void)fputs(text, stdout);
    return TW_EXIT_OK;
}

/* Adds a value as the text in the file. A key on several lines becomes an array. */
static void put_value(json_t *section, const char *key, const char *value) {
    json_t *const before = json_object_get(section, key);
    if (before == NULL) {
        (void)json_object_set_new(section, key, json_string(value));
    } else if (json_is_array(before)) {
        (void)json_array_append_new(before, json_string(value));
    } else {
        (void)json_object_set_new(section, key, json_pack("[O,s]", before, value));
    }
}

/* Prints the output of tw_config_show, lines of `[section]` and `key = value`, as nested objects.
 */
static void show_json(char *text) {
    json_t *const all = json_object();
    json_t *section = NULL;
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        char *const equals = strstr(line, " =");
        if (line[0] == '[') {
            line[strcspn(line, "]")] = 0;
            section = json_object();
            (void)json_object_set_new(all, line + 1, section);
        } else if (section != NULL && equals != NULL) {
            *equals = 0;
            put_value(section, line, equals[2] == ' ' ? equals + 3 : equals + 2);
        }
    }
    (void)json_print(all);
}

static enum tw_exit show_config(struct cli *cli) {
    static struct tw_config config;
    static char text[TEXT_BYTES];
    const char *const path = cli_operand(cli);
    enum tw_exit rc = cli_done(cli, "config show");
    if (path != NULL) cli->config_option = path;
    if (rc == TW_EXIT_OK) rc = cli_config(cli, &config);
    if (rc != TW_EXIT_OK) return rc;
    (void)tw_config_show(&config, text, sizeof(text));
    if (cli->json)
        show_json(text);
    else
        (void)fputs(text, stdout);
    return TW_EXIT_OK;
}

enum tw_exit cli_config_verb(struct cli *cli) {
    static const char *const WORDS[] = {"check", "example", "show"};
    static enum tw_exit (*const ACTIONS[])(struct cli *) = {check_config, print_example,
                                                            show_config};
    const char *const word = cli_operand(cli);
    for (unsigned i = 0; word != NULL && i < 3; i++) {
        if (strcmp(word, WORDS[i]) == 0) return ACTIONS[i](cli);
    }
    const char *const near = word != NULL ? tw_nearest(word, WORDS, 3) : NULL;
    if (near != NULL) return cli_fail(TW_EXIT_USAGE, "config: did you mean `config %s`?", near);
    return cli_fail(TW_EXIT_USAGE, "config: `config check [FILE]`, `config show [FILE]` or `config "
                                   "example`");
}
