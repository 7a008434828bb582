/* gate.h - admission in runs with security.admission = owner: this node's certificates, the owner's
 * revocations, and checks of other nodes' certificates. Rules: PROTOCOL.md section 11.
 *
 * Only the functions under "files" touch the disk. Only one thread may use
 * a gate: the loop's, or a command's. */
#ifndef TW_DAEMON_AUTH_GATE_H
#define TW_DAEMON_AUTH_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/auth/identity.h"
#include "proto/cert.h"

enum {
    TW_GATE_BYTES_MAX = 8 + TW_CERTS_MAX * TW_CERT_BYTES, /* size of extension 4 of HELLO */
    /* Longest lifetime of a certificate that a node signs for another. It is renewed over a link in
     * its last third, so a group that is switched off for four months loses nobody. The owner's
     * list shuts nodes out; the calendar need not. */
    TW_GATE_LIFE_S = 365 * 24 * 3600,
};

struct tw_gate {
    struct tw_id run, owner;            /* the run's id, and its security.owner */
    const struct tw_identity *identity; /* borrowed */
    uint64_t (*clock_s)(void);          /* clock in Unix seconds; tests replace it */
    struct tw_certs own;       /* this node's own certificates; empty: no node admits this one */
    struct tw_revoked revoked; /* revoked nodes; version 0: no list yet */
    struct tw_recall recall;   /* newest recall; version 0: none yet */
};

/* Makes a gate without certificates or lists, which uses the system's clock. */
void tw_gate_init(struct tw_gate *gate, const struct tw_id *run, const struct tw_id *owner,
                  const struct tw_identity *identity);

/* Makes these certificates this node's own. They may have expired, because a running node can renew
 * them, but must be valid otherwise. Fails as tw_gate_judge does. */
enum tw_status tw_gate_adopt(struct tw_gate *gate, const struct tw_certs *certs,
                             struct tw_error *err);

/* ---- judging ------------------------------------------------------------------------------- */

/* Checks that these certificates allow `node` to do `may` now: rules, signatures, revocations.
 * `their_now_s` is the clock of the node that presents them, or 0 if unknown. Returns
 * TW_NOT_ADMITTED, TW_REVOKED or TW_BAD_CLOCK on failure. The error is worded for the operators of
 * both nodes. */
enum tw_status tw_gate_judge(const struct tw_gate *gate, const struct tw_certs *certs,
                             const struct tw_id *node, enum tw_cert_may may, uint64_t their_now_s,
                             struct tw_error *err);

/* Returns the wall clock of the sender of extension 4 in Unix seconds; 0: it sent none. */
uint64_t tw_gate_their_clock_s(const uint8_t *bytes, uint32_t size);

/* Writes extension 4: this node's clock and certificates. Returns its size in bytes. */
uint32_t tw_gate_encode(const struct tw_gate *gate, uint8_t bytes[TW_GATE_BYTES_MAX]);

/* Checks that a node, authenticated by TLS, may join the run. `bytes` is its extension 4, or NULL
 * if it sent none. Fails as tw_gate_judge does, or with TW_PROTO. Sets *certs on TW_OK. */
enum tw_status tw_gate_check(const struct tw_gate *gate, const struct tw_id *node,
                             const uint8_t *bytes, uint32_t size, struct tw_certs *certs,
                             struct tw_error *err);

/* Rechecks certificates that were valid before. Returns TW_NOT_ADMITTED if they have expired, or
 * TW_REVOKED. */
enum tw_status tw_gate_review(const struct tw_gate *gate, const struct tw_certs *certs,
                              struct tw_error *err);

/* ---- revocations --------------------------------------------------------------------------- */

/* Verifies an untrusted revocation list, and adopts it if the run's owner signed it and it is
 * newer than this node's list. Returns TW_AGAIN if it is not newer, TW_PROTO if it is malformed,
 * and TW_NOT_ADMITTED if it is of another run or not signed by the owner. */
enum tw_status tw_gate_revoke(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                              struct tw_error *err);

/* ---- recalls ------------------------------------------------------------------------------- */

/* Verifies an untrusted recall, and adopts it if the run's owner signed it and it is newer than
 * this node's recall. Fails as tw_gate_revoke does. */
enum tw_status tw_gate_recall(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                              struct tw_error *err);

/* ---- renewing ------------------------------------------------------------------------------ */

/* Returns true in the last third of the certificate's lifetime: time to ask a peer for a new
 * one. Only certificates that a node signed are renewed like this. The owner's must be renewed
 * by hand. */
bool tw_gate_is_due(const struct tw_gate *gate);

