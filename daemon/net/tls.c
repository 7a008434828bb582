#include "daemon/net/tls.h"

#include <string.h>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/assert.h"

enum { CERT_BYTES_MAX = 4096 };

static const uint8_t ALPN[] = {10, 't', 'h', 'i', 'n', 'w', 'i', 'r', 'e', '/', '1'};

static const char *openssl_reason(void) {
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    return reason != NULL ? reason : "no reason given";
}

/* Replaces OpenSSL's verification of the certificate chain: only the key matters. */
static int verify(X509_STORE_CTX *store, void *unused) {
    (void)unused;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tw_tls *tls = SSL_get_app_data(ssl);
    X509 *cert = X509_STORE_CTX_get0_cert(store);
    if (cert == NULL || sk_X509_num(X509_STORE_CTX_get0_untrusted(store)) > 1) {
        X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_CHAIN_TOO_LONG);
        return 0;
    }
    if (!tw_identity_of_key(X509_get0_pubkey(cert), &tls->id)) {
        X509_STORE_CTX_set_error(store, X509_V_ERR_INVALID_PURPOSE);
        return 0;
    }
    tls->has_id = true;
    if (tls->has_expected &&
        CRYPTO_memcmp(tls->id.bytes, tls->expected.bytes, sizeof(tls->id.bytes)) != 0) {
        tls->is_pin_broken = true;
        X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
        return 0;
    }
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
}

static int select_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                       const unsigned char *in, unsigned int in_size, void *unused) {
    (void)ssl;
    (void)unused;
    unsigned char *chosen = NULL;
    if (SSL_select_next_proto(&chosen, out_size, ALPN, sizeof(ALPN), in, in_size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* Counts the handshake messages that a peer sends after the handshake. Its key updates cost us work
 * and carry no data, so they are limited. */
/* NOLINTNEXTLINE(readability-function-size): the parameters are OpenSSL's. */
static void count_updates(int is_write, int version, int content_type, const void *bytes,
                          size_t size, SSL *ssl, void *unused) {
    (void)version;
    (void)bytes;
    (void)size;
    (void)unused;
    struct tw_tls *tls = SSL_get_app_data(ssl);
    if (tls == NULL || is_write || content_type != SSL3_RT_HANDSHAKE) return;
    if (tls->is_secured) tls->updates_count++;
}

/* Returns the name in the server name extension (RFC 6066 section 3), or "". The extension has a
 * list length, type 0 and a name length before the name. */
static const char *read_name(SSL *ssl, size_t *size) {
    enum { HEAD_BYTES = 5 };
    const unsigned char *bytes = NULL;
    size_t total = 0;
    *size = 0;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &bytes, &total) != 1) return "";
    if (total < HEAD_BYTES || bytes[2] != TLSEXT_NAMETYPE_host_name) return "";
    const size_t length = (size_t)bytes[3] << 8 | bytes[4];
    if (length > total - HEAD_BYTES) return "";
    *size = length;
    return (const char *)bytes + HEAD_BYTES;
}

static int judge_hello(SSL *ssl, int *alert, void *unused) {
    struct tw_tls *tls = SSL_get_app_data(ssl);
    size_t size = 0;
    (void)unused;
    if (tls->judge == NULL || tls->is_judged) return SSL_CLIENT_HELLO_SUCCESS;
    tls->is_judged = true; /* so a second ClientHello, after a retry request, is not judged again */
    const char *name = read_name(ssl, &size);
    if (tls->judge(tls->judge_user, name, size, tls->judge_error) == TW_OK)
        return SSL_CLIENT_HELLO_SUCCESS;
    tls->is_turned_away = true;
    *alert = SSL_AD_ACCESS_DENIED; /* OpenSSL wants an alert, but it is never sent */
    return SSL_CLIENT_HELLO_ERROR;
}

static bool profile_set(SSL_CTX *ctx) {
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_max_cert_list(ctx, CERT_BYTES_MAX);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_cert_verify_callback(ctx, verify, NULL);
    SSL_CTX_set_alpn_select_cb(ctx, select_alpn, NULL);
    SSL_CTX_set_msg_callback(ctx, count_updates);
    SSL_CTX_set_client_hello_cb(ctx, judge_hello, NULL);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") ==
               1 &&
           SSL_CTX_set1_groups_list(ctx, "X25519") == 1 &&
           SSL_CTX_set1_sigalgs_list(ctx, "ed25519") == 1 &&
           SSL_CTX_set1_client_sigalgs_list(ctx, "ed25519") == 1 &&
           SSL_CTX_set_num_tickets(ctx, 0) == 1 && SSL_CTX_set_max_early_data(ctx, 0) == 1 &&
           SSL_CTX_set_alpn_protos(ctx, ALPN, sizeof(ALPN)) == 0;
}

enum tw_status tw_tls_context_init(struct tw_tls_context *context,
                                   const struct tw_identity *identity, struct tw_error *err) {
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    if (ctx == NULL || !profile_set(ctx) || SSL_CTX_use_certificate(ctx, identity->cert) != 1 ||
        SSL_CTX_use_PrivateKey(ctx, identity->key) != 1 || SSL_CTX_check_private_key(ctx) != 1) {
        SSL_CTX_free(ctx);
        return tw_fail(err, TW_TLS, "OpenSSL refuses the TLS profile of Thinwire: %s",
                       openssl_reason());
    }
    *context = (struct tw_tls_context){.ctx = ctx, .key_records = TW_TLS_KEY_RECORDS};
    return TW_OK;
}

void tw_tls_context_deinit(struct tw_tls_context *context) {
    SSL_CTX_free(context->ctx);
    context->ctx = NULL;
}

enum tw_status tw_tls_init(struct tw_tls *tls, const struct tw_tls_context *context,
                           bool is_dialled, const struct tw_id *expected, struct tw_error *err) {
    *tls = (struct tw_tls){.has_expected = expected != NULL, .key_records = context->key_records};
    if (expected != NULL) tls->expected = *expected;
    ERR_clear_error();
    tls->ssl = SSL_new(context->ctx);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->ssl == NULL || tls->in == NULL || tls->out == NULL) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        *tls = (struct tw_tls){0};
        return tw_fail(err, TW_NOMEM, "no memory for a TLS session");
    }
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    SSL_set_app_data(tls->ssl, tls);
    if (is_dialled)
        SSL_set_connect_state(tls->ssl);
    else
        SSL_set_accept_state(tls->ssl);
    return TW_OK;
}

