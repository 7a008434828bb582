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
    struct tw_error error; /* reason, if the lookup ended without an address */
    uint32_t count;
    struct sockaddr_storage candidates[TW_DIAL_CANDIDATES_MAX];
    void (*done)(struct tw_lookup *lookup); /* called on the event loop */
};

/* Starts a lookup. An IP address needs none: is_done is set at once and `done` is not called.
 * Otherwise `done` is always called later, even after a cancel, and the memory must stay valid
 * until then. Returns TW_CONFIG if `address` is not host:port. */
enum tw_status tw_lookup_start(struct tw_lookup *lookup, uv_loop_t *loop, const char *address,
                               void (*done)(struct tw_lookup *lookup), struct tw_error *err);

/* Fills `lookup` with the IP addresses among `addresses`, IPv6 first, and looks up no name.
 * `addresses` has one host:port per entry, "" after the last. Returns false if there is no IP
 * address. */
bool tw_lookup_literals(struct tw_lookup *lookup,
                        const char addresses[TW_ADDRS_MAX][TW_ADDR_BYTES]);

/* Cancels a queued lookup, so that `done` is called soon. One that is already running cannot be
 * cancelled. */
void tw_lookup_cancel(struct tw_lookup *lookup);

/* Writes up to `capacity` of the addresses in `found` to `out`, in the order of the race: IPv6
 * first, then alternating families, each in the resolver's order. Returns their number. */
uint32_t tw_dial_order(const struct addrinfo *found, struct sockaddr_storage *out,
                       uint32_t capacity);

enum tw_racer_state { TW_RACER_WAITING, TW_RACER_RUNNING, TW_RACER_FAILED };

/* Decides when to try which address. Pure. The caller zeroes it, then sets `count`. */
struct tw_race {
    uint32_t count;
    enum tw_racer_state racers[TW_DIAL_CANDIDATES_MAX];
    uint64_t next_us; /* earliest start of another candidate */
    bool is_decided; /* a candidate has connected: no other one starts while its connection lives */
    uint32_t rank;   /* rank of the most informative failure; 0: none yet */
    enum tw_dial_cause cause;
    struct tw_error error;
};

/* Marks the candidate to start now as running and returns its index, or -1 if none is due. */
int tw_race_next(struct tw_race *race, uint64_t now_us);

/* Records that the candidate connected. Other running candidates are dropped and wait again, in
 * case this one fails later. */
void tw_race_connected(struct tw_race *race, uint32_t idx);

/* Records that the candidate failed, before or after it connected. The next candidate is due at
 * once. */
void tw_race_failed(struct tw_race *race, uint32_t idx, enum tw_dial_cause cause,
                    const struct tw_error *why);

/* Returns true if no candidate is running or left to try. */
bool tw_race_is_over(const struct tw_race *race);

/* Returns the time when tw_race_next may return a candidate, or UINT64_MAX if that needs another
 * event first. */
uint64_t tw_race_deadline(const struct tw_race *race);

#endif
