/* fuzz_session.c - a whole TLS handshake by a client with its own key, then arbitrary bytes as a
 * stranger's first frames. Input: u16 position of damage in the client's handshake bytes; u8 damage
 * (0: none); u8 (odd: the rest is the body of a HELLO frame with the id that TLS proves; even: size
 * of the records); then the plaintext.
 *
 * The session is read like a link before admission: one frame of at most 1 KiB at a time. Only a
 * HELLO with a valid proof, by one of two secrets or a ticket, would be admitted. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "daemon/net/handshake.h"
#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PUMPS = 16, CIPHER_BYTES = 32 * 1024 };

static struct tw_identity identity;
static struct tw_tls_context context;
static SSL_CTX *client_ctx;

struct session {
    struct tw_tls server;
    SSL *client;
    BIO *to_client, *to_server;
    size_t sent; /* bytes sent by the client so far */
    uint16_t damage_at;
    uint8_t damage;
};

static int take_any(X509_STORE_CTX *store, void *unused) {
    (void)unused;
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
}

static void contexts_make(void) {
    static struct tw_identity other;
    static const uint8_t alpn[] = {10, 't', 'h', 'i', 'n', 'w', 'i', 'r', 'e', '/', '1'};
    TW_ASSERT(tw_identity_ephemeral(&identity, NULL) == TW_OK);
    TW_ASSERT(tw_identity_ephemeral(&other, NULL) == TW_OK);
    TW_ASSERT(tw_tls_context_init(&context, &identity, NULL) == TW_OK);
    client_ctx = SSL_CTX_new(TLS_client_method());
    TW_ASSERT(client_ctx != NULL);
    TW_ASSERT(SSL_CTX_use_certificate(client_ctx, other.cert) == 1);
    TW_ASSERT(SSL_CTX_use_PrivateKey(client_ctx, other.key) == 1);
    TW_ASSERT(SSL_CTX_set_alpn_protos(client_ctx, alpn, sizeof(alpn)) == 0);
    SSL_CTX_set_cert_verify_callback(client_ctx, take_any, NULL);
}

static void session_open(struct session *s, const uint8_t *data) {
    *s = (struct session){.damage_at = tw_get_u16(data), .damage = data[2]};
    TW_ASSERT(tw_tls_init(&s->server, &context, false, NULL, NULL) == TW_OK);
    s->client = SSL_new(client_ctx);
    s->to_client = BIO_new(BIO_s_mem());
    s->to_server = BIO_new(BIO_s_mem());
    TW_ASSERT(s->client != NULL && s->to_client != NULL && s->to_server != NULL);
    SSL_set_bio(s->client, s->to_client, s->to_server);
    SSL_set_connect_state(s->client);
}

/* Delivers the client's bytes to the server, with the damage of the input. */
static bool carry(struct session *s) {
    static uint8_t bytes[CIPHER_BYTES];
    int got;
    while ((got = BIO_read(s->to_server, bytes, sizeof(bytes))) > 0) {
        if (s->damage != 0 && s->damage_at >= s->sent && s->damage_at - s->sent < (size_t)got)
            bytes[s->damage_at - s->sent] ^= s->damage;
        s->sent += (size_t)got;
        if (tw_tls_feed(&s->server, bytes, (size_t)got, NULL) != TW_OK) return false;
    }
    const size_t size = tw_tls_take(&s->server, bytes, sizeof(bytes));
    return size == 0 || BIO_write(s->to_client, bytes, (int)size) == (int)size;
}

static enum tw_status handshake(struct session *s, struct tw_error *err) {
    enum tw_status status = TW_AGAIN;
    for (unsigned i = 0; i < PUMPS && status == TW_AGAIN; i++) {
        (void)SSL_do_handshake(s->client);
        if (!carry(s)) return TW_TLS;
        status = tw_tls_handshake(&s->server, err);
        if (!carry(s)) return TW_TLS;
    }
    return status;
}

/* Handles a HELLO or any other frame. None may be admitted, neither by one of two secrets nor by a
 * ticket. */
static bool frame_take(struct session *s, const struct tw_frame *frame) {
    static const uint8_t ticket_key[TW_TICKET_KEY_BYTES] = {3};
    struct tw_hello theirs, ours = {.version_min = 1, .version_max = 1};
    static const struct tw_secrets secrets = {.count = 2, .list = {{{1}}, {{2}}}};
    uint32_t which = 0;
    uint8_t ekm[TW_TLS_EXPORT_BYTES];
    struct tw_error err;
    if (frame->kind != TW_FRAME_HELLO) return false;
    if (tw_hello_decode(frame->body, frame->body_bytes, &theirs, &err) != TW_OK) return false;
    ours.run = theirs.run;
    TW_ASSERT(tw_tls_export(&s->server, TW_HELLO_EXPORT, ekm, &err) == TW_OK);
    if (tw_hello_check(&theirs, &ours, &s->server.id, &err) != TW_OK) return false;
    TW_ASSERT(tw_hello_check_proof(&theirs, &ours, &secrets, ekm, &which, &err) == TW_WRONG_SECRET);
    TW_ASSERT(tw_hello_check_ticket(&theirs, ticket_key, ekm, &err) == TW_TICKET_UNKNOWN);
    return false;
}

static void plaintext_read(struct session *s) {
    static uint8_t buffer[TW_FRAME_HEADER_BYTES + TW_HELLO_BYTES_MAX];
    struct tw_reader reader;
    struct tw_frame frame;
    struct tw_error err;
    tw_reader_init(&reader, buffer, sizeof(buffer));
    for (;;) {
        size_t space = 0, got = 0;
        uint8_t *to = tw_reader_space(&reader, &space);
        if (tw_tls_read(&s->server, to, space, 1, &got, &err) != TW_OK) return;
        tw_reader_fill(&reader, got);
        enum tw_status status;
        while ((status = tw_reader_next(&reader, &frame, &err)) == TW_OK) {
            if (!frame_take(s, &frame)) return;
        }
        if (status != TW_AGAIN) return;
    }
}

/* Writes the input's bytes to the server. Returns false once the session is over. */
static bool plaintext_write(struct session *s, const uint8_t *bytes, size_t size, uint8_t how) {
    static uint8_t frame[TW_FRAME_HEADER_BYTES + TW_HELLO_BYTES_MAX];
    enum { ID_AT = 48 };
    size_t record = how > 0 ? (size_t)how * 16 : size;
    if (how % 2 == 1 && size <= TW_HELLO_BYTES_MAX) {
        uint8_t *body = frame + TW_FRAME_HEADER_BYTES;
        memcpy(body, bytes, size);
        if (size >= ID_AT + 32) memcpy(body + ID_AT, s->server.id.bytes, 32);
        tw_frame_header(frame, TW_FRAME_HELLO, 0, body, (uint32_t)size);
        bytes = frame;
        size += TW_FRAME_HEADER_BYTES;
        record = size;
    }
    for (size_t at = 0; at < size; at += record) {
        const size_t count = size - at < record ? size - at : record;
        if (SSL_write(s->client, bytes + at, (int)count) <= 0) return false;
    }
    return carry(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { HEAD = 4 };
    struct session s;
    struct tw_error err = {0};
    if (client_ctx == NULL) contexts_make();
    if (size < HEAD) return 0;
    session_open(&s, data);
    if (handshake(&s, &err) == TW_OK) {
        TW_ASSERT(s.server.is_secured && s.server.has_id);
        if (plaintext_write(&s, data + HEAD, size - HEAD, data[3])) plaintext_read(&s);
    }
    SSL_free(s.client);
    tw_tls_deinit(&s.server);
    return 0;
}
