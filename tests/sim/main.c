/* main.c - thinwire-sim: runs given seeds. Its standard output depends on its arguments alone. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim.h"
#include "tests/traitor/traitor.h"

struct arguments {
    uint64_t first, last, liars, traitors, sybils;
    uint32_t nodes, heads, lies;
    double hours;
    bool is_pair, has_homes, has_traitors, has_committee, has_donors, has_crews, is_silent, is_json,
        has_histogram, has_trace;
    int mutant;
};

static const char usage[] =
    "usage: thinwire-sim [--seed S | --seeds A..B] [--nodes N] [--hours H] [--pairs]\n"
    "                    [--homes] [--liars K] [--traitors K] [--lies L] [--committee]\n"
    "                    [--donors] [--heads K [--crews]]\n"
    "                    [--sybils K] [--silent]\n"
    "                    [--json] [--histogram] [--trace]\n"
    "\n"
    "Runs the sync core of N nodes in virtual time with faults drawn from the seed.\n"
    "Checks the invariants at every event. The same arguments give the same output.\n"
    "\n"
    "  --seed S      one seed (default 1)\n"
    "  --seeds A..B  all seeds from A to B\n"
    "  --nodes N     1 to 64 nodes, with --heads up to 16384 (default: drawn)\n"
    "  --heads K     only the first K nodes are linked to each other, and have seats\n"
    "  --crews       each head contributes the work of the others that are linked to it\n"
    "  --hours H     simulated hours per seed, two thirds of them with faults (default 1)\n"
    "  --liars K     the last K nodes lie about results, or to their partners (default 0)\n"
    "  --traitors K  the last K nodes lie in every message (0: drawn, a third at most)\n"
    "  --lies L      lies that they tell, as in propose,roster (default: drawn)\n"
    "  --committee   some nodes have no vote; any number of these may be traitors\n"
    "  --donors      traitors give false states to nodes that lost theirs\n"
    "  --sybils K    K more nodes, the ids of one holder of the run secret, come later\n"
    "  --silent      the sybils take seats and say no more\n"
    "  --pairs       the nodes merge two by two instead of in one group\n"
    "  --homes       some nodes are behind NAT: no link between two of them, or a relayed one\n"
    "  --json        one JSON object per seed\n"
    "  --histogram   how often each event met each state of a node\n"
    "  --trace       every event of the run except steps and ticks\n"
#ifdef TW_MUTANTS
    "  --mutant NAME  switch a mutant on; `--mutant list` prints the names\n"
#endif
    "\n"
    "Exit status: 0 all seeds pass, 1 an invariant was broken, 2 wrong arguments.\n";

static bool parse_u64(const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == 0 && *text != '-';
}

static bool parse_seeds(const char *text, struct arguments *arguments) {
    char first[32];
    const char *dots = strstr(text, "..");
    if (dots == NULL || (size_t)(dots - text) >= sizeof first) return false;
    memcpy(first, text, (size_t)(dots - text));
    first[dots - text] = 0;
    return parse_u64(first, &arguments->first) && parse_u64(dots + 2, &arguments->last) &&
           arguments->first <= arguments->last;
}

static bool parse_count(const char *text, uint32_t least, uint32_t most, uint32_t *count) {
    uint64_t value;
    if (!parse_u64(text, &value) || value < least || value > most) return false;
    *count = (uint32_t)value;
    return true;
}

static bool parse_lies(const char *text, uint32_t *lies) {
    while (*text != 0) {
        char name[16];
        const size_t size = strcspn(text, ",");
        if (size >= sizeof name) return false;
        memcpy(name, text, size);
        name[size] = 0;
        const enum tw_lie lie = tw_lie_find(name);
        if (lie == TW_LIES_COUNT) return false;
        *lies |= 1u << lie;
        text += size + (text[size] == ',');
    }
    return *lies != 0;
}

static bool parse_hours(const char *text, struct arguments *arguments) {
    char *end;
    arguments->hours = strtod(text, &end);
    return end != text && *end == 0 && arguments->hours > 0 && arguments->hours <= 10000;
}

/* Returns 0 to continue, otherwise the exit status + 1. */
static int parse_arguments(int argc, char **argv, struct arguments *arguments) {
    static const struct option longs[] = {{"seed", required_argument, NULL, 's'},
                                          {"seeds", required_argument, NULL, 'S'},
                                          {"nodes", required_argument, NULL, 'n'},
                                          {"heads", required_argument, NULL, 'k'},
                                          {"hours", required_argument, NULL, 'h'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"histogram", no_argument, NULL, 'H'},
                                          {"trace", no_argument, NULL, 't'},
                                          {"help", no_argument, NULL, '?'},
                                          {"mutant", required_argument, NULL, 'p'},
                                          {"liars", required_argument, NULL, 'l'},
                                          {"traitors", required_argument, NULL, 'T'},
                                          {"lies", required_argument, NULL, 'L'},
                                          {"pairs", no_argument, NULL, 'P'},
                                          {"homes", no_argument, NULL, 'o'},
                                          {"crews", no_argument, NULL, 'w'},
                                          {"committee", no_argument, NULL, 'c'},
                                          {"sybils", required_argument, NULL, 'y'},
                                          {"silent", no_argument, NULL, 'i'},
                                          {"donors", no_argument, NULL, 'd'},
                                          {0}};
    *arguments = (struct arguments){.first = 1, .last = 1, .hours = 1};
    int option, at = -1;
    while ((option = getopt_long(argc, argv, "", longs, &at)) != -1) {
        bool is_good = true;
        switch (option) {
        case 's':
            is_good = parse_u64(optarg, &arguments->first);
            arguments->last = arguments->first;
            break;
        case 'S': is_good = parse_seeds(optarg, arguments); break;
        case 'n': is_good = parse_count(optarg, 1, TW_SIM_NODES_MAX, &arguments->nodes); break;
        case 'k': is_good = parse_count(optarg, 2, TW_SIM_HEADS_MAX, &arguments->heads); break;
        case 'l':
            is_good = parse_u64(optarg, &arguments->liars) && arguments->liars < TW_MEMBERS_MAX;
            break;
        case 'T':
            arguments->has_traitors = true;
            is_good = parse_u64(optarg, &arguments->traitors) &&
                      arguments->traitors < TW_MEMBERS_MAX / 3 + 1;
            break;
        case 'y':
            is_good = parse_u64(optarg, &arguments->sybils) && arguments->sybils <= TW_COVEN_MAX;
            break;
        case 'i': arguments->is_silent = true; break;
        case 'L': is_good = parse_lies(optarg, &arguments->lies); break;
        case 'h': is_good = parse_hours(optarg, arguments); break;
        case 'P': arguments->is_pair = true; break;
        case 'o': arguments->has_homes = true; break;
        case 'c': arguments->has_committee = true; break;
        case 'w': arguments->has_crews = true; break;
        case 'd': arguments->has_donors = true; break;
        case 'j': arguments->is_json = true; break;
        case 'H': arguments->has_histogram = true; break;
        case 't': arguments->has_trace = true; break;
        case 'p':
            if (strcmp(optarg, "list") == 0) {
                for (int i = 1; i < tw_sim_mutants_count(); i++) puts(tw_sim_mutant_name(i));
                return 1;
            }
            arguments->mutant = tw_sim_mutant_find(optarg);
            arguments->is_pair |= tw_sim_mutant_is_pair(arguments->mutant);
            is_good = arguments->mutant > 0;
            break;
        default:
            fputs(usage, optopt == 0 && option == '?' ? stdout : stderr);
            return optopt == 0 ? 1 : 3;
        }
        if (!is_good) {
            fprintf(stderr, "thinwire-sim: '%s' is no value for --%s; see --help\n", optarg,
                    longs[at].name);
            return 3;
        }
    }
    if (arguments->heads > 0 ? arguments->nodes <= arguments->heads
                             : arguments->nodes > TW_MEMBERS_MAX) {
        fprintf(stderr,
                "thinwire-sim: --heads needs more nodes than heads, and --nodes above %d "
                "needs --heads; see --help\n",
                TW_MEMBERS_MAX);
        return 3;
    }
    if (optind == argc) return 0;
    fprintf(stderr, "thinwire-sim: '%s' is not an option; see --help\n", argv[optind]);
    return 3;
}

