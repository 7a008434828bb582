#include "daemon/api/api.h"

#include <errno.h>
#include <grp.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "daemon/api/history.h"
#include "daemon/api/ledger.h"
#include "daemon/api/metrics.h"
#include "daemon/api/view_json.h"
#include "daemon/web/web_files.h"

enum { NOBODY = -1, EXHAUSTED = -2 }; /* results of accept_client besides a descriptor */

struct seat {
    bool is_taken, is_owner;
    uint8_t listener;
    int fd;
    uint64_t deadline_us; /* time at which the client is disconnected; UINT64_MAX while it waits for
                             the daemon's answer */
};

struct seats {
    struct seat seats[TW_API_SEATS_MAX];
};

struct web {
    char token[TW_API_TOKEN_BYTES]; /* hexadecimal; "": there is no page */
    char url[TW_API_WEB_URL_BYTES]; /* link with the token in its fragment */
};

/* ==== the socket ============================================================================== */

enum { BACKLOG = 128 };

/* Removes the socket file that a dead daemon left behind. */
static enum tw_status clear_path(const struct sockaddr_un *address, struct tw_error *err) {
    struct stat info;
    if (lstat(address->sun_path, &info) != 0) {
        if (errno == ENOENT) return TW_OK;
        return tw_fail(err, TW_IO, "%s: %s", address->sun_path, strerror(errno));
    }
    if (!S_ISSOCK(info.st_mode)) {
        return tw_fail(err, TW_IO, "%s is no socket; move it away or choose another run_dir",
                       address->sun_path);
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tw_fail(err, TW_IO, "socket: %s", strerror(errno));
    const int rc = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    const int why = errno;
    (void)close(fd);
    if (rc == 0 || why == EAGAIN) {
        return tw_fail(err, TW_IO,
                       "a daemon already answers on %s; stop it or choose another "
                       "run_dir",
                       address->sun_path);
    }
    if (unlink(address->sun_path) == 0) return TW_OK;
    return tw_fail(err, TW_IO, "%s: %s", address->sun_path, strerror(errno));
}

static enum tw_status set_access(const char *path, const char *group, struct tw_error *err) {
    if (group != NULL && group[0] != 0) {
        const struct group *const entry = getgrnam(group);
        if (entry == NULL) {
            return tw_fail(err, TW_CONFIG,
                           "api.group: there is no group `%s`; groupadd --system "
                           "makes one",
                           group);
        }
        if (chown(path, (uid_t)-1, entry->gr_gid) != 0) {
            return tw_fail(err, TW_CONFIG, "api.group: the daemon's user is not in group `%s`",
                           group);
        }
    }
    if (chmod(path, 0660) != 0) return tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    return TW_OK;
}

enum tw_status tw_api_listen_unix(const char *path, const char *group, int *fd_out,
                                  struct tw_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        return tw_fail(err, TW_CONFIG, "%s is too long for the name of a socket", path);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    TW_TRY(clear_path(&address, err));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tw_fail(err, TW_IO, "socket: %s", strerror(errno));
    /* The mode is set before listen(), so no client can connect under a wrong one. */
    enum tw_status status = TW_OK;
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        status = tw_fail(err, TW_IO, "%s: %s; does its folder exist, and is it ours?", path,
                         strerror(errno));
    } else {
        status = set_access(path, group, err);
        if (status == TW_OK && listen(fd, BACKLOG) != 0) {
            status = tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
        }
        if (status != TW_OK) (void)unlink(path);
    }
    if (status != TW_OK) {
        (void)close(fd);
        return status;
    }
    *fd_out = fd;
    return TW_OK;
}

/* Accepts the next client. Returns its descriptor, close-on-exec and non-blocking, NOBODY if
 * no client waits, or EXHAUSTED if the machine is out of descriptors or memory. */
static int accept_client(int listen_fd) {
    for (;;) {
        const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) return fd;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return NOBODY;
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            return EXHAUSTED;
        }
        if (errno != EINTR && errno != ECONNABORTED) return NOBODY;
    }
}

bool tw_api_is_loopback(const char *host) {
    const size_t size = strcspn(host, host[0] == '[' ? "]" : ":");
    if (host[0] == '[') return size == 4 && memcmp(host, "[::1", 4) == 0;
    if (size == 9 && memcmp(host, "localhost", 9) == 0) return true;
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == size;
}

enum tw_status tw_api_listen_tcp(const char *key, const char *address, int *fd_out,
                                 struct tw_error *err) {
    char host[72];
    const char *const colon = strrchr(address, ':');
    if (colon == NULL || (size_t)(colon - address) >= sizeof(host) ||
        !tw_api_is_loopback(address)) {
        return tw_fail(err, TW_CONFIG, "%s: `%s` is no loopback host:port", key, address);
    }
    const bool is_v6 = address[0] == '[';
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address) - 2 * is_v6, address + is_v6);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    const bool is_name = strcmp(host, "localhost") == 0;
    const int rc = getaddrinfo(is_name ? "127.0.0.1" : host, colon + 1, &hints, &found);
    if (rc != 0) return tw_fail(err, TW_CONFIG, "%s: `%s`: %s", key, address, gai_strerror(rc));
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    const bool is_bound =
        fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
    const int why = errno;
    freeaddrinfo(found);
    if (!is_bound) {
        if (fd >= 0) (void)close(fd);
        return tw_fail(err, TW_IO, "%s: %s: %s; choose another port", key, address, strerror(why));
    }
    *fd_out = fd;
    return TW_OK;
}

