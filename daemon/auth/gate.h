/* gate.h - runs with security.admission = owner: this node's certificates, the owner's revocations,
 * and checks of other nodes' certificates. Rules: PROTOCOL.md section 11.
 *
 * The owner of the struct reads the files (cert_file.h); gate.c touches no disk. One thread:
 * the loop's, or a command's. */
#ifndef TW_DAEMON_AUTH_GATE_H
#define TW_DAEMON_AUTH_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/auth/identity.h"
#include "proto/cert.h"
#include "proto/recall.h"
#include "proto/revoke.h"

enum {
    TW_GATE_BYTES_MAX = 8 + TW_CERTS_MAX * TW_CERT_BYTES, /* extension 4 of HELLO */
    TW_GATE_LIFE_S =
        30 * 24 * 3600, /* longest lifetime of a certificate that a node signs for another */
};

struct tw_gate {
    struct tw_id run, owner;            /* the run's id, and its security.owner */
    const struct tw_identity *identity; /* borrowed */
    uint64_t (*clock_s)(void);          /* returns unix seconds; tests replace it */
    struct tw_certs own; /* this node's own certificates; empty: no node will admit this one */
    struct tw_revoked revoked; /* revoked nodes; version 0: no list yet */
    struct tw_recall recall;   /* newest order to return to a round; version 0: none yet */
};

/* Uses the system's clock. */
void tw_gate_init(struct tw_gate *gate, const struct tw_id *run, const struct tw_id *owner,
                  const struct tw_identity *identity);

/* Makes these certificates this node's own. They must be valid except for the time: an expired one
 * is renewed while the node runs. Fails as tw_gate_judge does. */
enum tw_status tw_gate_adopt(struct tw_gate *gate, const struct tw_certs *certs,
                             struct tw_error *err);

/* ---- judging ------------------------------------------------------------------------------- */

/* Checks that these certificates allow `node` to do `may` now: rules, signatures, revocations.
 * `their_now_s`: clock of the node that presents them, 0: unknown. TW_NOT_ADMITTED, TW_REVOKED,
 * TW_BAD_CLOCK; the sentence is written for both ends. */
enum tw_status tw_gate_judge(const struct tw_gate *gate, const struct tw_certs *certs,
                             const struct tw_id *node, enum tw_cert_may may, uint64_t their_now_s,
                             struct tw_error *err);

/* Writes extension 4: this node's clock and certificates. Returns the bytes written. */
uint32_t tw_gate_encode(const struct tw_gate *gate, uint8_t bytes[TW_GATE_BYTES_MAX]);

/* Checks that the node that TLS proved may come in. `bytes`: its extension 4 (NULL: none). Fails as
 * tw_gate_judge does, and with TW_PROTO. *certs is set on TW_OK. */
enum tw_status tw_gate_check(const struct tw_gate *gate, const struct tw_id *node,
                             const uint8_t *bytes, uint32_t size, struct tw_certs *certs,
                             struct tw_error *err);

/* Checks again certificates that were valid before: TW_NOT_ADMITTED (expired) or TW_REVOKED. */
enum tw_status tw_gate_review(const struct tw_gate *gate, const struct tw_certs *certs,
                              struct tw_error *err);

/* ---- revocations --------------------------------------------------------------------------- */

/* Takes untrusted bytes of a list. TW_OK: it is newer, signed by the owner, and now this node's
 * list. TW_AGAIN: this node's list is as new. TW_PROTO or TW_NOT_ADMITTED: not a list of this run
 * and its owner. */
enum tw_status tw_gate_revoke(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                              struct tw_error *err);

/* ---- recalls ------------------------------------------------------------------------------- */

/* Takes untrusted bytes of a recall. TW_OK: it is newer, signed by the owner, and now this node's.
 * TW_AGAIN: this node's is as new. TW_PROTO or TW_NOT_ADMITTED: not a recall of this run and its
 * owner. */
enum tw_status tw_gate_recall(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                              struct tw_error *err);

/* ---- renewing ------------------------------------------------------------------------------ */

/* True if this node should ask for a new certificate now: in the last third of the lifetime. Only
 * certificates that a node signed are renewed; the owner renews by hand. */
bool tw_gate_is_due(const struct tw_gate *gate);

/* True if a person should be warned that the certificate expires soon. If nodes renew it, this is
 * long after the renewal was due. If the owner signed it, this is 14 days before the end, or the
 * last third of the lifetime. */
bool tw_gate_is_late(const struct tw_gate *gate);

/* True if valid certificates of a peer allow it to sign for others. */
bool tw_gate_is_admitter(const struct tw_certs *certs);

/* Renews the valid certificates of a peer, for the same lifetime. TW_AGAIN: half of their lifetime
 * is left. TW_NOT_ADMITTED: the owner signed them. Other failures as tw_gate_admit. */
enum tw_status tw_gate_renew(const struct tw_gate *gate, const struct tw_certs *old,
                             struct tw_certs *fresh, struct tw_error *err);

/* Takes untrusted bytes of a CERTS frame: makes them this node's own if they are valid now and last
 * longer. TW_AGAIN: they do not last longer. TW_PROTO; otherwise as tw_gate_judge. */
enum tw_status tw_gate_take(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                            struct tw_error *err);

/* ---- admitting ----------------------------------------------------------------------------- */

/* Checks that this node may sign for others now. Fails as tw_gate_judge does. */
enum tw_status tw_gate_can_admit(const struct tw_gate *gate, struct tw_error *err);

/* Signs a certificate that lets a node train from now on. It lasts for the least of life_s,
 * TW_GATE_LIFE_S and the rest of this node's own certificates. TW_REVOKED if the node is revoked;
 * otherwise as tw_gate_can_admit. */
enum tw_status tw_gate_admit(const struct tw_gate *gate, const struct tw_id *node, uint64_t life_s,
                             struct tw_certs *certs, struct tw_error *err);

#endif
