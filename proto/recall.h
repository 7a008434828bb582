/* recall.h - the owner's order that returns a run to the state after a round: one signed statement,
 * which only a newer one replaces.
 *
 * PROTOCOL.md section 11 is normative. The body of a RECALL frame and the file that a node keeps
 * are the same bytes, little-endian:
 *
 *    0  magic "TWB1"     8  version u64           24  run id, 32 bytes      88  rounds u64
 *    4  zero u32        16  made, unix seconds    56  lineage, 32 bytes     96  signature, 64 bytes
 *
 * Pure: daemon/auth/signature.h signs and verifies. */
#ifndef TW_PROTO_RECALL_H
#define TW_PROTO_RECALL_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/cert.h"

enum {
    TW_RECALL_TEXT_BYTES = 96, /* all bytes before the signature */
    TW_RECALL_BYTES = TW_RECALL_TEXT_BYTES + TW_SIGNATURE_BYTES,
    TW_RECALL_DOMAIN_BYTES = 19, /* "thinwire-recall-v1" and NUL */
    TW_RECALL_SIGNED_BYTES = TW_RECALL_DOMAIN_BYTES + TW_RECALL_TEXT_BYTES,
};

struct tw_recall {
    uint64_t version; /* number of the order; 0: there is none */
    uint64_t made_s;  /* for people only */
    struct tw_id run;
    struct tw_id lineage; /* lineage whose state counts from now on */
    uint64_t rounds;      /* rounds in that state: the position of the checkpoint; at least 1 */
    uint8_t signature[TW_SIGNATURE_BYTES];
};

void tw_recall_encode(const struct tw_recall *recall, uint8_t bytes[TW_RECALL_BYTES]);

/* Strict inverse for untrusted bytes. TW_PROTO names the field. The signature is not verified. */
enum tw_status tw_recall_decode(const uint8_t *bytes, size_t size, struct tw_recall *recall,
                                struct tw_error *err);

/* The bytes that the owner signs: the domain, then all bytes before the signature. */
void tw_recall_signed(const struct tw_recall *recall, uint8_t text[TW_RECALL_SIGNED_BYTES]);

/* The lineage of nobody in which a node waits that does not hold the state: the SHA-256 of the
 * signed bytes. */
struct tw_id tw_recall_awaited(const struct tw_recall *recall);

#endif
