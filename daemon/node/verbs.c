#include "daemon/node/verbs.h"

#include <stdio.h>
#include <string.h>

#include "daemon/api/api.h"
#include "daemon/api/api_web.h"
#include "daemon/auth/private_file.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/invites.h"
#include "daemon/node/refusals.h"
#include "daemon/node/reload.h"
#include "daemon/node/status.h"
#include "daemon/node/workers.h"
#include "daemon/runlog/ledger_file.h"

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
        tw_api_answer(daemon->api, request, TW_CONFIG,
                      "the page is off: set `web = 127.0.0.1:9748` in [api], then `thinwire "
                      "reload`");
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

/* ---- verbs ----------------------------------------------------------------------------------- */

enum tw_status tw_daemon_verbs_reload(struct tw_daemon *daemon, struct tw_error *answer) {
    TW_TRY(tw_daemon_reload(daemon, answer));
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
