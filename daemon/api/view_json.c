/* view_json.c - values, peers, rounds, events and checkpoints of a run as JSON. The status is in
 * view_status.c. */
#include "daemon/api/view_json.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/id.h"
#include "daemon/api/json_value.h"
#include "daemon/api/status_view.h"

/* ==== values ================================================================================== */

json_t *tw_json_id(const struct tw_id *id) {
    char text[TW_ID_HEX_BYTES];
    tw_id_hex(id, text);
    return tw_id_is_zero(id) ? json_null() : json_string(text);
}

json_t *tw_json_id_short(const struct tw_id *id) {
    char text[9];
    tw_id_short(id, text);
    return tw_id_is_zero(id) ? json_null() : json_string(text);
}

json_t *tw_json_seconds(uint64_t us) {
    return us == TW_VIEW_NEVER ? json_null() : json_real((double)(us / 1000) / 1e3);
}

json_t *tw_json_count(uint64_t value) {
    return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value));
}

json_t *tw_json_maybe(uint64_t value) {
    return value == TW_VIEW_NEVER ? json_null() : tw_json_count(value);
}

json_t *tw_json_real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *tw_json_text(const char *value) {
    json_t *const string = json_string(value);
    return string != NULL ? string : json_string("(not UTF-8)");
}

json_t *tw_json_name(const struct tw_status_view *view, const struct tw_id *id) {
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        if (tw_id_equal(&view->peers[i].id, id) && view->peers[i].name[0] != 0)
            return tw_json_text(view->peers[i].name);
    }
    return json_null();
}

json_t *tw_json_events(const struct tw_status_view *view, uint32_t most) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->events_count && i < TW_VIEW_EVENTS_MAX && i < most; i++) {
        const struct tw_view_event *const event = &view->events[i];
        char time[TW_VIEW_TIME_BYTES];
        (void)json_array_append_new(
            list, json_pack("{s:o,s:s,s:o,s:b,s:o,s:o}", "id", tw_json_count(event->id), "time",
                            tw_view_time(event->unix_us, time), "age_s",
                            tw_json_seconds(event->age_us), "warning", event->is_warning, "name",
                            tw_json_text(event->name), "text", tw_json_text(event->text)));
    }
    return list;
}

const char *tw_view_path_name(const struct tw_view_peer *peer) {
    if (peer->is_relayed) return "relayed";
    if (peer->is_punched) return "punched";
    return peer->is_mapped ? "mapped" : "direct";
}

/* ==== peers, rounds, events, run ============================================================== */

