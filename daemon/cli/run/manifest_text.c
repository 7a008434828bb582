#include "daemon/cli/run/manifest_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/units.h"
#include "compress/codec.h"
#include "daemon/cli/run/run_memory.h"
#include "daemon/cli/run/run_traffic.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

enum tw_status cli_manifest_load(const char *path, struct tw_run *run, struct tw_error *err) {
    char text[TW_MANIFEST_BYTES_MAX + 1];
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        return tw_fail(err, TW_CONFIG, "%s: %s%s", path, strerror(errno),
                       errno == ENOENT ? "; `thinwire run new` writes a manifest" : "");
    }
    const size_t size = fread(text, 1, sizeof(text), file);
    const bool is_bad = ferror(file) != 0;
    (void)fclose(file);
    if (is_bad) return tw_fail(err, TW_CONFIG, "%s: cannot be read", path);
    if (size == sizeof(text)) {
        return tw_fail(err, TW_CONFIG, "%s is no manifest: one has at most %d KiB", path,
                       TW_MANIFEST_BYTES_MAX / 1024);
    }
    struct tw_error inner;
    if (tw_run_read(text, size, run, &inner) == TW_OK) return TW_OK;
    return tw_fail(err, TW_CONFIG, "%s: %s", path, inner.message);
}

/* Computes the memory of a node with the default configuration, which uses a GPU if there is one.
 */
static bool weigh(const struct tw_run *run, struct run_memory *memory) {
    static struct tw_config config;
    tw_config_defaults(&config, "thinwire");
    config.worker.device.kind = TW_DEVICE_AUTO;
    return run_memory_weigh(memory, &config, run, tw_machine_memory(), false);
}

json_t *cli_manifest_json(const struct tw_run *run, const char *path) {
    static struct tw_layout layout;
    struct run_memory memory;
    char text[TW_MANIFEST_BYTES_MAX + 1], hex[TW_ID_HEX_BYTES];
    size_t size;
    const struct tw_id id = tw_run_id(run);
    tw_id_hex(&id, hex);
    tw_run_encode(run, text, &size);
    text[size] = 0;
    json_t *const json =
        json_pack("{s:s,s:s,s:s?,s:I,s:s}", "id", hex, "name", run->name, "path", path,
                  "planned_outer_steps", (json_int_t)tw_run_outer_steps(run), "manifest", text);
    if (tw_layout_init(&layout, run, NULL) == TW_OK) {
        (void)json_object_set_new(json, "tensors", json_integer(layout.tensors_count));
        (void)json_object_set_new(json, "parameters", json_integer((json_int_t)layout.params));
    }
    if (weigh(run, &memory)) (void)json_object_set_new(json, "memory", run_memory_json(&memory));
    return json;
}

const char *cli_run_word(const struct tw_run *run, const char *key, char *text) {
    tw_run_key_format(tw_run_key_find(key), run, text);
    return text;
}

/* Prints the entries of model.tensors, one per line: "h.{0-11}.w  768 x 768". */
static void explain_entries(FILE *to, const char *list) {
    enum { ENTRIES_MAX = 12 };
    uint32_t entries = 0;
    while (*list != '\0') {
        const size_t name = strcspn(list, ":"), size = strcspn(list, " ");
        if (++entries <= ENTRIES_MAX) {
            (void)fprintf(to, "            %.*s  ", (int)name, list);
            for (size_t i = name + 1; i < size; i++)
                (void)fprintf(to, list[i] == 'x' ? " x " : "%c", list[i]);
            (void)fputc('\n', to);
        }
        list += size + (list[size] == ' ');
    }
    if (entries > ENTRIES_MAX)
        (void)fprintf(to, "            and %" PRIu32 " more (`model.tensors` of the file)\n",
                      entries - ENTRIES_MAX);
}

static void explain_tensors(FILE *to, const struct tw_run *run, const struct tw_layout *layout) {
    char params[TW_UNITS_BYTES], hex[TW_ID_HEX_BYTES];
    char rate[TW_RUN_VALUE_BYTES], schedule[TW_RUN_VALUE_BYTES];
    (void)fprintf(to, "  Model     any, by your own trainer: %" PRIu32 " tensor%s, %s parameters\n",
                  layout->tensors_count, tw_units_s(layout->tensors_count),
                  tw_units_count(params, (double)layout->params));
    explain_entries(to, run->model.tensors);
    (void)fprintf(to,
                  "            rate and optimizer are your trainer's own; one that attaches with "
                  "lr=\"run\" gets rate %s, %s\n",
                  cli_run_word(run, "train.lr", rate),
                  cli_run_word(run, "train.schedule", schedule));
    if (!tw_id_is_zero(&run->model.base)) {
        tw_id_hex(&run->model.base, hex);
        (void)fprintf(to, "            over weights with SHA-256 %s\n", hex);
    }
}

