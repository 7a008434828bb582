/* Tests of daemon/auth/gate.c and the signatures of identity.c, with an owner, an admitter and two
 * nodes. */
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "tests/test.h"

enum { DAY_S = 86400 };

static uint64_t now_s;
static struct tw_identity owner, admitter, node, other;
static struct tw_id run, owner_key;
static struct tw_gate at_admitter, at_node;
static struct tw_error err;
static char folder[] = "/tmp/thinwire-admission-XXXXXX";

static uint64_t clock_s(void) {
    return now_s;
}

static int group_setup(void **state) {
    struct tw_identity *const all[] = {&owner, &admitter, &node, &other};
    for (unsigned i = 0; i < 4; i++) {
        if (tw_identity_ephemeral(all[i], NULL) != TW_OK) return -1;
    }
    owner_key = tw_public_key(owner.key);
    memset(run.bytes, 0x17, sizeof(run.bytes));
    return mkdtemp(folder) == NULL;
}

static int group_teardown(void **state) {
    struct tw_identity *const all[] = {&owner, &admitter, &node, &other};
    for (unsigned i = 0; i < 4; i++) tw_identity_close(all[i]);
    return rmdir(folder);
}

/* Signs a certificate, as `thinwire owner sign` does. */
static struct tw_certs sign(const struct tw_identity *issuer, const struct tw_id *whom,
                            uint32_t may) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    struct tw_certs certs = {.count = 1};
    certs.certs[0] = (struct tw_cert){.may = may,
                                      .from_s = now_s - 60,
                                      .until_s = now_s + 10 * DAY_S,
                                      .serial = 5,
                                      .run = run,
                                      .node = *whom,
                                      .issuer = tw_public_key(issuer->key)};
    tw_cert_signed(&certs.certs[0], text);
    tw_sign(issuer->key, text, sizeof(text), certs.certs[0].signature);
    return certs;
}

static size_t list_of(const struct tw_identity *issuer, uint64_t version, const struct tw_id *whom,
                      uint8_t *bytes) {
    static struct tw_revoked list;
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    memset(&list, 0, sizeof(list));
    list.version = version;
    list.made_s = now_s;
    list.run = run;
    if (whom != NULL) assert_true(tw_revoked_add(&list, whom));
    tw_revoked_signed(&list, text);
    tw_sign(issuer->key, text, sizeof(text), list.signature);
    return tw_revoked_encode(&list, bytes);
}

