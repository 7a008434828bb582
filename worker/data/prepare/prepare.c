#include "worker/data/prepare/prepare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/units.h"
#include "proto/dataset.h"
#include "worker/data/prepare/prepare_block.h"
#include "worker/data/prepare/prepare_shards.h"
#include "worker/support/out_file.h"
#include "worker/support/signals.h"
#include "worker/support/utf8.h"
#include "worker/tokenizer/text_ends.h"

#define TW_PREPARE_INPUTS_FILE "prepare.inputs"

struct tw_prepare_report {
    bool is_quiet, json, is_terminal;
    uint64_t inputs_bytes;      /* size of all inputs on disk */
    uint64_t taken_bytes;       /* bytes of the inputs read so far */
    uint64_t first_taken_bytes; /* value of taken_bytes when this process began */
    struct tw_prepare_counts first;
    double start_s, shown_s;
    size_t swollen; /* 1 + the last input that was named for its ratio; 0: none yet */
    uint64_t swollen_files;
};

/* ---- report ---------------------------------------------------------------------------------- */

enum { LINE_BYTES = 200, BAR_CELLS = 24, WIDTH_UNKNOWN = 120 };
static const double SHOW_S = 0.2, PIPE_S = 30;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void report_start(struct tw_prepare_report *report, const struct tw_prepare_options *options,
                         uint64_t inputs_bytes) {
    memset(report, 0, sizeof(*report));
    report->is_quiet = options->is_quiet;
    report->json = options->json;
    report->is_terminal = isatty(STDERR_FILENO) == 1;
    report->inputs_bytes = inputs_bytes;
    report->start_s = report->shown_s = now_s();
}

/* Sets the progress at which this process begins: 0, or the progress of the earlier call that it
 * continues. */
static void report_from(struct tw_prepare_report *report, const struct tw_prepare_counts *counts,
                        uint64_t taken_bytes) {
    char at[TW_UNITS_BYTES], all[TW_UNITS_BYTES];
    report->first = *counts;
    report->first_taken_bytes = report->taken_bytes = taken_bytes;
    if (taken_bytes == 0 || report->is_quiet || report->json) return;
    (void)fprintf(stderr, "continues at %s of %s\n", tw_units_bytes(at, (double)taken_bytes),
                  tw_units_bytes(all, (double)report->inputs_bytes));
}

/* ---- progress -------------------------------------------------------------------------------- */

static double rate(uint64_t now, uint64_t first, double took_s) {
    return took_s > 0 ? (double)(now - first) / took_s : (double)NAN;
}

static double left_s(const struct tw_prepare_report *report, double took_s) {
    const double done = (double)(report->taken_bytes - report->first_taken_bytes);
    if (!(done > 0) || report->taken_bytes > report->inputs_bytes) return (double)NAN;
    return (double)(report->inputs_bytes - report->taken_bytes) / done * took_s;
}

static void bar(char cells[BAR_CELLS + 1], double share) {
    const int full = (int)(share * BAR_CELLS);
    for (int i = 0; i < BAR_CELLS; i++) cells[i] = i < full ? '#' : '.';
    cells[BAR_CELLS] = 0;
}

static size_t width_of_terminal(void) {
    struct winsize size = {0};
    const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20;
    return is_known ? size.ws_col - 1u : WIDTH_UNKNOWN;
}

static void show(const struct tw_prepare_report *report, const struct tw_prepare_counts *counts,
                 double took_s) {
    char line[LINE_BYTES], cells[BAR_CELLS + 1], speed[TW_UNITS_BYTES], tokens[TW_UNITS_BYTES],
        all[TW_UNITS_BYTES], left[TW_UNITS_BYTES];
    const double share = report->inputs_bytes == 0
                             ? 1
                             : fmin(1, (double)report->taken_bytes / (double)report->inputs_bytes);
    bar(cells, share);
    (void)snprintf(
        line, sizeof(line), "%s %3.0f %%  %s/s  %s tokens/s  %s tokens  %s left", cells,
        100 * share,
        tw_units_bytes(speed, rate(counts->text_bytes, report->first.text_bytes, took_s)),
        tw_units_short(tokens, rate(counts->tokens, report->first.tokens, took_s)),
        tw_units_short(all, (double)counts->tokens),
        tw_units_duration(left, left_s(report, took_s)));
    if (report->is_terminal && strlen(line) > width_of_terminal()) line[width_of_terminal()] = 0;
    (void)fprintf(stderr, "%s%s%s", report->is_terminal ? "\r\033[K" : "", line,
                  report->is_terminal ? "" : "\n");
}

