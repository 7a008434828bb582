#include "daemon/node/relays.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/status_view.h"
#include "daemon/net/transport.h"
#include "daemon/node/caps.h"
#include "daemon/router/relay_choice.h"
#include "sync/members/members.h"

enum { LOOK_US = 500 * 1000, BUDGET_SHARE = 4 };

struct tw_daemon_relays {
    struct tw_relay_choice choice;
    struct tw_relay_view view;                /* scratch of tick */
    struct tw_msg_links claims[TW_PEERS_MAX]; /* newest LINKS message of each linked peer */
    uint64_t look_due_us;
    uint64_t calls, calls_failed; /* calls through a relay that this node made */
};

/* ---- this node as a relay ------------------------------------------------------------------ */

bool tw_daemon_relays_is_relay(const struct tw_daemon *daemon) {
    const struct tw_config *config = &daemon->setup->config;
    return config->network.links && config->network.relay.is_on && config->network.listen_count > 0;
}

/* Returns the cap on relayed bytes, 0 = none: a share of the byte budget, most of which is left to
 * this node's own training. A monthly budget counts each relayed byte twice, on arrival and on
 * departure. */
static uint64_t find_cap(const struct tw_daemon *daemon) {
    const struct tw_budget_config *budget = &daemon->setup->config.network.budget;
    const uint64_t own = daemon->setup->config.network.relay.bytes_per_s;
    if (budget->bytes == 0) return own;
    const uint64_t per_s = budget->is_month ? budget->bytes / TW_MONTH_S / 2 : budget->bytes;
    const uint64_t share = per_s / BUDGET_SHARE > 0 ? per_s / BUDGET_SHARE : 1;
    return own > 0 && own < share ? own : share;
}

void tw_daemon_relays_apply(struct tw_daemon *daemon) {
    if (daemon->transport == NULL) return;
    tw_transport_set_relay(daemon->transport, tw_daemon_relays_is_relay(daemon), find_cap(daemon));
    daemon->measured.is_relay = tw_daemon_relays_is_relay(daemon);
    /* the core then announces in LINKS whether this node relays */
    if (daemon->node != NULL) tw_daemon_event_measured(daemon);
}

void tw_daemon_relays_carried(struct tw_daemon *daemon, const struct tw_relay_pipe *pipe) {
    char caller[9], called[9];
    tw_id_short(&pipe->caller, caller);
    tw_id_short(&pipe->called, called);
    if (pipe->is_open)
        tw_daemon_note(daemon, TW_LOG_INFO, "relay_opened", "from=%s to=%s", caller, called);
    else
        tw_daemon_note(daemon, TW_LOG_INFO, "relay_closed", "from=%s to=%s bytes=%llu text=\"%s\"",
                       caller, called, (unsigned long long)pipe->bytes, pipe->sentence);
}

/* ---- calling ------------------------------------------------------------------------------- */

static void view_links(struct tw_daemon *daemon) {
    struct tw_relay_view *view = &daemon->relays->view;
    view->linked_count = 0;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        struct tw_peer_net net;
        if (!daemon->peers[i].is_up || !tw_transport_peer(daemon->transport, i, &net)) continue;
        view->linked[view->linked_count++] = (struct tw_relay_linked){
            .id = net.id, .is_relayed = net.is_relayed, .relay = net.relay};
    }
}

static bool is_direct(const struct tw_relay_view *view, const struct tw_id *id) {
    for (uint32_t i = 0; i < view->linked_count; i++) {
        if (!view->linked[i].is_relayed && tw_id_equal(&view->linked[i].id, id)) return true;
    }
    return false;
}

/* Lists the peers that offer to relay. For each, lists the nodes that it is linked to and this node
 * is not. */
static void view_offers(struct tw_daemon *daemon) {
    struct tw_relay_view *view = &daemon->relays->view;
    view->offers_count = 0;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_msg_links *claim = &daemon->relays->claims[i];
        struct tw_peer_net net;
        if (!daemon->peers[i].is_up || claim->is_relay == 0) continue;
        if (!tw_transport_peer(daemon->transport, i, &net)) continue;
        /* No relay: other nodes cannot dial such a peer. */
        if (net.is_relayed || net.is_punched) continue;
        if ((net.features & TW_FEATURE_RELAY) == 0) continue;
        struct tw_relay_offer *offer = &view->offers[view->offers_count++];
        offer->peer = i;
        offer->id = net.id;
        offer->rtt_us = net.rtt_us;
        offer->bytes_per_s = net.path_bytes_per_s;
        offer->direct_count = 0;
        for (uint32_t k = 0; k < claim->direct_count; k++) {
            if (!is_direct(view, &claim->direct[k]))
                offer->direct[offer->direct_count++] = claim->direct[k];
        }
    }
}

