/* admission.h - runs with an owner: revocations that go round, the certificate that is renewed.
 *
 * What the gate knows comes from three sides: the two files of the state folder, which a person may
 * replace at any time (`thinwire owner import`), lists that peers send, and certificates that a
 * peer signed when asked. Whatever came, links are looked at again, and the file is written, on a
 * thread: a disk may take its time, and peers must not decide when this node waits for it. */
#ifndef TW_DAEMON_NODE_ADMISSION_H
#define TW_DAEMON_NODE_ADMISSION_H

#include "daemon/node/runtime.h"

struct tw_frame;
struct tw_status_view;

enum tw_status tw_daemon_admission_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_admission_peer_up(struct tw_daemon *daemon, uint16_t peer);
void tw_daemon_admission_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* True when the frame was one of these: REVOKE, RENEW, CERTS. */
bool tw_daemon_admission_frame(struct tw_daemon *daemon, uint16_t peer,
                               const struct tw_frame *frame);
/* True when the owner revoked that node: it need not be dialled. */
bool tw_daemon_admission_is_out(const struct tw_daemon *daemon, const struct tw_id *node);
void tw_daemon_admission_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_admission_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_admission_free(struct tw_daemon *daemon);

#endif
