#include "daemon/net/reachability.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <arpa/inet.h>

#include "base/address.h"
#include "base/assert.h"

void tw_reachability_linked(struct tw_reachability *reachability, uint64_t now_us) {
    if (reachability->due_us == 0) reachability->due_us = now_us + TW_REACHABILITY_SETTLE_US;
}

void tw_reachability_moved(struct tw_reachability *reachability, uint64_t now_us) {
    *reachability = (struct tw_reachability){.due_us = now_us + TW_REACHABILITY_SETTLE_US};
}

bool tw_reachability_is_due(const struct tw_reachability *reachability, uint64_t now_us) {
    return reachability->due_us != 0 && now_us >= reachability->due_us;
}

void tw_reachability_ask(struct tw_reachability *reachability, uint64_t token, bool asked,
                         uint64_t now_us) {
    if (!asked) { /* there was no peer to ask: the next link asks again */
        reachability->due_us = 0;
        return;
    }
    reachability->token = token;
    reachability->until_us = now_us + TW_REACHABILITY_ANSWER_US;
    reachability->due_us = now_us + TW_REACHABILITY_AGAIN_US;
    reachability->rows_count = 0;
}

bool tw_reachability_is_own(const struct tw_member_row *self, const char *address) {
    char host[TW_ADDR_BYTES], own[TW_ADDR_BYTES];
    uint16_t port, own_port;
    struct in6_addr ignored;
    if (!tw_address_split(address, host, &port)) return false;
    if (inet_pton(AF_INET6, host, &ignored) != 1 && inet_pton(AF_INET, host, &ignored) != 1)
        return false;
    for (unsigned i = 0; i < TW_ADDRS_MAX && self->addrs[i][0] != '\0'; i++) {
        if (tw_address_split(self->addrs[i], own, &own_port) && own_port == port) return true;
    }
    return false;
}

void tw_reachability_heard(struct tw_reachability *reachability, const struct tw_member_row *self,
                           const struct tw_msg_probed *probed, const struct tw_id *by,
                           uint64_t now_us) {
    if (probed->token != reachability->token || reachability->until_us == 0 ||
        now_us >= reachability->until_us)
        return;
    if (!tw_address_is_valid(probed->addr) || !tw_reachability_is_own(self, probed->addr)) return;
    uint32_t at = 0, of_this_peer = 0;
    for (; at < reachability->rows_count; at++) {
        const struct tw_reachability_row *row = &reachability->rows[at];
        of_this_peer += tw_id_equal(&row->by, by);
        if (tw_id_equal(&row->by, by) && strcmp(row->address, probed->addr) == 0) return;
    }
    if (at == TW_REACHABILITY_ROWS_MAX || of_this_peer == TW_ADDRS_MAX) return;
    struct tw_reachability_row *row = &reachability->rows[reachability->rows_count++];
    *row = (struct tw_reachability_row){.outcome = probed->outcome, .by = *by};
    memcpy(row->address, probed->addr, sizeof(row->address));
    reachability->checked_us = now_us;
    if (probed->outcome == TW_PROBE_REACHED && !tw_reachability_is_private(probed->addr))
        reachability->due_us = now_us + TW_REACHABILITY_FINE_US;
}

/* ---- result -------------------------------------------------------------------------------- */

/* Returns true for RFC 1918, RFC 6598 (carrier-grade NAT), loopback and link-local addresses. */
static bool is_private4(uint32_t host) {
    return host >> 24 == 10 || host >> 24 == 127 || host >> 20 == 0xac1 || host >> 16 == 0xc0a8 ||
           host >> 22 == 0x64400000u >> 22 || host >> 16 == 0xa9fe;
}

bool tw_reachability_is_private(const char *address) {
    char host[TW_ADDR_BYTES];
    uint16_t port;
    struct in_addr v4;
    struct in6_addr v6;
    if (!tw_address_split(address, host, &port)) return false;
    if (inet_pton(AF_INET, host, &v4) == 1) return is_private4(ntohl(v4.s_addr));
    /* A name is meant for other machines, so it is not private. */
    if (inet_pton(AF_INET6, host, &v6) != 1) return false;
    return (v6.s6_addr[0] & 0xfe) == 0xfc || IN6_IS_ADDR_LINKLOCAL(&v6) ||
           IN6_IS_ADDR_LOOPBACK(&v6);
}

/* Linux routes 0.0.0.0/8 to this machine. 224.0.0.0/3 is multicast, reserved and broadcast. */
static bool is_local4(uint32_t host) {
    return host >> 24 == 0 || host >> 24 == 127 || host >> 16 == 0xa9fe || host >> 29 == 7;
}