static void view_hopes(struct tw_daemon *daemon) {
    struct tw_relay_view *view = &daemon->relays->view;
    view->hopeful_count = 0;
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        const struct tw_member_entry *entry = &daemon->members->entries[i];
        if (!entry->is_used || !entry->has_id || entry->is_connected) continue;
        if (tw_members_may_reach(daemon->members, &entry->id))
            view->hopeful[view->hopeful_count++] = entry->id;
    }
}

static void call_failed(struct tw_daemon *daemon, const struct tw_id *relay,
                        const struct tw_id *target, const char *sentence) {
    char by[9], to[9];
    tw_id_short(relay, by);
    tw_id_short(target, to);
    daemon->relays->calls_failed++;
    tw_daemon_note(daemon, TW_LOG_INFO, "relay_call_failed", "to=%s by=%s text=\"%s\"", to, by,
                   sentence);
}

void tw_daemon_relays_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_relays *relays = daemon->relays;
    struct tw_relay_pick pick;
    struct tw_error err = {0};
    if (daemon->transport == NULL || now_us < relays->look_due_us) return;
    relays->look_due_us = now_us + LOOK_US;
    relays->view.self = daemon->setup->identity.id;
    view_links(daemon);
    view_offers(daemon);
    view_hopes(daemon);
    tw_relay_choice_look(&relays->choice, &relays->view, now_us);
    while (tw_relay_choice_next(&relays->choice, &relays->view, now_us, &pick)) {
        relays->calls++;
        if (tw_transport_call(daemon->transport, pick.peer, &pick.target, &err) == TW_OK) continue;
        call_failed(daemon, &pick.relay, &pick.target, err.message);
        tw_relay_choice_ended(&relays->choice, &pick.target, false, now_us);
    }
}

void tw_daemon_relays_called(struct tw_daemon *daemon, const struct tw_id *relay,
                             const struct tw_id *target, const struct tw_dial_result *result) {
    const bool is_linked = result->status == TW_OK;
    tw_relay_choice_ended(&daemon->relays->choice, target, is_linked, tw_daemon_now_us());
    if (!is_linked) call_failed(daemon, relay, target, result->sentence);
}

/* ---- peers --------------------------------------------------------------------------------- */

void tw_daemon_relays_message(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_message *message) {
    struct tw_error err = {0};
    char by[9], from[9];
    if (message->kind == TW_MSG_LINKS) daemon->relays->claims[peer] = message->u.links;
    if (message->kind != TW_MSG_RELAY_CALL) return;
    const struct tw_msg_relay_call *call = &message->u.relay_call;
    if (daemon->stage != TW_DAEMON_RUNNING || tw_daemon_caps_is_resting(daemon)) return;
    if (tw_transport_answer(daemon->transport, peer, &call->from, call->token, &err) == TW_OK)
        return;
    tw_id_short(&daemon->peers[peer].id, by);
    tw_id_short(&call->from, from);
    tw_log(TW_LOG_DEBUG, "relay_call_left", "from=%s by=%s text=\"%s\"", from, by, err.message);
}

void tw_daemon_relays_peer_up(struct tw_daemon *daemon, uint16_t peer) {
    daemon->relays->claims[peer] = (struct tw_msg_links){.is_relay = 0};
    daemon->relays->look_due_us = 0;
}

void tw_daemon_relays_peer_down(struct tw_daemon *daemon, uint16_t peer) {
    tw_daemon_relays_peer_up(daemon, peer);
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_relays_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->relays = tw_daemon_alloc(sizeof(*daemon->relays), err);
    return daemon->relays != NULL ? TW_OK : TW_NOMEM;
}

void tw_daemon_relays_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    if (daemon->transport == NULL) return;
    const struct tw_relay_info info = tw_transport_relay(daemon->transport);
    view->relay.is_on = info.is_on;
    view->relay.cap_bytes_s = info.bytes_per_s;
    view->relay.pipes = info.pipes;
    view->relay.bytes = info.bytes;
    view->relay.calls_refused = info.refused;
    view->relay.pipes_cut = info.cut;
    view->relay.own_calls = daemon->relays->calls;
    view->relay.own_calls_failed = daemon->relays->calls_failed;
}

void tw_daemon_relays_free(struct tw_daemon *daemon) {
    free(daemon->relays);
}
