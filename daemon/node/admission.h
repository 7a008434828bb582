/* admission.h - certificates, revocations and recalls, in runs with an owner (daemon/auth/gate.h).
 *
 * Changes come from two sources: the files of the state folder, which a person may replace at any
 * time (`thinwire owner import`); and peers, which send revocation lists, renewed certificates and
 * recalls. After each change, all links are checked again and the file is written. The write runs
 * on a thread, so that no peer can make the loop wait for the disk. A newer recall ends the daemon
 * once it is on disk, and the process begins anew (daemon/setup/recall_state.h). */
#ifndef TW_DAEMON_NODE_ADMISSION_H
#define TW_DAEMON_NODE_ADMISSION_H

#include "daemon/node/runtime.h"

struct tw_frame;
struct tw_status_view;

enum tw_status tw_daemon_admission_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_admission_peer_up(struct tw_daemon *daemon, uint16_t peer);
void tw_daemon_admission_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* True when the frame was a REVOKE, RENEW, CERTS or RECALL. */
bool tw_daemon_admission_frame(struct tw_daemon *daemon, uint16_t peer,
                               const struct tw_frame *frame);
/* True if the owner revoked the node. A revoked node is not dialled. */
bool tw_daemon_admission_is_out(const struct tw_daemon *daemon, const struct tw_id *node);
/* True while the owner pauses training in the whole run. */
bool tw_daemon_admission_is_paused(const struct tw_daemon *daemon);
void tw_daemon_admission_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_admission_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_admission_free(struct tw_daemon *daemon);

#endif