bool tw_api_may_act(int fd) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == 0 || peer.uid == geteuid();
}

/* ==== seats =================================================================================== */

static unsigned count(const struct seats *seats, bool is_owner, uint8_t listener) {
    unsigned n = 0;
    for (size_t i = 0; i < TW_API_SEATS_MAX; i++) {
        const struct seat *const seat = &seats->seats[i];
        if (!seat->is_taken || seat->is_owner != is_owner) continue;
        if (is_owner || seat->listener == listener) n++;
    }
    return n;
}

/* Gives a new client a seat. Returns its index, or -1 if a guest must make room first or every
 * owner's seat is taken. */
static int take_seat(struct seats *seats, bool is_owner, uint8_t listener, int fd,
                     uint64_t deadline_us) {
    const unsigned max = is_owner ? TW_API_OWNERS_MAX : TW_API_GUESTS_MAX;
    if (count(seats, is_owner, listener) >= max) return -1;
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        if (seats->seats[i].is_taken) continue;
        seats->seats[i] = (struct seat){.is_taken = true,
                                        .is_owner = is_owner,
                                        .listener = listener,
                                        .fd = fd,
                                        .deadline_us = deadline_us};
        return i;
    }
    return -1;
}

/* Returns the index of the guest of `listener` with the least time left, or -1 if there is no
 * guest. */
static int find_hurried(const struct seats *seats, uint8_t listener) {
    int found = -1;
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        const struct seat *const seat = &seats->seats[i];
        if (!seat->is_taken || seat->is_owner || seat->listener != listener) continue;
        if (found < 0 || seat->deadline_us < seats->seats[found].deadline_us) found = i;
    }
    return found;
}

/* Returns the index of the seat with this descriptor, or -1 if there is none. */
static int seat_of(const struct seats *seats, int fd) {
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        if (seats->seats[i].is_taken && seats->seats[i].fd == fd) return i;
    }
    return -1;
}

/* Returns the index of a seat whose deadline has passed at `now_us`, or -1 if there is none. */
static int find_expired(const struct seats *seats, uint64_t now_us) {
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        if (seats->seats[i].is_taken && seats->seats[i].deadline_us <= now_us) return i;
    }
    return -1;
}

/* Returns the earliest deadline of all seats, or UINT64_MAX if no seat is taken. */
static uint64_t seats_deadline(const struct seats *seats) {
    uint64_t earliest_us = UINT64_MAX;
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        const struct seat *const seat = &seats->seats[i];
        if (seat->is_taken && seat->deadline_us < earliest_us) earliest_us = seat->deadline_us;
    }
    return earliest_us;
}

/* Returns whether a seat is free for an owner. */
static bool has_room(const struct seats *seats) {
    return count(seats, true, 0) < TW_API_OWNERS_MAX;
}

/* ==== the web page ============================================================================ */

