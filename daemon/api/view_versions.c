#include "daemon/api/view_versions.h"

#include "base/assert.h"
#include "daemon/api/json_value.h"

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

static json_t *node_json(const struct tw_id *id, const char *name, bool is_self, bool is_member,
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
        node_json(&view->node.id, view->node.name, true, view->node.state == TW_STATE_MEMBER, 0));
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        json_t *const node =
            node_json(&peer->id, peer->name, false, peer->is_member, peer->heard_us);
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
