/* setting.c - reads a case from key=value pairs. */
#include "tests/bench/quality/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "proto/run/run_key.h"

enum { THREADS_MAX = 64 };

static const char *const kinds[] = {"group", "alone", "big", NULL};
static const char *const hostilities[] = {"none", "flip", "noise", "nan", "shift", NULL};
static const char *const mixes[] = {"equal", "half", "own", NULL};
static const char *const computes[] = {"fp32", "bf16", NULL};
static const char *const answers[] = {"no", "yes", NULL};
static const char *const lies[] = {"no", "yes", "only", NULL};

const char *kind_name(enum kind kind) {
    return kinds[kind];
}

const char *mix_name(enum mix mix) {
    return mixes[mix];
}

/* ---- words --------------------------------------------------------------------------------- */

static enum tw_status read_number(const struct pair *pair, uint32_t least, uint32_t most,
                                  uint32_t *out, struct tw_error *err) {
    char *end;
    const unsigned long value = strtoul(pair->value, &end, 10);
    if (*pair->value < '0' || *pair->value > '9' || *end != 0 || value < least || value > most) {
        return tw_fail(err, TW_CONFIG, "%s = %s: a number from %u to %u is needed", pair->key,
                       pair->value, least, most);
    }
    *out = (uint32_t)value;
    return TW_OK;
}

static enum tw_status read_choice(const struct pair *pair, const char *word,
                                  const char *const *names, uint32_t *out, struct tw_error *err) {
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (strcmp(word, names[i]) != 0) continue;
        *out = i;
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG, "%s = %s: no such choice", pair->key, pair->value);
}

/* Reads "1:1:20": the factors of the first nodes. All other nodes have factor 1. */
static enum tw_status read_slow(const struct pair *pair, struct setting *setting,
                                struct tw_error *err) {
    const char *at = pair->value;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        char *end;
        const unsigned long factor = strtoul(at, &end, 10);
        if (end == at || factor == 0 || factor > 1000 || (*end != ':' && *end != 0)) break;
        setting->slow[i] = (uint32_t)factor;
        if (*end == 0) return TW_OK;
        at = end + 1;
    }
    return tw_fail(err, TW_CONFIG, "slow = %s: write factors as 1:1:20", pair->value);
}

/* Reads "4:1:0.5": the bits of the first nodes. The last value is for all later nodes, too. */
static enum tw_status read_budget(const struct pair *pair, struct setting *setting,
                                  struct tw_error *err) {
    const char *at = pair->value;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        char *end;
        const double bits = strtod(at, &end);
        if (end == at || !(bits >= 0.001 && bits <= 32.0) || (*end != ':' && *end != 0)) break;
        for (uint32_t k = i; k < TW_MEMBERS_MAX; k++) setting->budget[k] = (uint32_t)(1000 * bits);
        if (*end == 0) return TW_OK;
        at = end + 1;
    }
    return tw_fail(err, TW_CONFIG, "budget = %s: write bits per parameter as 4:1:0.5", pair->value);
}

static enum tw_status read_death(const struct pair *pair, struct setting *setting,
                                 struct tw_error *err) {
    int used = 0;
    if (strcmp(pair->value, "none") == 0) {
        setting->death.steps = 0;
        return TW_OK;
    }
    if (sscanf(pair->value, "%u@%u+%u%n", &setting->death.node, &setting->death.at,
               &setting->death.steps, &used) != 3 ||
        pair->value[used] != 0 || setting->death.steps == 0) {
        return tw_fail(err, TW_CONFIG, "death = %s: write NODE@STEP+STEPS", pair->value);
    }
    return TW_OK;
}

static enum tw_status read_hostile(const struct pair *pair, struct setting *setting,
                                   struct tw_error *err) {
    char word[SETTING_WORD_BYTES];
    uint32_t choice = 0;
    (void)snprintf(word, sizeof(word), "%s", pair->value);
    char *colon = strchr(word, ':');
    setting->hostile.count = 0;
    if (colon != NULL) {
        *colon = 0;
        setting->hostile.count = (uint32_t)strtoul(colon + 1, NULL, 10);
    }
    TW_TRY(read_choice(pair, word, hostilities, &choice, err));
    setting->hostile.kind = (enum hostility)choice;
    if ((choice == 0) == (setting->hostile.count == 0)) return TW_OK;
    return tw_fail(err, TW_CONFIG, "hostile = %s: write flip:2, or none", pair->value);
}

