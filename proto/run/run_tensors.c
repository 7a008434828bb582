/* run_tensors.c - runs of any model: keys that only this project's engine reads, and relations
 * between keys. */
#include <stdbool.h>
#include <string.h>

#include "proto/run/run_key.h"
#include "proto/run/tensor_list.h"

static const char *const engine_keys[] = {
    "model.layers",    "model.width",     "model.heads",         "model.kv_heads",
    "model.head_size", "model.ffn",       "model.tied",          "model.norm_eps",
    "model.qk_norm",   "model.qkv_bias",  "model.rope_theta",    "model.rope_factor",
    "model.rope_low",  "model.rope_high", "model.rope_original", "model.seed",
    "train.optimizer", "train.beta1",     "train.muon_momentum", "train.decay",
    "train.clip",      "train.z_loss",    "sync.pattern",
};

/* Keys of the training data. Unless data.sha256 names that data, the trainer chooses its own. */
static const char *const data_keys[] = {
    "model.vocab",    "data.tokenizer", "data.form",       "data.heldout",
    "data.documents", "data.separator", "data.curriculum",
};

static bool has(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

static bool is_of_data(const struct tw_run_key *key) {
    return has(data_keys, sizeof(data_keys) / sizeof(data_keys[0]), key->name);
}

bool tw_run_is_for_engine(const struct tw_run_key *key, const struct tw_run *run) {
    if (run->model.family != TW_FAMILY_TENSORS) return false;
    if (has(engine_keys, sizeof(engine_keys) / sizeof(engine_keys[0]), key->name)) return true;
    return tw_run_has_own_data(run) && is_of_data(key);
}

void tw_run_clear_engine(struct tw_run *run) {
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (tw_run_is_for_engine(&keys[i], run)) tw_run_key_set_least(&keys[i], run);
    }
}

enum tw_status tw_run_apply_tensors(struct tw_run *run, const char *tensors, struct tw_error *err) {
    TW_TRY(tw_run_set(run, "model.tensors", tensors, err));
    run->model.family = TW_FAMILY_TENSORS;
    tw_run_clear_engine(run);
    return TW_OK;
}

enum tw_status tw_run_check_tensors(const struct tw_run *run, struct tw_error *err) {
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    if (run->model.family != TW_FAMILY_TENSORS) {
        if (run->model.tensors[0] == '\0' && tw_id_is_zero(&run->model.base)) return TW_OK;
        return tw_fail(err, TW_CONFIG,
                       "model.%s needs model.family = tensors: models of other families have the "
                       "tensors of their kind",
                       run->model.tensors[0] != '\0' ? "tensors" : "base");
    }
    if (run->model.tensors[0] == '\0')
        return tw_fail(err, TW_CONFIG,
                       "model.family = tensors needs model.tensors, the names and shapes of the "
                       "parameters: `thinwire run new NAME --tensors FILE` writes them");
    for (uint32_t i = 0; i < count; i++) {
        if (!tw_run_is_for_engine(&keys[i], run) || tw_run_key_is_least(&keys[i], run)) continue;
        return tw_fail(err, TW_CONFIG,
                       "%s has no effect where model.family = tensors%s, because the trainer "
                       "brings its own %s: leave it out",
                       keys[i].name, is_of_data(&keys[i]) ? " and data.sha256 = any" : "",
                       is_of_data(&keys[i])                      ? "data"
                       : strncmp(keys[i].name, "train.", 6) == 0 ? "optimizer"
                                                                 : "model");
    }
    return TW_OK;
}

enum tw_status tw_run_check_engine(const struct tw_run *run, struct tw_error *err) {
    if (run->model.family != TW_FAMILY_TENSORS) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "model.family = tensors is for trainers of your own, because this engine "
                   "computes gpt2 and llama alone: start your trainer, which attaches to the "
                   "daemon's worker socket, or name it with worker_path");
}

bool tw_run_has_own_data(const struct tw_run *run) {
    return run->model.family == TW_FAMILY_TENSORS && tw_id_is_zero(&run->data.sha256);
}
