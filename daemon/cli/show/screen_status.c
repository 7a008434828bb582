/* screen_status.c - the status screen: the state of a node on one page. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/line.h"
#include "daemon/cli/show/screen.h"

enum { SPARK_COLUMNS = 40, BAR_COLUMNS = 24, BAR_COLUMNS_LEAST = 6 };

static const char *sep(const struct screen *screen) {
    return screen->has_utf8 ? " · " : ", ";
}

static const char *plural(double n) {
    return n == 1 ? "" : "s";
}

/* Returns true if the run has that topology. */
static bool is_topology(const json_t *status, const char *name) {
    return strcmp(json_str(status, "sync.topology"), name) == 0;
}

static void print_headline(const struct screen *screen, const json_t *status) {
    const size_t warnings = json_array_size(json_at(status, "warnings"));
    const char *const state = json_str(status, "state");
    const bool is_bad = strcmp(state, "worker_failed") == 0;
    const enum paint paint = is_bad ? RED : warnings > 0 ? YELLOW : GREEN;
    line_wrap(screen, paint, screen->has_utf8 ? "● " : "* ", 2, json_str(status, "sentence"));
}

static void print_warning(const struct screen *screen, const json_t *warning) {
    line_wrap(screen, YELLOW, "! ", 2, json_str(warning, "what"));
    line_wrap_advice(screen, PLAIN, screen->has_utf8 ? "→ " : "> ", 4,
                     json_str(warning, "way_out"));
}

/* Prints the first warning, which is the most important one. */
static void print_worst(const struct screen *screen, const json_t *status) {
    const json_t *const warning = json_array_get(json_at(status, "warnings"), 0);
    if (warning != NULL) print_warning(screen, warning);
}

static void print_other_warnings(const struct screen *screen, const json_t *status) {
    const json_t *const warnings = json_at(status, "warnings");
    for (size_t i = 1; i < json_array_size(warnings); i++)
        print_warning(screen, json_array_get(warnings, i));
}

