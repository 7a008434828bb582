/* cert_file.h - certificates and revocations as files: text that people mail around. Neither
 * is secret.
 *
 * A node keeps both in its state folder, TW_CERT_FILE and TW_REVOKED_FILE; they are replaced whole,
 * or not at all. */
#ifndef TW_DAEMON_AUTH_CERT_FILE_H
#define TW_DAEMON_AUTH_CERT_FILE_H

#include "base/status.h"
#include "daemon/auth/gate.h"
#include "proto/cert.h"
#include "proto/revoke.h"

#define TW_CERT_FILE "admission.cert"
#define TW_REVOKED_FILE "revoked.list"

/* TW_IO: it is not there, or cannot be read. TW_CONFIG: it holds something else. Both name the
 * file. Nothing is verified. */
enum tw_status tw_certs_load(const char *path, struct tw_certs *certs, struct tw_error *err);
enum tw_status tw_revoked_load(const char *path, struct tw_revoked *list, struct tw_error *err);

/* Durably into FOLDER/NAME, in place of what is there: what a person asked for. TW_IO. */
enum tw_status tw_certs_save(const char *folder, const char *name, const struct tw_certs *certs,
                             struct tw_error *err);
enum tw_status tw_revoked_save(const char *folder, const char *name, const struct tw_revoked *list,
                               struct tw_error *err);

/* What came over the wire, into the state folder. A person may be importing something there at the
 * same time: a certificate takes the place of `old` alone (or of nothing), a list that of an older
 * one. TW_AGAIN: something else is there and stays. TW_IO. */
enum tw_status tw_certs_save_renewed(const char *folder, const struct tw_certs *old,
                                     const struct tw_certs *fresh, struct tw_error *err);
enum tw_status tw_revoked_save_newer(const char *folder, const struct tw_revoked *list,
                                     struct tw_error *err);

/* Both of a node's state folder into its gate: the list first, it may name this node. A list need
 * not be there, a certificate must. What fails leaves what the gate had; the sentence has the way
 * out. */
enum tw_status tw_gate_load(struct tw_gate *gate, const char *folder, struct tw_error *err);

#endif