static void explain_family(FILE *to, const struct tw_run *run, const struct tw_layout *layout) {
    char params[TW_UNITS_BYTES];
    (void)fprintf(to,
                  "  Model     %s, %" PRIu32 " layer%s of width %" PRIu32 ", %" PRIu32
                  " head%s, context %" PRIu32 ": %s parameters\n",
                  run->model.family == TW_FAMILY_LLAMA ? "llama" : "gpt2", run->model.layers,
                  tw_units_s(run->model.layers), run->model.width, run->model.heads,
                  tw_units_s(run->model.heads), run->model.context,
                  tw_units_count(params, (double)layout->params));
}

/* Explains the optimizer, and the cost of Muon. */
static void explain_optimizer(FILE *to, const struct tw_run *run, const struct tw_layout *layout) {
    char rate[TW_RUN_VALUE_BYTES];
    const double cost = 100 * tw_run_muon_cost(run, layout);
    const bool is_muon = run->train.optimizer == TW_OPTIMIZER_MUON;
    if (run->model.family == TW_FAMILY_TENSORS) return;
    (void)fprintf(to, "            %s, rate %s", is_muon ? "Muon" : "AdamW",
                  cli_run_word(run, "train.lr", rate));
    (void)fprintf(to,
                  is_muon ? ": a step has about %.0f %% more arithmetic than with AdamW\n"
                          : "; Muon would add about %.0f %% to the arithmetic of a step\n",
                  cost);
}

static void explain_model(FILE *to, const struct tw_run *run, const struct tw_layout *layout) {
    char tokens[TW_UNITS_BYTES], batch[TW_UNITS_BYTES], steps[TW_UNITS_BYTES];
    const double per_step = (double)run->train.batch * run->model.context;
    if (run->model.family == TW_FAMILY_TENSORS) {
        explain_tensors(to, run, layout);
    } else {
        explain_family(to, run, layout);
    }
    (void)fprintf(to,
                  "  Training  %s tokens in all; %s per step and node, so %s steps each with "
                  "%" PRIu32 " node%s\n",
                  tw_units_short(tokens, (double)run->train.tokens),
                  tw_units_count(batch, per_step),
                  tw_units_count(steps, (double)run->train.tokens / per_step / run->sync.nodes),
                  run->sync.nodes, tw_units_s(run->sync.nodes));
    explain_optimizer(to, run, layout);
}

/* Explains when rounds take place. With clock pace, the period follows from a node's planned speed.
 */
static void explain_pace(FILE *to, const struct tw_run *run) {
    char interval[TW_UNITS_BYTES], step[TW_UNITS_BYTES];
    (void)fprintf(to, "%" PRIu32 " fragment%s, ", run->sync.fragments,
                  tw_units_s(run->sync.fragments));
    if (run->sync.pace == TW_PACE_CLOCK) {
        (void)fprintf(to,
                      "by the clock: a round every %s, so each fragment every %" PRIu32
                      " step%s of a node that takes %s per step\n",
                      tw_units_duration(interval, run->sync.pace_ms / 1e3), run->sync.period,
                      tw_units_s(run->sync.period),
                      tw_units_duration(step, (double)tw_run_step_us(run) / 1e6));
        if (run->sync.fragments == 1 && run->sync.topology == TW_TOPOLOGY_GROUP)
            (void)fprintf(to,
                          "            a node that takes longer than %s per step is in hardly any "
                          "round\n",
                          interval);
        return;
    }
    if (run->sync.period == 1) {
        (void)fprintf(to, "each every step, paced by steps\n");
    } else {
        (void)fprintf(to, "each every %" PRIu32 " steps, paced by steps\n", run->sync.period);
    }
    if (run->sync.weights == TW_WEIGHTS_TOKENS_RATE)
        (void)fprintf(to, "            a slow node is in few of these rounds: sync.pace = clock "
                          "suits very unequal nodes\n");
}

