/* Tests of proto/cert.c. Signatures are checked in daemon/; here they are arbitrary bytes. */
#include "tests/test.h"

#include "base/hash.h"
#include "proto/cert.h"

enum { NOW_S = 1800000000, DAY_S = 86400 };

static struct tw_error err;

/* 32 times the same byte. */
static struct tw_id id(uint8_t byte) {
    struct tw_id made;
    memset(made.bytes, byte, sizeof(made.bytes));
    return made;
}

static const uint8_t OWNER = 1, RUN = 2, NODE = 3, ADMITTER_KEY = 4;

/* Returns a certificate chain: signed by the owner, or, with `is_admitted`, by a node that the
 * owner lets admit others. */
static struct tw_certs sample(bool is_admitted) {
    struct tw_certs certs;
    memset(&certs, 0, sizeof(certs));
    certs.count = is_admitted ? 2 : 1;
    certs.certs[0] = (struct tw_cert){.may = TW_CERT_TRAIN,
                                      .from_s = NOW_S - DAY_S,
                                      .until_s = NOW_S + DAY_S,
                                      .serial = 7,
                                      .run = id(RUN),
                                      .node = id(NODE),
                                      .issuer = id(is_admitted ? ADMITTER_KEY : OWNER)};
    memset(certs.certs[0].signature, 0x5A, TW_SIGNATURE_BYTES);
    if (!is_admitted) return certs;
    certs.certs[1] = certs.certs[0];
    certs.certs[1].may = TW_CERT_TRAIN | TW_CERT_ADMIT;
    certs.certs[1].until_s = NOW_S + 30 * DAY_S;
    certs.certs[1].node = id(ADMITTER_KEY);
    certs.certs[1].issuer = id(OWNER);
    return certs;
}

static struct tw_cert_question question(void) {
    return (struct tw_cert_question){.owner = id(OWNER),
                                     .run = id(RUN),
                                     .node = id(NODE),
                                     .may = TW_CERT_TRAIN,
                                     .now_s = NOW_S,
                                     .their_now_s = NOW_S};
}

static void expect(const struct tw_certs *certs, const struct tw_cert_question *asked,
                   enum tw_status status, const char *word) {
    memset(&err, 0, sizeof(err));
    assert_int_equal(tw_certs_check(certs, asked, &err), status);
    if (status != TW_OK && strstr(err.message, word) == NULL)
        fail_msg("no '%s' in: %s", word, err.message);
    assert_true(strlen(err.message) < 120); /* short enough to be part of a sentence */
}

TEST(chains_of_one_and_two_are_admitted) {
    for (unsigned is_admitted = 0; is_admitted < 2; is_admitted++) {
        const struct tw_certs certs = sample(is_admitted);
        const struct tw_cert_question asked = question();
        expect(&certs, &asked, TW_OK, "");
    }
}

TEST(a_node_without_its_own_certificate_is_not_admitted) {
    struct tw_certs certs = {.count = 0};
    struct tw_cert_question asked = question();
    expect(&certs, &asked, TW_NOT_ADMITTED, "node 03030303 has no certificate");
    certs = sample(false);
    asked.node = id(9);
    expect(&certs, &asked, TW_NOT_ADMITTED, "shows the certificate of node");
    asked = question();
    asked.run = id(9);
    expect(&certs, &asked, TW_NOT_ADMITTED,
           "of node 03030303 is for run 02020202, this is run 09090909");
    certs = sample(true);
    certs.certs[1].run = id(8);
    asked = question();
    expect(&certs, &asked, TW_NOT_ADMITTED, "is for run 08080808");
}

TEST(a_chain_leads_to_the_owner) {
    const struct tw_cert_question asked = question();
    struct tw_certs certs = sample(false);
    certs.certs[0].issuer = id(9);
    expect(&certs, &asked, TW_NOT_ADMITTED, "does not lead to the owner");
    certs = sample(true);
    certs.count = 1; /* signed by a node, without that node's certificate */
    expect(&certs, &asked, TW_NOT_ADMITTED, "does not lead to the owner");
    certs = sample(true);
    certs.certs[1].issuer = id(9);
    expect(&certs, &asked, TW_NOT_ADMITTED, "does not lead to the owner");
    certs = sample(true);
    certs.certs[1].node = id(9); /* not the node that signed the first */
    expect(&certs, &asked, TW_NOT_ADMITTED, "are no chain");
    certs = sample(true);
    certs.certs[0].issuer = id(OWNER); /* the second is then not part of the chain */
    expect(&certs, &asked, TW_NOT_ADMITTED, "are no chain");
}