static json_t *peer_json(const struct tw_status_view *view, const struct tw_view_peer *peer) {
    char absence[TW_VIEW_TEXT_BYTES];
    (void)tw_view_absence(peer, absence);
    json_t *const row =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:o,s:b,s:b,s:b,s:o}", "id", tw_json_id(&peer->id),
                  "id_short", tw_json_id_short(&peer->id), "name",
                  peer->name[0] != 0 ? tw_json_text(peer->name) : json_null(), "absence",
                  absence[0] != 0 ? tw_json_text(absence) : json_null(), "absent_s",
                  absence[0] != 0 ? tw_json_seconds(peer->absent_us) : json_null(), "address",
                  peer->addr[0] != 0 ? tw_json_text(peer->addr) : json_null(), "link",
                  tw_view_link_name(peer->link), "error",
                  peer->error[0] != 0 ? tw_json_text(peer->error) : json_null(), "member",
                  peer->is_member, "votes", peer->is_voter, "same_lineage", peer->same_lineage,
                  "heard_age_s", tw_json_seconds(peer->heard_us));
    const bool is_heard = peer->heard_us != TW_VIEW_NEVER;
    json_t *const status =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "token_share_ratio",
                  is_heard ? tw_json_real(peer->token_share) : json_null(), "state",
                  is_heard ? json_string(tw_view_state_name(peer->state)) : json_null(), "role",
                  is_heard ? json_string(tw_view_role_name(peer->role)) : json_null(), "rtt_us",
                  tw_json_maybe(peer->rtt_us), "up_bytes", tw_json_count(peer->up_bytes),
                  "down_bytes", tw_json_count(peer->down_bytes), "steps",
                  is_heard ? tw_json_count(peer->step) : json_null(), "tokens",
                  is_heard ? tw_json_count(peer->tokens) : json_null(), "tokens_per_s",
                  is_heard ? tw_json_count(peer->tokens_per_s) : json_null(), "rounds",
                  is_heard ? tw_json_count(peer->rounds) : json_null(), "last_mixed_round",
                  tw_json_maybe(peer->last_mixed_round));
    if (row != NULL && status != NULL) (void)json_object_update(row, status);
    json_decref(status);
    json_t *const measured = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "clock_share_ratio",
        tw_json_real(peer->clock_share), "clock_ahead_s",
        peer->ahead_s != TW_VIEW_NO_CLOCK ? json_integer(peer->ahead_s) : json_null(),
        "in_bytes_per_s", peer->in_bytes_s > 0 ? tw_json_count(peer->in_bytes_s) : json_null(),
        "out_bytes_per_s", peer->out_bytes_s > 0 ? tw_json_count(peer->out_bytes_s) : json_null(),
        "loss_ratio", tw_json_real(peer->loss), "reliability_ratio",
        tw_json_real(peer->reliability), "anomaly",
        peer->anomaly[0] != 0 ? tw_json_text(peer->anomaly) : json_null(), "merges",
        tw_json_count(peer->merges), "large_merges", tw_json_count(peer->large_merges));
    if (row != NULL && measured != NULL) (void)json_object_update(row, measured);
    json_decref(measured);
    if (row != NULL && peer->gives_none_us > 0)
        (void)json_object_set_new(row, "gives_none_s", tw_json_seconds(peer->gives_none_us));
    if (row != NULL && peer->gets_none_us > 0)
        (void)json_object_set_new(row, "gets_none_s", tw_json_seconds(peer->gets_none_us));
    const bool is_linked = peer->link == TW_VIEW_LINK_UP || peer->link == TW_VIEW_LINK_ALIVE;
    if (row != NULL && is_linked) {
        (void)json_object_set_new(row, "path", json_string(tw_view_path_name(peer)));
        (void)json_object_set_new(row, "via",
                                  peer->is_relayed ? tw_json_id_short(&peer->via) : json_null());
        (void)json_object_set_new(row, "via_name",
                                  peer->is_relayed ? tw_json_name(view, &peer->via) : json_null());
        (void)json_object_set_new(row, "path_text",
                                  peer->way[0] != 0 ? tw_json_text(peer->way) : json_null());
    }
    if (row != NULL && peer->clock_note[0] != 0)
        (void)json_object_set_new(row, "clock_note", tw_json_text(peer->clock_note));
    if (row != NULL && peer->large[0] != 0)
        (void)json_object_set_new(row, "large", tw_json_text(peer->large));
    if (row != NULL && peer->waits_for_room && peer->link == TW_VIEW_LINK_ALIVE)
        (void)json_object_set_new(
            row, "waits", json_string("it cannot train yet: its disk has no room for the data"));
    if (row != NULL && peer->stall[0] != 0)
        (void)json_object_set_new(row, "stall", tw_json_text(peer->stall));
    if (row != NULL && peer->strike[0] != 0)
        (void)json_object_set_new(row, "strike", tw_json_text(peer->strike));
    if (row != NULL && peer->twin[0] != 0)
        (void)json_object_set_new(row, "twin", tw_json_text(peer->twin));
    if (row != NULL && peer->refuses[0] != 0)
        (void)json_object_set_new(row, "refuses", tw_json_text(peer->refuses));
    if (row != NULL && peer->refused[0] != 0)
        (void)json_object_set_new(row, "refused", tw_json_text(peer->refused));
    return row;
}

static json_t *bans_json(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->net.banned && i < TW_BANS_MAX; i++) {
        (void)json_array_append_new(list, json_pack("{s:o,s:o,s:o,s:o}", "id",
                                                    tw_json_id(&view->bans[i].id), "id_short",
                                                    tw_json_id_short(&view->bans[i].id), "name",
                                                    tw_json_name(view, &view->bans[i].id), "left_s",
                                                    tw_json_count(view->bans[i].left_s)));
    }
    return list;
}

static bool is_symmetric(const struct tw_status_view *view) {
    return view->net.nat != NULL && strcmp(view->net.nat, "symmetric") == 0;
}

