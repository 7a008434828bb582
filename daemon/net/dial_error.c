#include "daemon/net/dial_error.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

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
