/* status_peers.c - the peers of the status view. */
#include "daemon/node/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/clock_shares.h"
#include "daemon/api/status_view.h"
#include "daemon/net/dial_history.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport.h"
#include "daemon/node/admission.h"
#include "daemon/node/link_qualities.h"
#include "daemon/node/links.h"
#include "daemon/node/ports.h"
#include "daemon/node/punches.h"
#include "daemon/node/reports.h"
#include "sync/members/members.h"

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

void tw_daemon_status_peers_fill(const struct tw_daemon *daemon, uint64_t now_us,
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
