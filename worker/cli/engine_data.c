/* engine_data.c - thinwire-engine data prepare | info | weigh: work on training data, without a
 * model. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json_field.h"
#include "base/machine.h"
#include "base/nearest.h"
#include "base/page.h"
#include "base/units.h"
#include "kernels/ops.h"
#include "proto/run/run_key.h"
#include "worker/cli/engine_verb.h"
#include "worker/data/corpus.h"
#include "worker/data/prepare/prepare.h"
#include "worker/support/out_file.h"
#include "worker/support/signals.h"
#include "worker/support/utf8.h"
#include "worker/tokenizer/tokenizer_text.h"

/* ---- data info: the contents of training data, with samples ---------------------------------- */

enum { SAMPLES = 3, SAMPLE_TOKENS = 64, SAMPLE_BYTES = 240, SAMPLE_COLUMNS = 68 };

struct info {
    const char *path, *tokenizer_path;
    bool json, is_verify;
    struct tw_corpus corpus;
    struct tw_token_reader reader;
    struct tw_tokenizer *tokenizer; /* NULL: samples are token numbers */
    char remark[300];               /* note about the tokenizer, or "" */
    uint32_t here, missing;
};

static enum tw_status parse_info(struct info *info, int argc, char **argv, struct tw_error *err) {
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            info->json = true;
        } else if (strcmp(argv[i], "--verify") == 0) {
            info->is_verify = true;
        } else if (strncmp(argv[i], "--tokenizer=", 12) == 0) {
            info->tokenizer_path = argv[i] + 12;
        } else if (strcmp(argv[i], "--tokenizer") == 0 && i + 1 < argc) {
            info->tokenizer_path = argv[++i];
        } else if (argv[i][0] != '-' && info->path == NULL) {
            info->path = argv[i];
        } else {
            return tw_fail(err, TW_CONFIG, "data info: `%.40s` is unknown or lacks a value",
                           argv[i]);
        }
    }
    if (info->path != NULL) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "usage: thinwire data info PATH [--verify] [--json] [--tokenizer FILE]; "
                   "`thinwire help data` tells more");
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_same_tokenizer(const char *path, const struct tw_id *wanted) {
    bool is_same = false;
    FILE *const file = fopen(path, "re");
    uint8_t *const text = malloc(TW_TOKENIZER_JSON_BYTES_MAX);
    if (file != NULL && text != NULL) {
        const size_t size = fread(text, 1, TW_TOKENIZER_JSON_BYTES_MAX, file);
        const struct tw_id found = tw_sha256(text, size);
        is_same = tw_id_equal(&found, wanted);
    }
    if (file != NULL) (void)fclose(file);
    free(text);
    return is_same;
}

/* Opens the tokenizer named by an option, else the byte tokenizer, else the one in the dataset's
 * folder. */
static enum tw_status open_tokenizer(struct info *info, struct tw_error *err) {
    const struct tw_corpus *const corpus = &info->corpus;
    char path[PATH_MAX];
    const struct tw_id *const wanted = &corpus->about.tokenizer;
    if (info->tokenizer_path != NULL) {
        (void)snprintf(path, sizeof(path), "%s", info->tokenizer_path);
    } else if (corpus->kind == TW_CORPUS_TEXT ||
               (corpus->about.vocab != 0 && tw_id_is_zero(wanted))) {
        return tw_tokenizer_create_bytes(&info->tokenizer, err);
    } else {
        const int n = snprintf(path, sizeof(path), "%s/%s", info->path, TW_DATASET_TOKENIZER_FILE);
        if (n < (int)sizeof(path) && access(path, R_OK) == 0) {
            info->tokenizer_path = path;
        } else if (info->is_verify && corpus->kind == TW_CORPUS_DATASET) {
            return tw_fail(
                err, TW_DATA,
                "%.120s: its %s is missing, and the dataset is useless to others without it: "
                "copy it from the folder that was prepared",
                info->path, TW_DATASET_TOKENIZER_FILE);
        } else {
            (void)snprintf(info->remark, sizeof(info->remark),
                           "--tokenizer FILE shows the samples as text");
            return TW_OK;
        }
    }
    if (corpus->about.vocab != 0 && !is_same_tokenizer(path, wanted)) {
        (void)snprintf(info->remark, sizeof(info->remark),
                       "%.150s is not the tokenizer of these tokens", path);
        info->tokenizer_path = NULL;
        return info->is_verify ? tw_fail(err, TW_DATA, "%s", info->remark) : TW_OK;
    }
    const enum tw_status status = tw_tokenizer_create_file(&info->tokenizer, path, err);
    info->tokenizer_path = NULL;
    return status;
}

