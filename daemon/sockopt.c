#include "daemon/sockopt.h"

#include <stddef.h>
#include <string.h>

#include <linux/tcp.h> /* has fields of tcp_info that <netinet/tcp.h> lacks */
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

bool tw_sockopt_info(int fd, struct tw_sockopt_info *info) {
    struct tcp_info tcp;
    socklen_t size = sizeof(tcp);
    memset(&tcp, 0, sizeof(tcp)); /* an older kernel fills less */
    *info = (struct tw_sockopt_info){0};
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &tcp, &size) != 0) return false;
    info->rtt_us = tcp.tcpi_rtt;
    info->rtt_var_us = tcp.tcpi_rttvar;
    info->retransmits = tcp.tcpi_total_retrans;
    info->delivery_bytes_per_s = tcp.tcpi_delivery_rate;
    size = sizeof(info->congestion) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, info->congestion, &size) != 0)
        info->congestion[0] = '\0';
    return true;
}
