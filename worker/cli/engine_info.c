/* thinwire-engine data info: describes the contents of training data, with samples. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/units.h"
#include "worker/cli/engine_verb.h"
#include "worker/data/corpus.h"
#include "worker/support/signals.h"
#include "worker/support/utf8.h"
#include "worker/tokenizer/tokenizer_text.h"

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

static enum tw_status parse(struct info *info, int argc, char **argv, struct tw_error *err) {
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

static void print_json(const struct info *info) {
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
    enum tw_status status = parse(&info, argc, argv, &err);
    if (status == TW_OK) status = open_all(&info, &err);
    if (status == TW_OK && info.is_verify) status = verify(&info, &err);
    if (status == TW_OK) {
        if (info.json) {
            print_json(&info);
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
