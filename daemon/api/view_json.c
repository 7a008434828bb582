#include "daemon/api/view_json.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/id.h"
#include "base/units.h"
#include "daemon/api/status_view.h"
#include "daemon/api/view_sentence.h"
#include "daemon/api/view_warning.h"
#include "daemon/config/quota.h"

/* ==== values ================================================================================== */

/* All return a new reference, or NULL if memory runs out. A zero id and TW_VIEW_NEVER become null.
 */
static json_t *tw_json_id(const struct tw_id *id) {
    char text[TW_ID_HEX_BYTES];
    tw_id_hex(id, text);
    return tw_id_is_zero(id) ? json_null() : json_string(text);
}

static json_t *tw_json_id_short(const struct tw_id *id) {
    char text[9];
    tw_id_short(id, text);
    return tw_id_is_zero(id) ? json_null() : json_string(text);
}

static json_t *tw_json_seconds(uint64_t us) {
    return us == TW_VIEW_NEVER ? json_null() : json_real((double)(us / 1000) / 1e3);
}

/* ==== the status ============================================================================== */

static json_t *count(uint64_t value) {
    return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value));
}

static json_t *maybe(uint64_t value) {
    return value == TW_VIEW_NEVER ? json_null() : count(value);
}

static json_t *real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* Text from a peer or a file may be invalid UTF-8, which must not spoil the whole answer. */
static json_t *text(const char *value) {
    json_t *const string = json_string(value);
    return string != NULL ? string : json_string("(not UTF-8)");
}

/* Returns the name of a node, or null. */
static json_t *name_json(const struct tw_status_view *view, const struct tw_id *id) {
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        if (tw_id_equal(&view->peers[i].id, id) && view->peers[i].name[0] != 0)
            return text(view->peers[i].name);
    }
    return json_null();
}

static json_t *node_json(const struct tw_status_view *view) {
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:s,s:s,s:b,s:b,s:o}", "id", tw_json_id(&view->node.id),
                     "id_short", tw_json_id_short(&view->node.id), "name", text(view->node.name),
                     "version", text(view->node.version), "uptime_s",
                     tw_json_seconds(view->node.uptime_us), "sync_state",
                     tw_view_state_name(view->node.state), "role",
                     tw_view_role_name(view->node.role), "leaving", view->node.is_leaving, "links",
                     view->node.links, "loop_lag_us", count(view->node.loop_lag_us));
}

static json_t *run_json(const struct tw_status_view *view) {
    const uint64_t clock = view->run.clock_tokens, budget = view->run.budget_tokens;
    json_t *const versions = json_array();
    for (uint32_t i = 0; i < view->run.fragments_count && i < TW_FRAGMENTS_MAX; i++) {
        (void)json_array_append_new(versions, count(view->run.fragment_versions[i]));
    }
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:o}", "unmerged_tokens",
        count(view->run.unmerged_tokens), "id", tw_json_id(&view->run.id), "name",
        text(view->run.name), "lineage", tw_json_id(&view->run.lineage), "lineage_short",
        tw_json_id_short(&view->run.lineage), "clock_tokens", count(clock), "budget_tokens",
        count(budget), "done_percent",
        real(budget > 0 ? 100.0 * (double)clock / (double)budget : NAN), "eta_s",
        tw_json_seconds(view->run.eta_us), "model_params", count(view->run.params), "any_model",
        view->run.is_any_model, "round_period_s", tw_json_seconds(view->run.period_us),
        "fragment_rounds", versions, "tokens_per_s", real(view->run.tokens_per_s),
        "others_training", count(view->run.others));
}

static json_t *losses_json(const struct tw_status_view *view) {
    json_t *const losses = json_array();
    for (uint32_t i = 0; i < view->train.losses_count && i < TW_VIEW_LOSSES_MAX; i++) {
        const struct tw_view_loss *const point = &view->train.losses[i];
        (void)json_array_append_new(
            losses, json_pack("{s:o,s:o,s:o,s:o}", "steps", count(point->step), "train_nats",
                              real(point->train), "live_nats", real(point->live), "anchor_nats",
                              real(point->anchor)));
    }
    return losses;
}

/* A model that has learned little writes bytes that are no text, which the worker replaces by
 * U+FFFD. A sample of which an eighth is such is not shown. */
static bool is_text(const char *sample) {
    size_t points = 0, bad = 0;
    for (const char *at = sample; *at != '\0'; at++) {
        points += ((unsigned char)*at & 0xC0) != 0x80;
        bad += memcmp(at, "\xEF\xBF\xBD", 1) == 0 && strncmp(at, "\xEF\xBF\xBD", 3) == 0;
        bad += (unsigned char)*at < 32 && *at != '\n' && *at != '\t' && *at != '\r';
    }
    return points > 0 && bad * 8 < points;
}