/* Reads gamma of pairs, which may be outside the bounds of proto/run/run_check.c. */
static enum tw_status read_gamma(const struct pair *pair, struct setting *setting,
                                 struct tw_error *err) {
    char *end;
    const double gamma = strtod(pair->value, &end);
    if (end == pair->value || *end != 0 || !(gamma > 0 && gamma < 100)) {
        return tw_fail(err, TW_CONFIG, "gamma = %s: a number above 0 and below 100 is wanted",
                       pair->value);
    }
    setting->gamma_millionths = (uint32_t)(gamma * 1e6 + 0.5);
    return TW_OK;
}

/* ---- models -------------------------------------------------------------------------------- */

struct model {
    const char *name;
    uint32_t layers, width, heads, context, batch, lr_millionths;
};

/* "tiny" is for tests. With "small", a case of 4 nodes and 400 steps takes one core ten seconds.
 * "medium" has 0.84M parameters and rows of 128, for which 500 steps are few, and takes twenty
 * times as long. "3m" (2.8M) and "10m" (10.8M) are for texts of 60 and 200 MB (collect.py). The
 * learning rates are only starting points of a grid. */
static const struct model models[] = {
    {"tiny", 1, 32, 2, 32, 4, 6000},     {"small", 2, 64, 2, 64, 8, 4000},
    {"medium", 4, 128, 4, 128, 8, 4000}, {"3m", 6, 192, 6, 256, 8, 3000},
    {"10m", 6, 384, 6, 256, 8, 2000},
};

static enum tw_status set_model(struct tw_run *run, const char *name, struct tw_error *err) {
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        const struct model *model = &models[i];
        if (strcmp(name, model->name) != 0) continue;
        run->model.layers = model->layers;
        run->model.width = model->width;
        run->model.heads = model->heads;
        run->model.context = model->context;
        run->train.batch = model->batch;
        run->train.lr_millionths = model->lr_millionths;
        return TW_OK;
    }
    return tw_run_apply_model(run, name, err);
}

/* ---- putting it together ------------------------------------------------------------------- */

static enum tw_status set_own(struct setting *setting, const struct pair *pair, bool *is_own,
                              struct tw_error *err) {
    const struct {
        const char *key;
        uint32_t *to, least, most;
    } numbers[] = {
        {"nodes", &setting->nodes, 1, TW_MEMBERS_MAX},
        {"steps", &setting->steps, 1, 10000000},
        {"warmup", &setting->warmup, 0, 10000000},
        {"threads", &setting->threads, 1, THREADS_MAX},
        {"evals", &setting->evals, 1, 1000},
        {"step_ms", &setting->step_ms, 1, 1000000},
        {"latency_ms", &setting->latency_ms, 0, 1000000},
        {"hostile_claims", &setting->hostile.claims, 0, 1000000},
        {"unlinked", &setting->unlinked, 0, TW_MEMBERS_MAX * TW_MEMBERS_MAX},
    };
    uint32_t choice = 0;
    *is_own = true;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(pair->key, numbers[i].key) != 0) continue;
        return read_number(pair, numbers[i].least, numbers[i].most, numbers[i].to, err);
    }
    if (strcmp(pair->key, "seed") == 0) {
        TW_TRY(read_number(pair, 1, 1000000, &choice, err));
        setting->seed = choice;
    } else if (strcmp(pair->key, "kind") == 0) {
        TW_TRY(read_choice(pair, pair->value, kinds, &choice, err));
        setting->kind = (enum kind)choice;
    } else if (strcmp(pair->key, "exact") == 0) {
        TW_TRY(read_choice(pair, pair->value, answers, &choice, err));
        setting->is_exact = choice == 1;
    } else if (strcmp(pair->key, "mix") == 0) {
        TW_TRY(read_choice(pair, pair->value, mixes, &choice, err));
        setting->mix = (enum mix)choice;
    } else if (strcmp(pair->key, "compute") == 0) {
        TW_TRY(read_choice(pair, pair->value, computes, &choice, err));
        setting->compute = choice == 1 ? TW_COMPUTE_BF16 : TW_COMPUTE_FP32;
    } else if (strcmp(pair->key, "hostile_owner") == 0) {
        TW_TRY(read_choice(pair, pair->value, lies, &choice, err));
        setting->hostile.is_owner = choice > 0;
        setting->hostile.is_secret = choice == 2;
    } else if (strcmp(pair->key, "hostile_proposer") == 0) {
        TW_TRY(read_choice(pair, pair->value, answers, &choice, err));
        setting->hostile.is_proposer = choice == 1;
    } else if (strcmp(pair->key, "gamma") == 0) {
        return read_gamma(pair, setting, err);
    } else if (strcmp(pair->key, "slow") == 0) {
        return read_slow(pair, setting, err);
    } else if (strcmp(pair->key, "budget") == 0) {
        return read_budget(pair, setting, err);
    } else if (strcmp(pair->key, "death") == 0) {
        return read_death(pair, setting, err);
    } else if (strcmp(pair->key, "hostile") == 0) {
        return read_hostile(pair, setting, err);
    } else {
        *is_own = strcmp(pair->key, "model") == 0 || strcmp(pair->key, "preset") == 0;
    }
    return TW_OK;
}

