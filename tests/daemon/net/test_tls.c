/* Tests of daemon/net/tls.c with both ends in memory. */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "daemon/net/tls.h"
#include "tests/test.h"

static struct tw_identity alice, bob;
static struct tw_tls_context alice_context, bob_context;

static int group_setup(void **state) {
    assert_int_equal(tw_identity_ephemeral(&alice, NULL), TW_OK);
    assert_int_equal(tw_identity_ephemeral(&bob, NULL), TW_OK);
    assert_int_equal(tw_tls_context_init(&alice_context, &alice, NULL), TW_OK);
    assert_int_equal(tw_tls_context_init(&bob_context, &bob, NULL), TW_OK);
    return 0;
}

static int group_teardown(void **state) {
    tw_tls_context_deinit(&alice_context);
    tw_tls_context_deinit(&bob_context);
    tw_identity_close(&alice);
    tw_identity_close(&bob);
    return 0;
}

/* Carries ciphertext from one side to the other. */
static size_t carry(struct tw_tls *from, struct tw_tls *to) {
    uint8_t bytes[4096];
    size_t total = 0;
    for (;;) {
        const size_t size = tw_tls_take(from, bytes, sizeof(bytes));
        if (size == 0) return total;
        assert_int_equal(tw_tls_feed(to, bytes, size, NULL), TW_OK);
        total += size;
    }
}

struct outcome {
    enum tw_status dialler, acceptor;
    struct tw_error dialler_error, acceptor_error;
};

static struct outcome shake(struct tw_tls *dialler, struct tw_tls *acceptor) {
    struct outcome out = {TW_AGAIN, TW_AGAIN, {0}, {0}};
    for (unsigned i = 0; i < 8; i++) {
        if (out.dialler == TW_AGAIN) out.dialler = tw_tls_handshake(dialler, &out.dialler_error);
        (void)carry(dialler, acceptor);
        if (out.acceptor == TW_AGAIN)
            out.acceptor = tw_tls_handshake(acceptor, &out.acceptor_error);
        (void)carry(acceptor, dialler);
    }
    return out;
}

static void pair(struct tw_tls *dialler, struct tw_tls *acceptor) {
    assert_int_equal(tw_tls_init(dialler, &alice_context, true, &bob.id, NULL), TW_OK);
    assert_int_equal(tw_tls_init(acceptor, &bob_context, false, NULL, NULL), TW_OK);
    const struct outcome out = shake(dialler, acceptor);
    assert_int_equal(out.dialler, TW_OK);
    assert_int_equal(out.acceptor, TW_OK);
}

TEST(both_ends_learn_the_other_id) {
    struct tw_tls a, b;
    pair(&a, &b);
    assert_true(tw_id_equal(&a.id, &bob.id));
    assert_true(tw_id_equal(&b.id, &alice.id));
    assert_string_equal(SSL_get_version(a.ssl), "TLSv1.3");
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
}

TEST(bytes_go_through_both_ways) {
    struct tw_tls a, b;
    static uint8_t sent[TW_TLS_RECORD_BYTES_MAX], got[TW_TLS_RECORD_BYTES_MAX];
    pair(&a, &b);
    for (unsigned i = 0; i < sizeof(sent); i++) sent[i] = (uint8_t)(i * 7);
    assert_int_equal(tw_tls_write(&a, sent, sizeof(sent), NULL), TW_OK);
    assert_true(tw_tls_pending(&a) > sizeof(sent));
    assert_true(tw_tls_pending(&a) < sizeof(sent) + 64);
    size_t size = 0, total = 0;
    assert_int_equal(tw_tls_read(&b, got, sizeof(got), 0, &size, NULL), TW_AGAIN);
    (void)carry(&a, &b);
    while (tw_tls_read(&b, got + total, sizeof(got) - total, 0, &size, NULL) == TW_OK) {
        total += size;
        if (total == sizeof(got)) break;
    }
    assert_memory_equal(sent, got, sizeof(sent));
    tw_tls_shutdown(&a);
    (void)carry(&a, &b);
    assert_int_equal(tw_tls_read(&b, got, sizeof(got), 0, &size, NULL), TW_IO);
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
}