static json_t *sample_json(const struct tw_wmsg_sample *sample) {
    if (!is_text(sample->text)) return json_null();
    return json_pack("{s:o,s:o,s:o}", "steps", count(sample->step), "prompt", text(sample->prompt),
                     "text", text(sample->text));
}

static json_t *train_json(const struct tw_status_view *view) {
    json_t *const train = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "steps", count(view->train.step), "tokens",
        count(view->train.tokens), "stop_steps",
        view->train.stop_step == 0 ? json_null() : count(view->train.stop_step), "tokens_per_s",
        real(view->train.tokens_per_s), "loss_nats", real(view->train.loss), "learning_rate",
        real(view->train.lr), "grad_norm", real(view->train.grad_norm), "steps_skipped",
        count(view->train.steps_skipped), "losses", losses_json(view));
    json_t *const measured = json_pack(
        "{s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "merging_hurts",
        (int)view->train.is_anchor_bad, "token_share_ratio", real(view->train.token_share),
        "flops_per_s", real(view->train.flops_s), "mfu_ratio", real(view->train.mfu),
        "validation_live_nats", real(view->train.loss_live), "validation_anchor_nats",
        real(view->train.loss_anchor), "validation_steps", count(view->train.eval_step),
        "validation_age_s", tw_json_seconds(view->train.eval_age_us), "distance_ratio",
        real(view->train.distance), "utilisation_ratio", real(view->train.utilisation),
        "utilisation_minute_ratio", real(view->train.utilisation_minute), "sample",
        sample_json(&view->train.sample));
    if (train != NULL && measured != NULL) (void)json_object_update(train, measured);
    json_decref(measured);
    return train;
}

/* The transfers of a node that joins; null once its numbers are the run's. */
static json_t *join_json(const struct tw_view_join *join) {
    const bool is_known = join->bytes > 0;
    if (join->phase == TW_VIEW_JOIN_NONE) return json_null();
    return json_pack("{s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "phase", tw_view_join_name(join->phase),
                     "returns", join->is_return, "percent",
                     is_known ? real(100.0 * (double)join->bytes_here / (double)join->bytes)
                              : json_null(),
                     "bytes", is_known ? count(join->bytes) : json_null(), "bytes_here",
                     is_known ? count(join->bytes_here) : json_null(), "bytes_per_s",
                     real(join->bytes_per_s), "eta_s", tw_json_seconds(join->eta_us));
}

static json_t *pairs_json(const struct tw_status_view *view) {
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "merged",
                     count(view->sync.pairs_merged), "alone", count(view->sync.pairs_alone),
                     "one_sided", count(view->sync.pairs_one_sided), "refused",
                     count(view->sync.pairs_refused), "struck", count(view->sync.pairs_struck),
                     "last_partner", tw_json_id_short(&view->sync.partner), "last_partner_name",
                     name_json(view, &view->sync.partner), "last_partner_age_s",
                     tw_json_seconds(view->sync.partner_age_us), "last_partner_distance_ratio",
                     real(view->sync.partner_distance));
}

static json_t *sync_json(const struct tw_status_view *view) {
    return json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "topology",
        tw_view_topology_name(view->sync.topology), "roster_members",
        count(view->sync.roster_count), "roster_voters", count(view->sync.voters),
        "rounds_until_vote", count(view->sync.vote_merges), "alive_voters",
        count(view->sync.voters_alive), "known_peers", count(view->sync.known), "alive_peers",
        count(view->sync.alive), "mixed_peers", count(view->sync.mixed), "rounds_committed",
        count(view->sync.rounds_committed), "rounds_given", count(view->sync.rounds_given),
        "rounds_contributed", count(view->sync.rounds_contributed), "rounds_missed",
        count(view->sync.rounds_missed), "lineage_changes", count(view->sync.lineage_changes),
        "audits", count(view->sync.audits), "training_checks", count(view->sync.checks),
        "contributions_refused", count(view->sync.contributions_refused), "alone_s",
        tw_json_seconds(view->sync.alone_us), "pairs", pairs_json(view));
}

