/* Tests of daemon/net/handshake.c: two ends in memory. */
#include "base/bytes.h"
#include "daemon/net/handshake.h"
#include "tests/test.h"

static const struct tw_secret secret = {{1, 2, 3}};
static const struct tw_secrets secrets = {.count = 1, .list = {{{1, 2, 3}}}};
static const struct tw_secrets none;
static const uint8_t ekm[TW_TLS_EXPORT_BYTES] = {9, 9, 9};
static struct tw_hello theirs, ours;

static int setup(void **state) {
    ours = (struct tw_hello){.version_min = 1, .version_max = 1, .boot = 3};
    memset(ours.run.bytes, 0x11, 32);
    memset(ours.id.bytes, 0x22, 32);
    theirs = ours;
    memset(theirs.id.bytes, 0x33, 32);
    theirs.addrs_count = 2;
    (void)snprintf(theirs.addrs[0], TW_ADDR_BYTES, "a.example:4300");
    (void)snprintf(theirs.addrs[1], TW_ADDR_BYTES, "[2001:db8::1]:4300");
    tw_extensions_add(&theirs.extensions, TW_EXTENSION_FEATURES, "\x05\0\0\0\0\0\0\x80", 8);
    tw_extensions_add(&theirs.extensions, TW_EXTENSION_SOFTWARE, "thinwire 9", 10);
    tw_extensions_add(&theirs.extensions, 0x4242, "of a later day", 14);
    tw_hello_prove(&theirs, &secret, ekm);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static enum tw_status check_with(const struct tw_hello *hello, const struct tw_secrets *ours_are,
                                 struct tw_error *err) {
    uint32_t which = 0;
    const enum tw_status status = tw_hello_check(hello, &ours, &theirs.id, err);
    if (status != TW_OK) return status;
    return tw_hello_check_proof(hello, &ours, ours_are, ekm, &which, err);
}

static enum tw_status check(struct tw_error *err) {
    return check_with(&theirs, &secrets, err);
}

FACT(hello_survives_the_wire) {
    uint8_t body[TW_HELLO_BYTES_MAX];
    struct tw_hello back;
    const uint32_t size = tw_hello_encode(&theirs, body);
    assert_int_equal(size, 132 + 1 + 14 + 1 + 18 + 4 + 12 + 14 + 18);
    assert_int_equal(tw_hello_decode(body, size, &back, NULL), TW_OK);
    assert_memory_equal(&back, &theirs, sizeof(back));
    assert_int_equal(check(NULL), TW_OK);
}

/* Compares the layout of HELLO with PROTOCOL.md section 3, byte by byte. */
FACT(hello_has_the_documented_layout) {
    uint8_t body[TW_HELLO_BYTES_MAX];
    theirs.version_max = 2;
    theirs.role = TW_ROLE_BULK;
    memset(theirs.link_tag, 0x44, sizeof(theirs.link_tag));
    memset(theirs.proof, 0x55, sizeof(theirs.proof));
    (void)tw_hello_encode(&theirs, body);
    assert_int_equal(tw_get_u32(body), 1);
    assert_int_equal(tw_get_u32(body + 4), 2);
    assert_int_equal(tw_get_u32(body + 8), 1);
    assert_int_equal(tw_get_u32(body + 12), 3);
    assert_memory_equal(body + 16, theirs.run.bytes, 32);
    assert_memory_equal(body + 48, theirs.id.bytes, 32);
    assert_memory_equal(body + 80, theirs.link_tag, 16);
    assert_memory_equal(body + 96, theirs.proof, 32);
    assert_int_equal(tw_get_u32(body + 128), 2);
    assert_int_equal(body[132], 14);
    assert_memory_equal(body + 133, "a.example:4300", 14);
    assert_memory_equal(body + 148, "[2001:db8::1]:4300", 18);
    assert_int_equal(tw_get_u32(body + 166), 3);
    assert_memory_equal(body + 170, "\x01\0\x08\0\x05\0\0\0\0\0\0\x80\x02\0\x0a\0thinwire 9", 26);
}

/* Expected bytes come from another implementation of HMAC-SHA256 (Python's hmac). */
FACT(proof_is_the_documented_hmac) {
    static const char expected[] =
        "7db89a0af71e8a866fe5bd783f1b7e396e2600bab8c99fe140449391bc796ec4";
    struct tw_id proof;
    char hex[TW_ID_HEX_BYTES];
    memcpy(proof.bytes, theirs.proof, 32);
    tw_id_hex(&proof, hex);
    assert_string_equal(hex, expected);
}

FACT(every_field_is_under_the_proof) {
    uint8_t body[TW_HELLO_BYTES_MAX], changed[TW_HELLO_BYTES_MAX];
    const uint32_t size = tw_hello_encode(&theirs, body);
    for (uint32_t at = 0; at < size; at++) {
        struct tw_hello read;
        memcpy(changed, body, size);
        changed[at] ^= 1;
        if (tw_hello_decode(changed, size, &read, NULL) != TW_OK) continue;
        const enum tw_status status = check_with(&read, &secrets, NULL);
        assert_int_not_equal(status, TW_OK);
    }
}

FACT(the_longest_hello_fits) {
    static const uint8_t filler[TW_HELLO_EXTENSIONS_BYTES];
    uint8_t body[TW_HELLO_BYTES_MAX];
    struct tw_hello back, longest = ours;
    longest.addrs_count = TW_ADDRS_MAX;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        memset(longest.addrs[i], 'a', TW_ADDR_BYTES - 1);
        memcpy(longest.addrs[i] + TW_ADDR_BYTES - 6, ":4300", 5);
    }
    tw_extensions_add(&longest.extensions, 999, filler,
                      TW_HELLO_EXTENSIONS_BYTES - 4 /* kind and length */);
    tw_hello_prove(&longest, &secret, ekm);
    const uint32_t size = tw_hello_encode(&longest, body);
    assert_int_equal(size, TW_HELLO_BYTES_MAX);
    assert_int_equal(tw_hello_decode(body, size, &back, NULL), TW_OK);
    assert_memory_equal(&back, &longest, sizeof(back));
}

