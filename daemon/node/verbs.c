#include "daemon/node/verbs.h"

#include "daemon/api/api.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/invites.h"
#include "daemon/node/refusals.h"
#include "daemon/node/reload.h"
#include "daemon/node/status.h"
#include "daemon/node/workers.h"
#include "daemon/runlog/ledger_file.h"

static void on_reload(struct tw_daemon *daemon, uint32_t request) {
    struct tw_error answer = {0};
    const enum tw_status status = tw_daemon_reload(daemon, &answer);
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

static void on_web(struct tw_daemon *daemon, uint32_t request) {
    const char *const url = tw_api_web_url(daemon->api);
    if (url != NULL)
        tw_api_answer(daemon->api, request, TW_OK, url);
    else
        tw_api_answer(
            daemon->api, request, TW_CONFIG,
            "the page is off: set `web = 127.0.0.1:9748` in [api] and restart the daemon");
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
    const struct tw_api_config api = {
        .loop = &daemon->loop,
        .socket_path = config->api.socket,
        .group = config->api.group,
        .http = config->api.has_http ? config->api.http.text : NULL,
        .web = config->api.has_web ? config->api.web.text : NULL,
        .manifest = daemon->setup->manifest,
        .history = daemon->history,
        .ledger = tw_ledger_file_table(daemon->ledger),
        .user = daemon,
        .fill = tw_daemon_status_fill,
        .verb = on_verb,
    };
    return tw_api_open(&daemon->api, &api, err);
}
