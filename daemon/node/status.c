/* status.c - the peers of the status view. */
#include "daemon/node/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/history.h"
#include "daemon/api/ledger.h"
#include "daemon/api/status_view.h"
#include "daemon/net/dial.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport.h"
#include "daemon/node/admission.h"
#include "daemon/node/archive.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/data.h"
#include "daemon/node/health.h"
#include "daemon/node/links.h"
#include "daemon/node/reports.h"
#include "daemon/node/ways.h"
#include "daemon/node/workers.h"
#include "daemon/runlog/alerts.h"
#include "daemon/workerlink/worker_host.h"
#include "sync/members/members.h"

/* ==== peers =================================================================================== */

static uint64_t age(uint64_t now_us, uint64_t at_us) {
    return now_us > at_us ? now_us - at_us : 0;
}

/* Adds one link's congestion control to the view, and its path if it is the fastest so far. */
static void fill_path(const struct tw_peer_net *net, struct tw_status_view *view) {
    char *const seen = view->net.congestion;
    if (!net->has_bulk) return;
    const bool is_other = seen[0] != '\0' && strcmp(seen, net->congestion) != 0;
    (void)snprintf(seen, sizeof(view->net.congestion), "%s", is_other ? "mixed" : net->congestion);
    if (net->path_bytes_per_s <= view->net.path_bytes_per_s) return;
    view->net.path_bytes_per_s = net->path_bytes_per_s;
    view->net.pace_bytes_per_s = net->pace_bytes_per_s;
}

/* Describes the penalty of a struck peer: the effect, the time left and the cause. */
static void describe_strike(const struct tw_daemon *daemon, uint16_t peer,
                            struct tw_view_peer *row) {
    const unsigned long long left_min =
        daemon->view.peers[peer].strike.left_us / UINT64_C(60000000) + 1;
    const unsigned long long round = daemon->view.peers[peer].strike.round;
    const bool is_false = daemon->view.peers[peer].strike.is_false;
    if (daemon->setup->run.sync.topology == TW_TOPOLOGY_PAIR) {
        (void)snprintf(row->strike, sizeof(row->strike),
                       "not merged with for %llu min more: its payload for our round %llu %s",
                       left_min, round,
                       is_false ? "could not be read" : "was far larger than those of others");
        return;
    }
    (void)snprintf(row->strike, sizeof(row->strike),
                   "owns no part for %llu min more: its result of round %llu, part %u, %s",
                   left_min, round, daemon->view.peers[peer].strike.part,
                   is_false ? "is no merge of the contributions it lists"
                            : "was far larger than usual");
}

/* Tells how large the peer's work is, which is a fact and no charge: a machine that is far faster
 * than the others does the same. */
static void describe_large(const struct tw_daemon *daemon, uint16_t peer,
                           struct tw_view_peer *row) {
    row->merges = daemon->view.peers[peer].large.merges;
    row->large_merges = daemon->view.peers[peer].large.times;
    if (!daemon->view.peers[peer].large.is_often) return;
    tw_view_large_text(row->merges, row->large_merges, daemon->view.peers[peer].large.tenths,
                       row->large, sizeof(row->large));
}

/* Describes why rounds do not wait for a peer, and for how long. */
static void describe_stall(const struct tw_daemon *daemon, uint16_t peer,
                           struct tw_view_peer *row) {
    const uint64_t owner_us = daemon->view.peers[peer].owner_stall_us,
                   proposer_us = daemon->view.peers[peer].proposer_stall_us;
    if (owner_us == 0 && proposer_us == 0) return;
    const uint64_t left_us = owner_us > proposer_us ? owner_us : proposer_us;
    const char *const why = owner_us == 0      ? "it missed its turns to propose rounds, or took "
                                                 "the turns of others in vain"
                            : proposer_us == 0 ? "its results did not come"
                                               : "its results did not come, and it "
                                                 "missed its turns to propose rounds";
    (void)snprintf(row->stall, sizeof(row->stall),
                   "rounds do not wait for it for %llu min more: %s",
                   (unsigned long long)(left_us / 60000000 + 1), why);
}

