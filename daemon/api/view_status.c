/* view_status.c - the status as JSON and as metrics: one list of its values, from which both
 * expand. */
#include "daemon/api/view_json.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "daemon/api/json_value.h"
#include "daemon/api/status_view.h"
#include "daemon/api/view_sentence.h"
#include "daemon/api/view_warning.h"
#include "daemon/config/quota.h"

static json_t *losses_json(const struct tw_status_view *view) {
    json_t *const losses = json_array();
    for (uint32_t i = 0; i < view->train.losses_count && i < TW_VIEW_LOSSES_MAX; i++) {
        const struct tw_view_loss *const point = &view->train.losses[i];
        (void)json_array_append_new(losses, json_pack("{s:o,s:o,s:o,s:o}", "steps",
                                                      tw_json_count(point->step), "train_nats",
                                                      tw_json_real(point->train), "live_nats",
                                                      tw_json_real(point->live), "anchor_nats",
                                                      tw_json_real(point->anchor)));
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

static json_t *sample_json(const struct tw_status_view *view) {
    const struct tw_wmsg_sample *const sample = &view->train.sample;
    if (!is_text(sample->text)) return json_null();
    return json_pack("{s:o,s:o,s:o}", "steps", tw_json_count(sample->step), "prompt",
                     tw_json_text(sample->prompt), "text", tw_json_text(sample->text));
}

/* The transfers of a node that joins; null once its numbers are the run's. */
static json_t *join_json(const struct tw_status_view *view) {
    const struct tw_view_join *const join = &view->join;
    const bool is_known = join->bytes > 0;
    if (join->phase == TW_VIEW_JOIN_NONE) return json_null();
    return json_pack("{s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "phase", tw_view_join_name(join->phase),
                     "returns", join->is_return, "percent",
                     is_known ? tw_json_real(100.0 * (double)join->bytes_here / (double)join->bytes)
                              : json_null(),
                     "bytes", is_known ? tw_json_count(join->bytes) : json_null(), "bytes_here",
                     is_known ? tw_json_count(join->bytes_here) : json_null(), "bytes_per_s",
                     tw_json_real(join->bytes_per_s), "eta_s", tw_json_seconds(join->eta_us));
}

/* Number of links by path: direct, mapped, punched or relayed. */
static json_t *links_json(const struct tw_status_view *view) {
    static const char *const NAMES[] = {"direct", "mapped", "punched", "relayed"};
    uint64_t counts[4] = {0};
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        if (peer->link != TW_VIEW_LINK_UP && peer->link != TW_VIEW_LINK_ALIVE) continue;
        for (unsigned k = 0; k < 4; k++)
            counts[k] += strcmp(tw_view_path_name(peer), NAMES[k]) == 0;
    }
    json_t *const links = json_object();
    for (unsigned k = 0; k < 4; k++)
        (void)json_object_set_new(links, NAMES[k], tw_json_count(counts[k]));
    return links;
}

/* A minute of the day, "18:00". */
static json_t *minute(uint32_t minute_of_day) {
    char until[8];
    (void)snprintf(until, sizeof(until), "%02u:%02u", minute_of_day / 60 % 24, minute_of_day % 60);
    return json_string(until);
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
    char words[TW_VIEW_TEXT_BYTES];
    json_t *const by = json_array();
    for (unsigned i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].holds) (void)json_array_append_new(by, json_string(reasons[i].name));
    }
    if (json_array_size(by) == 0) {
        json_decref(by);
        return json_null();
    }
    tw_view_pause_text(pause, words);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:b}", "by", by, "text", tw_json_text(words), "age_s",
                     tw_json_seconds(pause->age_us), "hours_until",
                     pause->is_by_hours && pause->until_min < TW_DAY_MINUTES
                         ? minute(pause->until_min)
                         : json_null(),
                     "quiet_s", pause->is_by_owner ? tw_json_seconds(pause->quiet_us) : json_null(),
                     "memory_given_back", pause->is_memory_back);
}

/* The user's scores; null if no program measures any. */
static json_t *scores_json(const struct tw_status_view *view) {
    const struct tw_view_scores *const scores = &view->scores;
    const bool has_any = scores->age_us != TW_VIEW_NEVER;
    if (scores->every_rounds == 0) return json_null();
    json_t *const values = json_object();
    for (uint32_t i = 0; i < scores->scores.count; i++)
        (void)json_object_set_new(values, scores->scores.rows[i].name,
                                  tw_json_real(scores->scores.rows[i].value));
    return json_pack("{s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "every_rounds",
                     tw_json_count(scores->every_rounds), "running", scores->is_running, "rounds",
                     has_any ? tw_json_count(scores->rounds) : json_null(), "steps",
                     has_any ? tw_json_count(scores->step) : json_null(), "age_s",
                     tw_json_seconds(scores->age_us), "took_s", tw_json_seconds(scores->took_us),
                     "values", values, "error",
                     scores->error[0] != 0 ? tw_json_text(scores->error) : json_null());
}