bool tw_reachability_is_local(const char *address) {
    static const char LOCALHOST[] = "localhost";
    char host[TW_ADDR_BYTES];
    uint16_t port;
    struct in_addr v4;
    struct in6_addr v6;
    if (!tw_address_split(address, host, &port)) return false;
    host[strcspn(host, "%")] = '\0'; /* removes the zone of a link-local address */
    size_t length = strlen(host);
    if (length > 0 && host[length - 1] == '.') host[--length] = '\0';
    /* inet_aton also reads short forms such as 127.1 and 0x7f000001. */
    if (inet_aton(host, &v4) != 0) return is_local4(ntohl(v4.s_addr));
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        uint32_t mapped;
        memcpy(&mapped, &v6.s6_addr[12], sizeof(mapped));
        if (IN6_IS_ADDR_V4MAPPED(&v6)) return is_local4(ntohl(mapped));
        return IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6) ||
               IN6_IS_ADDR_LINKLOCAL(&v6) || IN6_IS_ADDR_MULTICAST(&v6);
    }
    const size_t size = sizeof(LOCALHOST) - 1;
    return length >= size && strcasecmp(host + length - size, LOCALHOST) == 0 &&
           (length == size || host[length - size - 1] == '.');
}

/* An IP address, IPv4-mapped if it is one of IPv4, in any spelling that the resolver takes. Returns
 * false for a name. */
static bool ip_read(const char *address, struct in6_addr *ip) {
    char host[TW_ADDR_BYTES];
    uint16_t port;
    struct in_addr v4;
    if (!tw_address_split(address, host, &port)) return false;
    host[strcspn(host, "%")] = '\0';
    if (inet_pton(AF_INET6, host, ip) == 1) return true;
    if (inet_aton(host, &v4) == 0) return false;
    memset(ip, 0, sizeof(*ip));
    memset(&ip->s6_addr[10], 0xff, 2);
    memcpy(&ip->s6_addr[12], &v4.s_addr, 4);
    return true;
}

enum range { RANGE_NONE, RANGE_10, RANGE_172, RANGE_192, RANGE_CARRIER, RANGE_UNIQUE_LOCAL };

/* Returns the range of private addresses that has this one. */
static enum range range_of(const struct in6_addr *ip) {
    uint32_t host;
    if ((ip->s6_addr[0] & 0xfe) == 0xfc) return RANGE_UNIQUE_LOCAL;
    if (!IN6_IS_ADDR_V4MAPPED(ip)) return RANGE_NONE;
    memcpy(&host, &ip->s6_addr[12], sizeof(host));
    host = ntohl(host);
    if (host >> 24 == 10) return RANGE_10;
    if (host >> 20 == 0xac1) return RANGE_172;
    if (host >> 16 == 0xc0a8) return RANGE_192;
    return host >> 22 == 0x64400000u >> 22 ? RANGE_CARRIER : RANGE_NONE;
}

bool tw_reachability_is_same_host(const char *a, const char *b) {
    struct in6_addr one, other;
    return ip_read(a, &one) && ip_read(b, &other) && memcmp(&one, &other, sizeof(one)) == 0;
}

bool tw_reachability_may_tell(const char *teller, const char *told, bool is_on_link) {
    struct in6_addr by, ip;
    if (tw_reachability_is_local(told)) return tw_reachability_is_local(teller);
    if (!ip_read(told, &ip) || range_of(&ip) == RANGE_NONE) return true;
    if (!ip_read(teller, &by) || range_of(&by) != range_of(&ip)) return false;
    return is_on_link || memcmp(&by, &ip, IN6_IS_ADDR_V4MAPPED(&ip) ? 15 : 8) == 0;
}

/* Weighs how much a failure tells about this node. Returns 0 if the row is no failure. */
static unsigned weight_of(const struct tw_reachability_row *row) {
    if (row->outcome == TW_PROBE_REACHED) return 0;
    return tw_reachability_is_private(row->address) ? 1 : 2;
}

/* Returns the most telling failure, or NULL. A public address counts more than a private one, which
 * peers elsewhere cannot dial anyway. An address that any peer reached has not failed. */
static const struct tw_reachability_row *row_worst(const struct tw_reachability *reachability) {
    const struct tw_reachability_row *found = NULL;
    for (uint32_t i = 0; i < reachability->rows_count; i++) {
        const struct tw_reachability_row *row = &reachability->rows[i];
        bool is_fine = false;
        for (uint32_t k = 0; k < reachability->rows_count; k++)
            is_fine |= reachability->rows[k].outcome == TW_PROBE_REACHED &&
                       strcmp(reachability->rows[k].address, row->address) == 0;
        if (is_fine || weight_of(row) == 0) continue;
        if (found == NULL || weight_of(row) > weight_of(found)) found = row;
    }
    return found;
}