static void fill_linked(const struct tw_daemon *daemon, uint64_t now_us,
                        struct tw_status_view *view) {
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_daemon_peer *peer = &daemon->peers[i];
        if (!peer->is_up) continue;
        struct tw_view_peer *row = tw_status_view_peer(view, &peer->id);
        if (row == NULL) return;
        struct tw_peer_net net;
        row->link = TW_VIEW_LINK_UP;
        const struct tw_traffic traffic = tw_daemon_links_traffic(daemon, i);
        row->up_bytes = traffic.bytes_out;
        row->down_bytes = traffic.bytes_in;
        if (tw_transport_peer(daemon->transport, i, &net)) {
            (void)snprintf(row->addr, sizeof(row->addr), "%s", net.address);
            row->is_relayed = net.is_relayed;
            row->via = net.relay;
            row->is_punched = net.is_punched;
            row->is_mapped = !net.is_relayed && !net.is_punched && !net.is_dialled &&
                             tw_daemon_ports_is_mapped(daemon) &&
                             !tw_reachability_is_private(net.address);
            if (net.is_relayed)
                tw_daemon_punches_describe(daemon, i, now_us, row->way, sizeof(row->way));
            if (net.rtt_us > 0) row->rtt_us = net.rtt_us;
            if (net.clock_s > 0)
                row->ahead_s = (int64_t)net.clock_s - (int64_t)(tw_daemon_unix_us() / 1000000);
            fill_path(&net, view);
        }
        tw_daemon_link_qualities_fill(daemon, i, now_us, row);
        if (peer->gives_none_us > now_us) row->gives_none_us = peer->gives_none_us - now_us;
        if (peer->gets_none_us > now_us) row->gets_none_us = peer->gets_none_us - now_us;
        const struct tw_msg_status *said = &daemon->view.peers[i].status;
        if (!daemon->view.peers[i].is_up) continue;
        describe_stall(daemon, i, row);
        if (daemon->view.peers[i].strike.count > 0) describe_strike(daemon, i, row);
        if (daemon->view.peers[i].unmerged > 0) {
            (void)snprintf(row->refused, sizeof(row->refused),
                           "its last %u contributions to our part were far larger than usual "
                           "and were not merged",
                           daemon->view.peers[i].unmerged);
        }
        describe_large(daemon, i, row);
        row->is_member = daemon->view.peers[i].is_member;
        if (daemon->view.peers[i].last_mixed_round > 0) {
            row->last_mixed_round = daemon->view.peers[i].last_mixed_round - 1;
        }
        if (tw_id_is_zero(&said->lineage)) continue; /* linked, but no STATUS received yet */
        row->heard_us = age(now_us, daemon->view.peers[i].received_us);
        if (row->heard_us < TW_PEER_SILENCE_US) row->link = TW_VIEW_LINK_ALIVE;
        view->sync.voters_alive += row->link == TW_VIEW_LINK_ALIVE && !peer->lacks_vote;
        row->state = said->state;
        row->role = said->role;
        row->waits_for_room = said->waits == TW_WAIT_ROOM;
        row->lineage = said->lineage;
        row->tip = said->tip;
        row->same_lineage = tw_id_equal(&said->lineage, &daemon->view.lineage);
        row->step = said->step;
        row->tokens = said->tokens;
        row->tokens_per_s = said->tokens_per_s;
        row->rounds = said->rounds;
    }
}

/* Returns true if another node answered at this address and is linked by now. The machine was then
 * set up again, or runs another node, and nobody needs to act. */
static bool is_settled(const struct tw_daemon *daemon, const struct tw_dial_row *dial) {
    for (uint16_t i = 0; i < TW_PEERS_MAX && !tw_id_is_zero(&dial->other); i++) {
        if (daemon->peers[i].is_up && tw_id_equal(&daemon->peers[i].id, &dial->other)) return true;
    }
    return false;
}

/* Ranks a failed dial by how much it tells; 0: nothing. An address of another private network never
 * could be dialled from here, which is no fault. */
static unsigned weight_of(const struct tw_member_addr *addr, const struct tw_dial_row *dial) {
    if (tw_dial_is_refusal(dial->cause)) return 4;
    if (addr->is_proven || addr->is_bootstrap) return 3;
    if (!tw_reachability_is_private(addr->text)) return 2;
    return dial->cause != TW_DIAL_NO_ROUTE && dial->cause != TW_DIAL_PRIVATE;
}

