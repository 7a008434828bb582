#include "worker/data/prepare/prepare_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "worker/support/utf8.h"

enum { LINE_BYTES = 200, BAR_CELLS = 24, WIDTH_UNKNOWN = 120 };
static const double SHOW_S = 0.2, PIPE_S = 30;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tw_prepare_report_start(struct tw_prepare_report *report,
                             const struct tw_prepare_options *options, uint64_t inputs_bytes) {
    memset(report, 0, sizeof(*report));
    report->is_quiet = options->is_quiet;
    report->json = options->json;
    report->is_terminal = isatty(STDERR_FILENO) == 1;
    report->inputs_bytes = inputs_bytes;
    report->start_s = report->shown_s = now_s();
}

void tw_prepare_report_from(struct tw_prepare_report *report,
                            const struct tw_prepare_counts *counts, uint64_t taken_bytes) {
    char at[TW_UNITS_BYTES], all[TW_UNITS_BYTES];
    report->first = *counts;
    report->first_taken_bytes = report->taken_bytes = taken_bytes;
    if (taken_bytes == 0 || report->is_quiet || report->json) return;
    (void)fprintf(stderr, "continues at %s of %s\n", tw_units_bytes(at, (double)taken_bytes),
                  tw_units_bytes(all, (double)report->inputs_bytes));
}

/* ---- progress ---------------------------------------------------------------------------------
 */

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

void tw_prepare_report_tick(struct tw_prepare_report *report,
                            const struct tw_prepare_counts *counts, uint64_t taken_bytes) {
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

void tw_prepare_report_break(struct tw_prepare_report *report) {
    if (!report->is_quiet && !report->json && report->is_terminal) (void)fputc('\n', stderr);
}

/* ---- final report -----------------------------------------------------------------------------
 */

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

void tw_prepare_report_end(struct tw_prepare_report *report,
                           const struct tw_prepare_options *options,
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
