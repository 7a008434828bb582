#include "daemon/net/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"

/* ==== why a dial failed ======================================================================= */

/* An EHOSTUNREACH that took this long comes from a failed ARP lookup (3 s): the last router found
 * no such machine. A firewall's rejection is faster, even if it answers only the second SYN, after
 * 1 s. A second dial that meets the first one's lookup ends early too, so that a fast answer proves
 * no firewall. */
enum { NEIGHBOUR_LOST_US = 2500 * 1000 };

struct row {
    const char *name, *what, *way_out;
};

static const struct row ROWS[TW_DIAL_CAUSES] = {
    [TW_DIAL_NONE] = {"none", "no link", "see the log there"},
    [TW_DIAL_DNS] = {"dns", "the name cannot be resolved",
                     "check its spelling, and this machine's DNS with `getent hosts`"},
    [TW_DIAL_CLOSED] = {"closed", "nothing listens on that port",
                        "is the daemon up there, and is this the port of its `listen`?"},
    [TW_DIAL_REJECTED] =
        {"rejected", "the network says that it cannot be reached",
         "is that machine up and on its network? Else open this TCP port there, or let "
         "that node dial this one"},
    [TW_DIAL_SILENT] = {"silent", "no answer",
                        "is that machine up and on its network? Else open this TCP port there, or "
                        "let that node dial this one"},
    [TW_DIAL_NO_ROUTE] = {"no_route", "this machine has no route there",
                          "is it online, with addresses of that kind (IPv4, IPv6)?"},
    [TW_DIAL_OFFLINE] = {"offline", "this machine is offline: its cable or wireless link is down",
                         "links come back by themselves once it has a line again"},
    [TW_DIAL_FORBIDDEN] = {"forbidden", "this machine's own firewall forbids it",
                           "let it dial that TCP port"},
    [TW_DIAL_PRIVATE] =
        {"private", "no answer from a private address, likely behind NAT",
         "is that machine up? Else forward a port there and `advertise` it, or let that "
         "node dial this one"},
    [TW_DIAL_STALLED] = {"stalled", "it accepts the connection and then sends nothing",
                         "is the daemon there stuck, the port another program's, or the MTU of the "
                         "path too small?"},
    [TW_DIAL_BROKEN] = {"broken", "it ended the connection in the handshake",
                        "it is tried again; if it stays so, see the log there"},
    [TW_DIAL_NOT_THINWIRE] = {"not_thinwire",
                              "the program that answers there is not a Thinwire node",
                              "check the address and the port"},
    [TW_DIAL_WRONG_ID] =
        {"wrong_id", "another node than expected answers there",
         "was it set up again, or did another node take the address? The id after `=` must be "
         "its id"},
    [TW_DIAL_TWIN] = {"twin", "another machine has this node's key",
                      "give the copy its own: `thinwire init --new-key` there, then restart it"},
    [TW_DIAL_VERSION] = {"version", "no common wire version", "update the older of the two"},
    [TW_DIAL_OTHER_RUN] = {"other_run", "other manifest",
                           "both nodes need the same run.manifest, to the byte"},
    [TW_DIAL_WRONG_SECRET] = {"wrong_secret", "wrong run secret",
                              "copy the run.secret of the run to both nodes"},
    [TW_DIAL_TICKET_UNKNOWN] = {"ticket_unknown", "the node there does not know this ticket",
                                "is the line complete? Ask for a new one: `thinwire invite`"},
    [TW_DIAL_TICKET_EXPIRED] = {"ticket_expired", "the ticket has expired",
                                "ask for a new one: `thinwire invite`"},
    [TW_DIAL_TICKET_USED] = {"ticket_used", "all uses of the ticket are spent",
                             "ask for a new one: `thinwire invite --uses N`"},
    [TW_DIAL_NOT_ADMITTED] = {"not_admitted", "no valid certificate of the run's owner",
                              "ask the owner for one: `thinwire owner sign`"},
    [TW_DIAL_REVOKED] = {"revoked", "the run's owner has shut this node out",
                         "only the owner of the run can change that"},
    [TW_DIAL_BANNED] = {"banned", "one of the two bans the other, which broke the protocol",
                        "it ends by itself; if it comes back, update or check that machine"},
    [TW_DIAL_CLOCK] = {"clock", "the clocks of the two machines are far apart",
                       "set them: `timedatectl set-ntp true` where systemd is"},
    [TW_DIAL_SELF] = {"self", "this address leads back to this node", "name others in `peers`"},
    [TW_DIAL_BUSY] = {"busy", "the node there has no room", "it is tried again"},
    [TW_DIAL_NAT] = {"nat", "neither of the two nodes can be dialled",
                     "forward a TCP port to one of them and `advertise` it; a third node that both "
                     "dial does not link them"},
};

/* Private addresses: RFC 1918, RFC 6598 (carrier-grade NAT), link-local; for IPv6, RFC 4193 and
 * link-local. */
