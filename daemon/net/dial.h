/* dial.h - from "host:port" to a connected socket: name lookup, then a race of the addresses.
 *
 * A name may have several addresses, and only a try shows which of them work. An IPv6 address
 * without a working route swallows packets until TCP gives up. The addresses are therefore tried in
 * turn, IPv6 first, then alternating families (happy eyeballs, RFC 8305). Each starts
 * TW_DIAL_STAGGER_US after the one before, or as soon as that one failed. The first one that
 * connects is used. */
#ifndef TW_DAEMON_NET_DIAL_H
#define TW_DAEMON_NET_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/limits.h"
#include "base/status.h"
#include "daemon/net/dial_error.h"

enum { TW_DIAL_CANDIDATES_MAX = 4 };

/* The addresses of a name, in the order in which they are tried. */
struct tw_lookup {
    uv_getaddrinfo_t request;
    bool is_busy, is_done;
    struct tw_error error; /* set when done without candidates */
    uint32_t count;
    struct sockaddr_storage candidates[TW_DIAL_CANDIDATES_MAX];
    void (*done)(struct tw_lookup *lookup); /* called from the loop */
};

/* Starts a lookup. An IP address needs none: is_done is set at once and `done` is not called.
 * Otherwise `done` always follows, even after a cancel, and the memory must stay valid until then.
 * TW_CONFIG: not host:port. */
enum tw_status tw_lookup_start(struct tw_lookup *lookup, uv_loop_t *loop, const char *address,
                               void (*done)(struct tw_lookup *lookup), struct tw_error *err);

/* Takes the IP addresses among `addresses` (host:port each, "" after the last), IPv6 first, without
 * any lookup of names. False: there is none. */
bool tw_lookup_literals(struct tw_lookup *lookup,
                        const char addresses[TW_ADDRS_MAX][TW_ADDR_BYTES]);

/* Makes a pending `done` come soon. */
void tw_lookup_cancel(struct tw_lookup *lookup);

/* Writes up to `capacity` of the addresses in `found` to `out`, in the order of the race: IPv6
 * first, then alternating families, each in the resolver's order. Returns their number. */
uint32_t tw_dial_order(const struct addrinfo *found, struct sockaddr_storage *out,
                       uint32_t capacity);

enum tw_racer_state { TW_RACER_WAITING, TW_RACER_RUNNING, TW_RACER_FAILED };

/* Pure: decides when to try which candidate. Zero it, then set count. */
struct tw_race {
    uint32_t count;
    enum tw_racer_state racers[TW_DIAL_CANDIDATES_MAX];
    uint64_t next_us; /* earliest start of another candidate */
    bool is_decided; /* a candidate has connected: no other one starts while its connection lives */
    uint32_t rank;   /* rank of the most informative failure; 0: none yet */
    enum tw_dial_cause cause;
    struct tw_error error;
};

/* The candidate to start now, marked as running; -1: none is due. */
int tw_race_next(struct tw_race *race, uint64_t now_us);

/* The candidate connected. The others that run are dropped; they wait again in case this one fails
 * later. */
void tw_race_connected(struct tw_race *race, uint32_t idx);

/* The candidate failed, before or after it connected: the next one is due at once. */
void tw_race_failed(struct tw_race *race, uint32_t idx, enum tw_dial_cause cause,
                    const struct tw_error *why);

/* True when nothing runs and nothing is left to try. */
bool tw_race_is_over(const struct tw_race *race);

/* When tw_race_next may return a candidate; UINT64_MAX: only after another event. */
uint64_t tw_race_deadline(const struct tw_race *race);

#endif
