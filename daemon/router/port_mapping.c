#include "daemon/router/port_mapping.h"

#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>

#include "base/assert.h"

bool tw_port_mapping_is_held(const struct tw_port_mapping *mapping) {
    return mapping->state == TW_PORT_STATE_MAPPED || mapping->state == TW_PORT_STATE_RENEWING ||
           mapping->state == TW_PORT_STATE_REMOVING;
}

static bool is_under_way(const struct tw_port_mapping *mapping) {
    return mapping->state == TW_PORT_STATE_ASKING || mapping->state == TW_PORT_STATE_RENEWING ||
           mapping->state == TW_PORT_STATE_REMOVING;
}

static bool is_same_place(const struct tw_port_want *want, const char *host, uint16_t port) {
    return want->port == port && strcmp(want->host, host) == 0;
}

static uint32_t lease_wanted(const struct tw_port_mapping *mapping) {
    return mapping->lease_s > 0 ? mapping->lease_s : TW_PORT_LEASE_S;
}

/* Leaves the mapping, if there was one: enters WAITING with the next request due at `due_us`, or
 * IDLE if no mapping is needed. */
static void enter_waiting(struct tw_port_mapping *mapping, uint64_t due_us) {
    const bool is_needed = mapping->want.need == TW_PORT_NEEDED;
    mapping->state = is_needed ? TW_PORT_STATE_WAITING : TW_PORT_STATE_IDLE;
    mapping->due_us = due_us;
}

/* Renews a mapping early if peers do not reach this node. The mapping may be gone: the router may
 * have restarted, or its outer address may have changed. Each further try waits longer. */
static void doubt(struct tw_port_mapping *mapping) {
    if (!mapping->want.is_doubtful) {
        mapping->doubt_us = TW_PORT_DOUBT_US;
        return;
    }
    const uint64_t due_us = mapping->asked_us + mapping->doubt_us;
    if (due_us < mapping->due_us && mapping->retry_us == 0) mapping->due_us = due_us;
}

void tw_port_mapping_look(struct tw_port_mapping *mapping, const struct tw_port_want *want,
                          uint64_t now_us) {
    const bool is_moved =
        want->need == TW_PORT_NEEDED && !is_same_place(&mapping->want, want->host, want->port);
    mapping->want = *want;
    if (is_moved) {
        mapping->has_answer = false;
        mapping->retry_us = 0;
    }
    switch (mapping->state) {
    case TW_PORT_STATE_IDLE:
    case TW_PORT_STATE_WAITING:
        enter_waiting(mapping,
                      is_moved || mapping->state == TW_PORT_STATE_IDLE ? now_us : mapping->due_us);
        return;
    case TW_PORT_STATE_MAPPED:
        if (is_moved || now_us >= mapping->expires_us)
            enter_waiting(mapping, now_us);
        else
            doubt(mapping);
        return;
    case TW_PORT_STATE_ASKING:
    case TW_PORT_STATE_RENEWING:
    case TW_PORT_STATE_REMOVING:
        return; /* tw_port_mapping_done compares the result with the wanted mapping */
    }
}

bool tw_port_mapping_next(struct tw_port_mapping *mapping, uint64_t now_us,
                          struct tw_port_order *order) {
    const bool is_held = tw_port_mapping_is_held(mapping);
    if (is_under_way(mapping) || mapping->state == TW_PORT_STATE_IDLE) return false;
    const bool is_removal = mapping->want.need != TW_PORT_NEEDED;
    if (!is_removal && now_us < mapping->due_us) return false;
    if (!is_removal) {
        mapping->order = (struct tw_port_order){.port = mapping->want.port,
                                                .outer_port = mapping->want.port,
                                                .lease_s = lease_wanted(mapping)};
        memcpy(mapping->order.host, mapping->want.host, sizeof(mapping->order.host));
    } /* a removal keeps the host and port of the request that made the mapping */
    mapping->order.is_removal = is_removal;
    if (is_held) {
        mapping->order.outer_port = mapping->held.outer_port;
        mapping->order.protocol = mapping->held.protocol;
    }
    mapping->state = is_removal ? TW_PORT_STATE_REMOVING
                     : is_held  ? TW_PORT_STATE_RENEWING
                                : TW_PORT_STATE_ASKING;
    *order = mapping->order;
    return true;
}

