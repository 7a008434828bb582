/* thinwire-engine - the verbs of `thinwire` that need a model but no daemon. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/nearest.h"
#include "worker/engine_verb.h"

enum tw_exit engine_fail(const struct tw_error *err) {
    (void)fprintf(stderr, "thinwire: %s\n", err->message);
    if (err->status == TW_DATA) return TW_EXIT_DATA;
    if (err->status == TW_CORRUPT) return TW_EXIT_CORRUPT;
    return err->status == TW_CONFIG ? TW_EXIT_USAGE : TW_EXIT_FAILURE;
}

double engine_now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- command line --------------------------------------------------------------------------- */

enum type { TEXT, U32, U64, REAL };

static const struct {
    const char *name;
    enum type type;
    size_t offset;
    double max;
} OPTIONS[] = {
#define AT(member) offsetof(struct engine_options, member)
    {"--run", TEXT, AT(run), 0},
    {"--data", TEXT, AT(data), 0},
    {"--out", TEXT, AT(out), 0},
    {"--from", TEXT, AT(from), 0},
    {"--prompt", TEXT, AT(prompt), 0},
    {"--part", TEXT, AT(part), 0},
    {"--tokens", U64, AT(tokens), 1e7},
    {"--steps", U64, AT(steps), 1e12},
    {"--seed", U64, AT(seed), 1e18},
    {"--windows", U64, AT(windows), 1e12},
    {"--eval-steps", U64, AT(eval_steps), 1e12},
    {"--threads", U32, AT(threads), 4096},
    {"--top-k", U32, AT(top_k), 1e6},
    {"--temperature", REAL, AT(temperature), 100},
};
enum { OPTIONS_COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };

static enum tw_status set(struct engine_options *options, unsigned i, const char *text,
                          struct tw_error *err) {
    void *const field = (char *)options + OPTIONS[i].offset;
    if (OPTIONS[i].type == TEXT) {
        memcpy(field, &text, sizeof(text));
        return TW_OK;
    }
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    const bool is_good =
        end != text && *end == 0 && errno == 0 && value >= 0 && value <= OPTIONS[i].max;
    const uint64_t whole = is_good ? (uint64_t)value : 0;
    if (!is_good || (OPTIONS[i].type != REAL && (double)whole != value)) {
        return tw_fail(err, TW_CONFIG, "%s %s: a %s from 0 to %.15g", OPTIONS[i].name, text,
                       OPTIONS[i].type == REAL ? "number" : "whole number", OPTIONS[i].max);
    }
    const uint32_t narrow = (uint32_t)whole;
    if (OPTIONS[i].type == REAL) memcpy(field, &value, sizeof(value));
    if (OPTIONS[i].type == U64) memcpy(field, &whole, sizeof(whole));
    if (OPTIONS[i].type == U32) memcpy(field, &narrow, sizeof(narrow));
    return TW_OK;
}

static enum tw_status unknown(const char *argument, struct tw_error *err) {
    const char *names[OPTIONS_COUNT];
    for (unsigned i = 0; i < OPTIONS_COUNT; i++) names[i] = OPTIONS[i].name;
    const char *const near = tw_nearest(argument, names, OPTIONS_COUNT);
    if (near != NULL) {
        return tw_fail(err, TW_CONFIG, "`%s` is unknown; did you mean %s?", argument, near);
    }
    return tw_fail(err, TW_CONFIG, "`%s` is unknown; see `thinwire help`", argument);
}

static enum tw_status parse(struct engine_options *options, int argc, char **argv,
                            struct tw_error *err) {
    for (int i = 2; i < argc; i++) {
        const size_t size = strcspn(argv[i], "=");
        unsigned found = OPTIONS_COUNT;
        if (strcmp(argv[i], "--json") == 0) {
            options->json = true;
            continue;
        }
        for (unsigned k = 0; k < OPTIONS_COUNT; k++) {
            const bool is_same =
                strlen(OPTIONS[k].name) == size && strncmp(OPTIONS[k].name, argv[i], size) == 0;
            if (is_same) found = k;
        }
        if (found < OPTIONS_COUNT && argv[i][size] == '=') {
            TW_TRY(set(options, found, argv[i] + size + 1, err));
        } else if (found < OPTIONS_COUNT && i + 1 < argc) {
            TW_TRY(set(options, found, argv[++i], err));
        } else if (found < OPTIONS_COUNT) {
            return tw_fail(err, TW_CONFIG, "%s wants a value", argv[i]);
        } else if (argv[i][0] != '-' && options->file == NULL) {
            options->file = argv[i];
        } else {
            return unknown(argv[i], err);
        }
    }
    if (strcmp(options->part, "live") != 0 && strcmp(options->part, "anchor") != 0) {
        return tw_fail(err, TW_CONFIG, "--part %s: it is live or anchor", options->part);
    }
    return TW_OK;
}

