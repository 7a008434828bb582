/* api.c - accepts the API's clients and answers their requests. api_seats.c gives each client a
 * seat. One libmicrohttpd daemon, driven by the libuv loop, serves all of them. libmicrohttpd gets
 * no listening socket: at its client limit it would stop watching it, and it cannot tell owners
 * from guests. */
#include "daemon/api/api.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "daemon/api/api_seats.h"
#include "daemon/api/api_socket.h"
#include "daemon/api/api_web.h"
#include "daemon/api/history.h"
#include "daemon/api/ledger.h"
#include "daemon/api/metrics.h"
#include "daemon/api/view_json.h"
#include "daemon/api/view_versions.h"
#include "daemon/web/web_files.h"

enum {
    METRICS_BYTES_MAX = 128 * 1024,
    ACCEPTS_MAX = 16, /* clients accepted in one turn of the loop */
    REST_US =
        1000 * 1000, /* pause before the next accept() when the process is out of descriptors */
    CUT_OFF_US = 1000 * 1000, /* time for libmicrohttpd to notice that a client was cut off */
};

enum request_state { FREE, READING, WAITING /* for tw_api_answer */, ANSWERED };

/* The request of one client. Its index is that of the client's seat (api_seats.h). */
struct request {
    enum request_state state;
    uint32_t generation; /* number of requests in this seat so far: exposes an answer to an earlier
                            one */
    struct MHD_Connection *connection;
    bool is_suspended;
    size_t body_bytes;
    enum tw_status status;
    char message[256];
    json_t *data; /* owned; NULL: none */
};

enum listener_kind { UNIX, HTTP, WEB };

struct listener {
    int fd;
    uv_poll_t poll; /* its data: the API */
    enum listener_kind kind;
};

struct tw_api {
    struct tw_api_config config;
    char *socket_path;
    struct listener listeners[TW_API_LISTENERS_MAX];
    unsigned listeners_count, handles_open;
    struct MHD_Daemon *http;
    uv_poll_t poll; /* poll handle of libmicrohttpd's epoll descriptor */
    uv_timer_t timer;
    uint64_t rest_until_us; /* no client is accepted before this time */
    struct tw_api_seats seats;
    struct tw_api_web web;
    struct request requests[TW_API_SEATS_MAX];
    struct tw_status_view view;
    char metrics[METRICS_BYTES_MAX];
};

/* ---- answers ------------------------------------------------------------------------------- */

/* Takes ownership of `response`. */
static enum MHD_Result queue(struct MHD_Connection *connection, unsigned code, const char *type,
                             struct MHD_Response *response) {
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    tw_api_web_confine(response);
    const enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned code, const char *type,
                               const char *body) {
    struct MHD_Response *const response = MHD_create_response_from_buffer(
        strlen(body), (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (response == NULL) return MHD_NO;
    return queue(connection, code, type, response);
}

static enum MHD_Result respond_file(struct MHD_Connection *connection,
                                    const struct tw_web_file *file) {
    struct MHD_Response *const response = MHD_create_response_from_buffer(
        file->size, (void *)(uintptr_t)file->bytes, MHD_RESPMEM_PERSISTENT);
    return response != NULL ? queue(connection, MHD_HTTP_OK, file->type, response) : MHD_NO;
}

/* Takes ownership of `json`. */
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
static json_t *history_json(struct tw_api *api) {
    static const struct tw_history EMPTY;
    const struct tw_history *const history = api->config.history;
    return tw_history_json(history != NULL ? history : &EMPTY, api->view.run.fragments_count);
}

/* Adds `name` to each row of a list of nodes: null for a node without one. */
static void add_names(const struct tw_api *api, json_t *nodes) {
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_t *const row = json_array_get(nodes, i);
        const char *const hex = json_string_value(json_object_get(row, "id"));
        const char *name = "";
        struct tw_id id = {{0}};
        (void)tw_id_parse(hex != NULL ? hex : "", &id);
        if (tw_id_equal(&id, &api->view.node.id)) name = api->view.node.name;
        for (uint32_t k = 0; k < api->view.peers_count && k < TW_VIEW_PEERS_MAX; k++) {
            if (tw_id_equal(&api->view.peers[k].id, &id)) name = api->view.peers[k].name;
        }
        (void)json_object_set_new(row, "name", name[0] != '\0' ? json_string(name) : json_null());
    }
}

static json_t *ledger_json(struct tw_api *api) {
    static const struct tw_ledger EMPTY;
    const struct tw_ledger *const ledger = api->config.ledger;
    json_t *const json = tw_ledger_json(ledger != NULL ? ledger : &EMPTY, &api->view.node.id);
    add_names(api, json_object_get(json, "nodes"));
    return json;
}

static json_t *versions_json(struct tw_api *api) {
    return tw_view_json_versions(&api->view);
}

static const struct {
    const char *path;
    json_t *(*make)(struct tw_api *api);
} READS[] = {{"/v1/status", status_json}, {"/v1/peers", peers_json},
             {"/v1/rounds", rounds_json}, {"/v1/run", run_json},
             {"/v1/events", events_json}, {"/v1/history", history_json},
             {"/v1/ledger", ledger_json}, {"/v1/versions", versions_json}};

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
             {"/v1/invite/revoke", TW_API_INVITE_REVOKE},
             {"/v1/web", TW_API_WEB}};

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
    TW_ASSERT(false); /* is_read accepts only the paths above */
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

