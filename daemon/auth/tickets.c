#include "daemon/auth/tickets.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "daemon/auth/identity.h"

enum {
    ID_HEX = 2 * TW_TICKET_ID_BYTES,
    KEY_HEX = 2 * TW_TICKET_KEY_BYTES,
    MARK_HEX = TW_SECRET_MARK_BYTES - 1,
    LINE_BYTES = 128,
};

static const char HEAD[] = "thinwire-tickets 1\n";
static const char NO_VOTE[] = " no-vote"; /* last word of a ticket's line */

/* ---- hex ----------------------------------------------------------------------------------- */

static void hex_write(const uint8_t *bytes, size_t count, char *hex) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * count] = '\0';
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_read(const char *hex, uint8_t *bytes, size_t count) {
    if (strlen(hex) != 2 * count) return false;
    for (size_t i = 0; i < count; i++) {
        const int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* ---- one ticket ---------------------------------------------------------------------------- */

bool tw_ticket_may_return(const struct tw_ticket_row *row, uint64_t now_s) {
    return !row->is_withdrawn && now_s < row->expires_s;
}

static bool is_good(const struct tw_ticket_row *row, uint64_t now_s) {
    return tw_ticket_may_return(row, now_s) && row->guests_count < row->uses;
}

static void time_write(uint64_t unix_s, char text[32]) {
    const time_t time = (time_t)unix_s;
    struct tm parts;
    if (gmtime_r(&time, &parts) == NULL || strftime(text, 32, "%Y-%m-%d %H:%M UTC", &parts) == 0)
        (void)snprintf(text, 32, "%" PRIu64, unix_s);
}

enum tw_status tw_ticket_use(struct tw_ticket_row *row, const struct tw_id *node, uint64_t now_s,
                             bool *is_new, struct tw_error *err) {
    char until[32], now[32];
    *is_new = false;
    if (now_s >= row->expires_s) {
        time_write(row->expires_s, until);
        time_write(now_s, now);
        return tw_fail(err, TW_TICKET_EXPIRED, "at %s; there it is %s", until, now);
    }
    for (uint32_t i = 0; i < row->guests_count; i++) {
        if (tw_id_equal(&row->guests[i], node)) return TW_OK;
    }
    if (row->guests_count >= row->uses)
        return tw_fail(err, TW_TICKET_USED, "%u of %u", row->guests_count, row->uses);
    row->guests[row->guests_count++] = *node;
    *is_new = true;
    return TW_OK;
}

/* ---- table --------------------------------------------------------------------------------- */

static void row_remove(struct tw_tickets *tickets, uint32_t at) {
    struct tw_ticket_row *row = &tickets->rows[at];
    memmove(row, row + 1, (tickets->count - at - 1) * sizeof(*row));
    tickets->count--;
    OPENSSL_cleanse(&tickets->rows[tickets->count], sizeof(*row));
}

uint32_t tw_tickets_sweep(struct tw_tickets *tickets, uint64_t now_s) {
    const uint32_t before = tickets->count;
    for (uint32_t i = 0; i < tickets->count;) {
        const uint64_t kept_s = tickets->rows[i].expires_s + TW_TICKET_KEPT_S;
        if (kept_s < now_s)
            row_remove(tickets, i);
        else
            i++;
    }
    return before - tickets->count;
}

/* If the table is full, removes the oldest ticket that is expired, withdrawn or used up. */
static void make_room(struct tw_tickets *tickets, uint64_t now_s) {
    for (uint32_t i = 0; tickets->count == TW_TICKETS_MAX && i < tickets->count; i++) {
        if (!is_good(&tickets->rows[i], now_s)) row_remove(tickets, i);
    }
}

enum tw_status tw_tickets_add(struct tw_tickets *tickets, uint32_t uses, uint64_t life_s,
                              uint64_t now_s, struct tw_ticket_row **row, struct tw_error *err) {
    if (uses < 1 || uses > TW_TICKET_USES_MAX)
        return tw_fail(err, TW_CONFIG, "a ticket has 1 to %d uses", TW_TICKET_USES_MAX);
    if (life_s < 1 || life_s > TW_TICKET_LIFE_MAX_S)
        return tw_fail(err, TW_CONFIG, "a ticket is good for 1 s to a year");
    (void)tw_tickets_sweep(tickets, now_s);
    make_room(tickets, now_s);
    if (tickets->count == TW_TICKETS_MAX)
        return tw_fail(err, TW_LIMIT,
                       "%d tickets are out and good: take one back with `thinwire invite --revoke`",
                       TW_TICKETS_MAX);
    struct tw_ticket_row fresh = {.uses = uses, .expires_s = now_s + life_s};
    if (RAND_bytes(fresh.id, sizeof(fresh.id)) != 1 ||
        RAND_priv_bytes(fresh.key, sizeof(fresh.key)) != 1)
        return tw_fail(err, TW_IO, "the system has no random bytes for a ticket yet");
    tickets->rows[tickets->count] = fresh;
    *row = &tickets->rows[tickets->count++];
    OPENSSL_cleanse(&fresh, sizeof(fresh));
    return TW_OK;
}

struct tw_ticket_row *tw_tickets_find(struct tw_tickets *tickets,
                                      const uint8_t id[TW_TICKET_ID_BYTES]) {
    for (uint32_t i = 0; i < tickets->count; i++) {
        struct tw_ticket_row *row = &tickets->rows[i];
        if (memcmp(row->id, id, TW_TICKET_ID_BYTES) == 0) return row->is_withdrawn ? NULL : row;
    }
    return NULL;
}

enum tw_status tw_tickets_withdraw(struct tw_tickets *tickets, const char *name,
                                   struct tw_error *err) {
    struct tw_ticket_row *found = NULL;
    const size_t size = strlen(name);
    for (uint32_t i = 0; i < tickets->count && size >= 4; i++) {
        char hex[ID_HEX + 1];
        hex_write(tickets->rows[i].id, TW_TICKET_ID_BYTES, hex);
        if (strncmp(hex, name, size) != 0) continue;
        if (found != NULL)
            return tw_fail(err, TW_CONFIG, "more than one ticket begins with %.16s", name);
        found = &tickets->rows[i];
    }
    if (found == NULL)
        return tw_fail(err, TW_CONFIG,
                       "no ticket is called %.16s: `thinwire invite --list` shows them", name);
    found->is_withdrawn = true;
    return TW_OK;
}

static uint32_t withdraw_used(struct tw_tickets *tickets) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < tickets->count; i++) {
        struct tw_ticket_row *row = &tickets->rows[i];
        if (row->is_withdrawn || row->guests_count == 0) continue;
        row->is_withdrawn = true;
        count++;
    }
    return count;
}