static void take_failure(struct tw_port_mapping *mapping, uint64_t now_us) {
    mapping->retry_us =
        mapping->retry_us == 0 ? (uint64_t)TW_PORT_RETRY_MIN_US : 2 * mapping->retry_us;
    if (mapping->retry_us > TW_PORT_RETRY_MAX_US) mapping->retry_us = TW_PORT_RETRY_MAX_US;
    const uint64_t due_us = now_us + mapping->retry_us;
    const bool is_lost = mapping->state == TW_PORT_STATE_ASKING ||
                         mapping->answer.outcome == TW_PORT_DOUBLE_NAT ||
                         now_us >= mapping->expires_us;
    if (is_lost) {
        enter_waiting(mapping, due_us);
        return;
    }
    mapping->state = TW_PORT_STATE_MAPPED;
    mapping->due_us = due_us < mapping->expires_us ? due_us : mapping->expires_us;
}

static void take_mapping(struct tw_port_mapping *mapping, uint64_t now_us) {
    const uint32_t wanted_s = lease_wanted(mapping);
    const uint64_t wanted_us = (uint64_t)wanted_s * 1000000;
    const uint32_t granted_s = mapping->answer.lease_s > 0 ? mapping->answer.lease_s : wanted_s;
    const uint64_t lease_us = (uint64_t)granted_s * 1000000;
    const uint64_t least_us = wanted_us / TW_PORT_LEASE_SHARE;
    uint64_t pause_us = lease_us < wanted_us ? lease_us / 2 : wanted_us / 2;
    if (pause_us < least_us) pause_us = least_us;
    const bool is_renewal = mapping->state == TW_PORT_STATE_RENEWING;
    mapping->renewals += is_renewal;
    if (is_renewal && mapping->want.is_doubtful && mapping->doubt_us < pause_us)
        mapping->doubt_us *= 2;
    if (!is_renewal) mapping->doubt_us = TW_PORT_DOUBT_US;
    mapping->state = TW_PORT_STATE_MAPPED;
    mapping->held = mapping->answer;
    mapping->retry_us = 0;
    mapping->asked_us = now_us;
    mapping->due_us = now_us + pause_us;
    /* If the lease is shorter than the shortest pause, the mapping expires before its renewal and
     * is then made anew. */
    mapping->expires_us = now_us + (lease_us > pause_us ? lease_us : pause_us + 1);
}

void tw_port_mapping_done(struct tw_port_mapping *mapping, const struct tw_port_answer *answer,
                          uint64_t now_us) {
    TW_ASSERT(is_under_way(mapping));
    if (mapping->state == TW_PORT_STATE_REMOVING) {
        enter_waiting(mapping, now_us);
        return;
    }
    const bool is_needed = mapping->want.need == TW_PORT_NEEDED;
    if (is_needed && !is_same_place(&mapping->want, mapping->order.host, mapping->order.port)) {
        enter_waiting(mapping, now_us); /* this machine's address changed during the request */
        return;
    }
    mapping->answer = *answer;
    mapping->has_answer = true;
    /* If the mapping is no longer needed, the next request removes it. */
    if (answer->outcome == TW_PORT_MAPPED)
        take_mapping(mapping, now_us);
    else
        take_failure(mapping, now_us);
}

/* ---- result -------------------------------------------------------------------------------- */

void tw_port_mapping_address(const struct tw_port_mapping *mapping, char address[TW_ADDR_BYTES]) {
    address[0] = '\0';
    if (!tw_port_mapping_is_held(mapping) || mapping->state == TW_PORT_STATE_REMOVING) return;
    (void)snprintf(address, TW_ADDR_BYTES, "%s:%u", mapping->held.outer_host,
                   (unsigned)mapping->held.outer_port);
}

const char *tw_port_protocol_name(enum tw_port_protocol protocol) {
    switch (protocol) {
    case TW_PORT_NO_PROTOCOL: return "";
    case TW_PORT_NATPMP: return "NAT-PMP";
    case TW_PORT_PCP: return "PCP";
    case TW_PORT_UPNP: return "UPnP";
    }
    return "";
}