/* Fills the state of the dials to a member without a link, with the most telling failure. */
static void fill_dials(const struct tw_daemon *daemon, const struct tw_member_entry *entry,
                       struct tw_view_peer *row, struct tw_status_view *view) {
    unsigned most = 0;
    row->link = TW_VIEW_LINK_KNOWN;
    for (unsigned a = 0; a < TW_ADDRS_MAX; a++) {
        const struct tw_member_addr *addr = &entry->addrs[a];
        if (addr->text[0] == '\0') continue;
        if (row->addr[0] == '\0') (void)snprintf(row->addr, sizeof(row->addr), "%s", addr->text);
        if (addr->is_dialling && row->link != TW_VIEW_LINK_REFUSED)
            row->link = TW_VIEW_LINK_DIALING;
        const struct tw_dial_row *dial =
            tw_dial_history_find(tw_daemon_links_dials(daemon), addr->text);
        if (dial == NULL || dial->failures == 0) continue;
        view->net.is_offline |= dial->cause == TW_DIAL_OFFLINE;
        if (tw_dial_is_refusal(dial->cause) && !is_settled(daemon, dial))
            row->link = TW_VIEW_LINK_REFUSED;
        if (weight_of(addr, dial) <= most) continue;
        most = weight_of(addr, dial);
        (void)snprintf(row->addr, sizeof(row->addr), "%s", addr->text);
        (void)snprintf(row->error, sizeof(row->error), "%s", dial->sentence);
    }
}

/* Fills known members without a link, and configured addresses whose node is not known yet. */
static void fill_known(const struct tw_daemon *daemon, struct tw_status_view *view) {
    for (uint32_t e = 0; e < TW_KNOWN_MAX; e++) {
        const struct tw_member_entry *entry = &daemon->members->entries[e];
        if (!entry->is_used) continue;
        bool is_bootstrap = false;
        for (unsigned a = 0; a < TW_ADDRS_MAX; a++) is_bootstrap |= entry->addrs[a].is_bootstrap;
        if (is_bootstrap) {
            view->net.bootstrap_count++;
            view->net.bootstrap_alive += entry->is_connected;
        }
        const bool is_self = entry->has_id && tw_id_equal(&entry->id, &daemon->setup->identity.id);
        if (entry->is_connected || is_self || (!entry->has_id && !is_bootstrap)) continue;
        static const struct tw_id unknown;
        struct tw_view_peer *row = tw_status_view_peer(view, entry->has_id ? &entry->id : &unknown);
        if (row == NULL) return;
        /* Already listed: linked through a relay, and still dialled. */
        if (row->is_relayed) continue;
        fill_dials(daemon, entry, row, view);
    }
}

static bool is_up(const struct tw_daemon *daemon, const struct tw_id *id) {
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up && tw_id_equal(&daemon->peers[i].id, id)) return true;
    }
    return false;
}

/* Fills members of the roster that have neither a link nor a known address. If this node is behind
 * NAT, these may be other nodes behind NAT. */
static void fill_unlinked(const struct tw_daemon *daemon, uint64_t now_us,
                          struct tw_status_view *view) {
    for (uint32_t i = 0; i < daemon->view.roster.count; i++) {
        const struct tw_id *id = &daemon->view.roster.members[i].id;
        if (tw_id_equal(id, &daemon->setup->identity.id) || is_up(daemon, id)) continue;
        struct tw_view_peer *row = tw_status_view_peer(view, id);
        if (row == NULL) return;
        row->is_member = true;
        if (row->addr[0] != '\0' || row->error[0] != '\0') continue;
        row->link = TW_VIEW_LINK_KNOWN;
        if (tw_known_peers_is_absent(daemon->known, id, now_us)) continue;
        (void)snprintf(row->error, sizeof(row->error),
                       "it has no address to dial, and no relay links it; its work is merged at "
                       "members that both nodes reach. `network.relay = on` there links the two");
    }
}