static enum tw_status set_keys(struct tw_run *run, const struct pair *pairs, uint32_t count,
                               struct tw_error *err) {
    for (uint32_t i = 0; i < count; i++) {
        if (strchr(pairs[i].key, '.') == NULL) continue;
        TW_TRY(tw_run_set(run, pairs[i].key, pairs[i].value, err));
    }
    return TW_OK;
}

/* Sets the budget so that the run ends after every node's steps: tokens = steps * nodes * batch *
 * context. */
static void plan_tokens(struct setting *setting) {
    struct tw_run *run = &setting->run;
    const uint32_t nodes = setting->kind == KIND_ALONE ? 1 : setting->nodes;
    if (setting->kind == KIND_BIG) run->train.batch *= nodes;
    const uint64_t batches = setting->kind == KIND_GROUP ? nodes : 1;
    const uint64_t step = batches * run->train.batch * run->model.context;
    run->train.tokens = setting->steps * step;
    run->train.warmup_tokens = setting->warmup * step;
    run->sync.nodes = setting->kind == KIND_GROUP ? nodes : 1;
}

static enum tw_status make_run(struct setting *setting, const struct pair *pairs, uint32_t count,
                               struct tw_error *err) {
    struct tw_run *run = &setting->run;
    const char *preset = "streaming";
    tw_run_defaults(run);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(pairs[i].key, "model") == 0) TW_TRY(set_model(run, pairs[i].value, err));
        if (strcmp(pairs[i].key, "preset") == 0) preset = pairs[i].value;
    }
    run->model.seed = setting->seed;
    /* As when a run file is read, the preset's row depends on keys, and keys override the row. */
    TW_TRY(set_keys(run, pairs, count, err));
    TW_TRY(tw_run_set(run, "sync.preset", preset, err));
    plan_tokens(setting);
    tw_run_apply_preset(run, run->sync.preset);
    const uint32_t batch = run->train.batch;
    const uint32_t nodes = run->sync.nodes;
    TW_TRY(set_keys(run, pairs, count, err));
    tw_run_refit(run);
    TW_TRY(set_keys(run, pairs, count, err));
    run->train.batch = batch;
    run->sync.nodes = nodes;
    return tw_run_check(run, err);
}

static enum tw_status check(const struct setting *setting, const struct texts *texts,
                            struct tw_error *err) {
    if (setting->mix != MIX_EQUAL && texts->count < 2) {
        return tw_fail(err, TW_CONFIG, "mix = %s wants several texts", mixes[setting->mix]);
    }
    if (setting->death.steps > 0 && setting->death.node >= setting->nodes) {
        return tw_fail(err, TW_CONFIG, "node %u cannot die: there are %u", setting->death.node,
                       setting->nodes);
    }
    if (setting->hostile.count >= setting->nodes) {
        return tw_fail(err, TW_CONFIG, "%u hostile nodes of %u leave nobody to be measured",
                       setting->hostile.count, setting->nodes);
    }
    const uint32_t homes = setting->nodes > 2 ? setting->nodes - 2 : 0;
    if (setting->unlinked > homes * (homes - (homes > 0)) / 2) {
        return tw_fail(err, TW_CONFIG,
                       "%u unlinked pairs: the %u nodes after the first two have "
                       "fewer",
                       setting->unlinked, homes);
    }
    if (setting->unlinked > 0 && setting->run.sync.topology == TW_TOPOLOGY_PAIR) {
        return tw_fail(err, TW_CONFIG, "unlinked wants a group");
    }
    if (setting->hostile.is_proposer && (setting->hostile.count == 0 || setting->death.steps > 0 ||
                                         setting->run.sync.topology == TW_TOPOLOGY_PAIR)) {
        return tw_fail(err, TW_CONFIG,
                       "hostile_proposer wants hostile nodes, in a group where nobody dies");
    }
    return TW_OK;
}

