/* thinwire-engine merge: averages the parameters of several models of the same shape.
 *
 * It has two uses: runs that do not merge while training (Branch-Train-Merge, arXiv 2208.03306),
 * and measuring the worth of each part of the data. The mean of models that were trained on parts
 * of the data behaves like a model trained on all parts (arXiv 2410.15661). The mean without one
 * model thus shows the contribution of the part on which that model was trained. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "kernels/merge.h"
#include "proto/run/run_key.h"
#include "worker/cli/engine_verb.h"
#include "worker/files/model_source.h"
#include "worker/files/train_file.h"
#include "worker/learn/learner_engine.h"
#include "worker/support/out_file.h"
#include "worker/support/utf8.h"

struct merge {
    struct engine_bench *bench;
    uint32_t count;
    const char *const *files;
    double weights[ENGINE_FILES_MAX]; /* weights of the models, with sum 1; 0: left out */
    double losses[ENGINE_FILES_MAX];  /* loss of each model in nats per held-out token; NaN: not
                                         measured */
    double without[ENGINE_FILES_MAX]; /* loss of the mean of all models but this one */
    double merged;
    bool is_one_run; /* all models are of one run, whose manifest the output file then contains */
    float *sum;      /* (layout.elements) */
    float *own;      /* (layout.elements): one model's parameters; NULL if the engine holds them */
};

/* ---- arithmetic ------------------------------------------------------------------------------ */

static enum tw_status load(struct merge *merge, uint32_t i, struct tw_error *err) {
    struct tw_error inner;
    const enum tw_status status =
        merge->own != NULL ? engine_read(merge->bench, merge->files[i], merge->own, &inner)
                           : engine_load(merge->bench, merge->files[i], &inner);
    if (status == TW_OK) return TW_OK;
    /* Most messages already name the file; the others get its name as a prefix. */
    if (strstr(inner.message, merge->files[i]) != NULL)
        return tw_fail(err, status, "%s", inner.message);
    return tw_fail(err, status, "%.80s: %.160s", merge->files[i], inner.message);
}

/* merge->sum := sum over i of weights[i] * (parameters of model i), added in the given order. */
static enum tw_status blend(struct merge *merge, const double *weights, struct tw_error *err) {
    const size_t elements = (size_t)merge->bench->layout.elements;
    memset(merge->sum, 0, elements * sizeof(float));
    for (uint32_t i = 0; i < merge->count; i++) {
        if (weights[i] == 0) continue;
        TW_TRY(load(merge, i, err));
        const float *const params = merge->own != NULL ? merge->own : merge->bench->engine->theta;
        tw_merge_add(merge->sum, params, (float)weights[i], elements);
    }
    return TW_OK;
}

static enum tw_status measure(struct merge *merge, const float *params, const char *what,
                              double *loss, struct tw_error *err) {
    struct tw_eval eval;
    TW_TRY(engine_measure(merge->bench, params, what, &eval, err));
    *loss = eval.nats;
    if (isfinite(*loss)) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "%s: the loss of this model is not finite", what);
}

static enum tw_status measure_all(struct merge *merge, struct tw_error *err) {
    for (uint32_t i = 0; i < merge->count; i++) {
        TW_TRY(load(merge, i, err));
        TW_TRY(
            measure(merge, merge->bench->engine->theta, merge->files[i], &merge->losses[i], err));
    }
    return TW_OK;
}

static void normalise(double *weights, uint32_t count) {
    double total = 0;
    for (uint32_t i = 0; i < count; i++) total += weights[i];
    for (uint32_t i = 0; i < count; i++) weights[i] /= total;
}

/* ---- weights --------------------------------------------------------------------------------- */

static enum tw_status weigh_list(struct merge *merge, const char *text, struct tw_error *err) {
    double total = 0;
    const char *at = text;
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < merge->count; i++) {
        const char *const want = i + 1 < merge->count ? "," : "";
        char *end;
        merge->weights[i] = strtod(at, &end);
        is_good =
            end != at && *end == want[0] && merge->weights[i] >= 0 && merge->weights[i] <= 1e6;
        total += merge->weights[i];
        at = end + 1;
    }
    if (is_good && total > 0) {
        normalise(merge->weights, merge->count);
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG,
                   "--weights %.60s: equal, loss, greedy, or one number for each of the %u files, "
                   "such as 2,1,1",
                   text, merge->count);
}

/* Sets weights proportional to exp(-loss / temperature): a model that is better by `temperature`
 * nats counts e times as much. */
static void weigh_by_loss(struct merge *merge, double temperature) {
    double best = INFINITY;
    for (uint32_t i = 0; i < merge->count; i++) best = fmin(best, merge->losses[i]);
    for (uint32_t i = 0; i < merge->count; i++) {
        merge->weights[i] = exp((best - merge->losses[i]) / temperature);
    }
    normalise(merge->weights, merge->count);
}

