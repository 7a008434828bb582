/* sockopt.h - TCP options that we set, and the kernel's statistics of a connection. */
#ifndef TW_DAEMON_NET_SOCKOPT_H
#define TW_DAEMON_NET_SOCKOPT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/net/handshake.h"
#include "daemon/net/pacer.h"

/* Sets TCP_NODELAY, a small unsent queue, a user timeout, keepalive, and BBR if the kernel allows
 * it. An option that the kernel refuses is skipped. SO_SNDBUF and SO_RCVBUF are never set: that
 * would disable the kernel's autotuning (13 instead of 78 Mbit/s at 200 ms). */
void tw_sockopt_set(int fd, enum tw_role role);

/* Keeps packets within 1280 bytes, which every IPv6 path and every usual tunnel carries (RFC 8200
 * section 5). Otherwise a path that silently drops larger packets breaks the connection: TCP
 * notices only by timeouts, and with Linux's default settings never finds a size that passes. Set
 * on a listener, or before the connect of a punch, the option limits both ends of the connection.
 */
void tw_sockopt_small_packets(int fd);

struct tw_sockopt_info {
    uint32_t rtt_us, rtt_var_us;
    uint64_t delivery_bytes_per_s, retransmits, segments; /* segments include retransmissions */
    uint64_t pace_bytes_per_s;                            /* pacing rate; 0 = no limit */
    char congestion[16];
};

/* Returns false if the kernel does not support TCP_INFO. */
bool tw_sockopt_info(int fd, struct tw_sockopt_info *info);

/* Input for the pacer, except now_us. no_room_us is the total time in which the receiver's window
 * limited TCP. tw_sockopt_flow returns false if the kernel does not support TCP_INFO. */
struct tw_sockopt_flow {
    struct tw_pacer_sample sample;
    uint64_t no_room_us;
    uint32_t repeats; /* consecutive retransmission timeouts of the oldest unacknowledged segment */
};

bool tw_sockopt_flow(int fd, struct tw_sockopt_flow *flow);

/* Sets the rate at which the kernel paces the socket's packets; 0 = no limit. */
void tw_sockopt_pace(int fd, uint64_t bytes_per_s);

#endif