static int setup(void **state) {
    now_s = 1800000000;
    tw_gate_init(&at_admitter, &run, &owner_key, &admitter);
    tw_gate_init(&at_node, &run, &owner_key, &node);
    at_admitter.clock_s = at_node.clock_s = clock_s;
    const struct tw_certs certs = sign(&owner, &admitter.id, TW_CERT_TRAIN | TW_CERT_ADMIT);
    return tw_gate_adopt(&at_admitter, &certs, &err) == TW_OK ? 0 : -1;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static void expect(enum tw_status got, enum tw_status wanted, const char *word) {
    if (got != wanted || (got != TW_OK && strstr(err.message, word) == NULL))
        fail_msg("%s: %s", tw_status_name(got), err.message);
}

static enum tw_status admit(const struct tw_gate *by, const struct tw_id *whom, uint64_t life_s,
                            struct tw_certs *certs) {
    const struct tw_gate_admission admission = {.node = *whom, .life_s = life_s};
    return tw_gate_admit(by, &admission, certs, &err);
}

/* Checks at `by` the certificates that `from` sends in its HELLO. */
static enum tw_status meet(const struct tw_gate *from, const struct tw_gate *by) {
    uint8_t bytes[TW_GATE_BYTES_MAX];
    struct tw_certs certs;
    const uint32_t size = tw_gate_encode(from, bytes);
    memset(&err, 0, sizeof(err));
    return tw_gate_check(by, &from->identity->id, bytes, size, &certs, &err);
}

/* ---- signatures ---------------------------------------------------------------------------- */

FACT(signatures_hold_for_their_text_and_key_alone) {
    uint8_t signature[TW_SIGNATURE_BYTES];
    const struct tw_id key = tw_public_key(node.key), no_key = {{0}};
    tw_sign(node.key, "text", 4, signature);
    assert_true(tw_is_signed(&key, "text", 4, signature));
    assert_false(tw_is_signed(&key, "texx", 4, signature));
    assert_false(tw_is_signed(&key, "tex", 3, signature));
    assert_false(tw_is_signed(&owner_key, "text", 4, signature));
    assert_false(tw_is_signed(&no_key, "text", 4, signature));
    for (unsigned i = 0; i < TW_SIGNATURE_BYTES; i++) {
        signature[i] ^= 0x10;
        assert_false(tw_is_signed(&key, "text", 4, signature));
        signature[i] ^= 0x10;
    }
}

/* RFC 8032, section 7.1, test 2. */
FACT(the_known_answer_of_the_standard) {
    static const char KEY[] = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    static const char HALVES[2][65] = {
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da",
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"};
    struct tw_id key, half;
    uint8_t signature[TW_SIGNATURE_BYTES];
    assert_true(tw_id_parse(KEY, &key));
    for (unsigned i = 0; i < 2; i++) {
        assert_true(tw_id_parse(HALVES[i], &half));
        memcpy(signature + (size_t)i * 32, half.bytes, 32);
    }
    assert_true(tw_is_signed(&key, "\x72", 1, signature));
    assert_false(tw_is_signed(&key, "\x73", 1, signature));
}

/* ---- admitting ----------------------------------------------------------------------------- */

FACT(a_node_signed_by_the_owner_comes_in) {
    expect(meet(&at_node, &at_admitter), TW_NOT_ADMITTED, "has no certificate");
    const struct tw_certs certs = sign(&owner, &node.id, TW_CERT_TRAIN);
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    expect(meet(&at_node, &at_admitter), TW_OK, "");
    expect(meet(&at_admitter, &at_node), TW_OK, "");
}

FACT(a_node_signed_by_an_admitter_comes_in) {
    struct tw_certs certs;
    expect(admit(&at_admitter, &node.id, 2 * DAY_S, &certs), TW_OK, "");
    assert_int_equal(certs.count, 2);
    assert_int_equal(certs.certs[0].until_s, now_s + 2 * DAY_S);
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    expect(meet(&at_node, &at_admitter), TW_OK, "");
    /* A granted certificate ends no later than its admitter's own, and lasts no longer than the
     * limit. */
    expect(admit(&at_admitter, &node.id, 365 * DAY_S, &certs), TW_OK, "");
    assert_int_equal(certs.certs[0].until_s, now_s + 10 * DAY_S);
    struct tw_certs longer = sign(&owner, &admitter.id, TW_CERT_TRAIN | TW_CERT_ADMIT);
    longer.certs[0].until_s = now_s + 1000 * DAY_S;
    uint8_t text[TW_CERT_SIGNED_BYTES];
    tw_cert_signed(&longer.certs[0], text);
    tw_sign(owner.key, text, sizeof(text), longer.certs[0].signature);
    expect(tw_gate_adopt(&at_admitter, &longer, &err), TW_OK, "");
    expect(admit(&at_admitter, &node.id, UINT64_MAX, &certs), TW_OK, "");
    assert_int_equal(certs.certs[0].until_s, now_s + TW_GATE_LIFE_S);
}

FACT(only_admitters_admit) {
    struct tw_certs certs, more;
    expect(admit(&at_node, &other.id, DAY_S, &more), TW_NOT_ADMITTED, "has no certificate");
    certs = sign(&owner, &node.id, TW_CERT_TRAIN);
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    expect(admit(&at_node, &other.id, DAY_S, &more), TW_NOT_ADMITTED,
           "does not let it admit others");
    expect(admit(&at_admitter, &node.id, DAY_S, &certs), TW_OK, "");
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    expect(admit(&at_node, &other.id, DAY_S, &more), TW_NOT_ADMITTED, "by another node");
    now_s += 20 * DAY_S;
    expect(admit(&at_admitter, &node.id, DAY_S, &certs), TW_NOT_ADMITTED, "ended at");
}

FACT(an_admitter_without_a_vote_gives_none) {
    struct tw_certs certs;
    expect(admit(&at_admitter, &node.id, DAY_S, &certs), TW_OK, "");
    assert_true(tw_certs_has_vote(&certs));
    const struct tw_gate_admission trainer = {.node = node.id, .life_s = DAY_S, .lacks_vote = true};
    expect(tw_gate_admit(&at_admitter, &trainer, &certs, &err), TW_OK, "");
    assert_int_equal(certs.certs[0].may, TW_CERT_TRAIN | TW_CERT_VOTELESS);
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    expect(meet(&at_node, &at_admitter), TW_OK, "");
    const struct tw_certs voteless =
        sign(&owner, &admitter.id, TW_CERT_TRAIN | TW_CERT_ADMIT | TW_CERT_VOTELESS);
    expect(tw_gate_adopt(&at_admitter, &voteless, &err), TW_OK, "");
    expect(admit(&at_admitter, &node.id, DAY_S, &certs), TW_OK, "");
    assert_int_equal(certs.certs[0].may, TW_CERT_TRAIN | TW_CERT_VOTELESS);
    /* It may leave the restriction out of the certificates that it signs: its own has it. */
    struct tw_certs forged = sign(&admitter, &node.id, TW_CERT_TRAIN);
    forged.count = 2;
    forged.certs[1] = voteless.certs[0];
    at_node.own = forged;
    expect(meet(&at_node, &at_admitter), TW_OK, "");
    assert_false(tw_certs_has_vote(&forged));
}

FACT(forged_certificates_stay_outside) {
    struct tw_certs certs = sign(&other, &node.id, TW_CERT_TRAIN);
    at_node.own = certs; /* an attacker adopts certificates without a check */
    expect(meet(&at_node, &at_admitter), TW_NOT_ADMITTED, "does not lead to the owner");
    at_node.own.certs[0].issuer = owner_key; /* the attacker claims that the owner signed it */
    expect(meet(&at_node, &at_admitter), TW_NOT_ADMITTED, "the signature under");
    expect(tw_gate_adopt(&at_node, &at_node.own, &err), TW_NOT_ADMITTED, "the signature");
    /* One changed bit anywhere makes a valid certificate invalid. */
    const struct tw_certs good = sign(&owner, &node.id, TW_CERT_TRAIN);
    at_node.own = good;
    expect(meet(&at_node, &at_admitter), TW_OK, "");
    at_node.own.certs[0].until_s += DAY_S;
    expect(meet(&at_node, &at_admitter), TW_NOT_ADMITTED, "the signature under");
    at_node.own = good;
    at_node.own.certs[0].may |= TW_CERT_ADMIT;
    expect(meet(&at_node, &at_admitter), TW_NOT_ADMITTED, "the signature under");
    at_node.own = good;
    at_node.own.certs[0].serial++;
    expect(meet(&at_node, &at_admitter), TW_NOT_ADMITTED, "the signature under");
    /* The second certificate of a chain is verified too: the admitter may have forged its right
     * to admit. */
    certs = sign(&other, &node.id, TW_CERT_TRAIN);
    certs.count = 2;
    certs.certs[1] = sign(&other, &other.id, TW_CERT_TRAIN | TW_CERT_ADMIT).certs[0];
    certs.certs[1].issuer = owner_key;
    at_node.own = certs;
    expect(meet(&at_node, &at_admitter), TW_NOT_ADMITTED, "the signature under");
}

FACT(extensions_that_are_none_are_refused) {
    uint8_t bytes[TW_GATE_BYTES_MAX] = {0};
    struct tw_certs certs;
    expect(tw_gate_check(&at_admitter, &node.id, NULL, 0, &certs, &err), TW_NOT_ADMITTED,
           "has no certificate");
    expect(tw_gate_check(&at_admitter, &node.id, bytes, 7, &certs, &err), TW_PROTO, "7 bytes");
    expect(tw_gate_check(&at_admitter, &node.id, bytes, 9, &certs, &err), TW_PROTO, "1 bytes");
    expect(tw_gate_check(&at_admitter, &node.id, bytes, 8 + TW_CERT_BYTES, &certs, &err), TW_PROTO,
           "TWA1");
}

FACT(a_clock_that_is_off_by_a_day_is_named) {
    uint8_t bytes[TW_GATE_BYTES_MAX];
    struct tw_certs certs = sign(&owner, &node.id, TW_CERT_TRAIN);
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    now_s -= DAY_S; /* both clocks are earlier than the certificate */
    expect(meet(&at_node, &at_admitter), TW_BAD_CLOCK, "where it is checked");
    now_s += DAY_S;
    const uint32_t size = tw_gate_encode(&at_node, bytes); /* the sender's clock is right */
    now_s = certs.certs[0].until_s + DAY_S;                /* the checker's clock is wrong */
    expect(tw_gate_check(&at_admitter, &node.id, bytes, size, &certs, &err), TW_BAD_CLOCK,
           "behind");
}

/* ---- revocations --------------------------------------------------------------------------- */

FACT(revoked_nodes_and_nodes_they_admitted_are_out) {
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    struct tw_certs certs;
    expect(admit(&at_admitter, &node.id, DAY_S, &certs), TW_OK, "");
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    expect(tw_gate_review(&at_admitter, &certs, &err), TW_OK, "");
    size_t size = list_of(&owner, 1, &node.id, bytes);
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_OK, "");
    expect(meet(&at_node, &at_admitter), TW_REVOKED, "is on list");
    expect(tw_gate_review(&at_admitter, &certs, &err), TW_REVOKED, "is on list");
    expect(admit(&at_admitter, &node.id, DAY_S, &certs), TW_REVOKED, "is on list");
    /* The next list restores that node and revokes the admitter instead. */
    size = list_of(&owner, 2, &admitter.id, bytes);
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_OK, "");
    expect(tw_gate_revoke(&at_node, bytes, size, &err), TW_OK, "");
    expect(meet(&at_node, &at_node), TW_REVOKED, "was admitted by node");
    expect(meet(&at_admitter, &at_node), TW_REVOKED, "is on list");
    expect(admit(&at_admitter, &other.id, DAY_S, &certs), TW_REVOKED, "is on list");
    const struct tw_certs anew = sign(&owner, &node.id, TW_CERT_TRAIN);
    expect(tw_gate_adopt(&at_node, &anew, &err), TW_OK, "");
    expect(meet(&at_node, &at_node), TW_OK, "");
}

