#include "daemon/node/punches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api/status_view.h"
#include "daemon/net/transport.h"
#include "daemon/node/caps.h"
#include "daemon/router/punch_plan.h"
#include "sync/members/members.h"

enum { LOOK_US = 500 * 1000 };

struct tw_daemon_punches {
    struct tw_punch_plan plan;
    struct tw_punch_row rows[TW_PEERS_MAX]; /* scratch of look() */
    uint64_t look_due_us;
};

static void send_stage(struct tw_daemon *daemon, uint16_t peer, enum tw_punch_stage stage,
                       uint64_t token, const struct tw_punch_info *info) {
    struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PUNCH;
    message.u.punch.stage = stage;
    message.u.punch.token = token;
    memcpy(message.u.punch.control, info->own[0], TW_ADDR_BYTES);
    memcpy(message.u.punch.bulk, info->own[1], TW_ADDR_BYTES);
    tw_daemon_send(daemon, peer, &message);
}

static void begin(struct tw_daemon *daemon, uint16_t peer, uint64_t delay_us,
                  const struct tw_punch_info *info) {
    struct tw_error err = {0};
    char hex[9];
    tw_id_short(&daemon->peers[peer].id, hex);
    if (tw_transport_punch(daemon->transport, peer, delay_us, &err) == TW_OK)
        tw_daemon_note(daemon, TW_LOG_INFO, "punching", "peer=%s from=%s to=%s", hex, info->own[0],
                       info->other[0]);
    else
        tw_daemon_note(daemon, TW_LOG_INFO, "not_punched", "peer=%s text=\"%s\"", hex, err.message);
}

/* Gets the addresses at which the relay sees the two ends. Returns TW_AGAIN with the reason if the
 * link cannot be punched. */
static enum tw_status info_get(const struct tw_daemon *daemon, uint16_t peer,
                               struct tw_punch_info *info, struct tw_error *err) {
    if (!daemon->setup->config.network.punch)
        return tw_fail(err, TW_AGAIN, "`network.punch` is off on this node");
    return tw_transport_punch_info(daemon->transport, peer, info, err);
}

static void look(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_punches *punches = daemon->punches;
    uint32_t count = 0;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        struct tw_punch_info info = {.is_client = false};
        struct tw_error err;
        struct tw_peer_net net;
        if (!daemon->peers[i].is_up || !tw_transport_peer(daemon->transport, i, &net)) continue;
        const bool can = net.is_relayed && info_get(daemon, i, &info, &err) == TW_OK;
        punches->rows[count++] = (struct tw_punch_row){.peer = i,
                                                       .id = net.id,
                                                       .is_relayed = net.is_relayed,
                                                       .is_client = info.is_client,
                                                       .can = can,
                                                       .is_punched = net.is_punched};
    }
    tw_punch_plan_look(&punches->plan, punches->rows, count, now_us);
}

void tw_daemon_punches_message(struct tw_daemon *daemon, uint16_t peer,
                               const struct tw_message *message) {
    const struct tw_msg_punch *punch = &message->u.punch;
    const uint64_t now_us = tw_daemon_now_us();
    struct tw_punch_info info;
    struct tw_error err = {0};
    uint64_t delay_us;
    if (message->kind != TW_MSG_PUNCH || daemon->stage != TW_DAEMON_RUNNING) return;
    if (punch->stage == TW_PUNCH_SEEN) return; /* probes.c handles it */
    if (tw_daemon_caps_is_resting(daemon)) return;
    if (info_get(daemon, peer, &info, &err) != TW_OK) return;
    if (!tw_punch_is_agreed(&info, punch)) {
        tw_log(TW_LOG_DEBUG, "punch_left", "text=\"the relay saw the other end at %s\"",
               info.other[0]);
        return;
    }
    look(daemon, now_us); /* a link may have come up since the last tick */
    switch (tw_punch_plan_heard(&daemon->punches->plan, &daemon->peers[peer].id, punch->stage,
                                punch->token, now_us, &delay_us)) {
    case TW_PUNCH_NOTHING: return;
    case TW_PUNCH_SEND_READY: send_stage(daemon, peer, TW_PUNCH_READY, punch->token, &info); return;
    case TW_PUNCH_SEND_GO:
        send_stage(daemon, peer, TW_PUNCH_GO, punch->token, &info);
        begin(daemon, peer, delay_us, &info);
        return;
    case TW_PUNCH_BEGIN: begin(daemon, peer, 0, &info); return;
    }
}

void tw_daemon_punches_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_punches *punches = daemon->punches;
    struct tw_punch_pick pick;
    uint64_t token;
    if (now_us < punches->look_due_us) return;
    punches->look_due_us = now_us + LOOK_US;
    look(daemon, now_us);
    TW_ASSERT(uv_random(NULL, NULL, &token, sizeof(token), 0, NULL) == 0);
    while (tw_punch_plan_next(&punches->plan, token++, now_us, &pick)) {
        struct tw_punch_info info;
        struct tw_error err;
        if (info_get(daemon, pick.peer, &info, &err) == TW_OK)
            send_stage(daemon, pick.peer, TW_PUNCH_ASK, pick.token, &info);
    }
}

void tw_daemon_punches_moved(struct tw_daemon *daemon, uint64_t now_us) {
    tw_punch_plan_moved(&daemon->punches->plan, now_us);
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_punches_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->punches = tw_daemon_alloc(sizeof(*daemon->punches), err);
    return daemon->punches != NULL ? TW_OK : TW_NOMEM;
}

void tw_daemon_punches_describe(const struct tw_daemon *daemon, uint16_t peer, uint64_t now_us,
                                char *text, size_t capacity) {
    const struct tw_punch_target *target =
        tw_punch_plan_find(&daemon->punches->plan, &daemon->peers[peer].id);
    struct tw_punch_info info;
    struct tw_error err = {0};
    const uint32_t shorts = tw_members_shorts(daemon->members, &daemon->peers[peer].id);
    if (shorts > 1) {
        (void)snprintf(text, capacity,
                       "direct links broke %u times in a row, each within %d s: does a tunnel or "
                       "firewall on the way drop large packets?",
                       shorts, TW_LINK_STEADY_US / 1000000);
    } else if (info_get(daemon, peer, &info, &err) != TW_OK) {
        (void)snprintf(text, capacity, "no direct link can be punched: %s", err.message);
    } else if (target == NULL || target->pause_us == 0 || now_us >= target->rest_us) {
        (void)snprintf(text, capacity, "a direct link is about to be punched");
    } else {
        (void)snprintf(text, capacity,
                       "a direct link was punched in vain; next try in %llu min at the earliest",
                       (unsigned long long)((target->rest_us - now_us) / 60000000 + 1));
    }
}

void tw_daemon_punches_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    view->net.punch_tries = daemon->punches->plan.tries;
    view->net.punch_successes = daemon->punches->plan.successes;
}

void tw_daemon_punches_free(struct tw_daemon *daemon) {
    free(daemon->punches);
}