static void print_gap(const struct screen *screen, const json_t *status) {
    (void)status;
    (void)fputc('\n', screen->to);
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Prints the loss curve in SPARK_COLUMNS columns. Unmeasured values are left out. */
static void put_spark(struct line *line, const json_t *losses) {
    static const char *const FINE[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const COARSE[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
    const size_t count = json_array_size(losses);
    double values[256], low = INFINITY, high = -INFINITY;
    size_t used = 0;
    for (size_t i = 0; i < count && used < 256; i++) {
        const double value = json_num(json_array_get(losses, i), "train_nats");
        if (!isfinite(value)) continue;
        values[used++] = value;
        low = fmin(low, value);
        high = fmax(high, value);
    }
    if (used < 2) return;
    const size_t columns = used < SPARK_COLUMNS ? used : SPARK_COLUMNS;
    for (size_t i = 0; i < columns; i++) {
        const double value = values[i * (used - 1) / (columns - 1)];
        const unsigned level = high > low ? (unsigned)(7.999 * (value - low) / (high - low)) : 0;
        line_put(line, BLUE, "%s", line->screen->has_utf8 ? FINE[level] : COARSE[level]);
    }
    char from[TW_UNITS_BYTES], to[TW_UNITS_BYTES];
    line_put(line, DIM, "  %s %s %s", tw_units_loss(from, values[0]),
             line->screen->has_utf8 ? "→" : "to", tw_units_loss(to, values[used - 1]));
}

/* Prints distance, step and age of the last validation. */
static void print_validation(const struct screen *screen, const json_t *status) {
    char distance[TW_UNITS_BYTES], step[TW_UNITS_BYTES], age[TW_UNITS_BYTES];
    const double ratio = json_num(status, "train.distance_ratio"),
                 age_s = json_num(status, "train.validation_age_s");
    if (!isfinite(ratio) || !(json_num(status, "train.validation_steps") > 0)) return;
    struct line line = line_begin(screen, "");
    line_put(&line, PLAIN, "%s from the anchor", tw_units_percent(distance, ratio));
    line_put(&line, DIM, ", measured at step %s",
             tw_units_count(step, json_num(status, "train.validation_steps")));
    if (isfinite(age_s)) line_put(&line, DIM, ", %s ago", tw_units_duration(age, age_s));
    line_end(&line);
}

/* Prints the loss that `thinwire plan` expects of the run. */
static void print_expected(const struct screen *screen, const json_t *status) {
    char text[160];
    const double loss = json_num(status, "expected.loss_ratio"),
                 now = json_num(status, "expected.now_loss_ratio");
    if (!isfinite(loss)) return;
    int size = snprintf(text, sizeof(text),
                        "expected at the end: %+.1f %% (%.1f to %.1f) above one machine with the "
                        "batch of all",
                        100 * loss, 100 * json_num(status, "expected.loss_low_ratio"),
                        100 * json_num(status, "expected.loss_high_ratio"));
    if (isfinite(now))
        (void)snprintf(text + size, sizeof(text) - (size_t)size,
                       "; with nodes and rounds as now: %+.1f %%", 100 * now);
    line_wrap(screen, DIM, "", 12, text);
}

static void print_loss(const struct screen *screen, const json_t *status) {
    char train[TW_UNITS_BYTES], live[TW_UNITS_BYTES], anchor[TW_UNITS_BYTES];
    const double train_nats = json_num(status, "train.loss_nats"),
                 live_nats = json_num(status, "train.validation_live_nats");
    struct line line = line_begin(screen, "Loss");
    if (isfinite(train_nats)) {
        line_put(&line, BOLD, "%s", tw_units_loss(train, train_nats));
        line_put(&line, PLAIN, " training%s", sep(screen));
    }
    if (isfinite(live_nats)) {
        line_put(&line, BOLD, "%s", tw_units_loss(live, live_nats));
        line_put(&line, PLAIN, " validation (anchor %s)",
                 tw_units_loss(anchor, json_num(status, "train.validation_anchor_nats")));
        line_put(&line, DIM, " nats/token");
    } else if (isfinite(train_nats)) {
        line_put(&line, DIM, "not validated yet");
    } else {
        const bool is_joining = json_str(status, "join.phase")[0] != '\0';
        line_put(&line, DIM, "%s",
                 is_joining ? "not measured before the run's state is here" : "not measured yet");
    }
    line_end(&line);
    if (json_array_size(json_at(status, "train.losses")) > 1) {
        line = line_begin(screen, "");
        put_spark(&line, json_at(status, "train.losses"));
        line_end(&line);
    }
    print_validation(screen, status);
    print_expected(screen, status);
}

static void print_clock(const struct screen *screen, const json_t *status) {
    char all[TW_UNITS_BYTES], left[TW_UNITS_BYTES];
    /* the last round may go beyond the budget */
    const double done = json_num(status, "run.done_percent"), percent = done > 100 ? 100 : done;
    struct line line = line_begin(screen, "Run");
    const double share = isfinite(percent) ? fmin(fmax(percent / 100, 0), 1) : 0;
    /* the time left must not be cut */
    const unsigned columns = screen->width < 78 ? BAR_COLUMNS_LEAST : BAR_COLUMNS;
    const unsigned filled = (unsigned)(share * columns + 0.5);
    for (unsigned i = 0; i < columns; i++) {
        const bool is_done = i < filled;
        line_put(&line, is_done ? GREEN : DIM, "%s",
                 screen->has_utf8 ? (is_done ? "█" : "░") : (is_done ? "#" : "."));
    }
    if (isfinite(percent)) line_put(&line, BOLD, " %.1f %%", percent);
    line_put(&line, PLAIN, " of %s tokens",
             tw_units_short(all, json_num(status, "run.budget_tokens")));
    const double eta = json_num(status, "run.eta_s");
    if (isfinite(eta))
        line_put(&line, PLAIN, "%sabout %s left", sep(screen), tw_units_duration(left, eta));
    line_end(&line);
    const double unmerged = json_num(status, "run.unmerged_tokens");
    if (!(unmerged > 0)) return;
    line = line_begin(screen, "");
    line_put(&line, YELLOW, "and %s tokens of this node, to be merged with the next round",
             tw_units_short(all, unmerged));
    line_end(&line);
}

/* Prints speed and values of the last steps, and the model FLOPs utilisation. */
static void print_arithmetic(const struct screen *screen, const json_t *status) {
    char flops[TW_UNITS_BYTES], share[TW_UNITS_BYTES];
    const double norm = json_num(status, "train.grad_norm"),
                 rate = json_num(status, "train.learning_rate"),
                 speed = json_num(status, "train.flops_per_s"),
                 mfu = json_num(status, "train.mfu_ratio");
    if (!isfinite(norm)) return;
    struct line line = line_begin(screen, "");
    line_put(&line, PLAIN, "gradient norm %.3g%srate %.3g", norm, sep(screen), rate);
    if (speed > 0) line_put(&line, PLAIN, "%s%s", sep(screen), tw_units_flops(flops, speed));
    if (speed > 0 && isfinite(mfu)) line_put(&line, DIM, ", MFU %s", tw_units_percent(share, mfu));
    line_end(&line);
}

/* Prints the speed of this node, once it is measured, and of the run. Returns whether other nodes
 * train too. */
static bool put_speed(struct line *line, const json_t *status) {
    char own[TW_UNITS_BYTES], all[TW_UNITS_BYTES];
    const double others = json_num(status, "run.others_training"),
                 sum = json_num(status, "run.tokens_per_s"),
                 speed = json_num(status, "train.tokens_per_s");
    const bool has_others = others > 0 && sum > 0;
    if (strcmp(json_str(status, "worker.state"), "paused") == 0) {
        line_put(line, YELLOW, "%spaused", sep(line->screen));
        if (has_others)
            line_put(line, PLAIN, ", while %.0f other%s train%s %s tokens/s", others,
                     plural(others), others == 1 ? "s" : "", tw_units_short(all, sum));
        return has_others;
    }
    if (strcmp(json_str(status, "worker.state"), "finished") == 0) {
        line_put(line, GREEN, "%sfinished", sep(line->screen));
        return false;
    }
    const bool joins = json_str(status, "join.phase")[0] != '\0';
    if (joins)
        line_put(line, DIM, "%snot in the run yet", sep(line->screen));
    else if (speed > 0)
        line_put(line, PLAIN, "%s%s tokens/s", sep(line->screen), tw_units_short(own, speed));
    if (has_others)
        line_put(line, PLAIN, ", with %.0f other%s %s%s", others, plural(others),
                 tw_units_short(all, sum), !joins && speed > 0 ? "" : " tokens/s");
    return has_others;
}

static void print_training(const struct screen *screen, const json_t *status) {
    char step[TW_UNITS_BYTES], whole[TW_UNITS_BYTES], minute[TW_UNITS_BYTES];
    struct line line = line_begin(screen, "Training");
    line_put(&line, PLAIN, "step %s", tw_units_count(step, json_num(status, "train.steps")));
    const double stop = json_num(status, "train.stop_steps");
    if (isfinite(stop)) line_put(&line, PLAIN, " of %s", tw_units_count(step, stop));
    const bool has_others = put_speed(&line, status);
    const double used = json_num(status, "train.utilisation_ratio");
    const char *const state = json_str(status, "worker.state");
    const bool is_idle = json_str(status, "join.phase")[0] != '\0' ||
                         strcmp(state, "paused") == 0 || strcmp(state, "finished") == 0;
    if (isfinite(used) && !is_idle)
        line_put(&line, PLAIN, "%s%s busy%s", sep(screen), tw_units_percent(whole, used),
                 has_others ? "" : " training");
    const double lately = json_num(status, "train.utilisation_minute_ratio");
    if (isfinite(lately) && !has_others && !is_idle)
        line_put(&line, DIM, " (%s lately)", tw_units_percent(minute, lately));
    line_end(&line);
    print_arithmetic(screen, status);
    const double skipped = json_num(status, "train.steps_skipped");
    if (skipped > 0) {
        line = line_begin(screen, "");
        line_put(&line, YELLOW, "%s step%s skipped: gradients were not finite",
                 tw_units_count(step, skipped), plural(skipped));
        line_end(&line);
    }
}

/* Prints the commands for the model of a run that is over. */
static void print_model(const struct screen *screen, const json_t *status) {
    if (strcmp(json_str(status, "state"), "finished") != 0) return;
    struct line line = line_begin(screen, "Model");
    const char *const typed = screen->typed != NULL ? screen->typed : "thinwire ";
    line_put(&line, PLAIN, "%sgenerate, export --out DIR or leave", typed);
    line_end(&line);
}

/* Prints how much of the run's dataset is on this node. */
static void put_dataset(struct line *line, const json_t *status) {
    char here[TW_UNITS_BYTES], all[TW_UNITS_BYTES];
    const double files = json_num(status, "data.files"),
                 whole = json_num(status, "data.files_whole");
    if (!(files > 0)) {
        line_put(line, YELLOW, "nothing here yet");
        return;
    }
    if (whole < files) line_put(line, PLAIN, "%.0f of ", whole);
    line_put(line, PLAIN, "%.0f file%s%s", files, plural(files), sep(line->screen));
    if (whole < files) {
        line_put(line, PLAIN, "%s of ", tw_units_bytes(here, json_num(status, "data.bytes_here")));
    }
    line_put(line, PLAIN, "%s", tw_units_bytes(all, json_num(status, "data.bytes")));
}

/* Prints the dataset's traffic: data being fetched, data served, chunks refused. */
static void print_travel(const struct screen *screen, const json_t *status) {
    char rate[TW_UNITS_BYTES], left[TW_UNITS_BYTES], out[TW_UNITS_BYTES];
    const double speed = json_num(status, "data.in_bytes_per_s");
    const double donors = speed > 0 ? json_num(status, "data.donors") : 0,
                 eta = json_num(status, "data.eta_s"), given = json_num(status, "data.out_bytes"),
                 refused = json_num(status, "data.chunks_refused");
    if (!(donors > 0 || given > 0 || refused > 0)) return;
    struct line line = line_begin(screen, "");
    if (donors > 0) {
        line_put(&line, PLAIN, "%s/s from %.0f peer%s", tw_units_bytes(rate, speed), donors,
                 plural(donors));
        if (isfinite(eta))
            line_put(&line, PLAIN, "%s%s left", sep(screen), tw_units_duration(left, eta));
        if (given > 0) line_put(&line, PLAIN, "%s", sep(screen));
    }
    if (given > 0) line_put(&line, DIM, "%s given", tw_units_bytes(out, given));
    if (refused > 0) {
        line_put(&line, YELLOW, "%s%.0f wrong chunk%s", donors > 0 || given > 0 ? sep(screen) : "",
                 refused, plural(refused));
    }
    line_end(&line);
}

static void print_data(const struct screen *screen, const json_t *status) {
    char share[TW_UNITS_BYTES];
    const bool is_text = strcmp(json_str(status, "data.state"), "text") == 0;
    const bool is_own = strcmp(json_str(status, "data.state"), "trainer") == 0;
    if (is_text && !json_yes(status, "data.own_text")) return;
    struct line line = line_begin(screen, "Data");
    if (is_text || is_own) {
        line_put(&line, PLAIN, "%s of its own%s%s of the run's tokens", is_own ? "data" : "text",
                 sep(screen), tw_units_percent(share, json_num(status, "train.token_share_ratio")));
    } else {
        put_dataset(&line, status);
    }
    line_end(&line);
    if (is_text || is_own) return;
    const char *const wanted = json_str(status, "data.waits_for");
    if (wanted[0] != 0) {
        line = line_begin(screen, "");
        line_put(&line, YELLOW, "%s", wanted);
        line_end(&line);
    }
    print_travel(screen, status);
}

static void put_period(struct line *line, const json_t *status) {
    char period[TW_UNITS_BYTES];
    const double period_s = json_num(status, "run.round_period_s");
    if (!isfinite(period_s)) return;
    line_put(line, DIM, "%sone every %s", sep(line->screen), tw_units_duration(period, period_s));
}

/* Prints the outcomes of a pair run's rounds since this node started. */
static void print_pairs(const struct screen *screen, const json_t *status) {
    char merged[TW_UNITS_BYTES], alone[TW_UNITS_BYTES], age[TW_UNITS_BYTES];
    const double one_sided = json_num(status, "sync.pairs.one_sided");
    struct line line = line_begin(screen, "");
    line_put(&line, PLAIN, "since the start %s with a partner%s%s alone",
             tw_units_count(merged, json_num(status, "sync.pairs.merged")), sep(screen),
             tw_units_count(alone, json_num(status, "sync.pairs.alone")));
    if (one_sided > 0) {
        line_put(&line, DIM, "%s%s one-sided", sep(screen), tw_units_count(age, one_sided));
    }
    line_end(&line);
    const char *const name = json_str(status, "sync.pairs.last_partner_name"),
                      *const partner =
                          *name != 0 ? name : json_str(status, "sync.pairs.last_partner");
    if (partner[0] == 0) return;
    line = line_begin(screen, "");
    line_put(&line, DIM, "last with %s, %s ago", partner,
             tw_units_duration(age, json_num(status, "sync.pairs.last_partner_age_s")));
    const double apart = json_num(status, "sync.pairs.last_partner_distance_ratio");
    if (isfinite(apart)) {
        line_put(&line, DIM, "%sanchors %s apart", sep(screen), tw_units_percent(age, apart));
    }
    line_end(&line);
}

/* Prints peers and rounds of a run without votes, which has no roster and no missed rounds. */
static void print_apart(const struct screen *screen, const json_t *status) {
    char rounds[TW_UNITS_BYTES];
    const bool is_pair = is_topology(status, "pair");
    const double mixed = json_num(status, "sync.mixed_peers");
    struct line line = line_begin(screen, "Peers");
    line_put(&line, PLAIN, "%.0f known%s%.0f alive", json_num(status, "sync.known_peers"),
             sep(screen), json_num(status, "sync.alive_peers"));
    if (is_pair) {
        line_put(&line, mixed > 0 ? GREEN : PLAIN, "%s%.0f merged with lately", sep(screen), mixed);
    }
    line_end(&line);
    line = line_begin(screen, "Rounds");
    line_put(&line, PLAIN, "%s done",
             tw_units_count(rounds, json_num(status, "sync.rounds_committed")));
    put_period(&line, status);
    if (!is_pair) line_put(&line, DIM, "%snothing is merged while training", sep(screen));
    line_end(&line);
    if (is_pair) print_pairs(screen, status);
}

/* Says that this node has no vote. Without a voter the rounds stand still. */
static void print_vote(const struct screen *screen, const json_t *status) {
    const double rounds = json_num(status, "sync.rounds_until_vote");
    if (rounds > 0) {
        char text[96];
        (void)snprintf(text, sizeof(text),
                       "this node votes once about %.0f more round%s merged its work", rounds,
                       rounds == 1 ? " has" : "s have");
        line_wrap(screen, DIM, "", 12, text);
    }
    if (!json_is_false(json_at(status, "admission.has_vote"))) return;
    if (json_num(status, "sync.alive_voters") > 0) {
        line_wrap(screen, DIM, "", 12, "this node trains, but does not vote");
    } else {
        line_wrap(screen, YELLOW, "", 12,
                  "this node trains, but does not vote, and no voter is linked: nothing is merged "
                  "until one is");
    }
}

static void print_group(const struct screen *screen, const json_t *status) {
    char committed[TW_UNITS_BYTES], ours[TW_UNITS_BYTES], missed[TW_UNITS_BYTES];
    const double known = json_num(status, "sync.known_peers"),
                 alive = json_num(status, "sync.alive_peers"),
                 mixed = json_num(status, "sync.mixed_peers");
    struct line line = line_begin(screen, "Peers");
    line_put(&line, PLAIN, "%.0f known%s%.0f alive%s", known, sep(screen), alive, sep(screen));
    line_put(&line, mixed > 0 ? GREEN : PLAIN, "%.0f merged with lately", mixed);
    const double roster = json_num(status, "sync.roster_members"),
                 voters = json_num(status, "sync.roster_voters");
    line_put(&line, DIM, "%sroster of %.0f", sep(screen), roster);
    if (voters < roster) line_put(&line, DIM, ", %.0f vote%s", voters, voters == 1 ? "s" : "");
    line_end(&line);
    print_vote(screen, status);
    line = line_begin(screen, "Rounds");
    line_put(&line, PLAIN, "%s committed",
             tw_units_count(committed, json_num(status, "sync.rounds_committed")));
    if (strcmp(json_str(status, "node.role"), "train") != 0) {
        line_put(&line, DIM, "%snone of them with us, by the role of this node", sep(screen));
    } else {
        const double late = json_num(status, "sync.rounds_missed");
        /* a node that was started again gave rounds before */
        const double now = json_num(status, "sync.rounds_contributed"),
                     ever = json_num(status, "sync.rounds_given");
        line_put(&line, PLAIN, "%s%s with this node", sep(screen),
                 tw_units_count(ours, ever > now ? ever : now));
        line_put(&line, late > 0 ? YELLOW : PLAIN, "%s%s missed", sep(screen),
                 tw_units_count(missed, late));
    }
    put_period(&line, status);
    line_end(&line);
}

static void print_sync(const struct screen *screen, const json_t *status) {
    if (is_topology(status, "group")) {
        print_group(screen, status);
    } else {
        print_apart(screen, status);
    }
}

/* Prints whether others can dial this node, but only if a person may want to change that. A node
 * with links works, so that one quiet line is enough. */
static void print_reach(const struct screen *screen, const json_t *status) {
    const char *const state = json_str(status, "network.reachable.state");
    if (strcmp(state, "no") != 0 && strcmp(state, "local") != 0) return;
    if (json_num(status, "sync.alive_peers") > 0)
        line_wrap(screen, DIM, "", 12,
                  "others cannot dial this node, so it dials them (`thinwire doctor`)");
    else
        line_wrap(screen, YELLOW, "", 12, json_str(status, "network.reachable.text"));
}

/* Prints the port mapping at the router. Its absence is shown only if nobody can dial this node. */
static void print_mapping(const struct screen *screen, const json_t *status) {
    const char *const state = json_str(status, "network.port_mapping.state"),
                      *const reach = json_str(status, "network.reachable.state"),
                      *const text = json_str(status, "network.port_mapping.text");
    const bool is_shut = (strcmp(reach, "no") == 0 || strcmp(reach, "local") == 0) &&
                         !(json_num(status, "sync.alive_peers") > 0);
    if (strcmp(state, "mapped") == 0)
        line_wrap(screen, DIM, "", 12, text);
    else if (is_shut && strcmp(state, "off") != 0 && strcmp(state, "not_needed") != 0)
        line_wrap(screen, YELLOW, "", 12, text);
}

/* Prints how many links are direct, punched and relayed, if they are not all direct. */
static void print_links(const struct screen *screen, const json_t *status) {
    const double direct = json_num(status, "network.links.direct"),
                 mapped = json_num(status, "network.links.mapped"),
                 punched = json_num(status, "network.links.punched"),
                 relayed = json_num(status, "network.links.relayed");
    if (!(mapped + punched + relayed > 0)) return;
    struct line line = line_begin(screen, "Links");
    line_put(&line, PLAIN, "%.0f direct", direct);
    if (mapped > 0) line_put(&line, PLAIN, "%s%.0f by the router's port", sep(screen), mapped);
    if (punched > 0) line_put(&line, PLAIN, "%s%.0f punched", sep(screen), punched);
    if (relayed > 0) line_put(&line, PLAIN, "%s%.0f through others", sep(screen), relayed);
    line_end(&line);
    const char *const nat = json_str(status, "network.nat.kind");
    if (strcmp(nat, "unknown") != 0 && strcmp(nat, "none") != 0)
        line_wrap(screen, DIM, "", 12, json_str(status, "network.nat.text"));
}

static void print_quota(const struct screen *screen, const json_t *status) {
    char used[TW_UNITS_BYTES], all[TW_UNITS_BYTES];
    const double quota = json_num(status, "network.caps.quota_bytes"),
                 month = json_num(status, "network.caps.month_bytes");
    if (!isfinite(quota)) return;
    struct line line = line_begin(screen, "Quota");
    line_put(&line, month >= quota ? YELLOW : PLAIN, "%s of %s used this month",
             tw_units_bytes(used, month), tw_units_bytes(all, quota));
    line_end(&line);
}

static void print_network(const struct screen *screen, const json_t *status) {
    char total[TW_UNITS_BYTES], rate[TW_UNITS_BYTES], cap[TW_UNITS_BYTES];
    const double out =
        json_num(status, "network.bulk_out_bytes") + json_num(status, "network.control_out_bytes");
    const double in =
        json_num(status, "network.bulk_in_bytes") + json_num(status, "network.control_in_bytes");
    struct line line = line_begin(screen, "Network");
    line_put(&line, PLAIN, "%s %s", screen->has_utf8 ? "↑" : "up", tw_units_bytes(total, out));
    line_put(&line, PLAIN, " at %s/s",
             tw_units_bytes(rate, json_num(status, "network.out_bytes_per_s")));
    const double most = json_num(status, "network.upload_cap_bytes_per_s");
    if (isfinite(most)) line_put(&line, DIM, " (cap %s)", tw_units_bit_rate(cap, most));
    line_put(&line, PLAIN, "%s%s %s", sep(screen), screen->has_utf8 ? "↓" : "down",
             tw_units_bytes(total, in));
    line_put(&line, PLAIN, " at %s/s",
             tw_units_bytes(rate, json_num(status, "network.in_bytes_per_s")));
    const double down = json_num(status, "network.caps.download_bytes_per_s");
    if (isfinite(down)) line_put(&line, DIM, " (cap %s)", tw_units_bit_rate(cap, down));
    line_end(&line);
    print_quota(screen, status);
    print_links(screen, status);
    print_reach(screen, status);
    print_mapping(screen, status);
}

/* Prints the links that this node relays for others. */
static void print_relay(const struct screen *screen, const json_t *status) {
    char bytes[TW_UNITS_BYTES], cap[TW_UNITS_BYTES];
    const double carried = json_num(status, "network.relay.relayed_bytes"),
                 most = json_num(status, "network.relay.cap_bytes_per_s");
    if (!(carried > 0)) return;
    struct line line = line_begin(screen, "Relay");
    line_put(&line, PLAIN, "%s carried for others, %.0f connections now",
             tw_units_bytes(bytes, carried), json_num(status, "network.relay.pipes"));
    if (isfinite(most)) line_put(&line, DIM, " (cap %s)", tw_units_bit_rate(cap, most));
    line_end(&line);
}

/* Prints rate and pacing of the bulk connections' paths. */
static void print_path(const struct screen *screen, const json_t *status) {
    char path[TW_UNITS_BYTES], pace[TW_UNITS_BYTES];
    const char *const congestion = json_str(status, "network.path.congestion");
    const double carries = json_num(status, "network.path.path_bytes_per_s");
    const double held = json_num(status, "network.path.pace_bytes_per_s");
    if (congestion[0] == '\0') return;
    struct line line = line_begin(screen, "Path");
    line_put(&line, PLAIN, "%s", congestion);
    if (isfinite(carries)) {
        line_put(&line, PLAIN, "%sthe fastest carries %s/s", sep(screen),
                 tw_units_bytes(path, carries));
        if (isfinite(held)) line_put(&line, DIM, ", held to %s/s", tw_units_bytes(pace, held));
    }
    line_end(&line);
}

/* Prints the most used codecs, most used first: "ecsq2 61 %, topk64 20 %". */
static void put_rungs(struct line *line, const struct screen *screen, const json_t *shares) {
    enum { SHOWN = 3 };
    const char *shown[SHOWN];
    for (unsigned i = 0; i < SHOWN; i++) {
        const char *key;
        double most = 0.005; /* smaller shares are not shown */
        json_t *share;
        shown[i] = NULL;
        json_object_foreach((json_t *)shares, key, share) {
            const double value = json_number_value(share);
            bool is_shown = false;
            for (unsigned k = 0; k < i; k++) is_shown = is_shown || shown[k] == key;
            if (is_shown || value < most) continue;
            most = value;
            shown[i] = key;
        }
        if (shown[i] == NULL) return;
        line_put(line, PLAIN, "%s%s %.0f %%", i == 0 ? sep(screen) : ", ", shown[i], 100 * most);
    }
}

/* Prints the codecs of this node's contributions, and its budget. Prints nothing if the codec is
 * fixed and there is no budget. */
static void print_contributions(const struct screen *screen, const json_t *status) {
    const json_t *const shares = json_at(status, "contributions.rung_shares");
    const double bits = json_num(status, "contributions.bits_per_parameter"),
                 budget = json_num(status, "contributions.budget_bytes_per_s"),
                 left_out = json_num(status, "contributions.rounds_left_out");
    char text[TW_UNITS_BYTES];
    if (!isfinite(budget) && json_object_size(shares) == 0) return;
    if (is_topology(status, "solo")) return; /* nothing is sent */
    struct line line = line_begin(screen, "Sends");
    if (isfinite(bits)) {
        line_put(&line, PLAIN, "%.2f bits per parameter", bits);
        put_rungs(&line, screen, shares);
    } else {
        line_put(&line, PLAIN, "nothing yet");
    }
    line_end(&line);
    if (!isfinite(budget)) return;
    const double used = json_num(status, "contributions.used_bytes_per_s");
    line = line_begin(screen, "Budget");
    line_put(&line, used > 1.05 * budget ? YELLOW : PLAIN, "%s/s used", tw_units_bytes(text, used));
    line_put(&line, PLAIN, " of %s/s %s", tw_units_bytes(text, budget),
             json_str(status, "contributions.budget_counts"));
    if (left_out > 0)
        line_put(&line, YELLOW, "%s%.0f round%s left out", sep(screen), left_out, plural(left_out));
    line_end(&line);
}

/* Prints temperature, power and memory of the GPU, if its driver reports them. */
static void print_gpu(const struct screen *screen, const json_t *status) {
    char used[TW_UNITS_BYTES], all[TW_UNITS_BYTES];
    const double celsius = json_num(status, "worker.gpu.temperature_c"),
                 power = json_num(status, "worker.gpu.power_w"),
                 power_max = json_num(status, "worker.gpu.power_max_w"),
                 memory = json_num(status, "worker.gpu.memory_used_bytes"),
                 memory_all = json_num(status, "worker.gpu.memory_bytes"),
                 load = json_num(status, "worker.gpu.load_percent");
    if (!isfinite(load)) return;
    struct line line = line_begin(screen, "");
    line_put(&line, PLAIN, "GPU %.0f %% busy", load);
    if (isfinite(celsius))
        line_put(&line, PLAIN, "%s%.0f %s", sep(screen), celsius, screen->has_utf8 ? "°C" : "C");
    if (isfinite(power)) {
        line_put(&line, PLAIN, "%s%.0f", sep(screen), power);
        if (isfinite(power_max)) line_put(&line, PLAIN, " of %.0f", power_max);
        line_put(&line, PLAIN, " W");
    }
    if (isfinite(memory)) {
        line_put(&line, PLAIN, "%s%s", sep(screen), tw_units_bytes(used, memory));
        if (isfinite(memory_all)) line_put(&line, PLAIN, " of %s", tw_units_bytes(all, memory_all));
    }
    line_end(&line);
}

/* Prints the reasons for a pause, such as " by owner and hours". */
static void put_reasons(struct line *line, const json_t *by) {
    const size_t count = json_array_size(by);
    for (size_t i = 0; i < count; i++)
        line_put(line, YELLOW, "%s %s",
                 i == 0           ? " by"
                 : i + 1 == count ? " and"
                                  : ",",
                 json_string_value(json_array_get(by, i)));
}

static void print_worker(const struct screen *screen, const json_t *status) {
    const char *const state = json_str(status, "worker.state");
    const bool is_fine = strcmp(state, "running") == 0 || strcmp(state, "finished") == 0;
    const double pid = json_num(status, "worker.pid"), deaths = json_num(status, "worker.restarts");
    char snapshot[TW_UNITS_BYTES], step[TW_UNITS_BYTES], age[TW_UNITS_BYTES], bytes[TW_UNITS_BYTES];
    struct line line = line_begin(screen, "Worker");
    line_put(&line, is_fine ? PLAIN : YELLOW, "%s", state);
    put_reasons(&line, json_at(status, "worker.pause.by"));
    if (json_yes(status, "worker.pause.memory_given_back"))
        line_put(&line, PLAIN, "%smemory given back", sep(screen));
    const char *const engine = json_str(status, "worker.engine");
    const char *const device = engine[0] != 0 ? engine : json_str(status, "worker.device");
    if (device[0] != 0) line_put(&line, PLAIN, " on %s", device);
    if (deaths > 0) {
        line_put(&line, YELLOW, "%s%.0f restart%s", sep(screen), deaths, plural(deaths));
    }
    if (isfinite(pid)) line_put(&line, DIM, "%spid %.0f", sep(screen), pid);
    line_end(&line);
    print_gpu(screen, status);
    line = line_begin(screen, "Saved");
    const double saved = json_num(status, "checkpoint.steps");
    if (isfinite(saved)) {
        line_put(&line, PLAIN, "checkpoint of step %s, %s ago, %s", tw_units_count(step, saved),
                 tw_units_duration(age, json_num(status, "checkpoint.age_s")),
                 tw_units_bytes(bytes, json_num(status, "checkpoint.bytes")));
    } else {
        line_put(&line, PLAIN, "no checkpoint yet");
    }
    const double kept = json_num(status, "worker.snapshot_steps");
    if (isfinite(kept)) {
        line_put(&line, DIM, "%ssnapshot of %s", sep(screen), tw_units_count(snapshot, kept));
    }
    line_end(&line);
}

/* Prints the scores of the user's program, as many per line as fit. */
static void print_scores(const struct screen *screen, const json_t *status) {
    char age[TW_UNITS_BYTES], rounds[TW_UNITS_BYTES];
    const char *name;
    json_t *value;
    const char *const error = json_str(status, "scores.error");
    const double taken = json_num(status, "scores.rounds");
    bool is_first = true;
    struct line line;
    json_object_foreach((json_t *)json_at(status, "scores.values"), name, value) {
        line = line_begin(screen, is_first ? "Scores" : "");
        line_put(&line, PLAIN, "%s %.6g", name, json_number_value(value));
        if (is_first)
            line_put(&line, DIM, "%safter %s rounds, %s ago", sep(screen),
                     tw_units_count(rounds, taken),
                     tw_units_duration(age, json_num(status, "scores.age_s")));
        line_end(&line);
        is_first = false;
    }
    if (json_yes(status, "scores.running")) {
        line = line_begin(screen, is_first ? "Scores" : "");
        line_put(&line, DIM, "being measured");
        line_end(&line);
        is_first = false;
    }
    if (error[0] == '\0') return;
    if (is_first) {
        line = line_begin(screen, "Scores");
        line_put(&line, YELLOW, "none yet");
        line_end(&line);
    }
    line_wrap(screen, YELLOW, "", 12, error);
}

/* Prints a text sample: a passage of the held-out text, dimmed, and the model's continuation of it.
 */
static void print_sample(const struct screen *screen, const json_t *status) {
    if (json_str(status, "train.sample.text")[0] == 0) return;
    line_wrap(screen, DIM, "  Sample    ", 12, json_str(status, "train.sample.prompt"));
    line_wrap(screen, PLAIN, "", 12, json_str(status, "train.sample.text"));
}

/* Copies the sentence of an event, text="...", if it has one. */
static const char *words_of(const json_t *event, char words[256]) {
    const char *const text = json_str(event, "text"), *const said = strstr(text, "text=\"");
    if (said == NULL) return text;
    (void)snprintf(words, 256, "%.*s", (int)strcspn(said + 6, "\""), said + 6);
    return words;
}

static void print_lately(const struct screen *screen, const json_t *status) {
    const json_t *const events = json_at(status, "events");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *const event = json_array_get(events, i);
        char age[TW_UNITS_BYTES], words[256];
        struct line line = line_begin(screen, i == 0 ? "Lately" : "");
        line_put(&line, DIM, "%9s ago  ", tw_units_duration(age, json_num(event, "age_s")));
        line_put(&line, json_yes(event, "warning") ? YELLOW : PLAIN, "%s", json_str(event, "name"));
        line_put(&line, DIM, "  %s", words_of(event, words));
        line_end(&line);
    }
}

static void print_foot(const struct screen *screen, const json_t *status) {
    char up[TW_UNITS_BYTES];
    struct line line = line_begin(screen, NULL);
    (void)fputc('\n', screen->to);
    line_put(&line, DIM, "  node %s%slineage %s", json_str(status, "node.id_short"), sep(screen),
             json_str(status, "run.lineage_short"));
    line_put(&line, DIM, "%sup %s%sthinwire %s", sep(screen),
             tw_units_duration(up, json_num(status, "node.uptime_s")), sep(screen),
             json_str(status, "node.version"));
    line_end(&line);
}

/* ---- the whole ------------------------------------------------------------------------------ */

enum part {
    HEADLINE,
    WORST,
    WARNINGS,
    GAP,
    LOSS,
    CLOCK,
    TRAINING,
    MODEL,
    DATA,
    SYNC,
    NETWORK,
    RELAY,
    PATH,
    SENDS,
    WORKER,
    SCORES,
    SAMPLE,
    LATELY,
    FOOT,
    PARTS
};

static void (*const PRINT[PARTS])(const struct screen *, const json_t *) = {
    [HEADLINE] = print_headline, [WORST] = print_worst,         [WARNINGS] = print_other_warnings,
    [GAP] = print_gap,           [LOSS] = print_loss,           [CLOCK] = print_clock,
    [TRAINING] = print_training, [MODEL] = print_model,         [DATA] = print_data,
    [SYNC] = print_sync,         [NETWORK] = print_network,     [RELAY] = print_relay,
    [PATH] = print_path,         [SENDS] = print_contributions, [WORKER] = print_worker,
    [SCORES] = print_scores,     [SAMPLE] = print_sample,       [LATELY] = print_lately,
    [FOOT] = print_foot,
};

/* Lines that a low terminal does without, least important first: the part, and the number of its
 * first lines that stay. A part whose lines belong together goes as a whole. */
static const struct fit_cut CUTS[] = {
    {SAMPLE, 0, true},    {LATELY, 2, false},  {SCORES, 1, false},  {PATH, 0, false},
    {RELAY, 0, false},    {FOOT, 0, true},     {NETWORK, 1, false}, {SENDS, 0, false},
    {WORKER, 1, false},   {DATA, 1, false},    {SCORES, 0, false},  {TRAINING, 1, false},
    {LATELY, 0, false},   {GAP, 0, false},     {LOSS, 2, false},    {SYNC, 2, false},
    {LOSS, 1, false},     {WORKER, 0, false},  {DATA, 0, false},    {NETWORK, 0, false},
    {SYNC, 1, false},     {WARNINGS, 0, true}, {SYNC, 0, false},    {MODEL, 0, false},
    {TRAINING, 0, false}, {CLOCK, 0, false},   {WORST, 1, false},   {HEADLINE, 1, false}};

/* Counts the lines for which the terminal has no room. */
static void print_rest(const struct screen *screen, const json_t *status, unsigned gone,
                       const unsigned *shown) {
    const size_t warnings = json_array_size(json_at(status, "warnings"));
    struct line line = line_begin(screen, NULL);
    line_put(&line, DIM, "%s %u more line%s", screen->has_utf8 ? "…" : "...", gone, plural(gone));
    if (warnings > 1 && shown[WARNINGS] == 0)
        line_put(&line, YELLOW, ", %zu warning%s in them", warnings - 1,
                 plural((double)(warnings - 1)));
    line_put(&line, DIM, ": %sstatus", screen->typed != NULL ? screen->typed : "thinwire ");
    line_end(&line);
}

void screen_status(const struct screen *screen, const json_t *status) {
    static const struct fit FIT = {.print = PRINT,
                                   .cuts = CUTS,
                                   .parts_count = PARTS,
                                   .cuts_count = sizeof(CUTS) / sizeof(CUTS[0]),
                                   .print_rest = print_rest};
    fit_print(screen, status, &FIT);
}
