#include "daemon/net/bans.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ==== bans ==================================================================================== */

/* Start of 2026, before the first release: an earlier time means that the clock is not set yet, as
 * machines without a clock battery start in 1970. tw_bans_clock would shorten bans to fit such a
 * clock, and they would end once it is set. */
#define CLOCK_SET_S UINT64_C(1767225600)

static bool is_free(const struct tw_ban *row) {
    return tw_id_is_zero(&row->id);
}

static uint64_t left_s(const struct tw_ban *row, uint64_t now_s) {
    if (row->until_s <= now_s) return 0;
    const uint64_t left = row->until_s - now_s;
    return left < row->length_s ? left : row->length_s;
}

static int row_find(const struct tw_bans *bans, const struct tw_id *id) {
    for (int i = 0; i < TW_BANS_MAX; i++) {
        if (!is_free(&bans->rows[i]) && tw_id_equal(&bans->rows[i].id, id)) return i;
    }
    return -1;
}

/* Returns true if row `a` is replaced before `b`: free rows first, then nodes that are not banned,
 * then the ban that ends first. */
static bool is_lesser(const struct tw_ban *a, const struct tw_ban *b) {
    if (is_free(a) != is_free(b)) return is_free(a);
    if (a->until_s != b->until_s) return a->until_s < b->until_s;
    return a->since_s < b->since_s;
}

static struct tw_ban *row_new(struct tw_bans *bans, const struct tw_id *id) {
    struct tw_ban *row = &bans->rows[0];
    for (int i = 1; i < TW_BANS_MAX; i++) {
        if (is_lesser(&bans->rows[i], row)) row = &bans->rows[i];
    }
    *row = (struct tw_ban){.id = *id};
    return row;
}

bool tw_bans_is_offence(enum tw_status reason) {
    return reason == TW_PROTO || reason == TW_CORRUPT || reason == TW_LIMIT;
}

uint32_t tw_bans_offence(struct tw_bans *bans, const struct tw_id *id, uint64_t now_s) {
    const int found = row_find(bans, id);
    struct tw_ban *row = found >= 0 ? &bans->rows[found] : row_new(bans, id);
    if (row->offences == 0 || now_s < row->since_s || now_s - row->since_s > TW_BAN_WINDOW_S) {
        row->since_s = now_s;
        row->offences = 0;
    }
    row->offences++;
    if (row->offences < TW_BAN_OFFENCES) return 0;
    const bool is_forgotten = row->length_s == 0 || now_s > row->until_s + TW_BAN_MAX_S;
    if (is_forgotten)
        row->length_s = TW_BAN_FIRST_S;
    else if (left_s(row, now_s) == 0)
        row->length_s = row->length_s > TW_BAN_MAX_S / 2 ? TW_BAN_MAX_S : 2 * row->length_s;
    row->until_s = now_s + row->length_s;
    row->offences = 0;
    return row->length_s;
}

uint64_t tw_bans_left_s(const struct tw_bans *bans, const struct tw_id *id, uint64_t now_s) {
    const int found = row_find(bans, id);
    return found >= 0 ? left_s(&bans->rows[found], now_s) : 0;
}

/* ==== hosts =================================================================================== */

/* Returns the seconds left of a host's ban. If the clock was set back, the ban ends: it lasts only
 * minutes anyway. */
static uint64_t host_left_s(const struct tw_host_ban *row, uint64_t now_s) {
    const uint64_t left = row->until_s > now_s ? row->until_s - now_s : 0;
    return left <= TW_HOST_BAN_S ? left : 0;
}

void tw_bans_host(struct tw_bans *bans, const struct tw_id *id, const struct sockaddr_storage *host,
                  uint64_t now_s) {
    struct tw_host_ban *row = &bans->hosts[0];
    if (host->ss_family != AF_INET && host->ss_family != AF_INET6) return;
    for (int i = 0; i < TW_HOST_BANS_MAX; i++) {
        struct tw_host_ban *const at = &bans->hosts[i];
        if (host_left_s(at, now_s) < host_left_s(row, now_s)) row = at;
    }
    *row = (struct tw_host_ban){.id = *id, .until_s = now_s + TW_HOST_BAN_S, .host = *host};
}

uint64_t tw_bans_host_left_s(const struct tw_bans *bans, const struct sockaddr_storage *host,
                             uint64_t now_s) {
    uint64_t most = 0;
    for (int i = 0; i < TW_HOST_BANS_MAX; i++) {
        const struct tw_host_ban *const row = &bans->hosts[i];
        const uint64_t left = host_left_s(row, now_s);
        if (left > most && tw_handshake_limiter_is_same_host(&row->host, host)) most = left;
    }
    return most;
}

