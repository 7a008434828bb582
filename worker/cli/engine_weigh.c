/* thinwire-engine data weigh: changes the weights of a dataset's sources. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/nearest.h"
#include "worker/cli/engine_verb.h"
#include "worker/data/corpus.h"
#include "worker/support/out_file.h"
#include "worker/support/utf8.h"

enum { MILLION = 1000000 };

/* Parses "70%", "0.7" or "2" into millionths, or returns 0 if the text is invalid. Only the ratios
 * of shares matter. */
static uint64_t read_share(const char *text) {
    char *end;
    const double value = strtod(text, &end);
    const bool is_percent = strcmp(end, "%") == 0;
    if (end == text || (*end != 0 && !is_percent) || !(value > 0 && value <= 1e6)) return 0;
    return (uint64_t)(value * (is_percent ? MILLION / 100 : MILLION) + 0.5);
}

static enum tw_status set_share(const struct tw_dataset *dataset, const char *argument,
                                uint64_t *shares, struct tw_error *err) {
    const char *names[TW_DATASET_SOURCES_MAX];
    const size_t size = strcspn(argument, "=");
    for (uint32_t i = 0; i < dataset->sources_count; i++) {
        names[i] = dataset->sources[i].name;
        if (strlen(names[i]) != size || strncmp(names[i], argument, size) != 0) continue;
        shares[i] = argument[size] == '=' ? read_share(argument + size + 1) : 0;
        if (shares[i] > 0) return TW_OK;
        return tw_fail(err, TW_CONFIG, "%.60s: write NAME=SHARE, such as %s=70%%", argument,
                       names[i]);
    }
    char name[TW_DATASET_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%.*s", (int)size, argument);
    const char *const near = tw_nearest(name, names, dataset->sources_count);
    if (near != NULL) {
        return tw_fail(err, TW_CONFIG, "%.60s: there is no such source; did you mean %s?", argument,
                       near);
    }
    return tw_fail(err, TW_CONFIG, "%.60s: there is no such source; the first is %s", argument,
                   names[0]);
}

static enum tw_status share(struct tw_dataset *dataset, const uint64_t *weights,
                            struct tw_error *err) {
    const uint32_t count = dataset->sources_count;
    uint32_t shares[TW_DATASET_SOURCES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        if (weights[i] > 0) continue;
        return tw_fail(err, TW_CONFIG,
                       "%s has no share: give one to every source, or `size` alone to draw all "
                       "by their tokens",
                       dataset->sources[i].name);
    }
    const uint32_t small = tw_dataset_shares(weights, count, shares);
    if (small < count) {
        return tw_fail(err, TW_CONFIG, "%s: a share of less than 0.01%%",
                       dataset->sources[small].name);
    }
    for (uint32_t i = 0; i < count; i++) dataset->sources[i].weight_millionths = shares[i];
    return TW_OK;
}

static enum tw_status write_index(const char *folder, const struct tw_dataset *dataset,
                                  struct tw_id *digest, struct tw_error *err) {
    struct tw_out_file file;
    char *path = NULL;
    size_t size = 0;
    char *const text = malloc(TW_DATASET_BYTES_MAX);
    if (text == NULL) return tw_fail(err, TW_NOMEM, "no memory for the index of a dataset");
    enum tw_status status = tw_dataset_encode(dataset, text, TW_DATASET_BYTES_MAX, &size, err);
    if (status == TW_OK) status = tw_corpus_path(&path, folder, TW_DATASET_INDEX_FILE, err);
    if (status == TW_OK) status = tw_out_hold(&file, path, err);
    if (status == TW_OK) {
        status = tw_out_write(&file, text, size, err);
        if (status == TW_OK) status = tw_out_save(&file, err);
        tw_out_abort(&file);
    }
    *digest = tw_sha256(text, size);
    free(path);
    free(text);
    return status;
}

static enum tw_status weigh(struct tw_dataset *dataset, int argc, char **argv,
                            struct tw_error *err) {
    uint64_t shares[TW_DATASET_SOURCES_MAX] = {0};
    if (argc == 5 && strcmp(argv[4], "size") == 0) {
        for (uint32_t i = 0; i < dataset->sources_count; i++) {
            dataset->sources[i].weight_millionths = 0;
        }
        return TW_OK;
    }
    for (int i = 4; i < argc; i++) TW_TRY(set_share(dataset, argv[i], shares, err));
    return share(dataset, shares, err);
}

static void print_text(const struct tw_dataset *dataset, const char *folder, const char *hex,
                       bool has_changed) {
    for (uint32_t i = 0; i < dataset->sources_count; i++) {
        const uint32_t weight = dataset->sources[i].weight_millionths;
        (void)printf("  %-12s %s", dataset->sources[i].name, weight == 0 ? "by size" : "");
        (void)(weight == 0 ? printf("\n") : printf("%.6g\n", weight / 1e6));
    }
    (void)printf("  %-12s %s\n", "SHA-256", hex);
    (void)printf(has_changed
                     ? "The dataset has a new SHA-256: a run that names the old one refuses "
                       "it.\n`thinwire run new NAME --data %s` makes one that "
                       "does.\n"
                     : "%s has these weights already: nothing has changed.\n",
                 folder);
}

static void print_json(const struct tw_dataset *dataset, const char *hex, bool has_changed) {
    (void)printf("{\"sha256\": \"%s\", \"changed\": %s, \"weights\": {", hex,
                 has_changed ? "true" : "false");
    for (uint32_t i = 0; i < dataset->sources_count; i++) {
        const uint32_t weight = dataset->sources[i].weight_millionths;
        (void)printf("%s", i > 0 ? ", " : "");
        tw_json_string_print(stdout, dataset->sources[i].name);
        (void)(weight == 0 ? printf(": null") : printf(": %.6g", weight / 1e6));
    }
    (void)printf("}}\n");
}

/* Removes --json from the arguments. Returns true if it was there. */
static bool take_json(int *argc, char **argv) {
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--json") != 0) argv[kept++] = argv[i];
    }
    const bool is_json = kept < *argc;
    *argc = kept;
    return is_json;
}

enum tw_exit engine_weigh(int argc, char **argv) {
    static struct tw_dataset dataset;
    struct tw_error err;
    struct tw_id before, after;
    char hex[TW_ID_HEX_BYTES];
    const bool is_json = take_json(&argc, argv);
    if (argc < 5 || argv[3][0] == '-') {
        (void)fputs("thinwire: usage: thinwire data weigh DIR NAME=SHARE ... (or `size`); "
                    "`thinwire help data` tells more\n",
                    stderr);
        return TW_EXIT_USAGE;
    }
    enum tw_status status = tw_dataset_read(argv[3], &dataset, &before, &err);
    if (status == TW_OK) status = weigh(&dataset, argc, argv, &err);
    if (status == TW_OK) status = write_index(argv[3], &dataset, &after, &err);
    if (status == TW_OK) {
        const bool has_changed = !tw_id_equal(&before, &after);
        tw_id_hex(&after, hex);
        if (is_json)
            print_json(&dataset, hex, has_changed);
        else
            print_text(&dataset, argv[3], hex, has_changed);
    }
    free(dataset.shards);
    return status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
}
