/* thinwire-engine: the commands of `thinwire` that need a model but no daemon. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/page.h"
#include "worker/cli/engine_verb.h"
#include "worker/files/model_source.h"
#include "worker/files/tensor_file.h"
#include "worker/files/train_file.h"

/* ---- inputs of a command ------------------------------------------------------------------- */

/* Reads the manifest named by --run, which must be valid. Without --run, the manifest comes from
 * the model's file or folder. */
static enum tw_exit open_run(struct engine_bench *bench) {
    const struct engine_options *const options = bench->options;
    const char *const model = options->file != NULL ? options->file : options->from;
    struct tw_error err;
    enum tw_status status;
    bool is_trained = false;
    if (options->run == NULL && tw_train_file_run(model, &is_trained, &bench->run, &err) != TW_OK) {
        return engine_fail(&err);
    }
    if (options->run != NULL) {
        status = tw_engine_manifest_read(options->run, &bench->run, &bench->layout, &err);
    } else if (is_trained) {
        status = tw_layout_init(&bench->layout, &bench->run, &err);
    } else {
        struct tw_model_source source;
        status = tw_model_source_open(&source, model, &err);
        if (status != TW_OK) return engine_fail(&err);
        status = tw_engine_manifest_make(&source, tw_tensor_file_base(model), 0, &bench->run, NULL,
                                         &err);
        if (status == TW_OK) status = tw_layout_init(&bench->layout, &bench->run, &err);
        tw_model_source_close(&source);
        if (status != TW_OK) {
            tw_page_say("%s; or name its manifest with --run", err.message);
            return TW_EXIT_MANIFEST;
        }
    }
    if (status == TW_OK) return TW_EXIT_OK;
    tw_page_say("%s%s", err.message,
                status == TW_IO ? "; `thinwire run new` writes a manifest" : "");
    return TW_EXIT_MANIFEST;
}

static enum tw_status take_states(struct engine_options *options, struct tw_error *err) {
    static struct tw_state_found found[ENGINE_FILES_MAX];
    for (uint32_t i = 0; i < options->files_count; i++) {
        options->runs[i] = options->run;
        TW_TRY(engine_take_state(&options->files[i], &options->runs[i], options->part, &found[i],
                                 err));
    }
    if (options->files_count > 0) {
        options->run = options->runs[0];
        options->file = options->files[0];
        return TW_OK;
    }
    TW_TRY(engine_take_state(&options->file, &options->run, options->part, &found[0], err));
    return engine_take_state(&options->from, &options->run, options->part, &found[1], err);
}

static enum tw_exit open_data(struct engine_bench *bench) {
    struct tw_error err;
    const struct engine_options *const options = bench->options;
    enum tw_status status = options->is_whole
                                ? tw_data_open_whole(&bench->data, options->data, &bench->run, &err)
                                : tw_data_open(&bench->data, options->data, &bench->run, &err);
    if (status == TW_OK) status = engine_check_tokenizer(bench->options, &err);
    return status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
}

/* ---- commands ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    enum engine_verb verb;
    enum tw_exit (*run)(struct engine_bench *bench);
    bool wants_file, wants_data, wants_model;
    const char *usage;
} VERBS[] = {
    {"train", ENGINE_TRAIN, engine_train, false, true, true,
     "--run MANIFEST --data TEXT [--out FILE]"},
    {"eval", ENGINE_EVAL, engine_eval, true, true, true, "FILE --data TEXT [--run MANIFEST]"},
    {"generate", ENGINE_GENERATE, engine_generate, true, false, true,
     "FILE [--run MANIFEST] [--prompt TEXT]"},
    {"merge", ENGINE_MERGE, engine_merge, true, false, true,
     "FILE FILE ... [--out FILE] [--data TEXT] [--run MANIFEST] [--weights HOW]"},
    {"models", ENGINE_MODELS, engine_models, false, false, false, "[--json]"},
    {"speed", ENGINE_SPEED, engine_speed, false, false, true, "--run MANIFEST"},
    {"info", ENGINE_INFO, engine_devices, false, false, false, "[--device DEVICE] [--json]"},
};
enum { VERBS_COUNT = sizeof(VERBS) / sizeof(VERBS[0]) };

/* Refuses commands that compute a run of the family `tensors` (any model). Such models can only be
 * averaged, and their memory planned. */