/* ==== by hand ================================================================================= */

enum tw_status tw_bans_lift(struct tw_bans *bans, const char *hex, uint64_t now_s, struct tw_id *id,
                            struct tw_error *err) {
    const size_t size = strnlen(hex, TW_ID_HEX_BYTES);
    struct tw_ban *found = NULL;
    if (size == 0 || size >= TW_ID_HEX_BYTES || strspn(hex, "0123456789abcdef") != size)
        return tw_fail(err, TW_CONFIG, "`%.70s` is no node id, nor the beginning of one", hex);
    for (int i = 0; i < TW_BANS_MAX; i++) {
        struct tw_ban *row = &bans->rows[i];
        char text[TW_ID_HEX_BYTES];
        if (is_free(row) || left_s(row, now_s) == 0) continue;
        tw_id_hex(&row->id, text);
        if (strncmp(text, hex, size) != 0) continue;
        if (found != NULL)
            return tw_fail(err, TW_CONFIG,
                           "more than one banned node begins with %s: give more digits", hex);
        found = row;
    }
    if (found == NULL)
        return tw_fail(err, TW_AGAIN,
                       "no node %s is banned here; `thinwire peers` names those that are", hex);
    *id = found->id;
    *found = (struct tw_ban){.since_s = 0};
    for (int i = 0; i < TW_HOST_BANS_MAX; i++) {
        if (tw_id_equal(&bans->hosts[i].id, id)) bans->hosts[i] = (struct tw_host_ban){0};
    }
    return TW_OK;
}

bool tw_bans_clock(struct tw_bans *bans, uint64_t now_s) {
    bool is_changed = false;
    if (now_s < CLOCK_SET_S) return false;
    for (int i = 0; i < TW_BANS_MAX; i++) {
        struct tw_ban *row = &bans->rows[i];
        if (row->until_s <= now_s + row->length_s) continue;
        row->until_s = now_s + row->length_s;
        is_changed = true;
    }
    return is_changed;
}

/* ==== text ==================================================================================== */

size_t tw_bans_encode(const struct tw_bans *bans, char text[TW_BANS_TEXT_MAX]) {
    size_t at = 0;
    for (int i = 0; i < TW_BANS_MAX; i++) {
        const struct tw_ban *row = &bans->rows[i];
        char hex[TW_ID_HEX_BYTES];
        if (is_free(row) || row->length_s == 0) continue;
        tw_id_hex(&row->id, hex);
        const int size = snprintf(text + at, TW_BANS_TEXT_MAX - at, "%s %" PRIu64 " %" PRIu32 "\n",
                                  hex, row->until_s, row->length_s);
        if (size < 0 || (size_t)size >= TW_BANS_TEXT_MAX - at) break;
        at += (size_t)size;
    }
    return at;
}

static bool line_read(const char *line, struct tw_ban *row) {
    char hex[TW_ID_HEX_BYTES], until[20], length[10];
    int end = 0;
    *row = (struct tw_ban){0};
    if (sscanf(line, "%64[0-9a-f] %19[0-9] %9[0-9]%n", hex, until, length, &end) != 3) return false;
    row->until_s = strtoull(until, NULL, 10);
    row->length_s = (uint32_t)strtoul(length, NULL, 10);
    return line[end] == '\0' && tw_id_parse(hex, &row->id) && !tw_id_is_zero(&row->id) &&
           row->length_s >= TW_BAN_FIRST_S && row->length_s <= TW_BAN_MAX_S;
}

uint32_t tw_bans_decode(struct tw_bans *bans, const char *text, size_t size) {
    uint32_t skipped = 0;
    for (size_t at = 0; at < size;) {
        const char *newline = memchr(text + at, '\n', size - at);
        const size_t length = newline != NULL ? (size_t)(newline - text) - at : size - at;
        char line[112];
        struct tw_ban row;
        if (length < sizeof(line)) {
            memcpy(line, text + at, length);
            line[length] = '\0';
        }
        if (length < sizeof(line) && strlen(line) == length && line_read(line, &row) &&
            row_find(bans, &row.id) < 0)
            *row_new(bans, &row.id) = row;
        else
            skipped++;
        at += length + 1;
    }
    return skipped;
}

/* ==== the rate of handshakes ================================================================== */

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

static int host_find(const struct tw_handshake_limiter_row *rows, unsigned count,
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
    const int found = host_find(rows, count, prefix);
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
    const int at = host_find(limiter->hosts, TW_HANDSHAKE_LIMITER_HOSTS, host);
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

/* ==== across restarts ========================================================================= */

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
static bool host_read(const char *line, size_t size,
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
        const bool is_read = end != NULL && host_read(text + begin, length, prefix, &at_s);
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
