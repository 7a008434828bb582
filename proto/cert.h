/* cert.h - documents that the owner of a run signs: certificates of nodes, the list of revoked
 * nodes, recalls; and these as text for people. PROTOCOL.md section 11 is normative. Pure:
 * daemon/auth/identity.h signs and verifies. */
#ifndef TW_PROTO_CERT_H
#define TW_PROTO_CERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

/* ---- certificates --------------------------------------------------------------------------- */

/* Admission certificates: which nodes may be in a run with security.admission = owner, and
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

/* ---- revocations ---------------------------------------------------------------------------- */

/* The signed list of nodes that the owner of a run revoked. Only a newer list replaces
 * it.
 *
 * PROTOCOL.md section 11 is normative. The body of a REVOKE frame and the file that a node keeps
 * are the same bytes, little-endian:
 *
 *    0  magic "TWR1"    8  version u64              24  run id, 32 bytes
 *    4  N u32          16  made, unix seconds u64   56  N node ids, ascending; then 64 of signature
 *
 * One possible entry is not a node: while tw_revoked_pause_entry is on the list, training pauses in
 * the whole run. The pause is thus signed, spread, stored and replaced like the list itself.
 *
 * Pure: daemon/auth/identity.h signs and verifies. */

enum {
    TW_REVOKED_MAX = 1024, /* ids on the list */
    TW_REVOKED_HEAD_BYTES = 56,
    TW_REVOKED_BYTES_MAX = TW_REVOKED_HEAD_BYTES + 32 * TW_REVOKED_MAX + TW_SIGNATURE_BYTES,
    TW_REVOKED_DOMAIN_BYTES = 23, /* "thinwire-revocation-v1" and NUL */
    TW_REVOKED_SIGNED_BYTES = TW_REVOKED_DOMAIN_BYTES + 32,
};

struct tw_revoked {
    uint64_t version; /* number of the list; 0: there is no list, and no node is revoked */
    uint64_t made_s;  /* Unix seconds at which the list was made; for people only */
    struct tw_id run;
    uint32_t count;
    struct tw_id nodes[TW_REVOKED_MAX]; /* ascending */
    uint8_t signature[TW_SIGNATURE_BYTES];
};

/* Returns the number of bytes written. */
size_t tw_revoked_encode(const struct tw_revoked *list, uint8_t bytes[TW_REVOKED_BYTES_MAX]);

/* Decodes untrusted bytes. The TW_PROTO error names the field. The signature is not verified. */
enum tw_status tw_revoked_decode(const uint8_t *bytes, size_t size, struct tw_revoked *list,
                                 struct tw_error *err);

/* Writes the bytes that the owner signs: the domain, then the SHA-256 of all bytes before the
 * signature. */
void tw_revoked_signed(const struct tw_revoked *list, uint8_t text[TW_REVOKED_SIGNED_BYTES]);

bool tw_revoked_has(const struct tw_revoked *list, const struct tw_id *node);

/* The entry that pauses the run: 32 bytes of text, not the id of any node. */
extern const struct tw_id tw_revoked_pause_entry;
bool tw_revoked_is_paused(const struct tw_revoked *list);
/* Number of nodes on the list, without the pause entry. */
uint32_t tw_revoked_nodes(const struct tw_revoked *list);

/* Adds a node to the list or removes it. Returns true if that changed the list, which makes its
 * signature invalid. Adding to a full list changes nothing. */
bool tw_revoked_add(struct tw_revoked *list, const struct tw_id *node);
bool tw_revoked_remove(struct tw_revoked *list, const struct tw_id *node);

/* Returns TW_REVOKED if the node, or the node that admitted it, is on the list. */
enum tw_status tw_revoked_check(const struct tw_revoked *list, const struct tw_certs *certs,
                                struct tw_error *err);

/* ---- recalls -------------------------------------------------------------------------------- */

/* RECALL, the signed order of the run's owner that returns the run to the state after a
 * round. Only a newer order replaces it.
 *
 * PROTOCOL.md section 11 is normative. The body of a RECALL frame and the file that a node keeps
 * are the same bytes, little-endian:
 *
 *    0  magic "TWB1"     8  version u64           24  run id, 32 bytes      88  rounds u64
 *    4  zero u32        16  made, unix seconds    56  lineage, 32 bytes     96  signature, 64 bytes
 *
 * Pure: daemon/auth/identity.h signs and verifies. */

enum {
    TW_RECALL_TEXT_BYTES = 96, /* all bytes before the signature */
    TW_RECALL_BYTES = TW_RECALL_TEXT_BYTES + TW_SIGNATURE_BYTES,
    TW_RECALL_DOMAIN_BYTES = 19, /* "thinwire-recall-v1" and NUL */
    TW_RECALL_SIGNED_BYTES = TW_RECALL_DOMAIN_BYTES + TW_RECALL_TEXT_BYTES,
};

struct tw_recall {
    uint64_t version; /* number of the recall; 0: there is none */
    uint64_t made_s;  /* Unix seconds at which it was made; for people only */
    struct tw_id run;
    struct tw_id lineage; /* lineage that the run continues from */
    uint64_t rounds;      /* rounds in the state to return to, the position of its checkpoint; at
                             least 1 */
    uint8_t signature[TW_SIGNATURE_BYTES];
};

void tw_recall_encode(const struct tw_recall *recall, uint8_t bytes[TW_RECALL_BYTES]);

/* Decodes untrusted bytes. The TW_PROTO error names the field. The signature is not verified. */
enum tw_status tw_recall_decode(const uint8_t *bytes, size_t size, struct tw_recall *recall,
                                struct tw_error *err);

/* Writes the bytes that the owner signs: the domain, then all bytes before the signature. */
void tw_recall_signed(const struct tw_recall *recall, uint8_t text[TW_RECALL_SIGNED_BYTES]);

/* Returns the id of a lineage without members, in which a node that lacks the recalled state waits:
 * the SHA-256 of the signed bytes. */
struct tw_id tw_recall_awaited(const struct tw_recall *recall);

/* ---- text for people ------------------------------------------------------------------------ */

/* Certificates and lists as text that survives mail and clipboards: a title line, then
 * lines of 64 hex digits. Pure. */

#define TW_ARMOUR_CERTS "thinwire-certificate 1"
#define TW_ARMOUR_REVOKED "thinwire-revocations 1"
#define TW_ARMOUR_RECALL "thinwire-recall 1"

/* Buffer size for the text of `bytes` bytes, including NUL. */
#define TW_ARMOUR_BYTES(bytes) (40 + 2 * (bytes) + ((bytes) + 31) / 32)

/* Writes the text and a NUL to text[TW_ARMOUR_BYTES(size)]. Returns its length. */
size_t tw_armour_encode(const char *title, const uint8_t *bytes, size_t size, char *text);

/* Reads text that a person pasted: space around lines, CRs and empty lines are allowed. Returns
 * TW_CONFIG if the title differs, if a character is no hex digit, or if there are more bytes than
 * `capacity`. */
enum tw_status tw_armour_decode(const char *title, const char *text, size_t text_size,
                                uint8_t *bytes, size_t capacity, size_t *size_out,
                                struct tw_error *err);

#endif