/* Messages that the core dropped, by reason. */
static json_t *core_json(const struct tw_status_view *view) {
    json_t *const dropped = json_object();
    for (enum tw_drop why = TW_DROP_NONE + 1; why < TW_DROPS_COUNT; why++) {
        const uint64_t times = view->sync.dropped[why];
        if (times > 0) (void)json_object_set_new(dropped, tw_drop_word(why), count(times));
    }
    return json_pack("{s:o}", "dropped", dropped);
}

static json_t *path_json(const struct tw_status_view *view) {
    const uint64_t path = view->net.path_bytes_per_s, pace = view->net.pace_bytes_per_s;
    return json_pack("{s:o,s:s,s:o,s:o}", "congestion",
                     view->net.congestion[0] != 0 ? text(view->net.congestion) : json_null(),
                     "pace", tw_view_pace_name(view->net.pace), "path_bytes_per_s",
                     path == 0 ? json_null() : count(path), "pace_bytes_per_s",
                     pace == 0 ? json_null() : count(pace));
}

static json_t *reach_json(const struct tw_status_view *view) {
    json_t *const tried = json_array();
    for (uint32_t i = 0; i < view->net.reach_count && i < TW_REACHABILITY_ROWS_MAX; i++) {
        const struct tw_reachability_row *const row = &view->net.reach[i];
        (void)json_array_append_new(tried,
                                    json_pack("{s:o,s:s,s:o}", "address", text(row->address),
                                              "outcome", tw_reachability_outcome_name(row->outcome),
                                              "by", tw_json_id_short(&row->by)));
    }
    return json_pack("{s:s,s:o,s:o,s:o}", "state",
                     tw_reachability_state_name(view->net.reach_state), "text",
                     text(view->net.reach_text), "age_s", tw_json_seconds(view->net.reach_age_us),
                     "tried", tried);
}

/* State of the port mapping at the router. */
static json_t *mapping_json(const struct tw_status_view *view) {
    const char *const state = view->net.mapping_state, *const by = view->net.mapping_by;
    const char *const address = view->net.mapping_address;
    return json_pack("{s:s,s:o,s:o,s:o,s:o}", "state", state != NULL ? state : "off", "address",
                     address[0] != 0 ? text(address) : json_null(), "by",
                     by != NULL && by[0] != 0 ? text(by) : json_null(), "renewals",
                     count(view->net.mapping_renewals), "text", text(view->net.mapping_text));
}

static const char *path_name(const struct tw_view_peer *peer) {
    if (peer->is_relayed) return "relayed";
    if (peer->is_punched) return "punched";
    return peer->is_mapped ? "mapped" : "direct";
}

/* Number of links by path: direct, mapped, punched or relayed. */
static json_t *links_json(const struct tw_status_view *view) {
    static const char *const NAMES[] = {"direct", "mapped", "punched", "relayed"};
    uint64_t counts[4] = {0};
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        if (peer->link != TW_VIEW_LINK_UP && peer->link != TW_VIEW_LINK_ALIVE) continue;
        for (unsigned k = 0; k < 4; k++) counts[k] += strcmp(path_name(peer), NAMES[k]) == 0;
    }
    json_t *const links = json_object();
    for (unsigned k = 0; k < 4; k++) (void)json_object_set_new(links, NAMES[k], count(counts[k]));
    return links;
}

static json_t *caps_json(const struct tw_status_view *view) {
    const uint64_t up = view->caps.upload_bytes_s, down = view->caps.download_bytes_s;
    const uint64_t hours = view->caps.hours_bytes_s, quota = view->caps.quota_bytes;
    char until[8];
    (void)snprintf(until, sizeof(until), "%02u:%02u", view->caps.until_min / 60 % 24,
                   view->caps.until_min % 60);
    return json_pack("{s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s}", "upload_bytes_per_s",
                     up == 0 ? json_null() : count(up), "download_bytes_per_s",
                     down == 0 ? json_null() : count(down), "limited_by_hand", view->caps.has_limit,
                     "hours_bytes_per_s", hours == 0 ? json_null() : count(hours), "hours_until",
                     view->caps.has_hours ? text(until) : json_null(), "quota_bytes",
                     quota == 0 ? json_null() : count(quota), "month_bytes",
                     count(view->caps.month_bytes), "month_end", text(view->caps.month_end),
                     "strangers_bytes", count(view->caps.strangers_bytes), "strangers_refused",
                     count(view->caps.strangers_refused), "links_rest",
                     view->caps.resting != NULL ? view->caps.resting : "none");
}

static json_t *serving_json(const struct tw_status_view *view) {
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o}", "bytes", count(view->serving.bytes), "month_bytes",
        count(view->serving.month_bytes), "outside_today_bytes", count(view->serving.outside_bytes),
        "refused_node", count(view->serving.refused_node), "refused_outside",
        count(view->serving.refused_outside), "refused_half", count(view->serving.refused_half));
}

