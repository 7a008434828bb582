#include "daemon/node/ports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api/status_view.h"
#include "daemon/net/transport.h"
#include "daemon/node/probes.h"
#include "daemon/router/port_mapping.h"
#include "daemon/router/port_router.h"

enum { LOOK_US = 1000 * 1000, LEAVE_US = 3 * 1000 * 1000 };

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
    if (!daemon->ports->was_mapped && tw_daemon_probes_is_reached(daemon))
        return TW_PORT_IS_REACHED;
    (void)snprintf(want->host, sizeof(want->host), "%.15s", host);
    return TW_PORT_NEEDED;
}

static void look(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_ports *ports = daemon->ports;
    struct tw_port_want want = {.need = TW_PORT_IS_OFF};
    if (ports->leave_until_us == 0) want.need = find_need(daemon, &want);
    want.is_doubtful = !has_peer(daemon) || tw_daemon_probes_is_unreached(daemon);
    tw_port_mapping_look(&ports->mapping, &want, now_us);
}

bool tw_daemon_ports_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_ports *ports = daemon->ports;
    if (ports->leave_until_us != 0 && now_us >= ports->leave_until_us) tw_daemon_leave_step(daemon);
    if (now_us >= ports->look_due_us) {
        ports->look_due_us = now_us + LOOK_US;
        look(daemon, now_us);
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
    look(daemon, tw_daemon_now_us());
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