/* Prints the time and memory that the simulation took, which differ from run to run. */
static void print_costs(const struct tw_sim_result *sum, double took_s) {
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) != 0) return;
    const double cpu_us = 1e6 * (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                          (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    fprintf(stderr,
            "%.1f node-hours in %.1f s: %.1f node-hours and %.2f million events per second; "
            "%.0f us of CPU per node and second; %.0f MB at most\n",
            sum->node_hours, took_s, sum->node_hours / took_s, (double)sum->events / took_s / 1e6,
            cpu_us / (sum->node_hours * 3600), (double)use.ru_maxrss / 1024);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void print_repeat(const struct arguments *arguments, uint64_t seed) {
    printf("repeat with: thinwire-sim --seed %" PRIu64, seed);
    if (arguments->nodes != 0) printf(" --nodes %u", arguments->nodes);
    if (arguments->heads != 0) printf(" --heads %u", arguments->heads);
    if (arguments->has_crews) printf(" --crews");
    printf(" --hours %g --trace", arguments->hours);
    if (arguments->liars != 0) printf(" --liars %" PRIu64, arguments->liars);
    if (arguments->has_traitors) printf(" --traitors %" PRIu64, arguments->traitors);
    if (arguments->sybils != 0) printf(" --sybils %" PRIu64, arguments->sybils);
    if (arguments->is_silent) printf(" --silent");
    if (arguments->lies != 0) printf(" --lies ");
    for (uint32_t i = 0, lies = arguments->lies; lies != 0; i++) {
        if ((lies >> i & 1) == 0) continue;
        lies &= ~(1u << i);
        printf("%s%s", tw_lie_name((enum tw_lie)i), lies != 0 ? "," : "");
    }
    if (arguments->is_pair) printf(" --pairs");
    if (arguments->has_homes) printf(" --homes");
    if (arguments->has_committee) printf(" --committee");
    if (arguments->has_donors) printf(" --donors");
    if (arguments->mutant != 0) printf(" --mutant %s", tw_sim_mutant_name(arguments->mutant));
    printf("\n");
}

static void add_result(struct tw_sim_result *sum, const struct tw_sim_result *result) {
    sum->rounds += result->rounds;
    sum->events += result->events;
    sum->node_hours += result->node_hours;
    for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) sum->faults[i] += result->faults[i];
    for (uint32_t s = 0; s < TW_SIM_STATES; s++) {
        for (uint32_t e = 0; e < TW_SIM_EVENTS; e++) {
            sum->histogram[s][e] += result->histogram[s][e];
        }
    }
}

int main(int argc, char **argv) {
    struct arguments arguments;
    const int stop = parse_arguments(argc, argv, &arguments);
    if (stop != 0) return stop - 1;
    static struct tw_sim_result sum, result;
    uint64_t failed = 0;
    const double begin_s = now_s();
    const bool has_progress = isatty(STDERR_FILENO) != 0 && arguments.last > arguments.first;
    for (uint64_t seed = arguments.first;; seed++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, arguments.nodes, arguments.hours);
        options.mutant = arguments.mutant;
        options.liars_count = arguments.liars < options.nodes_count ? (uint32_t)arguments.liars : 0;
        options.is_pair = arguments.is_pair;
        if (arguments.has_homes) tw_sim_options_draw_homes(&options);
        options.lies = arguments.lies;
        if (arguments.has_traitors)
            tw_sim_options_draw_traitors(&options, (uint32_t)arguments.traitors);
        if (arguments.has_committee) tw_sim_options_draw_committee(&options);
        if (arguments.heads > 0) tw_sim_options_draw_heads(&options, arguments.heads);
        if (arguments.has_crews && arguments.heads > 0) tw_sim_options_draw_crews(&options);
        if (arguments.has_donors) tw_sim_options_draw_donors(&options);
        if (arguments.sybils > 0)
            tw_sim_options_draw_sybils(&options, (uint32_t)arguments.sybils, arguments.is_silent);
        if (!arguments.is_json) tw_sim_options_print(&options, stdout);
        tw_sim_run(&options, &result, arguments.has_trace ? stdout : NULL);
        if (arguments.is_json) {
            tw_sim_result_json(&options, &result, stdout);
        } else {
            tw_sim_result_print(&options, &result, stdout);
            if (result.is_failed) print_repeat(&arguments, seed);
        }
        fflush(stdout);
        failed += result.is_failed;
        add_result(&sum, &result);
        if (has_progress) {
            fprintf(stderr,
                    "\r%" PRIu64 " of %" PRIu64 " seeds, %.0f node-hours, %" PRIu64 " failed ",
                    seed - arguments.first + 1, arguments.last - arguments.first + 1,
                    sum.node_hours, failed);
        }
        if (seed == arguments.last) break;
    }
    if (has_progress) fputc('\n', stderr);
    if (arguments.has_histogram) tw_sim_histogram_print(&sum, stdout);
    if (!arguments.is_json && arguments.last > arguments.first) {
        printf("%" PRIu64 " seeds, %" PRIu64 " failed: %.1f node-hours, %.1f rounds and %.1f "
               "faults per node-hour\n",
               arguments.last - arguments.first + 1, failed, sum.node_hours,
               (double)sum.rounds / sum.node_hours,
               (double)tw_sim_result_faults(&sum) / sum.node_hours);
    }
    print_costs(&sum, now_s() - begin_s);
    return failed == 0 ? 0 : 1;
}
