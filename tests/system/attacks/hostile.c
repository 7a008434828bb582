#include "tests/system/attacks/hostile.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/assert.h"
#include "daemon/auth/tickets.h"
#include "proto/control.h"
#include "proto/run/run.h"

static const uint8_t ALPN[] = {10, 't', 'h', 'i', 'n', 'w', 'i', 'r', 'e', '/', '1'};

void hostile_know(struct hostile_target *target, struct tw_secret *secret, const char *dir,
                  uint16_t port) {
    static char text[TW_MANIFEST_BYTES_MAX];
    static struct tw_run run;
    struct tw_secrets secrets;
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/manifest", dir);
    FILE *file = fopen(path, "re");
    TW_ASSERT(file != NULL);
    const size_t size = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    TW_ASSERT(tw_run_decode(text, size, &run, NULL) == TW_OK);
    (void)snprintf(path, sizeof(path), "%s/secret", dir);
    TW_ASSERT(tw_secrets_open(path, &secrets, NULL) == TW_OK);
    *secret = secrets.list[0];
    *target = (struct hostile_target){.port = port, .run = tw_run_id(&run)};
}

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- connections --------------------------------------------------------------------------- */

int hostile_tcp(const struct hostile_target *target) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(target->port)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    const struct timeval patience = {.tv_sec = 10};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (target->receive_bytes > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &target->receive_bytes,
                         sizeof(target->receive_bytes));
    const bool is_bound =
        target->from == NULL || (inet_pton(AF_INET, target->from, &from.sin_addr) == 1 &&
                                 bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0);
    if (is_bound && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) return fd;
    (void)close(fd);
    return -1;
}

static int take_any(X509_STORE_CTX *store, void *unused) {
    (void)unused;
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
}

static void show_knock(SSL *ssl, const struct hostile_target *target) {
    char name[TW_KNOCK_NAME_BYTES];
    if (target->secret == NULL) return;
    const struct tw_knock_key key = {
        .bytes = target->secret->bytes, .size = TW_SECRET_BYTES, .run = target->run};
    tw_knock_write(&key, (uint64_t)time(NULL), name);
    TW_ASSERT(SSL_set_tlsext_host_name(ssl, name) == 1);
}

static bool tls_open(struct hostile *h, const struct hostile_target *target) {
    h->ctx = SSL_CTX_new(TLS_client_method());
    TW_ASSERT(h->ctx != NULL);
    SSL_CTX_set_cert_verify_callback(h->ctx, take_any, NULL);
    TW_ASSERT(SSL_CTX_use_certificate(h->ctx, h->identity.cert) == 1);
    TW_ASSERT(SSL_CTX_use_PrivateKey(h->ctx, h->identity.key) == 1);
    TW_ASSERT(SSL_CTX_set_alpn_protos(h->ctx, ALPN, sizeof(ALPN)) == 0);
    h->ssl = SSL_new(h->ctx);
    TW_ASSERT(h->ssl != NULL && SSL_set_fd(h->ssl, h->fd) == 1);
    show_knock(h->ssl, target);
    if (SSL_connect(h->ssl) != 1) return false;
    return SSL_export_keying_material(h->ssl, h->ekm, sizeof(h->ekm), TW_HELLO_EXPORT,
                                      strlen(TW_HELLO_EXPORT), NULL, 0, 0) == 1 &&
           SSL_export_keying_material(h->ssl, h->tag, sizeof(h->tag), TW_LINK_EXPORT,
                                      strlen(TW_LINK_EXPORT), NULL, 0, 0) == 1;
}

size_t hostile_client_hello(const struct hostile_target *target, uint8_t *bytes, size_t capacity) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    TW_ASSERT(ctx != NULL && ssl != NULL && in != NULL && out != NULL);
    TW_ASSERT(SSL_set_alpn_protos(ssl, ALPN, sizeof(ALPN)) == 0);
    TW_ASSERT(SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1);
    /* Nodes offer only X25519. The default of OpenSSL 3.5 would add a key share of over a
     * thousand bytes. */
    TW_ASSERT(SSL_set1_groups_list(ssl, "X25519") == 1);
    show_knock(ssl, target);
    SSL_set_bio(ssl, in, out);
    (void)SSL_connect(ssl);
    const int size = BIO_read(out, bytes, (int)capacity);
    TW_ASSERT(BIO_pending(out) == 0); /* it is whole */
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    TW_ASSERT(size > 0);
    return (size_t)size;
}

bool hostile_open(struct hostile *h, const struct hostile_target *target,
                  const struct hostile *like) {
    memset(h, 0, sizeof(*h));
    tw_reader_init(&h->reader, h->in, sizeof(h->in));
    TW_ASSERT(tw_identity_ephemeral(&h->identity, NULL) == TW_OK);
    if (like != NULL) {
        tw_identity_close(&h->identity);
        h->identity = like->identity;
        TW_ASSERT(X509_up_ref(h->identity.cert) == 1 && EVP_PKEY_up_ref(h->identity.key) == 1);
    }
    h->fd = hostile_tcp(target);
    if (h->fd >= 0 && tls_open(h, target)) return true;
    hostile_close(h);
    return false;
}