static const struct tw_reachability_row *row_best(const struct tw_reachability *reachability) {
    const struct tw_reachability_row *found = NULL;
    for (uint32_t i = 0; i < reachability->rows_count; i++) {
        const struct tw_reachability_row *row = &reachability->rows[i];
        if (row->outcome != TW_PROBE_REACHED) continue;
        if (found == NULL || tw_reachability_is_private(found->address)) found = row;
    }
    return found;
}

enum tw_reachability_state tw_reachability_state(const struct tw_reachability *reachability,
                                                 bool is_listening) {
    const struct tw_reachability_row *yes = row_best(reachability), *no = row_worst(reachability);
    if (!is_listening) return TW_REACHABILITY_DIAL_ONLY;
    if (yes == NULL) return no != NULL ? TW_REACHABILITY_NO : TW_REACHABILITY_UNKNOWN;
    const bool is_local =
        tw_reachability_is_private(yes->address) && no != NULL && weight_of(no) == 2;
    return is_local ? TW_REACHABILITY_LOCAL : TW_REACHABILITY_YES;
}

bool tw_reachability_has_public(const struct tw_reachability *reachability) {
    for (uint32_t i = 0; i < reachability->rows_count; i++) {
        const struct tw_reachability_row *row = &reachability->rows[i];
        if (row->outcome == TW_PROBE_REACHED && row->address[0] != '[' &&
            !tw_reachability_is_private(row->address))
            return true;
    }
    return false;
}

static void advice_write(const struct tw_reachability_row *row, uint16_t port, char *text,
                         size_t capacity) {
    const bool is_private = tw_reachability_is_private(row->address);
    (void)snprintf(text, capacity, "open TCP port %u in this machine's firewall%s", (unsigned)port,
                   is_private ? ""
                              : ", and forward it to this machine in the router if it is behind "
                                "one; each node behind one address needs a port of its own, which "
                                "it should `advertise`");
}

void tw_reachability_sentence(const struct tw_reachability *reachability, bool is_listening,
                              uint16_t port, char text[TW_REACHABILITY_SENTENCE_BYTES]) {
    const struct tw_reachability_row *yes = row_best(reachability), *no = row_worst(reachability);
    char open[256] = "", by[9] = "";
    if (no != NULL) {
        advice_write(no, port, open, sizeof(open));
        tw_id_short(&no->by, by);
    }
    switch (tw_reachability_state(reachability, is_listening)) {
    case TW_REACHABILITY_DIAL_ONLY:
        (void)snprintf(text, TW_REACHABILITY_SENTENCE_BYTES,
                       "This node dials only, as `listen` is empty: it links to every node that "
                       "can be dialled");
        return;
    case TW_REACHABILITY_UNKNOWN:
        (void)snprintf(text, TW_REACHABILITY_SENTENCE_BYTES,
                       "No peer has tried yet whether this node can be dialled");
        return;
    case TW_REACHABILITY_YES:
        (void)snprintf(text, TW_REACHABILITY_SENTENCE_BYTES, "%s can be dialled", yes->address);
        return;
    case TW_REACHABILITY_LOCAL:
        (void)snprintf(text, TW_REACHABILITY_SENTENCE_BYTES,
                       "Only its own network can dial this node, at %s; %s tried %s: %s; %s",
                       yes->address, by, no->address, tw_reachability_outcome_name(no->outcome),
                       open);
        return;
    case TW_REACHABILITY_NO:
        (void)snprintf(text, TW_REACHABILITY_SENTENCE_BYTES,
                       "No peer can dial this node; %s tried %s: %s; %s", by, no->address,
                       tw_reachability_outcome_name(no->outcome), open);
        return;
    }
}

const char *tw_reachability_state_name(enum tw_reachability_state state) {
    switch (state) {
    case TW_REACHABILITY_UNKNOWN: return "unknown";
    case TW_REACHABILITY_YES: return "yes";
    case TW_REACHABILITY_LOCAL: return "local";
    case TW_REACHABILITY_NO: return "no";
    case TW_REACHABILITY_DIAL_ONLY: return "dial_only";
    }
    return "?";
}

const char *tw_reachability_outcome_name(enum tw_probe_outcome outcome) {
    return outcome == TW_PROBE_REACHED ? "reached" : "not reached";
}
