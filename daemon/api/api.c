/* One libmicrohttpd daemon per listener, both driven by the loop. api_socket.c makes the listening
 * sockets and identifies clients. */
#include "daemon/api/api.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "daemon/api/api_socket.h"
#include "daemon/api/metrics.h"
#include "daemon/api/view_json.h"

enum {
    LISTENERS = 2, /* the Unix socket, and loopback TCP when configured */
    REQUESTS_MAX = LISTENERS * TW_API_CLIENTS_MAX,
    METRICS_BYTES_MAX = 128 * 1024,
};

enum request_state { FREE, READING, WAITING /* for tw_api_answer */, ANSWERED };

struct request {
    enum request_state state;
    uint32_t generation; /* tells a late answer from the slot's next client */
    struct MHD_Connection *connection;
    bool is_suspended;
    size_t body_bytes;
    enum tw_status status;
    char message[256];
    json_t *data; /* owned; NULL: none */
};

struct listener {
    struct tw_api *api;
    struct MHD_Daemon *http;
    uv_poll_t poll;
    uv_timer_t timer;
    bool is_unix;
};

struct tw_api {
    struct tw_api_config config;
    char *socket_path;
    struct listener listeners[LISTENERS];
    unsigned listeners_count, handles_open;
    struct request requests[REQUESTS_MAX];
    struct tw_status_view view;
    char metrics[METRICS_BYTES_MAX];
};

