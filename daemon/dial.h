/* dial.h - from "host:port" to a connected socket: name lookup, then one address after another. */
#ifndef TW_DAEMON_DIAL_H
#define TW_DAEMON_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/limits.h"
#include "base/status.h"

enum { TW_DIAL_CANDIDATES_MAX = 4 };

/* The addresses a name stands for, in the order the resolver prefers. */
struct tw_lookup {
    uv_getaddrinfo_t request;
    bool is_busy, is_done;
    struct tw_error error; /* when done without candidates */
    uint32_t count;
    struct sockaddr_storage candidates[TW_DIAL_CANDIDATES_MAX];
    void (*done)(struct tw_lookup *lookup); /* from the loop */
};

/* Starts a lookup. An IP address needs none: is_done at once and `done` is not called. Otherwise
 * `done` follows, after a cancel too, and the memory must stay until then. TW_CONFIG: not
 * host:port. */
enum tw_status tw_lookup_start(struct tw_lookup *lookup, uv_loop_t *loop, const char *address,
                               void (*done)(struct tw_lookup *lookup), struct tw_error *err);

/* Makes `done` come soon, if it is still to come. */
void tw_lookup_cancel(struct tw_lookup *lookup);

/* Time one candidate gets when `remaining` are left: an equal share of what is left until
 * deadline_us, so that one black hole does not use up the others' time. */
uint64_t tw_dial_share_us(uint64_t now_us, uint64_t deadline_us, uint32_t remaining);

#endif