/* Marks the members that vote. */
static void fill_voters(const struct tw_daemon *daemon, struct tw_status_view *view) {
    for (uint32_t i = 0; i < daemon->view.roster.count; i++) {
        const struct tw_member *member = &daemon->view.roster.members[i];
        if (member->lacks_vote || tw_id_equal(&member->id, &daemon->setup->identity.id)) continue;
        struct tw_view_peer *row = tw_status_view_peer(view, &member->id);
        if (row != NULL) row->is_voter = true;
    }
}

/* Tells how much of the run clock each member moves, and names one that moves far more than others.
 */
static void fill_clock_shares(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_clock_shares *const shares = tw_daemon_reports_clock_shares(daemon);
    for (uint32_t i = 0; i < view->peers_count; i++) {
        struct tw_view_peer *const row = &view->peers[i];
        row->clock_share = row->is_member ? tw_clock_share(shares, &row->id) : NAN;
        if (!row->is_member || !tw_clock_share_is_high(shares, &row->id)) continue;
        (void)snprintf(row->clock_note, sizeof(row->clock_note),
                       "it moves %.0f %% of the run clock: it is far faster than most others, or "
                       "claims more than it trains",
                       100 * row->clock_share);
    }
}

/* Names the owner that repeatedly refuses this node's work. */
static void fill_refuses(struct tw_status_view *view) {
    const struct tw_view_health *health = &view->health;
    if (!health->has[TW_FINDING_REFUSED] || tw_id_is_zero(&health->refused_by)) return;
    struct tw_view_peer *row = tw_status_view_peer(view, &health->refused_by);
    if (row == NULL) return;
    (void)snprintf(row->refuses, sizeof(row->refuses),
                   "it refuses this node's work: far larger than that of the others");
}

/* Marks peers whose key is also on another machine. */
static void fill_twins(struct tw_status_view *view) {
    for (uint32_t i = 0; i < view->twins_count; i++) {
        const struct tw_view_twin *twin = &view->twins[i];
        struct tw_view_peer *row = twin->is_self ? NULL : tw_status_view_peer(view, &twin->id);
        if (row == NULL) continue;
        (void)snprintf(row->twin, sizeof(row->twin),
                       "another machine%s%s has its key and is refused: give the copy its own "
                       "(`thinwire init --new-key` there)",
                       twin->address[0] != '\0' ? ", at " : "", twin->address);
    }
}

/* Returns the member table's entry of an address, or NULL. An address may have two entries: one
 * from the configuration, and one of a member that advertised it. A linked entry is preferred. */
static const struct tw_member_entry *find_entry(const struct tw_daemon *daemon, const char *address,
                                                bool *is_dialling) {
    const struct tw_member_entry *found = NULL;
    *is_dialling = false;
    for (uint32_t e = 0; e < TW_KNOWN_MAX; e++) {
        const struct tw_member_entry *entry = &daemon->members->entries[e];
        for (unsigned a = 0; entry->is_used && a < TW_ADDRS_MAX; a++) {
            if (strcmp(entry->addrs[a].text, address) != 0) continue;
            *is_dialling |= entry->addrs[a].is_dialling;
            if (found == NULL || entry->is_connected) found = entry;
        }
    }
    return found;
}

/* Fills the state of each configured address. */
static void fill_bootstrap(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view) {
    const struct tw_dial_history *dials = tw_daemon_links_dials(daemon);
    for (uint32_t b = 0; b < dials->configured_count; b++) {
        const struct tw_dial_row *row = &dials->rows[b];
        struct tw_view_bootstrap *out = &view->bootstrap[view->bootstrap_count++];
        bool is_dialling;
        const struct tw_member_entry *entry = find_entry(daemon, row->address, &is_dialling);
        (void)snprintf(out->address, sizeof(out->address), "%s", row->address);
        (void)snprintf(out->error, sizeof(out->error), "%s", row->sentence);
        out->cause = row->cause;
        out->failures = row->failures;
        out->failed_us = row->failures > 0 ? age(now_us, row->failed_us) : TW_VIEW_NEVER;
        if (entry != NULL && entry->has_id) out->id = entry->id;
        if (entry != NULL && entry->has_id &&
            is_up(daemon, &entry->id)) /* linked, possibly through a relay */
            out->link = TW_VIEW_LINK_UP;
        else if (is_settled(daemon, row))
            out->link = TW_VIEW_LINK_KNOWN;
        else if (is_dialling)
            out->link = TW_VIEW_LINK_DIALING;
        else
            out->link = tw_dial_is_refusal(row->cause) ? TW_VIEW_LINK_REFUSED : TW_VIEW_LINK_KNOWN;
    }
}