/* Greedy soup (arXiv 2203.05482): tries models from the best to the worst, and keeps each one that
 * does not increase the loss of the mean. */
static enum tw_status weigh_greedily(struct merge *merge, struct tw_error *err) {
    bool tried[ENGINE_FILES_MAX] = {false}, is_in[ENGINE_FILES_MAX] = {false};
    double best = INFINITY;
    for (uint32_t round = 0; round < merge->count; round++) {
        double weights[ENGINE_FILES_MAX] = {0}, loss = 0;
        uint32_t next = merge->count;
        for (uint32_t i = 0; i < merge->count; i++) {
            const bool is_better = next == merge->count || merge->losses[i] < merge->losses[next];
            if (!tried[i] && is_better) next = i;
        }
        tried[next] = true;
        for (uint32_t i = 0; i < merge->count; i++) weights[i] = is_in[i] || i == next ? 1 : 0;
        normalise(weights, merge->count);
        TW_TRY(blend(merge, weights, err));
        TW_TRY(measure(merge, merge->sum, "the mean", &loss, err));
        if (loss > best) continue;
        best = loss;
        is_in[next] = true;
        memcpy(merge->weights, weights, sizeof(weights));
    }
    return TW_OK;
}

static enum tw_status weigh(struct merge *merge, struct tw_error *err) {
    const struct engine_options *const options = merge->bench->options;
    const char *const how = options->weights;
    for (uint32_t i = 0; i < merge->count; i++) merge->weights[i] = 1.0 / merge->count;
    if (strcmp(how, "equal") == 0) return TW_OK;
    const bool is_greedy = strcmp(how, "greedy") == 0;
    if (!is_greedy && strcmp(how, "loss") != 0) return weigh_list(merge, how, err);
    if (is_greedy) return weigh_greedily(merge, err);
    weigh_by_loss(merge, options->merge_temperature);
    return TW_OK;
}

static enum tw_status ablate(struct merge *merge, struct tw_error *err) {
    for (uint32_t i = 0; i < merge->count; i++) {
        double weights[ENGINE_FILES_MAX];
        memcpy(weights, merge->weights, sizeof(weights));
        weights[i] = 0;
        normalise(weights, merge->count);
        /* model i had all the weight: there is no mean without it */
        if (!isfinite(weights[0])) continue;
        TW_TRY(blend(merge, weights, err));
        TW_TRY(measure(merge, merge->sum, "the mean without one", &merge->without[i], err));
    }
    return TW_OK;
}

/* ---- output ------------------------------------------------------------------------------------
 */

static void print_number(const char *name, double value) {
    if (isfinite(value)) (void)printf(", \"%s\": %.6f", name, value);
}

/* Whether the weights were chosen on the held-out text on which the reported loss is measured. */
static bool is_chosen(const struct merge *merge) {
    const char *const how = merge->bench->options->weights;
    return strcmp(how, "loss") == 0 || strcmp(how, "greedy") == 0;
}

static void print_json(const struct merge *merge) {
    (void)printf("{\"models\": [");
    for (uint32_t i = 0; i < merge->count; i++) {
        (void)printf("%s{\"file\": ", i > 0 ? ", " : "");
        tw_json_string_print(stdout, merge->files[i]);
        (void)printf(", \"weight\": %.6f", merge->weights[i]);
        print_number("validation_nats", merge->losses[i]);
        print_number("validation_nats_without", merge->without[i]);
        (void)printf("}");
    }
    (void)printf("]");
    print_number("validation_nats", merge->merged);
    if (is_chosen(merge)) (void)printf(", \"chosen_on_validation\": true");
    if (merge->bench->options->out != NULL) {
        (void)printf(", \"out\": ");
        tw_json_string_print(stdout, merge->bench->options->out);
    }
    (void)printf("}\n");
}

static void print(const struct merge *merge) {
    const struct engine_options *const options = merge->bench->options;
    const bool has_loss = options->data != NULL;
    double best = INFINITY;
    (void)printf("  weight%s%s\n", has_loss ? "    loss" : "",
                 options->is_ablation ? "    loss of the mean without it" : "");
    for (uint32_t i = 0; i < merge->count; i++) {
        (void)printf("  %6.4f", merge->weights[i]);
        if (has_loss) (void)printf("  %6.4f", merge->losses[i]);
        if (isfinite(merge->without[i])) {
            (void)printf("    %6.4f (%+.4f)", merge->without[i], merge->without[i] - merge->merged);
        }
        (void)printf("   %s\n", merge->files[i]);
        best = fmin(best, merge->losses[i]);
    }
    if (has_loss) {
        (void)printf(
            "\nThe merge has a held-out loss of %.4f nats per token, %.4f %s than the best "
            "alone.\n",
            merge->merged, fabs(merge->merged - best), merge->merged <= best ? "better" : "worse");
    }
    if (is_chosen(merge)) {
        (void)printf("Its weights were chosen on this text, so it may be a little worse on other "
                     "text: measure that with `thinwire eval` and another --data.\n");
    }
    if (has_loss && merge->merged > best) {
        (void)printf(
            "Models that trained far apart average badly: `--weights greedy` includes only "
            "models that help.\n");
    }
    if (options->out != NULL) {
        (void)printf("%sWritten to %s%s.\n", has_loss ? "" : "\n", options->out,
                     merge->is_one_run ? ", with its manifest"
                                       : "; name the manifest with --run where you use it");
    }
}

