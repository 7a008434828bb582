/* sockopt.h - what we ask of the kernel for a TCP connection, and what it tells us. */
#ifndef TW_DAEMON_NET_SOCKOPT_H
#define TW_DAEMON_NET_SOCKOPT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/net/handshake.h"
#include "daemon/net/pacer.h"

/* No delay, small unsent queue, user timeout, keepalive, BBR where the kernel allows it. Every
 * option is a wish: what the kernel refuses is left as it is. SO_SNDBUF and SO_RCVBUF are never
 * touched: that would switch off the kernel's own tuning (13 instead of 78 Mbit/s at 200 ms). */
void tw_sockopt_set(int fd, enum tw_role role);

struct tw_sockopt_info {
    uint32_t rtt_us, rtt_var_us;
    uint64_t delivery_bytes_per_s, retransmits, segments; /* with data, retransmits among them */
    uint64_t pace_bytes_per_s;                            /* it is held to; 0 = no limit */
    char congestion[16];
};

/* False where the kernel does not say. */
bool tw_sockopt_info(int fd, struct tw_sockopt_info *info);

/* What pacing wants to know, but for now_us; TCP's sum of time without room at the receiver. False
 * where the kernel does not say. */
struct tw_sockopt_flow {
    struct tw_pacer_sample sample;
    uint64_t no_room_us;
};

bool tw_sockopt_flow(int fd, struct tw_sockopt_flow *flow);

/* The kernel sends at most so much a second, evenly; 0 = as fast as it likes. */
void tw_sockopt_pace(int fd, uint64_t bytes_per_s);

#endif
