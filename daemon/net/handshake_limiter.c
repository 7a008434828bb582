#include "daemon/net/handshake_limiter.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { SECOND_US = 1000 * 1000 };
static const uint64_t KNOWN_US = UINT64_C(24) * 3600 * SECOND_US;

/* Length of the prefix that identifies a network or host, in bits. The other bits become zero. */
struct mask {
    unsigned v4, v6;
};
static const struct mask NET = {24, 48}, HOST = {32, 64};

static void prefix_of(const struct sockaddr_storage *from, struct mask mask,
                      uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES]) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    memset(prefix, 0, TW_HANDSHAKE_LIMITER_PREFIX_BYTES);
    if (from->ss_family == AF_INET6) {
        memcpy(prefix, &((const struct sockaddr_in6 *)from)->sin6_addr,
               TW_HANDSHAKE_LIMITER_PREFIX_BYTES);
    } else {
        memcpy(prefix, mapped, sizeof(mapped));
        memcpy(prefix + sizeof(mapped), &((const struct sockaddr_in *)from)->sin_addr, 4);
    }
    const bool is_v4 = memcmp(prefix, mapped, sizeof(mapped)) == 0;
    const unsigned bytes = (is_v4 ? 96 + mask.v4 : mask.v6) / 8;
    memset(prefix + bytes, 0, TW_HANDSHAKE_LIMITER_PREFIX_BYTES - bytes);
}

bool tw_handshake_limiter_is_same_host(const struct sockaddr_storage *a,
                                       const struct sockaddr_storage *b) {
    uint8_t of_a[TW_HANDSHAKE_LIMITER_PREFIX_BYTES], of_b[TW_HANDSHAKE_LIMITER_PREFIX_BYTES];
    prefix_of(a, HOST, of_a);
    prefix_of(b, HOST, of_b);
    return memcmp(of_a, of_b, sizeof(of_a)) == 0;
}

static int row_find(const struct tw_handshake_limiter_row *rows, unsigned count,
                    const uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES]) {
    for (unsigned i = 0; i < count; i++) {
        if (rows[i].used_us != 0 &&
            memcmp(rows[i].prefix, prefix, TW_HANDSHAKE_LIMITER_PREFIX_BYTES) == 0)
            return (int)i;
    }
    return -1;
}

/* Returns the row of the prefix. If there is none, makes one with a full bucket. */
static struct tw_handshake_limiter_row *
row_take(struct tw_handshake_limiter_row *rows, unsigned count,
         const uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES], uint64_t per_s, uint64_t burst,
         uint64_t now_us) {
    const int found = row_find(rows, count, prefix);
    struct tw_handshake_limiter_row *row = found >= 0 ? &rows[found] : &rows[0];
    for (unsigned i = 1; found < 0 && i < count; i++) {
        if (rows[i].used_us < row->used_us) row = &rows[i];
    }
    if (found < 0) {
        memcpy(row->prefix, prefix, TW_HANDSHAKE_LIMITER_PREFIX_BYTES);
        tw_rate_init(&row->rate, per_s, burst, now_us);
    }
    row->used_us = now_us;
    return row;
}

/* Returns the row of a network or host from which a handshake begins. */
static struct tw_handshake_limiter_row *
row_begins(struct tw_handshake_limiter_row *rows, unsigned count,
           const uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES], uint64_t now_us) {
    return row_take(rows, count, prefix, TW_HANDSHAKE_LIMITER_NET_PER_S,
                    TW_HANDSHAKE_LIMITER_NET_BURST, now_us);
}

void tw_handshake_limiter_init(struct tw_handshake_limiter *limiter, uint64_t now_us) {
    memset(limiter, 0, sizeof(*limiter));
    tw_rate_init(&limiter->strangers.all, TW_HANDSHAKE_LIMITER_PER_S, TW_HANDSHAKE_LIMITER_BURST,
                 now_us);
    tw_rate_init(&limiter->knocking.all, TW_HANDSHAKE_LIMITER_PER_S, TW_HANDSHAKE_LIMITER_BURST,
                 now_us);
}

static int known_find(const struct tw_handshake_limiter *limiter,
                      const struct sockaddr_storage *from, uint64_t now_us) {
    uint8_t host[TW_HANDSHAKE_LIMITER_PREFIX_BYTES];
    prefix_of(from, HOST, host);
    const int at = row_find(limiter->hosts, TW_HANDSHAKE_LIMITER_HOSTS, host);
    return at >= 0 && now_us - limiter->hosts[at].used_us < KNOWN_US ? at : -1;
}

bool tw_handshake_limiter_is_known(const struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us) {
    return known_find(limiter, from, now_us) >= 0;
}

static bool is_empty(struct tw_rate *rate, uint64_t now_us) {
    return tw_rate_wait_us(rate, 1, now_us) > 0;
}

