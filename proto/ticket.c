#include "proto/ticket.h"

#include <stdbool.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"

enum {
    AT_INVITER = 32,
    AT_ID = 64,
    AT_KEY = AT_ID + TW_TICKET_ID_BYTES,
    AT_EXPIRES = AT_KEY + TW_TICKET_KEY_BYTES,
    AT_USES = AT_EXPIRES + 4,
    AT_COUNT = AT_USES + 2,
    AT_ADDRS = AT_COUNT + 1,
    CHECK_BYTES = 4,
    BYTES_MAX = AT_ADDRS + TW_ADDRS_MAX * TW_ADDR_BYTES + CHECK_BYTES,
    DIGITS_MAX = (8 * BYTES_MAX + 4) / 5,
    PREFIX_BYTES = 3,
};

_Static_assert(PREFIX_BYTES + DIGITS_MAX < TW_TICKET_TEXT_BYTES, "the longest line fits");
_Static_assert(TW_TICKET_USES_MAX <= UINT16_MAX, "uses are 16 bits");

static const char ALPHABET[] = "0123456789abcdefghjkmnpqrstvwxyz";
static const char AGAIN[] = "copy the whole line that `thinwire invite` printed";

/* ---- writing ------------------------------------------------------------------------------- */

static size_t bytes_write(const struct tw_ticket *ticket, uint8_t bytes[BYTES_MAX]) {
    TW_ASSERT(ticket->addrs_count >= 1 && ticket->addrs_count <= TW_ADDRS_MAX);
    TW_ASSERT(ticket->uses >= 1 && ticket->uses <= TW_TICKET_USES_MAX);
    TW_ASSERT(ticket->expires_s <= UINT32_MAX);
    memcpy(bytes, ticket->run.bytes, 32);
    memcpy(bytes + AT_INVITER, ticket->inviter.bytes, 32);
    memcpy(bytes + AT_ID, ticket->id, TW_TICKET_ID_BYTES);
    memcpy(bytes + AT_KEY, ticket->key, TW_TICKET_KEY_BYTES);
    tw_put_u32(bytes + AT_EXPIRES, (uint32_t)ticket->expires_s);
    tw_put_u16(bytes + AT_USES, (uint16_t)ticket->uses);
    bytes[AT_COUNT] = (uint8_t)ticket->addrs_count;
    size_t at = AT_ADDRS;
    for (uint32_t i = 0; i < ticket->addrs_count; i++) {
        const size_t length = strnlen(ticket->addrs[i], TW_ADDR_BYTES);
        TW_ASSERT(length > 0 && length < TW_ADDR_BYTES);
        bytes[at++] = (uint8_t)length;
        memcpy(bytes + at, ticket->addrs[i], length);
        at += length;
    }
    const struct tw_id hash = tw_sha256(bytes, at);
    memcpy(bytes + at, hash.bytes, CHECK_BYTES);
    return at + CHECK_BYTES;
}

void tw_ticket_encode(const struct tw_ticket *ticket, char text[TW_TICKET_TEXT_BYTES]) {
    uint8_t bytes[BYTES_MAX];
    const size_t size = bytes_write(ticket, bytes);
    size_t at = PREFIX_BYTES;
    uint32_t held = 0;
    unsigned bits = 0;
    memcpy(text, "tw1", PREFIX_BYTES);
    for (size_t i = 0; i < size; i++) {
        held = held << 8 | bytes[i];
        for (bits += 8; bits >= 5; bits -= 5) text[at++] = ALPHABET[held >> (bits - 5) & 31];
    }
    if (bits > 0) text[at++] = ALPHABET[held << (5 - bits) & 31];
    text[at] = '\0';
}

/* ---- reading ------------------------------------------------------------------------------- */

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Returns the value of a base32 digit, or -1. */
static int digit(char c) {
    c = lower(c);
    if (c == 'i' || c == 'l') c = '1';
    if (c == 'o') c = '0';
    if (c == 'u') c = 'v';
    const char *found = c == '\0' ? NULL : strchr(ALPHABET, c);
    return found == NULL ? -1 : (int)(found - ALPHABET);
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static enum tw_status digits_read(const char *text, uint8_t bytes[BYTES_MAX], size_t *size,
                                  struct tw_error *err) {
    uint32_t held = 0, bits = 0;
    *size = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (is_space(*at)) continue;
        const int value = digit(*at);
        if (value < 0)
            return tw_fail(err, TW_CONFIG, "a character in it is no part of a ticket: %s", AGAIN);
        held = held << 5 | (uint32_t)value;
        bits += 5;
        if (bits < 8) continue;
        if (*size == BYTES_MAX)
            return tw_fail(err, TW_CONFIG, "it is longer than any ticket: %s", AGAIN);
        bits -= 8;
        bytes[(*size)++] = (uint8_t)(held >> bits);
        held &= (1u << bits) - 1;
    }
    /* The unused bits of the last digit must be 0, so that every ticket has one spelling. */
    if (bits >= 5 || held != 0)
        return tw_fail(err, TW_CONFIG, "its end is missing or has a typing error: %s", AGAIN);
    return TW_OK;
}

