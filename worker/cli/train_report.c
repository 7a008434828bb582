#include "worker/cli/train_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "proto/run/run_key.h"
#include "worker/engine/peak.h"
#include "worker/support/utf8.h"

enum { LINE_BYTES = 256, WIDTH_PIPE = 120 };
static const double SHOW_S = 0.2, PIPE_S = 10;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- before the start ---------------------------------------------------------------------------
 */

void tw_train_report_run(const struct tw_run *run, const struct tw_layout *layout,
                         const char *data_path, const struct tw_data *data, uint64_t steps) {
    char params[TW_UNITS_BYTES], tokens[TW_UNITS_BYTES], count[TW_UNITS_BYTES],
        batch[TW_UNITS_BYTES], bytes[TW_UNITS_BYTES];
    const struct tw_run_shape shape = tw_run_shape(run);
    const uint64_t step_tokens = (uint64_t)run->train.batch * run->model.context;
    (void)fprintf(stderr,
                  "%s\n"
                  "  Model       %s, %" PRIu32 " layer%s of width %" PRIu32 ", %" PRIu32 " head%s",
                  run->name, tw_run_key_word("model.family", run), run->model.layers,
                  tw_units_s(run->model.layers), run->model.width, shape.heads,
                  tw_units_s(shape.heads));
    if (shape.kv_heads != shape.heads) (void)fprintf(stderr, " on %" PRIu32, shape.kv_heads);
    (void)fprintf(
        stderr, ", context %" PRIu32 ", vocabulary %" PRIu32 "\n              %s parameters\n",
        run->model.context, run->model.vocab, tw_units_count(params, (double)layout->params));
    (void)fprintf(stderr,
                  "  Training    %s, %s schedule to %.3g; the run plans %s tokens\n"
                  "              %s steps of %s tokens (%" PRIu32 " x %" PRIu32 ")\n",
                  tw_run_key_word("train.optimizer", run), tw_run_key_word("train.schedule", run),
                  run->train.lr_millionths / 1e6, tw_units_short(tokens, (double)run->train.tokens),
                  tw_units_count(count, (double)steps), tw_units_count(batch, (double)step_tokens),
                  run->train.batch, run->model.context);
    (void)fprintf(stderr, "  Data        %s, %s\n              %s tokens to train on, %s held out",
                  data_path, tw_units_bytes(bytes, (double)data->bytes),
                  tw_units_count(tokens, (double)data->train_count),
                  tw_units_count(batch, (double)data->heldout_count));
    if (data->files_here < data->files_count) {
        (void)fprintf(stderr, "; %" PRIu32 " of %" PRIu32 " files are here", data->files_here,
                      data->files_count);
    }
    (void)fputc('\n', stderr);
}

static void print_bytes(const char *name, uint64_t bytes, const char *remark) {
    char text[TW_UNITS_BYTES];
    if (bytes == 0) return;
    (void)fprintf(stderr, "              %-16s %9s%s%s\n", name,
                  tw_units_bytes(text, (double)bytes), remark[0] != 0 ? "   " : "", remark);
}

void tw_train_report_plan(const struct tw_engine_plan *plan, const char *engine, double peak) {
    char text[TW_UNITS_BYTES], total[TW_UNITS_BYTES], limit[TW_UNITS_BYTES], remark[80];
    (void)fprintf(stderr, "  Arithmetic  %s", engine);
    if (peak > 0) {
        (void)fprintf(stderr, "\n              its matrix products alone reach %s (measured)",
                      tw_units_flops(text, peak));
    }
    (void)fprintf(stderr, "\n  Memory      %s of the %s there are\n",
                  tw_units_bytes(total, (double)plan->total),
                  tw_units_bytes(limit, (double)plan->limit));
    (void)snprintf(remark, sizeof(remark), "passes of %" PRIu32 " sequence%s%s", plan->micro_batch,
                   plan->micro_batch == 1 ? "" : "s",
                   plan->is_recomputed ? ", layers recomputed in the backward pass" : "");
    print_bytes("parameters", plan->parameters, "");
    print_bytes("gradients", plan->gradients, "");
    print_bytes("optimizer", plan->optimizer, "");
    print_bytes("packed weights", plan->weights, "");
    print_bytes("activations", plan->activations, remark);
    print_bytes("logits", plan->logits, "");
}