static json_t *relay_json(const struct tw_status_view *view) {
    const uint64_t cap = view->relay.cap_bytes_s;
    return json_pack(
        "{s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "on", view->relay.is_on, "cap_bytes_per_s",
        cap == 0 ? json_null() : count(cap), "pipes", count(view->relay.pipes), "relayed_bytes",
        count(view->relay.bytes), "calls_refused", count(view->relay.calls_refused), "own_calls",
        count(view->relay.own_calls), "own_calls_failed", count(view->relay.own_calls_failed),
        "pipes_cut", count(view->relay.pipes_cut));
}

static json_t *network_json(const struct tw_status_view *view) {
    json_t *const listen = json_array();
    for (uint32_t i = 0; i < TW_ADDRS_MAX && view->net.listen[i][0] != 0; i++) {
        (void)json_array_append_new(listen, text(view->net.listen[i]));
    }
    json_t *const network = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "listen",
        listen, "caps", caps_json(view), "payload_in_bytes", count(view->net.payload_in_bytes),
        "payload_out_bytes", count(view->net.payload_out_bytes), "payload_again_bytes",
        count(view->net.payload_again_bytes), "path", path_json(view), "control_in_bytes",
        count(view->net.control_in_bytes), "control_out_bytes", count(view->net.control_out_bytes),
        "bulk_in_bytes", count(view->net.bulk_in_bytes), "bulk_out_bytes",
        count(view->net.bulk_out_bytes), "in_bytes_per_s", real(view->net.in_bytes_per_s),
        "out_bytes_per_s", real(view->net.out_bytes_per_s), "upload_cap_bytes_per_s",
        view->net.upload_cap_bytes_s == 0 ? json_null() : count(view->net.upload_cap_bytes_s),
        "bootstrap_addresses", count(view->net.bootstrap_count), "bootstrap_alive",
        count(view->net.bootstrap_alive), "links_refused", count(view->net.links_refused),
        "pool_bytes", count(view->net.pool_bytes), "pool_used_bytes",
        count(view->net.pool_used_bytes));
    if (network == NULL) return NULL;
    (void)json_object_set_new(network, "reachable", reach_json(view));
    (void)json_object_set_new(network, "relay", relay_json(view));
    (void)json_object_set_new(network, "serving", serving_json(view));
    (void)json_object_set_new(network, "port_mapping", mapping_json(view));
    (void)json_object_set_new(network, "links", links_json(view));
    (void)json_object_set_new(network, "nat",
                              json_pack("{s:s,s:o}", "kind",
                                        view->net.nat != NULL ? view->net.nat : "unknown", "text",
                                        text(view->net.nat_text)));
    (void)json_object_set_new(network, "punches_tried", count(view->net.punch_tries));
    (void)json_object_set_new(network, "punches_succeeded", count(view->net.punch_successes));
    (void)json_object_set_new(network, "stale_addresses", count(view->net.stale_addresses));
    (void)json_object_set_new(network, "banned", count(view->net.banned));
    return network;
}

static json_t *spend_json(const struct tw_status_view *view) {
    json_t *const rungs = json_object();
    for (uint32_t r = 0; r < view->spend.rungs_count; r++) {
        if (view->spend.rungs[r].share <= 0.0) continue;
        (void)json_object_set_new(rungs, view->spend.rungs[r].name,
                                  real(view->spend.rungs[r].share));
    }
    const double budget = view->spend.budget_bytes_per_s;
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b}", "bits_per_parameter", real(view->spend.bits),
        "rung_shares", rungs, "budget_bytes_per_s", budget > 0.0 ? real(budget) : json_null(),
        "budget_counts",
        budget > 0.0 ? text(view->spend.is_month ? "upload and download" : "upload") : json_null(),
        "used_bytes_per_s", real(view->spend.used_bytes_per_s), "rest_bytes_per_s",
        real(view->spend.rest_bytes_per_s), "rounds_left_out", count(view->spend.rounds_left_out),
        "leaves_this_round_out", view->spend.is_left_out, "out_of_reach", view->spend.is_hopeless);
}