/* ---- what a verb works with ------------------------------------------------------------------ */

static enum tw_exit load_manifest(struct engine_bench *bench) {
    char text[TW_MANIFEST_BYTES_MAX + 1];
    const char *const path = bench->options->run;
    struct tw_error err;
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        (void)fprintf(stderr, "thinwire: %s: %s; `thinwire run new` writes a manifest\n", path,
                      strerror(errno));
        return TW_EXIT_MANIFEST;
    }
    const size_t size = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    if (size == sizeof(text)) {
        (void)tw_fail(&err, TW_CONFIG, "a manifest has at most %d KiB",
                      TW_MANIFEST_BYTES_MAX / 1024);
    } else if (tw_run_read(text, size, &bench->run, &err) == TW_OK &&
               tw_layout_init(&bench->layout, &bench->run, &err) == TW_OK) {
        return TW_EXIT_OK;
    }
    (void)fprintf(stderr, "thinwire: %s: %s\n", path, err.message);
    return TW_EXIT_MANIFEST;
}

static enum tw_exit open_data(struct engine_bench *bench) {
    struct tw_error err;
    if (tw_data_open(&bench->data, bench->options->data, &bench->run, &err) != TW_OK) {
        return engine_fail(&err);
    }
    const struct tw_id digest = tw_sha256(bench->data.text, bench->data.bytes);
    if (tw_id_is_zero(&bench->run.data.sha256) || tw_id_equal(&digest, &bench->run.data.sha256)) {
        return TW_EXIT_OK;
    }
    (void)tw_fail(&err, TW_DATA, "%s is not the text the manifest names (its SHA-256 differs)",
                  bench->options->data);
    return engine_fail(&err);
}

static const struct {
    const char *name;
    enum tw_exit (*run)(struct engine_bench *bench);
    bool wants_file, wants_data;
    const char *usage;
} VERBS[] = {
    {"generate", engine_generate, true, false, "FILE --run MANIFEST [--prompt TEXT]"},
    {"eval", engine_eval, true, true, "FILE --run MANIFEST --data TEXT"},
    {"train", engine_train, false, true, "--run MANIFEST --data TEXT [--steps N] [--out FILE]"},
};
enum { VERBS_COUNT = sizeof(VERBS) / sizeof(VERBS[0]) };

static enum tw_exit work(unsigned verb, const struct engine_options *options) {
    static struct engine_bench bench;
    struct tw_error err;
    bench.options = options;
    enum tw_exit rc = load_manifest(&bench);
    if (rc == TW_EXIT_OK && VERBS[verb].wants_data) rc = open_data(&bench);
    if (rc == TW_EXIT_OK) {
        const struct tw_engine_config config = {
            .run = &bench.run, .layout = &bench.layout, .compute = {.threads = options->threads}};
        if (tw_engine_create(&bench.engine, &config, &err) != TW_OK) rc = engine_fail(&err);
    }
    if (rc == TW_EXIT_OK) rc = VERBS[verb].run(&bench);
    tw_engine_destroy(bench.engine);
    if (bench.data.text != NULL) tw_data_close(&bench.data);
    if (fflush(stdout) != 0 && rc == TW_EXIT_OK) {
        (void)fprintf(stderr, "thinwire: standard output: %s\n", strerror(errno));
        rc = TW_EXIT_FAILURE;
    }
    return rc;
}

int main(int argc, char **argv) {
    struct engine_options options = {.prompt = "",
                                     .part = "live",
                                     .tokens = 400,
                                     .seed = 1,
                                     .temperature = 0.8,
                                     .top_k = 40,
                                     .eval_steps = 200};
    struct tw_error err;
    if (argc > 1 && (strcmp(argv[1], "import") == 0 || strcmp(argv[1], "export") == 0)) {
        return (int)engine_convert(argc, argv);
    }
    for (unsigned i = 0; argc > 1 && i < VERBS_COUNT; i++) {
        if (strcmp(argv[1], VERBS[i].name) != 0) continue;
        if (parse(&options, argc, argv, &err) != TW_OK) return (int)engine_fail(&err);
        const bool lacks_file = VERBS[i].wants_file != (options.file != NULL);
        if (lacks_file || options.run == NULL || (VERBS[i].wants_data && options.data == NULL)) {
            (void)fprintf(stderr,
                          "thinwire: usage: thinwire %s %s; `thinwire help %s` tells more\n",
                          VERBS[i].name, VERBS[i].usage, VERBS[i].name);
            return TW_EXIT_USAGE;
        }
        return (int)work(i, &options);
    }
    (void)fprintf(stderr,
                  "thinwire-engine does generate, eval, train, import and export for `thinwire`\n");
    return TW_EXIT_USAGE;
}
