/* cert.h - admission certificates: which nodes may be in a run with security.admission = owner, and
 * until when.
 *
 * PROTOCOL.md section 11 is normative. The owner of a run (an Ed25519 key, `security.owner` of the
 * manifest) signs what a node may do: train, admit others, and vote. A node that may admit signs in
 * the same way. A chain thus has one or two certificates: the node's own, then that of the node
 * that signed it. Bytes, little-endian:
 *
 *    0  magic "TWA1"            16  until, unix seconds u64    96  issuer's public key  32 bytes
 *    4  may u32                 24  serial u64                128  signature of the issuer
 *    8  from, unix seconds u64  32  run id, 64 node id             64 bytes
 *
 * Pure: daemon/auth/identity.h signs and verifies the bytes that tw_cert_signed gives. */
#ifndef TW_PROTO_CERT_H
#define TW_PROTO_CERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/proof.h"

enum tw_cert_may {
    TW_CERT_TRAIN = 1,    /* be a member of the run: have links, train, vote */
    TW_CERT_ADMIT = 2,    /* sign certificates for nodes that train */
    TW_CERT_VOTELESS = 4, /* a restriction: no vote, neither for the node nor for nodes that it
                             admits */
};

enum {
    TW_CERT_BYTES = 192,
    TW_CERTS_MAX = 2,
    TW_CERT_DOMAIN_BYTES = 22, /* "thinwire-admission-v1" and NUL */
    TW_CERT_SIGNED_BYTES = TW_CERT_DOMAIN_BYTES + TW_CERT_BYTES - TW_SIGNATURE_BYTES,
    TW_CERT_SLACK_S = 300, /* largest clock difference that is ignored */
};

struct tw_cert {
    uint32_t may; /* set of enum tw_cert_may, with at least one right */
    uint64_t from_s, until_s, serial;
    struct tw_id run, node;
    struct tw_id issuer; /* public key of the signer: 32 bytes, like an id */
    uint8_t signature[TW_SIGNATURE_BYTES];
};

/* A node's own certificate and, if a node signed it, that node's certificate. */
struct tw_certs {
    uint32_t count; /* 0: none */
    struct tw_cert certs[TW_CERTS_MAX];
};

/* Writes the bytes that the issuer signs: the domain, then the certificate without its signature.
 */
void tw_cert_signed(const struct tw_cert *cert, uint8_t text[TW_CERT_SIGNED_BYTES]);

/* Writes all certificates and returns the number of bytes, a multiple of TW_CERT_BYTES. */
size_t tw_certs_encode(const struct tw_certs *certs, uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES]);

/* Decodes one or two certificates from untrusted bytes. The TW_PROTO error names the field. No
 * signature is verified. */
enum tw_status tw_certs_decode(const uint8_t *bytes, size_t size, struct tw_certs *certs,
                               struct tw_error *err);

/* A node that asks for admission, the right that it needs, and the time of the check. */
struct tw_cert_question {
    struct tw_id owner;   /* security.owner of the run */
    struct tw_id run;     /* id of the run */
    struct tw_id node;    /* node whose id TLS proved, or node to be admitted */
    enum tw_cert_may may; /* right that the node needs */
    uint64_t now_s;       /* unix seconds by this node's clock */
    uint64_t their_now_s; /* clock of the other side; 0: not known */
};

/* Checks everything except the signatures: run, node, the chain up to the owner, the right, and the
 * time. Returns TW_NOT_ADMITTED, or TW_BAD_CLOCK if only a difference between the two clocks
 * explains the failure. The message states the reason to both ends; dial.h adds the remedy.
 */
enum tw_status tw_certs_check(const struct tw_certs *certs, const struct tw_cert_question *question,
                              struct tw_error *err);

/* Returns the earliest expiry in the chain, in Unix seconds. */
uint64_t tw_certs_until(const struct tw_certs *certs);

/* Returns true if the chain gives its node a vote. False for no certificates. */
bool tw_certs_has_vote(const struct tw_certs *certs);

/* Returns the id of the node that signed the first certificate; zero if the run's owner signed it.
 */
struct tw_id tw_certs_admitter(const struct tw_certs *certs);

#endif
