/* caps.h - how much of the line is ours at this moment: caps, the hours of the day, the quota
 * of the month.
 *
 * The upload cap in force is that of `network.upload`, or of `thinwire limit` since it was said; an
 * hour with a rate of its own lowers it. The same for downloads, which are paid for when chunks are
 * asked for (base/rate.h, in the core and in the fetcher), so that no more is under way than may
 * come. In hours that are off, and when the quota is used up, the links rest: the others are told
 * goodbye, nothing is dialled or let in, and this node trains alone as after any cut. */
#ifndef TW_DAEMON_NODE_CAPS_H
#define TW_DAEMON_NODE_CAPS_H

#include "daemon/node/runtime.h"

struct tw_rate;
struct tw_status_view;

/* TW_IO when STATE_DIR cannot be read. */
enum tw_status tw_daemon_caps_open(struct tw_daemon *daemon, struct tw_error *err);
/* The configuration, a limit or the time of day changed. */
void tw_daemon_caps_apply(struct tw_daemon *daemon);
/* Sets the caps to "5mbit" or "off"; NULL keeps one. The sentence is in *answer either way. */
enum tw_status tw_daemon_caps_limit(struct tw_daemon *daemon, const char *upload,
                                    const char *download, struct tw_error *answer);
void tw_daemon_caps_tick(struct tw_daemon *daemon, uint64_t now_us);

/* The download rate: chunks are paid for when they are requested. Valid until free. */
struct tw_rate *tw_daemon_caps_download(const struct tw_daemon *daemon);
/* The upload cap in force in bytes/s; 0: no cap. */
uint64_t tw_daemon_caps_upload(const struct tw_daemon *daemon);
/* Hours that are off, or a used-up quota: nothing may be dialled. */
bool tw_daemon_caps_is_resting(const struct tw_daemon *daemon);

void tw_daemon_caps_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
/* Saves the quota once more. */
void tw_daemon_caps_close(struct tw_daemon *daemon);
void tw_daemon_caps_free(struct tw_daemon *daemon);

#endif
