/* cert.c - certificates, revocations and recalls: bytes, checks, and text for people. */
#include "proto/cert.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/units.h"

/* ---- certificates --------------------------------------------------------------------------- */

enum {
    CERT_AT_MAY = 4,
    CERT_AT_FROM = 8,
    CERT_AT_UNTIL = 16,
    CERT_AT_SERIAL = 24,
    CERT_AT_RUN = 32,
    CERT_AT_NODE = 64,
    CERT_AT_ISSUER = 96,
    CERT_AT_SIGNATURE = 128,
};

_Static_assert(CERT_AT_SIGNATURE + TW_SIGNATURE_BYTES == TW_CERT_BYTES, "the layout of cert.h");

static const uint8_t cert_magic[4] = {'T', 'W', 'A', '1'};
static const char cert_domain[] = "thinwire-admission-v1";

_Static_assert(sizeof(cert_domain) == TW_CERT_DOMAIN_BYTES, "with its NUL");

static void cert_encode(const struct tw_cert *cert, uint8_t bytes[TW_CERT_BYTES]) {
    memcpy(bytes, cert_magic, sizeof(cert_magic));
    tw_put_u32(bytes + CERT_AT_MAY, cert->may);
    tw_put_u64(bytes + CERT_AT_FROM, cert->from_s);
    tw_put_u64(bytes + CERT_AT_UNTIL, cert->until_s);
    tw_put_u64(bytes + CERT_AT_SERIAL, cert->serial);
    memcpy(bytes + CERT_AT_RUN, cert->run.bytes, 32);
    memcpy(bytes + CERT_AT_NODE, cert->node.bytes, 32);
    memcpy(bytes + CERT_AT_ISSUER, cert->issuer.bytes, 32);
    memcpy(bytes + CERT_AT_SIGNATURE, cert->signature, TW_SIGNATURE_BYTES);
}

void tw_cert_signed(const struct tw_cert *cert, uint8_t text[TW_CERT_SIGNED_BYTES]) {
    uint8_t bytes[TW_CERT_BYTES];
    cert_encode(cert, bytes);
    memcpy(text, cert_domain, TW_CERT_DOMAIN_BYTES);
    memcpy(text + TW_CERT_DOMAIN_BYTES, bytes, CERT_AT_SIGNATURE);
}

size_t tw_certs_encode(const struct tw_certs *certs, uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES]) {
    TW_ASSERT(certs->count <= TW_CERTS_MAX);
    for (uint32_t i = 0; i < certs->count; i++) {
        cert_encode(&certs->certs[i], bytes + (size_t)i * TW_CERT_BYTES);
    }
    return (size_t)certs->count * TW_CERT_BYTES;
}

static enum tw_status cert_decode(const uint8_t bytes[TW_CERT_BYTES], struct tw_cert *cert,
                                  struct tw_error *err) {
    if (memcmp(bytes, cert_magic, sizeof(cert_magic)) != 0)
        return tw_fail(err, TW_PROTO, "certificate: it does not start with TWA1");
    *cert = (struct tw_cert){
        .may = tw_get_u32(bytes + CERT_AT_MAY),
        .from_s = tw_get_u64(bytes + CERT_AT_FROM),
        .until_s = tw_get_u64(bytes + CERT_AT_UNTIL),
        .serial = tw_get_u64(bytes + CERT_AT_SERIAL),
    };
    const uint32_t rights = TW_CERT_TRAIN | TW_CERT_ADMIT;
    if ((cert->may & rights) == 0 || cert->may > (rights | TW_CERT_VOTELESS))
        return tw_fail(err, TW_PROTO, "certificate: unknown rights 0x%x", cert->may);
    if (cert->from_s >= cert->until_s)
        return tw_fail(err, TW_PROTO, "certificate: it ends before it begins");
    memcpy(cert->run.bytes, bytes + CERT_AT_RUN, 32);
    memcpy(cert->node.bytes, bytes + CERT_AT_NODE, 32);
    memcpy(cert->issuer.bytes, bytes + CERT_AT_ISSUER, 32);
    memcpy(cert->signature, bytes + CERT_AT_SIGNATURE, TW_SIGNATURE_BYTES);
    return TW_OK;
}

