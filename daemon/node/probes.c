#include "daemon/node/probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api/status_view.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport.h"
#include "daemon/router/nat_kind.h"

enum { JOBS_MAX = 8, FAILED_US = 10 * 1000 * 1000 };

_Static_assert(FAILED_US > TW_PROBE_US + TW_HANDSHAKE_US, "every dial has ended by then");

/* An address that this node dials because the peer there asked for it. */
struct job {
    bool is_used, is_failed;
    struct tw_id id;
    uint64_t token, begun_us;
    char address[TW_ADDR_BYTES];
};

struct tw_daemon_probes {
    struct tw_reachability reach;
    enum tw_reachability_state noted; /* state last logged */
    struct job jobs[JOBS_MAX];
    struct tw_nat_kind nat;
};

/* ---- dials for peers ----------------------------------------------------------------------------
 */

static uint16_t find_peer(const struct tw_daemon *daemon, const struct tw_id *id) {
    uint16_t peer = 0;
    while (peer < TW_PEERS_MAX &&
           !(daemon->peers[peer].is_up && tw_id_equal(&daemon->peers[peer].id, id)))
        peer++;
    return peer;
}

static void tell(struct tw_daemon *daemon, struct job *job) {
    struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PROBED;
    message.u.probed.token = job->token;
    message.u.probed.outcome = job->is_failed ? TW_PROBE_FAILED : TW_PROBE_REACHED;
    memcpy(message.u.probed.addr, job->address, sizeof(job->address));
    const uint16_t peer = find_peer(daemon, &job->id);
    *job = (struct job){0};
    if (peer < TW_PEERS_MAX) tw_daemon_send(daemon, peer, &message);
}

void tw_daemon_probes_done(struct tw_daemon *daemon, const char *address,
                           const struct tw_id *expected, const struct tw_dial_result *result) {
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &daemon->probes->jobs[i];
        if (!job->is_used || job->is_failed || strcmp(job->address, address) != 0) continue;
        if (!tw_id_equal(&job->id, expected)) continue;
        job->is_failed = result->status != TW_OK;
        if (!job->is_failed) tell(daemon, job);
        return;
    }
}

/* Reports every failed dial in the same way, and after the same time. Otherwise the asking peer
 * would learn which ports are open, closed or filtered. */
static void tell_failed(struct tw_daemon *daemon, uint64_t now_us) {
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &daemon->probes->jobs[i];
        if (job->is_used && job->is_failed && now_us >= job->begun_us + FAILED_US)
            tell(daemon, job);
    }
}

static void try_dial_back(struct tw_daemon *daemon, uint16_t peer, uint64_t token) {
    char dialled[TW_ADDRS_MAX][TW_ADDR_BYTES];
    uint32_t free_count = 0;
    for (uint32_t i = 0; i < JOBS_MAX; i++) free_count += !daemon->probes->jobs[i].is_used;
    if (free_count < TW_ADDRS_MAX) return;
    const uint32_t count = tw_transport_dial_back(daemon->transport, peer, dialled);
    for (uint32_t a = 0; a < count; a++) {
        struct job *job = daemon->probes->jobs;
        while (job->is_used) job++;
        *job = (struct job){.is_used = true, .id = daemon->peers[peer].id, .token = token};
        job->begun_us = tw_daemon_now_us();
        memcpy(job->address, dialled[a], sizeof(job->address));
    }
}

/* ---- dials by peers ------------------------------------------------------------------------- */

/* Asks peers to dial this node back, and returns their number. A dial from another network proves
 * more, so the first pass skips peers at private addresses. */
static uint32_t ask_peers(struct tw_daemon *daemon, uint64_t token) {
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
            tw_daemon_send(daemon, peer, &message);
        }
    }
    return count;
}

/* ---- kind of NAT --------------------------------------------------------------------------- */

/* Returns true if this peer can observe the NAT, because this node dialled it at a public IPv4
 * address. */