/* Returns true if a person should be warned that the certificate expires soon. For a certificate
 * that nodes renew, this is long after the renewal was due. For one that the owner signed, it is 14
 * days before the end, or the last third of the lifetime. */
bool tw_gate_is_late(const struct tw_gate *gate);

/* Returns true if a peer's valid certificates allow it to sign for others. */
bool tw_gate_is_admitter(const struct tw_certs *certs);

/* Returns true if a peer with these valid certificates can renew this node's. */
bool tw_gate_is_renewer(const struct tw_gate *gate, const struct tw_certs *certs);

/* Renews a peer's valid certificates for the same lifetime and the same rights. Returns TW_AGAIN if
 * half of their lifetime is left, or TW_NOT_ADMITTED if the owner signed them, or if they give a
 * vote that this node has not. Fails otherwise as tw_gate_admit does. */
enum tw_status tw_gate_renew(const struct tw_gate *gate, const struct tw_certs *old,
                             struct tw_certs *fresh, struct tw_error *err);

/* Verifies the untrusted bytes of a CERTS frame. Makes the certificates this node's own if they are
 * valid now and expire later than the present ones. Returns TW_AGAIN if they do not expire later,
 * TW_NOT_ADMITTED if they would change the right to vote, or TW_PROTO. Fails otherwise as
 * tw_gate_judge does. */
enum tw_status tw_gate_take(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                            struct tw_error *err);

/* ---- admitting ----------------------------------------------------------------------------- */

/* Checks that this node may sign for others now. Fails as tw_gate_judge does. */
enum tw_status tw_gate_can_admit(const struct tw_gate *gate, struct tw_error *err);

/* A node to be admitted. */
struct tw_gate_admission {
    struct tw_id node;
    uint64_t life_s; /* wanted lifetime of its certificate */
    bool lacks_vote; /* the certificate gives no vote */
};

/* Signs a certificate that lets a node train from now on. Its lifetime is the shortest of life_s,
 * TW_GATE_LIFE_S and the rest of this node's own certificates. Without a vote of its own, this node
 * gives none. Returns TW_REVOKED if the node is revoked. Fails otherwise as tw_gate_can_admit does.
 */
enum tw_status tw_gate_admit(const struct tw_gate *gate, const struct tw_gate_admission *admission,
                             struct tw_certs *certs, struct tw_error *err);

/* ==== files =================================================================================== */

/* Certificates, revocations and recalls as text files. They hold no secrets, so people may send
 * them by mail.
 *
 * A node keeps them in its state folder: TW_CERT_FILE, TW_REVOKED_FILE and TW_RECALL_FILE. They are
 * replaced atomically. */

#define TW_CERT_FILE "admission.cert"
#define TW_REVOKED_FILE "revoked.list"
#define TW_RECALL_FILE "run.recall"

/* Parse a file, but verify no signature. Return TW_IO if the file is missing or unreadable,
 * TW_CONFIG if it has other content. The error names the file. */
enum tw_status tw_certs_load(const char *path, struct tw_certs *certs, struct tw_error *err);
enum tw_status tw_revoked_load(const char *path, struct tw_revoked *list, struct tw_error *err);
enum tw_status tw_recall_load(const char *path, struct tw_recall *recall, struct tw_error *err);

/* Replace FOLDER/NAME durably, for a person's commands. Return TW_IO on failure. */
enum tw_status tw_certs_save(const char *folder, const char *name, const struct tw_certs *certs,
                             struct tw_error *err);
enum tw_status tw_revoked_save(const char *folder, const char *name, const struct tw_revoked *list,
                               struct tw_error *err);
enum tw_status tw_recall_save(const char *folder, const char *name, const struct tw_recall *recall,
                              struct tw_error *err);

/* Write certificates, a revocation list or a recall from the wire into the state folder. A person
 * may import a file there at the same time. Certificates therefore replace only `old` (or no file),
 * and a list or a recall replaces only an older one. Return TW_AGAIN if another file is there,
 * which stays, or TW_IO. */
enum tw_status tw_certs_save_renewed(const char *folder, const struct tw_certs *old,
                                     const struct tw_certs *fresh, struct tw_error *err);
enum tw_status tw_revoked_save_newer(const char *folder, const struct tw_revoked *list,
                                     struct tw_error *err);
enum tw_status tw_recall_save_newer(const char *folder, const struct tw_recall *recall,
                                    struct tw_error *err);

/* Loads these files of the state folder into the gate. The list comes first, because it may revoke
 * this node. List and recall are optional, the certificate is not. On failure the gate stays
 * unchanged, and the error names the remedy. */
enum tw_status tw_gate_load(struct tw_gate *gate, const char *folder, struct tw_error *err);

#endif
