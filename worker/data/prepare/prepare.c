#include "worker/data/prepare/prepare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "proto/shard.h"
#include "worker/data/prepare/prepare_encode.h"
#include "worker/data/prepare/prepare_report.h"
#include "worker/data/prepare/prepare_write.h"
#include "worker/data/whole_file.h"
#include "worker/support/out_file.h"
#include "worker/support/signals.h"
#include "worker/tokenizer/text_ends.h"

enum {
    WAIT_MS = 200,
    INPUTS_TEXT_BYTES_MAX = 1 << 30,
    /* Limit of the text in the queue, in bytes. The text's tokens need up to four times as much
     * memory. */
    WAY_BYTES = 8 << 20,
    WAY_BYTES_THREAD = 2 << 20,
};

struct prepare {
    const struct tw_prepare_options *options;
    struct tw_tokenizer *tokenizer;
    struct tw_prepare_coder coder;
    bool has_coder;
    struct tw_dataset dataset; /* index of the dataset; its list of shards stays empty */
    struct tw_prepare_inputs inputs;
    char *inputs_text;
    size_t inputs_text_bytes;
    struct tw_prepare_writer writer;
    struct tw_prepare_report report;
    int folder; /* locked */
    /* the folder was created by this call; a state exists from an earlier call */
    bool has_made_folder, has_state;
};

/* ---- the tokenizer --------------------------------------------------------------------------- */

/* Finds the token that ends a document in the files beside tokenizer.json. Warns if they name none
 * or contradict each other, or if the token is only guessed. */
static enum tw_status find_ends(struct prepare *prepare, struct tw_error *err) {
    const struct tw_prepare_options *const options = prepare->options;
    const struct tw_text_ends_source source = {.tokenizer_path = options->tokenizer,
                                               .tokenizer = prepare->tokenizer,
                                               .vocab = tw_tokenizer_vocab(prepare->tokenizer),
                                               .eos = options->eos};
    struct tw_text_ends ends;
    TW_TRY(tw_text_ends_read(&ends, &source, err));
    tw_tokenizer_set_ends(prepare->tokenizer, &ends);
    if (options->is_quiet) return TW_OK;
    const char *const conflict = tw_text_ends_conflict(&ends);
    if (conflict != NULL) (void)fprintf(stderr, "thinwire: %s\n", conflict);
    if (ends.tokenizer.eos_count == 0) {
        (void)fprintf(stderr, "thinwire: nothing says which token ends a document, so documents "
                              "have no end: name it with --eos, as text or number\n");
    } else if (ends.is_guessed) {
        size_t size;
        const uint8_t *const text =
            tw_tokenizer_token(prepare->tokenizer, ends.tokenizer.eos[0], &size);
        (void)fprintf(stderr,
                      "thinwire: documents end with %.*s, by its name; --eos names another "
                      "token\n",
                      (int)(size < 64 ? size : 64), (const char *)text);
    }
    return TW_OK;
}

static enum tw_status load_tokenizer(struct prepare *prepare, char **json, size_t *size,
                                     struct tw_error *err) {
    const char *const path = prepare->options->tokenizer;
    struct tw_dataset *const dataset = &prepare->dataset;
    struct tw_error why;
    *json = NULL;
    if (path == NULL && prepare->options->eos != NULL) {
        return tw_fail(err, TW_CONFIG, "--eos needs --tokenizer: bytes have no token for the end");
    }
    if (path == NULL) return tw_tokenizer_create_bytes(&prepare->tokenizer, err);
    const enum tw_status status =
        tw_in_read_whole(path, TW_DATASET_TOKENIZER_BYTES_MAX, json, size, &why);
    if (status != TW_OK) {
        return tw_fail(err, TW_CONFIG, "--tokenizer %.220s", why.message);
    }
    if (tw_tokenizer_create_json(&prepare->tokenizer, *json, *size, &why) != TW_OK) {
        return tw_fail(err, why.status, "%.90s: %s", path, why.message);
    }
    dataset->tokenizer = tw_sha256(*json, *size);
    dataset->tokenizer_bytes = (uint32_t)*size;
    return find_ends(prepare, err);
}

