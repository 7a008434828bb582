/* run_idle.c - finds keys that have no effect in a given kind of run. A person who writes such a
 * key expects an effect. */
#include "proto/run/run_key.h"

#include <stdbool.h>
#include <string.h>

static bool is_solo(const struct tw_run *run) {
    return run->sync.topology == TW_TOPOLOGY_SOLO;
}

static bool is_pair(const struct tw_run *run) {
    return run->sync.topology == TW_TOPOLOGY_PAIR;
}

static bool is_by_steps(const struct tw_run *run) {
    return run->sync.pace == TW_PACE_STEPS;
}

static bool is_adamw(const struct tw_run *run) {
    return run->train.optimizer == TW_OPTIMIZER_ADAMW;
}

static bool is_no_wsd(const struct tw_run *run) {
    return run->train.schedule != TW_SCHEDULE_WSD;
}

static const struct idle {
    bool (*is_idle)(const struct tw_run *run);
    const char *where, *why, *instead;
    const char *keys[20]; /* ends with NULL */
} rows[] = {
    {is_solo,
     "sync.topology = solo",
     "nothing is sent and nothing merged while training",
     "sync.topology = group or pair",
     {"sync.overlap",    "sync.sent",          "sync.mix",         "sync.merge",
      "sync.weights",    "sync.outer",         "sync.outer_lr",    "sync.outer_momentum",
      "sync.outer_ramp", "sync.momentum_type", "sync.gap_penalty", "sync.momentum_clip",
      "sync.codec",      "sync.result",        "sync.feedback",    "sync.feedback_local",
      "sync.quorum",     "sync.grace",         "sync.jury",        NULL}},
    {is_solo,
     "sync.topology = solo",
     "each node goes by its own steps",
     "sync.topology = group or pair",
     {"sync.pace", "sync.interval", NULL}},
    {is_pair,
     "sync.topology = pair",
     "a pair has no roster",
     "sync.topology = group",
     {"sync.members", "sync.jury", NULL}},
    {is_pair,
     "sync.topology = pair",
     "both nodes merge for themselves and send no result",
     "sync.topology = group",
     {"sync.result", NULL}},
    {is_pair,
     "sync.topology = pair",
     "a pair always has exactly two contributors",
     "sync.topology = group",
     {"sync.quorum", "sync.grace", NULL}},
    {is_by_steps,
     "sync.pace = steps",
     "rounds follow sync.period, not the time",
     "sync.pace = clock",
     {"sync.interval", NULL}},
    {is_adamw,
     "train.optimizer = adamw",
     "its momentum is train.beta1",
     "train.optimizer = muon",
     {"train.muon_momentum", NULL}},
    {is_no_wsd,
     "train.schedule is not wsd",
     "the learning rate falls by another rule",
     "train.schedule = wsd",
     {"train.wsd_decay", NULL}},
};

static bool has(const struct idle *row, const char *key) {
    for (unsigned i = 0; row->keys[i] != NULL; i++) {
        if (strcmp(row->keys[i], key) == 0) return true;
    }
    return false;
}

enum tw_status tw_run_check_written(const struct tw_run_key *key, const struct tw_run *run,
                                    struct tw_error *err) {
    if (tw_run_is_for_engine(key, run))
        return tw_fail(err, TW_CONFIG,
                       "%s has no effect where model.family = tensors, because our engine alone "
                       "reads it: leave it out",
                       key->name);
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!rows[i].is_idle(run) || !has(&rows[i], key->name)) continue;
        return tw_fail(err, TW_CONFIG,
                       "%s has no effect where %s, because %s: leave it out, or set %s", key->name,
                       rows[i].where, rows[i].why, rows[i].instead);
    }
    return TW_OK;
}
