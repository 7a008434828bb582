/* caps.h - how much of the internet connection this node may use now: rate caps, hours of the day,
 * and the quota of the month.
 *
 * The upload cap is `network.upload`, or the rate of the last `thinwire limit`. `network.hours` may
 * set a lower rate at some hours. Downloads have the same kinds of caps. A download is charged when
 * its chunks are requested (base/rate.h, in the core and in the fetcher), so that the chunks in
 * flight stay within the cap.
 *
 * The quota does not count the bytes of strangers: hosts that have proved no right to be in the
 * run. Each day they may use another 1/300 of the monthly quota, at least 1 MiB. When that is used
 * up, only nodes that knock (daemon/auth/tickets.h), and hosts from which members were admitted,
 * get an answer until the day is over.
 *
 * Traffic that serves other nodes alone has budgets (daemon/config/serving.h): states, the dataset,
 * payloads that are asked for again, relayed bytes. A node that is refused a payload is told
 * MISSING, with the time after which it may ask again: until then it asks another donor. A call
 * through this relay is refused, and a pipe ends, with the reason.
 *
 * All links are suspended in hours that are off, when the quota is used up, and while a pause has
 * given the worker's memory back: a node without a worker would hold up the votes of its group. The
 * node then says goodbye to its peers, neither dials nor accepts, and trains alone, as when the
 * network is down. */
#ifndef TW_DAEMON_NODE_CAPS_H
#define TW_DAEMON_NODE_CAPS_H

#include "daemon/node/runtime.h"

struct tw_rate;
struct tw_chunk;
struct tw_status_view;

/* Loads the quota. Returns TW_IO if STATE_DIR cannot be read. */
enum tw_status tw_daemon_caps_open(struct tw_daemon *daemon, struct tw_error *err);
/* Returns the minute of the day by the clock of this machine, for quota.h. */
uint32_t tw_daemon_caps_minute_of_day(void);
/* Computes the caps from the configuration, `thinwire limit` and the time of day, and applies them.
 */
void tw_daemon_caps_apply(struct tw_daemon *daemon);
/* Sets the caps to values such as "5mbit" or "off"; NULL keeps a cap. Also on success, *answer gets
 * the sentence for the user. */
enum tw_status tw_daemon_caps_limit(struct tw_daemon *daemon, const char *upload,
                                    const char *download, struct tw_error *answer);
void tw_daemon_caps_tick(struct tw_daemon *daemon, uint64_t now_us);

/* Returns the download cap, from which requests for chunks are charged. Valid until
 * tw_daemon_caps_free. */
struct tw_rate *tw_daemon_caps_download(const struct tw_daemon *daemon);
/* Returns the upload cap in force in bytes/s, 0 = no cap. */
uint64_t tw_daemon_caps_upload(const struct tw_daemon *daemon);
/* Returns true while the links are suspended: nothing may be dialled then. */
bool tw_daemon_caps_is_resting(const struct tw_daemon *daemon);

/* Call once the size of the dataset is known. */
void tw_daemon_caps_data_known(struct tw_daemon *daemon, uint64_t bytes);

/* Returns true if a PULL of a payload in the pool may go on to the core. Otherwise the peer is told
 * MISSING. */
bool tw_daemon_caps_pull(struct tw_daemon *daemon, uint16_t peer, const struct tw_msg_pull *pull);
/* Returns the seconds for which the peer gets no more state or data; 0: it gets some. */
uint32_t tw_daemon_caps_retry_s(const struct tw_daemon *daemon, uint16_t peer);
/* Charges a chunk of the pool's row `row` that was queued for the peer. */
void tw_daemon_caps_queued(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                           uint32_t row);
/* Takes back the charge of a chunk that did not leave because the link broke. `row` is -1 for a
 * chunk of the dataset. */
void tw_daemon_caps_unsent(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                           int row);

/* Returns true if a chunk of the dataset may be sent to the peer. A refusal is counted. */
bool tw_daemon_caps_may_give_data(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes);
void tw_daemon_caps_data_queued(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes);

/* Charges bytes of a pipe. Returns TW_AGAIN with the reason if it may carry no more. */
enum tw_status tw_daemon_caps_relayed(struct tw_daemon *daemon, const struct tw_id *caller,
                                      const struct tw_id *called, uint64_t bytes,
                                      struct tw_error *err);

void tw_daemon_caps_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
/* Saves the quota a last time. */
void tw_daemon_caps_close(struct tw_daemon *daemon);
void tw_daemon_caps_free(struct tw_daemon *daemon);

#endif