/* Returns the index of a connection's seat, or -1 if it has none. */
static int find_seat(const struct tw_api *api, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info != NULL ? tw_api_seats_find(&api->seats, info->connect_fd) : -1;
}

static enum MHD_Result answer_verb(struct tw_api *api, struct request *request,
                                   enum tw_api_verb verb) {
    const uint32_t number =
        request->generation * TW_API_SEATS_MAX + (uint32_t)(request - api->requests);
    request->state = WAITING;
    api->config.verb(api->config.user, verb, number);
    if (request->state == ANSWERED) return respond_verb(request->connection, request);
    request->is_suspended = true;
    api->seats.seats[request - api->requests].deadline_us = UINT64_MAX;
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Checks the method and the client's rights. The path is known to be valid. */
static enum MHD_Result admit_method(const struct tw_api *api, const struct tw_api_seat *seat,
                                    struct MHD_Connection *connection, const char *path,
                                    const char *method) {
    const bool is_unix = api->listeners[seat->listener].kind == UNIX;
    const bool is_get =
        strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    const bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    const bool is_verb = find_verb(path) >= 0;
    if (is_verb ? !is_post : !is_get) {
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                      is_verb ? "this is done with POST" : "this is read with GET");
    }
    if (is_post && !is_unix) {
        return refuse(connection, MHD_HTTP_FORBIDDEN, "verbs go over the Unix socket only");
    }
    if (is_post && !seat->is_owner) {
        return refuse(connection, MHD_HTTP_FORBIDDEN,
                      "only root and the user the daemon runs as may do that; try sudo");
    }
    return MHD_YES;
}

/* Checks a request by its path and headers. Returns MHD_YES to go on reading. */
static enum MHD_Result admit(const struct tw_api *api, const struct tw_api_seat *seat,
                             struct MHD_Connection *connection, const char *path,
                             const char *method) {
    const enum listener_kind kind = api->listeners[seat->listener].kind;
    const char *const length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *const host = header(connection, MHD_HTTP_HEADER_HOST);
    const bool is_file = kind == WEB && tw_api_web_file(path) != NULL;
    if (length != NULL && strtoull(length, NULL, 10) > TW_API_REQUEST_BYTES_MAX) {
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "a request has at most 64 KiB");
    }
    if (kind != UNIX && (host == NULL || !tw_api_is_loopback(host))) {
        return refuse(connection, MHD_HTTP_FORBIDDEN, "the Host header is not loopback");
    }
    if (kind == WEB && !is_file &&
        !tw_api_web_admits(&api->web, header(connection, MHD_HTTP_HEADER_AUTHORIZATION))) {
        return refuse(connection, MHD_HTTP_UNAUTHORIZED,
                      "this needs the token of the page; `thinwire web` prints a link with it");
    }
    if (!is_file && !is_read(path) && find_verb(path) < 0) {
        return refuse(
            connection, MHD_HTTP_NOT_FOUND,
            "GET /v1/status /v1/peers /v1/rounds /v1/run /v1/events /v1/history /v1/ledger "
            "/v1/versions "
            "/metrics, "
            "POST /v1/checkpoint /v1/leave /v1/pause /v1/resume /v1/reload /v1/limit "
            "/v1/invite /v1/unban /v1/web");
    }
    return admit_method(api, seat, connection, path, method);
}

static uint64_t patience_us(const struct tw_api *api) {
    return api->config.request_us > 0 ? api->config.request_us : TW_API_REQUEST_US;
}