/* ---- answers ------------------------------------------------------------------------------- */

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned code, const char *type,
                               const char *body) {
    struct MHD_Response *const response = MHD_create_response_from_buffer(
        strlen(body), (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (response == NULL) return MHD_NO;
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    const enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* Takes over `json`. */
static enum MHD_Result respond_json(struct MHD_Connection *connection, unsigned code,
                                    json_t *json) {
    char *const text =
        json != NULL ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(7)) : NULL;
    json_decref(json);
    const enum MHD_Result result =
        text != NULL ? respond(connection, code, "application/json", text)
                     : respond(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "application/json",
                               "{\"ok\":false,\"error\":\"out of memory\"}");
    free(text);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code,
                              const char *sentence) {
    return respond_json(connection, code, json_pack("{s:b,s:s}", "ok", 0, "error", sentence));
}

static enum MHD_Result respond_verb(struct MHD_Connection *connection,
                                    const struct request *request) {
    const bool is_ok = request->status == TW_OK;
    json_t *const message = json_string(request->message);
    json_t *const json = json_pack("{s:b,s:s,s:o}", "ok", is_ok, "status",
                                   tw_status_name(request->status), is_ok ? "message" : "error",
                                   message != NULL ? message : json_string("(not UTF-8)"));
    if (request->data != NULL) (void)json_object_set(json, "data", request->data);
    return respond_json(connection, is_ok ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, json);
}

/* ---- requests --------------------------------------------------------------------- */

static json_t *run_json(struct tw_api *api) {
    return tw_view_json_run(&api->view, api->config.manifest);
}
static json_t *status_json(struct tw_api *api) {
    return tw_view_json_status(&api->view);
}
static json_t *peers_json(struct tw_api *api) {
    return tw_view_json_peers(&api->view);
}
static json_t *rounds_json(struct tw_api *api) {
    return tw_view_json_rounds(&api->view);
}
static json_t *events_json(struct tw_api *api) {
    return tw_view_json_events(&api->view);
}

static const struct {
    const char *path;
    json_t *(*make)(struct tw_api *api);
} READS[] = {{"/v1/status", status_json},
             {"/v1/peers", peers_json},
             {"/v1/rounds", rounds_json},
             {"/v1/run", run_json},
             {"/v1/events", events_json}};

static const struct {
    const char *path;
    enum tw_api_verb verb;
} VERBS[] = {{"/v1/checkpoint", TW_API_CHECKPOINT},
             {"/v1/leave", TW_API_LEAVE},
             {"/v1/pause", TW_API_PAUSE},
             {"/v1/resume", TW_API_RESUME},
             {"/v1/reload", TW_API_RELOAD},
             {"/v1/limit", TW_API_LIMIT},
             {"/v1/unban", TW_API_UNBAN},
             {"/v1/invite", TW_API_INVITE},
             {"/v1/invite/list", TW_API_INVITE_LIST},
             {"/v1/invite/revoke", TW_API_INVITE_REVOKE}};

static enum MHD_Result answer_read(struct tw_api *api, struct MHD_Connection *connection,
                                   const char *path) {
    tw_status_view_init(&api->view);
    api->config.fill(api->config.user, &api->view);
    if (strcmp(path, "/metrics") == 0) {
        if (tw_metrics_encode(&api->view, api->metrics, sizeof(api->metrics)) >=
            sizeof(api->metrics)) {
            return refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "metrics are too long");
        }
        return respond(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                       api->metrics);
    }
    for (size_t i = 0; i < sizeof(READS) / sizeof(READS[0]); i++) {
        if (strcmp(path, READS[i].path) != 0) continue;
        return respond_json(connection, MHD_HTTP_OK, READS[i].make(api));
    }
    TW_ASSERT(false); /* is_read knew this path */
    return MHD_NO;
}

static bool is_read(const char *path) {
    for (size_t i = 0; i < sizeof(READS) / sizeof(READS[0]); i++) {
        if (strcmp(path, READS[i].path) == 0) return true;
    }
    return strcmp(path, "/metrics") == 0;
}

static int find_verb(const char *path) {
    for (size_t i = 0; i < sizeof(VERBS) / sizeof(VERBS[0]); i++) {
        if (strcmp(path, VERBS[i].path) == 0) return (int)VERBS[i].verb;
    }
    return -1;
}

static void on_timer(uv_timer_t *timer);

static enum MHD_Result answer_verb(struct tw_api *api, struct request *request,
                                   enum tw_api_verb verb) {
    const uint32_t ticket =
        request->generation * REQUESTS_MAX + (uint32_t)(request - api->requests);
    request->state = WAITING;
    api->config.verb(api->config.user, verb, ticket);
    if (request->state == ANSWERED) return respond_verb(request->connection, request);
    request->is_suspended = true;
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

/* Judges a request by its headers. Returns MHD_YES to go on reading. */
static enum MHD_Result admit(const struct listener *listener, struct MHD_Connection *connection,
                             const char *path, const char *method) {
    const bool is_get =
        strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    const bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    const char *const length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *const host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (length != NULL && strtoull(length, NULL, 10) > TW_API_REQUEST_BYTES_MAX) {
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "a request has at most 64 KiB");
    }
    if (!listener->is_unix && (host == NULL || !tw_api_is_loopback(host))) {
        return refuse(connection, MHD_HTTP_FORBIDDEN, "the Host header is not loopback");
    }
    if (!is_read(path) && find_verb(path) < 0) {
        return refuse(connection, MHD_HTTP_NOT_FOUND,
                      "GET /v1/status /v1/peers /v1/rounds /v1/run /v1/events /metrics, "
                      "POST /v1/checkpoint /v1/leave /v1/pause /v1/resume /v1/reload /v1/limit "
                      "/v1/invite /v1/unban");
    }
    if (is_read(path) ? !is_get : !is_post) {
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                      is_read(path) ? "this is read with GET" : "this is done with POST");
    }
    if (is_post && !listener->is_unix) {
        return refuse(connection, MHD_HTTP_FORBIDDEN, "verbs go over the Unix socket only");
    }
    if (is_post) {
        const union MHD_ConnectionInfo *const info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info == NULL || !tw_api_may_act(info->connect_fd)) {
            return refuse(connection, MHD_HTTP_FORBIDDEN,
                          "only root and the user the daemon runs as may do that; try sudo");
        }
    }
    return MHD_YES;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **slot) {
    struct listener *const listener = user;
    struct tw_api *const api = listener->api;
    struct request *request = *slot;
    (void)version, (void)body;
    if (request == NULL) {
        for (unsigned i = 0; i < REQUESTS_MAX && request == NULL; i++) {
            if (api->requests[i].state == FREE) request = &api->requests[i];
        }
        if (request == NULL) return MHD_NO; /* libmicrohttpd has no more connections than slots */
        request->state = READING;
        request->connection = connection;
        request->body_bytes = 0;
        *slot = request;
        return admit(listener, connection, path, method);
    }
    if (*body_bytes > 0) { /* no verb has a body: read, count and drop it */
        request->body_bytes += *body_bytes;
        *body_bytes = 0;
        return request->body_bytes > TW_API_REQUEST_BYTES_MAX ? MHD_NO : MHD_YES;
    }
    if (request->state == ANSWERED) return respond_verb(connection, request);
    if (request->state == WAITING) return MHD_YES;
    if (is_read(path)) return answer_read(api, connection, path);
    return answer_verb(api, request, (enum tw_api_verb)find_verb(path));
}

static void on_completed(void *user, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode code) {
    struct request *const request = *slot;
    (void)user, (void)connection, (void)code;
    if (request == NULL) return;
    request->state = FREE;
    request->is_suspended = false;
    request->generation++;
    json_decref(request->data);
    request->data = NULL;
    *slot = NULL;
}

/* Whether the client of this ticket still waits. */
static bool is_current(const struct request *request, uint32_t ticket) {
    return request->state == WAITING && (uint32_t)(request->generation * REQUESTS_MAX) ==
                                            (uint32_t)(ticket - ticket % REQUESTS_MAX);
}