static enum tw_status describe_dataset(struct prepare *prepare, struct tw_error *err) {
    const struct tw_prepare_options *const options = prepare->options;
    struct tw_dataset *const dataset = &prepare->dataset;
    TW_TRY(tw_prepare_coder_init(&prepare->coder, prepare->tokenizer, options->tokenizer == NULL,
                                 err));
    prepare->has_coder = true;
    prepare->coder.field = options->field;
    prepare->coder.is_plain = options->is_plain;
    prepare->coder.heldout_millionths = options->heldout_millionths;
    dataset->vocab = tw_tokenizer_vocab(prepare->tokenizer);
    dataset->separator = prepare->coder.separator;
    dataset->heldout_millionths = options->heldout_millionths;
    dataset->sources_count = options->sources_count;
    for (uint32_t i = 0; i < options->sources_count; i++) {
        struct tw_dataset_source *const source = &dataset->sources[i];
        (void)snprintf(source->name, sizeof(source->name), "%s", options->sources[i].name);
        source->weight_millionths = options->sources[i].weight_millionths;
    }
    return TW_OK;
}

/* SHA-256 of all options that affect the shards. */
static struct tw_id options_id(const struct prepare *prepare) {
    const struct tw_prepare_options *const options = prepare->options;
    const struct tw_dataset *const dataset = &prepare->dataset;
    char text[512 + TW_DATASET_SOURCES_MAX * (TW_DATASET_NAME_BYTES + 12)], hex[TW_ID_HEX_BYTES];
    tw_id_hex(&dataset->tokenizer, hex);
    int used = snprintf(
        text, sizeof(text), "2 %s %" PRIu32 " %" PRId64 " %" PRId64 " %d %d %s %u %u\n", hex,
        dataset->vocab, dataset->separator, prepare->coder.closer, (int)options->unit,
        options->is_plain, options->field, dataset->heldout_millionths, options->shard_tokens);
    for (uint32_t i = 0; i < dataset->sources_count; i++) {
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%s %" PRIu32 "\n",
                         dataset->sources[i].name, dataset->sources[i].weight_millionths);
    }
    return tw_sha256(text, (size_t)used);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static enum tw_status open_folder(struct prepare *prepare, struct tw_error *err) {
    const char *const out = prepare->options->out;
    prepare->has_made_folder = mkdir(out, 0777) == 0;
    if (!prepare->has_made_folder && errno != EEXIST) {
        return tw_fail(err, TW_IO, "--out %s: %s", out, strerror(errno));
    }
    prepare->folder = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (prepare->folder < 0) return tw_fail(err, TW_IO, "--out %s: %s", out, strerror(errno));
    if (flock(prepare->folder, LOCK_EX | LOCK_NB) == 0) return TW_OK;
    return tw_fail(err, TW_CONFIG, "%s is being written by another process; let it end first", out);
}

/* Returns true for names like prose-train-00000.shard, also with the ending of a temporary file. */
static bool is_ours(const char *name) {
    static const char *const NAMES[] = {TW_PREPARE_STATE_FILE, TW_PREPARE_INPUTS_FILE,
                                        TW_DATASET_TOKENIZER_FILE};
    for (unsigned i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (strcmp(name, NAMES[i]) == 0) return true;
    }
    const char *side = strstr(name, "-train-");
    if (side == NULL) side = strstr(name, "-heldout-");
    const char *const shard = side != NULL ? strstr(side, ".shard") : NULL;
    if (shard == NULL) return false;
    const char *const end = shard + strlen(".shard");
    return *end == 0 || strcmp(end, ".part") == 0 || strcmp(end, ".pending") == 0;
}

/* Removes the files that `prepare` writes. The index goes first, because a folder with an index
 * counts as complete. */
static enum tw_status clear_folder(struct prepare *prepare, struct tw_error *err) {
    const char *const out = prepare->options->out;
    if (unlinkat(prepare->folder, TW_DATASET_INDEX_FILE, 0) != 0 && errno != ENOENT) {
        return tw_fail(err, TW_IO, "%s/%s: %s", out, TW_DATASET_INDEX_FILE, strerror(errno));
    }
    DIR *const folder = opendir(out);
    if (folder == NULL) return tw_fail(err, TW_IO, "%s: %s", out, strerror(errno));
    enum tw_status status = TW_OK;
    for (struct dirent *entry = readdir(folder); entry != NULL && status == TW_OK;
         entry = readdir(folder)) {
        if (!is_ours(entry->d_name) || unlinkat(prepare->folder, entry->d_name, 0) == 0) continue;
        status = tw_fail(err, TW_IO, "%s/%s: %s", out, entry->d_name, strerror(errno));
    }
    (void)closedir(folder);
    return status;
}

