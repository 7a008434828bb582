/* probes.h - dial-back: asking peers whether this node can be dialled, and trying it for them.
 *
 * A peer has us dial only what it said of itself in HELLO, at most once in PROBE_REST_US, and few
 * addresses at a time for all peers together: so nobody is made to scan ports for others. */
#ifndef TW_DAEMON_NODE_PROBES_H
#define TW_DAEMON_NODE_PROBES_H

#include "daemon/node/runtime.h"

struct tw_dial_result;
struct tw_status_view;

enum tw_status tw_daemon_probes_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_probes_peer_up(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_member_row *hello);
/* PROBE and PROBED; every other message is ignored. */
void tw_daemon_probes_message(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_message *message);
/* The end of a dial that tw_transport_probe began. */
void tw_daemon_probes_done(struct tw_daemon *daemon, const char *address,
                           const struct tw_id *expected, const struct tw_dial_result *result);
/* This node's addresses changed. */
void tw_daemon_probes_moved(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_probes_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_probes_fill(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view);
void tw_daemon_probes_free(struct tw_daemon *daemon);

#endif
