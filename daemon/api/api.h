/* api.h - status and verbs for people and scrapers: HTTP and JSON on a Unix socket, and the web
 * page. */
#ifndef TW_DAEMON_API_API_H
#define TW_DAEMON_API_API_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/api/status_view.h"

/* ==== the socket ============================================================================== */

/* Listening sockets of the local API, and the access rights of a client. */

/* Listens on a Unix socket at `path`, mode 0660. A socket file without a listener is replaced.
 * Returns TW_IO if `path` is in use, not a socket, or not writable. Returns TW_CONFIG if `group` is
 * unknown or the process is not in it. */
enum tw_status tw_api_listen_unix(const char *path, const char *group, int *fd_out,
                                  struct tw_error *err);

/* Listens on "127.0.0.1:9747", "[::1]:9747" or "localhost:9747". `key` names the setting in errors.
 * Returns TW_CONFIG if the address is not loopback. */
enum tw_status tw_api_listen_tcp(const char *key, const char *address, int *fd_out,
                                 struct tw_error *err);

/* Returns whether an address or Host header names this machine's loopback. */
bool tw_api_is_loopback(const char *host);

/* Returns whether the client of a Unix socket runs as root or as the daemon's user (SO_PEERCRED).
 */
bool tw_api_may_act(int fd);

/* ==== seats =================================================================================== */

/* How many clients the local API serves at a time, which client makes room, and how
 * long each client may take. Each client has one seat. Pure: no socket, no clock.
 *
 * Root and the daemon's user (owners) have seats of their own, so other clients (guests) cannot
 * lock an owner out, however many they are. If all guest seats of a listener are taken, a new guest
 * replaces the one with the least time left. Owners wait in the listening queue instead. */

enum {
    TW_API_LISTENERS_MAX = 3, /* Unix socket, loopback TCP and page */
    TW_API_OWNERS_MAX = 16,
    TW_API_GUESTS_MAX = 16, /* for each listener */
    TW_API_SEATS_MAX = TW_API_OWNERS_MAX + TW_API_LISTENERS_MAX * TW_API_GUESTS_MAX,
};

/* ==== the web page ============================================================================ */

/* Access to the daemon's web page: its token, and the headers that confine the page.
 *
 * The page's files are public, as they reveal nothing about the node. Its data need the token,
 * which the caller keeps over restarts, so that a bookmark stays valid. `thinwire web` prints a
 * link with the token in its fragment, which browsers never send. The page sends the token as
 * `Authorization: Bearer`, not as a cookie: a cookie of 127.0.0.1 is sent to every port of the
 * machine, including those of other users. */

enum { TW_API_TOKEN_BYTES = 65, TW_API_WEB_URL_BYTES = 192 };

/* Draws a token. Returns TW_IO if no random numbers are available. */
enum tw_status tw_api_web_draw(char token[TW_API_TOKEN_BYTES], struct tw_error *err);

/* ==== requests ================================================================================ */

/* The local API: HTTP/1.1 and JSON on a Unix socket, and optionally read-only on loopback
 * TCP, with or without the page.
 *
 *   GET  /v1/status /v1/peers /v1/rounds /v1/run /v1/events /v1/history /v1/ledger /v1/versions
 *                                                                JSON, units in every key
 *   GET  /metrics                                                Prometheus text
 *   POST /v1/checkpoint /v1/leave /v1/pause /v1/resume           {"ok":true,"message":...}
 *   POST /v1/invite?uses=2&expires_s=86400&address=HOST:PORT,...
 *   POST /v1/invite/list, /v1/invite/revoke?ticket=NAME
 *   POST /v1/reload, /v1/limit?upload=5mbit&download=off         configuration, rate caps
 *   POST /v1/unban?node=HEX                                      lifts the ban of a node
 *   POST /v1/web                                                 the link of the page
 *   GET  /  /page.css  /page.js ...                              the page, on its own listener
 *
 * Some POST requests (verbs) are answered with "data" besides "message".
 *
 * libmicrohttpd has no thread of its own: the libuv loop polls its epoll descriptor and calls
 * MHD_run. Every callback runs on the loop, so the API needs no lock and no copy of the state. One
 * JSON dump takes under a millisecond. A slow request is suspended and answered later, under the
 * number that the verb callback received.
 *
 * Access: the socket has mode 0660, so owner, group and root can connect. POST needs uid 0 or the
 * daemon's own uid (SO_PEERCRED). TCP has no POST and needs a loopback Host header. The page's
 * listener also needs a token, except for the page's own files.
 *
 * Bounds: 16 clients with uid 0 or the daemon's own uid, 16 more per listener for everybody else,
 * 64 KiB per request. A client has 5 s for each request, even if it keeps sending:
 * from connect or its last answer until it has read the next answer. The time that the daemon
 * itself needs for the answer does not count. */

