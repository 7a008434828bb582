/* report.c - prints a run as text, as JSON and as a table. */
#include <inttypes.h>

#include "proto/message.h"
#include "tests/sim/sim.h"

static const char *const state_names[TW_SIM_STATES] = {"solo", "receiver", "member", "finished"};

uint64_t tw_sim_result_faults(const struct tw_sim_result *result) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) sum += result->faults[i];
    return sum;
}

const char *tw_sim_event_name(uint32_t event) {
    static const char *const names[] = {
        "TICK",        "PEER_UP",  "PEER_DOWN", "MESSAGE", "CHUNK",   "VERIFIED", "WORKER_UP",
        "WORKER_DOWN", "STEP",     "ENCODED",   "REDUCED", "APPLIED", "EXPORTED", "STORED",
        "LEAVE",       "MEASURED", "JUDGED",    "REFUSED", "GATHERED"};
    if (event < TW_SIM_MESSAGES) return names[event];
    return tw_message_name((enum tw_message_kind)(event - TW_SIM_MESSAGES));
}

static void print_use(const struct tw_sim_result *r, uint32_t i, FILE *file) {
    const struct tw_sim_use *use = &r->use[i];
    const double seconds = use->node_hours * 3600;
    if (seconds <= 0) return;
    fprintf(file,
            "  %s  each second a node sends %.2f control messages, %.0f bytes, and receives %.0f "
            "bytes\n",
            i == 0 ? "mesh    " : "others  ", (double)use->messages / seconds,
            (double)use->sent_bytes / seconds, (double)use->received_bytes / seconds);
}

void tw_sim_result_print(const struct tw_sim_options *options, const struct tw_sim_result *r,
                         FILE *file) {
    const double hours = r->node_hours > 0 ? r->node_hours : 1;
    fprintf(file, "  happened  ");
    const char *comma = "";
    for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) {
        if (r->faults[i] == 0) continue;
        fprintf(file, "%s%s %" PRIu64, comma, tw_sim_fault_text((enum tw_sim_fault)i),
                r->faults[i]);
        comma = ", ";
    }
    fprintf(file, "%s\n", *comma == 0 ? "no fault" : "");
    fprintf(file,
            "  counted   %.2f node-hours, %" PRIu64 " events, %" PRIu64 " messages, %" PRIu64
            " chunks (%" PRIu64 " received twice, %" PRIu64 " of dropped payloads), %" PRIu64
            " ticks, %" PRIu64 " votes written\n",
            r->node_hours, r->events, r->messages, r->chunks, r->chunks_again, r->chunks_thrown,
            r->ticks, r->votes);
    fprintf(file,
            "  rounds    %" PRIu64 " committed (%.1f per node-hour, %" PRIu64
            " with several contributors), %" PRIu64 " applied, %" PRIu64 " states loaded\n",
            r->rounds, (double)r->rounds / hours, r->group_rounds, r->applied, r->loads);
    fprintf(file, "  faults    %" PRIu64 " (%.1f per node-hour)\n", tw_sim_result_faults(r),
            (double)tw_sim_result_faults(r) / hours);
    fprintf(file,
            "  at the end %u of %u nodes run, %u members, %u finished, %u lineage%s (%" PRIu64
            " entered in all), clock %" PRIu64 " tokens, loss %.4f (start %.4f)\n",
            r->running_end, options->nodes_count, r->members_end, r->finished_end, r->lineages_end,
            r->lineages_end == 1 ? "" : "s", r->lineages, r->clock_tokens, r->loss_end,
            r->loss_start);
    for (uint32_t i = 0; i < 2 && options->is_costed; i++) print_use(r, i, file);
    if (options->crew_max > 0)
        fprintf(file,
                "  hands     of %" PRIu64 " tokens %" PRIu64 " listed, %" PRIu64
                " due; the newest %" PRIu64 " of a hand at most; %" PRIu64 " answers not found\n",
                r->tokens, r->tokens_listed, r->tokens_due, r->tokens_open, r->crew_lost);
    if (options->liars_count > 0)
        fprintf(file,
                "  lies      %" PRIu64 " published by %u nodes, %" PRIu64 " committed; %" PRIu64
                " strikes after audits; struck owners got %" PRIu64 " parts\n",
                r->lies_told, options->liars_count, r->lies_committed, r->strikes, r->given_back);
    if (options->traitors_count > 0) {
        fprintf(file,
                "  traitors  %u; slowest honest node: %" PRIu64 " rounds late in the calm%s\n",
                options->traitors_count, r->calm_paced, r->is_overrun ? "; overrun" : "");
    }
    if (options->jury_millionths > 0)
        fprintf(file, "  jury      %" PRIu64 " checks; %" PRIu64 " verdicts on %u idlers\n",
                r->checks, r->idlers_found, options->idlers_count);
    if (r->false_states > 0)
        fprintf(file,
                "  states    %" PRIu64 " false ones offered; donors named %" PRIu64 " times\n",
                r->false_states, r->false_donors);
    if (options->traitors_count > 0)
        fprintf(file, "  bases     %" PRIu64 " records name the state before their round\n",
                r->bases);
    if (options->sybils_count > 0)
        fprintf(file, "  sybils    %u of %u had a seat at a time\n", r->sybils_seated,
                options->sybils_count);
    if (!options->is_pair) {
        fprintf(file, "  ballots   above the lowest, rounds with 0, 1, 2-3, 4-7, ...:");
        for (uint32_t i = 0; i < TW_SIM_TRIES && (i == 0 || r->tries_most >> (i - 1) > 0); i++)
            fprintf(file, " %" PRIu64, r->tries[i]);
        fprintf(file, "; most %" PRIu64 "\n", r->tries_most);
    }
    if (options->is_pair) {
        fprintf(file,
                "  pairs     %" PRIu64 " merges with a partner, %" PRIu64
                " exchanges merged by both, %" PRIu64
                " reported as one-sided; anchors %.4f from their mean, %" PRIu64
                " tokens trained\n",
                r->merges, r->merges_whole, r->merges_deserted, r->consensus_end, r->tokens);
    }
    fprintf(file, "  hash      %016" PRIx64 "\n", r->hash);
    if (!r->is_failed) {
        fprintf(file, "  PASS\n");
        return;
    }
    fprintf(file, "  FAIL      invariant %s at %.6f s", r->invariant, (double)r->failed_us / 1e6);
    if (r->failed_node >= 0) fprintf(file, ", node %d", r->failed_node);
    fprintf(file, ": %s\n", r->message);
}