static json_t *data_json(const struct tw_status_view *view) {
    const bool is_dataset =
        view->data.state != TW_VIEW_DATA_TEXT && view->data.state != TW_VIEW_DATA_TRAINER;
    json_t *const data = json_pack(
        "{s:s,s:o,s:b,s:b,s:o,s:o}", "state", tw_view_data_name(view->data.state), "path",
        text(view->data.path), "own_text", view->data.is_any, "fetched", view->data.is_fetched,
        "waits_for", view->data.text[0] != 0 ? text(view->data.text) : json_null(), "error",
        view->data.error[0] != 0 ? text(view->data.error) : json_null());
    if (!is_dataset) return data;
    json_t *const here = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "files", count(view->data.files), "files_whole",
        count(view->data.files_whole), "training_shards_whole", count(view->data.train_whole),
        "bytes", count(view->data.bytes), "bytes_here", count(view->data.bytes_here), "next_chunks",
        count(view->data.chunks_count), "next_chunks_here", count(view->data.chunks_here));
    json_t *const moved = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "in_bytes_per_s", real(view->data.in_bytes_per_s), "eta_s",
        tw_json_seconds(view->data.eta_us), "donors", count(view->data.donors), "takers",
        count(view->data.takers), "in_bytes", count(view->data.in_bytes), "out_bytes",
        count(view->data.out_bytes), "chunks_refused", count(view->data.chunks_refused));
    if (data != NULL && here != NULL && moved != NULL) {
        (void)json_object_update(data, here);
        (void)json_object_update(data, moved);
    }
    json_decref(here);
    json_decref(moved);
    return data;
}

static json_t *known(double value) {
    return value > 0 ? json_real(value) : json_null();
}

static json_t *gpu_json(const struct tw_view_gpu *gpu) {
    if (!gpu->is_seen) return json_null();
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "temperature_c", known(gpu->temperature_c),
                     "power_w", known(gpu->power_w), "power_max_w", known(gpu->power_max_w),
                     "memory_used_bytes",
                     gpu->memory_used_bytes > 0 ? count(gpu->memory_used_bytes) : json_null(),
                     "memory_bytes", gpu->memory_bytes > 0 ? count(gpu->memory_bytes) : json_null(),
                     "load_percent", count(gpu->load_percent));
}

/* The reasons for a pause, and the sentence about it; null without a pause. */
static json_t *pause_json(const struct tw_status_view *view) {
    const struct tw_view_pause *const pause = &view->pause;
    const struct {
        const char *name;
        bool holds;
    } reasons[] = {{"owner", pause->is_by_owner},
                   {"hours", pause->is_by_hours},
                   {"run", pause->is_by_run},
                   {"user", pause->is_by_user}};
    char words[TW_VIEW_TEXT_BYTES], until[8];
    json_t *const by = json_array();
    for (unsigned i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].holds) (void)json_array_append_new(by, json_string(reasons[i].name));
    }
    if (json_array_size(by) == 0) {
        json_decref(by);
        return json_null();
    }
    tw_view_pause_text(pause, words);
    (void)snprintf(until, sizeof(until), "%02u:%02u", pause->until_min / 60 % 24,
                   pause->until_min % 60);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:b}", "by", by, "text", text(words), "age_s",
                     tw_json_seconds(pause->age_us), "hours_until",
                     pause->is_by_hours && pause->until_min < TW_DAY_MINUTES ? text(until)
                                                                             : json_null(),
                     "quiet_s", pause->is_by_owner ? tw_json_seconds(pause->quiet_us) : json_null(),
                     "memory_given_back", pause->is_memory_back);
}

static json_t *worker_json(const struct tw_status_view *view) {
    const uint32_t yield_percent = view->pause.yield_percent;
    return json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "state",
        tw_view_worker_name(view->worker.state), "pause", pause_json(view), "yield_percent",
        yield_percent > 0 ? count(yield_percent) : json_null(), "others_cpu_share",
        real(view->pause.others_cpu), "others_gpu_share", real(view->pause.others_gpu), "pid",
        view->worker.pid == 0 ? json_null() : count(view->worker.pid), "restarts",
        count(view->worker.restarts), "device", text(view->worker.device), "engine",
        view->worker.engine[0] != 0 ? text(view->worker.engine) : json_null(), "memory_bytes",
        view->worker.memory_bytes > 0 ? count(view->worker.memory_bytes) : json_null(), "error",
        view->worker.error[0] != 0 ? text(view->worker.error) : json_null(), "snapshot_steps",
        maybe(view->worker.snapshot_step), "heartbeat_age_s",
        tw_json_seconds(view->worker.heartbeat_us), "still_s",
        tw_json_seconds(view->worker.still_us), "gpu", gpu_json(&view->worker.gpu));
}