/* Prints progress if it is due. */
static void report_tick(struct tw_prepare_report *report, const struct tw_prepare_counts *counts,
                        uint64_t taken_bytes) {
    const double now = now_s();
    report->taken_bytes = taken_bytes;
    if (report->is_quiet || now - report->shown_s < (report->is_terminal ? SHOW_S : PIPE_S)) return;
    report->shown_s = now;
    if (!report->json) {
        show(report, counts, now - report->start_s);
        return;
    }
    (void)printf("{\"event\": \"progress\", \"bytes\": %" PRIu64 ", \"bytes_all\": %" PRIu64
                 ", \"documents\": %" PRIu64 ", \"tokens\": %" PRIu64 "}\n",
                 report->taken_bytes, report->inputs_bytes, counts->documents, counts->tokens);
    (void)fflush(stdout);
}

/* Ends the progress line, so that a message can follow. */
static void report_break(struct tw_prepare_report *report) {
    if (!report->is_quiet && !report->json && report->is_terminal) (void)fputc('\n', stderr);
}

/* Text is packed to a third or a tenth. Above this ratio a file is hardly text, and may be made to
 * fill the disk. */
enum { SWOLLEN_RATIO = 100 };
#define SWOLLEN_BYTES (UINT64_C(16) << 20) /* smaller texts fill no disk */

/* Names a packed input, once, as soon as its text is far larger than the file. */
static void report_swollen(struct tw_prepare_report *report, const struct tw_block *block,
                           const char *path) {
    char packed[TW_UNITS_BYTES], text[TW_UNITS_BYTES];
    const uint64_t bytes = block->at + block->bytes;
    if (block->kind == TW_INPUT_TOKENS || report->swollen == block->file + 1 ||
        bytes < SWOLLEN_BYTES || bytes / SWOLLEN_RATIO < block->taken)
        return;
    report->swollen = block->file + 1;
    report->swollen_files++;
    if (report->is_quiet) return;
    report_break(report);
    (void)fprintf(stderr,
                  "thinwire: %s: %s of the file have become %s of text so far: if that is not "
                  "meant, stop with ctrl-c and leave the file out\n",
                  tw_prepare_shown_path(path), tw_units_bytes(packed, (double)block->taken),
                  tw_units_bytes(text, (double)bytes));
}

/* ---- final report ---------------------------------------------------------------------------- */

static void end_json(const struct tw_prepare_options *options,
                     const struct tw_prepare_summary *summary, double took_s) {
    const struct tw_prepare_counts *const counts = &summary->counts;
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(&summary->dataset, hex);
    (void)printf("{\"event\": \"done\", \"out\": ");
    tw_json_string_print(stdout, options->out);
    (void)printf(", \"sha256\": \"%s\", \"files\": %" PRIu64 ", \"text_bytes\": %" PRIu64
                 ", \"documents\": %" PRIu64 ", \"tokens\": %" PRIu64
                 ", \"heldout_documents\": %" PRIu64 ", \"heldout_tokens\": %" PRIu64
                 ", \"train_shards\": %" PRIu32 ", \"heldout_shards\": %" PRIu32,
                 hex, counts->files, counts->text_bytes, counts->documents, counts->tokens,
                 counts->heldout_documents, counts->heldout_tokens, summary->train_shards,
                 summary->heldout_shards);
    (void)printf(", \"answer_tokens\": %" PRIu64 ", \"names\": %" PRIu64 ", \"blank\": %" PRIu64,
                 counts->answer_tokens, counts->names, counts->blank);
    (void)printf(", \"invalid_bytes\": %" PRIu64 ", \"lost_bytes\": %" PRIu64
                 ", \"binary_files\": %" PRIu64 ", \"empty_files\": %" PRIu64
                 ", \"hidden_files\": %" PRIu64 ", \"passed_members\": %" PRIu64
                 ", \"bad\": %" PRIu64 ", \"read_as\": {",
                 counts->invalid_bytes, counts->lost_bytes, counts->binary_files,
                 counts->empty_files, summary->hidden_files, counts->passed_members, counts->bad);
    for (unsigned kind = 0, shown = 0; kind < TW_INPUT_KINDS; kind++) {
        if (counts->kinds[kind] == 0) continue;
        (void)printf("%s\"%s\": %" PRIu64, shown++ > 0 ? ", " : "",
                     tw_input_kind_name((enum tw_input_kind)kind), counts->kinds[kind]);
    }
    (void)printf("}, \"first_bad\": ");
    tw_json_string_print(stdout, summary->first_bad);
    (void)printf(", \"was_done\": %s, \"elapsed_s\": %.3f}\n", summary->was_done ? "true" : "false",
                 took_s);
    (void)fflush(stdout);
}