FACT(proof_of_another_session_is_refused) {
    uint8_t other[TW_TLS_EXPORT_BYTES] = {8};
    struct tw_error err;
    tw_hello_prove(&theirs, &secret, other);
    assert_int_equal(check(&err), TW_WRONG_SECRET);
}

FACT(wrong_secret_is_told_from_another_run) {
    const struct tw_secret other = {{7}};
    struct tw_error err;
    tw_hello_prove(&theirs, &other, ekm);
    assert_int_equal(check(&err), TW_WRONG_SECRET);
    memset(theirs.run.bytes, 0x99, 32);
    assert_int_equal(check(&err), TW_OTHER_RUN);
    assert_null(strstr(err.message, "11111111")); /* strangers must not learn this run's id */
    assert_non_null(strstr(err.message, "99999999"));
}

FACT(open_and_secret_nodes_do_not_mix) {
    struct tw_error err;
    tw_hello_prove(&theirs, NULL, ekm);
    assert_int_equal(check(&err), TW_WRONG_SECRET);
    assert_int_equal(check_with(&theirs, &none, &err), TW_OK);
    tw_hello_prove(&theirs, &secret, ekm);
    assert_int_equal(check_with(&theirs, &none, &err), TW_WRONG_SECRET);
}

FACT(either_of_two_secrets_proves_and_is_told) {
    const struct tw_secrets both = {.count = 2, .list = {{{8, 8}}, {{1, 2, 3}}}};
    uint32_t which = 7;
    assert_int_equal(tw_hello_check_proof(&theirs, &ours, &both, ekm, &which, NULL), TW_OK);
    assert_int_equal(which, 1);
    tw_hello_prove(&theirs, &both.list[0], ekm);
    assert_int_equal(tw_hello_check_proof(&theirs, &ours, &both, ekm, &which, NULL), TW_OK);
    assert_int_equal(which, 0);
    const struct tw_secrets one = {.count = 1, .list = {{{1, 2, 3}}, {{8, 8}}}};
    assert_int_equal(tw_hello_check_proof(&theirs, &ours, &one, ekm, &which, NULL),
                     TW_WRONG_SECRET);
}