/* Reads a file that `prepare` wrote. Fails with TW_AGAIN if it is missing. */
static enum tw_status read_ours(const struct prepare *prepare, const char *name, size_t bytes_max,
                                char **bytes, size_t *size, struct tw_error *err) {
    char path[1200];
    (void)snprintf(path, sizeof(path), "%s/%s", prepare->options->out, name);
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return tw_fail(err, TW_AGAIN, "%s is missing", path);
    }
    return tw_in_read_whole(path, bytes_max, bytes, size, err);
}

/* ---- continue -----------------------------------------------------------------------------------
 */

/* Fails with a message that names the first input that changed since the interrupted `prepare` that
 * this one continues. */
static enum tw_status inputs_changed(const struct prepare *prepare, struct tw_error *err) {
    char *before = NULL, *line = NULL;
    size_t size = 0, at = 0, begin = 0;
    if (read_ours(prepare, TW_PREPARE_INPUTS_FILE, INPUTS_TEXT_BYTES_MAX, &before, &size, NULL) ==
        TW_OK) {
        const char *const now = prepare->inputs_text;
        while (at < size && at < prepare->inputs_text_bytes && before[at] == now[at]) {
            if (before[at++] == '\n') begin = at;
        }
        line = begin < prepare->inputs_text_bytes ? prepare->inputs_text + begin : before + begin;
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < 3 && line != NULL; i++) {
            line = strchr(line, ' ');
            if (line != NULL) line++;
        }
    }
    (void)tw_fail(err, TW_CONFIG,
                  "the inputs are not those that %.60s was begun with; the first that differs: "
                  "%.80s; start over with --restart, or choose another --out",
                  prepare->options->out, line != NULL ? line : "?");
    free(before);
    return TW_CONFIG;
}

/* Refuses to overwrite a tokenizer.json with other content. */
static enum tw_status check_tokenizer(const struct prepare *prepare, const char *json,
                                      size_t json_bytes, struct tw_error *err) {
    char *there;
    size_t size;
    if (json == NULL || prepare->has_state) return TW_OK;
    const enum tw_status status = read_ours(prepare, TW_DATASET_TOKENIZER_FILE,
                                            TW_DATASET_TOKENIZER_BYTES_MAX, &there, &size, NULL);
    const bool is_same = status == TW_OK && size == json_bytes && memcmp(there, json, size) == 0;
    if (status == TW_OK) free(there);
    if (is_same || status == TW_AGAIN) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "%.120s holds another " TW_DATASET_TOKENIZER_FILE
                   "; choose another --out, or replace it with --restart",
                   prepare->options->out);
}

/* Loads the state of an earlier call. Sets *is_found if it has the same options and inputs. */
static enum tw_status load_state(struct prepare *prepare, bool *is_found, struct tw_error *err) {
    struct tw_prepare_state *const state = &prepare->writer.state;
    const struct tw_id options = options_id(prepare);
    const struct tw_id inputs = tw_sha256(prepare->inputs_text, prepare->inputs_text_bytes);
    const struct tw_prepare_state begun = {.options = options, .inputs = inputs, .line = 1};
    const char *const out = prepare->options->out;
    char *text;
    size_t size;
    struct tw_error why;
    enum tw_status status =
        read_ours(prepare, TW_PREPARE_STATE_FILE, TW_PREPARE_STATE_BYTES_MAX, &text, &size, &why);
    *is_found = status == TW_OK;
    prepare->has_state = status != TW_AGAIN;
    *state = begun;
    if (status == TW_AGAIN) {
        struct stat info;
        if (fstatat(prepare->folder, TW_DATASET_INDEX_FILE, &info, 0) != 0) return TW_OK;
        return tw_fail(err, TW_CONFIG,
                       "%s holds a dataset already; choose another --out, or replace it with "
                       "--restart",
                       out);
    }
    if (status == TW_OK) {
        status = tw_prepare_state_decode(text, size, state, &why);
        free(text);
    }
    if (status != TW_OK) {
        return tw_fail(err, status, "%.80s/%s: %.90s; start over with --restart", out,
                       TW_PREPARE_STATE_FILE, why.message);
    }
    const bool is_same = tw_id_equal(&state->options, &options);
    const bool is_all_there =
        tw_id_equal(&state->inputs, &inputs) && state->next.file <= prepare->inputs.count;
    if (is_same && is_all_there) return TW_OK;
    if (state->dataset.shards_count == 0) { /* nothing is lost */
        free(state->dataset.shards);
        *state = begun;
        *is_found = false;
        return TW_OK;
    }
    if (is_same) return inputs_changed(prepare, err);
    return tw_fail(err, TW_CONFIG,
                   "%s was begun with other options or another tokenizer: go on with those, begin "
                   "anew with --restart, or choose another --out",
                   out);
}

