/* pacer.h - how fast a bulk connection may send, so that no queue grows before control messages.
 * Pure: what TCP measured comes in.
 *
 * A sender that takes all of a path fills the queue before its slowest link, and every message of
 * the same path waits in it. One that stays below what the link carries leaves the queue empty. So
 * a connection is held to TW_PACER_PERCENT of the path's rate, which is what was delivered while a
 * queue stood: then the slowest link was never idle. (Where packets are lost that is 2 to 4 % less
 * than the link carries: hence not 85 %, which would be 81 of it.)
 *
 *   state   kernel's limit      left for
 *   OPEN    none                DRAIN when a queue stood for five windows, and deliveries grew no
 *                               more: the last three have the path's rate.
 *                               A probe: DRAIN when twice that queue stood for three windows,
 *                               PACED after 20 windows without
 *   DRAIN   30 % of the path    PACED when the queue is gone
 *   PACED   what brings         OPEN (a probe) after 4 s of sending, twice as many each time, at
 *           88 % of the path    most 20: the path may have become faster. DRAIN when twice that
 *                               queue stands for three windows, and much less arrives than is
 *                               sent: it is slower
 *
 * A queue stands where round trips take 10 ms, or an eighth, longer than the shortest since the
 * probe before the last: in PACED there is none, so what they take then is the path itself. Where
 * none ever stands, as where losses hold the sender below the path, there is no limit. Windows in
 * which the sender had nothing to send, or the receiver no room, say nothing.
 *
 * What the kernel is told in PACED starts at 88 % of the path and follows what arrives, up to 95 %:
 * a sender that recovers from losses falls behind its pace. */
#ifndef TW_DAEMON_NET_PACER_H
#define TW_DAEMON_NET_PACER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config/pace.h"

enum {
    TW_PACER_PERCENT = 88,
    TW_PACER_MOST_PERCENT = 95,
    TW_PACER_DRAIN_PERCENT = 30,
    TW_PACER_TICK_US = 20 * 1000,    /* between two looks at the socket */
    TW_PACER_WINDOW_US = 100 * 1000, /* least; the least round trip where that is longer */
    TW_PACER_QUEUE_US = 10 * 1000,   /* least; an eighth of the round trip where that is more */
    TW_PACER_FIRST_WINDOWS = 5,      /* a path not known is worth a longer look */
    TW_PACER_STOOD_WINDOWS = 3,
    TW_PACER_PROBE_FIRST_US = 4 * 1000 * 1000, /* of sending; then twice as long each time, up to */
    TW_PACER_PROBE_US = 20 * 1000 * 1000,
    TW_PACER_PROBE_WINDOWS = 20,
};

enum tw_pacer_state { TW_PACER_OPEN, TW_PACER_DRAIN, TW_PACER_PACED };

/* What TCP says of a connection at one moment. */
struct tw_pacer_sample {
    uint64_t now_us;
    uint64_t delivered_bytes; /* since it began, acknowledged or known to have arrived */
    uint32_t rtt_us, rtt_least_us;
    bool is_idle; /* the sender has nothing to send, or the receiver no room */
};

struct tw_pacer {
    enum tw_pacer_state state;
    uint64_t path_bytes_per_s;  /* 0: not known */
    uint64_t floor_bytes_per_s; /* the path is not believed slower before the next probe */
    uint64_t told_bytes_per_s;  /* PACED: for the kernel */

    bool has_window;
    uint64_t window_us, window_bytes; /* when it began */
    uint32_t window_queue_us;         /* least in it */
    uint32_t base_us, next_base_us;   /* shortest round trips: up to the last probe (0: there was
                                         none), and since */
    uint32_t stood_windows;           /* with a queue, one after the other */
    uint64_t stood_bytes_per_s[TW_PACER_STOOD_WINDOWS]; /* of the last of them */

    uint64_t last_bytes_per_s; /* OPEN: of the window before */
    uint64_t best_bytes_per_s; /* OPEN: of any two in a row */
    uint64_t mean_bytes_per_s; /* PACED: of late; 0: no window yet */
    uint64_t sent_us;          /* PACED: time of sending */
    uint64_t probe_us;         /* PACED: the next probe is after so much of it */
    uint32_t probe_windows;    /* OPEN, with a path */
    uint64_t drained_us;       /* DRAIN: the latest end */
};

/* OPEN, nothing known: for a new connection. */
void tw_pacer_init(struct tw_pacer *pacer);

/* Takes a look at the socket; one in TW_PACER_TICK_US is enough. */
void tw_pacer_take(struct tw_pacer *pacer, const struct tw_pacer_sample *sample);

/* Bytes per second the kernel should keep to; 0 = no limit. `upload_bytes_per_s`: the cap of the
 * node, 0 for none. */
uint64_t tw_pacer_limit(const struct tw_pacer *pacer, const struct tw_link_pace *config,
                        uint64_t upload_bytes_per_s);

#endif
