/* request.c - HTTP over the daemon's Unix socket. */
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cli/common/cli.h"

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

/* Finds the socket: --socket, else the configuration's, else (without a configuration file) the
 * default. `hint` says how to start its daemon. */
static enum tw_exit find_socket(const struct cli *cli, char path[TW_PATH_BYTES],
                                char hint[TW_PATH_BYTES + 64]) {
    static struct tw_config config;
    struct tw_error err;
    if (cli->socket_option != NULL) {
        (void)snprintf(path, TW_PATH_BYTES, "%s", cli->socket_option);
        (void)snprintf(hint, TW_PATH_BYTES + 64, "systemctl start thinwired@NAME");
        return TW_EXIT_OK;
    }
    char file[TW_PATH_BYTES];
    if (tw_config_find(cli->config_option, file, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    const bool is_asked = cli->config_option != NULL || getenv("THINWIRE_CONFIG") != NULL;
    const bool is_none = !is_asked && access(file, F_OK) != 0;
    if (is_none) {
        tw_config_defaults(&config, "thinwire");
    } else if (tw_config_load(&config, file, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    (void)snprintf(path, TW_PATH_BYTES, "%s", config.api.socket);
    const bool is_service = strncmp(file, "/etc/thinwire/", 14) == 0;
    if (is_none)
        (void)snprintf(hint, TW_PATH_BYTES + 64, "`thinwire init` or `thinwire join` makes a node");
    else if (is_service)
        (void)snprintf(hint, TW_PATH_BYTES + 64, "systemctl start thinwired@%s", config.instance);
    else
        (void)snprintf(hint, TW_PATH_BYTES + 64, "thinwire --config %s start", file);
    return TW_EXIT_OK;
}

enum tw_exit cli_socket(const struct cli *cli, char path[TW_PATH_BYTES]) {
    char hint[TW_PATH_BYTES + 64];
    return find_socket(cli, path, hint);
}

static enum tw_exit explain_failure(CURLcode rc, const char *socket_path, const char *hint) {
    const int access_rc = access(socket_path, R_OK | W_OK);
    if (access_rc != 0 && errno == EACCES) {
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "you may not open %s; use sudo, or have yourself added to its group",
                        socket_path);
    }
    if (rc == CURLE_OPERATION_TIMEDOUT) {
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "the daemon took the connection on %s but did not answer in time",
                        socket_path);
    }
    return cli_fail(TW_EXIT_UNREACHABLE,
                    "no daemon answers on %s; start it (%s) or name another with --config or "
                    "--socket",
                    socket_path, hint);
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
    char socket_path[TW_PATH_BYTES], hint[TW_PATH_BYTES + 64], *url = NULL;
    const enum tw_exit found = find_socket(cli, socket_path, hint);
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
    (void)curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket_path);
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
        return cli->is_quiet ? TW_EXIT_UNREACHABLE : explain_failure(rc, socket_path, hint);
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
