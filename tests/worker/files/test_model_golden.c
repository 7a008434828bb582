/* test_model_golden.c - models saved by transformers give the same logits in this engine, and are
 * unchanged after export and import. ARGS: the folder tests/golden/hf. */
#include <math.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/worker/files/load_weights.h"
#include "tests/worker/files/model_folder.h"
#include "worker/engine/engine.h"
#include "worker/files/hf_write.h"
#include "worker/files/model_source.h"

enum { EVERY = 16 }; /* one logit in EVERY is stored */

static const char *golden;
static struct tw_run run;
static struct tw_layout layout;
static struct tw_error err;

/* Opens a model and makes its manifest and layout. */
static void open_model(struct tw_model_source *source, const char *path) {
    if (tw_model_source_open(source, path, &err) != TW_OK ||
        tw_engine_manifest_make(source, "golden", 0, &run, NULL, &err) != TW_OK ||
        tw_layout_init(&layout, &run, &err) != TW_OK ||
        tw_model_source_bind(source, &layout, "live", &err) != TW_OK) {
        fail_msg("%s: %s", path, err.message);
    }
}

static double worst_logit(const char *path, const char *model) {
    static uint8_t bytes[FOLDER_FILE_BYTES];
    static float wanted[4096], logits[16384];
    static uint32_t tokens[64];
    char file[FOLDER_PATH_BYTES], from[FOLDER_PATH_BYTES];
    folder_path(from, golden, model);
    folder_path(file, from, "tokens.bin");
    const size_t count = file_read(file, bytes) / sizeof(tokens[0]);
    assert_in_range(count, 1, 64);
    memcpy(tokens, bytes, count * sizeof(tokens[0]));
    folder_path(file, from, "logits.bin");
    const size_t stored = run.model.vocab / EVERY;
    assert_int_equal(file_read(file, bytes), count * stored * sizeof(float));
    memcpy(wanted, bytes, count * stored * sizeof(float));

    const struct tw_engine_config config = {.run = &run,
                                            .layout = &layout,
                                            .is_inference = true,
                                            .compute = {.compute = TW_COMPUTE_FP32, .threads = 1}};
    struct tw_engine *engine = NULL;
    assert_int_equal(tw_engine_create(&engine, &config, &err), TW_OK);
    if (load_weights(path, &layout, "live", engine->theta, &err) != TW_OK ||
        tw_engine_logits_all(engine, engine->theta, tokens, (uint32_t)count, logits, &err) !=
            TW_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    double worst = 0;
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < stored; i++) {
            const double was = (double)wanted[t * stored + i];
            worst = fmax(worst, fabs((double)logits[t * run.model.vocab + i * EVERY] - was));
        }
    }
    tw_engine_destroy(engine);
    return worst;
}

TEST(logits_are_those_of_transformers) {
    for (unsigned i = 0; GOLDEN_MODELS[i] != NULL; i++) {
        struct tw_model_source source;
        char path[FOLDER_PATH_BYTES];
        folder_path(path, golden, GOLDEN_MODELS[i]);
        open_model(&source, path);
        tw_model_source_close(&source);
        const double worst = worst_logit(path, GOLDEN_MODELS[i]);
        print_message("%s: logits within %.1e\n", GOLDEN_MODELS[i], worst);
        assert_true(worst <= 1e-4); /* the documented bound is 1e-3 */
    }
}

/* Every tensor of `a` is in `b` with the same type and bits. */
static void same_tensors(const struct tw_model_source *a, const struct tw_model_source *b) {
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        static float left[4096], right[4096];
        const uint64_t count = (uint64_t)layout.tensors[i].rows * layout.tensors[i].cols;
        assert_in_range(count, 1, 4096);
        assert_int_equal(tw_model_source_dtype(a, i), tw_model_source_dtype(b, i));
        assert_int_equal(tw_model_source_read(a, i, 0, count, left, &err), TW_OK);
        assert_int_equal(tw_model_source_read(b, i, 0, count, right, &err), TW_OK);
        assert_memory_equal(left, right, count * sizeof(float));
    }
}

/* Bits and logits stay the same: transformers -> our file -> our folder -> our file. */
TEST(a_model_is_unchanged_once_around) {
    for (unsigned i = 0; GOLDEN_MODELS[i] != NULL; i++) {
        char path[FOLDER_PATH_BYTES], folder[FOLDER_PATH_BYTES], file[FOLDER_PATH_BYTES],
            out[FOLDER_PATH_BYTES];
        struct tw_model_source source, back;
        folder_make(folder);
        folder_path(path, golden, GOLDEN_MODELS[i]);
        folder_path(file, folder, "a.safetensors");
        folder_path(out, folder, "out");
        open_model(&source, path);
        struct tw_model_feed feed = {.run = &run, .layout = &layout, .source = &source};
        const enum tw_dtype dtype = tw_model_source_dtype(&source, 0);
        assert_int_equal(tw_hf_write_file(file, &feed, (enum tw_dtype)TW_FEED_KEEP, NULL, &err),
                         TW_OK);
        assert_int_equal(tw_engine_source_open(&back, file, &run, &layout, "live", &err), TW_OK);
        same_tensors(&source, &back);

        struct tw_hf_folder result = {.dtype = dtype, .shard_bytes = 4000};
        feed.source = &back;
        assert_int_equal(tw_hf_write_folder(out, &feed, &result, &err), TW_OK);
        assert_true(result.files_count > 1);
        tw_model_source_close(&back);
        open_model(&back, out);
        same_tensors(&source, &back);
        tw_model_source_close(&back);
        tw_model_source_close(&source);
        assert_true(worst_logit(out, GOLDEN_MODELS[i]) <= 1e-4);
        folder_remove(folder);
    }
}

int main(int argc, char **argv) {
    golden = argc > 1 ? argv[1] : "tests/golden/hf";
    return test_run(NULL, NULL);
}