static bool is_marked(const struct tw_tickets *tickets, const char *mark) {
    for (uint32_t i = 0; i < tickets->marks_count; i++) {
        if (strcmp(tickets->marks[i], mark) == 0) return true;
    }
    return false;
}

uint32_t tw_tickets_secrets(struct tw_tickets *tickets, const struct tw_secrets *secrets) {
    char marks[TW_SECRETS_MAX][TW_SECRET_MARK_BYTES] = {{0}};
    const bool is_known = tickets->marks_count > 0; /* files of older builds have no marks of
                                                       secrets */
    bool has_new = false;
    for (uint32_t i = 0; i < secrets->count; i++) {
        tw_secret_mark(&secrets->list[i], marks[i]);
        has_new |= !is_marked(tickets, marks[i]);
    }
    tickets->marks_count = secrets->count;
    memcpy(tickets->marks, marks, sizeof(marks));
    return is_known && has_new ? withdraw_used(tickets) : 0;
}

/* ---- the file ------------------------------------------------------------------------------ */

size_t tw_tickets_encode(const struct tw_tickets *tickets, char *text) {
    size_t at = sizeof(HEAD) - 1;
    memcpy(text, HEAD, sizeof(HEAD));
    for (uint32_t i = 0; i < tickets->marks_count; i++) {
        const int size =
            snprintf(text + at, TW_TICKETS_TEXT_MAX - at, "secret %s\n", tickets->marks[i]);
        TW_ASSERT(size > 0 && (size_t)size < TW_TICKETS_TEXT_MAX - at);
        at += (size_t)size;
    }
    for (uint32_t i = 0; i < tickets->count; i++) {
        const struct tw_ticket_row *row = &tickets->rows[i];
        char id[ID_HEX + 1], key[KEY_HEX + 1], hex[TW_ID_HEX_BYTES];
        hex_write(row->id, TW_TICKET_ID_BYTES, id);
        hex_write(row->key, TW_TICKET_KEY_BYTES, key);
        int size = snprintf(text + at, TW_TICKETS_TEXT_MAX - at,
                            "ticket %s %s %" PRIu64 " %u %d%s\n", id, key, row->expires_s,
                            row->uses, row->is_withdrawn, row->lacks_vote ? NO_VOTE : "");
        OPENSSL_cleanse(key, sizeof(key));
        TW_ASSERT(size > 0 && (size_t)size < TW_TICKETS_TEXT_MAX - at);
        at += (size_t)size;
        for (uint32_t k = 0; k < row->guests_count; k++) {
            tw_id_hex(&row->guests[k], hex);
            size = snprintf(text + at, TW_TICKETS_TEXT_MAX - at, "guest %s\n", hex);
            TW_ASSERT(size > 0 && (size_t)size < TW_TICKETS_TEXT_MAX - at);
            at += (size_t)size;
        }
    }
    return at;
}