/* Checks that the shards listed in the state still exist. */
static enum tw_status check_shards(const struct prepare *prepare, const struct tw_dataset *before,
                                   struct tw_error *err) {
    for (uint32_t i = 0; i < before->shards_count; i++) {
        char name[TW_DATASET_FILE_BYTES];
        struct stat info;
        tw_dataset_file(before, &before->shards[i], name);
        if (fstatat(prepare->folder, name, &info, 0) == 0 &&
            (uint64_t)info.st_size == before->shards[i].file_bytes) {
            continue;
        }
        return tw_fail(err, TW_CONFIG,
                       "%.90s/%s is missing or was changed; start over with --restart",
                       prepare->options->out, name);
    }
    return TW_OK;
}

static enum tw_status begin_or_continue(struct prepare *prepare, const char *json,
                                        size_t json_bytes, struct tw_error *err) {
    struct tw_prepare_writer *const writer = &prepare->writer;
    const struct tw_prepare_options *const options = prepare->options;
    bool is_found = false;
    TW_TRY(open_folder(prepare, err));
    if (options->is_restart) TW_TRY(clear_folder(prepare, err));
    writer->options = options;
    writer->inputs = &prepare->inputs;
    tw_prepare_shards_init(&writer->shards, options->out, &prepare->dataset, options->shard_tokens);
    enum tw_status status = load_state(prepare, &is_found, err);
    struct tw_dataset before = writer->state.dataset;
    if (status == TW_OK && is_found) {
        const uint64_t file = writer->state.next.file;
        const uint32_t source = file < prepare->inputs.count ? prepare->inputs.files[file].source
                                                             : options->sources_count - 1;
        status = check_shards(prepare, &before, err);
        if (status == TW_OK) {
            status = tw_prepare_shards_resume(&writer->shards, &before, source,
                                              writer->state.pending, err);
        }
    }
    free(before.shards);
    writer->state.dataset.shards = NULL;
    if (status != TW_OK) return status;
    tw_prepare_writer_begin(writer);
    if (is_found) return TW_OK;
    TW_TRY(check_tokenizer(prepare, json, json_bytes, err));
    const struct tw_range list = {prepare->inputs_text, prepare->inputs_text_bytes};
    TW_TRY(tw_whole_file_write(options->out, TW_PREPARE_INPUTS_FILE, &list, 1, err));
    if (json != NULL) {
        const struct tw_range tokenizer = {json, json_bytes};
        TW_TRY(tw_whole_file_write(options->out, TW_DATASET_TOKENIZER_FILE, &tokenizer, 1, err));
    }
    return tw_prepare_save(writer, err);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct tokenizing {
    struct tw_prepare_coder *coder;
    struct tw_blocks *blocks;
    struct tw_encoder *encoder;
    pthread_t thread;
    bool is_started;
};

static void *tokenize(void *context) {
    const struct tokenizing *const self = context;
    for (struct tw_block *block = tw_blocks_take(self->blocks); block != NULL;
         block = tw_blocks_take(self->blocks)) {
        if (block->failure.status == TW_OK) tw_prepare_encode(self->coder, self->encoder, block);
        tw_blocks_done(self->blocks, block);
    }
    return NULL;
}

static void *read_all(void *context) {
    tw_prepare_read(context);
    return NULL;
}

/* Starts a thread with all signals blocked, so that only the main thread handles signals. */
static enum tw_status start_thread(pthread_t *thread, void *(*work)(void *), void *context,
                                   struct tw_error *err) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, NULL, work, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? TW_OK : tw_fail(err, TW_LIMIT, "no more threads: %s", strerror(failed));
}

