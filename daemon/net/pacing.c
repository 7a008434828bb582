/* pacing.c - samples the bulk connections that send, and sets their pacing rate in the kernel.
 *
 * Also ends links on paths that carry only small packets, such as tunnels that silently drop larger
 * ones. The control connection looks healthy there, so nothing else would end the link, and each
 * round would wait for payloads that never arrive. A receiver whose window is full looks different:
 * TCP retransmits nothing to it. */
#include "daemon/net/sockopt.h"
#include "daemon/net/transport_impl.h"

enum { LOOK_US = 500 * 1000, REPEATS = 3 };

/* Samples the socket, unless nothing was sent since the last sample. */
static void socket_sample(struct tw_pacing *pacing, const struct tw_link *link, int fd,
                          uint64_t now_us) {
    struct tw_sockopt_flow flow;
    const uint64_t bytes_out = tw_link_bytes_out(link);
    if (pacing->is_idle && bytes_out == pacing->bytes_out) return;
    if (!tw_sockopt_flow(fd, &flow)) return;
    if ((flow.no_room_us - pacing->no_room_us) * 2 > now_us - pacing->looked_us)
        flow.sample.is_idle = true;
    flow.sample.now_us = now_us;
    pacing->looked_us = now_us;
    pacing->is_idle = flow.sample.is_idle;
    pacing->bytes_out = bytes_out;
    pacing->no_room_us = flow.no_room_us;
    tw_pacer_take(&pacing->pacer, &flow.sample);
}

/* Returns true if the path has delivered nothing for TW_BULK_STUCK_US, although TCP keeps
 * retransmitting. */
static bool is_stuck(struct tw_pacing *pacing, int fd, uint64_t now_us) {
    struct tw_sockopt_flow flow;
    if (now_us < pacing->progress_due_us) return false;
    pacing->progress_due_us = now_us + LOOK_US;
    if (!tw_sockopt_flow(fd, &flow)) return false;
    const bool is_moving =
        flow.repeats < REPEATS || flow.sample.delivered_bytes != pacing->acked_bytes;
    if (is_moving) pacing->progress_us = now_us;
    pacing->acked_bytes = flow.sample.delivered_bytes;
    return now_us - pacing->progress_us >= TW_BULK_STUCK_US;
}

void tw_pacing_step(struct tw_transport *t, uint64_t now_us) {
    for (unsigned i = 0; i < TW_PEERS_MAX && !t->is_closing; i++) {
        struct tw_slot *slot = &t->peers[i];
        struct tw_pacing *pacing = &slot->pacing;
        uv_os_fd_t fd = -1;
        if (slot->state != TW_SLOT_UP || slot->bulk == NULL) continue;
        if (uv_fileno((const uv_handle_t *)&slot->bulk->link.tcp, &fd) != 0) continue;
        if (is_stuck(pacing, fd, now_us)) {
            tw_peer_end(t, (int)i, TW_IO,
                        "payloads do not get through, though small packets do: is the MTU of the "
                        "path below 1280 bytes?");
            continue;
        }
        if (t->config.pace.mode == TW_LINK_PACE_AUTO &&
            now_us >= pacing->looked_us + TW_PACER_TICK_US)
            socket_sample(pacing, &slot->bulk->link, fd, now_us);
        const uint64_t limit = tw_pacer_limit(&pacing->pacer, &t->config.pace, t->upload.per_s);
        if (limit == pacing->limit_bytes_per_s) continue;
        pacing->limit_bytes_per_s = limit;
        tw_sockopt_pace(fd, limit);
    }
}