void tw_train_report_plan_json(const struct tw_run *run, const struct tw_layout *layout,
                               const struct tw_engine_plan *plan, const char *engine, double peak) {
    (void)printf("{\"event\": \"plan\", \"run\": \"%s\", \"family\": \"%s\", \"params\": %" PRIu64
                 ", \"engine\": \"%s\", \"compute\": \"%s\", \"threads\": %" PRIu32
                 ", \"micro_batch\": %" PRIu32 ", \"recompute\": %s, \"peak_flops_per_s\": %.6g, "
                 "\"flops_per_token\": %" PRIu64 ", ",
                 run->name, tw_run_key_word("model.family", run), layout->params, engine,
                 plan->type == TW_BF16 ? "bf16" : "fp32", plan->threads, plan->micro_batch,
                 plan->is_recomputed ? "true" : "false", peak, tw_engine_flops_token(run));
    (void)printf("\"memory_bytes\": {\"parameters\": %" PRIu64 ", \"gradients\": %" PRIu64
                 ", \"optimizer\": %" PRIu64 ", \"packed_weights\": %" PRIu64
                 ", \"activations\": %" PRIu64 ", \"logits\": %" PRIu64 ", \"total\": %" PRIu64
                 ", \"limit\": %" PRIu64 "}}\n",
                 plan->parameters, plan->gradients, plan->optimizer, plan->weights,
                 plan->activations, plan->logits, plan->total, plan->limit);
    (void)fflush(stdout);
}

/* ---- progress -----------------------------------------------------------------------------------
 */

struct line {
    char text[LINE_BYTES];
    size_t used;
};

static void TW_PRINTF(2, 3) append_text(struct line *line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(line->text + line->used, LINE_BYTES - line->used, fmt, args);
    va_end(args);
    if (n > 0) line->used += (size_t)n;
    if (line->used >= LINE_BYTES) line->used = LINE_BYTES - 1;
}

static double tokens_per_s(const struct tw_train_report *report) {
    return report->step_s > 0 ? (double)report->step_tokens / report->step_s : (double)NAN;
}

double tw_train_report_mfu(const struct tw_train_report *report) {
    if (!(report->peak_flops_s > 0 && report->step_s > 0)) return (double)NAN;
    /* The mean rate of steps cannot exceed the rate of the fastest step, so fmin() only removes
     * rounding. */
    return fmin(tokens_per_s(report) * (double)report->flops_token / report->peak_flops_s, 1);
}

static double left_s(const struct tw_train_report *report) {
    const uint64_t done = report->step - report->first_step;
    if (done == 0) return (double)NAN;
    return (now_s() - report->start_s) / (double)done * (double)(report->steps - report->step);
}

/* Returns the width to which lines are truncated. A line that the terminal wraps could not be
 * erased. */
static size_t width_of_terminal(void) {
    struct winsize size = {0};
    const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20;
    return is_known ? size.ws_col - 1u : WIDTH_PIPE;
}

/* Shows the most important values first, because a narrow terminal shows only the beginning. */
static void show(struct tw_train_report *report, bool is_last) {
    char step[TW_UNITS_BYTES], steps[TW_UNITS_BYTES], speed[TW_UNITS_BYTES], time[TW_UNITS_BYTES];
    struct line line = {.used = 0};
    append_text(&line, "step %s/%s", tw_units_count(step, (double)report->step),
                tw_units_count(steps, (double)report->steps));
    if (!is_last && report->step > report->first_step && report->step < report->steps) {
        append_text(&line, "  %s left", tw_units_duration(time, left_s(report)));
    }
    append_text(&line, "  loss %.3f", report->loss);
    if (isfinite(report->validation)) append_text(&line, " (held out %.3f)", report->validation);
    append_text(&line, "  %s tokens/s", tw_units_short(speed, tokens_per_s(report)));
    if (isfinite(tw_train_report_mfu(report)))
        append_text(&line, "  MFU %.0f %%", 100 * tw_train_report_mfu(report));
    if (report->skipped > 0)
        append_text(&line, "  %" PRIu64 " skipped: not finite", report->skipped);
    append_text(&line, "  norm %.2f  rate %.1e", report->grad_norm, report->lr);
    if (report->is_terminal && line.used > width_of_terminal()) {
        line.text[width_of_terminal()] = 0;
    }
    (void)fprintf(stderr, "%s%s%s", report->is_terminal ? "\r\033[K" : "", line.text,
                  report->is_terminal && !is_last ? "" : "\n");
    report->shown_s = now_s();
}

/* Begins a JSON event with the members that all events have. */
static void open_json(const struct tw_train_report *report, const char *event) {
    (void)printf("{\"event\": \"%s\", \"steps\": %" PRIu64 ", \"tokens\": %" PRIu64, event,
                 report->step, report->tokens);
}