static json_t *twins_json(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->twins_count && i < TW_VIEW_TWINS_MAX; i++) {
        const struct tw_view_twin *const twin = &view->twins[i];
        (void)json_array_append_new(
            list,
            json_pack("{s:o,s:o,s:b,s:o,s:o}", "id", tw_json_id(&twin->id), "id_short",
                      tw_json_id_short(&twin->id), "self", (int)twin->is_self, "address",
                      twin->address[0] != 0 ? tw_json_text(twin->address) : json_null(), "linked",
                      twin->linked[0] != 0 ? tw_json_text(twin->linked) : json_null()));
    }
    return list;
}

json_t *tw_view_json_peers(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        (void)json_array_append_new(list, peer_json(view, &view->peers[i]));
    }
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "topology",
                     tw_view_topology_name(view->sync.topology), "known_peers",
                     tw_json_count(view->sync.known), "alive_peers",
                     tw_json_count(view->sync.alive), "mixed_peers",
                     tw_json_count(view->sync.mixed), "peers", list, "banned", bans_json(view),
                     "twins", twins_json(view), "port_mapping", tw_json_mapping(view), "nat_text",
                     is_symmetric(view) ? tw_json_text(view->net.nat_text) : json_null());
}

json_t *tw_view_json_rounds(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->rounds_count && i < TW_VIEW_ROUNDS_MAX; i++) {
        const struct tw_view_round *const round = &view->rounds[i];
        (void)json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b,s:o,s:o}", "round",
                            tw_json_count(round->round), "fragment", tw_json_count(round->fragment),
                            "contributors", tw_json_count(round->contributors), "roster_members",
                            tw_json_count(round->roster), "payload_bytes",
                            tw_json_count(round->bytes), "took_us", tw_json_maybe(round->took_us),
                            "age_s", tw_json_seconds(round->age_us), "ours", round->is_ours, "solo",
                            round->is_solo, "partner", tw_json_id_short(&round->partner),
                            "partner_name", tw_json_name(view, &round->partner)));
    }
    return json_pack("{s:s,s:o,s:o}", "topology", tw_view_topology_name(view->sync.topology),
                     "lineage", tw_json_id(&view->run.lineage), "rounds", list);
}

json_t *tw_view_json_events(const struct tw_status_view *view) {
    return json_pack("{s:o,s:o}", "boot", tw_json_count(view->node.boot), "events",
                     tw_json_events(view, TW_VIEW_EVENTS_MAX));
}

/* The manifest as {"sync.period": "30", ...}: its keys, with their values as text. */
static json_t *manifest_keys(const char *manifest) {
    json_t *const keys = json_object();
    for (const char *line = manifest; *line != 0;) {
        const size_t size = strcspn(line, "\n");
        char copy[256];
        (void)snprintf(copy, sizeof(copy), "%.*s", (int)(size < 255 ? size : 255), line);
        char *const equals = strstr(copy, " = ");
        if (equals != NULL) {
            *equals = 0;
            (void)json_object_set_new(keys, copy, tw_json_text(equals + 3));
        }
        line += size + (line[size] == '\n');
    }
    return keys;
}

json_t *tw_view_json_run(const struct tw_status_view *view, const char *manifest) {
    return json_pack("{s:o,s:o,s:o,s:o}", "id", tw_json_id(&view->run.id), "name",
                     tw_json_text(view->run.name), "keys",
                     manifest != NULL ? manifest_keys(manifest) : json_null(), "manifest",
                     manifest != NULL ? tw_json_text(manifest) : json_null());
}

/* ==== checkpoints of a run ==================================================================== */

struct version {
    struct tw_id lineage, tip; /* tip zero: no round is committed yet */
    uint64_t rounds;
    uint32_t nodes_count;
    json_t *nodes; /* owned */
};

struct versions {
    uint32_t count;
    struct version rows[TW_VIEW_PEERS_MAX + 1];
};

static json_t *holder_json(const struct tw_id *id, const char *name, bool is_self, bool is_member,
                           uint64_t heard_us) {
    return json_pack("{s:o,s:o,s:o,s:b,s:b,s:o}", "id", tw_json_id(id), "id_short",
                     tw_json_id_short(id), "name",
                     name[0] != '\0' ? json_string(name) : json_null(), "self", (int)is_self,
                     "member", (int)is_member, "heard_age_s", tw_json_seconds(heard_us));
}