static bool mark_read(const char *line, struct tw_tickets *tickets) {
    if (strncmp(line, "secret ", 7) != 0) return false;
    if (tickets->marks_count == TW_SECRETS_MAX || tickets->count > 0) return false;
    if (strlen(line + 7) != MARK_HEX || strspn(line + 7, "0123456789abcdef") != MARK_HEX)
        return false;
    memcpy(tickets->marks[tickets->marks_count++], line + 7, MARK_HEX + 1);
    return true;
}

static bool ticket_read(const char *line, struct tw_tickets *tickets) {
    char id[ID_HEX + 1], key[KEY_HEX + 1];
    struct tw_ticket_row row = {0};
    unsigned withdrawn = 0;
    int end = 0;
    if (tickets->count == TW_TICKETS_MAX) return false;
    if (sscanf(line, "ticket %16[0-9a-f] %32[0-9a-f] %19" SCNu64 " %9u %1u%n", id, key,
               &row.expires_s, &row.uses, &withdrawn, &end) != 5)
        return false;
    row.lacks_vote = strcmp(line + end, NO_VOTE) == 0;
    if (!row.lacks_vote && line[end] != '\0') return false;
    const bool is_read = hex_read(id, row.id, sizeof(row.id)) &&
                         hex_read(key, row.key, sizeof(row.key)) && withdrawn <= 1 &&
                         row.uses >= 1 && row.uses <= TW_TICKET_USES_MAX;
    OPENSSL_cleanse(key, sizeof(key));
    row.is_withdrawn = withdrawn == 1;
    if (is_read) tickets->rows[tickets->count++] = row;
    return is_read;
}

static bool guest_read(const char *line, struct tw_tickets *tickets) {
    if (strncmp(line, "guest ", 6) != 0 || tickets->count == 0) return false;
    struct tw_ticket_row *row = &tickets->rows[tickets->count - 1];
    if (row->guests_count == row->uses) return false;
    return tw_id_parse(line + 6, &row->guests[row->guests_count]) && ++row->guests_count > 0;
}

static enum tw_status fail_corrupt(struct tw_tickets *tickets, unsigned line,
                                   struct tw_error *err) {
    OPENSSL_cleanse(tickets, sizeof(*tickets));
    return tw_fail(err, TW_CORRUPT, "line %u is none of a file of tickets", line);
}

enum tw_status tw_tickets_decode(struct tw_tickets *tickets, const char *text,
                                 struct tw_error *err) {
    memset(tickets, 0, sizeof(*tickets));
    if (strncmp(text, HEAD, sizeof(HEAD) - 1) != 0) return fail_corrupt(tickets, 1, err);
    text += sizeof(HEAD) - 1;
    for (unsigned number = 2; *text != '\0'; number++) {
        char line[LINE_BYTES];
        const size_t size = strcspn(text, "\n");
        if (text[size] != '\n' || size >= sizeof(line)) return fail_corrupt(tickets, number, err);
        memcpy(line, text, size);
        line[size] = '\0';
        if (!mark_read(line, tickets) && !ticket_read(line, tickets) && !guest_read(line, tickets))
            return fail_corrupt(tickets, number, err);
        text += size + 1;
    }
    return TW_OK;
}

