/* sockopt.h - TCP options that we set, and the kernel's statistics of a connection. */
#ifndef TW_DAEMON_NET_SOCKOPT_H
#define TW_DAEMON_NET_SOCKOPT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/net/handshake.h"
#include "daemon/net/pacer.h"

/* Sets no delay, a small unsent queue, user timeout, keepalive, and BBR if the kernel allows it.
 * Every option is optional: one that the kernel refuses is skipped. SO_SNDBUF and SO_RCVBUF are
 * never set: that would disable the kernel's autotuning (13 instead of 78 Mbit/s at 200 ms). */
void tw_sockopt_set(int fd, enum tw_role role);

/* Keeps packets within 1280 bytes, which every IPv6 path and every usual tunnel carries (RFC 8200
 * section 5). A path that drops larger ones without a word then does no harm: TCP learns of it only
 * by timeouts, and not at all with Linux's default settings. Set on a listener, or before the
 * connect of a punch, it binds both ends of the connection. */
void tw_sockopt_small_packets(int fd);

struct tw_sockopt_info {
    uint32_t rtt_us, rtt_var_us;
    uint64_t delivery_bytes_per_s, retransmits, segments; /* segments include retransmits */
    uint64_t pace_bytes_per_s;                            /* pacing rate; 0 = no limit */
    char congestion[16];
};

/* False if the kernel does not support it. */
bool tw_sockopt_info(int fd, struct tw_sockopt_info *info);

/* Input for the pacer, without now_us. no_room_us is TCP's total time limited by the receiver's
 * window. False if the kernel does not support it. */
struct tw_sockopt_flow {
    struct tw_pacer_sample sample;
    uint64_t no_room_us;
    uint32_t repeats; /* timeouts in a row of the oldest segment that is not acknowledged */
};

bool tw_sockopt_flow(int fd, struct tw_sockopt_flow *flow);

/* Limits the kernel to this rate, sent evenly; 0 = no limit. */
void tw_sockopt_pace(int fd, uint64_t bytes_per_s);

#endif