static void row(const char *name, const char *value, const char *remark) {
    (void)printf("  %-11s %s%s\n", name, value, remark);
}

/* Prints the files of each kind, for example: 3 JSON Lines (field "text"), 1 plain text. */
static void end_kinds(const struct tw_prepare_options *options,
                      const struct tw_prepare_counts *counts) {
    char text[400] = "", count[TW_UNITS_BYTES];
    size_t used = 0;
    for (unsigned kind = 0; kind < TW_INPUT_KINDS; kind++) {
        const bool has_field = kind != TW_INPUT_TEXT && kind != TW_INPUT_TOKENS;
        if (counts->kinds[kind] == 0) continue;
        used += (size_t)snprintf(
            text + used, sizeof(text) - used, "%s%s %s%s%.60s%s", used > 0 ? ", " : "",
            tw_units_count(count, (double)counts->kinds[kind]),
            tw_input_kind_name((enum tw_input_kind)kind), has_field ? " (field \"" : "",
            has_field ? options->field : "", has_field ? "\")" : "");
    }
    row("read as", text, "");
}

static void end_passed_over(const struct tw_prepare_summary *summary) {
    const struct tw_prepare_counts *const counts = &summary->counts;
    char count[TW_UNITS_BYTES], text[sizeof(summary->first_bad) + 32];
    const struct {
        const char *name, *remark;
        uint64_t count;
    } ROWS[] = {
        {"not UTF-8", " bytes, kept as they are", counts->invalid_bytes},
        {"lost", " bytes without a token in the vocabulary", counts->lost_bytes},
        {"names", " of special tokens in the text, kept as text", counts->names},
        {"blank", " documents without text, left out", counts->blank},
        {"binary", " files in folders, skipped", counts->binary_files},
        {"empty", " files in folders, skipped", counts->empty_files},
        {"hidden", " files, folders and links in folders, skipped", summary->hidden_files},
        {"passed", " members of tar archives that hold no text", counts->passed_members},
        {"bad", " skipped; the first:", counts->bad},
    };
    for (unsigned i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        if (ROWS[i].count == 0) continue;
        row(ROWS[i].name, tw_units_count(count, (double)ROWS[i].count), ROWS[i].remark);
    }
    if (counts->bad == 0) return;
    (void)snprintf(text, sizeof(text), "%s", summary->first_bad);
    row("", text, "");
}

static void end_table(const struct tw_prepare_report *report,
                      const struct tw_prepare_options *options,
                      const struct tw_prepare_summary *summary) {
    const struct tw_prepare_counts *const counts = &summary->counts;
    char a[TW_UNITS_BYTES], b[TW_UNITS_BYTES], c[TW_UNITS_BYTES], text[160], hex[TW_ID_HEX_BYTES];
    const double took_s = now_s() - report->start_s;
    (void)printf("%s%s\n", options->out, summary->was_done ? " is done already" : "");
    (void)snprintf(text, sizeof(text), "%s in %s file%s",
                   tw_units_bytes(a, (double)counts->text_bytes),
                   tw_units_count(b, (double)counts->files), counts->files == 1 ? "" : "s");
    row("text", text, "");
    end_kinds(options, counts);
    const double each = (double)counts->text_bytes / fmax(1, (double)counts->documents);
    (void)snprintf(text, sizeof(text), "%s, %s each", tw_units_count(a, (double)counts->documents),
                   tw_units_bytes(b, each));
    row("documents", text, "");
    (void)snprintf(text, sizeof(text), "%s, %.2f bytes each",
                   tw_units_count(a, (double)counts->tokens),
                   (double)counts->text_bytes / fmax(1, (double)counts->tokens));
    row("tokens", text, "");
    (void)snprintf(
        text, sizeof(text), "%s document%s, %s tokens (%s)",
        tw_units_count(a, (double)counts->heldout_documents),
        tw_units_s((double)counts->heldout_documents),
        tw_units_count(b, (double)counts->heldout_tokens),
        tw_units_percent(c, (double)counts->heldout_tokens / fmax(1, (double)counts->tokens)));
    row("held out", text, "");
    if (options->is_chat) {
        (void)snprintf(
            text, sizeof(text), "%s tokens (%s)", tw_units_count(a, (double)counts->answer_tokens),
            tw_units_percent(c, (double)counts->answer_tokens / fmax(1, (double)counts->tokens)));
        row("answers", text, "");
    }
    (void)snprintf(text, sizeof(text), "%" PRIu32 " for training, %" PRIu32 " held out",
                   summary->train_shards, summary->heldout_shards);
    row("shards", text, "");
    end_passed_over(summary);
    if (!summary->was_done) {
        (void)snprintf(
            text, sizeof(text), "%s, %s/s", tw_units_duration(a, took_s),
            tw_units_bytes(b, rate(counts->text_bytes, report->first.text_bytes, took_s)));
        row("took", text, "");
    }
    tw_id_hex(&summary->dataset, hex);
    row("SHA-256", hex, "");
    (void)printf("next: thinwire run new NAME --data %s\n", options->out);
}