static enum tw_status open_all(struct info *info, struct tw_error *err) {
    const struct tw_corpus_hint hint = {.is_ids = false};
    TW_TRY(tw_corpus_open(&info->corpus, info->path, &hint, err));
    const uint32_t vocab = info->corpus.about.vocab;
    TW_TRY(tw_token_reader_init(&info->reader, vocab != 0 ? vocab : (uint64_t)UINT32_MAX + 1, err));
    for (uint32_t i = 0; i < info->corpus.files_count; i++) {
        if (info->corpus.files[i].is_here) info->here++;
    }
    info->missing = info->corpus.files_count - info->here;
    return open_tokenizer(info, err);
}

/* ---- verify -----------------------------------------------------------------------------------
 */

static void show_progress(const struct info *info, uint32_t file, uint64_t bytes, double begin_s) {
    char done[TW_UNITS_BYTES], all[TW_UNITS_BYTES], speed[TW_UNITS_BYTES];
    if (info->json || isatty(STDERR_FILENO) != 1) return;
    const double took_s = engine_now_s() - begin_s;
    (void)fprintf(stderr, "\r\033[Kfile %" PRIu32 " of %" PRIu32 ", %s of %s, %s/s", file + 1,
                  info->corpus.files_count, tw_units_bytes(done, (double)bytes),
                  tw_units_bytes(all, (double)info->corpus.bytes),
                  tw_units_bytes(speed, (double)bytes / (took_s > 0.001 ? took_s : 0.001)));
}

/* Reads every token, which verifies checksums and vocabulary, and checks the ranges of
 * documents. */
static enum tw_status verify_file(struct info *info, struct tw_token_file *file,
                                  struct tw_error *err) {
    enum { BLOCK = 1 << 14 };
    static uint32_t tokens[BLOCK];
    uint64_t end = 0;
    for (uint64_t at = 0; at < file->tokens_count; at += BLOCK) {
        const uint64_t left = file->tokens_count - at;
        TW_TRY(tw_token_read(&info->reader, file, at, left < BLOCK ? (uint32_t)left : BLOCK, tokens,
                             err));
        if (tw_signals_wanted()) return tw_fail(err, TW_IO, "interrupted");
    }
    for (uint64_t i = 0; file->is_shard && i < file->documents_count; i++) {
        uint64_t first = 0, count = 0;
        TW_TRY(tw_token_document(&info->reader, file, i, &first, &count, err));
        if (first != end) {
            return tw_fail(err, TW_DATA,
                           "%.120s: document %" PRIu64 " begins at token %" PRIu64
                           ", and the one before ends at %" PRIu64,
                           file->path, i, first, end);
        }
        end = first + count;
    }
    return TW_OK;
}

static enum tw_status verify(struct info *info, struct tw_error *err) {
    uint64_t bytes = 0;
    const double begin_s = engine_now_s();
    for (uint32_t i = 0; i < info->corpus.files_count; i++) {
        struct tw_corpus_file *const file = &info->corpus.files[i];
        show_progress(info, i, bytes, begin_s);
        if (file->is_here) TW_TRY(verify_file(info, &file->tokens, err));
        bytes += file->tokens.file_bytes;
    }
    if (!info->json && isatty(STDERR_FILENO) == 1) (void)fputs("\r\033[K", stderr);
    if (info->missing == 0) return TW_OK;
    return tw_fail(err, TW_DATA, "%.150s: %" PRIu32 " of %" PRIu32 " shards are missing",
                   info->path, info->missing, info->corpus.files_count);
}

/* ---- samples --------------------------------------------------------------------------------- */

static bool has_documents(const struct tw_corpus *corpus) {
    return corpus->kind == TW_CORPUS_MEGATRON || corpus->kind == TW_CORPUS_SHARD ||
           corpus->kind == TW_CORPUS_DATASET;
}