TEST(only_the_owner_lets_nodes_admit) {
    const struct tw_cert_question asked = question();
    struct tw_certs certs = sample(true);
    certs.certs[0].may |= TW_CERT_ADMIT;
    expect(&certs, &asked, TW_NOT_ADMITTED, "are no chain from the owner");
    certs = sample(true);
    certs.certs[1].may = TW_CERT_TRAIN;
    expect(&certs, &asked, TW_NOT_ADMITTED, "does not let it admit others");
    certs = sample(false);
    certs.certs[0].may = TW_CERT_ADMIT; /* a key that may sign, but is no training node */
    expect(&certs, &asked, TW_NOT_ADMITTED, "does not let it train");
    struct tw_cert_question admits = asked;
    admits.may = TW_CERT_ADMIT;
    expect(&certs, &admits, TW_OK, "");
}

TEST(time_decides_with_slack) {
    struct tw_cert_question asked = question();
    struct tw_certs certs = sample(false);
    asked.now_s = asked.their_now_s = certs.certs[0].until_s + TW_CERT_SLACK_S;
    expect(&certs, &asked, TW_OK, "");
    asked.now_s = ++asked.their_now_s;
    expect(&certs, &asked, TW_NOT_ADMITTED, "of node 03030303 ended at 2027-01-16 08:00 UTC");
    certs = sample(true);
    certs.certs[0].until_s = NOW_S + 60 * DAY_S;
    asked.now_s = asked.their_now_s = certs.certs[1].until_s + DAY_S;
    expect(&certs, &asked, TW_NOT_ADMITTED, "that of its admitter");
    certs.certs[0].until_s = UINT64_MAX; /* no overflow */
    certs.certs[1].until_s = UINT64_MAX;
    asked.now_s = UINT64_MAX;
    expect(&certs, &asked, TW_OK, "");
}

TEST(a_wrong_clock_has_its_own_cause) {
    const struct tw_certs certs = sample(false);
    struct tw_cert_question asked = question();
    asked.now_s = certs.certs[0].from_s - TW_CERT_SLACK_S; /* a little behind */
    expect(&certs, &asked, TW_OK, "");
    asked.now_s--;
    expect(&certs, &asked, TW_BAD_CLOCK,
           "begins at 2027-01-14 08:00 UTC, where it is checked it is");
    asked.now_s = certs.certs[0].until_s + DAY_S; /* two days ahead of the other clock */
    asked.their_now_s = certs.certs[0].until_s - DAY_S;
    expect(&certs, &asked, TW_BAD_CLOCK, "the other is 2 d");
    asked.their_now_s = 0; /* not reported */
    expect(&certs, &asked, TW_NOT_ADMITTED, "ended at");
}

TEST(a_chain_names_its_end_and_its_admitter) {
    const struct tw_certs direct = sample(false), admitted = sample(true);
    const struct tw_id none = tw_certs_admitter(&direct), some = tw_certs_admitter(&admitted);
    assert_true(tw_id_is_zero(&none));
    assert_true(tw_id_equal(&some, &admitted.certs[1].node));
    assert_int_equal(tw_certs_until(&direct), NOW_S + DAY_S);
    assert_int_equal(tw_certs_until(&admitted), NOW_S + DAY_S);
}

TEST(one_restriction_in_the_chain_takes_the_vote) {
    const struct tw_cert_question asked = question();
    const struct tw_certs none = {.count = 0};
    assert_false(tw_certs_has_vote(&none));
    for (uint32_t is_admitted = 0; is_admitted < 2; is_admitted++) {
        struct tw_certs certs = sample(is_admitted);
        assert_true(tw_certs_has_vote(&certs));
        for (uint32_t i = 0; i < certs.count; i++) {
            certs = sample(is_admitted);
            certs.certs[i].may |= TW_CERT_VOTELESS;
            assert_false(tw_certs_has_vote(&certs));
            expect(&certs, &asked, TW_OK, ""); /* it may train */
        }
    }
    struct tw_certs admits = sample(false);
    struct tw_cert_question wants_admit = asked;
    wants_admit.may = TW_CERT_ADMIT;
    admits.certs[0].may = TW_CERT_TRAIN | TW_CERT_VOTELESS;
    expect(&admits, &wants_admit, TW_NOT_ADMITTED, "does not let it admit others");
    admits.certs[0].may |= TW_CERT_ADMIT;
    expect(&admits, &wants_admit, TW_OK, "");
}