static bool can_observe(const struct tw_daemon *daemon, uint16_t peer, struct tw_peer_net *net) {
    if (!daemon->peers[peer].is_up || !tw_transport_peer(daemon->transport, peer, net))
        return false;
    return net->is_dialled && !net->is_relayed && !net->is_punched && net->address[0] != '[' &&
           (net->features & TW_FEATURE_PUNCH) != 0 && !tw_reachability_is_private(net->address);
}

static bool is_same_host(const char *a, const char *b) {
    const size_t size = strcspn(a, ":");
    return size == strcspn(b, ":") && strncmp(a, b, size) == 0;
}

static void ask_nat_kind(struct tw_daemon *daemon, uint64_t now_us) {
    enum { PORT_FIRST = 20000, PORTS = 40000 };
    struct tw_nat_kind *nat = &daemon->probes->nat;
    struct tw_peer_net found[TW_NAT_PEERS];
    struct tw_id ids[TW_NAT_PEERS];
    char own[TW_ADDR_BYTES];
    uint64_t token;
    unsigned count = 0;
    TW_ASSERT(uv_random(NULL, NULL, &token, sizeof(token), 0, NULL) == 0);
    for (uint16_t i = 0; i < TW_PEERS_MAX && count < TW_NAT_PEERS; i++) {
        struct tw_peer_net *net = &found[count];
        if (!can_observe(daemon, i, net)) continue;
        if (count > 0 && is_same_host(found[0].address, net->address)) continue;
        ids[count++] = net->id;
    }
    const bool can =
        count == TW_NAT_PEERS && token != 0 && tw_transport_own_v4(daemon->transport, own);
    tw_nat_kind_ask(nat, token, can ? ids : NULL, own, now_us);
    for (unsigned i = 0; can && i < TW_NAT_PEERS; i++) {
        struct tw_error err;
        (void)tw_transport_observe(daemon->transport, found[i].address, &ids[i],
                                   (uint16_t)(PORT_FIRST + token % PORTS), token, &err);
    }
}

void tw_daemon_probes_observed(struct tw_daemon *daemon, const struct tw_id *id, uint64_t token,
                               const char *address) {
    const uint16_t peer = find_peer(daemon, id);
    struct tw_message message;
    if (peer == TW_PEERS_MAX) return;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PUNCH;
    message.u.punch.stage = TW_PUNCH_SEEN;
    message.u.punch.token = token;
    (void)snprintf(message.u.punch.control, sizeof(message.u.punch.control), "%s", address);
    tw_daemon_send(daemon, peer, &message);
}

static void take_seen(struct tw_daemon *daemon, uint16_t peer, const struct tw_msg_punch *punch) {
    struct tw_nat_kind *nat = &daemon->probes->nat;
    const enum tw_nat before = nat->result;
    tw_nat_kind_heard(nat, &daemon->peers[peer].id, punch->token, punch->control,
                      tw_daemon_now_us());
    if (nat->result == before) return;
    tw_daemon_note(daemon, TW_LOG_INFO, "nat", "kind=%s own=%s seen=%s also=%s",
                   tw_nat_kind_name(nat->result), nat->own, nat->seen[0].address,
                   nat->seen[1].address);
}

/* ---- ticks --------------------------------------------------------------------------------- */

void tw_daemon_probes_tick(struct tw_daemon *daemon, uint64_t now_us) {
    uint64_t token;
    tell_failed(daemon, now_us);
    if (tw_nat_kind_is_due(&daemon->probes->nat, now_us)) ask_nat_kind(daemon, now_us);
    if (daemon->setup->config.network.listen_count == 0) return;
    if (!tw_reachability_is_due(&daemon->probes->reach, now_us)) return;
    TW_ASSERT(uv_random(NULL, NULL, &token, sizeof(token), 0, NULL) == 0);
    const uint32_t asked = ask_peers(daemon, token);
    tw_reachability_ask(&daemon->probes->reach, token, asked > 0, now_us);
}