void setting_manifest(const struct setting *setting, char *text, size_t size) {
    static const struct tw_run zero;
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        char value[TW_RUN_VALUE_BYTES], nothing[TW_RUN_VALUE_BYTES];
        if (keys[i].kind == TW_RUN_NAME) continue;
        tw_run_key_format(&keys[i], &setting->run, value);
        tw_run_key_format(&keys[i], &zero, nothing);
        if (strcmp(value, nothing) == 0 || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s = %s\n", keys[i].name, value);
    }
}

static struct tw_id id_of(const struct setting *setting, const struct tw_id *text) {
    char words[TW_MANIFEST_BYTES_MAX];
    struct tw_sha256_parts parts;
    tw_sha256_begin(&parts);
    tw_sha256_add(&parts, text->bytes, sizeof(text->bytes));
    setting_manifest(setting, words, sizeof(words));
    tw_sha256_add(&parts, words, strlen(words));
    for (uint32_t i = 0; i < setting->nodes; i++) {
        tw_sha256_add(&parts, &setting->slow[i], sizeof(setting->slow[i]));
    }
    int used = snprintf(
        words, sizeof(words), "%s %s %u %u %u %u %llu %u %u %u %u %u %u %u %u %u", setting->name,
        kinds[setting->kind], setting->nodes, setting->steps, setting->warmup, setting->evals,
        (unsigned long long)setting->seed, setting->is_exact, setting->step_ms, setting->latency_ms,
        setting->death.node, setting->death.at, setting->death.steps,
        (unsigned)setting->hostile.kind, setting->hostile.count, setting->hostile.is_owner);
    /* Settings that are absent add nothing, so that the ids of older plans stay the same. */
    if (setting->budget[0] > 0) tw_sha256_add(&parts, setting->budget, sizeof(setting->budget));
    if (setting->gamma_millionths > 0)
        tw_sha256_add(&parts, &setting->gamma_millionths, sizeof(setting->gamma_millionths));
    if (setting->hostile.is_secret) words[used++] = '!';
    if (setting->hostile.is_proposer) words[used++] = '^';
    if (setting->mix != MIX_EQUAL)
        used += snprintf(words + used, sizeof(words) - (size_t)used, "#%s", mixes[setting->mix]);
    if (setting->compute != TW_COMPUTE_FP32) words[used++] = '~';
    if (setting->unlinked > 0) tw_sha256_add(&parts, &setting->unlinked, sizeof(setting->unlinked));
    if (setting->hostile.claims > 0)
        tw_sha256_add(&parts, &setting->hostile.claims, sizeof(setting->hostile.claims));
    tw_sha256_add(&parts, words, (size_t)used);
    return tw_sha256_end(&parts);
}

enum tw_status setting_make(struct setting *setting, const char *name, const struct pair *pairs,
                            uint32_t count, const struct texts *texts, struct tw_error *err) {
    struct tw_error why = {.status = TW_OK};
    memset(setting, 0, sizeof(*setting));
    (void)snprintf(setting->name, sizeof(setting->name), "%s", name);
    setting->nodes = 4;
    setting->steps = 300;
    setting->warmup = 30;
    setting->evals = 10;
    setting->seed = 1;
    setting->step_ms = 100;
    setting->threads = 1;
    setting->compute = TW_COMPUTE_FP32;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) setting->slow[i] = 1;
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; i < count && status == TW_OK; i++) {
        bool is_own = true;
        status = set_own(setting, &pairs[i], &is_own, &why);
        if (status == TW_OK && !is_own && strchr(pairs[i].key, '.') == NULL) {
            status = tw_fail(&why, TW_CONFIG, "there is no key %s", pairs[i].key);
        }
    }
    if (status == TW_OK) status = make_run(setting, pairs, count, &why);
    if (status == TW_OK) status = check(setting, texts, &why);
    if (status != TW_OK) return tw_fail(err, status, "case %s: %.180s", name, why.message);
    setting->id = id_of(setting, &texts->id);
    return TW_OK;
}
