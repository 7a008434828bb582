#include "daemon/runlog/run_line.h"

#include <math.h>

static json_t *text(const char *value) {
    json_t *const json = json_string(value);
    return json != NULL ? json : json_string("(not UTF-8)");
}

static json_t *count(uint64_t value) {
    return json_integer((json_int_t)value);
}

static json_t *real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *full_id(const struct tw_id *id) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(id, hex);
    return json_string(hex);
}

static json_t *begin(const char *kind, const struct tw_run_moment *moment) {
    char time[TW_VIEW_TIME_BYTES];
    return json_pack("{s:s,s:s}", "kind", kind, "time", tw_view_time(moment->unix_us, time));
}

/* Adds the keys of `more` to the line, and frees `more`. */
static json_t *add(json_t *line, json_t *more) {
    (void)json_object_update(line, more);
    json_decref(more);
    return line;
}

static json_t *identity(const struct tw_run_moment *moment) {
    return json_pack("{s:o,s:o,s:o,s:o}", "node", full_id(moment->node), "node_name",
                     text(moment->node_name), "run", full_id(moment->run), "run_name",
                     text(moment->run_name));
}

static json_t *progress(const struct tw_run_moment *moment) {
    return json_pack("{s:o,s:o,s:o}", "step", count(moment->step), "tokens", count(moment->tokens),
                     "clock_tokens", count(moment->clock_tokens));
}

json_t *tw_run_line_start(const struct tw_run_moment *moment) {
    json_t *const line = add(begin("start", moment), identity(moment));
    return add(add(line, progress(moment)),
               json_pack("{s:o,s:s}", "boot", count(moment->boot), "version", TW_RELEASE));
}

json_t *tw_run_line_stop(const struct tw_run_moment *moment, int exit_status) {
    return add(add(begin("stop", moment), progress(moment)),
               json_pack("{s:i}", "exit_status", exit_status));
}

static json_t *training(const struct tw_run_step *step) {
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "loss_nats", real((double)step->loss),
                     "learning_rate", real((double)step->lr), "grad_norm",
                     real((double)step->grad_norm), "tokens_per_s", real(step->tokens_per_s),
                     "utilisation_ratio", real(step->utilisation));
}

json_t *tw_run_line_step(const struct tw_run_moment *moment, const struct tw_run_step *step) {
    return add(add(begin("step", moment), progress(moment)), training(step));
}

json_t *tw_run_line_evaluation(const struct tw_run_moment *moment, const struct tw_run_step *step) {
    json_t *const line = add(add(begin("evaluation", moment), progress(moment)), training(step));
    return add(line,
               json_pack("{s:o,s:o,s:o}", "validation_live_nats", real((double)step->loss_live),
                         "validation_anchor_nats", real((double)step->loss_anchor),
                         "distance_ratio", real((double)step->distance)));
}

json_t *tw_run_line_sample(const struct tw_run_moment *moment,
                           const struct tw_wmsg_sample *sample) {
    return add(
        add(begin("sample", moment), progress(moment)),
        json_pack("{s:o,s:o}", "prompt", text(sample->prompt), "sample", text(sample->text)));
}

json_t *tw_run_line_round(const struct tw_run_moment *moment, const struct tw_view_round *round,
                          const char *outcome) {
    char partner[9];
    tw_id_short(&round->partner, partner);
    const bool has_time = round->took_us != TW_VIEW_NEVER;
    json_t *const line = add(begin("round", moment), progress(moment));
    return add(line,
               json_pack("{s:o,s:o,s:o,s:o,s:s,s:o,s:o,s:o}", "round", count(round->round),
                         "fragment", count(round->fragment), "members", count(round->roster),
                         "contributors", count(round->contributors), "outcome", outcome,
                         "payload_bytes", has_time ? count(round->bytes) : json_null(), "took_s",
                         has_time ? real((double)round->took_us / 1e6) : json_null(), "partner",
                         tw_id_is_zero(&round->partner) ? json_null() : text(partner)));
}

json_t *tw_run_line_scores(const struct tw_run_moment *moment, const struct tw_run_scores *scores) {
    json_t *const values = json_object();
    for (uint32_t i = 0; i < scores->scores->count; i++)
        (void)json_object_set_new(values, scores->scores->rows[i].name,
                                  real(scores->scores->rows[i].value));
    return add(add(begin("scores", moment), progress(moment)),
               json_pack("{s:o,s:o,s:o}", "rounds", count(scores->rounds), "evaluation_s",
                         real((double)scores->took_us / 1e6), "scores", values));
}

json_t *tw_run_line_warning(const struct tw_run_moment *moment, const struct tw_warning *warning,
                            bool is_raised) {
    json_t *const line = add(begin("warning", moment), identity(moment));
    return add(line, json_pack("{s:s,s:s,s:o,s:o,s:o}", "state", is_raised ? "raised" : "cleared",
                               "warning", tw_warning_name(warning->kind), "about",
                               warning->about[0] != '\0' ? text(warning->about) : json_null(),
                               "text", text(warning->what), "way_out", text(warning->way_out)));
}

json_t *tw_run_line_gap(const struct tw_run_moment *moment, uint64_t lines) {
    return add(begin("gap", moment), json_pack("{s:o}", "lines", count(lines)));
}