FACT(only_newer_lists_of_the_owner_are_taken) {
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    size_t size = list_of(&other, 9, &node.id, bytes);
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_NOT_ADMITTED, "did not sign");
    assert_int_equal(at_admitter.revoked.version, 0);
    size = list_of(&owner, 5, &node.id, bytes);
    bytes[8]++; /* the version */
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_NOT_ADMITTED, "did not sign");
    bytes[8]--;
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_OK, "");
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_AGAIN, "is here already");
    size = list_of(&owner, 4, NULL, bytes); /* an old list, replayed */
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_AGAIN, "is here already");
    assert_int_equal(at_admitter.revoked.version, 5);
    assert_true(tw_revoked_has(&at_admitter.revoked, &node.id));
    expect(tw_gate_revoke(&at_admitter, bytes, size - 1, &err), TW_PROTO, "bytes");
    run.bytes[0] ^= 1;
    size = list_of(&owner, 6, NULL, bytes);
    run.bytes[0] ^= 1;
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_NOT_ADMITTED,
           "of run 16171717, and this is run 17171717");
}

static void recall_of(const struct tw_identity *issuer, uint64_t version,
                      uint8_t bytes[TW_RECALL_BYTES]) {
    struct tw_recall recall = {.version = version, .made_s = now_s, .run = run, .rounds = 7};
    uint8_t text[TW_RECALL_SIGNED_BYTES];
    tw_recall_signed(&recall, text);
    tw_sign(issuer->key, text, sizeof(text), recall.signature);
    tw_recall_encode(&recall, bytes);
}

