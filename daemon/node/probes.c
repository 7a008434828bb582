/* probes.c - dial-back: asking peers whether this node can be dialled, and trying it for them.
 *
 * A peer has us dial only what it said of itself in HELLO, at most once in PROBE_REST_US, and few
 * addresses at a time for all peers together: so nobody is made to scan ports for others. */
#include <string.h>

#include "base/assert.h"
#include "daemon/node/runtime.h"

enum { PROBE_REST_US = 20 * 1000 * 1000 };

/* ---- for others ---------------------------------------------------------------------------- */

static enum tw_probe_outcome outcome_of(const struct tw_dial_result *result) {
    if (result->status == TW_OK) return TW_PROBE_REACHED;
    switch ((int)result->cause) { /* most causes mean that somebody was reached, and refused */
    case TW_DIAL_DNS: return TW_PROBE_NO_NAME;
    case TW_DIAL_CLOSED: return TW_PROBE_CLOSED;
    case TW_DIAL_REJECTED: return TW_PROBE_REJECTED;
    case TW_DIAL_SILENT:
    case TW_DIAL_PRIVATE: return TW_PROBE_SILENT;
    case TW_DIAL_NO_ROUTE: return TW_PROBE_NO_ROUTE;
    case TW_DIAL_NOT_THINWIRE:
    case TW_DIAL_WRONG_ID:
    case TW_DIAL_SELF: return TW_PROBE_OTHER;
    default: return TW_PROBE_FAILED;
    }
}

static uint16_t peer_of(const struct tw_daemon *daemon, const struct tw_id *id) {
    uint16_t peer = 0;
    while (peer < TW_PEERS_MAX &&
           !(daemon->peers[peer].is_up && tw_id_equal(&daemon->peers[peer].id, id)))
        peer++;
    return peer;
}

void tw_daemon_probes_done(struct tw_daemon *daemon, const char *address,
                           const struct tw_id *expected, const struct tw_dial_result *result) {
    for (uint32_t i = 0; i < TW_PROBE_JOBS_MAX; i++) {
        struct tw_probe_job *job = &daemon->probe.jobs[i];
        if (!job->is_used || strcmp(job->address, address) != 0) continue;
        if (!tw_id_equal(&job->id, expected)) continue;
        struct tw_message message;
        memset(&message, 0, sizeof(message));
        message.kind = TW_MSG_PROBED;
        message.u.probed.token = job->token;
        message.u.probed.outcome = outcome_of(result);
        memcpy(message.u.probed.addr, job->address, sizeof(job->address));
        *job = (struct tw_probe_job){0};
        const uint16_t peer = peer_of(daemon, expected);
        if (peer < TW_PEERS_MAX) tw_daemon_links_send(daemon, peer, &message);
        return;
    }
}

static void try_for(struct tw_daemon *daemon, uint16_t peer, uint64_t token) {
    struct tw_daemon_peer *asker = &daemon->peers[peer];
    const uint64_t now_us = tw_daemon_now_us();
    if (asker->probed_us != 0 && now_us < asker->probed_us + PROBE_REST_US) return;
    asker->probed_us = now_us;
    for (uint32_t a = 0; a < TW_ADDRS_MAX && asker->addrs[a][0] != '\0'; a++) {
        struct tw_probe_job *job = daemon->probe.jobs;
        while (job < daemon->probe.jobs + TW_PROBE_JOBS_MAX && job->is_used) job++;
        if (job == daemon->probe.jobs + TW_PROBE_JOBS_MAX) return;
        struct tw_error err;
        if (tw_transport_probe(daemon->transport, asker->addrs[a], &asker->id, &err) != TW_OK)
            return;
        *job = (struct tw_probe_job){.is_used = true, .id = asker->id, .token = token};
        memcpy(job->address, asker->addrs[a], sizeof(job->address));
    }
}

/* ---- for ourselves ------------------------------------------------------------------------- */

/* Who is elsewhere knows more than who is in the same network: two walks, the first for them. */
static uint32_t ask_some(struct tw_daemon *daemon, uint64_t token) {
    uint64_t asked = 0;
    uint32_t count = 0;
    struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PROBE;
    message.u.probe.token = token;
    for (unsigned walk = 0; walk < 2; walk++) {
        for (uint32_t i = 0; i < TW_PEERS_MAX && count < TW_REACHABILITY_ASKED_MAX; i++) {
            const uint16_t peer = (uint16_t)((token + i) % TW_PEERS_MAX);
            struct tw_peer_net net;
            if (!daemon->peers[peer].is_up || (asked >> peer & 1) != 0) continue;
            if (!tw_transport_peer(daemon->transport, peer, &net)) continue;
            if ((net.features & TW_FEATURE_DIAL_BACK) == 0) continue;
            if (walk == 0 && tw_reachability_is_private(net.address)) continue;
            asked |= UINT64_C(1) << peer;
            count++;
            tw_daemon_links_send(daemon, peer, &message);
        }
    }
    return count;
}

void tw_daemon_probes_tick(struct tw_daemon *daemon, uint64_t now_us) {
    uint64_t token;
    if (daemon->setup->config.network.listen_count == 0) return;
    if (!tw_reachability_is_due(&daemon->probe.reach, now_us)) return;
    TW_ASSERT(uv_random(NULL, NULL, &token, sizeof(token), 0, NULL) == 0);
    const uint32_t asked = ask_some(daemon, token);
    tw_reachability_ask(&daemon->probe.reach, token, asked > 0, now_us);
}

/* The first port that is listened on: the first entry may be [::] on a machine without IPv6. */
static uint16_t port_of(const struct tw_daemon *daemon) {
    for (uint32_t i = 0; i < daemon->setup->config.network.listen_count; i++) {
        if (tw_transport_port(daemon->transport, i) != 0)
            return tw_transport_port(daemon->transport, i);
    }
    return 0;
}

static void hear(struct tw_daemon *daemon, uint16_t peer, const struct tw_msg_probed *probed) {
    struct tw_reachability *reach = &daemon->probe.reach;
    const bool is_listening = daemon->setup->config.network.listen_count > 0;
    tw_reachability_heard(reach, tw_transport_self(daemon->transport), probed,
                          &daemon->peers[peer].id, tw_daemon_now_us());
    const enum tw_reachability_state state = tw_reachability_state(reach, is_listening);
    if (state == daemon->probe.told) return;
    daemon->probe.told = state;
    if (state == TW_REACHABILITY_UNKNOWN) return;
    char sentence[TW_REACHABILITY_SENTENCE_BYTES];
    tw_reachability_sentence(reach, is_listening, port_of(daemon), sentence);
    tw_daemon_note(daemon, TW_LOG_INFO, "reachable", "state=%s text=\"%s\"",
                   tw_reachability_state_name(state), sentence);
}

void tw_daemon_probes_message(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_message *message) {
    if (message->kind == TW_MSG_PROBE) try_for(daemon, peer, message->u.probe.token);
    if (message->kind == TW_MSG_PROBED) hear(daemon, peer, &message->u.probed);
}

void tw_daemon_probes_fill(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view) {
    const struct tw_reachability *reach = &daemon->probe.reach;
    const bool is_listening = daemon->setup->config.network.listen_count > 0;
    if (daemon->transport == NULL) return;
    view->net.reach_state = tw_reachability_state(reach, is_listening);
    tw_reachability_sentence(reach, is_listening, port_of(daemon), view->net.reach_text);
    if (reach->checked_us != 0) view->net.reach_age_us = now_us - reach->checked_us;
    view->net.reach_count = reach->rows_count;
    memcpy(view->net.reach, reach->rows, sizeof(view->net.reach));
}
