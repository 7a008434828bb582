#include "daemon/cli/run/data_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "daemon/config/config.h"
#include "proto/dataset.h"

/* ---- a text ---------------------------------------------------------------------------------- */

static enum tw_status read_text(const char *path, struct cli_data *data, struct tw_error *err) {
    enum { BLOCK = 1 << 16 };
    static uint8_t block[BLOCK];
    struct tw_sha256_parts parts;
    FILE *const file = fopen(path, "re");
    if (file == NULL) return tw_fail(err, TW_DATA, "%.150s: %s", path, strerror(errno));
    tw_sha256_begin(&parts);
    data->bytes = 0;
    for (size_t size = BLOCK; size == BLOCK;) {
        size = fread(block, 1, BLOCK, file);
        if (data->bytes == 0) {
            data->head_bytes = size < sizeof(data->head) ? size : sizeof(data->head);
            memcpy(data->head, block, data->head_bytes);
        }
        tw_sha256_add(&parts, block, size);
        data->bytes += size;
    }
    const bool is_bad = ferror(file) != 0;
    (void)fclose(file);
    data->digest = tw_sha256_end(&parts);
    if (is_bad) return tw_fail(err, TW_DATA, "%.150s: cannot be read", path);
    return TW_OK;
}

/* ---- a dataset ------------------------------------------------------------------------------- */

/* Returns the length of the longest training or held-out shard, in tokens. If sources have weights,
 * windows are drawn from every source, so it returns the minimum over the sources of that length.
 */
static uint64_t longest_shard(const struct tw_dataset *dataset, bool is_heldout) {
    uint64_t all = 0, of_sources[TW_DATASET_SOURCES_MAX] = {0}, least = UINT64_MAX;
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        const struct tw_dataset_shard *const shard = &dataset->shards[i];
        uint64_t *const own = &of_sources[shard->source];
        if (shard->is_heldout != is_heldout) continue;
        if (shard->tokens_count > *own) *own = shard->tokens_count;
        if (shard->tokens_count > all) all = shard->tokens_count;
    }
    for (uint32_t i = 0; i < dataset->sources_count; i++) {
        if (of_sources[i] < least) least = of_sources[i];
    }
    return dataset->sources[0].weight_millionths > 0 && !is_heldout ? least : all;
}

/* Returns the number of shards whose files exist with the right size. The worker checks their
 * contents before use. */
static uint32_t count_here(const char *folder, const struct tw_dataset *about) {
    char path[TW_PATH_BYTES + TW_DATASET_FILE_BYTES], name[TW_DATASET_FILE_BYTES];
    uint32_t here = 0;
    for (uint32_t i = 0; i < about->shards_count; i++) {
        struct stat info;
        tw_dataset_file(about, &about->shards[i], name);
        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        here += stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
                (uint64_t)info.st_size == about->shards[i].file_bytes;
    }
    return here;
}

static enum tw_status decode_index(const char *folder, const char *path, const char *text,
                                   size_t size, struct cli_data *data, struct tw_error *err) {
    struct tw_error why;
    const uint32_t room = tw_dataset_lines(text, size);
    struct tw_dataset_shard *const shards = calloc((size_t)room + 1, sizeof(*shards));
    if (shards == NULL) return tw_fail(err, TW_NOMEM, "no memory for the index of a dataset");
    enum tw_status status = tw_dataset_decode(text, size, shards, room, &data->about, &why);
    if (status == TW_OK) {
        data->digest = tw_sha256(text, size);
        data->train_tokens = tw_dataset_tokens(&data->about, false);
        data->heldout_tokens = tw_dataset_tokens(&data->about, true);
        data->train_longest = longest_shard(&data->about, false);
        data->heldout_longest = longest_shard(&data->about, true);
        data->shards = data->about.shards_count;
        data->shards_here = count_here(folder, &data->about);
        for (uint32_t i = 0; i < data->about.shards_count; i++) {
            data->bytes += shards[i].file_bytes;
        }
    } else {
        status = tw_fail(err, TW_DATA, "%.120s: %.120s", path, why.message);
    }
    data->about.shards = NULL;
    data->about.shards_count = data->about.shards_capacity = 0;
    free(shards);
    return status;
}

static enum tw_status read_dataset(const char *folder, struct cli_data *data,
                                   struct tw_error *err) {
    char path[TW_PATH_BYTES];
    if (snprintf(path, sizeof(path), "%s/%s", folder, TW_DATASET_INDEX_FILE) >= (int)sizeof(path)) {
        return tw_fail(err, TW_DATA, "%.150s: the name is too long", folder);
    }
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        return tw_fail(err, TW_DATA,
                       "%.150s is a folder without a dataset: `thinwire data prepare %.40s --out "
                       "DIR` makes one",
                       folder, folder);
    }
    const size_t room = (size_t)TW_DATASET_BYTES_MAX + 1;
    char *const text = malloc(room);
    const size_t size = text != NULL ? fread(text, 1, room, file) : 0;
    (void)fclose(file);
    enum tw_status status;
    if (text == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory for the index of a dataset");
    } else if (size == room) {
        status = tw_fail(err, TW_DATA, "%.150s has more than %d MiB: it is no index of a dataset",
                         path, TW_DATASET_BYTES_MAX >> 20);
    } else {
        status = decode_index(folder, path, text, size, data, err);
    }
    free(text);
    return status;
}