FACT(only_newer_recalls_of_the_owner_are_taken) {
    uint8_t bytes[TW_RECALL_BYTES];
    recall_of(&other, 9, bytes);
    expect(tw_gate_recall(&at_node, bytes, sizeof(bytes), &err), TW_NOT_ADMITTED, "did not sign");
    assert_int_equal(at_node.recall.version, 0);
    recall_of(&owner, 5, bytes);
    bytes[8]++; /* the version */
    expect(tw_gate_recall(&at_node, bytes, sizeof(bytes), &err), TW_NOT_ADMITTED, "did not sign");
    bytes[8]--;
    expect(tw_gate_recall(&at_node, bytes, sizeof(bytes), &err), TW_OK, "");
    expect(tw_gate_recall(&at_node, bytes, sizeof(bytes), &err), TW_AGAIN, "is here already");
    recall_of(&owner, 4, bytes); /* an old recall, replayed */
    expect(tw_gate_recall(&at_node, bytes, sizeof(bytes), &err), TW_AGAIN, "is here already");
    assert_int_equal(at_node.recall.version, 5);
    expect(tw_gate_recall(&at_node, bytes, sizeof(bytes) - 1, &err), TW_PROTO, "bytes");
    run.bytes[0] ^= 1;
    recall_of(&owner, 6, bytes);
    run.bytes[0] ^= 1;
    expect(tw_gate_recall(&at_node, bytes, sizeof(bytes), &err), TW_NOT_ADMITTED,
           "of run 16171717, and this is run 17171717");
}