static enum tw_status addrs_read(const uint8_t *bytes, size_t size, struct tw_ticket *ticket,
                                 struct tw_error *err) {
    size_t at = AT_ADDRS;
    for (uint32_t i = 0; i < ticket->addrs_count; i++) {
        const size_t length = at < size ? bytes[at++] : 0;
        if (length == 0 || length >= TW_ADDR_BYTES || length > size - at)
            return tw_fail(err, TW_CONFIG, "its address %u has a length out of bounds", i + 1);
        memcpy(ticket->addrs[i], bytes + at, length);
        ticket->addrs[i][length] = '\0';
        if (strlen(ticket->addrs[i]) != length || !tw_address_is_valid(ticket->addrs[i]))
            return tw_fail(err, TW_CONFIG, "its address %u is not host:port", i + 1);
        at += length;
    }
    return at == size ? TW_OK : tw_fail(err, TW_CONFIG, "it has bytes after the last address");
}

static enum tw_status bytes_read(const uint8_t *bytes, size_t size, struct tw_ticket *ticket,
                                 struct tw_error *err) {
    struct tw_ticket read = {0};
    if (size < AT_ADDRS + CHECK_BYTES)
        return tw_fail(err, TW_CONFIG, "it is shorter than any ticket: %s", AGAIN);
    const size_t checked = size - CHECK_BYTES;
    const struct tw_id hash = tw_sha256(bytes, checked);
    if (memcmp(hash.bytes, bytes + checked, CHECK_BYTES) != 0)
        return tw_fail(err, TW_CONFIG, "part of it is missing or mistyped: %s", AGAIN);
    memcpy(read.run.bytes, bytes, 32);
    memcpy(read.inviter.bytes, bytes + AT_INVITER, 32);
    memcpy(read.id, bytes + AT_ID, TW_TICKET_ID_BYTES);
    memcpy(read.key, bytes + AT_KEY, TW_TICKET_KEY_BYTES);
    read.expires_s = tw_get_u32(bytes + AT_EXPIRES);
    read.uses = tw_get_u16(bytes + AT_USES);
    read.addrs_count = bytes[AT_COUNT];
    if (read.uses < 1 || read.uses > TW_TICKET_USES_MAX)
        return tw_fail(err, TW_CONFIG, "it says %u uses, 1 to %d can be", read.uses,
                       TW_TICKET_USES_MAX);
    if (read.addrs_count < 1 || read.addrs_count > TW_ADDRS_MAX)
        return tw_fail(err, TW_CONFIG, "it has %u addresses, 1 to %d can be", read.addrs_count,
                       TW_ADDRS_MAX);
    TW_TRY(addrs_read(bytes, checked, &read, err));
    *ticket = read;
    return TW_OK;
}

enum tw_status tw_ticket_decode(const char *text, struct tw_ticket *ticket, struct tw_error *err) {
    uint8_t bytes[BYTES_MAX];
    size_t size = 0;
    while (is_space(*text)) text++;
    if (lower(text[0]) != 't' || lower(text[1]) != 'w' || text[2] < '0' || text[2] > '9')
        return tw_fail(err, TW_CONFIG, "this is no ticket, which begins with tw1: %s", AGAIN);
    if (text[2] != '1')
        return tw_fail(err, TW_CONFIG,
                       "this is a ticket of another version (tw%c): update this program or the "
                       "inviter's",
                       text[2]);
    TW_TRY(digits_read(text + PREFIX_BYTES, bytes, &size, err));
    return bytes_read(bytes, size, ticket, err);
}

void tw_ticket_name(const uint8_t id[TW_TICKET_ID_BYTES], char name[9]) {
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < 4; i++) {
        name[2 * i] = digits[id[i] >> 4];
        name[2 * i + 1] = digits[id[i] & 15];
    }
    name[8] = '\0';
}
