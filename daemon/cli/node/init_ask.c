#include "daemon/cli/node/init_ask.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/common/node_user.h"
#include "daemon/cli/node/start_check.h"
#include "daemon/cli/run/manifest_text.h"

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
        if (status != TW_OK) (void)fprintf(stderr, "thinwire: for the start: %s\n", err.message);
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
    struct tw_error err;
    path[0] = '\0';
    for (unsigned i = 0; i < (cli_is_service(files->config_path) ? 2 : 1) && path[0] == '\0'; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0) continue;
        if (found.gl_pathc == 1 && strlen(found.gl_pathv[0]) < TW_PATH_BYTES)
            (void)snprintf(path, TW_PATH_BYTES, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
    if (path[0] != '\0' && check_run(path, &err) != TW_OK) path[0] = '\0';
}

/* Asks one question. An empty line sets `answer` to the suggestion in brackets, or to "". */
static enum tw_exit ask(const struct node_files *files, const struct question *question,
                        char answer[TW_PATH_BYTES]) {
    struct tw_error err = {0};
    char suggested[TW_PATH_BYTES] = "";
    if (question->check == check_run) suggest_run(files, suggested);
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

enum tw_exit init_ask(const struct cli *cli, struct node_files *files) {
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