static json_t *warnings_json(const struct tw_status_view *view) {
    struct tw_warning warnings[TW_WARNINGS_MAX];
    const uint32_t warnings_count = tw_view_warnings(view, warnings);
    json_t *const list = json_array();
    for (uint32_t i = 0; i < warnings_count; i++) {
        const struct tw_warning *const warning = &warnings[i];
        (void)json_array_append_new(
            list, json_pack("{s:s,s:o,s:o,s:o}", "kind", tw_warning_name(warning->kind), "about",
                            warning->about[0] != '\0' ? tw_json_text(warning->about) : json_null(),
                            "what", tw_json_text(warning->what), "way_out",
                            tw_json_text(warning->way_out)));
    }
    return list;
}

static json_t *bootstrap_json(const struct tw_status_view *view) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < view->bootstrap_count && i < TW_VIEW_BOOTSTRAP_MAX; i++) {
        const struct tw_view_bootstrap *const row = &view->bootstrap[i];
        const bool is_failed = row->error[0] != 0;
        (void)json_array_append_new(
            list,
            json_pack("{s:o,s:o,s:s,s:o,s:o,s:o,s:o}", "address", tw_json_text(row->address), "id",
                      tw_json_id(&row->id), "link", tw_view_link_name(row->link), "cause",
                      is_failed ? json_string(tw_dial_cause_name(row->cause)) : json_null(),
                      "error", is_failed ? tw_json_text(row->error) : json_null(), "failures",
                      tw_json_count(row->failures), "failed_age_s",
                      tw_json_seconds(row->failed_us)));
    }
    return list;
}

static json_t *bad_merging_json(const struct tw_status_view *view) {
    json_t *const object = json_object();
    for (enum tw_finding f = 0; f < TW_FINDINGS; f++)
        (void)json_object_set_new(object, tw_finding_name(f), json_boolean(view->health.has[f]));
    return object;
}

/* ---- values that are made ------------------------------------------------------------------- */

#define WORD(name, value)                                                                          \
    static json_t *name(const struct tw_status_view *view) {                                       \
        return json_string(value);                                                                 \
    }
WORD(sync_state, tw_view_state_name(view->node.state))
WORD(role, tw_view_role_name(view->node.role))
WORD(topology, tw_view_topology_name(view->sync.topology))
WORD(pace, tw_view_pace_name(view->net.pace))
WORD(reach_state, tw_reachability_state_name(view->net.reach_state))
WORD(mapping_state, view->net.mapping_state != NULL ? view->net.mapping_state : "off")
WORD(nat_kind, view->net.nat != NULL ? view->net.nat : "unknown")
WORD(links_rest, view->caps.resting != NULL ? view->caps.resting : "none")
WORD(data_state, tw_view_data_name(view->data.state))
WORD(worker_state, tw_view_worker_name(view->worker.state))
#undef WORD

static json_t *done_percent(const struct tw_status_view *view) {
    const uint64_t clock = view->run.clock_tokens, budget = view->run.budget_tokens;
    return tw_json_real(budget > 0 ? 100.0 * (double)clock / (double)budget : NAN);
}

static json_t *fragment_rounds(const struct tw_status_view *view) {
    json_t *const versions = json_array();
    for (uint32_t i = 0; i < view->run.fragments_count && i < TW_FRAGMENTS_MAX; i++)
        (void)json_array_append_new(versions, tw_json_count(view->run.fragment_versions[i]));
    return versions;
}

static json_t *partner_name(const struct tw_status_view *view) {
    return tw_json_name(view, &view->sync.partner);
}

static json_t *reach_tried(const struct tw_status_view *view) {
    json_t *const tried = json_array();
    for (uint32_t i = 0; i < view->net.reach_count && i < TW_REACHABILITY_ROWS_MAX; i++) {
        const struct tw_reachability_row *const row = &view->net.reach[i];
        (void)json_array_append_new(tried, json_pack("{s:o,s:s,s:o}", "address",
                                                     tw_json_text(row->address), "outcome",
                                                     tw_reachability_outcome_name(row->outcome),
                                                     "by", tw_json_id_short(&row->by)));
    }
    return tried;
}

static json_t *listen_json(const struct tw_status_view *view) {
    json_t *const listen = json_array();
    for (uint32_t i = 0; i < TW_ADDRS_MAX && view->net.listen[i][0] != 0; i++)
        (void)json_array_append_new(listen, tw_json_text(view->net.listen[i]));
    return listen;
}

static json_t *mapping_by(const struct tw_status_view *view) {
    const char *const by = view->net.mapping_by;
    return by != NULL && by[0] != '\0' ? tw_json_text(by) : json_null();
}

