/* test_gradients.c - losses and gradients match those of PyTorch and transformers, which
 * make_gradients.py stores in tests/golden/gradients.txt. Parameters and tokens follow the formulas
 * of that script. */
#include <math.h>

#include "tests/test.h"
#include "worker/engine/engine.h"

enum { BATCH = 3, CONTEXT = 12, VOCAB = 256, SAMPLES = 24, LINE_MAX = 4096, CASES = 7 };

static const char *path;
static struct tw_run run;
static struct tw_layout layout;
static struct tw_error err;
static uint32_t tokens[BATCH * (CONTEXT + 1)];

static uint32_t hash32(uint32_t tensor, uint32_t index) {
    uint32_t x = tensor * 1000003u + index * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

static bool is_norm_weight(const struct tw_tensor *tensor) {
    const size_t length = strlen(tensor->name);
    return tensor->shape.rank == 1 && strcmp(tensor->name + length - 7, ".weight") == 0;
}

static void fill(float *theta) {
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &layout.tensors[i];
        const double middle = is_norm_weight(tensor) ? 1.0 : 0.0;
        uint32_t number = 0;
        for (uint32_t j = 0; tensor->name[j] != '\0'; j++)
            number += (j + 1) * (uint32_t)(unsigned char)tensor->name[j];
        for (uint32_t j = 0; j < tensor->rows * tensor->cols; j++) {
            const double value = (hash32(number, j) >> 8) / 16777216.0 * 0.5 - 0.25;
            theta[tensor->offset + j] = (float)(middle + value);
        }
    }
}

/* Reads a line "case NAME key=value ..." into the run. Returns an engine after one step with a
 * learning rate of 0. */
static struct tw_engine *open_case(char *line, struct tw_step_result *result) {
    tw_run_defaults(&run);
    run.model.layers = 2;
    run.model.width = 24;
    run.model.context = CONTEXT;
    run.train.batch = BATCH;
    char *rest = line;
    (void)strtok_r(rest, " ", &rest);
    print_message("%s\n", strtok_r(rest, " ", &rest));
    for (char *word = strtok_r(rest, " ", &rest); word; word = strtok_r(rest, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (tw_run_set(&run, word, value, &err) != TW_OK) fail_msg("%s", err.message);
    }
    tw_run_apply_preset(&run, TW_PRESET_DILOCO);
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
    const struct tw_engine_config config = {
        .run = &run, .layout = &layout, .compute = {.compute = TW_COMPUTE_FP32, .threads = 1}};
    struct tw_engine *engine;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    fill(engine->theta);
    for (uint32_t b = 0; b < BATCH; b++) {
        for (uint32_t t = 0; t <= CONTEXT; t++) {
            const bool is_separator =
                run.data.documents == TW_DOCUMENTS_MASKED && (t * (b + 2) + 1) % 5 == 0;
            tokens[b * (CONTEXT + 1) + t] =
                is_separator ? run.data.separator : (b * 101 + t * t * 31 + t * 7 + 3) % VOCAB;
        }
    }
    assert_int_equal(tw_engine_step(engine, tokens, 0.0f, result, NULL), TW_OK);
    return engine;
}

/* Compares a tensor's gradient with a line "NAME norm sample ...". The tolerance is 1e-4 relative,
 * with a floor for samples that nearly cancel. */
static void check_tensor(const struct tw_engine *engine, char *line) {
    char *rest = line;
    const struct tw_tensor *tensor = tw_layout_find(&layout, strtok_r(rest, " ", &rest));
    assert_non_null(tensor);
    const uint32_t count = tensor->rows * tensor->cols;
    const float *gradient = engine->gradient + tensor->offset;
    const double norm = strtod(rest, &rest);
    double squares = 0.0;
    for (uint32_t i = 0; i < count; i++) squares += (double)gradient[i] * (double)gradient[i];
    if (fabs(sqrt(squares) - norm) > 1e-4 * norm)
        fail_msg("%s: norm %.9g, PyTorch has %.9g", tensor->name, sqrt(squares), norm);
    const double floor = 1e-5 * norm / sqrt(count);
    const uint32_t step = (count / SAMPLES > 1 ? count / SAMPLES : 1) | 1;
    uint32_t samples = 0;
    for (uint32_t i = 0; i < count && samples < SAMPLES; i += step, samples++) {
        char *end;
        const double want = strtod(rest, &end), got = (double)gradient[i];
        assert_true(end != rest);
        rest = end;
        if (fabs(got - want) > 1e-4 * fabs(want) + floor)
            fail_msg("%s[%u]: %.9g, PyTorch has %.9g", tensor->name, i, got, want);
    }
}

TEST(gradients_are_those_of_pytorch) {
    static char line[LINE_MAX];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    struct tw_engine *engine = NULL;
    struct tw_step_result result;
    unsigned cases = 0, tensors = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#') continue;
        if (strncmp(line, "case ", 5) == 0) {
            if (engine != NULL) assert_int_equal(tensors, layout.tensors_count);
            tw_engine_destroy(engine);
            engine = open_case(line, &result);
            cases++;
            tensors = 0;
        } else if (strncmp(line, "loss ", 5) == 0) {
            assert_true(fabs((double)result.loss - strtod(line + 5, NULL)) < 1e-5);
        } else {
            check_tensor(engine, line);
            tensors++;
        }
    }
    assert_int_equal(tensors, layout.tensors_count);
    assert_int_equal(cases, CASES);
    tw_engine_destroy(engine);
    (void)fclose(file);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        print_error("usage: %s tests/golden/gradients.txt\n", argv[0]);
        return 2;
    }
    path = argv[1];
    return test_run(NULL, NULL);
}