/* The writer's loop, run in the caller's thread. */
static enum tw_status write_all(struct prepare *prepare, struct tw_blocks *blocks,
                                struct tw_error *err) {
    struct tw_prepare_writer *const writer = &prepare->writer;
    enum tw_status status = TW_OK;
    while (status == TW_OK && !writer->is_end) {
        struct tw_block *const block = tw_blocks_get(blocks, WAIT_MS);
        if (block != NULL) {
            status = tw_prepare_write(writer, block, err);
            tw_blocks_release(blocks, block);
        }
        tw_prepare_report_tick(&prepare->report, &writer->state.counts, writer->taken_bytes);
        if (status == TW_OK && tw_signals_wanted()) {
            status = tw_fail(err, TW_AGAIN, "stopped; run the same command to continue");
        }
    }
    return status;
}

static enum tw_status run_threads(struct prepare *prepare, struct tw_blocks *blocks,
                                  struct tokenizing *tokenizing, struct tw_error *err) {
    const uint32_t threads = prepare->options->threads;
    struct tw_prepare_reader reader = {.inputs = &prepare->inputs,
                                       .blocks = blocks,
                                       .from = prepare->writer.state.next,
                                       .unit = prepare->options->unit,
                                       .is_plain = prepare->options->is_plain,
                                       .skip_bad = prepare->options->skip_bad,
                                       .has_tokenizer = prepare->options->tokenizer != NULL,
                                       .vocab = prepare->dataset.vocab,
                                       .separator = prepare->dataset.separator};
    pthread_t reading;
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; i < threads && status == TW_OK; i++) {
        struct tokenizing *const one = &tokenizing[i];
        *one = (struct tokenizing){.coder = &prepare->coder, .blocks = blocks};
        status = tw_encoder_create(&one->encoder, prepare->tokenizer, err);
        if (status == TW_OK) status = start_thread(&one->thread, tokenize, one, err);
        one->is_started = status == TW_OK;
    }
    if (status == TW_OK) status = tw_blocks_create(blocks, &reader.first, err);
    if (status == TW_OK) {
        status = start_thread(&reading, read_all, &reader, err);
        if (status == TW_OK) {
            status = write_all(prepare, blocks, err);
            tw_blocks_stop(blocks);
            (void)pthread_join(reading, NULL);
        } else {
            tw_block_destroy(reader.first);
        }
    }
    tw_blocks_stop(blocks);
    for (uint32_t i = 0; i < threads; i++) {
        if (tokenizing[i].is_started) (void)pthread_join(tokenizing[i].thread, NULL);
        tw_encoder_destroy(tokenizing[i].encoder);
    }
    return status;
}

static enum tw_status run_pipeline(struct prepare *prepare, struct tw_error *err) {
    const uint32_t threads = prepare->options->threads;
    struct tw_blocks blocks;
    struct tokenizing *const tokenizing = calloc(threads, sizeof(*tokenizing));
    if (tokenizing == NULL) return tw_fail(err, TW_NOMEM, "no memory for %u threads", threads);
    enum tw_status status =
        tw_blocks_init(&blocks, WAY_BYTES + (uint64_t)threads * WAY_BYTES_THREAD, err);
    if (status == TW_OK) {
        status = run_threads(prepare, &blocks, tokenizing, err);
        tw_blocks_deinit(&blocks);
    }
    free(tokenizing);
    return status;
}

/* ---- entry point -------------------------------------------------------------------------------
 */

/* Writes the index last, because a folder with an index counts as complete. */
static enum tw_status write_index(struct prepare *prepare, struct tw_id *id, struct tw_error *err) {
    struct tw_prepare_writer *const writer = &prepare->writer;
    char *const text = malloc(TW_DATASET_BYTES_MAX);
    size_t size = 0;
    if (text == NULL) return tw_fail(err, TW_NOMEM, "no memory for the index");
    enum tw_status status =
        tw_dataset_encode(&writer->shards.dataset, text, TW_DATASET_BYTES_MAX, &size, err);
    if (status == TW_OK) {
        const struct tw_range range = {text, size};
        status = tw_whole_file_write(prepare->options->out, TW_DATASET_INDEX_FILE, &range, 1, err);
        *id = tw_sha256(text, size);
    }
    free(text);
    if (status != TW_OK) return status;
    writer->state.is_done = true;
    return tw_prepare_save(writer, err);
}