static json_t *hours_until(const struct tw_status_view *view) {
    return view->caps.has_hours ? minute(view->caps.until_min) : json_null();
}

static json_t *rung_shares(const struct tw_status_view *view) {
    json_t *const rungs = json_object();
    for (uint32_t r = 0; r < view->spend.rungs_count; r++) {
        if (view->spend.rungs[r].share <= 0.0) continue;
        (void)json_object_set_new(rungs, view->spend.rungs[r].name,
                                  tw_json_real(view->spend.rungs[r].share));
    }
    return rungs;
}

static json_t *budget_counts(const struct tw_status_view *view) {
    if (view->spend.budget_bytes_per_s <= 0.0) return json_null();
    return json_string(view->spend.is_month ? "upload and download" : "upload");
}

static json_t *kept_round(const struct tw_status_view *view) {
    return view->lost.is_kept ? tw_json_count(view->lost.kept_rounds) : json_null();
}

static json_t *certificate_until(const struct tw_status_view *view) {
    char until[TW_UNITS_BYTES];
    return json_string(tw_units_utc(until, view->admission.until_s));
}

static json_t *state_json(const struct tw_status_view *view) {
    return json_string(tw_status_view_state(view));
}

static json_t *sentence_json(const struct tw_status_view *view) {
    char sentence[TW_VIEW_TEXT_BYTES];
    tw_view_sentence(view, sentence);
    return tw_json_text(sentence);
}

static json_t *newest_events(const struct tw_status_view *view) {
    return tw_json_events(view, TW_VIEW_STATUS_EVENTS);
}

/* Messages that the core dropped, by reason. */
static json_t *dropped_json(const struct tw_status_view *view) {
    json_t *const dropped = json_object();
    for (enum tw_drop why = TW_DROP_NONE + 1; why < TW_DROPS_COUNT; why++) {
        const uint64_t times = view->sync.dropped[why];
        if (times > 0) (void)json_object_set_new(dropped, tw_drop_word(why), tw_json_count(times));
    }
    return dropped;
}

static bool has_dataset(const struct tw_status_view *view) {
    return view->data.state != TW_VIEW_DATA_TEXT && view->data.state != TW_VIEW_DATA_TRAINER;
}

static bool has_gpu(const struct tw_status_view *view) {
    return view->worker.gpu.is_seen;
}

static bool is_archived(const struct tw_status_view *view) {
    return view->archive.is_on;
}

static bool is_lost(const struct tw_status_view *view) {
    return view->lost.is_lost;
}

static bool has_owner(const struct tw_status_view *view) {
    return view->admission.has_owner;
}

/* ---- the list ------------------------------------------------------------------------------- */

/* A value of the status view is named here once: the key and the form of its JSON, and for scrapers
 * its metric. tests/daemon/api/view_sample.c has a sample of each. */

enum type { U64, U32, F64, F32, FLAG, TEXT, ID, MADE, LIST };

enum form {
    PLAIN,    /* a number (null if it is not finite), true or false, a text, an id */
    NOT_ZERO, /* null if it is 0 or "" */
    REAL,     /* as NOT_ZERO, but a whole number has a fraction too: 61.0 */
    MAYBE,    /* null if it is TW_VIEW_NEVER */
    SECONDS,  /* microseconds, written as seconds; null if it is TW_VIEW_NEVER */
    SHORT,    /* the first digits of an id */
};

struct field {
    const char *key;
    enum type type;
    enum form form;
    size_t offset;                                      /* in struct tw_status_view */
    json_t *(*make)(const struct tw_status_view *view); /* type MADE */
    const char *metric, *help; /* NULL: none. A metric named *_total is a counter. */
    const struct field *list;  /* type LIST: fields of an object; without a key: more of this one */
    size_t list_count;
    bool (*holds)(
        const struct tw_status_view *view); /* if false, the list is null; NULL: it holds */
};

#define TYPE(member)                                                                               \
    _Generic(((struct tw_status_view *)0)->member, uint64_t: U64, uint32_t: U32, double: F64,      \
             float: F32, bool: FLAG, char *: TEXT, struct tw_id: ID)
#define METRIC(k, member, f, m, h)                                                                 \
    {                                                                                              \
        .key = k, .type = TYPE(member), .form = f, .metric = m, .help = h,                         \
        .offset = offsetof(struct tw_status_view, member)                                          \
    }
#define FIELD(key, member, form) METRIC(key, member, form, NULL, NULL)
#define MAKE(k, function)                                                                          \
    { .key = k, .type = MADE, .make = function }
#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))
#define OBJECT_IF(k, rows, condition)                                                              \
    { .key = k, .type = LIST, .list = rows, .list_count = COUNT(rows), .holds = condition }
#define OBJECT(key, rows) OBJECT_IF(key, rows, NULL)