enum { TW_API_REQUEST_BYTES_MAX = 64 * 1024, TW_API_REQUEST_US = 5 * 1000 * 1000 };

/* POST requests. */
enum tw_api_verb {
    TW_API_CHECKPOINT,
    TW_API_LEAVE,
    TW_API_PAUSE,
    TW_API_RESUME,
    TW_API_INVITE,
    TW_API_INVITE_LIST,
    TW_API_INVITE_REVOKE,
    TW_API_RELOAD,
    TW_API_LIMIT,
    TW_API_UNBAN,
    TW_API_WEB,
};

struct uv_loop_s;
struct tw_api;
struct tw_history;
struct tw_ledger;
struct json_t;

struct tw_api_config {
    struct uv_loop_s *loop;
    const char
        *socket_path;      /* a socket file without a listener is replaced, any other file is not */
    const char *group;     /* "" or NULL: the process's own group */
    const char *http;      /* "127.0.0.1:9464"; NULL or "": no TCP listener */
    const char *web;       /* listener of the page, in the same form */
    const char *web_token; /* token of the page, copied; NULL: drawn by tw_api_open */
    uint64_t request_us;   /* time for one request; 0: TW_API_REQUEST_US */
    const char *manifest;  /* the run's canonical text, for /v1/run; borrowed, may be NULL */
    const struct tw_history *history; /* for /v1/history; borrowed, read on the loop */
    const struct tw_ledger *ledger;   /* for /v1/ledger; borrowed, read on the loop */
    void *user;

    /* Fills a view that tw_status_view_init has prepared. Called on the loop, once per request. */
    void (*fill)(void *user, struct tw_status_view *view);

    /* Executes or starts a verb. Answer each number once with tw_api_answer, inside the callback or
     * later on the loop. */
    void (*verb)(void *user, enum tw_api_verb verb, uint32_t number);
};

/* Opens the listeners and starts to answer. Returns TW_IO if an address is in use (the message
 * names it) or cannot be bound, TW_CONFIG if the group is unknown or an http address is not
 * loopback. */
enum tw_status tw_api_open(struct tw_api **api, const struct tw_api_config *config,
                           struct tw_error *err);

/* Answers request `number` with a status and a sentence. Does nothing if the client has
 * disconnected. */
void tw_api_answer(struct tw_api *api, uint32_t number, enum tw_status status, const char *message);

/* Answers request `number` with TW_OK, a sentence and `data`. Takes ownership of `data`. */
void tw_api_answer_data(struct tw_api *api, uint32_t number, const char *message,
                        struct json_t *data);

/* Returns a query argument of the request (`?name=value`), or NULL if it is absent. The text is
 * valid until the answer. The client is authorised, but the value is not checked. */
const char *tw_api_argument(const struct tw_api *api, uint32_t number, const char *name);

/* Returns the link of the page, with its token, or NULL if config.web is not set. */
const char *tw_api_web_url(const struct tw_api *api);

/* Replaces the token of the page. Call it only if there is a page. */
void tw_api_set_web_token(struct tw_api *api, const char *token);

/* Opens the page of a running API that has none, as tw_api_open does. `address` is borrowed. */
enum tw_status tw_api_open_web(struct tw_api *api, const char *address, const char *token,
                               struct tw_error *err);

/* Removes the socket file and answers all waiting requests that the daemon is stopping. Close
 * callbacks free the memory, so run the loop once more. `api` may be NULL. */
void tw_api_close(struct tw_api *api);

#endif
