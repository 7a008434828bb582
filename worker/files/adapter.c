#include "worker/files/adapter.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "worker/files/tensor_file.h"
#include "worker/support/hf_json.h"
#include "worker/support/out_file.h"

enum { PATH_BYTES = 1024, CONFIG_BYTES_MAX = 1024 * 1024, RANK_MAX = 4096, BLOCK_ELEMENTS = 1024 };

/* The factors of one tensor; all NULL: the adapter does not change it. */
struct factors {
    float *a, *b; /* (rank, inputs), (outputs, rank) */
    uint64_t rank, inputs, outputs;
    float scale;
};

struct tw_adapter {
    const struct tw_layout *layout;
    bool is_transposed; /* whether the config says that weights are (inputs, outputs) */
    bool is_root_scaled;
    double alpha;
    struct factors *factors; /* (layout->tensors_count) */
};

/* ---- adapter_config.json --------------------------------------------------------------------- */

static enum tw_status refuse(const char *key, const json_t *value, const char *supported,
                             struct tw_error *err) {
    char shown[TW_HF_SHOWN_BYTES];
    return tw_fail(err, TW_CONFIG,
                   "adapter_config.json: %s is %s; supported: %s. Else merge it by peft: "
                   "merge_and_unload() and save_pretrained()",
                   key, tw_hf_show(value, shown), supported);
}