static json_t *lost_json(const struct tw_view_lost *lost) {
    if (!lost->is_lost) return json_null();
    return json_pack("{s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "anew", lost->is_anew,
                     "rounds_before", count(lost->rounds_before), "rounds", count(lost->rounds),
                     "clock_before", count(lost->clock_before), "tokens", count(lost->tokens),
                     "steps", count(lost->steps), "work_s", tw_json_seconds(lost->work_us),
                     "kept_round", lost->is_kept ? count(lost->kept_rounds) : json_null(), "age_s",
                     tw_json_seconds(lost->age_us));
}

static json_t *checkpoint_json(const struct tw_status_view *view) {
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "steps", maybe(view->checkpoint.step), "rounds",
        maybe(view->checkpoint.rounds), "age_s", tw_json_seconds(view->checkpoint.age_us), "bytes",
        count(view->checkpoint.bytes), "interval_s", tw_json_seconds(view->checkpoint.interval_us),
        "wanted_interval_s", tw_json_seconds(view->checkpoint.wanted_us), "lost",
        lost_json(&view->lost), "error",
        view->checkpoint.error[0] != 0 ? text(view->checkpoint.error) : json_null());
}

/* The user's scores; null if no program measures any. */
static json_t *scores_json(const struct tw_view_scores *scores) {
    const bool has_any = scores->age_us != TW_VIEW_NEVER;
    if (scores->every_rounds == 0) return json_null();
    json_t *const values = json_object();
    for (uint32_t i = 0; i < scores->scores.count; i++)
        (void)json_object_set_new(values, scores->scores.rows[i].name,
                                  real(scores->scores.rows[i].value));
    return json_pack(
        "{s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "every_rounds", count(scores->every_rounds), "running",
        scores->is_running, "rounds", has_any ? count(scores->rounds) : json_null(), "steps",
        has_any ? count(scores->step) : json_null(), "age_s", tw_json_seconds(scores->age_us),
        "took_s", tw_json_seconds(scores->took_us), "values", values, "error",
        scores->error[0] != 0 ? text(scores->error) : json_null());
}

static json_t *warnings_json(const struct tw_status_view *view) {
    struct tw_warning warnings[TW_WARNINGS_MAX];
    const uint32_t warnings_count = tw_view_warnings(view, warnings);
    json_t *const list = json_array();
    for (uint32_t i = 0; i < warnings_count; i++) {
        const struct tw_warning *const warning = &warnings[i];
        (void)json_array_append_new(
            list, json_pack("{s:s,s:o,s:o,s:o}", "kind", tw_warning_name(warning->kind), "about",
                            warning->about[0] != '\0' ? text(warning->about) : json_null(), "what",
                            text(warning->what), "way_out", text(warning->way_out)));
    }
    return list;
}

static json_t *event_list(const struct tw_status_view *view, uint32_t most) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->events_count && i < TW_VIEW_EVENTS_MAX && i < most; i++) {
        const struct tw_view_event *const event = &view->events[i];
        char time[TW_VIEW_TIME_BYTES];
        (void)json_array_append_new(
            list, json_pack("{s:o,s:s,s:o,s:b,s:o,s:o}", "id", count(event->id), "time",
                            tw_view_time(event->unix_us, time), "age_s",
                            tw_json_seconds(event->age_us), "warning", event->is_warning, "name",
                            text(event->name), "text", text(event->text)));
    }
    return list;
}

static json_t *bootstrap_json(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->bootstrap_count && i < TW_VIEW_BOOTSTRAP_MAX; i++) {
        const struct tw_view_bootstrap *const row = &view->bootstrap[i];
        const bool is_failed = row->error[0] != 0;
        (void)json_array_append_new(
            list, json_pack("{s:o,s:o,s:s,s:o,s:o,s:o,s:o}", "address", text(row->address), "id",
                            tw_json_id(&row->id), "link", tw_view_link_name(row->link), "cause",
                            is_failed ? json_string(tw_dial_cause_name(row->cause)) : json_null(),
                            "error", is_failed ? text(row->error) : json_null(), "failures",
                            count(row->failures), "failed_age_s", tw_json_seconds(row->failed_us)));
    }
    return list;
}

/* The node's certificate and the revocation list; null in runs without an owner. */
static json_t *admission_json(const struct tw_status_view *view) {
    char until[TW_UNITS_BYTES];
    if (!view->admission.has_owner) return json_null();
    return json_pack(
        "{s:o,s:s,s:o,s:b,s:b,s:b,s:o,s:o,s:o,s:b}", "error",
        view->admission.error[0] != 0 ? text(view->admission.error) : json_null(),
        "certificate_until", tw_units_utc(until, view->admission.until_s), "certificate_left_s",
        count(view->admission.left_s), "renewed_by_nodes", view->admission.is_renewed, "may_admit",
        view->admission.is_admitter, "has_vote", view->admission.has_vote, "revocations_list",
        count(view->admission.list), "revoked_nodes", count(view->admission.revoked), "recall",
        count(view->admission.recall), "recall_waits", view->admission.is_waiting);
}