TEST(another_node_at_a_pinned_address_is_refused) {
    struct tw_tls a, b;
    assert_int_equal(tw_tls_init(&a, &alice_context, true, &alice.id, NULL), TW_OK);
    assert_int_equal(tw_tls_init(&b, &bob_context, false, NULL, NULL), TW_OK);
    const struct outcome out = shake(&a, &b);
    assert_int_equal(out.dialler, TW_WRONG_ID);
    assert_int_equal(out.acceptor, TW_TLS); /* saw the alert */
    char answered[9];
    tw_id_short(&bob.id, answered);
    assert_non_null(strstr(out.dialler_error.message, answered));
    assert_true(a.has_id && tw_id_equal(&a.id, &bob.id));
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
}

/* Takes ownership of `ctx`. */
static void stranger_is_refused(SSL_CTX *ctx) {
    struct tw_tls_context strange = {.ctx = ctx};
    struct tw_tls a, b;
    assert_int_equal(tw_tls_init(&a, &strange, true, NULL, NULL), TW_OK);
    assert_int_equal(tw_tls_init(&b, &bob_context, false, NULL, NULL), TW_OK);
    const struct outcome out = shake(&a, &b);
    assert_int_equal(out.acceptor, TW_TLS);
    assert_false(b.is_secured);
    assert_true(out.acceptor_error.message[0] != '\0');
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
    tw_tls_context_deinit(&strange);
}

/* Makes a TLS context such as a node's, which the test then changes. */
static SSL_CTX *like_ours(void) {
    struct tw_tls_context context;
    assert_int_equal(tw_tls_context_init(&context, &alice, NULL), TW_OK);
    return context.ctx;
}

static SSL_CTX *no_certificate(void) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    assert_non_null(ctx);
    assert_int_equal(SSL_CTX_set_alpn_protos(ctx, (const uint8_t *)"\x0athinwire/1", 11), 0);
    return ctx;
}

static SSL_CTX *tls12(void) {
    SSL_CTX *ctx = like_ours();
    assert_int_equal(SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION), 1);
    return ctx;
}

