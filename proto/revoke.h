/* revoke.h - the signed list of nodes that the owner of a run revoked. Only a newer list replaces
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

#endif