static enum tw_status read_index(const struct prepare *prepare, struct tw_id *id,
                                 struct tw_error *err) {
    char *text;
    size_t size;
    if (read_ours(prepare, TW_DATASET_INDEX_FILE, TW_DATASET_BYTES_MAX, &text, &size, NULL) !=
        TW_OK) {
        return tw_fail(err, TW_CORRUPT,
                       "%s was done, but its index is gone; make it with --restart",
                       prepare->options->out);
    }
    *id = tw_sha256(text, size);
    free(text);
    return TW_OK;
}

static enum tw_status prepare_all(struct prepare *prepare, struct tw_prepare_summary *summary,
                                  struct tw_error *err) {
    struct tw_prepare_writer *const writer = &prepare->writer;
    char *json = NULL;
    size_t json_bytes = 0;
    enum tw_status status = load_tokenizer(prepare, &json, &json_bytes, err);
    if (status == TW_OK) status = describe_dataset(prepare, err);
    if (status == TW_OK) status = tw_prepare_inputs_find(&prepare->inputs, prepare->options, err);
    if (status == TW_OK) {
        status = tw_prepare_inputs_text(&prepare->inputs, &prepare->inputs_text,
                                        &prepare->inputs_text_bytes, err);
    }
    if (status == TW_OK) status = begin_or_continue(prepare, json, json_bytes, err);
    free(json);
    if (status != TW_OK) return status;
    /* Return memory to the system: parsing a tokenizer needs ten times its size. */
    (void)malloc_trim(0);
    tw_prepare_report_start(&prepare->report, prepare->options, prepare->inputs.bytes);
    summary->was_done = writer->state.is_done;
    if (summary->was_done) {
        status = read_index(prepare, &summary->dataset, err);
    } else {
        tw_prepare_report_from(&prepare->report, &writer->state.counts, writer->taken_bytes);
        status = run_pipeline(prepare, err);
        if (status == TW_OK) status = write_index(prepare, &summary->dataset, err);
        if (status != TW_OK) tw_prepare_report_break(&prepare->report);
    }
    return status;
}

static void summarize(const struct prepare *prepare, struct tw_prepare_summary *summary) {
    const struct tw_prepare_writer *const writer = &prepare->writer;
    const struct tw_dataset *const dataset = &writer->shards.dataset;
    summary->counts = writer->state.counts;
    summary->hidden_files = prepare->inputs.hidden;
    memcpy(summary->first_bad, writer->state.first_bad, sizeof(summary->first_bad));
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        if (dataset->shards[i].is_heldout) summary->heldout_shards++;
        if (!dataset->shards[i].is_heldout) summary->train_shards++;
    }
}

/* Cleans up after a failure before the first shard: removes the folder if this call made it. */
static void leave_nothing(struct prepare *prepare) {
    if (!prepare->has_made_folder || prepare->folder < 0) return;
    if (prepare->writer.shards.dataset.shards_count > 0) return;
    if (clear_folder(prepare, NULL) == TW_OK) (void)rmdir(prepare->options->out);
}

enum tw_status tw_prepare(const struct tw_prepare_options *options,
                          struct tw_prepare_summary *summary, struct tw_error *err) {
    struct prepare *const prepare = calloc(1, sizeof(*prepare));
    memset(summary, 0, sizeof(*summary));
    if (prepare == NULL) return tw_fail(err, TW_NOMEM, "no memory to prepare anything");
    prepare->options = options;
    prepare->folder = -1;
    const enum tw_status status = prepare_all(prepare, summary, err);
    if (status == TW_OK) {
        summarize(prepare, summary);
        tw_prepare_report_end(&prepare->report, options, summary);
    }
    summary->can_skip = prepare->writer.can_skip;
    if (status != TW_OK && status != TW_AGAIN) leave_nothing(prepare);
    tw_prepare_shards_deinit(&prepare->writer.shards);
    if (prepare->folder >= 0) (void)close(prepare->folder);
    free(prepare->inputs_text);
    tw_prepare_inputs_deinit(&prepare->inputs);
    if (prepare->has_coder) tw_prepare_coder_deinit(&prepare->coder);
    tw_tokenizer_destroy(prepare->tokenizer);
    free(prepare);
    return status;
}
