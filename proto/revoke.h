/* revoke.h - the nodes that the owner of a run revoked: one signed list, which only a newer list
 * replaces.
 *
 * PROTOCOL.md section 11 is normative. The body of a REVOKE frame and the file that a node keeps
 * are the same bytes, little-endian:
 *
 *    0  magic "TWR1"    8  version u64              24  run id, 32 bytes
 *    4  N u32          16  made, unix seconds u64   56  N node ids, ascending; then 64 of signature
 *
 * One entry is no node: with tw_revoked_pause_entry on the list, training pauses in the whole run.
 * So the order to pause is signed, spreads, is kept and is replaced as the list is.
 *
 * Pure: daemon/auth/signature.h signs and verifies. */
#ifndef TW_PROTO_REVOKE_H
#define TW_PROTO_REVOKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/cert.h"

enum {
    TW_REVOKED_MAX = 1024, /* ids on the list */
    TW_REVOKED_HEAD_BYTES = 56,
    TW_REVOKED_BYTES_MAX = TW_REVOKED_HEAD_BYTES + 32 * TW_REVOKED_MAX + TW_SIGNATURE_BYTES,
    TW_REVOKED_DOMAIN_BYTES = 23, /* "thinwire-revocation-v1" and NUL */
    TW_REVOKED_SIGNED_BYTES = TW_REVOKED_DOMAIN_BYTES + 32,
};

struct tw_revoked {
    uint64_t version; /* number of the list; 0: there is no list, and no node is revoked */
    uint64_t made_s;  /* for people only */
    struct tw_id run;
    uint32_t count;
    struct tw_id nodes[TW_REVOKED_MAX]; /* ascending */
    uint8_t signature[TW_SIGNATURE_BYTES];
};

/* Returns the byte count. */
size_t tw_revoked_encode(const struct tw_revoked *list, uint8_t bytes[TW_REVOKED_BYTES_MAX]);

/* Strict inverse for untrusted bytes. TW_PROTO names the field. The signature is not verified. */
enum tw_status tw_revoked_decode(const uint8_t *bytes, size_t size, struct tw_revoked *list,
                                 struct tw_error *err);

/* The bytes that the owner signs: the domain, then the SHA-256 of all bytes before the signature.
 */
void tw_revoked_signed(const struct tw_revoked *list, uint8_t text[TW_REVOKED_SIGNED_BYTES]);

bool tw_revoked_has(const struct tw_revoked *list, const struct tw_id *node);

/* The entry that pauses the run: 32 bytes of text, for which nobody has a key. */
extern const struct tw_id tw_revoked_pause_entry;
bool tw_revoked_is_paused(const struct tw_revoked *list);
/* The nodes on the list: `count` without that entry. */
uint32_t tw_revoked_nodes(const struct tw_revoked *list);

/* Adds a node to the list or removes it; true if that changed the list. Adding to a full list
 * changes nothing. Afterwards the signature is stale. */
bool tw_revoked_add(struct tw_revoked *list, const struct tw_id *node);
bool tw_revoked_remove(struct tw_revoked *list, const struct tw_id *node);

/* TW_REVOKED if the node, or the node that admitted it, is on the list. */
enum tw_status tw_revoked_check(const struct tw_revoked *list, const struct tw_certs *certs,
                                struct tw_error *err);

#endif