void tw_tls_name(struct tw_tls *tls, const char *name) {
    TW_ASSERT(SSL_set_tlsext_host_name(tls->ssl, name) == 1);
}

void tw_tls_pad(struct tw_tls *tls, size_t bytes) {
    TW_ASSERT(SSL_set_block_padding(tls->ssl, bytes) == 1);
}

void tw_tls_deinit(struct tw_tls *tls) {
    SSL_free(tls->ssl);
    tls->ssl = NULL;
    tls->in = tls->out = NULL;
}

void tw_tls_move(struct tw_tls *to, struct tw_tls *from) {
    *to = *from;
    *from = (struct tw_tls){0};
    SSL_set_app_data(to->ssl, to);
}

enum tw_status tw_tls_feed(struct tw_tls *tls, const uint8_t *bytes, size_t size,
                           struct tw_error *err) {
    TW_ASSERT(size <= INT32_MAX);
    if (size == 0) return TW_OK;
    ERR_clear_error();
    if (BIO_write(tls->in, bytes, (int)size) != (int)size)
        return tw_fail(err, TW_NOMEM, "no memory for bytes that arrived");
    return TW_OK;
}

static enum tw_status handshake_failed(struct tw_tls *tls, struct tw_error *err) {
    if (tls->is_pin_broken) {
        char expected[9], answered[9];
        tw_id_short(&tls->expected, expected);
        tw_id_short(&tls->id, answered);
        return tw_fail(err, TW_WRONG_ID, "node %s answers there, not %s", answered, expected);
    }
    const unsigned long code = ERR_peek_error();
    if (ERR_GET_LIB(code) == ERR_LIB_SSL) {
        switch (ERR_GET_REASON(code)) {
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_UNSUPPORTED_PROTOCOL:
        case SSL_R_HTTP_REQUEST: return tw_fail(err, TW_TLS, "it does not speak TLS 1.3");
        default: break;
        }
    }
    return tw_fail(err, TW_TLS, "TLS handshake failed: %s", openssl_reason());
}

