/* archive.h - the decided rounds of a run, written to a folder from which anybody can prove the
 * model (proto/archive.h, `thinwire verify`). Off without node.archive.
 *
 * Writing never delays a round: a file that finds no room in the queue is left out and counted. The
 * proof then begins anew at a later state. */
#ifndef TW_DAEMON_NODE_ARCHIVE_H
#define TW_DAEMON_NODE_ARCHIVE_H

#include "daemon/node/runtime.h"
#include "proto/cert.h"

struct tw_status_view;

/* Makes the folders and writes the manifest. TW_IO: the sentence names the path. */
enum tw_status tw_daemon_archive_open(struct tw_daemon *daemon, struct tw_error *err);

/* Keeps the record of a round that this node learnt to be decided. */
void tw_daemon_archive_decided(struct tw_daemon *daemon, const struct tw_record *record);

/* Keeps the results that the worker is about to apply, and (phi, u) of their fragment as they were
 * before if nothing archived leads there. Call it before the request goes to the worker. */
void tw_daemon_archive_apply(struct tw_daemon *daemon, const struct tw_action *action);

/* Keeps the certificates with which the run's owner admitted a node. */
void tw_daemon_archive_admitted(struct tw_daemon *daemon, const struct tw_id *node,
                                const struct tw_certs *certs);

bool tw_daemon_archive_is_saving(const struct tw_daemon *daemon);
void tw_daemon_archive_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_archive_free(struct tw_daemon *daemon);

#endif