/* Whether the data have checksums: only shards do. */
static bool is_pinned(const struct tw_corpus *corpus) {
    return corpus->kind == TW_CORPUS_SHARD || corpus->kind == TW_CORPUS_DATASET;
}

/* Number of documents, or 0 if unknown. */
static uint64_t documents_of(const struct tw_corpus *corpus, uint32_t source, bool is_heldout) {
    uint64_t documents = 0;
    if (corpus->kind == TW_CORPUS_MEGATRON) return corpus->megatron.documents_count;
    for (uint32_t i = 0; i < corpus->files_count; i++) {
        const struct tw_corpus_file *const file = &corpus->files[i];
        if (file->source == source && file->is_heldout == is_heldout) {
            documents += file->tokens.documents_count;
        }
    }
    return documents;
}

/* Finds the start and the maximum length of sample i of SAMPLES. Sets *count to 0 if there is no
 * such sample. */
static enum tw_status find_sample(struct info *info, unsigned i, uint32_t *file, uint64_t *first,
                                  uint64_t *count, struct tw_error *err) {
    struct tw_corpus *const corpus = &info->corpus;
    *count = 0;
    *file = (uint32_t)((uint64_t)corpus->files_count * i / SAMPLES);
    while (*file < corpus->files_count && !corpus->files[*file].is_here) (*file)++;
    if (*file == corpus->files_count) return TW_OK;
    struct tw_token_file *const tokens = &corpus->files[*file].tokens;
    if (tokens->is_shard) {
        const uint64_t document = tokens->documents_count * i / SAMPLES;
        return tw_token_document(&info->reader, tokens, document, first, count, err);
    }
    if (corpus->kind == TW_CORPUS_MEGATRON) {
        const uint64_t document = corpus->megatron.documents_count * i / SAMPLES;
        uint64_t end = 0;
        TW_TRY(tw_megatron_document(&corpus->megatron, document, first, err));
        TW_TRY(tw_megatron_document(&corpus->megatron, document + 1, &end, err));
        *count = end > *first ? end - *first : 0;
        return TW_OK;
    }
    *first = tokens->tokens_count * i / SAMPLES;
    *count = tokens->tokens_count - *first;
    return TW_OK;
}

/* Writes the text of tokens, or their numbers if there is no tokenizer, to text[room]. Returns its
 * size in bytes. */
static size_t decode(const struct info *info, const uint32_t *tokens, size_t count, char *text,
                     size_t room) {
    size_t used = 0;
    struct tw_decoder decoder = {.tokenizer = info->tokenizer};
    for (size_t i = 0; i < count; i++) {
        uint8_t piece[TW_DECODER_BYTES_MAX];
        size_t size;
        if (info->tokenizer != NULL) {
            size = tw_decoder_take(&decoder, tokens[i], piece);
        } else {
            size = (size_t)snprintf((char *)piece, sizeof(piece), "%s%" PRIu32, i > 0 ? " " : "",
                                    tokens[i]);
        }
        if (used + size > room) break;
        memcpy(text + used, piece, size);
        used += size;
    }
    return used;
}

static void print_sample(const struct info *info, const char *text, size_t size, bool is_first) {
    if (info->json) {
        (void)printf("%s", is_first ? "" : ", ");
        tw_json_text_print(stdout, (const uint8_t *)text, size);
        return;
    }
    (void)printf("%s", is_first ? "  Sample    " : "            ");
    for (size_t k = 0, columns = 0; k < size; k++) {
        const unsigned char c = (unsigned char)text[k];
        if ((c & 0xC0) != 0x80 && columns++ == SAMPLE_COLUMNS) break;
        (void)putchar(c < ' ' || c == 127 ? ' ' : c);
    }
    (void)printf("\n");
}