static json_t *bad_merging_json(const struct tw_status_view *view) {
    json_t *const object = json_object();
    for (enum tw_finding f = 0; f < TW_FINDINGS; f++)
        (void)json_object_set_new(object, tw_finding_name(f), json_boolean(view->health.has[f]));
    return object;
}

json_t *tw_view_json_status(const struct tw_status_view *view) {
    char sentence[TW_VIEW_TEXT_BYTES];
    tw_view_sentence(view, sentence);
    return json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "state",
        tw_status_view_state(view), "sentence", text(sentence), "admission", admission_json(view),
        "warnings", warnings_json(view), "node", node_json(view), "run", run_json(view), "train",
        train_json(view), "join", join_json(&view->join), "sync", sync_json(view), "core",
        core_json(view), "bad_merging", bad_merging_json(view), "data", data_json(view), "network",
        network_json(view), "bootstrap", bootstrap_json(view), "contributions", spend_json(view),
        "worker", worker_json(view), "checkpoint", checkpoint_json(view), "scores",
        scores_json(&view->scores), "events", event_list(view, TW_VIEW_STATUS_EVENTS));
}

static json_t *peer_json(const struct tw_status_view *view, const struct tw_view_peer *peer) {
    char absence[TW_VIEW_TEXT_BYTES];
    (void)tw_view_absence(peer, absence);
    json_t *const row = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:o,s:b,s:b,s:b,s:o}", "id", tw_json_id(&peer->id),
        "id_short", tw_json_id_short(&peer->id), "name",
        peer->name[0] != 0 ? text(peer->name) : json_null(), "absence",
        absence[0] != 0 ? text(absence) : json_null(), "absent_s",
        absence[0] != 0 ? tw_json_seconds(peer->absent_us) : json_null(), "address",
        peer->addr[0] != 0 ? text(peer->addr) : json_null(), "link", tw_view_link_name(peer->link),
        "error", peer->error[0] != 0 ? text(peer->error) : json_null(), "member", peer->is_member,
        "votes", peer->is_voter, "same_lineage", peer->same_lineage, "heard_age_s",
        tw_json_seconds(peer->heard_us));
    const bool is_heard = peer->heard_us != TW_VIEW_NEVER;
    json_t *const status =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "token_share_ratio",
                  is_heard ? real(peer->token_share) : json_null(), "state",
                  is_heard ? json_string(tw_view_state_name(peer->state)) : json_null(), "role",
                  is_heard ? json_string(tw_view_role_name(peer->role)) : json_null(), "rtt_us",
                  maybe(peer->rtt_us), "up_bytes", count(peer->up_bytes), "down_bytes",
                  count(peer->down_bytes), "steps", is_heard ? count(peer->step) : json_null(),
                  "tokens", is_heard ? count(peer->tokens) : json_null(), "tokens_per_s",
                  is_heard ? count(peer->tokens_per_s) : json_null(), "rounds",
                  is_heard ? count(peer->rounds) : json_null(), "last_mixed_round",
                  maybe(peer->last_mixed_round));
    if (row != NULL && status != NULL) (void)json_object_update(row, status);
    json_decref(status);
    json_t *const measured =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "clock_share_ratio", real(peer->clock_share),
                  "clock_ahead_s",
                  peer->ahead_s != TW_VIEW_NO_CLOCK ? json_integer(peer->ahead_s) : json_null(),
                  "in_bytes_per_s", peer->in_bytes_s > 0 ? count(peer->in_bytes_s) : json_null(),
                  "out_bytes_per_s", peer->out_bytes_s > 0 ? count(peer->out_bytes_s) : json_null(),
                  "loss_ratio", real(peer->loss), "reliability_ratio", real(peer->reliability),
                  "anomaly", peer->anomaly[0] != 0 ? text(peer->anomaly) : json_null());
    if (row != NULL && measured != NULL) (void)json_object_update(row, measured);
    json_decref(measured);
    if (row != NULL && peer->gives_none_us > 0)
        (void)json_object_set_new(row, "gives_none_s", tw_json_seconds(peer->gives_none_us));
    if (row != NULL && peer->gets_none_us > 0)
        (void)json_object_set_new(row, "gets_none_s", tw_json_seconds(peer->gets_none_us));
    const bool is_linked = peer->link == TW_VIEW_LINK_UP || peer->link == TW_VIEW_LINK_ALIVE;
    if (row != NULL && is_linked) {
        (void)json_object_set_new(row, "path", json_string(path_name(peer)));
        (void)json_object_set_new(row, "via",
                                  peer->is_relayed ? tw_json_id_short(&peer->via) : json_null());
        (void)json_object_set_new(row, "via_name",
                                  peer->is_relayed ? name_json(view, &peer->via) : json_null());
        (void)json_object_set_new(row, "path_text",
                                  peer->way[0] != 0 ? text(peer->way) : json_null());
    }
    if (row != NULL && peer->clock_note[0] != 0)
        (void)json_object_set_new(row, "clock_note", text(peer->clock_note));
    if (row != NULL && peer->waits_for_room && peer->link == TW_VIEW_LINK_ALIVE)
        (void)json_object_set_new(
            row, "waits", json_string("it cannot train yet: its disk has no room for the data"));
    if (row != NULL && peer->stall[0] != 0)
        (void)json_object_set_new(row, "stall", text(peer->stall));
    if (row != NULL && peer->strike[0] != 0)
        (void)json_object_set_new(row, "strike", text(peer->strike));
    if (row != NULL && peer->twin[0] != 0) (void)json_object_set_new(row, "twin", text(peer->twin));
    if (row != NULL && peer->refuses[0] != 0)
        (void)json_object_set_new(row, "refuses", text(peer->refuses));
    if (row != NULL && peer->refused[0] != 0)
        (void)json_object_set_new(row, "refused", text(peer->refused));
    return row;
}