static const struct field PAIRS[] = {
    METRIC("merged", sync.pairs_merged, PLAIN, "pairs_merged_total",
           "Rounds merged with a partner."),
    METRIC("alone", sync.pairs_alone, PLAIN, "pairs_alone_total",
           "Rounds in pairs that were taken alone."),
    METRIC("one_sided", sync.pairs_one_sided, PLAIN, "pairs_one_sided_total",
           "Rounds that the partner did not merge."),
    FIELD("refused", sync.pairs_refused, PLAIN),
    METRIC("struck", sync.pairs_struck, PLAIN, "pairs_struck_total",
           "Partners struck for unreadable or outlier payloads."),
    FIELD("last_partner", sync.partner, SHORT),
    MAKE("last_partner_name", partner_name),
    FIELD("last_partner_age_s", sync.partner_age_us, SECONDS),
    FIELD("last_partner_distance_ratio", sync.partner_distance, PLAIN),
};

static const struct field PATH[] = {
    FIELD("congestion", net.congestion, NOT_ZERO),
    MAKE("pace", pace),
    FIELD("path_bytes_per_s", net.path_bytes_per_s, NOT_ZERO),
    FIELD("pace_bytes_per_s", net.pace_bytes_per_s, NOT_ZERO),
};

static const struct field REACHABLE[] = {
    MAKE("state", reach_state),
    FIELD("text", net.reach_text, PLAIN),
    FIELD("age_s", net.reach_age_us, SECONDS),
    MAKE("tried", reach_tried),
};

static const struct field MAPPING[] = {
    MAKE("state", mapping_state),
    FIELD("address", net.mapping_address, NOT_ZERO),
    MAKE("by", mapping_by),
    FIELD("renewals", net.mapping_renewals, PLAIN),
    FIELD("text", net.mapping_text, PLAIN),
};

static const struct field NAT[] = {
    MAKE("kind", nat_kind),
    FIELD("text", net.nat_text, PLAIN),
};

static const struct field CAPS[] = {
    FIELD("upload_bytes_per_s", caps.upload_bytes_s, NOT_ZERO),
    FIELD("download_bytes_per_s", caps.download_bytes_s, NOT_ZERO),
    FIELD("limited_by_hand", caps.has_limit, PLAIN),
    FIELD("hours_bytes_per_s", caps.hours_bytes_s, NOT_ZERO),
    MAKE("hours_until", hours_until),
    FIELD("quota_bytes", caps.quota_bytes, NOT_ZERO),
    FIELD("month_bytes", caps.month_bytes, PLAIN),
    FIELD("month_end", caps.month_end, PLAIN),
    FIELD("strangers_bytes", caps.strangers_bytes, PLAIN),
    FIELD("strangers_refused", caps.strangers_refused, PLAIN),
    MAKE("links_rest", links_rest),
};

static const struct field SERVING[] = {
    METRIC("bytes", serving.bytes, PLAIN, "served_bytes_total",
           "Bytes that served other nodes alone."),
    FIELD("month_bytes", serving.month_bytes, PLAIN),
    FIELD("outside_today_bytes", serving.outside_bytes, PLAIN),
    FIELD("refused_node", serving.refused_node, PLAIN),
    FIELD("refused_outside", serving.refused_outside, PLAIN),
    FIELD("refused_half", serving.refused_half, PLAIN),
};

static const struct field RELAY[] = {
    FIELD("on", relay.is_on, PLAIN),
    FIELD("cap_bytes_per_s", relay.cap_bytes_s, NOT_ZERO),
    METRIC("pipes", relay.pipes, PLAIN, "relay_pipes", "Connections carried for other nodes."),
    METRIC("relayed_bytes", relay.bytes, PLAIN, "relayed_bytes_total",
           "Bytes carried for other nodes."),
    METRIC("calls_refused", relay.calls_refused, PLAIN, "relay_calls_refused_total",
           "Calls of other nodes that this relay refused."),
    FIELD("own_calls", relay.own_calls, PLAIN),
    METRIC("own_calls_failed", relay.own_calls_failed, PLAIN, "relay_own_calls_failed_total",
           "Calls of this node through relays that failed."),
    FIELD("pipes_cut", relay.pipes_cut, PLAIN),
};

static const struct field GPU[] = {
    METRIC("temperature_c", worker.gpu.temperature_c, REAL, "gpu_temperature_celsius",
           "Temperature of the worker's GPU."),
    METRIC("power_w", worker.gpu.power_w, NOT_ZERO, "gpu_power_watts", "Power that the GPU draws."),
    FIELD("power_max_w", worker.gpu.power_max_w, NOT_ZERO),
    METRIC("memory_used_bytes", worker.gpu.memory_used_bytes, NOT_ZERO, "gpu_memory_used_bytes",
           "GPU memory in use by all processes."),
    METRIC("memory_bytes", worker.gpu.memory_bytes, NOT_ZERO, "gpu_memory_bytes",
           "Memory of the GPU."),
    FIELD("load_percent", worker.gpu.load_percent, PLAIN),
};

