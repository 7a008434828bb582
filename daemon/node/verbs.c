#include "daemon/node/verbs.h"

#include <stdio.h>
#include <string.h>

#include "daemon/api/api.h"
#include "daemon/auth/identity.h"
#include "daemon/config/config_table.h"
#include "daemon/net/transport.h"
#include "daemon/node/admission.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/invites.h"
#include "daemon/node/links.h"
#include "daemon/node/status.h"
#include "daemon/node/ways.h"
#include "daemon/node/workers.h"
#include "daemon/runlog/run_log.h"
#include "daemon/workerlink/worker_host.h"

/* ---- the web page ---------------------------------------------------------------------------- */

enum { TOKEN_PATH_BYTES = TW_PATH_BYTES + 16 };

static const char *token_path(const struct tw_daemon *daemon, char path[TOKEN_PATH_BYTES]) {
    (void)snprintf(path, TOKEN_PATH_BYTES, "%s/web.token", daemon->setup->config.node.state_dir);
    return path;
}

/* Reads the token that an earlier start has saved. A file that is damaged, or that others can read,
 * does not count. */
static bool load_token(const struct tw_daemon *daemon, char token[TW_API_TOKEN_BYTES]) {
    enum { DIGITS = TW_API_TOKEN_BYTES - 1 };
    char path[TOKEN_PATH_BYTES], text[TW_API_TOKEN_BYTES + 2];
    size_t size;
    struct tw_error err;
    if (tw_private_read(token_path(daemon, path), text, sizeof(text), &size, &err) != TW_OK)
        return false;
    if (strspn(text, "0123456789abcdef") != DIGITS) return false;
    if (strcmp(text + DIGITS, "\n") != 0) return false;
    memcpy(token, text, DIGITS);
    token[DIGITS] = '\0';
    return true;
}

static enum tw_status renew_token(const struct tw_daemon *daemon, char token[TW_API_TOKEN_BYTES],
                                  struct tw_error *err) {
    char path[TOKEN_PATH_BYTES], text[TW_API_TOKEN_BYTES + 1];
    TW_TRY(tw_api_web_draw(token, err));
    const int size = snprintf(text, sizeof(text), "%s\n", token);
    return tw_private_replace(token_path(daemon, path), text, (size_t)size, err);
}

/* Returns the token of the page, or NULL if there is no page, or if the token cannot be saved:
 * tw_api_open then draws one that lasts until the daemon ends. */
static const char *web_token(struct tw_daemon *daemon, char token[TW_API_TOKEN_BYTES]) {
    struct tw_error err;
    if (!daemon->setup->config.api.has_web) return NULL;
    if (load_token(daemon, token)) return token;
    if (renew_token(daemon, token, &err) == TW_OK) return token;
    tw_daemon_note(daemon, TW_LOG_WARN, "web_token_unsaved",
                   "text=\"the link of the page ends with this daemon: %s\"", err.message);
    return NULL;
}

static enum tw_status open_page(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_config *config = &daemon->setup->config;
    char token[TW_API_TOKEN_BYTES];
    if (!load_token(daemon, token)) TW_TRY(renew_token(daemon, token, err));
    return tw_api_open_web(daemon->api, config->api.web.text, token, err);
}

static void on_web(struct tw_daemon *daemon, uint32_t request) {
    char token[TW_API_TOKEN_BYTES];
    struct tw_error err = {0};
    if (tw_api_web_url(daemon->api) == NULL) {
        (void)tw_fail(&err, TW_CONFIG,
                      "the page is off: set `web = 127.0.0.1:9748` in [api] of %.200s, then "
                      "`thinwire reload`",
                      daemon->setup->config.path);
        tw_api_answer(daemon->api, request, TW_CONFIG, err.message);
        return;
    }
    const bool is_new = tw_api_argument(daemon->api, request, "new") != NULL;
    if (is_new && renew_token(daemon, token, &err) != TW_OK) {
        tw_api_answer(daemon->api, request, TW_IO, err.message);
        return;
    }
    if (is_new) tw_api_set_web_token(daemon->api, token);
    tw_api_answer(daemon->api, request, TW_OK, tw_api_web_url(daemon->api));
}

