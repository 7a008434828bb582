/* cert_file.h - certificates, revocations and recalls as text files. They hold no secrets, so
 * people may send them by mail.
 *
 * A node keeps them in its state folder: TW_CERT_FILE, TW_REVOKED_FILE and TW_RECALL_FILE. They are
 * replaced atomically. */
#ifndef TW_DAEMON_AUTH_CERT_FILE_H
#define TW_DAEMON_AUTH_CERT_FILE_H

#include "base/status.h"
#include "daemon/auth/gate.h"
#include "proto/cert.h"
#include "proto/recall.h"
#include "proto/revoke.h"

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