FACT(links_end_with_their_certificates) {
    const struct tw_certs certs = sign(&owner, &node.id, TW_CERT_TRAIN);
    now_s = certs.certs[0].until_s + TW_CERT_SLACK_S;
    expect(tw_gate_review(&at_admitter, &certs, &err), TW_OK, "");
    now_s++;
    expect(tw_gate_review(&at_admitter, &certs, &err), TW_NOT_ADMITTED, "ended at");
    /* At the start a node may adopt its own expired certificate, because a renewed one will
     * follow. */
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
}

/* ---- renewing ------------------------------------------------------------------------------ */

FACT(certificates_of_admitters_are_renewed_in_time) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    struct tw_certs certs, fresh;
    assert_false(tw_gate_is_due(&at_node)); /* the node has no certificate */
    expect(admit(&at_admitter, &node.id, 3 * DAY_S, &certs), TW_OK, "");
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    assert_false(tw_gate_is_due(&at_node));
    expect(tw_gate_renew(&at_admitter, &certs, &fresh, &err), TW_AGAIN, "half of its life");
    now_s += 2 * DAY_S - TW_CERT_SLACK_S;
    assert_false(tw_gate_is_due(&at_node));
    now_s += TW_CERT_SLACK_S;
    assert_true(tw_gate_is_due(&at_node));
    expect(tw_gate_renew(&at_admitter, &certs, &fresh, &err), TW_OK, "");
    const size_t size = tw_certs_encode(&fresh, bytes);
    expect(tw_gate_take(&at_node, bytes, size, &err), TW_OK, "");
    assert_true(at_node.own.certs[0].until_s >= now_s + 3 * DAY_S);
    assert_false(tw_gate_is_due(&at_node));
    expect(meet(&at_node, &at_admitter), TW_OK, "");
    expect(tw_gate_take(&at_node, bytes, size, &err), TW_AGAIN, "lasts as long");
    /* The certificate expired long ago, and the node still asks for a new one. */
    now_s += 100 * DAY_S;
    assert_true(tw_gate_is_due(&at_node));
}