static enum tw_status print_samples(struct info *info, struct tw_error *err) {
    uint32_t shown_file = 0;
    uint64_t shown_first = 0;
    bool is_first = true;
    if (info->json) (void)printf(", \"samples\": [");
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint32_t file = 0, tokens[SAMPLE_TOKENS];
        uint64_t first = 0, count = 0;
        char text[SAMPLE_BYTES];
        TW_TRY(find_sample(info, i, &file, &first, &count, err));
        if (count == 0 || (!is_first && file == shown_file && first == shown_first)) continue;
        uint32_t n = count < SAMPLE_TOKENS ? (uint32_t)count : SAMPLE_TOKENS;
        TW_TRY(
            tw_token_read(&info->reader, &info->corpus.files[file].tokens, first, n, tokens, err));
        for (uint32_t k = 0; k < n; k++) tokens[k] &= ~TW_TOKEN_UNSCORED;
        const uint32_t skipped = tokens[0] == info->corpus.about.separator ? 1 : 0;
        print_sample(info, text, decode(info, tokens + skipped, n - skipped, text, sizeof(text)),
                     is_first);
        is_first = false;
        shown_file = file;
        shown_first = first;
    }
    if (info->json) (void)printf("]}\n");
    return TW_OK;
}

/* ---- summary ----------------------------------------------------------------------------------
 */

struct sums {
    uint64_t tokens[2], documents[2], bytes;
    uint32_t shards;
};

static struct sums sum(const struct tw_corpus *corpus, uint32_t source) {
    struct sums sums = {.shards = 0};
    for (uint32_t i = 0; i < corpus->files_count; i++) {
        const struct tw_corpus_file *const file = &corpus->files[i];
        if (file->source != source) continue;
        sums.tokens[file->is_heldout ? 1 : 0] += file->tokens.tokens_count;
        sums.bytes += file->tokens.file_bytes;
        sums.shards++;
    }
    sums.documents[0] = documents_of(corpus, source, false);
    sums.documents[1] = corpus->kind == TW_CORPUS_MEGATRON ? 0 : documents_of(corpus, source, true);
    return sums;
}

static void print_source(const struct tw_corpus *corpus, uint32_t source) {
    const struct sums sums = sum(corpus, source);
    const uint64_t tokens = sums.tokens[0] + sums.tokens[1];
    const uint64_t documents = sums.documents[0] + sums.documents[1];
    char share[TW_UNITS_BYTES], text[4][TW_UNITS_BYTES];
    const uint32_t weight = corpus->about.sources[source].weight_millionths;
    (void)printf(
        "  %-12s %8s %6" PRIu32 " %15s %12s %11s %8s\n", corpus->about.sources[source].name,
        weight > 0 ? tw_units_percent(share, weight / 1e6) : "by size", sums.shards,
        tw_units_count(text[0], (double)tokens),
        documents > 0 ? tw_units_count(text[1], (double)documents) : "-",
        documents > 0 ? tw_units_count(text[2], (double)tokens / (double)documents) : "-",
        corpus->has_heldout ? tw_units_percent(text[3], (double)sums.tokens[1] / (double)tokens)
                            : "-");
}

static void print_numbers(const struct info *info) {
    const struct tw_corpus *const corpus = &info->corpus;
    const struct tw_dataset *const about = &corpus->about;
    char bytes[TW_UNITS_BYTES], hex[TW_ID_HEX_BYTES];
    (void)printf("%s: %s, %s", info->path, tw_corpus_kind_name(corpus->kind),
                 tw_units_bytes(bytes, (double)corpus->bytes));
    if (corpus->files_count > 1) {
        (void)printf(" in %" PRIu32 " files", corpus->files_count);
    }
    if (info->missing > 0) (void)printf(", of which %" PRIu32 " are here", info->here);
    (void)printf("\n\n");
    if (corpus->kind == TW_CORPUS_DATASET) {
        tw_id_hex(&corpus->digest, hex);
        (void)printf("  Name      %s\n", hex);
    }
    if (about->vocab != 0) {
        (void)printf("  Tokens    below %" PRIu32 ", of %s", about->vocab,
                     tw_id_is_zero(&about->tokenizer) ? "bytes" : "a tokenizer.json");
        if (about->separator >= 0) {
            (void)printf("; every document begins with %" PRId64, about->separator);
        }
        if (about->has_answers) (void)printf("; answers are marked");
        (void)printf("\n");
    }
    (void)printf("\n  %-12s %8s %6s %15s %12s %11s %8s\n", "source", "weight", "files", "tokens",
                 "documents", "mean tokens", "held out");
    for (uint32_t i = 0; i < about->sources_count; i++) print_source(corpus, i);
    (void)printf("\n");
    if (!corpus->has_heldout) {
        (void)printf("  Held out  the last share of it, as data.heldout of a run says%s\n",
                     corpus->kind == TW_CORPUS_MEGATRON ? ", by documents" : "");
    }
    if (info->remark[0] != 0) (void)printf("  Tokenizer %s\n", info->remark);
}