/* Replaces the state of a row without a link. Of a node that said goodbye, a failed dial tells
 * nothing new. */
static void fill_absent(const struct tw_known_peer *of, uint64_t now_us, struct tw_view_peer *row) {
    row->absent_us = tw_known_peer_absence_us(of, now_us);
    (void)snprintf(row->said, sizeof(row->said), "%s", of->said);
    switch (tw_known_peer_state(of, now_us)) {
    case TW_KNOWN_NEVER: row->absent_us = TW_VIEW_NEVER; return;
    case TW_KNOWN_LINKED: return;
    case TW_KNOWN_LEFT: row->link = TW_VIEW_LINK_LEFT; break;
    case TW_KNOWN_PAUSED: row->link = TW_VIEW_LINK_PAUSED; break;
    case TW_KNOWN_GONE: row->link = TW_VIEW_LINK_GONE; break;
    case TW_KNOWN_AWAY:
        if (row->link != TW_VIEW_LINK_REFUSED) row->link = TW_VIEW_LINK_AWAY;
        return;
    }
    row->error[0] = '\0';
}

/* Fills names and absences of all peers, and adds the known nodes that are not in the view yet. */
static void fill_absences(const struct tw_daemon *daemon, uint64_t now_us,
                          struct tw_status_view *view) {
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        const struct tw_known_peer *const known = &daemon->known->rows[i];
        if (!known->is_used) continue;
        struct tw_view_peer *row = tw_status_view_peer(view, &known->id);
        if (row == NULL) break;
        row->has_merged = known->has_merged;
        row->is_shut_out = tw_daemon_admission_is_out(daemon, &known->id);
        if (known->name[0] != '\0')
            (void)tw_known_peers_label(daemon->known, &known->id, row->name);
        if (row->link != TW_VIEW_LINK_UP && row->link != TW_VIEW_LINK_ALIVE)
            fill_absent(known, now_us, row);
    }
    view->net.open_us = age(now_us, daemon->known->open_us);
    view->sync.alone_us = tw_known_peers_alone_us(daemon->known, now_us);
}

/* status.c: linked peers, known members, configured addresses. */
static void fill_peers(const struct tw_daemon *daemon, uint64_t now_us,
                       struct tw_status_view *view) {
    if (daemon->transport == NULL) return;
    fill_linked(daemon, now_us, view);
    fill_known(daemon, view);
    fill_unlinked(daemon, now_us, view);
    fill_voters(daemon, view);
    fill_clock_shares(daemon, view);
    fill_absences(daemon, now_us, view);
    fill_twins(view);
    fill_refuses(view);
    fill_bootstrap(daemon, now_us, view);
    for (uint32_t i = 0; i < view->peers_count; i++)
        view->sync.known += !tw_id_is_zero(&view->peers[i].id);
}

/* ==== the node and its run ==================================================================== */

static void fill_node(const struct tw_daemon *daemon, uint64_t now_us,
                      struct tw_status_view *view) {
    const struct tw_config *config = &daemon->setup->config;
    view->node.id = daemon->setup->identity.id;
    if (config->node.name[0] != '\0') {
        (void)snprintf(view->node.name, sizeof(view->node.name), "%s", config->node.name);
    } else {
        (void)gethostname(view->node.name, sizeof(view->node.name) - 1);
    }
    (void)snprintf(view->node.version, sizeof(view->node.version), "%s", TW_RELEASE);
    view->node.unix_us = tw_daemon_unix_us();
    view->node.started_unix_us = daemon->started_unix_us;
    view->node.boot = daemon->setup->boot;
    view->node.uptime_us = age(now_us, daemon->started_us);
    view->node.state = daemon->view.state;
    view->node.is_leaving = daemon->stage != TW_DAEMON_RUNNING;
    view->node.links = daemon->transport != NULL;
    view->node.role = daemon->setup->config.node.role;
    view->node.loop_lag_us = tw_loop_lag_us(&daemon->lag);
}

