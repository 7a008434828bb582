/* handshake.h - HELLO and GOODBYE: the first and the last frame of a connection. Pure bytes.
 *
 * PROTOCOL.md section 3 is normative. HELLO body, little-endian:
 *
 *    0  version min u32      16  run id   32 bytes     128  addresses count u32
 *    4  version max u32      48  node id  32 bytes     132  per address: length u8, then
 *    8  role u32             80  link tag 16 bytes          "host:port" without NUL
 *   12  boot u32             96  proof    32 bytes      then the extensions: proto/hello.h
 *
 *    proof = HMAC-SHA256(run secret, "thinwire-join" || EKM || body without the proof)
 *
 * EKM is 32 bytes of keying material of this TLS session, label TW_HELLO_EXPORT. A proof is thus
 * valid in this session only and can be neither replayed nor relayed. While one secret replaces
 * another, either is accepted; the dialled node answers with the secret that the dialler used.
 * `open` runs use 32 zero bytes for the secret.
 *
 * The link tag of a bulk connection names its control connection: the first 16 bytes exported
 * there, label TW_LINK_EXPORT. It is zero on control.
 *
 * GOODBYE body: enum tw_status u32, then a sentence for the other node's log. */
#ifndef TW_DAEMON_NET_HANDSHAKE_H
#define TW_DAEMON_NET_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/auth/identity.h"
#include "daemon/net/tls.h"
#include "proto/hello.h"
#include "proto/ticket.h"

#define TW_HELLO_EXPORT "EXPORTER-thinwire-join-v1"
#define TW_LINK_EXPORT "EXPORTER-thinwire-link-v1"

/* Purpose of a connection. A guest presents a ticket, receives a WELCOME and leaves. A probe tests
 * whether an address can be dialled and leaves. A relay connection is one end of a pipe: after
 * HELLO it carries bytes of other nodes. */
enum tw_role { TW_ROLE_CONTROL, TW_ROLE_BULK, TW_ROLE_GUEST, TW_ROLE_PROBE, TW_ROLE_RELAY };

enum { TW_LINK_TAG_BYTES = 16, TW_PROOF_BYTES = 32 };

struct tw_hello {
    uint32_t version_min, version_max; /* versions of frames and messages */
    enum tw_role role;
    uint32_t boot; /* number of starts of the node; increases */
    struct tw_id run, id;
    uint8_t link_tag[TW_LINK_TAG_BYTES];
    uint8_t proof[TW_PROOF_BYTES];
    uint32_t addrs_count;
    char addrs[TW_ADDRS_MAX][TW_ADDR_BYTES];
    /* Extensions; unknown ones are kept too, because the proof covers every byte. */
    struct tw_extensions extensions;
};

struct tw_goodbye {
    enum tw_status status;
    char sentence[256];
};

/* Writes the body. Returns its size in bytes. */
uint32_t tw_hello_encode(const struct tw_hello *hello, uint8_t body[TW_HELLO_BYTES_MAX]);

/* Strict inverse of tw_hello_encode, for untrusted bytes. The sentence of TW_PROTO names the field.
 * Addresses have the form host:port, but may point anywhere. */
enum tw_status tw_hello_decode(const uint8_t *body, size_t size, struct tw_hello *hello,
                               struct tw_error *err);

/* Computes hello->proof from all other fields. A NULL secret means an `open` run. */
void tw_hello_prove(struct tw_hello *hello, const struct tw_secret *secret,
                    const uint8_t ekm[TW_TLS_EXPORT_BYTES]);

/* Checks that `theirs` belongs to this run. `authenticated` is the id that the other node's TLS key
 * proved. Checks in this order: TW_PROTO (the HELLO claims another id), TW_VERSION, TW_OTHER_RUN.
 * The error text reveals nothing about our run, as its reader may have no right to be in it. The
 * text is the detail of tw_dial_sentence, at this node and, sent by GOODBYE, at the other. */
enum tw_status tw_hello_check(const struct tw_hello *theirs, const struct tw_hello *ours,
                              const struct tw_id *authenticated, struct tw_error *err);

/* Checks the proof in `theirs` against each of our secrets (none in an `open` run). Sets *which to
 * the index of the secret that matched, with which to answer. Otherwise returns TW_WRONG_SECRET,
 * with a detail for tw_dial_sentence. */
enum tw_status tw_hello_check_proof(const struct tw_hello *theirs, const struct tw_hello *ours,
                                    const struct tw_secrets *secrets,
                                    const uint8_t ekm[TW_TLS_EXPORT_BYTES], uint32_t *which,
                                    struct tw_error *err);

/* Like the two functions above, but between a guest and its inviter, with the ticket's key of
 * TW_TICKET_KEY_BYTES bytes. The check returns TW_TICKET_UNKNOWN if the proof was made with another
 * key. */
void tw_hello_prove_ticket(struct tw_hello *hello, const uint8_t *key,
                           const uint8_t ekm[TW_TLS_EXPORT_BYTES]);
enum tw_status tw_hello_check_ticket(const struct tw_hello *theirs, const uint8_t *key,
                                     const uint8_t ekm[TW_TLS_EXPORT_BYTES], struct tw_error *err);

uint32_t tw_goodbye_encode(enum tw_status status, const char *sentence,
                           uint8_t body[TW_HELLO_BYTES_MAX]);

/* Decodes a GOODBYE for the log: replaces unprintable bytes by '?', double quotes by single ones
 * and unknown codes by TW_PROTO, and truncates long sentences. */
enum tw_status tw_goodbye_decode(const uint8_t *body, size_t size, struct tw_goodbye *goodbye,
                                 struct tw_error *err);

#endif