static void print_info_json(const struct info *info) {
    const struct tw_corpus *const corpus = &info->corpus;
    const struct tw_dataset *const about = &corpus->about;
    static const char *const KINDS[] = {"text", "ids", "llm.c", "megatron", "shard", "dataset"};
    char hex[TW_ID_HEX_BYTES];
    (void)printf("{\"path\": ");
    tw_json_string_print(stdout, info->path);
    (void)printf(", \"kind\": \"%s\", \"bytes\": %" PRIu64 ", \"files\": %" PRIu32
                 ", \"files_here\": %" PRIu32,
                 KINDS[corpus->kind], corpus->bytes, corpus->files_count, info->here);
    if (corpus->kind == TW_CORPUS_DATASET) {
        tw_id_hex(&corpus->digest, hex);
        (void)printf(", \"sha256\": \"%s\", \"heldout\": %.6g", hex,
                     about->heldout_millionths / 1e6);
    }
    if (about->vocab != 0) {
        tw_id_hex(&about->tokenizer, hex);
        (void)printf(", \"vocab\": %" PRIu32 ", \"tokenizer\": \"%s\"", about->vocab,
                     tw_id_is_zero(&about->tokenizer) ? "bytes" : hex);
        if (about->separator >= 0) (void)printf(", \"separator\": %" PRId64, about->separator);
        (void)printf(", \"answers\": %s", about->has_answers ? "true" : "false");
    }
    (void)printf(", \"sources\": [");
    for (uint32_t i = 0; i < about->sources_count; i++) {
        const struct sums sums = sum(corpus, i);
        (void)printf(
            "%s{\"name\": \"%s\", \"weight\": %.6g, \"files\": %" PRIu32 ", \"bytes\": %" PRIu64
            ", \"tokens\": %" PRIu64 ", \"heldout_tokens\": %" PRIu64,
            i > 0 ? ", " : "", about->sources[i].name, about->sources[i].weight_millionths / 1e6,
            sums.shards, sums.bytes, sums.tokens[0], sums.tokens[1]);
        if (has_documents(corpus)) {
            (void)printf(", \"documents\": %" PRIu64 ", \"heldout_documents\": %" PRIu64,
                         sums.documents[0], sums.documents[1]);
        }
        (void)printf("}");
    }
    (void)printf("]");
    if (info->is_verify) {
        (void)printf(", \"verified\": %s", is_pinned(corpus) ? "true" : "false");
    }
}

enum tw_exit engine_info(int argc, char **argv) {
    static struct info info;
    struct tw_error err;
    enum tw_status status = parse_info(&info, argc, argv, &err);
    if (status == TW_OK) status = open_all(&info, &err);
    if (status == TW_OK && info.is_verify) status = verify(&info, &err);
    if (status == TW_OK) {
        if (info.json) {
            print_info_json(&info);
        } else {
            print_numbers(&info);
        }
        status = print_samples(&info, &err);
    }
    if (status == TW_OK && info.is_verify && !info.json) {
        (void)printf("%s", is_pinned(&info.corpus)
                               ? "\nEvery byte matches its checksum.\n"
                               : "\nEvery byte can be read; these data have no checksums.\n");
    }
    tw_token_reader_deinit(&info.reader);
    tw_corpus_close(&info.corpus);
    tw_tokenizer_destroy(info.tokenizer);
    return status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
}

/* ---- data prepare ---------------------------------------------------------------------------- */

enum { MILLION = 1000000, HELDOUT_MIN = MILLION / 1000 /* smallest data.heldout of a run */ };

struct command {
    struct tw_prepare_options options;
    const char *text, *heldout, *shard_tokens, *threads, *tokenizer; /* arguments that are not
                                                                        parsed yet */
    char names[TW_DATASET_SOURCES_MAX][TW_DATASET_NAME_BYTES];
    uint64_t weights[TW_DATASET_SOURCES_MAX]; /* weights in millionths, as typed; 0: not given */
    const char **inputs;                      /* inputs of all sources, concatenated */
    uint32_t inputs_count;
};