/* ---- the configuration read again --------------------------------------------------------- */

enum { LIST_BYTES = 160 };

static void add_name(char list[LIST_BYTES], const struct tw_config_key *key) {
    const size_t used = strlen(list);
    (void)snprintf(list + used, LIST_BYTES - used, "%s%s.%s", used > 0 ? ", " : "", key->section,
                   key->name);
}

static bool is_equal(const struct tw_config *a, const struct tw_config *b,
                     const struct tw_config_key *key) {
    char text_a[TW_PATH_BYTES], text_b[TW_PATH_BYTES];
    for (uint32_t i = 0;; i++) {
        const bool has_a = tw_config_get(a, key, i, text_a, sizeof(text_a));
        const bool has_b = tw_config_get(b, key, i, text_b, sizeof(text_b));
        if (has_a != has_b) return false;
        if (!has_a) return true;
        if (strcmp(text_a, text_b) != 0) return false;
    }
}

static void copy_key(struct tw_config *to, const struct tw_config *from,
                     const struct tw_config_key *key) {
    memcpy((char *)to + key->offset, (const char *)from + key->offset, key->size);
    if (key->type == TW_CONFIG_PEERS || key->type == TW_CONFIG_ADDRESSES)
        memcpy((char *)to + key->count_offset, (const char *)from + key->count_offset,
               sizeof(uint32_t));
    if (key->type == TW_CONFIG_ADDRESS) /* has_web */
        memcpy((char *)to + key->count_offset, (const char *)from + key->count_offset,
               sizeof(bool));
}

/* Adds the configured peers. Known ones keep their history, and removed ones stay known until a
 * restart. */
static void learn_peers(struct tw_daemon *daemon) {
    struct tw_error err = {0};
    if (daemon->transport == NULL) return;
    if (tw_daemon_links_bootstrap(daemon, &err) != TW_OK)
        tw_daemon_note(daemon, TW_LOG_WARN, "peers_not_read", "text=\"%s\"", err.message);
}

/* Returns true if the key turns the web page on, which tw_daemon_verbs_reload does. */
static bool opens_page(const struct tw_daemon *daemon, const struct tw_config *fresh,
                       const struct tw_config_key *key) {
    return strcmp(key->section, "api") == 0 && strcmp(key->name, "web") == 0 &&
           fresh->api.has_web && tw_api_web_url(daemon->api) == NULL;
}

static enum tw_status read_again(struct tw_daemon *daemon, struct tw_error *answer) {
    static struct tw_config fresh; /* static, because it is too large for the stack; only the loop
                                      uses it */
    struct tw_config *config = &daemon->setup->config;
    char taken[LIST_BYTES] = "", left[LIST_BYTES] = "";
    const enum tw_status status = tw_config_load(&fresh, config->path, answer);
    if (status != TW_OK) {
        tw_daemon_note(daemon, TW_LOG_ERROR, "not_reloaded", "text=\"%s\"", answer->message);
        return status;
    }
    size_t count;
    bool has_budget = false;
    const struct tw_config_key *const keys = tw_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        if (is_equal(config, &fresh, &keys[i])) continue;
        const bool is_live =
            tw_config_key_is_live(&keys[i]) || opens_page(daemon, &fresh, &keys[i]);
        add_name(is_live ? taken : left, &keys[i]);
        if (is_live) copy_key(config, &fresh, &keys[i]);
        has_budget |= is_live && keys[i].type == TW_CONFIG_BUDGET;
    }
    tw_daemon_caps_apply(daemon);
    tw_daemon_workers_apply(daemon);
    if (has_budget) tw_daemon_budget_apply(daemon);
    tw_daemon_relays_apply(daemon);
    if (daemon->transport != NULL) tw_transport_set_pace(daemon->transport, &config->network.pace);
    learn_peers(daemon);
    (void)snprintf(answer->message, sizeof(answer->message), "%s%.100s%s%.100s",
                   taken[0] != '\0' ? "taken over: " : "no reloadable key has changed", taken,
                   left[0] != '\0' ? "; needs a restart: " : "", left);
    tw_daemon_note(daemon, TW_LOG_INFO, "reloaded", "text=\"%s\"", answer->message);
    return TW_OK;
}