enum tw_status tw_certs_decode(const uint8_t *bytes, size_t size, struct tw_certs *certs,
                               struct tw_error *err) {
    struct tw_certs read = {.count = (uint32_t)(size / TW_CERT_BYTES)};
    if (size == 0 || size % TW_CERT_BYTES != 0 || size > (size_t)TW_CERTS_MAX * TW_CERT_BYTES)
        return tw_fail(err, TW_PROTO,
                       "certificates: %zu bytes; one has %d, and there are at most %d", size,
                       TW_CERT_BYTES, TW_CERTS_MAX);
    for (uint32_t i = 0; i < read.count; i++) {
        TW_TRY(cert_decode(bytes + (size_t)i * TW_CERT_BYTES, &read.certs[i], err));
    }
    *certs = read;
    return TW_OK;
}

static enum tw_status check_time(const struct tw_cert *cert, const char *whose,
                                 const struct tw_cert_question *question, struct tw_error *err) {
    char limit[TW_UNITS_BYTES], here[TW_UNITS_BYTES], gap[TW_UNITS_BYTES];
    const uint64_t now_s = question->now_s, their_s = question->their_now_s;
    if (cert->from_s > now_s && cert->from_s - now_s > TW_CERT_SLACK_S)
        return tw_fail(err, TW_BAD_CLOCK, "%s begins at %s, where it is checked it is %s", whose,
                       tw_units_utc(limit, cert->from_s), tw_units_utc(here, now_s));
    if (now_s <= cert->until_s || now_s - cert->until_s <= TW_CERT_SLACK_S) return TW_OK;
    (void)tw_units_utc(limit, cert->until_s);
    if (their_s != 0 && their_s <= cert->until_s) {
        (void)tw_units_duration(gap, (double)(now_s - their_s));
        return tw_fail(err, TW_BAD_CLOCK, "%s ended at %s by one clock, the other is %s behind",
                       whose, limit, gap);
    }
    return tw_fail(err, TW_NOT_ADMITTED, "%s ended at %s", whose, limit);
}

/* Checks run, time and right of certificate `i`. tw_certs_check compares its node and issuer. */
static enum tw_status check_one(const struct tw_certs *certs, uint32_t i,
                                const struct tw_cert_question *question, struct tw_error *err) {
    static const char *const KINDS[] = {"the certificate of node ", "that of its admitter "};
    const struct tw_cert *cert = &certs->certs[i];
    const enum tw_cert_may may = i == 0 ? question->may : TW_CERT_ADMIT;
    char whose[40], theirs[9], ours[9];
    memcpy(whose, KINDS[i], strlen(KINDS[i]));
    tw_id_short(&cert->node, whose + strlen(KINDS[i]));
    if (!tw_id_equal(&cert->run, &question->run)) {
        tw_id_short(&cert->run, theirs);
        tw_id_short(&question->run, ours);
        return tw_fail(err, TW_NOT_ADMITTED, "%s is for run %s, this is run %s", whose, theirs,
                       ours);
    }
    if ((cert->may & may) == 0)
        return tw_fail(err, TW_NOT_ADMITTED, "%s does not let it %s", whose,
                       may == TW_CERT_ADMIT ? "admit others" : "train");
    return check_time(cert, whose, question, err);
}

enum tw_status tw_certs_check(const struct tw_certs *certs, const struct tw_cert_question *question,
                              struct tw_error *err) {
    char node[9], other[9];
    tw_id_short(&question->node, node);
    if (certs->count == 0) return tw_fail(err, TW_NOT_ADMITTED, "node %s has no certificate", node);
    const struct tw_cert *own = &certs->certs[0], *last = &certs->certs[certs->count - 1];
    if (!tw_id_equal(&own->node, &question->node)) {
        tw_id_short(&own->node, other);
        return tw_fail(err, TW_NOT_ADMITTED, "node %s shows the certificate of node %s", node,
                       other);
    }
    if (!tw_id_equal(&last->issuer, &question->owner))
        return tw_fail(err, TW_NOT_ADMITTED,
                       "the certificate of node %s does not lead to the owner", node);
    if (certs->count == TW_CERTS_MAX) {
        if (!tw_id_equal(&own->issuer, &last->node) || (own->may & TW_CERT_ADMIT) != 0)
            return tw_fail(err, TW_NOT_ADMITTED,
                           "the two certificates of node %s are no chain from the owner", node);
    }
    for (uint32_t i = 0; i < certs->count; i++) TW_TRY(check_one(certs, i, question, err));
    return TW_OK;
}

uint64_t tw_certs_until(const struct tw_certs *certs) {
    uint64_t until_s = UINT64_MAX;
    for (uint32_t i = 0; i < certs->count; i++) {
        if (certs->certs[i].until_s < until_s) until_s = certs->certs[i].until_s;
    }
    return until_s;
}

