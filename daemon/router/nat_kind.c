#include "daemon/router/nat_kind.h"

#include <stdio.h>
#include <string.h>

#include "base/address.h"

bool tw_nat_kind_is_due(const struct tw_nat_kind *kind, uint64_t now_us) {
    return now_us >= kind->due_us;
}

void tw_nat_kind_ask(struct tw_nat_kind *kind, uint64_t token, const struct tw_id *peers,
                     const char *own, uint64_t now_us) {
    kind->token = 0;
    kind->due_us = now_us + TW_NAT_LOOK_US;
    if (peers == NULL) return;
    kind->token = token;
    kind->until_us = now_us + TW_NAT_ANSWER_US;
    kind->due_us = now_us + TW_NAT_RETRY_US;
    (void)snprintf(kind->own, sizeof(kind->own), "%s", own);
    for (unsigned i = 0; i < TW_NAT_PEERS; i++)
        kind->seen[i] = (struct tw_nat_seen){.by = peers[i]};
}

static enum tw_nat judge(const struct tw_nat_kind *kind) {
    char host[TW_NAT_PEERS][TW_ADDR_BYTES];
    uint16_t port[TW_NAT_PEERS];
    for (unsigned i = 0; i < TW_NAT_PEERS; i++) {
        if (!tw_address_split(kind->seen[i].address, host[i], &port[i])) return TW_NAT_UNKNOWN;
    }
    if (strcmp(host[0], kind->own) == 0 && strcmp(host[1], kind->own) == 0) return TW_NAT_NONE;
    const bool is_one = strcmp(host[0], host[1]) == 0 && port[0] == port[1];
    return is_one ? TW_NAT_ENDPOINT : TW_NAT_SYMMETRIC;
}

void tw_nat_kind_heard(struct tw_nat_kind *kind, const struct tw_id *by, uint64_t token,
                       const char *address, uint64_t now_us) {
    unsigned answers = 0;
    if (kind->token == 0 || token != kind->token || now_us >= kind->until_us) return;
    for (unsigned i = 0; i < TW_NAT_PEERS; i++) {
        struct tw_nat_seen *seen = &kind->seen[i];
        if (!seen->is_seen && tw_id_equal(&seen->by, by)) {
            (void)snprintf(seen->address, sizeof(seen->address), "%s", address);
            seen->is_seen = true;
        }
        answers += seen->is_seen;
    }
    if (answers < TW_NAT_PEERS) return;
    kind->token = 0;
    const enum tw_nat result = judge(kind);
    if (result == TW_NAT_UNKNOWN) return;
    kind->result = result;
    kind->due_us = now_us + TW_NAT_AGAIN_US;
}

void tw_nat_kind_moved(struct tw_nat_kind *kind, uint64_t now_us) {
    *kind = (struct tw_nat_kind){.due_us = now_us + TW_NAT_SETTLE_US};
}

const char *tw_nat_kind_name(enum tw_nat nat) {
    switch (nat) {
    case TW_NAT_UNKNOWN: return "unknown";
    case TW_NAT_NONE: return "none";
    case TW_NAT_ENDPOINT: return "endpoint_independent";
    case TW_NAT_SYMMETRIC: return "symmetric";
    }
    return "?";
}

void tw_nat_kind_sentence(enum tw_nat nat, uint16_t port, bool is_reached,
                          char text[TW_NAT_SENTENCE_BYTES]) {
    char open[96] = "";
    switch (nat) {
    case TW_NAT_UNKNOWN:
        (void)snprintf(
            text, TW_NAT_SENTENCE_BYTES,
            "The kind of NAT is not known: that takes two peers at public IPv4 addresses "
            "that this node dials");
        return;
    case TW_NAT_NONE:
        (void)snprintf(text, TW_NAT_SENTENCE_BYTES, "No NAT: peers see this machine's own address");
        return;
    case TW_NAT_ENDPOINT:
        (void)snprintf(text, TW_NAT_SENTENCE_BYTES,
                       "The router uses one outer port for a local one (endpoint-independent NAT): "
                       "links to other homes can be punched");
        return;
    case TW_NAT_SYMMETRIC: break;
    }
    if (port != 0)
        (void)snprintf(open, sizeof(open), "forward TCP port %u to this machine in the router",
                       (unsigned)port);
    else
        (void)snprintf(open, sizeof(open), "set `listen`, and forward its port in the router");
    (void)snprintf(text, TW_NAT_SENTENCE_BYTES,
                   "The router uses another outer port for each connection (symmetric NAT): links "
                   "to other homes cannot be punched%s%s",
                   is_reached ? ", but others reach this node" : "; ", is_reached ? "" : open);
}