enum tw_status tw_tls_handshake(struct tw_tls *tls, struct tw_error *err) {
    if (tls->is_secured) return TW_OK;
    struct tw_error judged = {.status = TW_LIMIT};
    ERR_clear_error();
    tls->judge_error = &judged;
    const int result = SSL_do_handshake(tls->ssl);
    tls->judge_error = NULL;
    if (tls->is_turned_away) {
        (void)BIO_reset(tls->out);
        return tw_fail(err, judged.status, "%s", judged.message);
    }
    if (result != 1) {
        if (SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ) return TW_AGAIN;
        return handshake_failed(tls, err);
    }
    const uint8_t *alpn = NULL;
    unsigned alpn_size = 0;
    SSL_get0_alpn_selected(tls->ssl, &alpn, &alpn_size);
    if (alpn_size != sizeof(ALPN) - 1 || memcmp(alpn, ALPN + 1, alpn_size) != 0)
        return tw_fail(err, TW_TLS, "it speaks TLS, but not thinwire/1");
    if (!tls->has_id) return tw_fail(err, TW_TLS, "the other side proved no identity");
    tls->is_secured = true;
    return TW_OK;
}

static enum tw_status updates_check(struct tw_tls *tls, uint64_t now_us, struct tw_error *err) {
    enum { WINDOW_US = 60 * 1000 * 1000 };
    if (tls->updates_count <= TW_TLS_UPDATES_MAX) {
        if (now_us - tls->updates_since_us < WINDOW_US) return TW_OK;
        tls->updates_since_us = now_us;
        tls->updates_count = 0;
        return TW_OK;
    }
    return tw_fail(err, TW_PROTO, "more than %d TLS key updates in a minute", TW_TLS_UPDATES_MAX);
}

enum tw_status tw_tls_read(struct tw_tls *tls, uint8_t *to, size_t capacity, uint64_t now_us,
                           size_t *got, struct tw_error *err) {
    ERR_clear_error();
    const int result = SSL_read_ex(tls->ssl, to, capacity, got);
    const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, result);
    TW_TRY(updates_check(tls, now_us, err));
    switch (error) {
    case SSL_ERROR_NONE: return TW_OK;
    case SSL_ERROR_WANT_READ: return TW_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return tw_fail(err, TW_IO, "the other side ended the session");
    default: return tw_fail(err, TW_TLS, "TLS session broke: %s", openssl_reason());
    }
}

enum tw_status tw_tls_write(struct tw_tls *tls, const uint8_t *bytes, size_t size,
                            struct tw_error *err) {
    TW_ASSERT(size > 0 && size <= TW_TLS_RECORD_BYTES_MAX);
    size_t written = 0;
    ERR_clear_error();
    if (tls->records == tls->key_records) { /* explicit, because OpenSSL never updates keys by
                                               itself */
        if (SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
            return tw_fail(err, TW_TLS, "TLS could not change its key: %s", openssl_reason());
        tls->records = 0;
    }
    tls->records++;
    if (SSL_write_ex(tls->ssl, bytes, size, &written) != 1 || written != size)
        return tw_fail(err, TW_TLS, "TLS could not encrypt: %s", openssl_reason());
    return TW_OK;
}

size_t tw_tls_pending(const struct tw_tls *tls) {
    return tls->out == NULL ? 0 : BIO_ctrl_pending(tls->out);
}

size_t tw_tls_take(struct tw_tls *tls, uint8_t *to, size_t capacity) {
    TW_ASSERT(capacity <= INT32_MAX);
    if (tw_tls_pending(tls) == 0) return 0;
    const int taken = BIO_read(tls->out, to, (int)capacity);
    return taken > 0 ? (size_t)taken : 0;
}

void tw_tls_shutdown(struct tw_tls *tls) {
    ERR_clear_error();
    if (tls->is_secured) (void)SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

enum tw_status tw_tls_export(struct tw_tls *tls, const char *label,
                             uint8_t out[TW_TLS_EXPORT_BYTES], struct tw_error *err) {
    TW_ASSERT(tls->is_secured);
    ERR_clear_error();
    if (SSL_export_keying_material(tls->ssl, out, TW_TLS_EXPORT_BYTES, label, strlen(label), NULL,
                                   0, 0) != 1)
        return tw_fail(err, TW_TLS, "TLS could not export keying material: %s", openssl_reason());
    return TW_OK;
}