/* ---- sources --------------------------------------------------------------------------------- */

/* Parses the argument NAME or NAME=WEIGHT, which begins a source. */
static enum tw_status begin_source(struct command *command, const char *text,
                                   struct tw_error *err) {
    static const struct tw_unit SHARE[] = {{"", MILLION}, {"%", MILLION / 100}, {NULL, 0}};
    struct tw_prepare_options *const options = &command->options;
    const size_t length = strcspn(text, "=");
    const uint32_t s = options->sources_count;
    if (s == TW_DATASET_SOURCES_MAX) {
        return tw_fail(err, TW_CONFIG, "more than %d sources", TW_DATASET_SOURCES_MAX);
    }
    if (length == 0 || length >= TW_DATASET_NAME_BYTES ||
        strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != length) {
        return tw_fail(err, TW_CONFIG,
                       "--source %.60s: a name has 1 to %d of the characters a-z, 0-9 and -, and "
                       "after an = its weight: prose=0.7",
                       text, TW_DATASET_NAME_BYTES - 1);
    }
    for (uint32_t i = 0; i < s; i++) {
        if (strlen(command->names[i]) == length && memcmp(command->names[i], text, length) == 0) {
            return tw_fail(err, TW_CONFIG, "two sources are called %s", command->names[i]);
        }
    }
    if (text[length] == '=' &&
        (!tw_value_parse(text + length + 1, SHARE, &command->weights[s]) ||
         command->weights[s] == 0 || command->weights[s] > (uint64_t)1000 * MILLION)) {
        return tw_fail(err, TW_CONFIG,
                       "--source %.60s: a weight is a number such as 0.7, 70%% or 3", text);
    }
    memcpy(command->names[s], text, length);
    options->sources[s] = (struct tw_prepare_source){
        .name = command->names[s], .inputs = command->inputs + command->inputs_count};
    options->sources_count++;
    return TW_OK;
}

static enum tw_status add_input(struct command *command, const char *path, struct tw_error *err) {
    if (path[0] == 0) return tw_fail(err, TW_CONFIG, "an input without a name");
    if (command->options.sources_count == 0) TW_TRY(begin_source(command, "text", err));
    command->inputs[command->inputs_count++] = path;
    command->options.sources[command->options.sources_count - 1].inputs_count++;
    return TW_OK;
}

static enum tw_status share_weights(struct command *command, struct tw_error *err) {
    struct tw_prepare_options *const options = &command->options;
    const uint32_t count = options->sources_count;
    uint32_t weighed = 0, shares[TW_DATASET_SOURCES_MAX];
    for (uint32_t i = 0; i < count; i++) weighed += command->weights[i] > 0;
    if (weighed == 0) return TW_OK;
    if (weighed < count) {
        return tw_fail(err, TW_CONFIG,
                       "weights for some sources and not for others: give every source one, or "
                       "none");
    }
    const uint32_t small = tw_dataset_shares(command->weights, count, shares);
    if (small < count) {
        return tw_fail(err, TW_CONFIG, "the weight of the source %s is less than 0.01%% of all",
                       command->names[small]);
    }
    for (uint32_t i = 0; i < count; i++) options->sources[i].weight_millionths = shares[i];
    return TW_OK;
}

/* ---- options --------------------------------------------------------------------------------- */

static enum tw_status set_number(const char *name, const char *text, const struct tw_unit *units,
                                 uint64_t least, uint64_t most, uint64_t *value,
                                 struct tw_error *err) {
    if (tw_value_parse(text, units, value) && *value >= least && *value <= most) return TW_OK;
    return tw_fail(err, TW_CONFIG, "%s %.60s: a whole number from %llu to %llu", name, text,
                   (unsigned long long)least, (unsigned long long)most);
}

static enum tw_status set_heldout(struct command *command, struct tw_error *err) {
    static const struct tw_unit UNITS[] = {{"", MILLION}, {"%", MILLION / 100}, {NULL, 0}};
    uint64_t value = 0;
    if (!tw_value_parse(command->heldout, UNITS, &value) || value < HELDOUT_MIN ||
        value > MILLION / 2) {
        return tw_fail(err, TW_CONFIG, "--heldout %.60s: a share from 0.1%% to 50%%, such as 1%%",
                       command->heldout);
    }
    command->options.heldout_millionths = (uint32_t)value;
    return TW_OK;
}

