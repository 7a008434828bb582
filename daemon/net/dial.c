#include "daemon/net/dial.h"

#include <stdio.h>
#include <string.h>

#include "base/address.h"

static void on_found(uv_getaddrinfo_t *request, int code, struct addrinfo *found) {
    struct tw_lookup *lookup = request->data;
    lookup->is_busy = false;
    lookup->is_done = true;
    if (code == 0) lookup->count = tw_dial_order(found, lookup->candidates, TW_DIAL_CANDIDATES_MAX);
    uv_freeaddrinfo(found);
    if (lookup->count == 0)
        (void)tw_fail(&lookup->error, TW_IO, "%s", code != 0 ? uv_strerror(code) : "no address");
    lookup->done(lookup);
}

static bool literal_read(const char *host, uint16_t port, struct sockaddr_storage *out) {
    return uv_ip4_addr(host, port, (struct sockaddr_in *)out) == 0 ||
           uv_ip6_addr(host, port, (struct sockaddr_in6 *)out) == 0;
}

bool tw_lookup_literals(struct tw_lookup *lookup,
                        const char addresses[TW_ADDRS_MAX][TW_ADDR_BYTES]) {
    static const int families[2] = {AF_INET6, AF_INET};
    *lookup = (struct tw_lookup){.is_done = true};
    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 0; i < TW_ADDRS_MAX && addresses[i][0] != '\0'; i++) {
            struct sockaddr_storage *out = &lookup->candidates[lookup->count];
            char host[TW_ADDR_BYTES];
            uint16_t port = 0;
            if (lookup->count == TW_DIAL_CANDIDATES_MAX) break;
            if (!tw_address_split(addresses[i], host, &port) || port == 0) continue;
            if (literal_read(host, port, out) && out->ss_family == families[k]) lookup->count++;
        }
    }
    return lookup->count > 0;
}

enum tw_status tw_lookup_start(struct tw_lookup *lookup, uv_loop_t *loop, const char *address,
                               void (*done)(struct tw_lookup *lookup), struct tw_error *err) {
    char host[TW_ADDR_BYTES], service[8];
    uint16_t port = 0;
    *lookup = (struct tw_lookup){.done = done};
    if (!tw_address_split(address, host, &port) || port == 0)
        return tw_fail(err, TW_CONFIG, "%.80s is not host:port", address);
    if (literal_read(host, port, &lookup->candidates[0])) {
        lookup->count = 1;
        lookup->is_done = true;
        return TW_OK;
    }
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG,
    };
    lookup->request.data = lookup;
    const int code = uv_getaddrinfo(loop, &lookup->request, on_found, host, service, &hints);
    if (code != 0) return tw_fail(err, TW_IO, "cannot look up %s: %s", host, uv_strerror(code));
    lookup->is_busy = true;
    return TW_OK;
}

void tw_lookup_cancel(struct tw_lookup *lookup) {
    /* A running lookup cannot be cancelled: `done` is called when the resolver gives up. */
    if (lookup->is_busy) (void)uv_cancel((uv_req_t *)&lookup->request);
}

/* ---- the race ------------------------------------------------------------------------------ */

/* Returns the n-th address of a family in the resolver's list, or NULL if there are fewer. */
static const struct addrinfo *nth_of(const struct addrinfo *found, int family, uint32_t n) {
    for (; found != NULL; found = found->ai_next) {
        if (found->ai_family == family && found->ai_addrlen <= sizeof(struct sockaddr_storage) &&
            n-- == 0)
            return found;
    }
    return NULL;
}

uint32_t tw_dial_order(const struct addrinfo *found, struct sockaddr_storage *out,
                       uint32_t capacity) {
    uint32_t count = 0;
    for (uint32_t n = 0; count < capacity; n++) {
        const struct addrinfo *const in_turn[2] = {nth_of(found, AF_INET6, n),
                                                   nth_of(found, AF_INET, n)};
        if (in_turn[0] == NULL && in_turn[1] == NULL) break;
        for (unsigned i = 0; i < 2 && count < capacity; i++) {
            if (in_turn[i] == NULL) continue;
            memset(&out[count], 0, sizeof(out[count]));
            memcpy(&out[count++], in_turn[i]->ai_addr, in_turn[i]->ai_addrlen);
        }
    }
    return count;
}

/* Ranks a failure by how much it tells about the other side. A missing route on this machine tells
 * nothing, and silence tells little. A refused connect shows that the machine is up. A failure
 * after TCP names the real cause. */
static uint32_t rank_of(enum tw_dial_cause cause) {
    if (cause == TW_DIAL_NO_ROUTE) return 1;
    if (cause == TW_DIAL_SILENT || cause == TW_DIAL_PRIVATE) return 2;
    if (cause == TW_DIAL_NONE || cause == TW_DIAL_CLOSED || cause == TW_DIAL_REJECTED ||
        cause == TW_DIAL_OFFLINE || cause == TW_DIAL_FORBIDDEN)
        return 3;
    return 4;
}

int tw_race_next(struct tw_race *race, uint64_t now_us) {
    if (race->is_decided || now_us < race->next_us) return -1;
    for (uint32_t i = 0; i < race->count; i++) {
        if (race->racers[i] != TW_RACER_WAITING) continue;
        race->racers[i] = TW_RACER_RUNNING;
        race->next_us = now_us + TW_DIAL_STAGGER_US;
        return (int)i;
    }
    return -1;
}

void tw_race_connected(struct tw_race *race, uint32_t idx) {
    race->is_decided = true;
    for (uint32_t i = 0; i < race->count; i++) {
        if (i != idx && race->racers[i] == TW_RACER_RUNNING) race->racers[i] = TW_RACER_WAITING;
    }
}

void tw_race_failed(struct tw_race *race, uint32_t idx, enum tw_dial_cause cause,
                    const struct tw_error *why) {
    const uint32_t rank = rank_of(cause);
    race->racers[idx] = TW_RACER_FAILED;
    race->is_decided = false;
    race->next_us = 0;
    if (race->rank >= rank) return;
    race->rank = rank;
    race->cause = cause;
    race->error = *why;
}

bool tw_race_is_over(const struct tw_race *race) {
    for (uint32_t i = 0; i < race->count; i++) {
        if (race->racers[i] != TW_RACER_FAILED) return false;
    }
    return true;
}

uint64_t tw_race_deadline(const struct tw_race *race) {
    if (race->is_decided) return UINT64_MAX;
    for (uint32_t i = 0; i < race->count; i++) {
        if (race->racers[i] == TW_RACER_WAITING) return race->next_us;
    }
    return UINT64_MAX;
}
