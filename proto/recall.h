/* recall.h - RECALL, the signed order of the run's owner that returns the run to the state after a
 * round. Only a newer order replaces it.
 *
 * PROTOCOL.md section 11 is normative. The body of a RECALL frame and the file that a node keeps
 * are the same bytes, little-endian:
 *
 *    0  magic "TWB1"     8  version u64           24  run id, 32 bytes      88  rounds u64
 *    4  zero u32        16  made, unix seconds    56  lineage, 32 bytes     96  signature, 64 bytes
 *
 * Pure: daemon/auth/identity.h signs and verifies. */
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

#endif
