/* bench_votes.c - costs of deciding rounds in a group: bytes, signatures and time per node and
 * round.
 *
 *   thinwire-votes-bench [NODES[/VOTERS] ...]   4, 16 and 64 nodes, and 64 of which 16 vote
 *
 * Bytes and counts are those of the simulator, which runs the real core in virtual time: 50 ms one
 * way between any two nodes, no faults, and a round every ten seconds. The costs of one signature
 * are measured. Heartbeats are shown separately, because they do not depend on rounds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/auth/identity.h"
#include "tests/sim/sim.h"

enum { TURNS = 200, TIMES = 10, TEXT_BYTES = 168 };

static double now_s(void) {
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* Measures the seconds of making one signature, and of checking one. */
static void measure_signatures(double *sign_s, double *check_s) {
    static uint8_t text[TEXT_BYTES];
    uint8_t signature[TW_SIGNATURE_BYTES];
    struct tw_identity key;
    struct tw_error err;
    if (tw_identity_ephemeral(&key, &err) != TW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    const struct tw_id id = tw_public_key(key.key);
    unsigned good = 0;
    *sign_s = *check_s = 1;
    /* keeps the fastest turn, because other processes use the machine too */
    for (unsigned turn = 0; turn < TURNS; turn++) {
        const double begun = now_s();
        for (unsigned i = 0; i < TIMES; i++) tw_sign(key.key, text, sizeof(text), signature);
        const double between = now_s();
        for (unsigned i = 0; i < TIMES; i++)
            good += tw_is_signed(&id, text, sizeof(text), signature);
        const double ended = now_s();
        if ((between - begun) / TIMES < *sign_s) *sign_s = (between - begun) / TIMES;
        if ((ended - between) / TIMES < *check_s) *check_s = (ended - between) / TIMES;
    }
    if (good != TURNS * TIMES) exit(1);
    tw_identity_close(&key);
}

static uint64_t sum(const struct tw_sim_costs *costs, const enum tw_message_kind *kinds,
                    unsigned count) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++)
        bytes += costs->bytes[TW_SIM_MESSAGES + (uint32_t)kinds[i]];
    return bytes;
}

/* If `voters` is not 0, only so many nodes have a vote. */
static void bench(uint32_t nodes, uint32_t voters, double sign_s, double check_s) {
    static struct tw_sim_result result;
    static const enum tw_message_kind votes[] = {TW_MSG_PREPARE, TW_MSG_PROMISE, TW_MSG_PROPOSE,
                                                 TW_MSG_ACCEPT,  TW_MSG_NACK,    TW_MSG_LOCK,
                                                 TW_MSG_COMMIT,  TW_MSG_EVIDENCE};
    static const enum tw_message_kind work[] = {TW_MSG_CONTRIB, TW_MSG_RESULT, TW_MSG_PULL};
    static const enum tw_message_kind beats[] = {TW_MSG_STATUS, TW_MSG_LINKS};
    struct tw_sim_options options;
    tw_sim_options_draw(&options, 1, nodes, nodes > 16 ? 0.1 : 0.5);
    options.faults = 0;
    options.members_max = TW_MEMBERS_MAX;
    options.loss = 0;
    options.latency_us = 50000;
    options.jitter_us = 5000;
    options.upload_bytes_per_s = 10000000;
    options.bytes_per_dim = 1000;
    options.fragments_count = 4;
    options.step_us = 1000000;
    options.speed_spread = 0;
    options.period_steps = 10;
    options.overlap_steps = 2;
    options.pace_us = 0;
    options.quorum = 1;
    options.grace_us = 2000000;
    options.is_wire_checked = false;
    options.is_costed = true;
    options.voters_count = voters;
    options.budget_tokens = options.together_tokens = UINT64_MAX / 4;
    tw_sim_run(&options, &result, NULL);
    if (result.is_failed || result.group_rounds == 0) {
        tw_sim_result_print(&options, &result, stderr);
        exit(1);
    }
    const struct tw_sim_costs *costs = &result.costs;
    const double each = (double)result.group_rounds * nodes;
    const double signed_count = (double)costs->signed_count / each,
                 checked_count = (double)costs->checked_count / each;
    (void)printf("| %u, %u vote | %" PRIu64 " | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f |\n",
                 nodes, voters > 0 ? voters : nodes, result.group_rounds,
                 (double)sum(costs, votes, 8) / each / 1e3,
                 (double)sum(costs, work, 3) / each / 1e3,
                 (double)sum(costs, beats, 2) / (result.node_hours * 3600) / 1e3, signed_count,
                 checked_count, 1e3 * (signed_count * sign_s + checked_count * check_s),
                 (double)costs->decided_us / (double)costs->decided_count / 1e3);
    for (uint32_t i = TW_SIM_MESSAGES; getenv("TW_KINDS") != NULL && i < TW_SIM_EVENTS; i++) {
        if (costs->bytes[i] > 0)
            (void)printf("    %s %.2f kB\n", tw_sim_event_name(i),
                         (double)costs->bytes[i] / each / 1e3);
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv) {
    static const struct { uint32_t nodes, voters; } groups[] = {{4, 0}, {16, 0}, {64, 0}, {64, 16}};
    double sign_s, check_s;
    measure_signatures(&sign_s, &check_s);
    (void)printf(
        "One signature: %.0f us; one check: %.0f us. A node and round:\n\n"
        "| nodes | rounds | votes, kB | contributions and results, kB | heartbeats, kB/s | "
        "signatures | checks | their time, ms | proposal to commit, ms |\n"
        "|---|---|---|---|---|---|---|---|---|\n",
        1e6 * sign_s, 1e6 * check_s);
    for (int i = 1; i < argc; i++) {
        char *end;
        const uint32_t nodes = (uint32_t)strtoul(argv[i], &end, 10);
        const uint32_t voters = *end == '/' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
        if (*end != '\0' || nodes < 2 || nodes > TW_MEMBERS_MAX || voters > nodes) {
            (void)fprintf(stderr, "thinwire-votes-bench: %s is no NODES or NODES/VOTERS\n",
                          argv[i]);
            return 2;
        }
        bench(nodes, voters, sign_s, check_s);
    }
    for (unsigned i = 0; argc == 1 && i < sizeof(groups) / sizeof(groups[0]); i++)
        bench(groups[i].nodes, groups[i].voters, sign_s, check_s);
    return 0;
}
