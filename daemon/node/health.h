/* health.h - is this node's state sound: work that a restart lost, and signs of bad merging. */
#ifndef TW_DAEMON_NODE_HEALTH_H
#define TW_DAEMON_NODE_HEALTH_H

#include "daemon/node/runtime.h"

/* ==== the farthest round ====================================================================== */

/* The farthest round that this node took part in, noted on disk (store/notes.h), and
 * the cost to the run of a restart from an older checkpoint, or from none.
 *
 *   PRESENT --starts behind the note--> BEHIND --first round, run clock below the note--> LOST
 *    | ^                                  | |                                            ^  |
 *    | +----the run's clock is not below--+ +---------first round, the run began anew----+  |
 *    +------------------------first round, the run began anew----------------------------+  |
 *      ^                                                                                    |
 *      +----------------------------------------another lineage has it after all, 1 h ------+
 *
 * A restart alone costs the run nothing: the other nodes have the state, and this one follows them.
 * So nothing is called lost before a round is decided here. While BEHIND the note is not replaced,
 * and a second restart still knows of it.
 *
 * A run that began anew may be past the old clock when a node comes back. The *origin* tells the
 * two apart: the lineage with which the run began, as nodes tell each other in STATUS. A node
 * believes more than half of the linked peers of its lineage. Nothing but words, and a second name
 * for the old checkpoint, depends on it. */

struct tw_status_view;

enum tw_status tw_daemon_reached_open(struct tw_daemon *daemon, struct tw_error *err);
/* Compares the note with the loaded checkpoint. */
void tw_daemon_reached_loaded(struct tw_daemon *daemon);

/* Returns true while the node is BEHIND. `text`: a sentence for its log. */
bool tw_daemon_reached_is_behind(const struct tw_daemon *daemon, char *text, size_t room);
/* Returns the steps that this node had made by the note of the process before; 0: there is none. */
uint64_t tw_daemon_reached_steps_before(const struct tw_daemon *daemon);
/* Returns true if this node ever took part in a round of the run, in this process or before. */
bool tw_daemon_reached_any(const struct tw_daemon *daemon);

/* Returns the message to send in place of `message`: a STATUS with the fields for people that the
 * core does not know, which are the origin of its lineage and `waits`. Valid until the next call.
 */
const struct tw_message *tw_daemon_reached_tell(struct tw_daemon *daemon,
                                                const struct tw_message *message);

/* A round was committed here. */
void tw_daemon_reached_round(struct tw_daemon *daemon);
void tw_daemon_reached_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_reached_fill(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view);
bool tw_daemon_reached_is_saving(const struct tw_daemon *daemon);
void tw_daemon_reached_free(struct tw_daemon *daemon);

/* ==== signs of bad merging ==================================================================== */

/* Signs of bad merging, judged at each evaluation (daemon/api/health.h).
 * They become events and fields of the status, and one of them has an effect.
 *
 * While the anchor is worse than this node's own parameters and does not follow them, merges change
 * the anchor, but not theta. A group's round is then applied with TW_APPLY_STAY, so (phi, u) stays
 * equal on all nodes. In pairs, this node takes its outer step alone. All other findings are only
 * shown. */

struct tw_status_view;
struct tw_wmsg_evaluated;

enum tw_status tw_daemon_health_open(struct tw_daemon *daemon, struct tw_error *err);

/* Called when the worker has measured the held-out losses. */
void tw_daemon_health_evaluated(struct tw_daemon *daemon,
                                const struct tw_wmsg_evaluated *evaluated);

/* Called when training goes on after a pause: the rounds missed during the pause do not count as a
 * sign. */
void tw_daemon_health_resumed(struct tw_daemon *daemon);

/* Checks once a second whether the open round takes too long, and whether old findings end. */
void tw_daemon_health_tick(struct tw_daemon *daemon, uint64_t now_us);

/* Called when most members had another anchor than this node in that round. */
void tw_daemon_health_differs(struct tw_daemon *daemon, uint64_t round);

void tw_daemon_health_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_health_free(struct tw_daemon *daemon);

#endif