enum tw_status tw_tickets_load(struct tw_tickets *tickets, const char *path, struct tw_error *err) {
    size_t size = 0;
    memset(tickets, 0, sizeof(*tickets));
    if (access(path, F_OK) != 0 && errno == ENOENT) return TW_OK;
    char *text = malloc(TW_TICKETS_TEXT_MAX);
    if (text == NULL) return tw_fail(err, TW_NOMEM, "no memory for the tickets");
    struct tw_error reason = {0};
    enum tw_status status = tw_private_read(path, text, TW_TICKETS_TEXT_MAX, &size, err);
    if (status == TW_OK) {
        status = strlen(text) == size ? tw_tickets_decode(tickets, text, &reason)
                                      : tw_fail(&reason, TW_CORRUPT, "it is no text");
        if (status != TW_OK) (void)tw_fail(err, status, "%.120s: %s", path, reason.message);
        OPENSSL_cleanse(text, size);
    }
    free(text);
    return status;
}

/* ==== knocks ================================================================================== */

enum {
    NONCE_BYTES = 8,
    MAC_BYTES = 16,
    HEX_BYTES = 2 * (NONCE_BYTES + MAC_BYTES),
    HOUR_S = 3600,
};
static const char DOMAIN_TEXT[] = "thinwire-knock";
static const char SUFFIX[] = ".invalid";
_Static_assert(HEX_BYTES + sizeof(SUFFIX) == TW_KNOCK_NAME_BYTES, "the name fits");

static void mac_compute(const struct tw_knock_key *key, const uint8_t nonce[NONCE_BYTES],
                        uint64_t hour, uint8_t mac[MAC_BYTES]) {
    uint8_t text[sizeof(DOMAIN_TEXT) - 1 + 32 + NONCE_BYTES + 8], whole[32];
    unsigned size = 0;
    size_t at = sizeof(DOMAIN_TEXT) - 1;
    memcpy(text, DOMAIN_TEXT, at);
    memcpy(text + at, key->run.bytes, 32);
    at += 32;
    memcpy(text + at, nonce, NONCE_BYTES);
    at += NONCE_BYTES;
    tw_put_u64(text + at, hour);
    TW_ASSERT(HMAC(EVP_sha256(), key->bytes, (int)key->size, text, sizeof(text), whole, &size) !=
              NULL);
    memcpy(mac, whole, MAC_BYTES);
}

void tw_knock_write(const struct tw_knock_key *key, uint64_t now_s,
                    char name[TW_KNOCK_NAME_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    const uint64_t hour = now_s / HOUR_S;
    uint8_t bytes[NONCE_BYTES + MAC_BYTES];
    name[0] = '\0';
    if (RAND_bytes(bytes, NONCE_BYTES) != 1) return;
    bytes[0] = (uint8_t)hour;
    mac_compute(key, bytes, hour, bytes + NONCE_BYTES);
    for (unsigned i = 0; i < sizeof(bytes); i++) {
        name[2 * i] = digits[bytes[i] >> 4];
        name[2 * i + 1] = digits[bytes[i] & 15];
    }
    memcpy(name + HEX_BYTES, SUFFIX, sizeof(SUFFIX));
}

static int digit_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool hex_decode(const char *text, uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool tw_knock_is_of(const struct tw_knock_key *key, const char *name, size_t size, uint64_t now_s) {
    uint8_t bytes[NONCE_BYTES + MAC_BYTES], mac[MAC_BYTES];
    const uint64_t now_hour = now_s / HOUR_S;
    if (size != TW_KNOCK_NAME_BYTES - 1 ||
        memcmp(name + HEX_BYTES, SUFFIX, size - HEX_BYTES) != 0 ||
        !hex_decode(name, bytes, sizeof(bytes)))
        return false;
    const uint8_t ahead = (uint8_t)(bytes[0] - (uint8_t)(now_hour - 1)); /* 0, 1 or 2 */
    if (ahead > 2) return false;
    mac_compute(key, bytes, now_hour - 1 + ahead, mac);
    return CRYPTO_memcmp(mac, bytes + NONCE_BYTES, MAC_BYTES) == 0;
}

bool tw_knocks_add(struct tw_knocks *knocks, const char *name) {
    uint8_t nonce[NONCE_BYTES];
    if (!hex_decode(name, nonce, NONCE_BYTES)) return false;
    const uint64_t value = tw_get_u64(nonce);
    const uint32_t count = knocks->count < TW_KNOCKS_SEEN ? knocks->count : TW_KNOCKS_SEEN;
    for (uint32_t i = 0; i < count; i++)
        if (knocks->seen[i] == value) return false;
    knocks->seen[knocks->count++ % TW_KNOCKS_SEEN] = value;
    if (knocks->count == 2 * TW_KNOCKS_SEEN) knocks->count = TW_KNOCKS_SEEN;
    return true;
}
