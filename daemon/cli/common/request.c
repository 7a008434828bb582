/* request.c - HTTP over the daemon's Unix socket. */
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/node_user.h"

enum { ANSWER_BYTES_MAX = 8 * 1024 * 1024, READ_S = 10, VERB_S = 300 };

struct answer {
    char *bytes;
    size_t size;
};

static size_t on_bytes(char *bytes, size_t one, size_t count, void *user) {
    struct answer *const answer = user;
    (void)one;
    if (answer->size + count > ANSWER_BYTES_MAX) return 0;
    char *const grown = realloc(answer->bytes, answer->size + count + 1);
    if (grown == NULL) return 0;
    memcpy(grown + answer->size, bytes, count);
    answer->bytes = grown;
    answer->size += count;
    grown[answer->size] = 0;
    return count;
}

/* The selected daemon: its socket, and the ways out if it does not answer. */
struct target {
    char socket[TW_PATH_BYTES];
    char start[CLI_COMMAND_BYTES + 2]; /* how to start it */
    char as_root[CLI_COMMAND_BYTES +
                 2]; /* the same command for a user who may not open the socket */
};

/* Finds the socket: --socket, else the configuration's, else (without a configuration file) the
 * default. */
static enum tw_exit find_target(const struct cli *cli, struct target *target) {
    static struct tw_config config;
    struct tw_error err;
    char file[TW_PATH_BYTES], command[CLI_COMMAND_BYTES];
    (void)snprintf(target->as_root, sizeof(target->as_root), "use sudo");
    if (cli->socket_option != NULL) {
        (void)snprintf(target->socket, sizeof(target->socket), "%s", cli->socket_option);
        (void)snprintf(target->start, sizeof(target->start), "`thinwire --config NAME start`");
        return TW_EXIT_OK;
    }
    if (tw_config_find(cli->config_option, file, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    const char *const asked = getenv("THINWIRE_CONFIG");
    const bool is_asked = cli->config_option != NULL || (asked != NULL && *asked != 0);
    const bool is_none = !is_asked && access(file, F_OK) != 0;
    if (is_none) {
        tw_config_defaults(&config, "thinwire");
    } else if (tw_config_load(&config, file, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    (void)snprintf(target->socket, sizeof(target->socket), "%s", config.api.socket);
    if (is_none) {
        (void)snprintf(target->start, sizeof(target->start),
                       "`thinwire init` or `thinwire join` makes a node");
        return TW_EXIT_OK;
    }
    (void)snprintf(target->start, sizeof(target->start), "`%s`",
                   cli_command(file, cli_needs_sudo(file), "start", command));
    (void)snprintf(target->as_root, sizeof(target->as_root), "`%s`",
                   cli_command(file, true, cli->words, command));
    return TW_EXIT_OK;
}

enum tw_exit cli_socket(const struct cli *cli, char path[TW_PATH_BYTES]) {
    struct target target;
    const enum tw_exit rc = find_target(cli, &target);
    if (rc == TW_EXIT_OK) memcpy(path, target.socket, TW_PATH_BYTES);
    return rc;
}

static enum tw_exit explain_failure(CURLcode rc, const struct target *target) {
    const int access_rc = access(target->socket, R_OK | W_OK);
    if (access_rc != 0 && errno == EACCES) {
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "you may not open %s: %s, or have yourself added to its group",
                        target->socket, target->as_root);
    }
    if (rc == CURLE_OPERATION_TIMEDOUT) {
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "the daemon took the connection on %s but did not answer in time",
                        target->socket);
    }
    return cli_fail(TW_EXIT_UNREACHABLE,
                    "no daemon answers on %s; start it (%s) or name another with --config or "
                    "--socket",
                    target->socket, target->start);
}

struct wait {
    void (*waiting)(unsigned waited_s);
    time_t begin;
};

static int on_wait(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    const struct wait *const wait = user;
    const time_t waited = time(NULL) - wait->begin;
    (void)a, (void)b, (void)c, (void)d;
    if (waited > 0) wait->waiting((unsigned)waited);
    return 0;
}

/* Sets time limits: seconds for GET, minutes for POST, none for a command that shows its waiting.
 */
static void set_limits(CURL *curl, const struct cli *cli, bool is_post, struct wait *wait) {
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 3L);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, is_post ? (long)VERB_S : (long)READ_S);
    if (cli->waiting == NULL) return;
    *wait = (struct wait){cli->waiting, time(NULL)};
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_wait);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, wait);
}

enum tw_exit cli_request(const struct cli *cli, const char *method, const char *path,
                         long *code_out, char **body_out) {
    struct target target;
    char *url = NULL;
    const enum tw_exit found = find_target(cli, &target);
    if (found != TW_EXIT_OK) return found;
    struct answer answer = {NULL, 0};
    struct wait wait;
    CURL *const curl = curl_easy_init();
    if (curl == NULL) return cli_fail(TW_EXIT_FAILURE, "libcurl could not start");
    const bool is_post = strcmp(method, "POST") == 0;
    if (asprintf(&url, "http://localhost%s", path) < 0) {
        curl_easy_cleanup(curl);
        return cli_fail(TW_EXIT_FAILURE, "out of memory");
    }
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    free(url); /* libcurl has copied it */
    (void)curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, target.socket);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    set_limits(curl, cli, is_post, &wait);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    if (is_post) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    }
    const CURLcode rc = curl_easy_perform(curl);
    if (cli->waiting != NULL) cli->waiting(0);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, code_out);
    curl_easy_cleanup(curl);
    if (rc != CURLE_OK || answer.bytes == NULL) {
        free(answer.bytes);
        return cli->is_quiet ? TW_EXIT_UNREACHABLE : explain_failure(rc, &target);
    }
    *body_out = answer.bytes;
    return TW_EXIT_OK;
}

enum tw_exit cli_get(const struct cli *cli, const char *path, json_t **json_out) {
    long code = 0;
    char *body = NULL;
    json_error_t err;
    *json_out = NULL;
    const enum tw_exit rc = cli_request(cli, "GET", path, &code, &body);
    if (rc != TW_EXIT_OK) return rc;
    json_t *const json = json_loads(body, 0, &err);
    if (json == NULL || code != 200) {
        const char *const why = json_string_value(json_object_get(json, "error"));
        const enum tw_exit failed = cli_fail(TW_EXIT_FAILURE, "the daemon answered %ld to %s: %s",
                                             code, path, why != NULL ? why : "no JSON");
        json_decref(json);
        free(body);
        return failed;
    }
    if (cli->json) {
        (void)puts(body);
        json_decref(json);
    } else {
        *json_out = json;
    }
    free(body);
    return TW_EXIT_OK;
}