void hostile_close(struct hostile *h) {
    SSL_free(h->ssl);
    SSL_CTX_free(h->ctx);
    if (h->fd >= 0) (void)close(h->fd);
    tw_identity_close(&h->identity);
    h->ssl = NULL;
    h->ctx = NULL;
    h->fd = -1;
}

/* ---- saying -------------------------------------------------------------------------------- */

bool hostile_bytes(struct hostile *h, const void *bytes, size_t size) {
    size_t written = 0;
    return SSL_write_ex(h->ssl, bytes, size, &written) == 1 && written == size;
}

bool hostile_frame(struct hostile *h, uint16_t kind, const void *body, uint32_t size) {
    static uint8_t frame[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    tw_frame_header(frame, kind, 0, body, size);
    if (size > 0) memcpy(frame + TW_FRAME_HEADER_BYTES, body, size);
    return hostile_bytes(h, frame, TW_FRAME_HEADER_BYTES + (size_t)size);
}

void hostile_hello(struct hostile *h, const struct hostile_target *target, enum tw_role role,
                   const uint8_t *tag, struct tw_hello *hello) {
    *hello = (struct tw_hello){
        .version_min = TW_WIRE_VERSION,
        .version_max = TW_WIRE_VERSION,
        .role = role,
        .boot = 1,
        .run = target->run,
        .id = h->identity.id,
    };
    if (tag != NULL) memcpy(hello->link_tag, tag, TW_LINK_TAG_BYTES);
    static const struct tw_secret guessed = {{0x42}};
    tw_hello_prove(hello, target->secret != NULL ? target->secret : &guessed, h->ekm);
}

bool hostile_say(struct hostile *h, const struct tw_hello *hello) {
    uint8_t body[TW_HELLO_BYTES_MAX];
    return hostile_frame(h, TW_FRAME_HELLO, body, tw_hello_encode(hello, body));
}

bool hostile_join(struct hostile *h, const struct hostile_target *target,
                  const struct hostile *like) {
    struct tw_hello hello;
    struct tw_frame frame;
    if (!hostile_open(h, target, like)) return false;
    hostile_hello(h, target, TW_ROLE_CONTROL, NULL, &hello);
    if (hostile_say(h, &hello) && hostile_next(h, 10, &frame) == TW_OK &&
        frame.kind == TW_FRAME_HELLO)
        return true;
    if (frame.kind == TW_FRAME_GOODBYE)
        h->has_goodbye =
            tw_goodbye_decode(frame.body, frame.body_bytes, &h->goodbye, NULL) == TW_OK;
    hostile_close(h);
    return false;
}

bool hostile_message(struct hostile *h, const struct tw_message *message) {
    static uint8_t body[TW_CONTROL_BYTES_MAX];
    size_t size = 0;
    TW_ASSERT(tw_control_encode(message, body, sizeof(body), &size, NULL) == TW_OK);
    return hostile_frame(h, (uint16_t)message->kind, body, (uint32_t)size);
}

/* ---- hearing ------------------------------------------------------------------------------- */

static bool is_readable(const struct hostile *h, double until_s) {
    if (SSL_pending(h->ssl) > 0) return true;
    const double left_s = until_s - now_s();
    struct pollfd at = {.fd = h->fd, .events = POLLIN};
    return left_s > 0 && poll(&at, 1, (int)(left_s * 1e3) + 1) > 0;
}

enum tw_status hostile_next(struct hostile *h, double patience_s, struct tw_frame *frame) {
    const double until_s = now_s() + patience_s;
    struct tw_error err;
    *frame = (struct tw_frame){0};
    for (;;) {
        size_t space = 0, got = 0;
        const enum tw_status status = tw_reader_next(&h->reader, frame, &err);
        if (status != TW_AGAIN) return status;
        if (!is_readable(h, until_s)) return TW_AGAIN;
        uint8_t *to = tw_reader_space(&h->reader, &space);
        if (SSL_read_ex(h->ssl, to, space, &got) != 1) return TW_IO;
        tw_reader_fill(&h->reader, got);
    }
}

bool hostile_ends(struct hostile *h, double patience_s) {
    const double until_s = now_s() + patience_s;
    struct tw_frame frame;
    enum tw_status status;
    while ((status = hostile_next(h, until_s - now_s(), &frame)) == TW_OK) {
        if (frame.kind != TW_FRAME_GOODBYE) continue;
        h->has_goodbye =
            tw_goodbye_decode(frame.body, frame.body_bytes, &h->goodbye, NULL) == TW_OK;
    }
    return status == TW_IO;
}