static enum tw_status set_text(struct command *command, struct tw_error *err) {
    static const char *const UNITS[] = {
        [TW_TEXT_PASSAGES] = "passages", [TW_TEXT_LINES] = "lines", [TW_TEXT_WHOLE] = "whole"};
    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(command->text, UNITS[i]) != 0) continue;
        command->options.unit = (enum tw_text_unit)i;
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG, "--text %.60s: it is passages, lines or whole", command->text);
}

/* Converts the typed values to options. */
static enum tw_status finish_options(struct command *command, struct tw_error *err) {
    static const struct tw_unit PLAIN[] = {{"", 1}, {NULL, 0}};
    static const struct tw_unit COUNT[] = {{"", 1}, {"k", 1000}, {"m", MILLION}, {NULL, 0}};
    struct tw_prepare_options *const options = &command->options;
    uint64_t value = 0;
    TW_TRY(set_text(command, err));
    TW_TRY(set_heldout(command, err));
    TW_TRY(set_number("--shard-tokens", command->shard_tokens, COUNT, TW_PREPARE_SHARD_TOKENS_MIN,
                      TW_PREPARE_SHARD_TOKENS_MAX, &value, err));
    options->shard_tokens = (uint32_t)value;
    value = tw_machine_processors();
    if (value > TW_PREPARE_THREADS_MAX) value = TW_PREPARE_THREADS_MAX;
    if (command->threads != NULL) {
        TW_TRY(set_number("--threads", command->threads, PLAIN, 1, TW_PREPARE_THREADS_MAX, &value,
                          err));
    }
    options->threads = (uint32_t)value;
    if (strcmp(command->tokenizer, "bytes") != 0) options->tokenizer = command->tokenizer;
    if (options->is_chat) options->field = "chat";
    if (options->field[0] == 0 || strlen(options->field) >= TW_JSON_FIELD_BYTES) {
        return tw_fail(err, TW_CONFIG, "--field: a name of 1 to %d bytes", TW_JSON_FIELD_BYTES - 1);
    }
    if (options->out == NULL || command->inputs_count == 0) {
        return tw_fail(err, TW_CONFIG,
                       "usage: thinwire data prepare INPUT... --out DIR [--tokenizer FILE]; "
                       "`thinwire help data` tells more");
    }
    if (strlen(options->out) > 900 || options->out[0] == 0) {
        return tw_fail(err, TW_CONFIG, "--out: a path of 1 to 900 bytes");
    }
    return share_weights(command, err);
}

static enum tw_status unknown(const char *word, const char *const *names, unsigned count,
                              struct tw_error *err) {
    const char *const near = tw_nearest(word, names, count);
    return tw_fail(err, TW_CONFIG, "data prepare: `%.60s` is unknown%s%s; see `thinwire help data`",
                   word, near != NULL ? "; did you mean " : "", near != NULL ? near : "");
}

static enum tw_status parse_prepare(struct command *command, int argc, char **argv,
                                    struct tw_error *err) {
    const struct {
        const char *name, **text;
        bool *flag;
    } OPTIONS[] = {
        {"--out", &command->options.out, NULL},
        {"--tokenizer", &command->tokenizer, NULL},
        {"--eos", &command->options.eos, NULL},
        {"--field", &command->options.field, NULL},
        {"--text", &command->text, NULL},
        {"--heldout", &command->heldout, NULL},
        {"--shard-tokens", &command->shard_tokens, NULL},
        {"--threads", &command->threads, NULL},
        {"--source", NULL, NULL},
        {"--plain", NULL, &command->options.is_plain},
        {"--chat", NULL, &command->options.is_chat},
        {"--skip-bad", NULL, &command->options.skip_bad},
        {"--restart", NULL, &command->options.is_restart},
        {"--json", NULL, &command->options.json},
    };
    enum { COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };
    const char *names[COUNT];
    for (unsigned k = 0; k < COUNT; k++) names[k] = OPTIONS[k].name;
    for (int i = 3; i < argc; i++) {
        if (argv[i][0] != '-') {
            TW_TRY(add_input(command, argv[i], err));
            continue;
        }
        const size_t size = strcspn(argv[i], "=");
        unsigned k = 0;
        while (k < COUNT && (strlen(names[k]) != size || memcmp(names[k], argv[i], size) != 0)) k++;
        if (k == COUNT) return unknown(argv[i], names, COUNT, err);
        if (OPTIONS[k].flag != NULL) {
            if (argv[i][size] == '=') return tw_fail(err, TW_CONFIG, "%s has no value", names[k]);
            *OPTIONS[k].flag = true;
            continue;
        }
        const char *value = argv[i] + size + 1;
        if (argv[i][size] != '=') value = ++i < argc ? argv[i] : NULL;
        if (value == NULL) return tw_fail(err, TW_CONFIG, "%s wants a value", names[k]);
        if (OPTIONS[k].text != NULL) *OPTIONS[k].text = value;
        if (OPTIONS[k].text == NULL) TW_TRY(begin_source(command, value, err));
    }
    return finish_options(command, err);
}