bool tw_certs_has_vote(const struct tw_certs *certs) {
    for (uint32_t i = 0; i < certs->count; i++) {
        if ((certs->certs[i].may & TW_CERT_VOTELESS) != 0) return false;
    }
    return certs->count > 0;
}

struct tw_id tw_certs_admitter(const struct tw_certs *certs) {
    const struct tw_id none = {{0}};
    return certs->count < TW_CERTS_MAX ? none : certs->certs[1].node;
}

/* ---- revocations ---------------------------------------------------------------------------- */

enum { REVOKED_AT_COUNT = 4, REVOKED_AT_VERSION = 8, REVOKED_AT_MADE = 16, REVOKED_AT_RUN = 24 };

_Static_assert(REVOKED_AT_RUN + 32 == TW_REVOKED_HEAD_BYTES, "the layout in cert.h");
_Static_assert((int)TW_REVOKED_BYTES_MAX <= (int)TW_CONTROL_BYTES_MAX,
               "a list is one control frame");

static const uint8_t revoked_magic[4] = {'T', 'W', 'R', '1'};
static const char revoked_domain[] = "thinwire-revocation-v1";

_Static_assert(sizeof(revoked_domain) == TW_REVOKED_DOMAIN_BYTES, "with its NUL");

size_t tw_revoked_encode(const struct tw_revoked *list, uint8_t bytes[TW_REVOKED_BYTES_MAX]) {
    TW_ASSERT(list->count <= TW_REVOKED_MAX);
    memcpy(bytes, revoked_magic, sizeof(revoked_magic));
    tw_put_u32(bytes + REVOKED_AT_COUNT, list->count);
    tw_put_u64(bytes + REVOKED_AT_VERSION, list->version);
    tw_put_u64(bytes + REVOKED_AT_MADE, list->made_s);
    memcpy(bytes + REVOKED_AT_RUN, list->run.bytes, 32);
    size_t at = TW_REVOKED_HEAD_BYTES;
    for (uint32_t i = 0; i < list->count; i++, at += 32)
        memcpy(bytes + at, list->nodes[i].bytes, 32);
    memcpy(bytes + at, list->signature, TW_SIGNATURE_BYTES);
    return at + TW_SIGNATURE_BYTES;
}

enum tw_status tw_revoked_decode(const uint8_t *bytes, size_t size, struct tw_revoked *list,
                                 struct tw_error *err) {
    if (size < TW_REVOKED_HEAD_BYTES + TW_SIGNATURE_BYTES || size > TW_REVOKED_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "revocations: %zu bytes", size);
    const uint32_t count = tw_get_u32(bytes + REVOKED_AT_COUNT);
    if (memcmp(bytes, revoked_magic, sizeof(revoked_magic)) != 0)
        return tw_fail(err, TW_PROTO, "revocations: they do not start with TWR1");
    if (count > TW_REVOKED_MAX ||
        size != TW_REVOKED_HEAD_BYTES + (size_t)count * 32 + TW_SIGNATURE_BYTES)
        return tw_fail(err, TW_PROTO, "revocations: %zu bytes for %u ids", size, count);
    if (tw_get_u64(bytes + REVOKED_AT_VERSION) == 0)
        return tw_fail(err, TW_PROTO, "revocations: version 0; they begin with 1");
    for (uint32_t i = 1; i < count; i++) {
        const uint8_t *id = bytes + TW_REVOKED_HEAD_BYTES + (size_t)i * 32;
        if (memcmp(id - 32, id, 32) >= 0)
            return tw_fail(err, TW_PROTO, "revocations: id %u is out of order", i);
    }
    memset(list, 0, sizeof(*list));
    list->version = tw_get_u64(bytes + REVOKED_AT_VERSION);
    list->made_s = tw_get_u64(bytes + REVOKED_AT_MADE);
    list->count = count;
    memcpy(list->run.bytes, bytes + REVOKED_AT_RUN, 32);
    memcpy(list->nodes, bytes + TW_REVOKED_HEAD_BYTES, (size_t)count * 32);
    memcpy(list->signature, bytes + size - TW_SIGNATURE_BYTES, TW_SIGNATURE_BYTES);
    return TW_OK;
}