FACT(only_the_owner_renews_its_certificates) {
    struct tw_certs certs = sign(&owner, &node.id, TW_CERT_TRAIN), fresh;
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    now_s = certs.certs[0].until_s - 60;
    assert_false(tw_gate_is_due(&at_node));
    expect(tw_gate_renew(&at_admitter, &certs, &fresh, &err), TW_NOT_ADMITTED, "the owner signed");
    assert_false(tw_gate_is_admitter(&certs));
    assert_true(tw_gate_is_admitter(&at_admitter.own));
}

FACT(only_good_certificates_replace_ones_own) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    const struct tw_certs certs = sign(&owner, &node.id, TW_CERT_TRAIN);
    struct tw_certs bad = certs;
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    bad.certs[0].until_s += DAY_S;
    expect(tw_gate_take(&at_node, bytes, tw_certs_encode(&bad, bytes), &err), TW_NOT_ADMITTED,
           "the signature");
    now_s += DAY_S;
    bad = sign(&owner, &other.id, TW_CERT_TRAIN);
    expect(tw_gate_take(&at_node, bytes, tw_certs_encode(&bad, bytes), &err), TW_NOT_ADMITTED,
           "shows the certificate");
    bad = sign(&owner, &node.id, TW_CERT_ADMIT);
    expect(tw_gate_take(&at_node, bytes, tw_certs_encode(&bad, bytes), &err), TW_NOT_ADMITTED,
           "does not let it train");
    expect(tw_gate_take(&at_node, bytes, 1, &err), TW_PROTO, "1 bytes");
    assert_memory_equal(&at_node.own, &certs, sizeof(certs));
}

/* Makes the node's certificate due for a renewal, and renews it at the admitter. */
static enum tw_status renew(bool lacks_vote, struct tw_certs *fresh) {
    const struct tw_gate_admission admission = {
        .node = node.id, .life_s = 3 * DAY_S, .lacks_vote = lacks_vote};
    expect(tw_gate_admit(&at_admitter, &admission, &at_node.own, &err), TW_OK, "");
    now_s += 5 * DAY_S / 2;
    assert_true(tw_gate_is_due(&at_node));
    return tw_gate_renew(&at_admitter, &at_node.own, fresh, &err);
}

FACT(a_renewal_neither_gives_nor_takes_the_vote) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    struct tw_certs fresh, other_right;
    for (unsigned lacks_vote = 0; lacks_vote < 2; lacks_vote++) {
        expect(renew(lacks_vote, &fresh), TW_OK, "");
        assert_int_equal(tw_certs_has_vote(&fresh), !lacks_vote);
        const struct tw_gate_admission wrong = {
            .node = node.id, .life_s = 9 * DAY_S, .lacks_vote = !lacks_vote};
        expect(tw_gate_admit(&at_admitter, &wrong, &other_right, &err), TW_OK, "");
        size_t size = tw_certs_encode(&other_right, bytes);
        expect(tw_gate_take(&at_node, bytes, size, &err), TW_NOT_ADMITTED, "the right to vote");
        size = tw_certs_encode(&fresh, bytes);
        expect(tw_gate_take(&at_node, bytes, size, &err), TW_OK, "");
        assert_int_equal(tw_certs_has_vote(&at_node.own), !lacks_vote);
        (void)setup(NULL);
    }
    /* The admitter loses its vote: it renews only certificates that give none. */
    expect(renew(false, &fresh), TW_OK, "");
    const struct tw_certs voteless =
        sign(&owner, &admitter.id, TW_CERT_TRAIN | TW_CERT_ADMIT | TW_CERT_VOTELESS);
    assert_true(tw_gate_is_renewer(&at_node, &at_admitter.own));
    assert_false(tw_gate_is_renewer(&at_node, &voteless));
    expect(tw_gate_adopt(&at_admitter, &voteless, &err), TW_OK, "");
    expect(tw_gate_renew(&at_admitter, &at_node.own, &fresh, &err), TW_NOT_ADMITTED, "has no vote");
    expect(renew(true, &fresh), TW_OK, "");
    assert_false(tw_certs_has_vote(&fresh));
    assert_true(tw_gate_is_renewer(&at_node, &voteless));
}