static void fill_run(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_setup *setup = daemon->setup;
    view->run.id = setup->run_id;
    (void)snprintf(view->run.name, sizeof(view->run.name), "%s", setup->run.name);
    view->run.lineage = daemon->view.lineage;
    view->run.tip = daemon->view.tip;
    view->run.clock_tokens = daemon->view.clock_tokens;
    view->run.budget_tokens = setup->run.train.tokens;
    view->run.fragments_count = setup->layout.fragments_count;
    for (uint32_t p = 0; p < setup->layout.fragments_count; p++) {
        struct tw_shm_view fragment;
        tw_shm_view(&daemon->host->memory.shm, p, &fragment);
        view->run.fragment_versions[p] = fragment.state.rounds;
    }
    view->run.params = setup->layout.params;
    view->run.is_any_model = setup->run.model.family == TW_FAMILY_TENSORS;
}

static void fill_sync(const struct tw_daemon *daemon, struct tw_status_view *view) {
    view->sync.roster_count = daemon->view.roster_count;
    for (uint32_t i = 0; i < daemon->view.roster.count; i++)
        view->sync.voters += !daemon->view.roster.members[i].lacks_vote;
    view->sync.vote_merges = daemon->view.vote_merges;
    view->sync.members_max = daemon->setup->run.sync.members;
    view->sync.is_shut_out = daemon->view.is_shut_out;
    view->sync.alive = daemon->view.alive;
    /* A receiver follows the rounds of others: nothing was mixed into its own work yet. */
    view->sync.mixed = daemon->view.state == TW_STATE_RECEIVER ? 0 : daemon->view.mixed;
    view->sync.rounds_committed = daemon->view.rounds;
    view->sync.rounds_contributed = daemon->view.rounds_contributed;
    view->sync.rounds_missed = daemon->view.rounds_missed;
    view->sync.audits = daemon->view.audits;
    view->sync.checks = daemon->view.checks;
    memcpy(view->sync.dropped, daemon->view.dropped, sizeof(view->sync.dropped));
    view->sync.contributions_refused = daemon->view.unmerged;
    view->sync.pairs_merged = daemon->view.pairs.merged;
    view->sync.pairs_alone = daemon->view.pairs.alone;
    view->sync.pairs_one_sided = daemon->view.pairs.one_sided;
    view->sync.pairs_refused = daemon->view.pairs.refused;
    view->sync.topology =
        daemon->view.is_apart ? TW_TOPOLOGY_SOLO : daemon->setup->run.sync.topology;
    if (daemon->host->partner_distance > 0)
        view->sync.partner_distance = daemon->host->partner_distance;
}

#define SETTLE_US UINT64_C(60000000)

/* Fills the run's speed and its time left, which are the same on all nodes of a group. Without a
 * group each node has a clock of its own. A node alone announces its speed to nobody: the run has
 * the speed that the same screen shows for this node. */
static void fill_pace(const struct tw_daemon *daemon, uint64_t now_us,
                      struct tw_status_view *view) {
    const struct tw_run_pace *pace = tw_daemon_reports_pace(daemon);
    view->run.others = pace->speeds.others;
    if (view->sync.topology != TW_TOPOLOGY_GROUP)
        view->run.tokens_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_CLOCK_TOKENS);
    else if (tw_run_pace_is_alone(pace))
        view->run.tokens_per_s = view->train.tokens_per_s;
    else
        view->run.tokens_per_s = tw_run_pace_rate(pace, now_us);
    view->run.eta_us = TW_VIEW_NEVER;
    if (now_us - daemon->started_us < SETTLE_US) return; /* first rounds tell little */
    view->run.eta_us = tw_run_pace_left_us(pace, now_us, view->run.tokens_per_s,
                                           view->run.clock_tokens, view->run.budget_tokens);
}

/* Fills the transfers that a joining node waits for: first its data, without which it has no
 * worker, then the run's state. */