void tw_revoked_signed(const struct tw_revoked *list, uint8_t text[TW_REVOKED_SIGNED_BYTES]) {
    uint8_t head[TW_REVOKED_HEAD_BYTES];
    memcpy(head, revoked_magic, sizeof(revoked_magic));
    tw_put_u32(head + REVOKED_AT_COUNT, list->count);
    tw_put_u64(head + REVOKED_AT_VERSION, list->version);
    tw_put_u64(head + REVOKED_AT_MADE, list->made_s);
    memcpy(head + REVOKED_AT_RUN, list->run.bytes, 32);
    const struct tw_id digest =
        tw_sha256_pair(head, sizeof(head), list->nodes, (size_t)list->count * 32);
    memcpy(text, revoked_domain, TW_REVOKED_DOMAIN_BYTES);
    memcpy(text + TW_REVOKED_DOMAIN_BYTES, digest.bytes, sizeof(digest.bytes));
}

/* Returns the index of the node, or the index at which to insert it. */
static uint32_t place(const struct tw_revoked *list, const struct tw_id *node) {
    uint32_t low = 0, high = list->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (tw_id_compare(&list->nodes[middle], node) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool tw_revoked_has(const struct tw_revoked *list, const struct tw_id *node) {
    const uint32_t at = place(list, node);
    return at < list->count && tw_id_equal(&list->nodes[at], node);
}

const struct tw_id tw_revoked_pause_entry = {"thinwire-pause-of-the-whole-run"};

bool tw_revoked_is_paused(const struct tw_revoked *list) {
    return tw_revoked_has(list, &tw_revoked_pause_entry);
}

uint32_t tw_revoked_nodes(const struct tw_revoked *list) {
    return list->count - (tw_revoked_is_paused(list) ? 1 : 0);
}

bool tw_revoked_add(struct tw_revoked *list, const struct tw_id *node) {
    const uint32_t at = place(list, node);
    if (tw_revoked_has(list, node) || list->count == TW_REVOKED_MAX) return false;
    memmove(&list->nodes[at + 1], &list->nodes[at], (list->count - at) * sizeof(*node));
    list->nodes[at] = *node;
    list->count++;
    return true;
}

bool tw_revoked_remove(struct tw_revoked *list, const struct tw_id *node) {
    const uint32_t at = place(list, node);
    if (!tw_revoked_has(list, node)) return false;
    list->count--;
    memmove(&list->nodes[at], &list->nodes[at + 1], (list->count - at) * sizeof(*node));
    memset(&list->nodes[list->count], 0, sizeof(*node));
    return true;
}

enum tw_status tw_revoked_check(const struct tw_revoked *list, const struct tw_certs *certs,
                                struct tw_error *err) {
    char node[9], admitter[9];
    for (uint32_t i = 0; i < certs->count; i++) {
        if (!tw_revoked_has(list, &certs->certs[i].node)) continue;
        tw_id_short(&certs->certs[0].node, node);
        tw_id_short(&certs->certs[i].node, admitter);
        if (i == 0)
            return tw_fail(err, TW_REVOKED, "node %s is on list %llu of the revoked", node,
                           (unsigned long long)list->version);
        return tw_fail(err, TW_REVOKED,
                       "node %s was admitted by node %s, which is on list %llu of the revoked",
                       node, admitter, (unsigned long long)list->version);
    }
    return TW_OK;
}

/* ---- recalls -------------------------------------------------------------------------------- */

enum {
    RECALL_AT_ZERO = 4,
    RECALL_AT_VERSION = 8,
    RECALL_AT_MADE = 16,
    RECALL_AT_RUN = 24,
    RECALL_AT_LINEAGE = 56,
    RECALL_AT_ROUNDS = 88
};

_Static_assert(RECALL_AT_ROUNDS + 8 == TW_RECALL_TEXT_BYTES, "the layout in cert.h");

static const uint8_t recall_magic[4] = {'T', 'W', 'B', '1'};
static const char recall_domain[] = "thinwire-recall-v1";

_Static_assert(sizeof(recall_domain) == TW_RECALL_DOMAIN_BYTES, "with its NUL");

void tw_recall_encode(const struct tw_recall *recall, uint8_t bytes[TW_RECALL_BYTES]) {
    memcpy(bytes, recall_magic, sizeof(recall_magic));
    tw_put_u32(bytes + RECALL_AT_ZERO, 0);
    tw_put_u64(bytes + RECALL_AT_VERSION, recall->version);
    tw_put_u64(bytes + RECALL_AT_MADE, recall->made_s);
    memcpy(bytes + RECALL_AT_RUN, recall->run.bytes, 32);
    memcpy(bytes + RECALL_AT_LINEAGE, recall->lineage.bytes, 32);
    tw_put_u64(bytes + RECALL_AT_ROUNDS, recall->rounds);
    memcpy(bytes + TW_RECALL_TEXT_BYTES, recall->signature, TW_SIGNATURE_BYTES);
}

enum tw_status tw_recall_decode(const uint8_t *bytes, size_t size, struct tw_recall *recall,
                                struct tw_error *err) {
    if (size != TW_RECALL_BYTES) return tw_fail(err, TW_PROTO, "recall: %zu bytes", size);
    if (memcmp(bytes, recall_magic, sizeof(recall_magic)) != 0)
        return tw_fail(err, TW_PROTO, "recall: it does not start with TWB1");
    if (tw_get_u32(bytes + RECALL_AT_ZERO) != 0)
        return tw_fail(err, TW_PROTO, "recall: bytes 4 to 7 are not zero");
    if (tw_get_u64(bytes + RECALL_AT_VERSION) == 0)
        return tw_fail(err, TW_PROTO, "recall: version 0; they begin with 1");
    if (tw_get_u64(bytes + RECALL_AT_ROUNDS) == 0)
        return tw_fail(err, TW_PROTO, "recall: to round 0, which no checkpoint holds");
    memset(recall, 0, sizeof(*recall));
    recall->version = tw_get_u64(bytes + RECALL_AT_VERSION);
    recall->made_s = tw_get_u64(bytes + RECALL_AT_MADE);
    recall->rounds = tw_get_u64(bytes + RECALL_AT_ROUNDS);
    memcpy(recall->run.bytes, bytes + RECALL_AT_RUN, 32);
    memcpy(recall->lineage.bytes, bytes + RECALL_AT_LINEAGE, 32);
    memcpy(recall->signature, bytes + TW_RECALL_TEXT_BYTES, TW_SIGNATURE_BYTES);
    return TW_OK;
}

void tw_recall_signed(const struct tw_recall *recall, uint8_t text[TW_RECALL_SIGNED_BYTES]) {
    uint8_t bytes[TW_RECALL_BYTES];
    tw_recall_encode(recall, bytes);
    memcpy(text, recall_domain, TW_RECALL_DOMAIN_BYTES);
    memcpy(text + TW_RECALL_DOMAIN_BYTES, bytes, TW_RECALL_TEXT_BYTES);
}

struct tw_id tw_recall_awaited(const struct tw_recall *recall) {
    uint8_t text[TW_RECALL_SIGNED_BYTES];
    tw_recall_signed(recall, text);
    return tw_sha256(text, sizeof(text));
}

/* ---- text for people ------------------------------------------------------------------------ */

enum { BYTES_PER_LINE = 32 };

size_t tw_armour_encode(const char *title, const uint8_t *bytes, size_t size, char *text) {
    static const char digits[] = "0123456789abcdef";
    const size_t title_size = strlen(title);
    TW_ASSERT(title_size < 38);
    memcpy(text, title, title_size);
    size_t at = title_size;
    for (size_t i = 0; i < size; i++) {
        if (i % BYTES_PER_LINE == 0) text[at++] = '\n';
        text[at++] = digits[bytes[i] >> 4];
        text[at++] = digits[bytes[i] & 15];
    }
    text[at++] = '\n';
    text[at] = '\0';
    return at;
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

enum tw_status tw_armour_decode(const char *title, const char *text, size_t text_size,
                                uint8_t *bytes, size_t capacity, size_t *size_out,
                                struct tw_error *err) {
    const size_t title_size = strlen(title);
    size_t at = 0, digits = 0;
    while (at < text_size && is_space(text[at])) at++;
    if (text_size - at < title_size || memcmp(text + at, title, title_size) != 0)
        return tw_fail(err, TW_CONFIG, "it does not begin with the line `%s`", title);
    at += title_size;
    if (at < text_size && !is_space(text[at]))
        return tw_fail(err, TW_CONFIG, "it does not begin with the line `%s`", title);
    for (; at < text_size; at++) {
        if (is_space(text[at])) continue;
        const int value = digit(text[at]);
        if (value < 0)
            return tw_fail(err, TW_CONFIG,
                           "after the line `%s` come hex digits, and one of them is something "
                           "else: copy it again",
                           title);
        if (digits / 2 == capacity)
            return tw_fail(err, TW_CONFIG, "it is longer than %zu bytes", capacity);
        if (digits % 2 == 0) bytes[digits / 2] = 0;
        bytes[digits / 2] = (uint8_t)(bytes[digits / 2] << 4 | value);
        digits++;
    }
    if (digits % 2 != 0)
        return tw_fail(err, TW_CONFIG, "it ends in the middle of a byte: copy it again");
    *size_out = digits / 2;
    return TW_OK;
}