enum tw_status tw_handshake_limiter_take(struct tw_handshake_limiter *limiter,
                                         const struct sockaddr_storage *from, bool has_knocked,
                                         uint64_t now_us, struct tw_error *err) {
    struct tw_handshake_limiter_class *of = has_knocked ? &limiter->knocking : &limiter->strangers;
    const int known = known_find(limiter, from, now_us);
    uint8_t net[TW_HANDSHAKE_LIMITER_PREFIX_BYTES];
    prefix_of(from, NET, net);
    struct tw_rate *rate =
        known >= 0 ? &limiter->hosts[known].rate
                   : &row_begins(of->nets, TW_HANDSHAKE_LIMITER_NETS, net, now_us)->rate;
    if (is_empty(rate, now_us))
        return tw_fail(err, TW_LIMIT, "more than %d handshakes a second from one %s",
                       TW_HANDSHAKE_LIMITER_NET_PER_S, known >= 0 ? "host" : "network");
    if (known < 0 && is_empty(&of->all, now_us))
        return tw_fail(err, TW_LIMIT, "more than %d handshakes a second from %s",
                       TW_HANDSHAKE_LIMITER_PER_S, has_knocked ? "new nodes" : "strangers");
    tw_rate_spend(rate, 1, now_us);
    if (known < 0) tw_rate_spend(&of->all, 1, now_us);
    return TW_OK;
}

void tw_handshake_limiter_admitted(struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us) {
    uint8_t host[TW_HANDSHAKE_LIMITER_PREFIX_BYTES];
    prefix_of(from, HOST, host);
    (void)row_begins(limiter->hosts, TW_HANDSHAKE_LIMITER_HOSTS, host, now_us);
}

bool tw_handshake_limiter_dial_back(struct tw_handshake_limiter *limiter,
                                    const struct sockaddr_storage *host, uint64_t now_us) {
    uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES];
    prefix_of(host, HOST, prefix);
    /* The bucket counts seconds: each dial spends the TW_DIAL_BACK_PAUSE_S seconds of its pause. */
    struct tw_rate *rate = &row_take(limiter->backs, TW_HANDSHAKE_LIMITER_HOSTS, prefix, 1,
                                     TW_DIAL_BACKS_BURST * TW_DIAL_BACK_PAUSE_S, now_us)
                                ->rate;
    if (tw_rate_wait_us(rate, TW_DIAL_BACK_PAUSE_S, now_us) > 0) return false;
    tw_rate_spend(rate, TW_DIAL_BACK_PAUSE_S, now_us);
    return true;
}

/* ---- across restarts ----------------------------------------------------------------------- */

size_t tw_handshake_limiter_encode(const struct tw_handshake_limiter *limiter, uint64_t now_us,
                                   uint64_t now_s, char text[TW_HANDSHAKE_LIMITER_TEXT_MAX]) {
    size_t size = 0;
    for (unsigned i = 0; i < TW_HANDSHAKE_LIMITER_HOSTS; i++) {
        const struct tw_handshake_limiter_row *row = &limiter->hosts[i];
        const uint64_t age_us = now_us - row->used_us;
        if (row->used_us == 0 || age_us >= KNOWN_US || age_us / SECOND_US > now_s) continue;
        for (unsigned k = 0; k < TW_HANDSHAKE_LIMITER_PREFIX_BYTES; k++)
            size += (size_t)snprintf(text + size, TW_HANDSHAKE_LIMITER_TEXT_MAX - size, "%02x",
                                     row->prefix[k]);
        size += (size_t)snprintf(text + size, TW_HANDSHAKE_LIMITER_TEXT_MAX - size,
                                 " %" PRIu64 "\n", now_s - age_us / SECOND_US);
    }
    return size;
}

static bool hex_read(const char *text, uint8_t *byte) {
    static const char DIGITS[] = "0123456789abcdef";
    const char *high = memchr(DIGITS, text[0], 16), *low = memchr(DIGITS, text[1], 16);
    if (high == NULL || low == NULL) return false;
    *byte = (uint8_t)((high - DIGITS) << 4 | (low - DIGITS));
    return true;
}

/* Parses one line without its newline: a prefix in hex, a space, seconds in decimal. */
static bool line_read(const char *line, size_t size,
                      uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES], uint64_t *at_s) {
    enum { DIGITS_MAX = 12, HEX = 2 * TW_HANDSHAKE_LIMITER_PREFIX_BYTES };
    if (size < HEX + 2 || size > HEX + 1 + DIGITS_MAX || line[HEX] != ' ') return false;
    for (unsigned k = 0; k < TW_HANDSHAKE_LIMITER_PREFIX_BYTES; k++) {
        if (!hex_read(line + (size_t)2 * k, &prefix[k])) return false;
    }
    *at_s = 0;
    for (size_t i = HEX + 1; i < size; i++) {
        if (line[i] < '0' || line[i] > '9') return false;
        *at_s = 10 * *at_s + (uint64_t)(line[i] - '0');
    }
    return true;
}

uint32_t tw_handshake_limiter_decode(struct tw_handshake_limiter *limiter, const char *text,
                                     size_t size, uint64_t now_us, uint64_t now_s) {
    uint32_t bad = 0;
    for (size_t begin = 0; begin < size;) {
        uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES];
        uint64_t at_s = 0;
        const char *end = memchr(text + begin, '\n', size - begin);
        const size_t length = end != NULL ? (size_t)(end - (text + begin)) : size - begin;
        const bool is_read = end != NULL && line_read(text + begin, length, prefix, &at_s);
        begin += length + 1;
        bad += !is_read;
        if (!is_read || at_s > now_s || now_s - at_s >= KNOWN_US / SECOND_US) continue;
        /* used_us is on the monotonic clock, which begins at boot: the machine may have booted
         * after that time. */
        const uint64_t age_us = (now_s - at_s) * SECOND_US;
        struct tw_handshake_limiter_row *row =
            row_begins(limiter->hosts, TW_HANDSHAKE_LIMITER_HOSTS, prefix, now_us);
        row->used_us = age_us < now_us ? now_us - age_us : 1;
    }
    return bad;
}