static const struct field LOST[] = {
    FIELD("anew", lost.is_anew, PLAIN),     FIELD("rounds_before", lost.rounds_before, PLAIN),
    FIELD("rounds", lost.rounds, PLAIN),    FIELD("clock_before", lost.clock_before, PLAIN),
    FIELD("tokens", lost.tokens, PLAIN),    FIELD("steps", lost.steps, PLAIN),
    FIELD("work_s", lost.work_us, SECONDS), MAKE("kept_round", kept_round),
    FIELD("age_s", lost.age_us, SECONDS),
};

static const struct field NODE[] = {
    FIELD("id", node.id, PLAIN),
    FIELD("id_short", node.id, SHORT),
    FIELD("name", node.name, PLAIN),
    FIELD("version", node.version, PLAIN),
    FIELD("uptime_s", node.uptime_us, SECONDS),
    MAKE("sync_state", sync_state),
    MAKE("role", role),
    FIELD("leaving", node.is_leaving, PLAIN),
    FIELD("links", node.links, PLAIN),
    FIELD("loop_lag_us", node.loop_lag_us, PLAIN),
};

static const struct field RUN[] = {
    FIELD("unmerged_tokens", run.unmerged_tokens, PLAIN),
    FIELD("id", run.id, PLAIN),
    FIELD("name", run.name, PLAIN),
    FIELD("lineage", run.lineage, PLAIN),
    FIELD("lineage_short", run.lineage, SHORT),
    METRIC("clock_tokens", run.clock_tokens, PLAIN, "run_clock_tokens",
           "Run clock: tokens of all listed contributions."),
    METRIC("budget_tokens", run.budget_tokens, PLAIN, "run_budget_tokens",
           "Token budget of the run."),
    MAKE("done_percent", done_percent),
    FIELD("eta_s", run.eta_us, SECONDS),
    FIELD("model_params", run.params, PLAIN),
    FIELD("any_model", run.is_any_model, PLAIN),
    FIELD("round_period_s", run.period_us, SECONDS),
    MAKE("fragment_rounds", fragment_rounds),
    METRIC("tokens_per_s", run.tokens_per_s, PLAIN, "run_tokens_per_second",
           "Training speed of all nodes together."),
    FIELD("others_training", run.others, PLAIN),
};

static const struct field TRAIN[] = {
    METRIC("steps", train.step, PLAIN, "train_steps_total", "Inner steps of this node in the run."),
    METRIC("tokens", train.tokens, PLAIN, "train_tokens_total",
           "Tokens that this node trained on in the run."),
    FIELD("stop_steps", train.stop_step, NOT_ZERO),
    METRIC("tokens_per_s", train.tokens_per_s, PLAIN, "train_tokens_per_second",
           "Training speed over the last minute."),
    METRIC("loss_nats", train.loss, PLAIN, "train_loss_nats", "Training loss per token, smoothed."),
    METRIC("learning_rate", train.lr, PLAIN, "train_learning_rate",
           "Inner learning rate in force."),
    METRIC("grad_norm", train.grad_norm, PLAIN, "train_grad_norm",
           "Gradient norm before clipping."),
    METRIC("steps_skipped", train.steps_skipped, PLAIN, "train_steps_skipped_total",
           "Inner steps whose gradients were not finite."),
    MAKE("losses", losses_json),
    FIELD("merging_hurts", train.is_anchor_bad, PLAIN),
    METRIC("token_share_ratio", train.token_share, PLAIN, "train_token_share_ratio",
           "Share of the run's tokens that this node trained on."),
    METRIC("flops_per_s", train.flops_s, PLAIN, "train_flops_per_second",
           "Arithmetic of the inner steps at that speed."),
    METRIC("mfu_ratio", train.mfu, PLAIN, "train_mfu_ratio",
           "Model FLOPs utilisation: that to the measured peak."),
    METRIC("validation_live_nats", train.loss_live, PLAIN, "validation_live_loss_nats",
           "Held-out loss per token of the live parameters."),
    METRIC("validation_anchor_nats", train.loss_anchor, PLAIN, "validation_anchor_loss_nats",
           "Held-out loss per token of the anchor."),
    FIELD("validation_steps", train.eval_step, PLAIN),
    FIELD("validation_age_s", train.eval_age_us, SECONDS),
    METRIC("distance_ratio", train.distance, PLAIN, "consensus_distance_ratio",
           "Relative distance of live parameters and anchor."),
    METRIC("utilisation_ratio", train.utilisation, PLAIN, "utilisation_ratio",
           "Time in inner steps to all time, since the start."),
    METRIC("utilisation_minute_ratio", train.utilisation_minute, PLAIN, "utilisation_minute_ratio",
           "Time in inner steps to all time, over the last minute."),
    MAKE("sample", sample_json),
};