static uint64_t now_us(const struct tw_api *api) {
    return uv_now(api->config.loop) * 1000;
}

/* Restarts a client's time limit: for its next request, or for reading an answer. */
static void renew_deadline(struct tw_api *api, const struct request *request) {
    api->seats.seats[request - api->requests].deadline_us = now_us(api) + patience_us(api);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **slot) {
    struct tw_api *const api = user;
    struct request *request = *slot;
    (void)version, (void)body;
    if (request == NULL) {
        const int seat = find_seat(api, connection);
        if (seat < 0) return MHD_NO;
        request = &api->requests[seat];
        request->state = READING;
        request->connection = connection;
        request->body_bytes = 0;
        *slot = request;
        return admit(api, &api->seats.seats[seat], connection, path, method);
    }
    if (*body_bytes > 0) { /* no POST request needs a body: read, count and drop it */
        request->body_bytes += *body_bytes;
        *body_bytes = 0;
        return request->body_bytes > TW_API_REQUEST_BYTES_MAX ? MHD_NO : MHD_YES;
    }
    if (request->state == ANSWERED) return respond_verb(connection, request);
    if (request->state == WAITING) return MHD_YES;
    const struct tw_web_file *const file = tw_api_web_file(path);
    if (file != NULL) return respond_file(connection, file); /* admit() found this file */
    if (is_read(path)) return answer_read(api, connection, path);
    return answer_verb(api, request, (enum tw_api_verb)find_verb(path));
}

static void on_completed(void *user, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode code) {
    struct tw_api *const api = user;
    struct request *const request = *slot;
    (void)connection, (void)code;
    if (request == NULL) return;
    request->state = FREE;
    request->is_suspended = false;
    request->generation++;
    json_decref(request->data);
    request->data = NULL;
    *slot = NULL;
    renew_deadline(api, request);
}

/* Returns true if the client still waits for this answer. An older `number` belongs to an earlier
 * request in the same seat. */
static bool is_current(const struct request *request, uint32_t number) {
    return request->state == WAITING && (uint32_t)(request->generation * TW_API_SEATS_MAX) ==
                                            (uint32_t)(number - number % TW_API_SEATS_MAX);
}

const char *tw_api_argument(const struct tw_api *api, uint32_t number, const char *name) {
    const struct request *const request = &api->requests[number % TW_API_SEATS_MAX];
    TW_ASSERT(is_current(request, number));
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

void tw_api_answer_data(struct tw_api *api, uint32_t number, const char *message, json_t *data) {
    struct request *const request = &api->requests[number % TW_API_SEATS_MAX];
    if (is_current(request, number))
        request->data = data;
    else
        json_decref(data);
    tw_api_answer(api, number, TW_OK, message);
}

void tw_api_answer(struct tw_api *api, uint32_t number, enum tw_status status,
                   const char *message) {
    struct request *const request = &api->requests[number % TW_API_SEATS_MAX];
    if (!is_current(request, number)) return; /* the client of this request went away */
    request->state = ANSWERED;
    request->status = status;
    (void)snprintf(request->message, sizeof(request->message), "%s", message);
    if (!request->is_suspended)
        return; /* config.verb has not returned yet; answer_verb() sends the answer */
    request->is_suspended = false;
    MHD_resume_connection(request->connection);
    renew_deadline(api, request);
    /* MHD_resume_connection does not wake the loop by itself. */
    (void)uv_timer_start(&api->timer, on_timer, 0, 0);
}

/* ---- clients ------------------------------------------------------------------------------- */

/* Disconnects a client: libmicrohttpd sees the end of the connection and closes it. */
static void cut_off(struct tw_api *api, int seat) {
    (void)shutdown(api->seats.seats[seat].fd, SHUT_RDWR);
    api->seats.seats[seat].deadline_us = now_us(api) + CUT_OFF_US;
}

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct tw_api *const api = user;
    const int seat = find_seat(api, connection);
    (void)context;
    if (seat < 0) return;
    const bool has_begun = code == MHD_CONNECTION_NOTIFY_STARTED;
    api->requests[seat].connection = has_begun ? connection : NULL;
    if (!has_begun) api->seats.seats[seat].is_taken = false;
}