static enum tw_exit check_engine(const struct engine_bench *bench, enum engine_verb verb) {
    if (bench->run.model.family != TW_FAMILY_TENSORS) return TW_EXIT_OK;
    if (verb == ENGINE_MERGE && bench->options->data == NULL) return TW_EXIT_OK;
    if (verb == ENGINE_SPEED && bench->options->is_plan) return TW_EXIT_OK;
    tw_page_say("only the trainer of this run knows its model (model.family = "
                "tensors): take its weights with `thinwire export`");
    return TW_EXIT_MANIFEST;
}

static enum tw_exit work(unsigned verb, const struct engine_options *options) {
    static struct engine_bench bench;
    bench.options = options;
    bench.compute = options->compute;
    enum tw_exit rc = VERBS[verb].wants_model ? open_run(&bench) : TW_EXIT_OK;
    if (rc == TW_EXIT_OK) rc = check_engine(&bench, VERBS[verb].verb);
    if (rc == TW_EXIT_OK && options->data != NULL) rc = open_data(&bench);
    if (rc == TW_EXIT_OK) rc = VERBS[verb].run(&bench);
    tw_engine_destroy(bench.engine);
    tw_data_close(&bench.data);
    return rc;
}

static bool is_complete(unsigned verb, const struct engine_options *options) {
    const bool has_model = options->run != NULL || options->file != NULL || options->from != NULL;
    return VERBS[verb].wants_file == (options->file != NULL) &&
           (!VERBS[verb].wants_model || has_model) &&
           (!VERBS[verb].wants_data || options->data != NULL);
}

static enum tw_exit run_verb(int argc, char **argv) {
    struct engine_options options = {.prompt = "",
                                     .part = "live",
                                     .tokens = 400,
                                     .seed = 1,
                                     .samples = 1,
                                     .temperature = 0.8,
                                     .top_k = 40,
                                     .top_p = 1,
                                     .repeat_penalty = 1,
                                     .weights = "equal",
                                     .merge_temperature = 0.1,
                                     .eval_steps = 200};
    struct tw_error err;
    if (argc > 1 && (strcmp(argv[1], "import") == 0 || strcmp(argv[1], "export") == 0)) {
        return engine_convert(argc, argv);
    }
    if (argc > 1 && strcmp(argv[1], "data") == 0) return engine_data(argc, argv);
    if (argc > 1 && strcmp(argv[1], "verify") == 0) return engine_verify(argc, argv);
    for (unsigned i = 0; argc > 1 && i < VERBS_COUNT; i++) {
        if (strcmp(argv[1], VERBS[i].name) != 0) continue;
        if (tw_engine_options_parse(&options, VERBS[i].verb, argc, argv, &err) != TW_OK) {
            return engine_fail(&err);
        }
        if (!is_complete(i, &options)) {
            tw_page_say("usage: thinwire %s %s; `thinwire help %s` tells more%s", VERBS[i].name,
                        VERBS[i].usage, VERBS[i].name,
                        VERBS[i].verb == ENGINE_EVAL || VERBS[i].verb == ENGINE_GENERATE
                            ? ". --config NAME takes the model of a node here"
                            : "");
            return TW_EXIT_USAGE;
        }
        if (take_states(&options, &err) != TW_OK) return engine_fail(&err);
        return work(i, &options);
    }
    (void)fprintf(stderr,
                  "thinwire-engine does train, eval, generate, models, merge, verify, import, "
                  "export, info and data for `thinwire`\n");
    return TW_EXIT_USAGE;
}

int main(int argc, char **argv) {
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit then fails with EFBIG, as
                                       in the daemon */
    const enum tw_exit rc = run_verb(argc, argv);
    if ((fflush(stdout) == 0 && ferror(stdout) == 0) || rc != TW_EXIT_OK) return (int)rc;
    tw_page_say("standard output: %s", strerror(errno));
    return TW_EXIT_FAILURE;
}
