/* api.h - the local API: HTTP/1.1 + JSON on a Unix socket, and optionally read-only on loopback
 * TCP.
 *
 *   GET  /v1/status /v1/peers /v1/rounds /v1/run /v1/events      JSON, units in every key
 *   GET  /metrics                                                Prometheus text
 *   POST /v1/checkpoint /v1/leave /v1/pause /v1/resume           verbs: {"ok":true,"message":...}
 *   POST /v1/invite?uses=2&expires_s=86400&address=HOST:PORT,... and with "data", if there is any
 *   POST /v1/invite/list, /v1/invite/revoke?ticket=NAME
 *   POST /v1/reload, /v1/limit?upload=5mbit&download=off         the line, while the daemon runs
 *   POST /v1/unban?node=HEX                                      a banned node may come back
 *
 * libmicrohttpd runs without a thread of its own: it exposes one epoll descriptor, the libuv loop
 * polls that and calls MHD_run. So every callback runs on the loop: no lock and no second copy of
 * the state, and the price is the time of one JSON dump (under a millisecond) per request. A verb
 * that takes long suspends its connection and is answered later by ticket.
 *
 * Who may: the socket is 0660, so the kernel lets in owner, group and root; verbs ask SO_PEERCRED
 * for uid 0 or our own uid. TCP has no verbs and wants a loopback Host header. Bounds: 16 clients,
 * 64 KiB per request, 5 s of silence. */
#ifndef TW_DAEMON_API_API_H
#define TW_DAEMON_API_API_H

#include <stdint.h>

#include "base/status.h"
#include "daemon/api/status_view.h"

enum { TW_API_CLIENTS_MAX = 16, TW_API_REQUEST_BYTES_MAX = 64 * 1024, TW_API_SILENCE_S = 5 };

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
};

struct uv_loop_s;
struct tw_api;
struct json_t;

struct tw_api_config {
    struct uv_loop_s *loop;
    const char *socket_path; /* an old socket nobody answers on is replaced, any other file not */
    const char *group;       /* "" or NULL: the process's own group */
    const char *http;        /* "127.0.0.1:9464", or NULL / "": no TCP listener */
    const char *manifest;    /* canonical text of the run for /v1/run; borrowed, may be NULL */
    void *user;

    /* Fills a view that tw_status_view_init has prepared. Called on the loop, per request. */
    void (*fill)(void *user, struct tw_status_view *view);

    /* Does the verb, or starts it. Every ticket is answered once with tw_api_answer, inside the
     * callback or later on the loop. */
    void (*verb)(void *user, enum tw_api_verb verb, uint32_t ticket);
};

/* Opens the listeners and starts to answer. TW_IO when an address is in use (the sentence names it)
 * or may not be bound; TW_CONFIG for an unknown group or an http address that is not loopback. */
enum tw_status tw_api_open(struct tw_api **api, const struct tw_api_config *config,
                           struct tw_error *err);

/* Answers a verb: `status` OK or why not, and a sentence for the person. A ticket whose client went
 * away is ignored. */
void tw_api_answer(struct tw_api *api, uint32_t ticket, enum tw_status status, const char *message);

/* The same for a verb that was done and has more to say than a sentence; takes `data`. */
void tw_api_answer_data(struct tw_api *api, uint32_t ticket, const char *message,
                        struct json_t *data);

/* An argument of the verb (`?name=value`), NULL when it was not given. Borrowed until it is
 * answered; comes from a client that may do the verb, and from nobody who must be right. */
const char *tw_api_argument(const struct tw_api *api, uint32_t ticket, const char *name);

/* Stops answering, removes the socket file. Waiting verbs are told that the daemon stopped. The
 * memory goes with the loop's close callbacks: run the loop once more afterwards. NULL is fine. */
void tw_api_close(struct tw_api *api);

#endif