/* The expected bytes are from Python's hmac too. */
FACT(a_guest_proves_itself_by_its_tickets_key) {
    static const uint8_t key[TW_TICKET_KEY_BYTES] = {4, 5, 6}, other[TW_TICKET_KEY_BYTES] = {4, 5};
    static const char expected[] =
        "60836b2d44cfcf5a959090a758988291005766a0b7911a2cda2ba33781df08ee";
    struct tw_id proof;
    char hex[TW_ID_HEX_BYTES];
    struct tw_error err;
    tw_hello_prove_ticket(&theirs, key, ekm);
    memcpy(proof.bytes, theirs.proof, 32);
    tw_id_hex(&proof, hex);
    assert_string_equal(hex, expected);
    assert_int_equal(tw_hello_check_ticket(&theirs, key, ekm, &err), TW_OK);
    assert_int_equal(tw_hello_check_ticket(&theirs, other, ekm, &err), TW_TICKET_UNKNOWN);
    assert_int_equal(check(&err), TW_WRONG_SECRET); /* not the run secret */
    theirs.boot++;
    assert_int_equal(tw_hello_check_ticket(&theirs, key, ekm, &err), TW_TICKET_UNKNOWN);
}

FACT(versions_must_overlap) {
    struct tw_error err;
    theirs.version_min = 2;
    theirs.version_max = 3;
    tw_hello_prove(&theirs, &secret, ekm);
    assert_int_equal(check(&err), TW_VERSION);
    assert_non_null(strstr(err.message, "2 to 3"));
    ours.version_max = 2;
    assert_int_equal(check(&err), TW_OK);
}

FACT(hello_of_another_id_than_proven_is_refused) {
    struct tw_error err;
    assert_int_equal(tw_hello_check(&theirs, &ours, &ours.id, &err), TW_PROTO);
}

FACT(malformed_hellos_name_the_field) {
    uint8_t body[TW_HELLO_BYTES_MAX] = {0};
    struct tw_hello read;
    struct tw_error err;
    const uint32_t size = tw_hello_encode(&theirs, body);
    for (uint32_t cut = 0; cut < size; cut++)
        assert_int_equal(tw_hello_decode(body, cut, &read, &err), TW_PROTO);
    assert_int_equal(tw_hello_decode(body, size + 1, &read, &err), TW_PROTO);
    tw_put_u32(body + 8, 5);
    assert_int_equal(tw_hello_decode(body, size, &read, &err), TW_PROTO);
    assert_non_null(strstr(err.message, "role"));
    tw_put_u32(body + 8, 0);
    tw_put_u32(body + 128, TW_ADDRS_MAX + 1);
    assert_int_equal(tw_hello_decode(body, size, &read, &err), TW_PROTO);
    assert_non_null(strstr(err.message, "addresses"));
    tw_put_u32(body + 128, 2);
    tw_put_u32(body, 5); /* min above max */
    assert_int_equal(tw_hello_decode(body, size, &read, &err), TW_PROTO);
    tw_put_u32(body, 1);
    body[133] = '\0';
    assert_int_equal(tw_hello_decode(body, size, &read, &err), TW_PROTO);
    assert_non_null(strstr(err.message, "host:port"));
}

FACT(goodbye_survives_the_wire_and_is_sanitised) {
    uint8_t body[TW_HELLO_BYTES_MAX];
    struct tw_goodbye goodbye;
    uint32_t size = tw_goodbye_encode(TW_DENIED, "wrong run secret", body);
    assert_int_equal(tw_goodbye_decode(body, size, &goodbye, NULL), TW_OK);
    assert_int_equal(goodbye.status, TW_DENIED);
    assert_string_equal(goodbye.sentence, "wrong run secret");
    body[5] = 0x1b; /* no escape sequences into terminals and logs */
    body[6] = '\n';
    assert_int_equal(tw_goodbye_decode(body, size, &goodbye, NULL), TW_OK);
    assert_string_equal(goodbye.sentence, "w??ng run secret");
    body[9] = '"'; /* no quote that would end the quoted text in the log */
    assert_int_equal(tw_goodbye_decode(body, size, &goodbye, NULL), TW_OK);
    assert_string_equal(goodbye.sentence, "w??ng'run secret");
    tw_put_u32(body, 12345);
    assert_int_equal(tw_goodbye_decode(body, size, &goodbye, NULL), TW_OK);
    assert_int_equal(goodbye.status, TW_PROTO);
    assert_int_equal(tw_goodbye_decode(body, 3, &goodbye, NULL), TW_PROTO);
    memset(body, 'x', sizeof(body));
    assert_int_equal(tw_goodbye_decode(body, sizeof(body), &goodbye, NULL), TW_OK);
    assert_int_equal(strlen(goodbye.sentence), 255);
    char longest[2048];
    memset(longest, 'y', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    size = tw_goodbye_encode(TW_OK, longest, body);
    assert_int_equal(size, 4 + 255);
}