FACT(a_certificate_near_its_end_is_late) {
    /* valid for ten days and a minute */
    struct tw_certs certs = sign(&owner, &node.id, TW_CERT_TRAIN);
    assert_false(tw_gate_is_late(&at_node));
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    assert_false(tw_gate_is_late(&at_node));
    now_s = certs.certs[0].until_s - 4 * DAY_S;
    assert_false(tw_gate_is_late(&at_node));
    now_s = certs.certs[0].until_s - 3 * DAY_S;
    assert_true(tw_gate_is_late(&at_node));
    now_s = certs.certs[0].until_s + DAY_S;
    assert_true(tw_gate_is_late(&at_node));
    (void)setup(NULL);
    expect(admit(&at_admitter, &node.id, 3 * DAY_S, &certs), TW_OK, "");
    expect(tw_gate_adopt(&at_node, &certs, &err), TW_OK, "");
    now_s = certs.certs[0].until_s - DAY_S; /* the usual time of renewal */
    assert_true(tw_gate_is_due(&at_node));
    assert_false(tw_gate_is_late(&at_node));
    now_s = certs.certs[0].until_s - DAY_S / 2;
    assert_true(tw_gate_is_late(&at_node));
}

/* ---- files --------------------------------------------------------------------------------- */

static void path_of(const char *name, char path[128]) {
    (void)snprintf(path, 128, "%s/%s", folder, name);
}

FACT(files_read_back) {
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    static struct tw_revoked back;
    char path[128];
    struct tw_certs certs, certs_back;
    expect(admit(&at_admitter, &node.id, DAY_S, &certs), TW_OK, "");
    path_of(TW_CERT_FILE, path);
    expect(tw_certs_load(path, &certs_back, &err), TW_IO, TW_CERT_FILE);
    for (unsigned i = 0; i < 2; i++) { /* the second replaces the first */
        expect(tw_certs_save(folder, TW_CERT_FILE, &certs, &err), TW_OK, "");
        expect(tw_certs_load(path, &certs_back, &err), TW_OK, "");
        assert_memory_equal(&certs, &certs_back, sizeof(certs));
        certs.certs[0].serial++;
    }
    expect(tw_revoked_load(path, &back, &err), TW_CONFIG, "thinwire-revocations 1");
    assert_int_equal(unlink(path), 0);
    path_of(TW_REVOKED_FILE, path);
    const size_t size = list_of(&owner, 3, &node.id, bytes);
    expect(tw_gate_revoke(&at_admitter, bytes, size, &err), TW_OK, "");
    expect(tw_revoked_save(folder, TW_REVOKED_FILE, &at_admitter.revoked, &err), TW_OK, "");
    expect(tw_revoked_load(path, &back, &err), TW_OK, "");
    assert_memory_equal(&back, &at_admitter.revoked, sizeof(back));
    expect(tw_certs_load(path, &certs_back, &err), TW_CONFIG, "thinwire-certificate 1");
    assert_int_equal(unlink(path), 0);
    expect(tw_certs_save("/nowhere", TW_CERT_FILE, &certs, &err), TW_IO, "/nowhere");
}

/* A renewal, or a revocation list of a peer, finds a file that a person imported in the
 * meantime. */
