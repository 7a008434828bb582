/* api.h - the local API: HTTP/1.1 and JSON on a Unix socket, and optionally read-only on loopback
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
 * JSON dump takes under a millisecond. A request that takes long is suspended and answered later;
 * its number tells which.
 *
 * Access: the socket has mode 0660, so owner, group and root can connect. POST needs uid 0 or the
 * daemon's own uid (SO_PEERCRED). TCP has no POST and needs a loopback Host header. The listener of
 * the page also needs a token, except for the page's own files (api_web.h).
 *
 * Bounds: 16 clients of root and the daemon's own uid, 16 more per listener for everybody else
 * (api_seats.h), 64 KiB per request. A client has 5 s for each request, however busy it is: from
 * connect or its last answer until the next answer is read. The time that the daemon takes for the
 * answer is not counted. */
#ifndef TW_DAEMON_API_API_H
#define TW_DAEMON_API_API_H

#include <stdint.h>

#include "base/status.h"
#include "daemon/api/status_view.h"

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
        *socket_path;     /* a socket file without a listener is replaced, any other file is not */
    const char *group;    /* "" or NULL: the process's own group */
    const char *http;     /* "127.0.0.1:9464", or NULL / "": no TCP listener */
    const char *web;      /* the same for the page */
    uint64_t request_us;  /* time for one request; 0: TW_API_REQUEST_US */
    const char *manifest; /* canonical text of the run for /v1/run; borrowed, may be NULL */
    const struct tw_history *history; /* for /v1/history; borrowed, read on the loop */
    const struct tw_ledger *ledger;   /* the same for /v1/ledger */
    void *user;

    /* Fills a view that tw_status_view_init has prepared. Called on the loop, per request. */
    void (*fill)(void *user, struct tw_status_view *view);

    /* Does or starts the request. Answer each number once with tw_api_answer, inside the callback
     * or later on the loop. */
    void (*verb)(void *user, enum tw_api_verb verb, uint32_t number);
};

/* Opens the listeners and starts to answer. TW_IO when an address is in use (the sentence names it)
 * or may not be bound; TW_CONFIG for an unknown group or an http address that is not loopback. */
enum tw_status tw_api_open(struct tw_api **api, const struct tw_api_config *config,
                           struct tw_error *err);

/* Answers a request with a status and a sentence. Ignored if its client went away. */
void tw_api_answer(struct tw_api *api, uint32_t number, enum tw_status status, const char *message);

/* Answers TW_OK with a sentence and `data`, which the call takes over. */
void tw_api_answer_data(struct tw_api *api, uint32_t number, const char *message,
                        struct json_t *data);

/* A query argument of the request (`?name=value`); NULL when it was not given. Borrowed until the
 * answer. The client was authorised, but the value is not checked. */
const char *tw_api_argument(const struct tw_api *api, uint32_t number, const char *name);

/* Link of the page with its token; NULL: config.web is not set. */
const char *tw_api_web_url(const struct tw_api *api);

/* Removes the socket file and answers the waiting requests: the daemon stopped.
 * The memory is freed by close callbacks: run the loop once more. `api` may be NULL. */
void tw_api_close(struct tw_api *api);

#endif