static void explain_together(FILE *to, const struct tw_run *run) {
    if (run->sync.together_millionths < 1000000)
        (void)fprintf(to,
                      "            together for %.3g %% of the budget, then each node alone; "
                      "`thinwire merge` makes one model of them at the end\n",
                      run->sync.together_millionths / 1e4);
}

static void explain_sync(FILE *to, const struct tw_run *run) {
    char preset[TW_RUN_VALUE_BYTES], topology[TW_RUN_VALUE_BYTES], sent[TW_RUN_VALUE_BYTES];
    char merge[TW_RUN_VALUE_BYTES], weights[TW_RUN_VALUE_BYTES];
    (void)fprintf(to, "  Sync      preset %s (%s): ", cli_run_word(run, "sync.preset", preset),
                  cli_run_word(run, "sync.topology", topology));
    explain_pace(to, run);
    if (run->sync.topology == TW_TOPOLOGY_SOLO) return;
    (void)fprintf(to, "            applied %" PRIu32 " or more %ssteps after sending (%s",
                  run->sync.overlap, run->sync.pace == TW_PACE_CLOCK ? "such " : "",
                  cli_run_word(run, "sync.sent", sent));
    if (run->sync.sent == TW_SENT_MIX) (void)fprintf(to, " %.2g", run->sync.mix_millionths / 1e6);
    (void)fprintf(to, "), merged by %s, weights %s\n", cli_run_word(run, "sync.merge", merge),
                  cli_run_word(run, "sync.weights", weights));
    if (run->sync.jury_millionths > 0)
        (void)fprintf(to,
                      "            %.3g %% of the contributions are checked for training on their "
                      "sender's data, in about %.2g %% of the time\n",
                      run->sync.jury_millionths / 1e4, 100 * cli_checks_time(run));
    explain_together(to, run);
}

/* Warns of too few merges. With eight nodes, a group was no better than a single node at 8 outer
 * steps, and 8 % better at 20 (tests/RECORDS.md). With four nodes and a codec of half a bit, it was
 * no better at 20, and 9 % better at 40. */
static void explain_few(FILE *to, const struct tw_run *run, uint64_t planned) {
    enum { FEW = 10, FEW_COARSE = 30 };
    char codec[TW_RUN_VALUE_BYTES];
    if (planned == 0) {
        (void)fprintf(to, "            so nodes would never merge: lower sync.period, or train "
                          "for longer (train.tokens)\n");
    } else if (planned < FEW) {
        (void)fprintf(to, "            so few merges gain little over a node alone: lower "
                          "sync.period, or train for longer (train.tokens)\n");
    } else if (planned < FEW_COARSE && tw_run_is_coarse(run->sync.codec)) {
        (void)fprintf(to,
                      "            too few for %s, which sends most of a change in later merges: "
                      "lower sync.period, or take a finer sync.codec\n",
                      cli_run_word(run, "sync.codec", codec));
    }
}

/* Explains how much a steady change is amplified, eta / (1 - mu), and whether the user set that. */
static void explain_gain(FILE *to, const struct tw_run *run, double eta, double mu) {
    static struct tw_run fitted;
    fitted = *run;
    tw_run_refit(&fitted);
    const bool is_fitted =
        fitted.sync.outer_lr_millionths == run->sync.outer_lr_millionths &&
        fitted.sync.outer_momentum_millionths == run->sync.outer_momentum_millionths;
    if (mu == 0 && eta == 1) {
        (void)fprintf(to, "            plain averaging: %s\n",
                      is_fitted ? "by the preset, or because the run is too short for momentum"
                                : "as set");
        if (is_fitted) return;
    } else {
        (void)fprintf(to, "            a steady change is amplified %.1f times", eta / (1 - mu));
        if (is_fitted) {
            (void)fprintf(to, "; short runs need less, so this follows from the "
                              "planned outer steps\n");
            return;
        }
        (void)fprintf(to, ", as set\n");
    }
    (void)fprintf(to,
                  "            (rate %.3g and momentum %.3g would fit the planned outer "
                  "steps)\n",
                  fitted.sync.outer_lr_millionths / 1e6,
                  fitted.sync.outer_momentum_millionths / 1e6);
}