/* Returns the port of the first open listener. The first configured one may be [::] on a machine
 * without IPv6. */
static uint16_t find_port(const struct tw_daemon *daemon) {
    for (uint32_t i = 0; i < daemon->setup->config.network.listen_count; i++) {
        if (tw_transport_port(daemon->transport, i) != 0)
            return tw_transport_port(daemon->transport, i);
    }
    return 0;
}

static void take_answer(struct tw_daemon *daemon, uint16_t peer,
                        const struct tw_msg_probed *probed) {
    struct tw_reachability *reach = &daemon->probes->reach;
    const bool is_listening = daemon->setup->config.network.listen_count > 0;
    tw_reachability_heard(reach, tw_transport_self(daemon->transport), probed,
                          &daemon->peers[peer].id, tw_daemon_now_us());
    const enum tw_reachability_state state = tw_reachability_state(reach, is_listening);
    if (state == daemon->probes->noted) return;
    daemon->probes->noted = state;
    if (state == TW_REACHABILITY_UNKNOWN) return;
    char sentence[TW_REACHABILITY_SENTENCE_BYTES];
    tw_reachability_sentence(reach, is_listening, find_port(daemon), sentence);
    tw_daemon_note(daemon, TW_LOG_INFO, "reachable", "state=%s text=\"%s\"",
                   tw_reachability_state_name(state), sentence);
}

void tw_daemon_probes_message(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_message *message) {
    if (message->kind == TW_MSG_PROBE) try_dial_back(daemon, peer, message->u.probe.token);
    if (message->kind == TW_MSG_PROBED) take_answer(daemon, peer, &message->u.probed);
    if (message->kind == TW_MSG_PUNCH && message->u.punch.stage == TW_PUNCH_SEEN)
        take_seen(daemon, peer, &message->u.punch);
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_probes_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->probes = tw_daemon_alloc(sizeof(*daemon->probes), err);
    return daemon->probes != NULL ? TW_OK : TW_NOMEM;
}

void tw_daemon_probes_peer_up(struct tw_daemon *daemon) {
    tw_reachability_linked(&daemon->probes->reach, tw_daemon_now_us());
}

void tw_daemon_probes_moved(struct tw_daemon *daemon, uint64_t now_us) {
    tw_reachability_moved(&daemon->probes->reach, now_us);
    tw_nat_kind_moved(&daemon->probes->nat, now_us);
}

bool tw_daemon_probes_is_reached(const struct tw_daemon *daemon) {
    return tw_reachability_has_public(&daemon->probes->reach);
}

bool tw_daemon_probes_is_unreached(const struct tw_daemon *daemon) {
    const enum tw_reachability_state state = tw_reachability_state(&daemon->probes->reach, true);
    return state == TW_REACHABILITY_NO || state == TW_REACHABILITY_LOCAL;
}

void tw_daemon_probes_fill(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view) {
    const struct tw_reachability *reach = &daemon->probes->reach;
    const bool is_listening = daemon->setup->config.network.listen_count > 0;
    if (daemon->transport == NULL) return;
    view->net.reach_state = tw_reachability_state(reach, is_listening);
    tw_reachability_sentence(reach, is_listening, find_port(daemon), view->net.reach_text);
    const enum tw_nat nat = daemon->probes->nat.result;
    view->net.nat = tw_nat_kind_name(nat);
    tw_nat_kind_sentence(nat, is_listening ? find_port(daemon) : 0,
                         view->net.reach_state == TW_REACHABILITY_YES, view->net.nat_text);
    if (reach->checked_us != 0) view->net.reach_age_us = now_us - reach->checked_us;
    view->net.reach_count = reach->rows_count;
    memcpy(view->net.reach, reach->rows, sizeof(view->net.reach));
}

void tw_daemon_probes_free(struct tw_daemon *daemon) {
    free(daemon->probes);
}
