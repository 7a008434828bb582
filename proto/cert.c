#include "proto/cert.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/units.h"

enum {
    AT_MAY = 4,
    AT_FROM = 8,
    AT_UNTIL = 16,
    AT_SERIAL = 24,
    AT_RUN = 32,
    AT_NODE = 64,
    AT_ISSUER = 96,
    AT_SIGNATURE = 128,
};

_Static_assert(AT_SIGNATURE + TW_SIGNATURE_BYTES == TW_CERT_BYTES, "the layout of cert.h");

static const uint8_t magic[4] = {'T', 'W', 'A', '1'};
static const char signed_domain[] = "thinwire-admission-v1";

_Static_assert(sizeof(signed_domain) == TW_CERT_DOMAIN_BYTES, "with its NUL");

/* ---- bytes --------------------------------------------------------------------------------- */

static void encode(const struct tw_cert *cert, uint8_t bytes[TW_CERT_BYTES]) {
    memcpy(bytes, magic, sizeof(magic));
    tw_put_u32(bytes + AT_MAY, cert->may);
    tw_put_u64(bytes + AT_FROM, cert->from_s);
    tw_put_u64(bytes + AT_UNTIL, cert->until_s);
    tw_put_u64(bytes + AT_SERIAL, cert->serial);
    memcpy(bytes + AT_RUN, cert->run.bytes, 32);
    memcpy(bytes + AT_NODE, cert->node.bytes, 32);
    memcpy(bytes + AT_ISSUER, cert->issuer.bytes, 32);
    memcpy(bytes + AT_SIGNATURE, cert->signature, TW_SIGNATURE_BYTES);
}

void tw_cert_signed(const struct tw_cert *cert, uint8_t text[TW_CERT_SIGNED_BYTES]) {
    uint8_t bytes[TW_CERT_BYTES];
    encode(cert, bytes);
    memcpy(text, signed_domain, TW_CERT_DOMAIN_BYTES);
    memcpy(text + TW_CERT_DOMAIN_BYTES, bytes, AT_SIGNATURE);
}

size_t tw_certs_encode(const struct tw_certs *certs, uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES]) {
    TW_ASSERT(certs->count <= TW_CERTS_MAX);
    for (uint32_t i = 0; i < certs->count; i++) {
        encode(&certs->certs[i], bytes + (size_t)i * TW_CERT_BYTES);
    }
    return (size_t)certs->count * TW_CERT_BYTES;
}

static enum tw_status decode(const uint8_t bytes[TW_CERT_BYTES], struct tw_cert *cert,
                             struct tw_error *err) {
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return tw_fail(err, TW_PROTO, "certificate: it does not start with TWA1");
    *cert = (struct tw_cert){
        .may = tw_get_u32(bytes + AT_MAY),
        .from_s = tw_get_u64(bytes + AT_FROM),
        .until_s = tw_get_u64(bytes + AT_UNTIL),
        .serial = tw_get_u64(bytes + AT_SERIAL),
    };
    const uint32_t rights = TW_CERT_TRAIN | TW_CERT_ADMIT;
    if ((cert->may & rights) == 0 || cert->may > (rights | TW_CERT_VOTELESS))
        return tw_fail(err, TW_PROTO, "certificate: unknown rights 0x%x", cert->may);
    if (cert->from_s >= cert->until_s)
        return tw_fail(err, TW_PROTO, "certificate: it ends before it begins");
    memcpy(cert->run.bytes, bytes + AT_RUN, 32);
    memcpy(cert->node.bytes, bytes + AT_NODE, 32);
    memcpy(cert->issuer.bytes, bytes + AT_ISSUER, 32);
    memcpy(cert->signature, bytes + AT_SIGNATURE, TW_SIGNATURE_BYTES);
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
        TW_TRY(decode(bytes + (size_t)i * TW_CERT_BYTES, &read.certs[i], err));
    }
    *certs = read;
    return TW_OK;
}

/* ---- checks -------------------------------------------------------------------------------- */

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