/* ---- entry point -------------------------------------------------------------------------------
 */

static enum tw_status check_options(const struct merge *merge, struct tw_error *err) {
    const struct engine_options *const options = merge->bench->options;
    const bool wants_loss = is_chosen(merge) || options->is_ablation;
    if (merge->count < 2) {
        return tw_fail(err, TW_CONFIG, "merge makes one model of several: name at least two");
    }
    if (wants_loss && options->data == NULL) {
        return tw_fail(err, TW_CONFIG, "%s needs held-out text: name it with --data",
                       options->is_ablation ? "--ablate" : "--weights by the loss");
    }
    if (options->out == NULL && options->data == NULL) {
        return tw_fail(err, TW_CONFIG,
                       "give --out FILE to write the merged model, or --data TEXT to "
                       "measure it");
    }
    if (!(options->merge_temperature > 0)) {
        return tw_fail(err, TW_CONFIG, "--temperature must be above 0");
    }
    return options->out == NULL ? TW_OK : tw_out_is_free(options->out, err);
}

/* Sets merge->is_one_run if the runs of all files are known and equal to the run of the first. A
 * manifest named by --run counts for all files. */
static enum tw_status compare_runs(struct merge *merge, struct tw_error *err) {
    static struct tw_run run;
    static struct tw_layout layout;
    const struct engine_options *const options = merge->bench->options;
    merge->is_one_run = true;
    for (uint32_t i = 0; i < merge->count && merge->is_one_run; i++) {
        bool has_run = options->runs[i] != NULL;
        TW_TRY(has_run ? tw_engine_manifest_read(options->runs[i], &run, &layout, err)
                       : tw_train_file_run(merge->files[i], &has_run, &run, err));
        merge->is_one_run = has_run && tw_run_key_differing(&run, &merge->bench->run) == NULL;
    }
    return TW_OK;
}

static enum tw_status work(struct merge *merge, struct tw_error *err) {
    struct engine_bench *const bench = merge->bench;
    const struct engine_options *const options = bench->options;
    TW_TRY(check_options(merge, err));
    const bool is_list = bench->run.model.family == TW_FAMILY_TENSORS;
    if (!is_list) TW_TRY(engine_open(bench, ENGINE_MERGE, err));
    merge->sum = calloc((size_t)bench->layout.elements, sizeof(float));
    if (is_list) merge->own = calloc((size_t)bench->layout.elements, sizeof(float));
    if (merge->sum == NULL || (is_list && merge->own == NULL)) {
        return tw_fail(err, TW_NOMEM, "no memory for one more model: %llu bytes wanted",
                       (unsigned long long)bench->layout.elements * sizeof(float));
    }
    if (options->data != NULL) TW_TRY(measure_all(merge, err));
    TW_TRY(weigh(merge, err));
    if (options->is_ablation) TW_TRY(ablate(merge, err)); /* done before the output is written */
    TW_TRY(blend(merge, merge->weights, err));
    if (options->data != NULL) TW_TRY(measure(merge, merge->sum, "the merge", &merge->merged, err));
    if (options->out != NULL) {
        TW_TRY(compare_runs(merge, err));
        TW_TRY(tw_weights_save(options->out, &bench->layout, merge->is_one_run ? &bench->run : NULL,
                               merge->sum, err));
    }
    return TW_OK;
}

enum tw_exit engine_merge(struct engine_bench *bench) {
    static struct merge merge;
    struct tw_error err;
    merge.bench = bench;
    merge.files = bench->options->files;
    merge.count = bench->options->files_count;
    merge.merged = NAN;
    for (uint32_t i = 0; i < ENGINE_FILES_MAX; i++) merge.losses[i] = merge.without[i] = NAN;
    const enum tw_status status = work(&merge, &err);
    free(merge.sum);
    free(merge.own);
    if (status != TW_OK) return engine_fail(&err);
    if (bench->options->json) {
        print_json(&merge);
    } else {
        print(&merge);
    }
    return TW_EXIT_OK;
}