static SSL_CTX *p256(void) {
    SSL_CTX *ctx = no_certificate();
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    X509 *cert = X509_new();
    assert_int_equal(X509_set_version(cert, 2), 1);
    assert_int_equal(ASN1_TIME_set_string_X509(X509_getm_notBefore(cert), "20000101000000Z"), 1);
    assert_int_equal(ASN1_TIME_set_string_X509(X509_getm_notAfter(cert), "99991231235959Z"), 1);
    assert_int_equal(X509_set_pubkey(cert, key), 1);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

static SSL_CTX *other_alpn(void) {
    SSL_CTX *ctx = like_ours();
    assert_int_equal(SSL_CTX_set_alpn_protos(ctx, (const uint8_t *)"\x02h2", 3), 0);
    return ctx;
}

static SSL_CTX *no_alpn(void) {
    SSL_CTX *ctx = like_ours();
    assert_int_equal(SSL_CTX_set_alpn_protos(ctx, NULL, 0), 0);
    return ctx;
}

TEST(strangers_are_refused) {
    stranger_is_refused(tls12());
    stranger_is_refused(no_certificate());
    stranger_is_refused(p256());
    stranger_is_refused(other_alpn());
    stranger_is_refused(no_alpn());
}

TEST(bytes_that_are_no_tls_are_named_as_such) {
    struct tw_tls b;
    struct tw_error err;
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_int_equal(tw_tls_init(&b, &bob_context, false, NULL, NULL), TW_OK);
    assert_int_equal(tw_tls_feed(&b, (const uint8_t *)http, sizeof(http) - 1, NULL), TW_OK);
    assert_int_equal(tw_tls_handshake(&b, &err), TW_TLS);
    assert_non_null(strstr(err.message, "does not speak TLS 1.3"));
    tw_tls_deinit(&b);
}

TEST(exporter_is_equal_at_both_ends_and_new_each_time) {
    struct tw_tls a, b, c, d;
    uint8_t keys[3][TW_TLS_EXPORT_BYTES];
    pair(&a, &b);
    pair(&c, &d);
    assert_int_equal(tw_tls_export(&a, "EXPORTER-x", keys[0], NULL), TW_OK);
    assert_int_equal(tw_tls_export(&b, "EXPORTER-x", keys[1], NULL), TW_OK);
    assert_int_equal(tw_tls_export(&c, "EXPORTER-x", keys[2], NULL), TW_OK);
    assert_memory_equal(keys[0], keys[1], sizeof(keys[0]));
    assert_memory_not_equal(keys[0], keys[2], sizeof(keys[0]));
    assert_int_equal(tw_tls_export(&a, "EXPORTER-y", keys[2], NULL), TW_OK);
    assert_memory_not_equal(keys[0], keys[2], sizeof(keys[0]));
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
    tw_tls_deinit(&c);
    tw_tls_deinit(&d);
}

TEST(no_session_can_be_resumed) {
    struct tw_tls a, b;
    uint8_t byte;
    size_t got;
    pair(&a, &b);
    (void)carry(&b, &a);
    assert_int_equal(tw_tls_read(&a, &byte, 1, 0, &got, NULL), TW_AGAIN);
    assert_false(SSL_SESSION_is_resumable(SSL_get0_session(a.ssl)));
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
}

static enum tw_status update(struct tw_tls *a, struct tw_tls *b, uint64_t now_us) {
    uint8_t byte = 0;
    size_t got = 0;
    assert_int_equal(SSL_key_update(a->ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    assert_int_equal(tw_tls_write(a, &byte, 1, NULL), TW_OK);
    (void)carry(a, b);
    return tw_tls_read(b, &byte, 1, now_us, &got, NULL);
}

TEST(flood_of_key_updates_ends_the_session) {
    struct tw_tls a, b;
    enum { MINUTE_US = 60 * 1000 * 1000 };
    pair(&a, &b);
    uint64_t now_us = 5;
    /* A few key updates per minute are allowed for any length of time. */
    for (unsigned minute = 0; minute < 10; minute++, now_us += MINUTE_US) {
        for (unsigned i = 0; i < TW_TLS_UPDATES_MAX / 2; i++)
            assert_int_equal(update(&a, &b, now_us), TW_OK);
    }
    unsigned count = 0;
    enum tw_status status = TW_OK;
    for (; status == TW_OK && count < 100; count++) status = update(&a, &b, now_us);
    assert_int_equal(status, TW_PROTO);
    assert_true(count <= TW_TLS_UPDATES_MAX + 2);
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
}

/* Checks that bytes written by `from` arrive complete and in order. */
static void stream_check(struct tw_tls *from, struct tw_tls *to, uint8_t *next) {
    uint8_t got[256];
    size_t size = 0;
    (void)carry(from, to);
    while (tw_tls_read(to, got, sizeof(got), 5, &size, NULL) == TW_OK) {
        for (size_t i = 0; i < size; i++) assert_int_equal(got[i], (*next)++);
    }
}

TEST(keys_change_on_the_way_and_nothing_is_lost) {
    enum { UPDATES = TW_TLS_UPDATES_MAX - 2, RECORDS = 4 };
    struct tw_tls a, b;
    uint8_t out[2] = {0, 0}, in[2] = {0, 0};
    assert_true(alice_context.key_records < UINT32_C(23726566)); /* 2^24.5 */
    alice_context.key_records = bob_context.key_records = RECORDS;
    pair(&a, &b);
    for (unsigned i = 0; i < (UPDATES + 1) * RECORDS; i++) {
        uint8_t bytes[37];
        for (unsigned side = 0; side < 2; side++) { /* both at once */
            for (unsigned k = 0; k < sizeof(bytes); k++) bytes[k] = out[side]++;
            assert_int_equal(tw_tls_write(side == 0 ? &a : &b, bytes, sizeof(bytes), NULL), TW_OK);
        }
        if (i % 3 == 2) stream_check(&a, &b, &in[0]);
        if (i % 5 == 4) stream_check(&b, &a, &in[1]);
    }
    stream_check(&a, &b, &in[0]);
    stream_check(&b, &a, &in[1]);
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(a.updates_count, UPDATES);
    assert_int_equal(b.updates_count, UPDATES);
    alice_context.key_records = bob_context.key_records = TW_TLS_KEY_RECORDS;
    tw_tls_deinit(&a);
    tw_tls_deinit(&b);
}

TEST(flipped_bits_never_get_through) {
    uint8_t record[256], plain[64] = {1, 2, 3}, got[64];
    for (unsigned at = 0; at < 40; at++) {
        struct tw_tls a, b;
        size_t size = 0;
        pair(&a, &b);
        assert_int_equal(tw_tls_write(&a, plain, sizeof(plain), NULL), TW_OK);
        const size_t taken = tw_tls_take(&a, record, sizeof(record));
        record[5 + at] ^= 0x10;
        assert_int_equal(tw_tls_feed(&b, record, taken, NULL), TW_OK);
        assert_int_equal(tw_tls_read(&b, got, sizeof(got), 0, &size, NULL), TW_TLS);
        tw_tls_deinit(&a);
        tw_tls_deinit(&b);
    }
}

int main(void) {
    return test_run(group_setup, group_teardown);
}
