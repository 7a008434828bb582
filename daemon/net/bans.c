#include "daemon/net/bans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/handshake_limiter.h"

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

/* ---- hosts --------------------------------------------------------------------------------- */

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

/* ---- by hand ------------------------------------------------------------------------------- */

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

/* ---- text ---------------------------------------------------------------------------------- */

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