enum tw_exit engine_prepare(int argc, char **argv) {
    static struct command command; /* too large for the stack */
    struct tw_prepare_summary summary = {.can_skip = false};
    struct tw_error err;
    command.options.field = "text";
    command.text = "passages";
    command.heldout = "1%";
    command.shard_tokens = "8m";
    command.tokenizer = "bytes";
    command.inputs = calloc((size_t)argc, sizeof(*command.inputs));
    if (command.inputs == NULL) {
        (void)tw_fail(&err, TW_NOMEM, "no memory for the command line");
        return engine_fail(&err);
    }
    tw_signals_catch(true);
    enum tw_status status = parse_prepare(&command, argc, argv, &err);
    if (status == TW_OK) status = tw_prepare(&command.options, &summary, &err);
    free(command.inputs);
    const enum tw_exit rc = status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
    if (rc != TW_EXIT_OK && summary.can_skip) {
        tw_page_say("--skip-bad counts and leaves out such documents and files; --plain "
                    "reads JSON, CSV and markup as plain text");
    }
    /* An interrupted call exits with TW_EXIT_FAILURE, because the data are not at fault. */
    return status == TW_AGAIN ? TW_EXIT_FAILURE : rc;
}

/* ---- data weigh: the weights of a dataset's sources ------------------------------------------ */

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

static void print_weights_json(const struct tw_dataset *dataset, const char *hex,
                               bool has_changed) {
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
        tw_page_say("usage: thinwire data weigh DIR NAME=SHARE ... (or `size`); "
                    "`thinwire help data` tells more");
        return TW_EXIT_USAGE;
    }
    enum tw_status status = tw_dataset_read(argv[3], &dataset, &before, &err);
    if (status == TW_OK) status = weigh(&dataset, argc, argv, &err);
    if (status == TW_OK) status = write_index(argv[3], &dataset, &after, &err);
    if (status == TW_OK) {
        const bool has_changed = !tw_id_equal(&before, &after);
        tw_id_hex(&after, hex);
        if (is_json)
            print_weights_json(&dataset, hex, has_changed);
        else
            print_text(&dataset, argv[3], hex, has_changed);
    }
    free(dataset.shards);
    return status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
}

/* ---- data ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    enum tw_exit (*run)(int argc, char **argv);
} VERBS[] = {
    {"prepare", engine_prepare},
    {"info", engine_info},
    {"weigh", engine_weigh},
};
enum { VERBS_COUNT = sizeof(VERBS) / sizeof(VERBS[0]) };

enum tw_exit engine_data(int argc, char **argv) {
    const char *const word = argc > 2 ? argv[2] : NULL;
    const char *names[VERBS_COUNT];
    for (unsigned i = 0; i < VERBS_COUNT; i++) {
        names[i] = VERBS[i].name;
        if (word != NULL && strcmp(word, names[i]) == 0) return VERBS[i].run(argc, argv);
    }
    const char *const near = word != NULL ? tw_nearest(word, names, VERBS_COUNT) : NULL;
    if (near != NULL) {
        tw_page_say("data: did you mean `data %s`?", near);
    } else {
        tw_page_say(
            "data: `data prepare INPUT... --out DIR` makes a dataset, `data info "
            "PATH` shows the contents of a text or a dataset; `thinwire help data` tells more");
    }
    return TW_EXIT_USAGE;
}