/* Prints the final table or, with --json, the final event. */
static void report_end(struct tw_prepare_report *report, const struct tw_prepare_options *options,
                       const struct tw_prepare_summary *summary) {
    if (report->is_quiet) return;
    if (report->json) {
        end_json(options, summary, now_s() - report->start_s);
        return;
    }
    if (report->is_terminal) (void)fprintf(stderr, "\r\033[K");
    end_table(report, options, summary);
    (void)fflush(stdout);
}

/* ---- prepare --------------------------------------------------------------------------------- */

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
    if (options->is_quiet || options->is_chat) return TW_OK;
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
    if (path == NULL && prepare->options->is_chat) {
        return tw_fail(err, TW_CONFIG, "--chat needs --tokenizer: bytes have no special tokens");
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
                                 options->is_chat, err));
    prepare->has_coder = true;
    if (options->is_chat && options->eos != NULL)
        prepare->coder.separator = (int64_t)tw_tokenizer_eos(prepare->tokenizer);
    prepare->coder.field = options->field;
    prepare->coder.is_plain = options->is_plain;
    prepare->coder.heldout_millionths = options->heldout_millionths;
    dataset->vocab = tw_tokenizer_vocab(prepare->tokenizer);
    dataset->separator = prepare->coder.separator;
    dataset->has_answers = options->is_chat;
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
    int used =
        snprintf(text, sizeof(text), "3 %s %" PRIu32 " %" PRId64 " %" PRId64 " %d %d %d %s %u %u\n",
                 hex, dataset->vocab, dataset->separator, prepare->coder.closer, (int)options->unit,
                 options->is_plain, options->is_chat, options->field, dataset->heldout_millionths,
                 options->shard_tokens);
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

/* ---- continue -------------------------------------------------------------------------------- */

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
            if (block->file < prepare->inputs.count)
                report_swollen(&prepare->report, block, prepare->inputs.files[block->file].path);
            status = tw_prepare_write(writer, block, err);
            tw_blocks_release(blocks, block);
        }
        report_tick(&prepare->report, &writer->state.counts, writer->taken_bytes);
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

/* ---- entry point ----------------------------------------------------------------------------- */

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
    report_start(&prepare->report, prepare->options, prepare->inputs.bytes);
    summary->was_done = writer->state.is_done;
    if (summary->was_done) {
        status = read_index(prepare, &summary->dataset, err);
    } else {
        report_from(&prepare->report, &writer->state.counts, writer->taken_bytes);
        status = run_pipeline(prepare, err);
        if (status == TW_OK) status = write_index(prepare, &summary->dataset, err);
        if (status != TW_OK) report_break(&prepare->report);
    }
    return status;
}

static void summarize(const struct prepare *prepare, struct tw_prepare_summary *summary) {
    const struct tw_prepare_writer *const writer = &prepare->writer;
    const struct tw_dataset *const dataset = &writer->shards.dataset;
    summary->counts = writer->state.counts;
    summary->hidden_files = prepare->inputs.hidden;
    summary->swollen_files = prepare->report.swollen_files;
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
        report_end(&prepare->report, options, summary);
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