/* Adds a node to the version that it holds. Takes ownership of `node`. */
static void add_node(struct versions *versions, const struct tw_id *lineage,
                     const struct tw_id *tip, uint64_t rounds, json_t *node) {
    uint32_t i = 0;
    while (i < versions->count &&
           !(tw_id_equal(&versions->rows[i].lineage, lineage) &&
             tw_id_equal(&versions->rows[i].tip, tip) && versions->rows[i].rounds == rounds))
        i++;
    if (i == versions->count) {
        TW_ASSERT(versions->count < TW_VIEW_PEERS_MAX + 1);
        versions->rows[versions->count++] = (struct version){
            .lineage = *lineage, .tip = *tip, .rounds = rounds, .nodes = json_array()};
    }
    (void)json_array_append_new(versions->rows[i].nodes, node);
    versions->rows[i].nodes_count++;
}

/* Returns whether `a` is listed before `b`: more nodes first, then more rounds. */
static bool is_before(const struct version *a, const struct version *b) {
    return a->nodes_count != b->nodes_count ? a->nodes_count > b->nodes_count
                                            : a->rounds > b->rounds;
}

static void sort(struct versions *versions) {
    for (uint32_t i = 1; i < versions->count; i++) {
        const struct version row = versions->rows[i];
        uint32_t at = i;
        for (; at > 0 && is_before(&row, &versions->rows[at - 1]); at--)
            versions->rows[at] = versions->rows[at - 1];
        versions->rows[at] = row;
    }
}

/* Writes the sorted versions and hands their nodes over to the result. */
static json_t *list(struct versions *versions) {
    json_t *const array = json_array();
    sort(versions);
    for (uint32_t i = 0; i < versions->count; i++) {
        const struct version *const row = &versions->rows[i];
        (void)json_array_append_new(
            array, json_pack("{s:o,s:o,s:I,s:o,s:o,s:o}", "lineage", tw_json_id(&row->lineage),
                             "lineage_short", tw_json_id_short(&row->lineage), "rounds",
                             (json_int_t)row->rounds, "tip", tw_json_id(&row->tip), "tip_short",
                             tw_json_id_short(&row->tip), "nodes", row->nodes));
    }
    return array;
}

static bool says_its_version(const struct tw_view_peer *peer) {
    return peer->link == TW_VIEW_LINK_ALIVE && !tw_id_is_zero(&peer->lineage);
}

json_t *tw_view_json_versions(const struct tw_status_view *view) {
    struct versions versions = {0};
    json_t *const unknown = json_array();
    add_node(
        &versions, &view->run.lineage, &view->run.tip, view->sync.rounds_committed,
        holder_json(&view->node.id, view->node.name, true, view->node.state == TW_STATE_MEMBER, 0));
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        json_t *const node =
            holder_json(&peer->id, peer->name, false, peer->is_member, peer->heard_us);
        const bool is_linked = peer->link == TW_VIEW_LINK_UP || peer->link == TW_VIEW_LINK_ALIVE;
        if (says_its_version(peer))
            add_node(&versions, &peer->lineage, &peer->tip, peer->rounds, node);
        else if (is_linked || peer->is_member)
            (void)json_array_append_new(unknown, node);
        else
            json_decref(node);
    }
    const bool has_checkpoint = view->checkpoint.step != TW_VIEW_NEVER;
    json_t *const checkpoint =
        !has_checkpoint ? json_null()
                        : json_pack("{s:o,s:I,s:o}", "rounds",
                                    view->checkpoint.rounds == TW_VIEW_NEVER
                                        ? json_null()
                                        : json_integer((json_int_t)view->checkpoint.rounds),
                                    "steps", (json_int_t)view->checkpoint.step, "age_s",
                                    tw_json_seconds(view->checkpoint.age_us));
    return json_pack("{s:s,s:o,s:o,s:o}", "topology", tw_view_topology_name(view->sync.topology),
                     "versions", list(&versions), "unknown", unknown, "checkpoint", checkpoint);
}