static void explain_outer(FILE *to, const struct tw_run *run) {
    const uint64_t planned = tw_run_outer_steps(run);
    char count[TW_UNITS_BYTES], rule[TW_RUN_VALUE_BYTES];
    const double eta = run->sync.outer_lr_millionths / 1e6,
                 mu = run->sync.outer_momentum_millionths / 1e6;
    (void)fprintf(to, "  Outer     %s, rate %.3g, momentum %.3g",
                  cli_run_word(run, "sync.outer", rule), eta, mu);
    if (mu > 0)
        (void)fprintf(to, " after %" PRIu32 " outer step%s", run->sync.outer_ramp,
                      tw_units_s(run->sync.outer_ramp));
    if (run->sync.lead_millionths > 0)
        (void)fprintf(to, ", leads %.2g of AdamW's momentum", run->sync.lead_millionths / 1e6);
    (void)fprintf(to, "\n            %s outer step%s planned\n",
                  tw_units_count(count, (double)planned), planned == 1 ? " is" : "s are");
    explain_few(to, run, planned);
    explain_gain(to, run, eta, mu);
}

static void explain_wire(FILE *to, const struct tw_run *run, double params,
                         const struct cli_pace *pace) {
    char round[TW_UNITS_BYTES], hour[TW_UNITS_BYTES], dense[TW_UNITS_BYTES];
    const double nodes = run->sync.nodes, steps_per_s = pace->steps_per_s;
    const double bits = pace->bits > 0 ? pace->bits : cli_contribution_bits(run);
    const struct cli_traffic traffic = cli_traffic_of(run, params, bits, steps_per_s);
    const double bytes_s = traffic.payload * traffic.rounds_s;
    const double fp32 = 2 * (nodes - 1) / nodes * params * 4 * steps_per_s * 3600;
    if (run->sync.topology == TW_TOPOLOGY_SOLO) {
        (void)fprintf(to, "  Wire      nothing is sent while training; `thinwire merge` makes one "
                          "model of the nodes'\n");
        return;
    }
    (void)fprintf(to, "  Wire      each node sends about %s a round (%s",
                  tw_units_bytes(round, traffic.payload), tw_codec_get(run->sync.codec)->name);
    if (pace->bits > 0) (void)fprintf(to, " at %.2g bits", pace->bits);
    if (run->sync.topology == TW_TOPOLOGY_PAIR) {
        (void)fprintf(to, ", anchors in 8 bits)\n");
    } else {
        (void)fprintf(to, ", results in %s, %.0f node%s)\n", tw_codec_get(run->sync.result)->name,
                      nodes, tw_units_s(nodes));
    }
    if (nodes < 2) return;
    (void)fprintf(to,
                  "            %s an hour (%.2f Mbit/s) at %.3g steps/s; fp32 data parallel "
                  "would send %s, %.0f times as much\n",
                  tw_units_bytes(hour, bytes_s * 3600), bytes_s * 8 / 1e6, steps_per_s,
                  tw_units_bytes(dense, fp32), fp32 / (bytes_s * 3600));
    if (pace->is_guess)
        (void)fprintf(to,
                      "            %.3g steps/s is a guess: give the time of a step, such as "
                      "--step-time 250ms\n",
                      steps_per_s);
}

static void explain_data(FILE *to, const struct tw_run *run) {
    const char *const named = run->data.form == TW_FORM_DATASET
                                  ? "one dataset, which nodes without it fetch"
                                  : "one text, named by its SHA-256";
    (void)fprintf(to, "  Data      %s",
                  !tw_id_is_zero(&run->data.sha256)        ? named
                  : run->model.family == TW_FAMILY_TENSORS ? "the trainer's own"
                                                           : "any text; each node has its own");
    if (run->data.documents == TW_DOCUMENTS_MASKED) (void)fprintf(to, ", documents masked");
    if (run->data.curriculum_millionths > 0) {
        (void)fprintf(to, ", the first %.3g %% from easy to hard",
                      run->data.curriculum_millionths / 1e4);
    }
}

/* Prints the name and the id. Returns false if the model cannot be laid out, after the reason. */
static bool begin_text(FILE *to, const struct tw_run *run, struct tw_layout *layout) {
    struct tw_error err;
    char hex[TW_ID_HEX_BYTES];
    const struct tw_id id = tw_run_id(run);
    tw_id_hex(&id, hex);
    (void)fprintf(to, "run %s, id %s\n\n", run->name, hex);
    const bool is_laid_out = tw_layout_init(layout, run, &err) == TW_OK;
    if (!is_laid_out) (void)fprintf(to, "  %s\n", err.message);
    return is_laid_out;
}