/* Takes ownership of `fd`. */
static void seat_client(struct tw_api *api, uint8_t listener, int fd) {
    const bool is_owner = api->listeners[listener].kind == UNIX && tw_api_may_act(fd);
    const uint64_t deadline_us = now_us(api) + patience_us(api);
    int seat = tw_api_seats_take(&api->seats, is_owner, listener, fd, deadline_us);
    if (seat < 0 && !is_owner) {
        const int hurried = tw_api_seats_hurried(&api->seats, listener);
        TW_ASSERT(hurried >= 0);
        cut_off(api, hurried);
        (void)MHD_run(api->http);
        seat = tw_api_seats_take(&api->seats, is_owner, listener, fd, deadline_us);
    }
    if (seat < 0) {
        (void)close(fd);
        return;
    }
    static const struct sockaddr NOBODY = {.sa_family = AF_UNSPEC};
    const bool is_added = MHD_add_connection(api->http, fd, &NOBODY, sizeof(NOBODY)) == MHD_YES;
    if (is_added) (void)MHD_run(api->http);
    /* If libmicrohttpd rejected the client, it has closed the descriptor: free the seat. */
    if (api->requests[seat].connection == NULL) api->seats.seats[seat].is_taken = false;
}

static void on_accept(uv_poll_t *poll, int status, int events);

/* Accepts clients while a seat is free for root or the daemon's user. Otherwise clients wait in
 * the listening queue. */
static void watch_listeners(struct tw_api *api) {
    const bool is_open = tw_api_seats_has_room(&api->seats) && now_us(api) >= api->rest_until_us;
    for (unsigned i = 0; i < api->listeners_count; i++) {
        uv_poll_t *const poll = &api->listeners[i].poll;
        if (is_open == (bool)uv_is_active((const uv_handle_t *)poll)) continue;
        if (is_open)
            TW_ASSERT(uv_poll_start(poll, UV_READABLE, on_accept) == 0);
        else
            (void)uv_poll_stop(poll);
    }
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* Arms the timer for the earliest deadline of libmicrohttpd, a client or the listeners. */
static void arm_timer(struct tw_api *api) {
    const uint64_t now = now_us(api), deadline_us = tw_api_seats_deadline(&api->seats);
    uint64_t wait_us = UINT64_MAX;
    MHD_UNSIGNED_LONG_LONG http_ms = 0;
    if (deadline_us != UINT64_MAX) wait_us = deadline_us > now ? deadline_us - now : 0;
    if (api->rest_until_us > now && api->rest_until_us - now < wait_us) {
        wait_us = api->rest_until_us - now;
    }
    if (MHD_get_timeout(api->http, &http_ms) == MHD_YES && http_ms < wait_us / 1000) {
        wait_us = http_ms * 1000;
    }
    if (wait_us == UINT64_MAX)
        (void)uv_timer_stop(&api->timer);
    else
        (void)uv_timer_start(&api->timer, on_timer, (wait_us + 999) / 1000, 0);
}

static void run_http(struct tw_api *api) {
    int late = 0;
    while ((late = tw_api_seats_expired(&api->seats, now_us(api))) >= 0) cut_off(api, late);
    (void)MHD_run(api->http);
    watch_listeners(api);
    arm_timer(api);
}

static void on_timer(uv_timer_t *timer) {
    run_http(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    run_http(poll->data);
}

static void on_accept(uv_poll_t *poll, int status, int events) {
    struct tw_api *const api = poll->data;
    uint8_t listener = 0;
    while (poll != &api->listeners[listener].poll) listener++;
    (void)status, (void)events;
    for (unsigned i = 0; i < ACCEPTS_MAX && tw_api_seats_has_room(&api->seats); i++) {
        const int fd = tw_api_accept(api->listeners[listener].fd);
        if (fd == TW_API_NOBODY) break;
        if (fd < 0) {
            api->rest_until_us = now_us(api) + REST_US;
            break;
        }
        seat_client(api, listener, fd);
    }
    run_http(api);
}

/* Takes ownership of `fd`, also on failure. */
static enum tw_status listen_on(struct tw_api *api, int fd, enum listener_kind kind,
                                struct tw_error *err) {
    struct listener *const listener = &api->listeners[api->listeners_count];
    if (uv_poll_init(api->config.loop, &listener->poll, fd) != 0) {
        (void)close(fd);
        return tw_fail(err, TW_IO, "the local API could not join the event loop");
    }
    listener->fd = fd;
    listener->kind = kind;
    listener->poll.data = api;
    api->listeners_count++;
    api->handles_open++;
    return TW_OK;
}

static enum tw_status start_http(struct tw_api *api, struct tw_error *err) {
    api->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
        on_request, api, MHD_OPTION_CONNECTION_LIMIT, (unsigned)TW_API_SEATS_MAX + 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)TW_API_REQUEST_BYTES_MAX,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, api, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        api, MHD_OPTION_END);
    if (api->http == NULL) {
        return tw_fail(err, TW_IO, "the local API could not start its HTTP server");
    }
    const union MHD_DaemonInfo *const info =
        MHD_get_daemon_info(api->http, MHD_DAEMON_INFO_EPOLL_FD);
    TW_ASSERT(info != NULL);
    if (uv_poll_init(api->config.loop, &api->poll, info->epoll_fd) != 0) {
        MHD_stop_daemon(api->http);
        api->http = NULL;
        return tw_fail(err, TW_IO, "the local API could not join the event loop");
    }
    TW_ASSERT(uv_timer_init(api->config.loop, &api->timer) == 0);
    api->poll.data = api->timer.data = api;
    TW_ASSERT(uv_poll_start(&api->poll, UV_READABLE, on_poll) == 0);
    api->handles_open += 2;
    return TW_OK;
}