FACT(imported_files_are_not_overwritten) {
    static struct tw_revoked back, list;
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    char path[128];
    struct tw_certs old, renewed, imported, certs_back;
    expect(admit(&at_admitter, &node.id, DAY_S, &old), TW_OK, "");
    now_s += DAY_S / 2;
    expect(admit(&at_admitter, &node.id, DAY_S, &renewed), TW_OK, "");
    imported = sign(&owner, &node.id, TW_CERT_TRAIN | TW_CERT_ADMIT);
    path_of(TW_CERT_FILE, path);
    expect(tw_certs_save_renewed(folder, &old, &old, &err), TW_OK, ""); /* there was no file */
    expect(tw_certs_save_renewed(folder, &old, &renewed, &err), TW_OK, "");
    expect(tw_certs_load(path, &certs_back, &err), TW_OK, "");
    assert_memory_equal(&certs_back, &renewed, sizeof(renewed));
    expect(tw_certs_save(folder, TW_CERT_FILE, &imported, &err), TW_OK, "");
    expect(tw_certs_save_renewed(folder, &old, &renewed, &err), TW_AGAIN, "replaced meanwhile");
    expect(tw_certs_load(path, &certs_back, &err), TW_OK, "");
    assert_memory_equal(&certs_back, &imported, sizeof(imported));
    assert_int_equal(unlink(path), 0);
    path_of(TW_REVOKED_FILE, path);
    for (uint64_t version = 3; version > 0; version--) {
        const size_t size = list_of(&owner, version, &other.id, bytes);
        expect(tw_revoked_decode(bytes, size, &list, &err), TW_OK, "");
        if (version == 3) expect(tw_revoked_save_newer(folder, &list, &err), TW_OK, "");
        expect(tw_revoked_save_newer(folder, &list, &err), TW_AGAIN, "list 3 is here already");
        expect(tw_revoked_load(path, &back, &err), TW_OK, "");
        assert_int_equal(back.version, 3);
    }
    list.version = 4;
    expect(tw_revoked_save_newer(folder, &list, &err), TW_OK, "");
    memset(&list.run, 1, sizeof(list.run)); /* the list of another run does not apply to this run */
    list.version = 1;
    expect(tw_revoked_save_newer(folder, &list, &err), TW_OK, "");
    assert_int_equal(unlink(path), 0);
    expect(tw_certs_save_renewed("/nowhere", &old, &renewed, &err), TW_IO, "/nowhere");
    expect(tw_revoked_save_newer("/nowhere", &list, &err), TW_IO, "/nowhere");
}

/* The newest recall stays in the file across restarts; an older one does not replace it. */
FACT(newest_recall_is_kept_on_disk) {
    uint8_t bytes[TW_RECALL_BYTES];
    struct tw_recall back;
    char path[128];
    path_of(TW_RECALL_FILE, path);
    recall_of(&owner, 5, bytes);
    expect(tw_gate_recall(&at_admitter, bytes, sizeof(bytes), &err), TW_OK, "");
    expect(tw_recall_save_newer(folder, &at_admitter.recall, &err), TW_OK, "");
    expect(tw_recall_save_newer(folder, &at_admitter.recall, &err), TW_AGAIN, "is here already");
    struct tw_recall older = at_admitter.recall;
    older.version = 4;
    expect(tw_recall_save_newer(folder, &older, &err), TW_AGAIN, "is here already");
    expect(tw_recall_load(path, &back, &err), TW_OK, "");
    assert_memory_equal(&back, &at_admitter.recall, sizeof(back));
    expect(tw_gate_load(&at_node, folder, &err), TW_NOT_ADMITTED, TW_CERT_FILE);
    assert_int_equal(at_node.recall.version, 5);
    recall_of(&other, 6, bytes); /* not signed by the owner */
    expect(tw_recall_decode(bytes, sizeof(bytes), &back, &err), TW_OK, "");
    expect(tw_recall_save(folder, TW_RECALL_FILE, &back, &err), TW_OK, "");
    expect(tw_gate_load(&at_node, folder, &err), TW_NOT_ADMITTED, "move run.recall away");
    assert_int_equal(unlink(path), 0);
    expect(tw_recall_save_newer("/nowhere", &back, &err), TW_IO, "/nowhere");
}

FACT(a_file_that_is_too_large_is_named) {
    char path[128];
    struct tw_certs certs;
    path_of("large", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned i = 0; i < 100000; i++) (void)fputs("\n", file);
    assert_int_equal(fclose(file), 0);
    expect(tw_certs_load(path, &certs, &err), TW_CONFIG, "too large");
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    return test_run(group_setup, group_teardown);
}