static bool is_private4(uint32_t host) {
    return host >> 24 == 10 || host >> 20 == 0xac1 || host >> 16 == 0xc0a8 ||
           host >> 22 == 0x64400000u >> 22 || host >> 16 == 0xa9fe;
}

static bool is_private(const void *remote) {
    struct sockaddr_in6 in6;
    struct sockaddr_in in4;
    sa_family_t family;
    if (remote == NULL) return false;
    memcpy(&family, (const char *)remote + offsetof(struct sockaddr, sa_family), sizeof(family));
    if (family == AF_INET) {
        memcpy(&in4, remote, sizeof(in4));
        return is_private4(ntohl(in4.sin_addr.s_addr));
    }
    if (family != AF_INET6) return false;
    memcpy(&in6, remote, sizeof(in6));
    const uint8_t *const bytes = in6.sin6_addr.s6_addr;
    return (bytes[0] & 0xfe) == 0xfc || (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80);
}

enum tw_dial_cause tw_dial_cause_of_silence(const void *remote) {
    return is_private(remote) ? TW_DIAL_PRIVATE : TW_DIAL_SILENT;
}

enum tw_dial_cause tw_dial_cause_of_errno(int code, uint64_t took_us, const void *remote) {
    switch (code < 0 ? -code : code) {
    case ECONNREFUSED: return TW_DIAL_CLOSED;
    case EHOSTUNREACH:
        return took_us < NEIGHBOUR_LOST_US ? TW_DIAL_REJECTED : tw_dial_cause_of_silence(remote);
    case EACCES:
    case EPERM: return TW_DIAL_FORBIDDEN;
    case ENETUNREACH:
        /* The system knows at once that it has no route; later this is the word of a router. */
        return took_us > 0 ? TW_DIAL_REJECTED : TW_DIAL_NO_ROUTE;
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT: return TW_DIAL_NO_ROUTE;
    case ETIMEDOUT: return tw_dial_cause_of_silence(remote);
    case ECONNRESET:
    case EPIPE: return TW_DIAL_BROKEN;
    default: return TW_DIAL_NONE;
    }
}

bool tw_dial_may_be_offline(enum tw_dial_cause cause) {
    return cause == TW_DIAL_REJECTED || cause == TW_DIAL_SILENT || cause == TW_DIAL_PRIVATE ||
           cause == TW_DIAL_NO_ROUTE;
}

enum tw_dial_cause tw_dial_cause_of_status(enum tw_status status) {
    static const struct {
        enum tw_status status;
        enum tw_dial_cause cause;
    } pairs[] = {
        {TW_TLS, TW_DIAL_NOT_THINWIRE},
        {TW_VERSION, TW_DIAL_VERSION},
        {TW_OTHER_RUN, TW_DIAL_OTHER_RUN},
        {TW_WRONG_SECRET, TW_DIAL_WRONG_SECRET},
        {TW_WRONG_ID, TW_DIAL_WRONG_ID},
        {TW_TWIN, TW_DIAL_TWIN},
        {TW_TICKET_UNKNOWN, TW_DIAL_TICKET_UNKNOWN},
        {TW_TICKET_EXPIRED, TW_DIAL_TICKET_EXPIRED},
        {TW_TICKET_USED, TW_DIAL_TICKET_USED},
        {TW_NOT_ADMITTED, TW_DIAL_NOT_ADMITTED},
        {TW_REVOKED, TW_DIAL_REVOKED},
        {TW_BANNED, TW_DIAL_BANNED},
        {TW_BAD_CLOCK, TW_DIAL_CLOCK},
        {TW_SELF, TW_DIAL_SELF},
        {TW_IO, TW_DIAL_BROKEN},
        {TW_LIMIT, TW_DIAL_BUSY},
        {TW_NOMEM, TW_DIAL_BUSY},
    };
    for (unsigned i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (pairs[i].status == status) return pairs[i].cause;
    }
    return TW_DIAL_NONE;
}

bool tw_dial_is_refusal(enum tw_dial_cause cause) {
    return cause >= TW_DIAL_WRONG_ID && cause <= TW_DIAL_CLOCK;
}

const char *tw_dial_cause_name(enum tw_dial_cause cause) {
    return ROWS[(unsigned)cause < TW_DIAL_CAUSES ? cause : TW_DIAL_NONE].name;
}

void tw_dial_sentence(enum tw_dial_cause cause, const char *address, const char *detail,
                      char text[TW_DIAL_SENTENCE_BYTES]) {
    const struct row *const row = &ROWS[(unsigned)cause < TW_DIAL_CAUSES ? cause : TW_DIAL_NONE];
    const size_t fixed = strnlen(address, TW_ADDR_BYTES) + strlen(": ") + strlen(row->what) +
                         strlen(" ()") + strlen("; ") + strlen(row->way_out) + 1;
    TW_ASSERT(fixed <= TW_DIAL_SENTENCE_BYTES);
    const size_t room = TW_DIAL_SENTENCE_BYTES - fixed;
    const size_t length = detail == NULL ? 0 : strnlen(detail, TW_DIAL_SENTENCE_BYTES);
    const bool is_cut = length > room;
    const size_t shown = is_cut ? (room > 3 ? room - 3 : 0) : length;
    (void)snprintf(text, TW_DIAL_SENTENCE_BYTES, "%.*s: %s%s%.*s%s%s; %s", TW_ADDR_BYTES - 1,
                   address, row->what, shown > 0 ? " (" : "", (int)shown, shown > 0 ? detail : "",
                   is_cut && shown > 0 ? "..." : "", shown > 0 ? ")" : "", row->way_out);
}