static enum tw_status open_page(struct tw_api *api, const char *token, struct tw_error *err) {
    const char *const web = api->config.web;
    char drawn[TW_API_TOKEN_BYTES];
    int fd = -1;
    if (web == NULL || web[0] == 0) return TW_OK;
    if (token == NULL) TW_TRY(tw_api_web_draw(drawn, err));
    TW_TRY(tw_api_listen_tcp("api.web", web, &fd, err));
    TW_TRY(listen_on(api, fd, WEB, err));
    tw_api_web_init(&api->web, web, fd, token != NULL ? token : drawn);
    return TW_OK;
}

/* Opens the loopback TCP listeners that the configuration asks for. */
static enum tw_status listen_tcp(struct tw_api *api, struct tw_error *err) {
    const char *const http = api->config.http;
    int fd = -1;
    if (http != NULL && http[0] != 0) {
        TW_TRY(tw_api_listen_tcp("api.http", http, &fd, err));
        TW_TRY(listen_on(api, fd, HTTP, err));
    }
    return open_page(api, api->config.web_token, err);
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
        status = listen_on(api, fd, UNIX, err);
    } else {
        free(socket_path);
    }
    if (status == TW_OK) status = listen_tcp(api, err);
    if (status == TW_OK) status = start_http(api, err);
    if (status != TW_OK) {
        tw_api_close(api);
        return status;
    }
    run_http(api);
    *api_out = api;
    return TW_OK;
}

const char *tw_api_web_url(const struct tw_api *api) {
    return api->web.url[0] != 0 ? api->web.url : NULL;
}

void tw_api_set_web_token(struct tw_api *api, const char *token) {
    tw_api_web_set_token(&api->web, token);
}

enum tw_status tw_api_open_web(struct tw_api *api, const char *address, const char *token,
                               struct tw_error *err) {
    TW_ASSERT(api->web.url[0] == 0);
    api->config.web = address;
    TW_TRY(open_page(api, token, err));
    watch_listeners(api); /* this may be inside of run_http */
    return TW_OK;
}

static void free_api(struct tw_api *api) {
    free(api->socket_path);
    free(api);
}

static void on_closed(uv_handle_t *handle) {
    struct tw_api *const api = handle->data;
    if (--api->handles_open == 0) free_api(api);
}

void tw_api_close(struct tw_api *api) {
    if (api == NULL) return;
    if (api->socket_path != NULL) (void)unlink(api->socket_path);
    for (uint32_t i = 0; i < TW_API_SEATS_MAX; i++) {
        if (api->requests[i].state != WAITING) continue;
        tw_api_answer(api, api->requests[i].generation * TW_API_SEATS_MAX + i, TW_OK,
                      "the daemon is stopping");
    }
    if (api->handles_open == 0) {
        free_api(api);
        return;
    }
    for (unsigned i = 0; i < api->listeners_count; i++) {
        uv_close((uv_handle_t *)&api->listeners[i].poll, on_closed);
        (void)close(api->listeners[i].fd);
    }
    if (api->http == NULL) return;
    /* the descriptor must not be polled after libmicrohttpd has closed it */
    uv_close((uv_handle_t *)&api->poll, on_closed);
    uv_close((uv_handle_t *)&api->timer, on_closed);
    for (unsigned k = 0; k < 4; k++) (void)MHD_run(api->http); /* sends the last answers */
    MHD_stop_daemon(api->http);
}