static json_t *bans_json(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->net.banned && i < TW_BANS_MAX; i++) {
        (void)json_array_append_new(list, json_pack("{s:o,s:o,s:o,s:o}", "id",
                                                    tw_json_id(&view->bans[i].id), "id_short",
                                                    tw_json_id_short(&view->bans[i].id), "name",
                                                    name_json(view, &view->bans[i].id), "left_s",
                                                    count(view->bans[i].left_s)));
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
            list, json_pack("{s:o,s:o,s:b,s:o,s:o}", "id", tw_json_id(&twin->id), "id_short",
                            tw_json_id_short(&twin->id), "self", (int)twin->is_self, "address",
                            twin->address[0] != 0 ? text(twin->address) : json_null(), "linked",
                            twin->linked[0] != 0 ? text(twin->linked) : json_null()));
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
                     count(view->sync.known), "alive_peers", count(view->sync.alive), "mixed_peers",
                     count(view->sync.mixed), "peers", list, "banned", bans_json(view), "twins",
                     twins_json(view), "port_mapping", mapping_json(view), "nat_text",
                     is_symmetric(view) ? text(view->net.nat_text) : json_null());
}

json_t *tw_view_json_rounds(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->rounds_count && i < TW_VIEW_ROUNDS_MAX; i++) {
        const struct tw_view_round *const round = &view->rounds[i];
        (void)json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b,s:o,s:o}", "round",
                            count(round->round), "fragment", count(round->fragment), "contributors",
                            count(round->contributors), "roster_members", count(round->roster),
                            "payload_bytes", count(round->bytes), "took_us", maybe(round->took_us),
                            "age_s", tw_json_seconds(round->age_us), "ours", round->is_ours, "solo",
                            round->is_solo, "partner", tw_json_id_short(&round->partner),
                            "partner_name", name_json(view, &round->partner)));
    }
    return json_pack("{s:s,s:o,s:o}", "topology", tw_view_topology_name(view->sync.topology),
                     "lineage", tw_json_id(&view->run.lineage), "rounds", list);
}

json_t *tw_view_json_events(const struct tw_status_view *view) {
    return json_pack("{s:o,s:o}", "boot", count(view->node.boot), "events",
                     event_list(view, TW_VIEW_EVENTS_MAX));
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
            (void)json_object_set_new(keys, copy, text(equals + 3));
        }
        line += size + (line[size] == '\n');
    }
    return keys;
}

json_t *tw_view_json_run(const struct tw_status_view *view, const char *manifest) {
    return json_pack("{s:o,s:o,s:o,s:o}", "id", tw_json_id(&view->run.id), "name",
                     text(view->run.name), "keys",
                     manifest != NULL ? manifest_keys(manifest) : json_null(), "manifest",
                     manifest != NULL ? text(manifest) : json_null());
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
