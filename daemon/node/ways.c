#include "daemon/node/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api/status_view.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport.h"
#include "daemon/node/caps.h"
#include "daemon/router/port_mapping.h"
#include "daemon/router/port_router.h"
#include "daemon/router/punch_plan.h"
#include "daemon/router/relay_choice.h"
#include "sync/members/members.h"

enum { LOOK_US = 500 * 1000 }; /* between two looks at the links */

/* ==== nodes that can dial this one ============================================================ */

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

/* is_reached: a peer has reached this node at a public IPv4 address. is_unreached: peers have tried
 * to dial this node, and none reached it from the internet. */
static bool is_reached(const struct tw_daemon *daemon) {
    return tw_reachability_has_public(&daemon->probes->reach);
}

static bool is_unreached(const struct tw_daemon *daemon) {
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

/* ==== a port at the router ==================================================================== */

enum { PORT_LOOK_US = 1000 * 1000, LEAVE_US = 3 * 1000 * 1000 };

struct tw_daemon_ports {
    struct tw_port_mapping mapping;
    struct tw_port_router *router; /* owned; used by one thread at a time */
    uv_work_t work;
    struct tw_port_order order;   /* input of the thread */
    struct tw_port_answer answer; /* output of the thread */
    bool is_working;
    bool was_mapped; /* a port was forwarded since the start */
    bool is_changed; /* the address changed since the last tick */
    uint64_t look_due_us;
    uint64_t leave_until_us; /* latest end of leaving; 0 = this node is not leaving */
    char noted[TW_PORT_SENTENCE_BYTES];
};

/* ---- one order ----------------------------------------------------------------------------- */

static void on_work(uv_work_t *work) {
    struct tw_daemon_ports *ports = ((struct tw_daemon *)work->data)->ports;
    tw_port_router_do(ports->router, &ports->order, &ports->answer);
}

/* Logs the state of the mapping if it differs from the last one logged. */
static void note(struct tw_daemon *daemon) {
    struct tw_daemon_ports *ports = daemon->ports;
    const struct tw_port_mapping *mapping = &ports->mapping;
    char sentence[TW_PORT_SENTENCE_BYTES], address[TW_ADDR_BYTES];
    tw_port_mapping_sentence(mapping, sentence);
    tw_port_mapping_address(mapping, address);
    if (strcmp(sentence, ports->noted) == 0) return;
    memcpy(ports->noted, sentence, sizeof(sentence));
    if (address[0] != '\0')
        tw_daemon_note(daemon, TW_LOG_INFO, "port_mapped", "addr=%s by=%s lease_s=%u", address,
                       tw_port_protocol_name(mapping->held.protocol), mapping->held.lease_s);
    else
        tw_daemon_note(daemon, TW_LOG_INFO, "port_not_mapped", "state=%s text=\"%s\"",
                       tw_port_mapping_name(mapping), sentence);
}

/* Passes the outer address at the router to the transport, which announces it. */
static void announce(struct tw_daemon *daemon) {
    struct tw_daemon_ports *ports = daemon->ports;
    char address[TW_ADDR_BYTES];
    if (daemon->transport == NULL) return;
    tw_port_mapping_address(&ports->mapping, address);
    ports->was_mapped |= address[0] != '\0';
    ports->is_changed |= tw_transport_set_mapped(daemon->transport, address);
}

static void step(struct tw_daemon *daemon);

static void on_worked(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_ports *ports = daemon->ports;
    (void)status; /* the work is never cancelled */
    ports->is_working = false;
    tw_port_mapping_done(&ports->mapping, &ports->answer, tw_daemon_now_us());
    if (daemon->stage == TW_DAEMON_CLOSING) return;
    if (ports->order.is_removal)
        tw_daemon_note(daemon, TW_LOG_INFO, "port_given_back", "port=%u",
                       (unsigned)ports->order.outer_port);
    else if (ports->leave_until_us == 0)
        note(daemon);
    announce(daemon);
    step(daemon);
    if (ports->leave_until_us != 0) tw_daemon_leave_step(daemon);
}

static void step(struct tw_daemon *daemon) {
    struct tw_daemon_ports *ports = daemon->ports;
    if (ports->is_working) return;
    if (!tw_port_mapping_next(&ports->mapping, tw_daemon_now_us(), &ports->order)) return;
    ports->is_working = true;
    ports->work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &ports->work, on_work, on_worked) == 0);
}

/* ---- the wish ------------------------------------------------------------------------------ */

static bool has_peer(const struct tw_daemon *daemon) {
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up) return true;
    }
    return false;
}