static void explain_group(FILE *to, const struct tw_layout *layout) {
    struct tw_error err;
    if (tw_layout_check_group(layout, &err) != TW_OK)
        (void)fprintf(to, "  Group     not for a group of nodes: %s\n", err.message);
}

static void explain_admission(FILE *to, const struct tw_run *run) {
    static const char *const ADMISSION[] = {
        [TW_ADMISSION_SECRET] =
            "run secret: everybody who has it is trusted, and one of them can decide the run",
        [TW_ADMISSION_OPEN] = "anybody who knows the run id",
        [TW_ADMISSION_OWNER] = "certificates of the run's owner",
    };
    (void)fprintf(to, "; admission by %s\n", ADMISSION[run->security.admission]);
}

/* Says how texts that may differ in kind share one model (tests/RECORDS.md, unlike data). */
static void explain_own_texts(FILE *to, const struct tw_run *run) {
    if (!tw_id_is_zero(&run->data.sha256) || run->model.family == TW_FAMILY_TENSORS) return;
    if (run->sync.topology == TW_TOPOLOGY_SOLO || run->sync.nodes < 2) return;
    (void)fprintf(
        to,
        "            a fast node trains more between two merges, so its text counts for more\n");
    if (run->sync.topology == TW_TOPOLOGY_GROUP && run->sync.outer_momentum_millionths == 0)
        (void)fprintf(to,
                      "            texts of different kinds merge worse without outer momentum: "
                      "keep the preset's, and merge often (sync.period)\n");
}

void cli_manifest_explain(FILE *to, const struct tw_run *run, const struct cli_pace *pace) {
    static struct tw_layout layout;
    struct run_memory memory;
    if (!begin_text(to, run, &layout)) return;
    explain_model(to, run, &layout);
    explain_group(to, &layout);
    explain_sync(to, run);
    if (run->sync.topology != TW_TOPOLOGY_SOLO) explain_outer(to, run);
    explain_wire(to, run, (double)layout.params, pace);
    if (weigh(run, &memory)) run_memory_print(to, &memory);
    explain_data(to, run);
    explain_admission(to, run);
    explain_own_texts(to, run);
}

/* Prints the time of the run where the time of a step is known, and the upload of a node. */
static void sum_up_pace(FILE *to, const struct tw_run *run, double params,
                        const struct cli_pace *pace) {
    char time[TW_UNITS_BYTES], step[TW_UNITS_BYTES], hour[TW_UNITS_BYTES];
    const double steps =
        (double)run->train.tokens / run->train.batch / run->model.context / run->sync.nodes;
    const double bits = pace->bits > 0 ? pace->bits : cli_contribution_bits(run);
    const struct cli_traffic traffic = cli_traffic_of(run, params, bits, pace->steps_per_s);
    const double bytes_s = traffic.payload * traffic.rounds_s;
    if (pace->is_guess)
        (void)fprintf(to, "  Time      unknown: thinwire plan measures a step\n");
    else
        (void)fprintf(to, "  Time      about %s, at %s a step\n",
                      tw_units_duration(time, steps / pace->steps_per_s),
                      tw_units_duration(step, 1 / pace->steps_per_s));
    if (run->sync.topology == TW_TOPOLOGY_SOLO) {
        explain_wire(to, run, params, pace);
    } else if (run->sync.nodes > 1) {
        (void)fprintf(to, "  Upload    %s an hour of each node (%.2f Mbit/s) at %.3g steps/s%s\n",
                      tw_units_bytes(hour, bytes_s * 3600), bytes_s * 8 / 1e6, pace->steps_per_s,
                      pace->is_guess ? ", a guess" : "");
    }
}

void cli_manifest_sum_up(FILE *to, const struct tw_run *run, const struct cli_pace *pace) {
    static struct tw_layout layout;
    struct run_memory memory;
    if (!begin_text(to, run, &layout)) return;
    explain_model(to, run, &layout);
    explain_group(to, &layout);
    explain_together(to, run);
    if (run->sync.topology != TW_TOPOLOGY_SOLO) explain_few(to, run, tw_run_outer_steps(run));
    sum_up_pace(to, run, (double)layout.params, pace);
    if (weigh(run, &memory)) run_memory_print(to, &memory);
    explain_data(to, run);
    explain_admission(to, run);
    explain_own_texts(to, run);
}
