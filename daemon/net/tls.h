/* tls.h - TLS 1.3 over memory: ciphertext in, ciphertext out, no socket.
 *
 * One fixed profile: TLS 1.3, X25519, Ed25519 certificates on both sides, AES-128-GCM or
 * ChaCha20-Poly1305, ALPN "thinwire/1". There are no certificate authorities, names, dates,
 * sessions or session tickets. A certificate is valid if its key is Ed25519 and, on a dialled
 * connection with an expected id, hashes to that id. */
#ifndef TW_DAEMON_NET_TLS_H
#define TW_DAEMON_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/auth/identity.h"

enum {
    TW_TLS_EXPORT_BYTES = 32,
    TW_TLS_UPDATES_MAX = 16, /* post-handshake messages that a peer may send per minute */
};

/* Records that a sender encrypts with one key before it updates the key. AES-GCM allows 2^24.5
 * records (RFC 8446 section 5.5). */
#define TW_TLS_KEY_RECORDS (UINT32_C(1) << 23)

struct tw_tls_context {
    struct ssl_ctx_st *ctx; /* owned here; shared by all connections of the process */
    uint32_t key_records;   /* TW_TLS_KEY_RECORDS, or less in tests */
};

/* Borrows `identity` during the call only. */
enum tw_status tw_tls_context_init(struct tw_tls_context *context,
                                   const struct tw_identity *identity, struct tw_error *err);
void tw_tls_context_deinit(struct tw_tls_context *context);

/* One connection. Must not move in memory between init and deinit. */
struct tw_tls {
    struct ssl_st *ssl;
    struct bio_st *in, *out; /* owned by ssl */
    bool has_expected, has_id, is_pin_broken, is_secured;
    /* On accepted connections, judges the ClientHello before anything is computed or sent for it;
     * NULL accepts all. `name` is the untrusted server name of `size` bytes, 0 if there is none.
     * Unless it returns TW_OK, the session fails with the returned status and sends nothing. */
    enum tw_status (*judge)(void *user, const char *name, size_t size, struct tw_error *err);
    void *judge_user;
    bool is_judged, is_turned_away; /* `judge` was called; `judge` refused the ClientHello */
    struct tw_error *judge_error;   /* error of `judge`; valid while OpenSSL calls it */
    struct tw_id expected;
    struct tw_id id;        /* id of the peer, once secured */
    uint32_t updates_count; /* key updates of the peer */
    uint64_t updates_since_us;
    uint32_t key_records, records; /* records after which this side updates its key; records since
                                      the last update */
};

/* `expected` may be NULL; only a dialler pins the id. Fails only with TW_NOMEM. */
enum tw_status tw_tls_init(struct tw_tls *tls, const struct tw_tls_context *context,
                           bool is_dialled, const struct tw_id *expected, struct tw_error *err);
void tw_tls_deinit(struct tw_tls *tls);

/* Sets the server name of the ClientHello, before the first tw_tls_handshake. */
void tw_tls_name(struct tw_tls *tls, const char *name);
/* Pads each following record to a multiple of `bytes` with zeros that the peer ignores. */
void tw_tls_pad(struct tw_tls *tls, size_t bytes);

/* Moves a connection to other memory. `from` is empty afterwards, as after deinit. */
void tw_tls_move(struct tw_tls *to, struct tw_tls *from);

/* Feeds ciphertext that arrived. The caller limits the bytes that are fed and not read yet. */
enum tw_status tw_tls_feed(struct tw_tls *tls, const uint8_t *bytes, size_t size,
                           struct tw_error *err);

/* Continues the handshake. Returns TW_OK when secured (`id` is then the peer's), TW_AGAIN if it
 * needs more bytes, TW_WRONG_ID if the peer is not the expected node (`id` is the one found), the
 * status of a `judge` that refused, or TW_TLS. Even after a failure, send the bytes of tw_tls_take:
 * they are the alert. */
enum tw_status tw_tls_handshake(struct tw_tls *tls, struct tw_error *err);

/* Decrypts into `to`. Returns TW_OK with *got > 0, TW_AGAIN if it needs more bytes, TW_IO if the
 * peer ended the session properly, TW_TLS for a broken record, or TW_PROTO for a flood of key
 * updates. */
enum tw_status tw_tls_read(struct tw_tls *tls, uint8_t *to, size_t capacity, uint64_t now_us,
                           size_t *got, struct tw_error *err);

/* Encrypts all `size` bytes, 1 to TW_TLS_RECORD_BYTES_MAX. */
enum tw_status tw_tls_write(struct tw_tls *tls, const uint8_t *bytes, size_t size,
                            struct tw_error *err);

/* tw_tls_pending returns the number of ciphertext bytes to send. tw_tls_take moves some of them to
 * `to` and returns their number. */
size_t tw_tls_pending(const struct tw_tls *tls);
size_t tw_tls_take(struct tw_tls *tls, uint8_t *to, size_t capacity);

/* Queues the end-of-session alert. */
void tw_tls_shutdown(struct tw_tls *tls);

/* Exports keying material that only the two ends of this session can compute (RFC 8446 section
 * 7.5). */
enum tw_status tw_tls_export(struct tw_tls *tls, const char *label,
                             uint8_t out[TW_TLS_EXPORT_BYTES], struct tw_error *err);

#endif