enum tw_status cli_data_read(const char *path, struct cli_data *data, struct tw_error *err) {
    struct stat info;
    char tokens[TW_PATH_BYTES];
    const size_t size = strlen(path);
    *data = (struct cli_data){.is_dataset = false};
    if (size > 4 && size < sizeof(tokens) && strcmp(path + size - 4, ".idx") == 0) {
        memcpy(tokens, path, size - 4);
        memcpy(tokens + size - 4, ".bin", 5);
        path = tokens;
    }
    if (stat(path, &info) != 0) return tw_fail(err, TW_DATA, "%.150s: %s", path, strerror(errno));
    data->is_dataset = S_ISDIR(info.st_mode);
    if (data->is_dataset) return read_dataset(path, data, err);
    if (S_ISREG(info.st_mode) && info.st_size > 0) return read_text(path, data, err);
    return tw_fail(err, TW_DATA,
                   "%.150s: training data are a regular file that is not empty, or a folder of "
                   "`thinwire data prepare`",
                   path);
}

/* ---- data and run --------------------------------------------------------------------------- */

/* Applies the worker's rule: at least one window on either side of the held-out split
 * (worker/data/data.c). */
static enum tw_status check_shards(const struct cli_data *data, const char *path,
                                   const struct tw_run *run, struct tw_error *err) {
    const uint64_t window = (uint64_t)run->model.context + 1;
    if (data->train_longest >= window &&
        (data->heldout_tokens == 0 || data->heldout_longest >= window)) {
        return TW_OK;
    }
    return tw_fail(err, TW_DATA,
                   "%.80s: for training or held out no shard%s has the %llu tokens of one window: "
                   "prepare it with more text or larger --shard-tokens, or use a shorter context",
                   path, data->about.sources_count > 1 ? " of a source" : "",
                   (unsigned long long)window);
}

static enum tw_status check_length(const struct cli_data *data, const char *path,
                                   const struct tw_run *run, struct tw_error *err) {
    const uint64_t share = run->data.heldout_millionths;
    const uint64_t size = run->data.tokenizer == TW_TOKENIZER_BYTES ? 1
                          : run->model.vocab <= 65536               ? 2
                                                                    : 4;
    const uint64_t window = (uint64_t)run->model.context + 1;
    const uint64_t tokens = data->bytes / size;
    const uint64_t heldout = tokens / 1000000 * share + tokens % 1000000 * share / 1000000;
    if (tokens - heldout >= window && (heldout == 0 || heldout >= window)) return TW_OK;
    return tw_fail(
        err, TW_DATA,
        "%.80s has %llu tokens for training and %llu held out, too few for one window of %llu on "
        "either side: use a longer text or a shorter context",
        path, (unsigned long long)(tokens - heldout), (unsigned long long)heldout,
        (unsigned long long)window);
}

/* Applies the worker's rule about the kind of a file (worker/data/corpus.c). */
static enum tw_status check_start(const struct cli_data *data, const char *path,
                                  const struct tw_run *run, struct tw_error *err) {
    const struct tw_file_start start = {.path = path,
                                        .bytes = data->head,
                                        .size = data->head_bytes,
                                        .is_all = data->head_bytes == data->bytes};
    return tw_file_check(&start,
                         run->data.tokenizer == TW_TOKENIZER_BYTES ? TW_USE_BYTES
                         : run->model.vocab <= 65536               ? TW_USE_NUMBERS_2
                                                                   : TW_USE_NUMBERS_4,
                         NULL, err);
}

enum tw_status cli_data_check(const struct cli_data *data, const char *path,
                              const struct tw_run *run, struct tw_error *err) {
    struct tw_error why;
    const bool is_named = !tw_id_is_zero(&run->data.sha256);
    if (!data->is_dataset) TW_TRY(check_start(data, path, run, err));
    if (data->is_dataset && tw_dataset_check_run(&data->about, run, &why) != TW_OK) {
        return tw_fail(err, TW_DATA, "%.60s: %.185s", path, why.message);
    }
    if (is_named && data->is_dataset != (run->data.form == TW_FORM_DATASET)) {
        return tw_fail(err, TW_DATA, "%.110s is a %s, and the run is trained on a %s: %s", path,
                       data->is_dataset ? "dataset" : "text", data->is_dataset ? "text" : "dataset",
                       data->is_dataset
                           ? "name that text"
                           : "name its folder, or leave `data` out, and it is fetched");
    }
    if (is_named && !tw_id_equal(&data->digest, &run->data.sha256)) {
        return tw_fail(
            err, TW_DATA,
            "%.110s is not the %s the manifest names (its SHA-256 differs): copy the right "
            "one%s",
            path, data->is_dataset ? "dataset" : "text",
            data->is_dataset ? ", or leave `data` out, and it is fetched" : "");
    }
    return data->is_dataset ? check_shards(data, path, run, err)
                            : check_length(data, path, run, err);
}

enum tw_status cli_data_of_run(const char *path, const struct tw_run *run, struct cli_data *data,
                               struct tw_error *err) {
    char index[TW_PATH_BYTES + 32];
    struct stat info;
    const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    (void)snprintf(index, sizeof(index), "%.*s/%s", TW_PATH_BYTES - 1, path, TW_DATASET_INDEX_FILE);
    if (is_folder && stat(index, &info) != 0 && run->data.form == TW_FORM_DATASET)
        return tw_fail(
            err, TW_DATA,
            "%.150s is a folder without a dataset: name that of the run, or leave `data` "
            "out, and it is fetched",
            path);
    TW_TRY(cli_data_read(path, data, err));
    return cli_data_check(data, path, run, err);
}