/* Whether a value is one that changes nothing: missing, null, false, or empty. */
static bool is_nothing(const json_t *value) {
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static enum tw_status read_keys(struct tw_adapter *adapter, const json_t *root,
                                struct tw_error *err) {
    static const char *const NEVER[] = {"use_dora",
                                        "lora_bias",
                                        "modules_to_save",
                                        "rank_pattern",
                                        "alpha_pattern",
                                        "trainable_token_indices",
                                        "target_parameters",
                                        "layer_replication",
                                        "alora_invocation_tokens",
                                        NULL};
    const json_t *const alpha = json_object_get(root, "lora_alpha");
    if (strcmp(tw_hf_word(root, "peft_type"), "LORA") != 0)
        return refuse("peft_type", json_object_get(root, "peft_type"), "LORA", err);
    for (const char *const *key = NEVER; *key != NULL; key++) {
        const json_t *const value = json_object_get(root, *key);
        if (!is_nothing(value)) return refuse(*key, value, "adapters without it", err);
    }
    const json_t *const bias = json_object_get(root, "bias");
    if (!is_nothing(bias) && strcmp(tw_hf_word(root, "bias"), "none") != 0)
        return refuse("bias", bias, "none", err);
    if (!json_is_number(alpha) || !isfinite(json_number_value(alpha)))
        return refuse("lora_alpha", alpha, "a number", err);
    adapter->alpha = json_number_value(alpha);
    adapter->is_root_scaled = tw_hf_flag(root, "use_rslora", false);
    adapter->is_transposed = tw_hf_flag(root, "fan_in_fan_out", false);
    return TW_OK;
}

static enum tw_status read_config(struct tw_adapter *adapter, const char *path,
                                  struct tw_error *err) {
    char *json = NULL;
    size_t size = 0;
    json_t *root = NULL;
    TW_TRY(tw_in_read_whole(path, CONFIG_BYTES_MAX, &json, &size, err));
    enum tw_status status = tw_hf_json_parse(&root, json, size, CONFIG_BYTES_MAX, err);
    free(json);
    if (status != TW_OK) return status;
    status = read_keys(adapter, root, err);
    json_decref(root);
    return status;
}

/* ---- factors --------------------------------------------------------------------------------- */

/* Finds the layout's tensor whose factor has this name: base_model.model.STEM.lora_A.weight, where
 * STEM.weight is the name of the tensor, perhaps below "transformer." or without its "model.". */
static bool find_tensor(const struct tw_layout *layout, const char *name, const char *end,
                        uint32_t *i) {
    static const char BEGIN[] = "base_model.model.", BELOW[] = "transformer.";
    char ours[TW_SAFETENSORS_NAME_BYTES];
    const size_t size = strlen(name), tail = strlen(end);
    if (size <= tail || strcmp(name + size - tail, end) != 0) return false;
    if (strncmp(name, BEGIN, sizeof(BEGIN) - 1) != 0) return false;
    const char *stem = name + sizeof(BEGIN) - 1;
    if (strncmp(stem, BELOW, sizeof(BELOW) - 1) == 0) stem += sizeof(BELOW) - 1;
    const int stem_bytes = (int)(name + size - tail - stem);
    for (unsigned k = 0; k < 2 && stem_bytes > 0; k++) {
        const int n =
            snprintf(ours, sizeof(ours), "%s%.*s.weight", k == 0 ? "" : "model.", stem_bytes, stem);
        const struct tw_tensor *const tensor =
            n < (int)sizeof(ours) ? tw_layout_find(layout, ours) : NULL;
        if (tensor == NULL || tensor->shape.rank != 2) continue;
        *i = (uint32_t)(tensor - layout->tensors);
        return true;
    }
    return false;
}

static enum tw_status read_factor(const struct tw_tensor_file *file,
                                  const struct tw_safetensors_tensor *tensor, float **to,
                                  struct tw_error *err) {
    const uint64_t count = tensor->shape[0] * tensor->shape[1];
    *to = malloc(count * sizeof(**to) + 1);
    if (*to == NULL) return tw_fail(err, TW_NOMEM, "no memory for %s", tensor->name);
    return tw_tensor_file_read(file, tensor, 0, count, *to, err);
}

/* Reads one tensor of the file into the factors of its tensor, and its sides. */
static enum tw_status take_factor(struct tw_adapter *adapter, const struct tw_tensor_file *file,
                                  const struct tw_safetensors_tensor *tensor,
                                  struct tw_error *err) {
    uint32_t i = 0;
    const bool is_a = find_tensor(adapter->layout, tensor->name, ".lora_A.weight", &i);
    if (!is_a && !find_tensor(adapter->layout, tensor->name, ".lora_B.weight", &i)) {
        return tw_fail(err, TW_CONFIG, "%s holds %s, which this model has no place for", file->name,
                       tensor->name);
    }
    struct factors *const factors = &adapter->factors[i];
    if ((is_a ? factors->a : factors->b) != NULL) {
        return tw_fail(err, TW_CORRUPT, "%s holds two factors for %s", file->name,
                       adapter->layout->tensors[i].name);
    }
    if (tensor->rank != 2 || !tw_elements_can(tensor->dtype)) {
        return tw_fail(err, TW_CONFIG, "%s: %s is no matrix of F32, BF16 or F16", file->name,
                       tensor->name);
    }
    const uint64_t rank = tensor->shape[is_a ? 0 : 1], side = tensor->shape[is_a ? 1 : 0];
    if (rank == 0 || rank > RANK_MAX || (factors->rank != 0 && factors->rank != rank)) {
        return tw_fail(err, TW_CONFIG, "%s: the rank of %s is %llu", file->name, tensor->name,
                       (unsigned long long)rank);
    }
    factors->rank = rank;
    TW_TRY(read_factor(file, tensor, is_a ? &factors->a : &factors->b, err));
    if (is_a) factors->inputs = side;
    if (!is_a) factors->outputs = side;
    return TW_OK;
}

/* Checks that each changed tensor has both factors, and that they fit it. */
static enum tw_status check_factors(struct tw_adapter *adapter, struct tw_error *err) {
    bool is_any = false;
    for (uint32_t i = 0; i < adapter->layout->tensors_count; i++) {
        const struct tw_tensor *const tensor = &adapter->layout->tensors[i];
        struct factors *const factors = &adapter->factors[i];
        if (factors->rank == 0) continue;
        is_any = true;
        const uint64_t rows = adapter->is_transposed ? factors->inputs : factors->outputs;
        const uint64_t cols = adapter->is_transposed ? factors->outputs : factors->inputs;
        if (factors->a == NULL || factors->b == NULL || rows != tensor->rows ||
            cols != tensor->cols) {
            return tw_fail(err, TW_CONFIG,
                           "the adapter's factors make a change of %llu x %llu for %s, which is %u "
                           "x %u: it is of another model",
                           (unsigned long long)rows, (unsigned long long)cols, tensor->name,
                           tensor->rows, tensor->cols);
        }
        const double rank = (double)factors->rank;
        factors->scale = (float)(adapter->alpha / (adapter->is_root_scaled ? sqrt(rank) : rank));
    }
    if (is_any) return TW_OK;
    return tw_fail(err, TW_CONFIG, "adapter_model.safetensors holds no factors (lora_A, lora_B)");
}

static enum tw_status read_factors(struct tw_adapter *adapter, const char *path,
                                   struct tw_error *err) {
    struct tw_tensor_file file;
    enum tw_status status = TW_OK;
    TW_TRY(tw_tensor_file_open(&file, path, err));
    for (uint32_t k = 0; status == TW_OK && k < file.st.tensors_count; k++) {
        status = take_factor(adapter, &file, &file.st.tensors[k], err);
    }
    tw_tensor_file_close(&file);
    return status == TW_OK ? check_factors(adapter, err) : status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum tw_status fill(struct tw_adapter *adapter, const char *folder, struct tw_error *err) {
    char config[PATH_BYTES], weights[PATH_BYTES];
    const int a = snprintf(config, sizeof(config), "%s/adapter_config.json", folder);
    const int b = snprintf(weights, sizeof(weights), "%s/adapter_model.safetensors", folder);
    if (a >= PATH_BYTES || b >= PATH_BYTES) {
        return tw_fail(err, TW_CONFIG, "the path is too long: %.80s...", folder);
    }
    adapter->factors = calloc(adapter->layout->tensors_count, sizeof(*adapter->factors));
    if (adapter->factors == NULL) return tw_fail(err, TW_NOMEM, "no memory for an adapter");
    TW_TRY(read_config(adapter, config, err));
    return read_factors(adapter, weights, err);
}

enum tw_status tw_adapter_open(struct tw_adapter **adapter, const char *folder,
                               const struct tw_run *run, const struct tw_layout *layout,
                               struct tw_error *err) {
    struct tw_error why;
    *adapter = calloc(1, sizeof(**adapter));
    if (*adapter == NULL) return tw_fail(err, TW_NOMEM, "no memory for an adapter");
    (*adapter)->layout = layout;
    enum tw_status status = fill(*adapter, folder, &why);
    if (status == TW_OK && (*adapter)->is_transposed != (run->model.family == TW_FAMILY_GPT2)) {
        status = tw_fail(&why, TW_CONFIG,
                         "adapter_config.json: fan_in_fan_out is %s: it is of "
                         "another kind of model",
                         (*adapter)->is_transposed ? "true" : "false");
    }
    if (status == TW_OK) return TW_OK;
    tw_adapter_close(*adapter);
    *adapter = NULL;
    return tw_fail(err, status, "adapter %.60s: %.190s", folder, why.message);
}

void tw_adapter_close(struct tw_adapter *adapter) {
    if (adapter == NULL) return;
    for (uint32_t i = 0; adapter->factors != NULL && i < adapter->layout->tensors_count; i++) {
        free(adapter->factors[i].a);
        free(adapter->factors[i].b);
    }
    free(adapter->factors);
    free(adapter);
}

/* ---- the change ------------------------------------------------------------------------------ */

/* Adds the change of elements [col, col + count) of a row, count at most BLOCK_ELEMENTS. */
static void add_part(const struct factors *factors, bool is_transposed, uint64_t row, uint64_t col,
                     uint64_t count, float *values) {
    float sum[BLOCK_ELEMENTS] = {0};
    const uint64_t rank = factors->rank;
    for (uint64_t k = 0; k < rank; k++) {
        if (is_transposed) { /* row: an input, columns: outputs */
            const float a = factors->a[k * factors->inputs + row];
            for (uint64_t c = 0; c < count; c++) sum[c] += a * factors->b[(col + c) * rank + k];
        } else {
            const float b = factors->b[row * rank + k];
            const float *const a = factors->a + k * factors->inputs + col;
            for (uint64_t c = 0; c < count; c++) sum[c] += b * a[c];
        }
    }
    for (uint64_t c = 0; c < count; c++) values[c] += factors->scale * sum[c];
}

void tw_adapter_add(const struct tw_adapter *adapter, uint32_t i, uint64_t first, uint64_t count,
                    float *values) {
    const struct factors *const factors = &adapter->factors[i];
    const uint64_t cols = adapter->layout->tensors[i].cols;
    TW_ASSERT(i < adapter->layout->tensors_count);
    if (factors->rank == 0) return;
    for (uint64_t done = 0; done < count;) {
        const uint64_t row = (first + done) / cols, col = (first + done) % cols;
        uint64_t part = cols - col < count - done ? cols - col : count - done;
        if (part > BLOCK_ELEMENTS) part = BLOCK_ELEMENTS;
        add_part(factors, adapter->is_transposed, row, col, part, values + done);
        done += part;
    }
}