static const struct field SYNC[] = {
    MAKE("topology", topology),
    METRIC("roster_members", sync.roster_count, PLAIN, "roster_members", "Members of the roster."),
    FIELD("roster_voters", sync.voters, PLAIN),
    FIELD("rounds_until_vote", sync.vote_merges, PLAIN),
    FIELD("alive_voters", sync.voters_alive, PLAIN),
    METRIC("known_peers", sync.known, PLAIN, "peers_known", "Peers in the member table."),
    METRIC("alive_peers", sync.alive, PLAIN, "peers_alive", "Peers that send messages."),
    METRIC("mixed_peers", sync.mixed, PLAIN, "peers_mixed",
           "Peers whose contributions were merged lately."),
    METRIC("rounds_committed", sync.rounds_committed, PLAIN, "lineage_rounds",
           "Committed rounds of this node's lineage."),
    FIELD("rounds_given", sync.rounds_given, PLAIN),
    METRIC("rounds_contributed", sync.rounds_contributed, PLAIN, "rounds_contributed_total",
           "Committed rounds that list this node."),
    METRIC("rounds_missed", sync.rounds_missed, PLAIN, "rounds_missed_total",
           "Committed rounds that do not list this node."),
    METRIC("lineage_changes", sync.lineage_changes, PLAIN, "lineage_changes_total",
           "Forks and adoptions of a lineage."),
    METRIC("audits", sync.audits, PLAIN, "audits_total",
           "Merges of other owners that this node checked."),
    METRIC("training_checks", sync.checks, PLAIN, "training_checks_total",
           "Contributions whose training this node checked."),
    METRIC("contributions_refused", sync.contributions_refused, PLAIN,
           "contributions_refused_total",
           "Contributions too large to be merged in this node's parts."),
    FIELD("alone_s", sync.alone_us, SECONDS),
    OBJECT("pairs", PAIRS),
};

static const struct field DATASET[] = {
    METRIC("files", data.files, PLAIN, "data_files", "Files of the run's dataset."),
    METRIC("files_whole", data.files_whole, PLAIN, "data_local_files",
           "Files of the run's dataset that are here."),
    FIELD("training_shards_whole", data.train_whole, PLAIN),
    METRIC("bytes", data.bytes, PLAIN, "data_size_bytes", "Bytes of the run's dataset."),
    METRIC("bytes_here", data.bytes_here, PLAIN, "data_local_bytes",
           "Bytes of the run's dataset that are here."),
    FIELD("next_chunks", data.chunks_count, PLAIN),
    FIELD("next_chunks_here", data.chunks_here, PLAIN),
    FIELD("in_bytes_per_s", data.in_bytes_per_s, PLAIN),
    FIELD("eta_s", data.eta_us, SECONDS),
    METRIC("donors", data.donors, PLAIN, "data_donors", "Peers that sent dataset chunks lately."),
    FIELD("takers", data.takers, PLAIN),
    FIELD("in_bytes", data.in_bytes, PLAIN),
    FIELD("out_bytes", data.out_bytes, PLAIN),
    METRIC("chunks_refused", data.chunks_refused, PLAIN, "data_chunks_refused_total",
           "Dataset chunks with a wrong hash."),
};

static const struct field DATA[] = {
    MAKE("state", data_state),
    FIELD("path", data.path, PLAIN),
    FIELD("own_text", data.is_any, PLAIN),
    FIELD("fetched", data.is_fetched, PLAIN),
    FIELD("waits_for", data.text, NOT_ZERO),
    FIELD("error", data.error, NOT_ZERO),
    OBJECT_IF(NULL, DATASET, has_dataset),
};

static const struct field NETWORK[] = {
    MAKE("listen", listen_json),
    OBJECT("caps", CAPS),
    FIELD("payload_in_bytes", net.payload_in_bytes, PLAIN),
    FIELD("payload_out_bytes", net.payload_out_bytes, PLAIN),
    FIELD("payload_again_bytes", net.payload_again_bytes, PLAIN),
    OBJECT("path", PATH),
    FIELD("control_in_bytes", net.control_in_bytes, PLAIN),
    FIELD("control_out_bytes", net.control_out_bytes, PLAIN),
    FIELD("bulk_in_bytes", net.bulk_in_bytes, PLAIN),
    FIELD("bulk_out_bytes", net.bulk_out_bytes, PLAIN),
    FIELD("in_bytes_per_s", net.in_bytes_per_s, PLAIN),
    FIELD("out_bytes_per_s", net.out_bytes_per_s, PLAIN),
    METRIC("upload_cap_bytes_per_s", net.upload_cap_bytes_s, NOT_ZERO,
           "upload_cap_bytes_per_second", "Configured upload cap."),
    FIELD("bootstrap_addresses", net.bootstrap_count, PLAIN),
    FIELD("bootstrap_alive", net.bootstrap_alive, PLAIN),
    METRIC("links_refused", net.links_refused, PLAIN, "links_refused_total",
           "Connections refused, by either side."),
    METRIC("pool_bytes", net.pool_bytes, PLAIN, "pool_bytes", "Memory for payloads."),
    METRIC("pool_used_bytes", net.pool_used_bytes, PLAIN, "pool_used_bytes",
           "Memory for payloads in use."),
    OBJECT("reachable", REACHABLE),
    OBJECT("relay", RELAY),
    OBJECT("serving", SERVING),
    OBJECT("port_mapping", MAPPING),
    MAKE("links", links_json),
    OBJECT("nat", NAT),
    METRIC("punches_tried", net.punch_tries, PLAIN, "punches_total",
           "Attempts to punch a relayed link."),
    FIELD("punches_succeeded", net.punch_successes, PLAIN),
    FIELD("stale_addresses", net.stale_addresses, PLAIN),
    METRIC("banned", net.banned, PLAIN, "peers_banned",
           "Nodes banned for a while because they broke the protocol."),
};