const char *tw_api_argument(const struct tw_api *api, uint32_t ticket, const char *name) {
    const struct request *const request = &api->requests[ticket % REQUESTS_MAX];
    TW_ASSERT(is_current(request, ticket));
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

void tw_api_answer_data(struct tw_api *api, uint32_t ticket, const char *message, json_t *data) {
    struct request *const request = &api->requests[ticket % REQUESTS_MAX];
    if (is_current(request, ticket))
        request->data = data;
    else
        json_decref(data);
    tw_api_answer(api, ticket, TW_OK, message);
}

void tw_api_answer(struct tw_api *api, uint32_t ticket, enum tw_status status,
                   const char *message) {
    struct request *const request = &api->requests[ticket % REQUESTS_MAX];
    if (!is_current(request, ticket)) return; /* that client went away */
    request->state = ANSWERED;
    request->status = status;
    (void)snprintf(request->message, sizeof(request->message), "%s", message);
    if (!request->is_suspended) return; /* still inside the verb callback */
    request->is_suspended = false;
    MHD_resume_connection(request->connection);
    for (unsigned i = 0; i < api->listeners_count;
         i++) { /* a resume does not wake the loop by itself */
        (void)uv_timer_start(&api->listeners[i].timer, on_timer, 0, 0);
    }
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* Arms the timer for libmicrohttpd's next deadline. */
static void arm_timer(struct listener *listener) {
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    if (MHD_get_timeout(listener->http, &wait_ms) != MHD_YES) {
        (void)uv_timer_stop(&listener->timer);
        return;
    }
    (void)uv_timer_start(&listener->timer, on_timer, wait_ms, 0);
}

static void run_http(struct listener *listener) {
    (void)MHD_run(listener->http);
    arm_timer(listener);
}

static void on_timer(uv_timer_t *timer) {
    run_http(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    run_http(poll->data);
}

/* Takes over `fd`, also on failure. */
static enum tw_status listen_on(struct tw_api *api, int fd, bool is_unix, struct tw_error *err) {
    struct listener *const listener = &api->listeners[api->listeners_count];
    listener->api = api;
    listener->is_unix = is_unix;
    listener->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, listener,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)TW_API_CLIENTS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TW_API_SILENCE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)TW_API_REQUEST_BYTES_MAX,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_END);
    if (listener->http == NULL) {
        (void)close(fd);
        return tw_fail(err, TW_IO, "the local API could not start its HTTP server");
    }
    const union MHD_DaemonInfo *const info =
        MHD_get_daemon_info(listener->http, MHD_DAEMON_INFO_EPOLL_FD);
    TW_ASSERT(info != NULL);
    if (uv_poll_init(api->config.loop, &listener->poll, info->epoll_fd) != 0) {
        MHD_stop_daemon(listener->http);
        return tw_fail(err, TW_IO, "the local API could not join the event loop");
    }
    TW_ASSERT(uv_timer_init(api->config.loop, &listener->timer) == 0);
    listener->poll.data = listener->timer.data = listener;
    TW_ASSERT(uv_poll_start(&listener->poll, UV_READABLE, on_poll) == 0);
    api->listeners_count++;
    api->handles_open += 2;
    arm_timer(listener);
    return TW_OK;
}

enum tw_status tw_api_open(struct tw_api **api_out, const struct tw_api_config *config,
                           struct tw_error *err) {
    struct tw_api *const api = calloc(1, sizeof(*api));
    char *const socket_path = strdup(config->socket_path);
    if (api == NULL || socket_path == NULL) {
        free(api);
        free(socket_path);
        return tw_fail(err, TW_NOMEM, "no memory for the local API");
    }
    api->config = *config;
    int fd = -1;
    enum tw_status status = tw_api_listen_unix(socket_path, config->group, &fd, err);
    if (status == TW_OK) {
        api->socket_path = socket_path;
        status = listen_on(api, fd, true, err);
    } else {
        free(socket_path);
    }
    if (status == TW_OK && config->http != NULL && config->http[0] != 0) {
        status = tw_api_listen_tcp(config->http, &fd, err);
        if (status == TW_OK) status = listen_on(api, fd, false, err);
    }
    if (status != TW_OK) {
        tw_api_close(api);
        return status;
    }
    *api_out = api;
    return TW_OK;
}

static void free_api(struct tw_api *api) {
    free(api->socket_path);
    free(api);
}

static void on_closed(uv_handle_t *handle) {
    struct tw_api *const api = ((struct listener *)handle->data)->api;
    if (--api->handles_open == 0) free_api(api);
}

void tw_api_close(struct tw_api *api) {
    if (api == NULL) return;
    if (api->socket_path != NULL) (void)unlink(api->socket_path);
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (api->requests[i].state != WAITING) continue;
        tw_api_answer(api, api->requests[i].generation * REQUESTS_MAX + i, TW_OK,
                      "the daemon is stopping");
    }
    if (api->listeners_count == 0) {
        free_api(api);
        return;
    }
    for (unsigned i = 0; i < api->listeners_count; i++) {
        struct listener *const listener = &api->listeners[i];
        uv_close((uv_handle_t *)&listener->poll,
                 on_closed); /* before libmicrohttpd closes the descriptor */
        uv_close((uv_handle_t *)&listener->timer, on_closed);
        for (unsigned k = 0; k < 4; k++) (void)MHD_run(listener->http); /* sends the last answers */
        MHD_stop_daemon(listener->http);
    }
}
