#include "daemon/net/sockopt.h"

#include <stddef.h>
#include <string.h>

#include <linux/tcp.h> /* for the fields of tcp_info that <netinet/tcp.h> lacks */
#include <netinet/in.h>
#include <sys/socket.h>

static void set_int(int fd, int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void tw_sockopt_set(int fd, enum tw_role role) {
    const bool is_bulk = role == TW_ROLE_BULK;
    static const char bbr[] = "bbr";
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, is_bulk ? 128 * 1024 : 16 * 1024);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, is_bulk ? 60 * 1000 : 30 * 1000);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, bbr, sizeof(bbr) - 1);
}

void tw_sockopt_small_packets(int fd) {
    enum { PACKET_BYTES = 1280, IPV6_HEADER_BYTES = 40, TCP_HEADER_BYTES = 20 };
    set_int(fd, IPPROTO_TCP, TCP_MAXSEG, PACKET_BYTES - IPV6_HEADER_BYTES - TCP_HEADER_BYTES);
}

static bool info_read(int fd, struct tcp_info *tcp) {
    socklen_t size = sizeof(*tcp);
    memset(tcp, 0, sizeof(*tcp)); /* an older kernel fills fewer fields */
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, tcp, &size) == 0;
}

bool tw_sockopt_flow(int fd, struct tw_sockopt_flow *flow) {
    struct tcp_info tcp;
    if (!info_read(fd, &tcp)) return false;
    *flow = (struct tw_sockopt_flow){
        .sample = {.delivered_bytes =
                       tcp.tcpi_bytes_acked + (uint64_t)tcp.tcpi_sacked * tcp.tcpi_snd_mss,
                   .rtt_us = tcp.tcpi_rtt,
                   .rtt_least_us = tcp.tcpi_min_rtt,
                   .is_idle = tcp.tcpi_notsent_bytes == 0},
        .no_room_us = tcp.tcpi_rwnd_limited,
        .repeats = tcp.tcpi_retransmits,
    };
    return true;
}

void tw_sockopt_pace(int fd, uint64_t bytes_per_s) {
    /* The value has the width of a long. Kernels before 5.0 expect an int and read its lower half.
     */
    const unsigned long rate = bytes_per_s == 0 ? ~0UL : (unsigned long)bytes_per_s;
    (void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

bool tw_sockopt_info(int fd, struct tw_sockopt_info *info) {
    struct tcp_info tcp;
    *info = (struct tw_sockopt_info){0};
    if (!info_read(fd, &tcp)) return false;
    info->rtt_us = tcp.tcpi_rtt;
    info->rtt_var_us = tcp.tcpi_rttvar;
    info->retransmits = tcp.tcpi_total_retrans;
    info->segments = tcp.tcpi_data_segs_out;
    info->delivery_bytes_per_s = tcp.tcpi_delivery_rate;
    if (tcp.tcpi_max_pacing_rate < UINT32_MAX) info->pace_bytes_per_s = tcp.tcpi_max_pacing_rate;
    socklen_t size = sizeof(info->congestion) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, info->congestion, &size) != 0)
        info->congestion[0] = '\0';
    return true;
}