static unsigned port_of(int fd) {
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    memset(&at, 0, sizeof(at));
    (void)getsockname(fd, (struct sockaddr *)&at, &size);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

enum tw_status tw_api_web_draw(char token[TW_API_TOKEN_BYTES], struct tw_error *err) {
    unsigned char random[TW_API_TOKEN_BYTES / 2];
    if (uv_random(NULL, NULL, random, sizeof(random), 0, NULL) != 0) {
        return tw_fail(err, TW_IO, "api.web: the system gives no random numbers for a token");
    }
    for (unsigned i = 0; i < sizeof(random); i++)
        (void)snprintf(token + 2 * i, 3, "%02x", random[i]);
    return TW_OK;
}

/* Replaces the token: the links with the former one end. */
static void set_token(struct web *web, const char *token) {
    TW_ASSERT(strlen(token) == TW_API_TOKEN_BYTES - 1);
    char *const mark = strchr(web->url, '#');
    TW_ASSERT(mark != NULL);
    memcpy(web->token, token, TW_API_TOKEN_BYTES);
    memcpy(mark + 1, token, TW_API_TOKEN_BYTES);
}

/* Builds the link. `fd` listens on `address` (host:port), whose port may be 0. `token`: of
 * tw_api_web_draw. */
static void init_web(struct web *web, const char *address, int fd, const char *token) {
    const int host_bytes = (int)(strrchr(address, ':') - address);
    const size_t room = sizeof(web->url) - TW_API_TOKEN_BYTES;
    const int size = snprintf(web->url, room, "http://%.*s:%u/#", host_bytes, address, port_of(fd));
    TW_ASSERT(size > 0 && (size_t)size < room);
    set_token(web, token);
}

/* Returns whether the Authorization header carries the token. NULL stands for a missing header. The
 * comparison takes the same time for every wrong token. */
static bool admits(const struct web *web, const char *authorization) {
    static const char SCHEME[] = "Bearer ";
    enum { SCHEME_BYTES = sizeof(SCHEME) - 1, TOKEN_BYTES = TW_API_TOKEN_BYTES - 1 };
    if (web->token[0] == '\0' || authorization == NULL) return false;
    if (strncmp(authorization, SCHEME, SCHEME_BYTES) != 0) return false;
    if (strlen(authorization + SCHEME_BYTES) != TOKEN_BYTES) return false;
    return CRYPTO_memcmp(authorization + SCHEME_BYTES, web->token, TOKEN_BYTES) == 0;
}

/* Returns the page's file at a path, or NULL if there is none. */
static const struct tw_web_file *page_file(const char *path) {
    for (size_t i = 0; i < TW_WEB_FILES_COUNT; i++) {
        if (strcmp(TW_WEB_FILES[i].path, path) == 0) return &TW_WEB_FILES[i];
    }
    return NULL;
}

/* Adds the headers that keep a browser from loading other content, from showing the page in a frame
 * and from guessing content types. */
static void confine(struct MHD_Response *response) {
    static const char *const HEADERS[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
         "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
         "require-trusted-types-for 'script'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
    };
    for (size_t i = 0; i < sizeof(HEADERS) / sizeof(HEADERS[0]); i++)
        (void)MHD_add_response_header(response, HEADERS[i][0], HEADERS[i][1]);
}

/* ==== requests ================================================================================ */

/* Accepts the API's clients and answers their requests. api.c gives each client a
 * seat. One libmicrohttpd daemon, driven by the libuv loop, serves all of them. libmicrohttpd gets
 * no listening socket: at its client limit it would stop watching it, and it cannot tell owners
 * from guests. */

enum {
    METRICS_BYTES_MAX = 128 * 1024,
    ACCEPTS_MAX = 16, /* clients accepted in one turn of the loop */
    REST_US =
        1000 * 1000, /* pause before the next accept() when the process is out of descriptors */
    CUT_OFF_US = 1000 * 1000, /* time for libmicrohttpd to notice that a client was cut off */
};

enum request_state { FREE, READING, WAITING /* for tw_api_answer */, ANSWERED };

/* The request of one client. Its index is that of the client's seat (api.h). */
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
    struct seats seats;
    struct web web;
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
    confine(response);
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
    return info != NULL ? seat_of(&api->seats, info->connect_fd) : -1;
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
static enum MHD_Result admit_method(const struct tw_api *api, const struct seat *seat,
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
static enum MHD_Result admit(const struct tw_api *api, const struct seat *seat,
                             struct MHD_Connection *connection, const char *path,
                             const char *method) {
    const enum listener_kind kind = api->listeners[seat->listener].kind;
    const char *const length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *const host = header(connection, MHD_HTTP_HEADER_HOST);
    const bool is_file = kind == WEB && page_file(path) != NULL;
    if (length != NULL && strtoull(length, NULL, 10) > TW_API_REQUEST_BYTES_MAX) {
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "a request has at most 64 KiB");
    }
    if (kind != UNIX && (host == NULL || !tw_api_is_loopback(host))) {
        return refuse(connection, MHD_HTTP_FORBIDDEN, "the Host header is not loopback");
    }
    if (kind == WEB && !is_file &&
        !admits(&api->web, header(connection, MHD_HTTP_HEADER_AUTHORIZATION))) {
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
    const struct tw_web_file *const file = page_file(path);
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
    int seat = take_seat(&api->seats, is_owner, listener, fd, deadline_us);
    if (seat < 0 && !is_owner) {
        const int hurried = find_hurried(&api->seats, listener);
        TW_ASSERT(hurried >= 0);
        cut_off(api, hurried);
        (void)MHD_run(api->http);
        seat = take_seat(&api->seats, is_owner, listener, fd, deadline_us);
    }
    if (seat < 0) {
        (void)close(fd);
        return;
    }
    static const struct sockaddr UNKNOWN = {.sa_family = AF_UNSPEC};
    const bool is_added = MHD_add_connection(api->http, fd, &UNKNOWN, sizeof(UNKNOWN)) == MHD_YES;
    if (is_added) (void)MHD_run(api->http);
    /* If libmicrohttpd rejected the client, it has closed the descriptor: free the seat. */
    if (api->requests[seat].connection == NULL) api->seats.seats[seat].is_taken = false;
}

static void on_accept(uv_poll_t *poll, int status, int events);

/* Accepts clients while a seat is free for root or the daemon's user. Otherwise clients wait in
 * the listening queue. */
static void watch_listeners(struct tw_api *api) {
    const bool is_open = has_room(&api->seats) && now_us(api) >= api->rest_until_us;
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
    const uint64_t now = now_us(api), deadline_us = seats_deadline(&api->seats);
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
    while ((late = find_expired(&api->seats, now_us(api))) >= 0) cut_off(api, late);
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
    for (unsigned i = 0; i < ACCEPTS_MAX && has_room(&api->seats); i++) {
        const int fd = accept_client(api->listeners[listener].fd);
        if (fd == NOBODY) break;
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
    init_web(&api->web, web, fd, token != NULL ? token : drawn);
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
    set_token(&api->web, token);
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