static enum tw_port_need find_need(const struct tw_daemon *daemon, struct tw_port_want *want) {
    const struct tw_config *config = &daemon->setup->config;
    char host[TW_ADDR_BYTES];
    if (!config->network.port_mapping || daemon->transport == NULL) return TW_PORT_IS_OFF;
    if (config->network.listen_count == 0) return TW_PORT_DIAL_ONLY;
    if (config->network.advertise_count > 0) return TW_PORT_IS_ADVERTISED;
    if (!tw_transport_inner(daemon->transport, host, &want->port)) return TW_PORT_NOT_PRIVATE;
    if (!daemon->ports->was_mapped && is_reached(daemon)) return TW_PORT_IS_REACHED;
    (void)snprintf(want->host, sizeof(want->host), "%.15s", host);
    return TW_PORT_NEEDED;
}

static void look_at_router(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_ports *ports = daemon->ports;
    struct tw_port_want want = {.need = TW_PORT_IS_OFF};
    if (ports->leave_until_us == 0) want.need = find_need(daemon, &want);
    want.is_doubtful = !has_peer(daemon) || is_unreached(daemon);
    tw_port_mapping_look(&ports->mapping, &want, now_us);
}

bool tw_daemon_ports_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_ports *ports = daemon->ports;
    if (ports->leave_until_us != 0 && now_us >= ports->leave_until_us) tw_daemon_leave_step(daemon);
    if (now_us >= ports->look_due_us) {
        ports->look_due_us = now_us + PORT_LOOK_US;
        look_at_router(daemon, now_us);
        announce(daemon);
        step(daemon);
    }
    const bool is_changed = ports->is_changed;
    ports->is_changed = false;
    return is_changed;
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_ports_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->ports = tw_daemon_alloc(sizeof(*daemon->ports), err);
    if (daemon->ports == NULL) return TW_NOMEM;
    daemon->ports->router = tw_port_router_create();
    return daemon->ports->router != NULL ? TW_OK : tw_fail(err, TW_NOMEM, "no memory for ports");
}

void tw_daemon_ports_leave(struct tw_daemon *daemon) {
    struct tw_daemon_ports *ports = daemon->ports;
    ports->leave_until_us = tw_daemon_now_us() + LEAVE_US;
    tw_port_router_hurry(ports->router);
    look_at_router(daemon, tw_daemon_now_us());
    step(daemon);
}

bool tw_daemon_ports_is_leaving(const struct tw_daemon *daemon) {
    const struct tw_daemon_ports *ports = daemon->ports;
    return ports->leave_until_us != 0 && tw_daemon_now_us() < ports->leave_until_us &&
           (ports->is_working || tw_port_mapping_is_held(&ports->mapping));
}

bool tw_daemon_ports_is_mapped(const struct tw_daemon *daemon) {
    return tw_port_mapping_is_held(&daemon->ports->mapping);
}

void tw_daemon_ports_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_port_mapping *mapping = &daemon->ports->mapping;
    if (daemon->transport == NULL) return;
    view->net.mapping_state = tw_port_mapping_name(mapping);
    view->net.mapping_by = tw_port_protocol_name(mapping->held.protocol);
    tw_port_mapping_address(mapping, view->net.mapping_address);
    tw_port_mapping_sentence(mapping, view->net.mapping_text);
    view->net.mapping_renewals = mapping->renewals;
}

void tw_daemon_ports_free(struct tw_daemon *daemon) {
    tw_port_router_destroy(daemon->ports->router);
    free(daemon->ports);
}

/* ==== hole punching =========================================================================== */

struct tw_daemon_punches {
    struct tw_punch_plan plan;
    struct tw_punch_row rows[TW_PEERS_MAX]; /* scratch of look_at_links() */
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

static void look_at_links(struct tw_daemon *daemon, uint64_t now_us) {
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
    if (punch->stage == TW_PUNCH_SEEN) return; /* ways.c handles it */
    if (tw_daemon_caps_is_resting(daemon)) return;
    if (info_get(daemon, peer, &info, &err) != TW_OK) return;
    if (!tw_punch_is_agreed(&info, punch)) {
        tw_log(TW_LOG_DEBUG, "punch_left", "text=\"the relay saw the other end at %s\"",
               info.other[0]);
        return;
    }
    look_at_links(daemon, now_us); /* a link may have come up since the last tick */
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
    look_at_links(daemon, now_us);
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

/* ==== relays ================================================================================== */

enum { BUDGET_SHARE = 4 };

struct tw_daemon_relays {
    struct tw_relay_choice choice;
    struct tw_relay_view view;                /* scratch of tick */
    struct tw_msg_links claims[TW_PEERS_MAX]; /* newest LINKS message of each linked peer */
    uint64_t look_due_us;
    uint64_t calls, calls_failed; /* calls through a relay that this node made */
};

/* ---- this node as a relay ------------------------------------------------------------------ */

/* Returns true if this node relays for other nodes when they ask. */
static bool is_relay(const struct tw_daemon *daemon) {
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
    tw_transport_set_relay(daemon->transport, is_relay(daemon), find_cap(daemon));
    daemon->measured.is_relay = is_relay(daemon);
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