const char *tw_port_mapping_name(const struct tw_port_mapping *mapping) {
    if (mapping->want.need == TW_PORT_IS_OFF) return "off";
    if (mapping->want.need != TW_PORT_NEEDED) return "not_needed";
    if (tw_port_mapping_is_held(mapping)) return "mapped";
    if (!mapping->has_answer) return "asking";
    switch (mapping->answer.outcome) {
    case TW_PORT_MAPPED: return "asking"; /* the lease has ended meanwhile */
    case TW_PORT_NO_ROUTER: return "no_router";
    case TW_PORT_REFUSED: return "refused";
    case TW_PORT_DOUBLE_NAT: return "double_nat";
    }
    return "?";
}

static void write_needless(enum tw_port_need need, char text[TW_PORT_SENTENCE_BYTES]) {
    const char *sentence = "";
    switch (need) {
    case TW_PORT_IS_OFF:
        sentence = "No router is asked for a port, as `port_mapping` or `links` is off";
        break;
    case TW_PORT_DIAL_ONLY: sentence = "No router is asked for a port, as `listen` is empty"; break;
    case TW_PORT_IS_ADVERTISED:
        sentence = "No router is asked for a port, as `advertise` is set";
        break;
    case TW_PORT_NOT_PRIVATE:
        sentence = "No router is asked for a port, as this node has no private IPv4 address now";
        break;
    case TW_PORT_IS_REACHED:
        sentence = "No router is asked for a port, as others reach this node without";
        break;
    case TW_PORT_NEEDED: break;
    }
    (void)snprintf(text, TW_PORT_SENTENCE_BYTES, "%s", sentence);
}

void tw_port_mapping_sentence(const struct tw_port_mapping *mapping,
                              char text[TW_PORT_SENTENCE_BYTES]) {
    const struct tw_port_want *want = &mapping->want;
    const struct tw_port_answer *answer = &mapping->answer;
    char address[TW_ADDR_BYTES];
    if (want->need != TW_PORT_NEEDED) {
        write_needless(want->need, text);
        return;
    }
    tw_port_mapping_address(mapping, address);
    if (address[0] != '\0') {
        (void)snprintf(text, TW_PORT_SENTENCE_BYTES, "The router forwards %s to this node, by %s",
                       address, tw_port_protocol_name(mapping->held.protocol));
        return;
    }
    if (!mapping->has_answer || answer->outcome == TW_PORT_MAPPED) {
        (void)snprintf(text, TW_PORT_SENTENCE_BYTES,
                       "The router is being asked to forward a port to this node");
    } else if (answer->outcome == TW_PORT_NO_ROUTER) {
        (void)snprintf(
            text, TW_PORT_SENTENCE_BYTES,
            "No router answers NAT-PMP, PCP or UPnP: turn one of them on in the router, or "
            "forward TCP port %u to %s there",
            (unsigned)want->port, want->host);
    } else if (answer->outcome == TW_PORT_REFUSED) {
        (void)snprintf(text, TW_PORT_SENTENCE_BYTES,
                       "The router refuses to forward a port (%s: %s): allow it there, or forward "
                       "TCP port %u to %s by hand",
                       tw_port_protocol_name(answer->protocol), answer->words, (unsigned)want->port,
                       want->host);
    } else {
        const bool has_address = answer->outer_host[0] != '\0';
        (void)snprintf(text, TW_PORT_SENTENCE_BYTES,
                       "The router has no public address%s%s: it is behind another router or the "
                       "provider's NAT (double NAT). Forward TCP port %u in both routers, or ask "
                       "the provider for a public address",
                       has_address ? ", but " : "", answer->outer_host, (unsigned)want->port);
    }
}

/* Returns false for the special-purpose networks of RFC 6890, and for multicast. */
bool tw_port_is_public(const char *host) {
    static const struct {
        uint32_t network;
        unsigned bits;
    } special[] = {
        {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
        {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24}, {0xc0a80000, 16}, {0xc6120000, 15},
        {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 3},
    };
    struct in_addr read;
    if (inet_pton(AF_INET, host, &read) != 1) return false;
    for (unsigned i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if ((ntohl(read.s_addr) ^ special[i].network) >> (32 - special[i].bits) == 0) return false;
    }
    return true;
}
