/* invites.h - tickets, the guests (machines that join with a ticket), and the file of the run
 * secret.
 *
 * A ticket is shown, and a guest admitted, only once the file that counts the uses of tickets is on
 * disk. A thread writes the file, one write at a time. Each change has a number. A caller that
 * waits for a change is answered after the first write that began after the change. */
#ifndef TW_DAEMON_NODE_INVITES_H
#define TW_DAEMON_NODE_INVITES_H

#include "daemon/api/api.h"
#include "daemon/node/runtime.h"

struct tw_guest;

enum tw_status tw_daemon_invites_open(struct tw_daemon *daemon, struct tw_error *err);
/* Handles TW_API_INVITE, _LIST and _REVOKE. */
void tw_daemon_invites_verb(struct tw_daemon *daemon, enum tw_api_verb verb, uint32_t request);
/* Returns true if the server name is a knock (daemon/auth/tickets.h) made with a ticket of this
 * node.
 */
bool tw_daemon_invites_is_knock(const struct tw_daemon *daemon, const char *name, size_t size);
void tw_daemon_invites_guest(struct tw_daemon *daemon, const struct tw_guest *guest);
void tw_daemon_invites_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Returns true while a write is in progress. Leaving waits for its end. */
bool tw_daemon_invites_is_saving(const struct tw_daemon *daemon);
void tw_daemon_invites_free(struct tw_daemon *daemon);

#endif