/* ---- bytes --------------------------------------------------------------------------------- */

TEST(every_set_of_rights_reads_back) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    for (uint32_t may = 0; may < 16; may++) {
        struct tw_certs certs = sample(false), back = {.count = 0};
        certs.certs[0].may = may;
        const size_t size = tw_certs_encode(&certs, bytes);
        const enum tw_status status = tw_certs_decode(bytes, size, &back, &err);
        /* the restriction alone gives no right */
        assert_int_equal(status, may == 0 || may == 4 || may > 7 ? TW_PROTO : TW_OK);
        if (status == TW_OK) assert_int_equal(back.certs[0].may, may);
    }
}

TEST(bytes_read_back) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    for (unsigned is_admitted = 0; is_admitted < 2; is_admitted++) {
        const struct tw_certs certs = sample(is_admitted);
        struct tw_certs back;
        memset(&back, 0, sizeof(back));
        const size_t size = tw_certs_encode(&certs, bytes);
        assert_int_equal(size, (is_admitted + 1) * TW_CERT_BYTES);
        assert_int_equal(tw_certs_decode(bytes, size, &back, &err), TW_OK);
        assert_memory_equal(&certs, &back, sizeof(certs));
    }
}

static void decode_refuses(const uint8_t *bytes, size_t size, const char *word) {
    struct tw_certs back;
    memset(&err, 0, sizeof(err));
    assert_int_equal(tw_certs_decode(bytes, size, &back, &err), TW_PROTO);
    if (strstr(err.message, word) == NULL) fail_msg("no '%s' in: %s", word, err.message);
}

TEST(malformed_bytes_are_refused) {
    uint8_t bytes[3 * TW_CERT_BYTES] = {0};
    const struct tw_certs certs = sample(true);
    const size_t size = tw_certs_encode(&certs, bytes);
    decode_refuses(bytes, 0, "0 bytes");
    decode_refuses(bytes, size - 1, "383 bytes");
    decode_refuses(bytes, sizeof(bytes), "at most 2");
    static const struct {
        uint32_t at;
        uint8_t value;
        const char *word;
    } CASES[] = {{0, 'X', "TWA1"},
                 {4, 0, "unknown rights 0x0"},
                 {4, 4, "unknown rights 0x4"},
                 {4, 9, "unknown rights 0x9"},
                 {7, 1, "unknown rights"},
                 {TW_CERT_BYTES, 'X', "TWA1"},
                 {23, 0xFF, NULL}, /* until: a very late time is valid */
                 {15, 0xFF, "ends before it begins"}};
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        uint8_t bad[sizeof(bytes)];
        struct tw_certs back;
        memcpy(bad, bytes, sizeof(bytes));
        bad[CASES[i].at] = CASES[i].value;
        if (CASES[i].word != NULL) {
            decode_refuses(bad, size, CASES[i].word);
        } else {
            assert_int_equal(tw_certs_decode(bad, size, &back, &err), TW_OK);
        }
    }
}

/* The signature covers every byte except its own. */
TEST(every_field_is_signed) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES], text[TW_CERT_SIGNED_BYTES];
    const struct tw_certs certs = sample(false);
    (void)tw_certs_encode(&certs, bytes);
    tw_cert_signed(&certs.certs[0], text);
    assert_memory_equal(text, "thinwire-admission-v1", TW_CERT_DOMAIN_BYTES);
    assert_memory_equal(text + TW_CERT_DOMAIN_BYTES, bytes, TW_CERT_BYTES - TW_SIGNATURE_BYTES);
    assert_int_equal(TW_CERT_SIGNED_BYTES, 22 + 128);
}