static const struct field SPEND[] = {
    FIELD("bits_per_parameter", spend.bits, PLAIN),
    MAKE("rung_shares", rung_shares),
    METRIC("budget_bytes_per_s", spend.budget_bytes_per_s, NOT_ZERO, "budget_bytes_per_second",
           "Configured budget of this node."),
    MAKE("budget_counts", budget_counts),
    FIELD("used_bytes_per_s", spend.used_bytes_per_s, PLAIN),
    METRIC("rest_bytes_per_s", spend.rest_bytes_per_s, PLAIN, "budget_rest_bytes_per_second",
           "Bytes at the sockets besides contributions."),
    METRIC("rounds_left_out", spend.rounds_left_out, PLAIN, "rounds_left_out_total",
           "Rounds without a contribution because of the budget."),
    FIELD("leaves_this_round_out", spend.is_left_out, PLAIN),
    FIELD("out_of_reach", spend.is_hopeless, PLAIN),
};

static const struct field WORKER[] = {
    MAKE("state", worker_state),
    MAKE("pause", pause_json),
    FIELD("yield_percent", pause.yield_percent, NOT_ZERO),
    FIELD("others_cpu_share", pause.others_cpu, PLAIN),
    FIELD("others_gpu_share", pause.others_gpu, PLAIN),
    FIELD("pid", worker.pid, NOT_ZERO),
    METRIC("restarts", worker.restarts, PLAIN, "worker_restarts_total", "Deaths of the worker."),
    FIELD("device", worker.device, PLAIN),
    FIELD("engine", worker.engine, NOT_ZERO),
    FIELD("memory_bytes", worker.memory_bytes, NOT_ZERO),
    FIELD("error", worker.error, NOT_ZERO),
    FIELD("snapshot_steps", worker.snapshot_step, MAYBE),
    FIELD("heartbeat_age_s", worker.heartbeat_us, SECONDS),
    FIELD("still_s", worker.still_us, SECONDS),
    OBJECT_IF("gpu", GPU, has_gpu),
};

static const struct field CHECKPOINT[] = {
    FIELD("steps", checkpoint.step, MAYBE),
    FIELD("rounds", checkpoint.rounds, MAYBE),
    FIELD("age_s", checkpoint.age_us, SECONDS),
    FIELD("bytes", checkpoint.bytes, PLAIN),
    FIELD("interval_s", checkpoint.interval_us, SECONDS),
    FIELD("wanted_interval_s", checkpoint.wanted_us, SECONDS),
    OBJECT_IF("lost", LOST, is_lost),
    FIELD("error", checkpoint.error, NOT_ZERO),
};

static const struct field ARCHIVE[] = {
    METRIC("rounds", archive.rounds, PLAIN, "archive_rounds_total",
           "Rounds written to the archive."),
    FIELD("bytes", archive.bytes, PLAIN),
    METRIC("lost", archive.lost, PLAIN, "archive_lost_total",
           "Files that the archive lacks, because the disk failed or was too slow."),
    FIELD("error", archive.error, NOT_ZERO),
};

static const struct field ADMISSION[] = {
    FIELD("error", admission.error, NOT_ZERO),
    MAKE("certificate_until", certificate_until),
    FIELD("certificate_left_s", admission.left_s, PLAIN),
    FIELD("renewed_by_nodes", admission.is_renewed, PLAIN),
    FIELD("may_admit", admission.is_admitter, PLAIN),
    FIELD("has_vote", admission.has_vote, PLAIN),
    FIELD("revocations_list", admission.list, PLAIN),
    FIELD("revoked_nodes", admission.revoked, PLAIN),
    FIELD("recall", admission.recall, PLAIN),
    FIELD("recall_waits", admission.is_waiting, PLAIN),
};

static const struct field CORE[] = {
    MAKE("dropped", dropped_json),
};

