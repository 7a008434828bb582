/* admission.h - nodes that may be linked, and nodes that may not: certificates, revocations, bans.
 */
#ifndef TW_DAEMON_NODE_ADMISSION_H
#define TW_DAEMON_NODE_ADMISSION_H

#include "daemon/node/runtime.h"

/* ==== certificates and revocations ============================================================ */

/* Certificates, revocations and recalls, in runs with an owner (daemon/auth/gate.h).
 *
 * Changes come from two sources. A person may replace files of the state folder at any time
 * (`thinwire owner import`). Peers send revocation lists, renewed certificates and recalls. After
 * each change, all links are checked again and the file is written. The write runs on a thread, so
 * that no peer can make the loop wait for the disk. Once a newer recall is on disk, the daemon
 * leaves and the process restarts (daemon/setup/setup.h). */

struct tw_frame;
struct tw_status_view;

enum tw_status tw_daemon_admission_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_admission_peer_up(struct tw_daemon *daemon, uint16_t peer);
void tw_daemon_admission_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* Handles a REVOKE, RENEW, CERTS or RECALL. Returns false for any other frame. */
bool tw_daemon_admission_frame(struct tw_daemon *daemon, uint16_t peer,
                               const struct tw_frame *frame);
/* Returns true if this node may vote: the run has no owner, or the certificate that this process
 * started with gives a vote. */
bool tw_daemon_admission_has_vote(const struct tw_daemon *daemon);
/* Returns true if the owner revoked the node, which is then not dialled. */
bool tw_daemon_admission_is_out(const struct tw_daemon *daemon, const struct tw_id *node);
/* Returns true while the owner pauses training in the whole run. */
bool tw_daemon_admission_is_paused(const struct tw_daemon *daemon);
void tw_daemon_admission_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_admission_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_admission_free(struct tw_daemon *daemon);

/* ==== bans and refusals ======================================================================= */

/* Refused links: bans (kept across restarts), keys that are on two machines, and the
 * log of refusals.
 *
 * Per host and reason, the log has one line in ten minutes, with the number of suppressed lines. A
 * flood of refusals thus does not become a flood of lines. */

struct tw_status_view;
struct tw_twin_report;

enum tw_status tw_daemon_refusals_open(struct tw_daemon *daemon, struct tw_error *err);
/* Reads the saved bans into the transport, which must be open. */
void tw_daemon_refusals_load(struct tw_daemon *daemon);

/* Callbacks of the transport; `user` is the daemon. */
void tw_daemon_refusals_banned(void *user, const struct tw_id *id, uint32_t seconds,
                               const char *sentence);
void tw_daemon_refusals_refused(void *user, const char *address, enum tw_status reason,
                                const char *sentence);

void tw_daemon_refusals_twin(void *user, const struct tw_twin_report *report);

/* Lifts the ban of the node whose id begins with `hex`. Also on success, *answer gets the sentence
 * for the user. */
enum tw_status tw_daemon_refusals_unban(struct tw_daemon *daemon, const char *hex,
                                        struct tw_error *answer);

/* Call once a minute. Corrects the bans if the wall clock, by which they end, was changed. */
void tw_daemon_refusals_look(struct tw_daemon *daemon);

void tw_daemon_refusals_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_refusals_free(struct tw_daemon *daemon);

#endif