/* ==== the race ================================================================================ */

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

/* ==== the dials so far ======================================================================== */

/* Returns the row of that address, searched from index `begin` on, or NULL. */
static struct tw_dial_row *row_from(struct tw_dial_history *history, uint32_t begin,
                                    const char *address) {
    for (uint32_t i = begin; i < TW_DIAL_HISTORY_ROWS; i++) {
        if (strcmp(history->rows[i].address, address) == 0) return &history->rows[i];
    }
    return NULL;
}

static struct tw_dial_row *row_of(struct tw_dial_history *history, const char *address) {
    return address[0] != '\0' ? row_from(history, 0, address) : NULL;
}

void tw_dial_history_configure(struct tw_dial_history *history, const char *address) {
    for (uint32_t i = 0; i < history->configured_count; i++) {
        if (strcmp(history->rows[i].address, address) == 0) return;
    }
    /* All rows for configured addresses are used: this one shares the rows of the others. */
    if (history->configured_count == TW_DIAL_HISTORY_CONFIGURED) return;
    struct tw_dial_row *row = &history->rows[history->configured_count++];
    *row = (struct tw_dial_row){.cause = TW_DIAL_NONE};
    (void)snprintf(row->address, sizeof(row->address), "%s", address);
}

bool tw_dial_history_is_configured(const struct tw_dial_history *history, const char *address) {
    for (uint32_t i = 0; i < history->configured_count; i++) {
        if (strcmp(history->rows[i].address, address) == 0) return true;
    }
    return false;
}

const struct tw_dial_row *tw_dial_history_find(const struct tw_dial_history *history,
                                               const char *address) {
    return row_of((struct tw_dial_history *)history, address);
}

/* Returns a new row for an address that has none. If the table is full, it replaces another row and
 * sets *is_full. */
static struct tw_dial_row *row_take(struct tw_dial_history *history, const char *address,
                                    bool *is_full) {
    struct tw_dial_row *row = row_from(history, TW_DIAL_HISTORY_CONFIGURED, "");
    *is_full = row == NULL;
    if (*is_full)
        row = &history->rows[TW_DIAL_HISTORY_CONFIGURED +
                             history->others_next++ % TW_DIAL_HISTORY_OTHERS];
    *row = (struct tw_dial_row){.cause = TW_DIAL_NONE};
    (void)snprintf(row->address, sizeof(row->address), "%s", address);
    return row;
}

bool tw_dial_history_failed(struct tw_dial_history *history, const char *address,
                            const struct tw_dial_failure *failure, uint64_t now_us,
                            uint64_t *held_back) {
    bool is_full = false;
    struct tw_dial_row *row = row_of(history, address);
    if (row == NULL) row = row_take(history, address, &is_full);
    /* Compares causes, not sentences: the numbers in a sentence differ every time. */
    const bool is_news = !is_full && (row->failures == 0 || row->cause != failure->cause);
    (void)snprintf(row->sentence, sizeof(row->sentence), "%s", failure->sentence);
    row->alike = row->failures > 0 && row->cause == failure->cause ? row->alike : 0;
    if (row->alike < UINT32_MAX) row->alike++;
    row->cause = failure->cause;
    row->other = failure->other != NULL ? *failure->other : (struct tw_id){{0}};
    row->failed_us = now_us;
    if (row->failures < UINT32_MAX) row->failures++;
    *held_back = 0;
    return is_news || tw_log_may_say(&history->limit, now_us, TW_DIAL_HISTORY_LINE_US, held_back);
}

bool tw_dial_history_is_event(const struct tw_dial_history *history, const char *address) {
    const struct tw_dial_row *row = tw_dial_history_find(history, address);
    uint32_t alike = row != NULL ? row->alike : 1;
    while (alike > 0 && alike % 10 == 0) alike /= 10;
    return alike == 1;
}

void tw_dial_history_worked(struct tw_dial_history *history, const char *address) {
    for (uint32_t i = 0; i < TW_DIAL_HISTORY_ROWS; i++) {
        struct tw_dial_row *row = &history->rows[i];
        if (row->address[0] == '\0' || strcmp(row->address, address) != 0) continue;
        *row = (struct tw_dial_row){.cause = TW_DIAL_NONE};
        if (i < history->configured_count)
            (void)snprintf(row->address, sizeof(row->address), "%s", address);
    }
}