static void fill_join(const struct tw_daemon *daemon, struct tw_status_view *view) {
    enum { FIRST_US = 15 * 1000 * 1000 };
    struct tw_view_join *join = &view->join;
    if (view->worker.state == TW_VIEW_WORKER_WAITING) {
        join->phase = TW_VIEW_JOIN_DATA;
        join->bytes = (uint64_t)view->data.chunks_count * TW_CHUNK_BYTES_MAX;
        join->bytes_here = (uint64_t)view->data.chunks_here * TW_CHUNK_BYTES_MAX;
        /* the last chunk of a file is short, so the dataset may be smaller than its chunks */
        if (view->data.bytes > 0 && join->bytes > view->data.bytes) join->bytes = view->data.bytes;
        if (join->bytes_here > join->bytes) join->bytes_here = join->bytes;
        join->bytes_per_s = view->data.in_bytes_per_s;
    } else if (view->node.state == TW_STATE_RECEIVER && view->sync.alive > 0) {
        const bool is_here = daemon->view.fetch_fragments == 0;
        join->phase = is_here ? TW_VIEW_JOIN_SEAT : TW_VIEW_JOIN_STATE;
        join->bytes = daemon->view.fetch_bytes;
        join->bytes_here = daemon->view.fetch_bytes_here;
        join->bytes_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_STATE_IN);
        /* until there are samples of ten seconds, none does not mean that nothing arrives */
        if (join->bytes_per_s == 0 && view->node.uptime_us < FIRST_US) join->bytes_per_s = NAN;
    }
    join->is_return = tw_daemon_workers_is_trained(daemon);
    if (join->bytes > join->bytes_here && join->bytes_per_s > 0)
        join->eta_us =
            (uint64_t)((double)(join->bytes - join->bytes_here) / join->bytes_per_s * 1e6);
}

/* Computes each node's share of the run's tokens. If each node has its own text, that is the weight
 * of its text. The run clock lacks the tokens since the last round, so the sum of all nodes' tokens
 * is used if it is larger. */
static void fill_shares(struct tw_status_view *view) {
    uint64_t sum = view->train.tokens;
    for (uint32_t i = 0; i < view->peers_count; i++) sum += view->peers[i].tokens;
    const uint64_t all = sum > view->run.clock_tokens ? sum : view->run.clock_tokens;
    if (all == 0) return;
    view->train.token_share = (double)view->train.tokens / (double)all;
    for (uint32_t i = 0; i < view->peers_count; i++) {
        view->peers[i].token_share = (double)view->peers[i].tokens / (double)all;
    }
}

void tw_daemon_status_fill(void *user, struct tw_status_view *view) {
    struct tw_daemon *daemon = user;
    const uint64_t now_us = tw_daemon_now_us();
    tw_node_view(daemon->node, &daemon->view);
    fill_node(daemon, now_us, view);
    fill_run(daemon, view);
    fill_sync(daemon, view);
    tw_daemon_reports_fill(daemon, now_us, view);
    tw_daemon_workers_fill(daemon, now_us, view);
    tw_daemon_health_fill(daemon, view);
    tw_daemon_checkpoints_fill(daemon, now_us, view);
    tw_daemon_archive_fill(daemon, view);
    tw_daemon_reached_fill(daemon, now_us, view);
    tw_evaluations_fill(daemon->evaluations, now_us, view);
    tw_daemon_votes_fill(daemon, view);
    tw_daemon_links_fill(daemon, view);
    tw_daemon_caps_fill(daemon, view);
    tw_daemon_refusals_fill(daemon, view);
    tw_daemon_probes_fill(daemon, now_us, view);
    tw_daemon_ports_fill(daemon, view);
    tw_daemon_punches_fill(daemon, view);
    tw_daemon_relays_fill(daemon, view);
    tw_daemon_budget_fill(daemon, view); /* after tw_daemon_links_fill, whose rates it reads */
    tw_daemon_admission_fill(daemon, view);
    tw_daemon_data_fill(daemon, now_us, view);
    fill_peers(daemon, now_us, view);
    fill_shares(view); /* after the peers, which it reads */
    fill_pace(daemon, now_us, view);
    fill_join(daemon, view);
    tw_event_ring_fill(daemon->event_ring, now_us, view);
}
