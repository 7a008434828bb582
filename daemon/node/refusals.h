/* refusals.h - refused links: bans (kept across restarts), keys that are on two machines, and the
 * log of refusals.
 *
 * Per host and reason, the log has one line in ten minutes, with the number of suppressed lines. A
 * flood of refusals thus does not become a flood of lines. */
#ifndef TW_DAEMON_NODE_REFUSALS_H
#define TW_DAEMON_NODE_REFUSALS_H

#include "daemon/node/runtime.h"

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
