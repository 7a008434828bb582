/* dial.h - from "host:port" to a connected socket: name lookup, then a race of the addresses.
 *
 * A name may stand for several addresses, and which of them works is not known before it is tried:
 * an IPv6 address of a machine whose IPv6 leads nowhere swallows packets for as long as TCP cares
 * to wait. So the addresses are tried one after another, TW_DIAL_STAGGER_US apart or as soon as the
 * one before has failed, IPv6 first and the families in turn, and the first that connects is used
 * (happy eyeballs, RFC 8305). */
#ifndef TW_DAEMON_NET_DIAL_H
#define TW_DAEMON_NET_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/limits.h"
#include "base/status.h"
#include "daemon/net/dial_error.h"

enum { TW_DIAL_CANDIDATES_MAX = 4 };

/* The addresses a name stands for, in the order they are tried. */
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

/* Puts up to `capacity` of the candidates (count) in the order of the race, into `out`: IPv6 first,
 * then the families in turn, each in the order the resolver prefers. Returns how many. */
uint32_t tw_dial_order(const struct addrinfo *found, struct sockaddr_storage *out,
                       uint32_t capacity);

enum tw_racer_state { TW_RACER_WAITING, TW_RACER_RUNNING, TW_RACER_FAILED };

/* Pure: says which candidate is to be tried when. Zero it, set count. */
struct tw_race {
    uint32_t count;
    enum tw_racer_state racers[TW_DIAL_CANDIDATES_MAX];
    uint64_t next_us; /* no other candidate starts before */
    bool is_decided;  /* one has connected: no other starts while it lives */
    uint32_t rank;    /* of the failure that tells most, the first of equals: 0, none yet */
    enum tw_dial_cause cause;
    struct tw_error error;
};

/* The candidate to start now, marked as running; -1 when none is due. */
int tw_race_next(struct tw_race *race, uint64_t now_us);

/* It has connected. Others that run are out, and wait again in case it comes to nothing. */
void tw_race_connected(struct tw_race *race, uint32_t idx);

/* It failed, before or after it connected: the next one is due at once. */
void tw_race_failed(struct tw_race *race, uint32_t idx, enum tw_dial_cause cause,
                    const struct tw_error *why);

/* Nothing runs and nothing is left to try. */
bool tw_race_is_over(const struct tw_race *race);

/* When tw_race_next may say something; UINT64_MAX: not before something else happens. */
uint64_t tw_race_deadline(const struct tw_race *race);

#endif