/* Prints a member of a JSON object, unless its value is not finite. */
static void put_json(const char *name, double value) {
    if (isfinite(value)) (void)printf(", \"%s\": %.9g", name, value);
}

static void print_path(const char *path) {
    (void)printf(", \"path\": ");
    tw_json_string_print(stdout, path);
}

static void close_json(void) {
    (void)printf("}\n");
    (void)fflush(stdout);
}

void tw_train_report_step(struct tw_train_report *report, const struct tw_step_result *result,
                          float lr, double took_s) {
    report->step++;
    report->tokens += report->step_tokens;
    report->lr = (double)lr;
    report->grad_norm = (double)result->grad_norm;
    if (report->peak_flops_s > 0) {
        tw_peak_raise(&report->peak_flops_s,
                      (double)report->step_tokens * (double)report->flops_token / took_s);
    }
    report->step_s = report->step_s > 0 ? report->step_s + 0.1 * (took_s - report->step_s) : took_s;
    if (result->is_skipped) {
        report->skipped++;
    } else {
        const double loss = (double)result->loss;
        report->loss = isfinite(report->loss) ? report->loss + 0.05 * (loss - report->loss) : loss;
    }
    if (report->json) {
        open_json(report, "step");
        put_json("loss_nats", (double)result->loss);
        put_json("grad_norm", report->grad_norm);
        put_json("learning_rate", report->lr);
        put_json("tokens_per_s", (double)report->step_tokens / fmax(took_s, 1e-9));
        (void)printf(", \"skipped\": %s", result->is_skipped ? "true" : "false");
        close_json();
        return;
    }
    const double pause_s = report->is_terminal ? SHOW_S : PIPE_S;
    if (now_s() - report->shown_s > pause_s) show(report, false);
}

void tw_train_report_validation(struct tw_train_report *report, double nats) {
    report->validation = nats;
    if (report->json) {
        open_json(report, "validation");
        put_json("validation_nats", nats);
        close_json();
    } else if (!report->is_terminal && report->step > report->first_step &&
               report->step < report->steps) { /* the last step gets the final line instead */
        show(report, false);
    }
}

void tw_train_report_saved(struct tw_train_report *report, const char *path) {
    if (!report->json) return;
    open_json(report, "saved");
    print_path(path);
    close_json();
}

void tw_train_report_unsaved(struct tw_train_report *report, const char *path, const char *reason) {
    (void)fprintf(stderr, "%sthinwire: not saved at step %" PRIu64 ": %s\n",
                  report->is_terminal && !report->json ? "\r\033[K" : "", report->step, reason);
    if (!report->json) return;
    open_json(report, "unsaved");
    print_path(path);
    (void)printf(", \"reason\": ");
    tw_json_string_print(stdout, reason);
    close_json();
}

void tw_train_report_profile(const struct tw_train_report *report,
                             const struct tw_profile *profile) {
    if (!report->json) {
        if (report->is_terminal) (void)fputs("\r\033[K", stderr);
        tw_profile_print(stderr, profile);
        return;
    }
    open_json(report, "profile");
    (void)printf(", ");
    tw_profile_print_json(stdout, profile);
    close_json();
}

void tw_train_report_end(struct tw_train_report *report, const char *event, const char *path,
                         uint64_t bytes, const char *data_path) {
    char size[TW_UNITS_BYTES], time[TW_UNITS_BYTES];
    const double took_s = now_s() - report->start_s;
    if (report->json) {
        open_json(report, event);
        put_json("loss_nats", report->loss);
        put_json("validation_nats", report->validation);
        put_json("tokens_per_s", tokens_per_s(report));
        put_json("mfu_ratio", tw_train_report_mfu(report));
        (void)printf(", \"steps_skipped\": %" PRIu64, report->skipped);
        put_json("elapsed_s", took_s);
        if (path != NULL) print_path(path);
        close_json();
        return;
    }
    show(report, true);
    const bool is_stopped = strcmp(event, "interrupted") == 0;
    (void)fprintf(stderr, "%s after %s", is_stopped ? "stopped" : "finished",
                  tw_units_duration(time, took_s));
    if (isfinite(report->validation)) {
        (void)fprintf(stderr, ": %.4f nats per token on held-out text", report->validation);
    }
    (void)fputc('\n', stderr);
    if (path == NULL) return;
    (void)fprintf(stderr, "%s holds parameters and optimizer, %s\n", path,
                  tw_units_bytes(size, (double)bytes));
    if (!is_stopped) return;
    (void)fprintf(stderr, "continue with `thinwire train --from %s --data %s`\n", path, data_path);
}
