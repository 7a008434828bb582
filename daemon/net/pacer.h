/* pacer.h - how fast a bulk connection may send without building a queue in front of control
 * messages. Pure: the caller passes TCP's measurements.
 *
 * A sender that uses all of a path fills the queue at the slowest hop, and every message on that
 * path waits in it. A sender that stays below the path's rate leaves the queue empty. A connection
 * is therefore held to TW_PACER_PERCENT of the path's rate. That rate is the delivery rate measured
 * with a standing queue, when the slowest hop is never idle. On paths with losses the measured rate
 * is 2 to 4 % below the real one. At 85 % the sender would reach only 81 %; hence 88 %.
 *
 *   state   kernel's limit      left for
 *   OPEN    none                First: DRAIN after five windows with a standing queue, once
 *                               deliveries no longer grow. The last three give the path's rate.
 *                               As a probe: DRAIN after three windows with twice that queue,
 *                               PACED after 20 windows without one.
 *   DRAIN   30 % of the path    PACED when the queue is gone.
 *   PACED   enough to deliver   OPEN (a probe) after 4 s of sending, then after twice as long each
 *           88 % of the path    time, up to 20 s: the path may have become faster. DRAIN after
 *                               three windows with twice that queue in which much less arrives
 *                               than is sent: the path became slower.
 *
 * A queue is standing if all round trips of a window are longer than the shortest one by more than
 * 10 ms, or by an eighth if that is more. The shortest one is taken since the probe before the
 * last. In PACED there is no queue, so its round trips show the path itself. If no queue ever
 * stands (losses may keep the sender below the path's rate), there is no limit. Windows in which
 * the sender has nothing to send, or the receiver no room, are ignored.
 *
 * In PACED the kernel's limit starts at 88 % of the path's rate and follows the deliveries, up to
 * 95 %: a sender that recovers from losses falls behind its pace. */
#ifndef TW_DAEMON_NET_PACER_H
#define TW_DAEMON_NET_PACER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config/quota.h"

enum {
    TW_PACER_PERCENT = 88,
    TW_PACER_MOST_PERCENT = 95,
    TW_PACER_DRAIN_PERCENT = 30,
    TW_PACER_TICK_US = 20 * 1000,    /* interval between two samples of a socket */
    TW_PACER_WINDOW_US = 100 * 1000, /* least length of a window; the shortest round trip if that is
                                        longer */
    TW_PACER_QUEUE_US = 10 * 1000,   /* least delay that counts as a queue; an eighth of the round
                                        trip if that is longer */
    TW_PACER_FIRST_WINDOWS = 5, /* windows with a queue before the rate of a new path is trusted */
    TW_PACER_STOOD_WINDOWS = 3,
    TW_PACER_PROBE_FIRST_US = 4 * 1000 * 1000, /* first sending time before a probe; doubles each
                                                  time, up to: */
    TW_PACER_PROBE_US = 20 * 1000 * 1000,
    TW_PACER_PROBE_WINDOWS = 20,
};

enum tw_pacer_state { TW_PACER_OPEN, TW_PACER_DRAIN, TW_PACER_PACED };

/* TCP's measurements of a connection at one moment. */
struct tw_pacer_sample {
    uint64_t now_us;
    uint64_t delivered_bytes; /* bytes acknowledged since the connection began */
    uint32_t rtt_us, rtt_least_us;
    bool is_idle; /* the sender has nothing to send, or the receiver no room */
};

struct tw_pacer {
    enum tw_pacer_state state;
    uint64_t path_bytes_per_s;  /* rate of the path; 0: unknown */
    uint64_t floor_bytes_per_s; /* lowest rate of the path that is accepted before the next probe */
    uint64_t told_bytes_per_s;  /* PACED: limit for the kernel */

    bool has_window;
    uint64_t window_us, window_bytes; /* start of the window: time, bytes delivered */
    uint32_t window_queue_us;         /* shortest delay by the queue in the window */
    uint32_t base_us,
        next_base_us; /* shortest round trips: before the last probe (0 = none), and since it */
    uint32_t stood_windows;                             /* consecutive windows with a queue */
    uint64_t stood_bytes_per_s[TW_PACER_STOOD_WINDOWS]; /* rates of the last of these windows */

    uint64_t last_bytes_per_s; /* OPEN: rate of the previous window */
    uint64_t best_bytes_per_s; /* OPEN: best rate of any two consecutive windows */
    uint64_t mean_bytes_per_s; /* PACED: recent mean rate; 0: no window yet */
    uint64_t sent_us;          /* PACED: time spent sending */
    uint64_t probe_us;         /* PACED: sending time before the next probe */
    uint32_t probe_windows;    /* OPEN with a known path: windows since the probe began */
    uint64_t drained_us;       /* latest end of DRAIN */
};

/* Initialises the pacer of a new connection: OPEN, with an unknown path. */
void tw_pacer_init(struct tw_pacer *pacer);

/* Processes one sample of the socket. One per TW_PACER_TICK_US is enough. */
void tw_pacer_take(struct tw_pacer *pacer, const struct tw_pacer_sample *sample);

/* Returns the kernel's limit in bytes per second, 0 = none. `upload_bytes_per_s` is the node's
 * upload cap, 0 = none. */
uint64_t tw_pacer_limit(const struct tw_pacer *pacer, const struct tw_link_pace *config,
                        uint64_t upload_bytes_per_s);

#endif
