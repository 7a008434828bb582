/* sockopt.h - what we ask of the kernel for a TCP connection, and what it tells us. */
#ifndef TW_DAEMON_SOCKOPT_H
#define TW_DAEMON_SOCKOPT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/handshake.h"

/* No delay, small unsent queue, user timeout, keepalive, BBR where the kernel allows it. Every
 * option is a wish: what the kernel refuses is left as it is. SO_SNDBUF and SO_RCVBUF are never
 * touched: that would switch off the kernel's own tuning (13 instead of 78 Mbit/s at 200 ms). */
void tw_sockopt_set(int fd, enum tw_role role);

struct tw_sockopt_info {
    uint32_t rtt_us, rtt_var_us;
    uint64_t delivery_bytes_per_s, retransmits;
    char congestion[16];
};

/* False where the kernel does not say. */
bool tw_sockopt_info(int fd, struct tw_sockopt_info *info);

#endif