static const struct field STATUS[] = {
    MAKE("state", state_json),
    MAKE("sentence", sentence_json),
    OBJECT_IF("admission", ADMISSION, has_owner),
    MAKE("warnings", warnings_json),
    OBJECT("node", NODE),
    OBJECT("run", RUN),
    OBJECT("train", TRAIN),
    MAKE("join", join_json),
    OBJECT("sync", SYNC),
    OBJECT("core", CORE),
    MAKE("bad_merging", bad_merging_json),
    OBJECT("data", DATA),
    OBJECT("network", NETWORK),
    MAKE("bootstrap", bootstrap_json),
    OBJECT("contributions", SPEND),
    OBJECT("worker", WORKER),
    OBJECT("checkpoint", CHECKPOINT),
    OBJECT_IF("archive", ARCHIVE, is_archived),
    MAKE("scores", scores_json),
    MAKE("events", newest_events),
};

/* ---- the list as JSON ----------------------------------------------------------------------- */

static json_t *whole_json(const struct field *field, uint64_t value) {
    if (field->form == SECONDS) return tw_json_seconds(value);
    if (field->form == MAYBE) return tw_json_maybe(value);
    if (value == 0 && field->form != PLAIN) return json_null();
    return field->form == REAL ? json_real((double)value) : tw_json_count(value);
}

static json_t *list_json(const struct field *fields, size_t fields_count,
                         const struct tw_status_view *view);

static bool holds(const struct field *field, const struct tw_status_view *view) {
    return field->holds == NULL || field->holds(view);
}

static json_t *field_json(const struct field *field, const struct tw_status_view *view) {
    const void *const at = (const char *)view + field->offset;
    const bool is_kept = field->form != NOT_ZERO;
    switch (field->type) {
    case U64: return whole_json(field, *(const uint64_t *)at);
    case U32: return whole_json(field, *(const uint32_t *)at);
    case F64:
        return is_kept || *(const double *)at > 0 ? tw_json_real(*(const double *)at) : json_null();
    case F32: return tw_json_real((double)*(const float *)at);
    case FLAG: return json_boolean(*(const bool *)at);
    case TEXT: return is_kept || *(const char *)at != '\0' ? tw_json_text(at) : json_null();
    case ID: return field->form == SHORT ? tw_json_id_short(at) : tw_json_id(at);
    case MADE: return field->make(view);
    case LIST: break;
    }
    return holds(field, view) ? list_json(field->list, field->list_count, view) : json_null();
}

/* Returns the object in the order of the list, or NULL without memory. */
static json_t *list_json(const struct field *fields, size_t fields_count,
                         const struct tw_status_view *view) {
    json_t *const object = json_object();
    for (size_t i = 0; i < fields_count; i++) {
        json_t *const value = field_json(&fields[i], view);
        const bool is_more = fields[i].key == NULL; /* an object or null */
        const int failed = !is_more              ? json_object_set_new(object, fields[i].key, value)
                           : json_is_null(value) ? 0
                                                 : json_object_update(object, value);
        if (is_more) json_decref(value);
        if (failed == 0) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *tw_view_json_status(const struct tw_status_view *view) {
    return list_json(STATUS, COUNT(STATUS), view);
}

json_t *tw_json_mapping(const struct tw_status_view *view) {
    return list_json(MAPPING, COUNT(MAPPING), view);
}

/* ---- the list as metrics -------------------------------------------------------------------- */

/* Returns false if the value is not known. */
static bool read_metric(const struct field *field, const struct tw_status_view *view,
                        struct tw_view_metric *metric) {
    const void *const at = (const char *)view + field->offset;
    *metric = (struct tw_view_metric){.name = field->metric, .help = field->help};
    if (field->type == U64) metric->count = *(const uint64_t *)at;
    if (field->type == U32) metric->count = *(const uint32_t *)at;
    metric->value = (double)metric->count;
    if (field->type == F64) metric->value = *(const double *)at;
    if (field->type == F32) metric->value = (double)*(const float *)at;
    if (field->form == NOT_ZERO || field->form == REAL) return metric->value > 0;
    return !isnan(metric->value);
}

static void put_metrics(const struct field *fields, size_t fields_count,
                        const struct tw_status_view *view,
                        void (*put)(void *user, const struct tw_view_metric *metric), void *user) {
    struct tw_view_metric metric;
    for (const struct field *field = fields; field < fields + fields_count; field++) {
        if (field->type == LIST && holds(field, view))
            put_metrics(field->list, field->list_count, view, put, user);
        if (field->metric != NULL && read_metric(field, view, &metric)) put(user, &metric);
    }
}

void tw_view_metrics(const struct tw_status_view *view,
                     void (*put)(void *user, const struct tw_view_metric *metric), void *user) {
    put_metrics(STATUS, COUNT(STATUS), view, put, user);
}