/* ---- verbs ----------------------------------------------------------------------------------- */

enum tw_status tw_daemon_verbs_reload(struct tw_daemon *daemon, struct tw_error *answer) {
    TW_TRY(read_again(daemon, answer));
    const bool is_missing =
        daemon->setup->config.api.has_web && tw_api_web_url(daemon->api) == NULL;
    return is_missing ? open_page(daemon, answer) : TW_OK;
}

static void on_reload(struct tw_daemon *daemon, uint32_t request) {
    struct tw_error answer = {0};
    const enum tw_status status = tw_daemon_verbs_reload(daemon, &answer);
    tw_api_answer(daemon->api, request, status, answer.message);
}

static void on_pause(struct tw_daemon *daemon, bool is_paused, uint32_t request) {
    struct tw_error answer = {0};
    tw_daemon_workers_pause(daemon, is_paused, &answer);
    if (daemon->host->is_finished)
        (void)snprintf(answer.message, sizeof(answer.message),
                       "this node has finished the run, so it trains in neither case");
    tw_api_answer(daemon->api, request, TW_OK, answer.message);
}

static void on_limit(struct tw_daemon *daemon, uint32_t request) {
    struct tw_error answer = {0};
    const enum tw_status status =
        tw_daemon_caps_limit(daemon, tw_api_argument(daemon->api, request, "upload"),
                             tw_api_argument(daemon->api, request, "download"), &answer);
    tw_api_answer(daemon->api, request, status, answer.message);
}

static void on_unban(struct tw_daemon *daemon, uint32_t request) {
    struct tw_error answer = {0};
    const char *node = tw_api_argument(daemon->api, request, "node");
    const enum tw_status status =
        tw_daemon_refusals_unban(daemon, node != NULL ? node : "", &answer);
    tw_api_answer(daemon->api, request, status, answer.message);
}

static void on_verb(void *user, enum tw_api_verb verb, uint32_t request) {
    struct tw_daemon *daemon = user;
    switch (verb) {
    case TW_API_CHECKPOINT: tw_daemon_checkpoints_save(daemon, &request); return;
    case TW_API_LEAVE:
        if (daemon->stage != TW_DAEMON_RUNNING || daemon->has_leave_request) {
            tw_api_answer(daemon->api, request, TW_OK, "the daemon is leaving already");
            return;
        }
        daemon->has_leave_request = true; /* answered when the last checkpoint is saved */
        daemon->leave_request = request;
        tw_daemon_leave(daemon, TW_EXIT_OK);
        return;
    case TW_API_PAUSE:
    case TW_API_RESUME: on_pause(daemon, verb == TW_API_PAUSE, request); return;
    case TW_API_INVITE:
    case TW_API_INVITE_LIST:
    case TW_API_INVITE_REVOKE: tw_daemon_invites_verb(daemon, verb, request); return;
    case TW_API_RELOAD: on_reload(daemon, request); return;
    case TW_API_LIMIT: on_limit(daemon, request); return;
    case TW_API_UNBAN: on_unban(daemon, request); return;
    case TW_API_WEB: on_web(daemon, request); return;
    }
}

enum tw_status tw_daemon_verbs_open(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_config *config = &daemon->setup->config;
    char token[TW_API_TOKEN_BYTES];
    const struct tw_api_config api = {
        .loop = &daemon->loop,
        .socket_path = config->api.socket,
        .group = config->api.group,
        .http = config->api.has_http ? config->api.http.text : NULL,
        .web = config->api.has_web ? config->api.web.text : NULL,
        .web_token = web_token(daemon, token),
        .manifest = daemon->setup->manifest,
        .history = daemon->history,
        .ledger = tw_ledger_file_table(daemon->ledger),
        .user = daemon,
        .fill = tw_daemon_status_fill,
        .verb = on_verb,
    };
    return tw_api_open(&daemon->api, &api, err);
}