static void json_text(const char *text, FILE *file) {
    fputc('"', file);
    for (; *text != 0; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        if ((unsigned char)*text >= 0x20) fputc(*text, file);
    }
    fputc('"', file);
}

void tw_sim_result_json(const struct tw_sim_options *options, const struct tw_sim_result *r,
                        FILE *file) {
    fprintf(file, "{\"seed\":%" PRIu64 ",\"nodes\":%u,\"hours\":%.6f,\"passed\":%s,\"invariant\":",
            options->seed, options->nodes_count,
            (double)(options->chaos_us + options->calm_us) / 3.6e9,
            r->is_failed ? "false" : "true");
    json_text(r->invariant, file);
    fprintf(file, ",\"message\":");
    json_text(r->message, file);
    fprintf(file,
            ",\"failed_us\":%" PRIu64 ",\"failed_node\":%d,\"hash\":\"%016" PRIx64
            "\",\"node_hours\":%.6f,\"events\":%" PRIu64 ",\"actions\":%" PRIu64
            ",\"messages\":%" PRIu64 ",\"chunks\":%" PRIu64 ",\"rounds\":%" PRIu64
            ",\"group_rounds\":%" PRIu64 ",\"applied\":%" PRIu64 ",\"loads\":%" PRIu64
            ",\"faults_total\":%" PRIu64 ",\"faults\":{",
            r->failed_us, r->failed_node, r->hash, r->node_hours, r->events, r->actions,
            r->messages, r->chunks, r->rounds, r->group_rounds, r->applied, r->loads,
            tw_sim_result_faults(r));
    for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) {
        if (i > 0) fputc(',', file);
        json_text(tw_sim_fault_text((enum tw_sim_fault)i), file);
        fprintf(file, ":%" PRIu64, r->faults[i]);
    }
    fprintf(file,
            "},\"merges\":%" PRIu64 ",\"merges_whole\":%" PRIu64 ",\"merges_deserted\":%" PRIu64
            ",\"consensus\":%.9g",
            r->merges, r->merges_whole, r->merges_deserted, r->consensus_end);
    fprintf(
        file,
        ",\"running\":%u,\"members\":%u,\"finished\":%u,\"lineages\":%u,\"clock_tokens\":%" PRIu64
        ",\"loss_start\":%.9g,\"loss_end\":%.9g}\n",
        r->running_end, r->members_end, r->finished_end, r->lineages_end, r->clock_tokens,
        r->loss_start, r->loss_end);
}

void tw_sim_histogram_print(const struct tw_sim_result *r, FILE *file) {
    uint32_t reached = 0, possible = 0;
    fprintf(file, "%-12s", "event");
    for (uint32_t s = 0; s < TW_SIM_STATES; s++) fprintf(file, " %12s", state_names[s]);
    fputc('\n', file);
    for (uint32_t e = 0; e < TW_SIM_EVENTS; e++) {
        const uint32_t kind = e > TW_SIM_MESSAGES ? e - TW_SIM_MESSAGES : 0;
        /* MESSAGE is counted by kind. The core never receives some kinds. */
        if (e == TW_EV_MESSAGE || tw_sim_event_name(e)[0] == '?') continue;
        if (kind == TW_MSG_PEERS || kind == TW_MSG_PROBE || kind == TW_MSG_PROBED) continue;
        if (r->merges == 0 && kind >= TW_MSG_PAIR_REQUEST) continue; /* a run of a group */
        fprintf(file, "%-12s", tw_sim_event_name(e));
        for (uint32_t s = 0; s < TW_SIM_STATES; s++) {
            fprintf(file, " %12" PRIu64, r->histogram[s][e]);
            possible++;
            reached += r->histogram[s][e] > 0;
        }
        fputc('\n', file);
    }
    fprintf(file, "%u of %u pairs of state and event reached\n", reached, possible);
}
