/* gate.h - runs with security.admission = owner: this node's certificates, whom the owner
 * revoked, and the judgement of others' certificates. Rules: PROTOCOL.md section 11.
 *
 * The files of it (cert_file.h) are read by who owns the struct; nothing here touches a disk.
 * One thread: the loop's, or a command's. */
#ifndef TW_DAEMON_AUTH_GATE_H
#define TW_DAEMON_AUTH_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/auth/identity.h"
#include "proto/cert.h"
#include "proto/revoke.h"

enum {
    TW_GATE_BYTES_MAX = 8 + TW_CERTS_MAX * TW_CERT_BYTES, /* extension 4 of HELLO */
    TW_GATE_LIFE_S = 30 * 24 * 3600, /* of a certificate an admitter signs, at most */
};

struct tw_gate {
    struct tw_id run, owner;            /* the run's id, and its security.owner */
    const struct tw_identity *identity; /* borrowed */
    uint64_t (*clock_s)(void);          /* unix seconds; tests have their own */
    struct tw_certs own;                /* none: nobody will let this node in */
    struct tw_revoked revoked;          /* version 0: nobody is */
};

/* Of the system's clock. */
void tw_gate_init(struct tw_gate *gate, const struct tw_id *run, const struct tw_id *owner,
                  const struct tw_identity *identity);

/* Makes these certificates this node's own. All but the time must be right: one that ran out is
 * renewed while the node runs. As tw_gate_judge. */
enum tw_status tw_gate_adopt(struct tw_gate *gate, const struct tw_certs *certs,
                             struct tw_error *err);

/* ---- judging ------------------------------------------------------------------------------- */

/* Are these certificates good for `node` to do `may` now? Rules, signatures and revocations.
 * `their_now_s`: the clock of who shows them, 0: not known. TW_NOT_ADMITTED, TW_REVOKED,
 * TW_BAD_CLOCK; the sentence is written for both ends. */
enum tw_status tw_gate_judge(const struct tw_gate *gate, const struct tw_certs *certs,
                             const struct tw_id *node, enum tw_cert_may may, uint64_t their_now_s,
                             struct tw_error *err);

/* Extension 4: this node's clock and certificates. Returns the byte count. */
uint32_t tw_gate_encode(const struct tw_gate *gate, uint8_t bytes[TW_GATE_BYTES_MAX]);

/* May the node that TLS proved come in, who sent these bytes (NULL: none) as extension 4? As
 * tw_gate_judge, and TW_PROTO. *certs is set when it is TW_OK. */
enum tw_status tw_gate_check(const struct tw_gate *gate, const struct tw_id *node,
                             const uint8_t *bytes, uint32_t size, struct tw_certs *certs,
                             struct tw_error *err);

/* Of certificates that were good once: did they run out, or was somebody in them revoked?
 * TW_NOT_ADMITTED, TW_REVOKED. */
enum tw_status tw_gate_review(const struct tw_gate *gate, const struct tw_certs *certs,
                              struct tw_error *err);

/* ---- revocations --------------------------------------------------------------------------- */

/* Untrusted bytes of a list: TW_OK when it is newer, signed by the owner, and now ours; TW_AGAIN
 * when ours is as new, TW_PROTO or TW_NOT_ADMITTED (another owner's, or another run's) when it is
 * no list of this run. */
enum tw_status tw_gate_revoke(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                              struct tw_error *err);

/* ---- renewing ------------------------------------------------------------------------------ */

/* Is it time to have this node's certificate renewed by a node that may admit? Only one that such a
 * node signed is, in the last third of its life: who signed by hand renews by hand. */
bool tw_gate_is_due(const struct tw_gate *gate);

/* Is its end so near that a person should hear of it? For what nodes renew, when that should have
 * happened long ago; for what the owner signed 14 days before, or in the last third. */
bool tw_gate_is_late(const struct tw_gate *gate);

/* Of a peer's certificates, that are good: may it sign for others? */
bool tw_gate_is_admitter(const struct tw_certs *certs);

/* A peer with these certificates, that are good, asks for new ones: signs them, for as long as the
 * old ones were made for. TW_AGAIN when half of their life is left; TW_NOT_ADMITTED when the owner
 * signed them; as tw_gate_admit. */
enum tw_status tw_gate_renew(const struct tw_gate *gate, const struct tw_certs *old,
                             struct tw_certs *fresh, struct tw_error *err);

/* Untrusted bytes of a CERTS frame: makes them this node's own when they are good now and last
 * longer. TW_AGAIN when they do not; TW_PROTO; as tw_gate_judge. */
enum tw_status tw_gate_take(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                            struct tw_error *err);

/* ---- admitting ----------------------------------------------------------------------------- */

/* May this node sign for others now? As tw_gate_judge. */
enum tw_status tw_gate_can_admit(const struct tw_gate *gate, struct tw_error *err);

/* Signs a certificate for a node that shall train, from now on for life_s at most: no longer than
 * TW_GATE_LIFE_S and this node's own right. TW_REVOKED for who was shut out, and as above. */
enum tw_status tw_gate_admit(const struct tw_gate *gate, const struct tw_id *node, uint64_t life_s,
                             struct tw_certs *certs, struct tw_error *err);

#endif
