/* sim.c - the world: built from its options, run timer by timer, then destroyed. */
#include "tests/sim/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sync/trace/trace.h"
#include "tests/sim/world.h"

enum { SECOND_US = 1000 * 1000, SAMPLE_US = 30 * SECOND_US };

/* A failed assertion of the core ends the simulated run (invariant 23), not the program. One run at
 * a time. */
static jmp_buf assert_exit;
static struct tw_sim_world *assert_world;

_Noreturn void tw_assert_failed(const char *expr, const char *file, int line) {
    if (assert_world == NULL) {
        fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expr);
        abort();
    }
    const char *name = strrchr(file, '/');
    tw_sim_fail(assert_world, NULL, "23", "assertion failed at %s:%d: %s",
                name != NULL ? name + 1 : file, line, expr);
    longjmp(assert_exit, 1);
}

/* ---- functions for all files ---------------------------------------------------------------- */

void tw_sim_push(struct tw_sim_world *world, uint64_t at_us, enum tw_sim_timer_kind kind,
                 uint32_t a, uint32_t b, uint64_t life, void *data) {
    const struct tw_sim_timer timer = {
        .at_us = at_us, .kind = (uint32_t)kind, .a = a, .b = b, .life = life, .data = data};
    tw_sim_heap_push(&world->heap, timer);
}

uint64_t tw_sim_exponential_us(struct tw_rng *rng, double mean_us) {
    return (uint64_t)(-log(1 - tw_rng_unit(rng)) * mean_us);
}

void tw_sim_hash(struct tw_sim_world *world, uint64_t value) {
    world->result->hash = tw_trace_mix(world->result->hash, value);
}

static void trace_line(struct tw_sim_world *world, const struct tw_sim_node *node,
                       const char *text) {
    fprintf(world->trace, "%12.6f ", (double)world->now_us / SECOND_US);
    if (node != NULL) {
        fprintf(world->trace, "node %-2u ", node->idx);
    } else {
        fprintf(world->trace, "world   ");
    }
    fprintf(world->trace, "%s\n", text);
}

void tw_sim_trace(struct tw_sim_world *world, const struct tw_sim_node *node, const char *fmt,
                  ...) {
    if (world->trace == NULL) return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    trace_line(world, node, text);
}

void tw_sim_fail(struct tw_sim_world *world, const struct tw_sim_node *node, const char *invariant,
                 const char *fmt, ...) {
    struct tw_sim_result *result = world->result;
    if (result->is_failed || (node != NULL && tw_sim_is_traitor(world, node))) return;
    result->is_failed = true;
    result->failed_us = world->now_us;
    result->failed_node = node != NULL ? (int)node->idx : -1;
    snprintf(result->invariant, sizeof result->invariant, "%s", invariant);
    va_list args;
    va_start(args, fmt);
    vsnprintf(result->message, sizeof result->message, fmt, args);
    va_end(args);
    if (world->trace != NULL) trace_line(world, node, result->message);
}

/* ---- one run -------------------------------------------------------------------------------- */

static void world_init(struct tw_sim_world *world, const struct tw_sim_options *options,
                       struct tw_sim_result *result, FILE *trace) {
    *world = (struct tw_sim_world){.options = *options,
                                   .result = result,
                                   .trace = trace,
                                   .end_us = options->chaos_us + options->calm_us,
                                   .nodes_count = options->nodes_count};
    TW_ASSERT(options->nodes_count >= 1 && options->nodes_count <= TW_SIM_NODES_MAX);
    tw_rng_seed(&world->rng, options->seed);
    tw_sim_heap_init(&world->heap);
    tw_sim_contents_init(&world->contents);
    tw_sim_map_init(&world->lies, sizeof(bool));
    tw_sim_map_init(&world->false_states, sizeof(struct tw_id));
    world->run = tw_sha256(&options->seed, sizeof options->seed);
    struct tw_rng model_rng;
    tw_rng_seed(&model_rng, ~options->seed);
    tw_sim_model_init(&world->model, options, &model_rng);
    world->action = calloc(1, sizeof *world->action);
    world->view = calloc(1, sizeof *world->view);
    world->position = calloc(1, sizeof *world->position);
    world->nodes = calloc(options->nodes_count, sizeof *world->nodes);
    TW_ASSERT(world->action != NULL);
    TW_ASSERT(world->view != NULL);
    TW_ASSERT(world->position != NULL);
    TW_ASSERT(world->nodes != NULL);
    for (uint32_t i = 0; i < options->nodes_count; i++) {
        tw_sim_node_init(world, &world->nodes[i], i);
    }
    tw_sim_net_init(world);
    tw_sim_check_init(world);
    tw_sim_faults_init(world);
    tw_sim_treason_init(world);
    tw_sim_push(world, SAMPLE_US, TW_SIM_TIMER_SAMPLE, 0, 0, 0, NULL);
    tw_sim_push(world, world->end_us, TW_SIM_TIMER_END, 0, 0, 0, NULL);
}

static void world_deinit(struct tw_sim_world *world) {
    tw_sim_treason_deinit(world);
    tw_sim_check_deinit(world);
    tw_sim_net_deinit(world);
    for (uint32_t i = 0; i < world->nodes_count; i++) tw_sim_node_deinit(&world->nodes[i]);
    free(world->nodes);
    free(world->position);
    free(world->view);
    free(world->action);
    tw_sim_map_deinit(&world->lies);
    tw_sim_map_deinit(&world->false_states);
    tw_sim_contents_deinit(&world->contents);
    tw_sim_heap_deinit(&world->heap);
}

/* Returns the node whose stall delays this timer, or NULL. */
static struct tw_sim_node *subject_of(struct tw_sim_world *world,
                                      const struct tw_sim_timer *timer) {
    switch ((enum tw_sim_timer_kind)timer->kind) {
    case TW_SIM_TIMER_TICK:
    case TW_SIM_TIMER_TO_CORE:
    case TW_SIM_TIMER_CHECKPOINT:
    case TW_SIM_TIMER_STORED:
    case TW_SIM_TIMER_SAVED:
    case TW_SIM_TIMER_BETRAY:
    case TW_SIM_TIMER_LATE:
    case TW_SIM_TIMER_STOP: return &world->nodes[timer->a];
    case TW_SIM_TIMER_STEP:
    case TW_SIM_TIMER_WORKER_UP: {
        struct tw_sim_node *node = &world->nodes[timer->a];
        return node->is_worker_stalled ? node : NULL;
    }
    case TW_SIM_TIMER_PIPE: return &world->nodes[world->links[timer->a].nodes[1 - timer->b / 2]];
    case TW_SIM_TIMER_LINKED:
    case TW_SIM_TIMER_UNLINKED: return &world->nodes[world->links[timer->a].nodes[timer->b]];
    case TW_SIM_TIMER_DIAL:
    case TW_SIM_TIMER_START:
    case TW_SIM_TIMER_FAULT:
    case TW_SIM_TIMER_HEAL:
    case TW_SIM_TIMER_CALM:
    case TW_SIM_TIMER_SAMPLE:
    case TW_SIM_TIMER_END: return NULL;
    }
    return NULL;
}

static void dispatch(struct tw_sim_world *world, const struct tw_sim_timer *timer) {
    switch ((enum tw_sim_timer_kind)timer->kind) {
    case TW_SIM_TIMER_STEP:
    case TW_SIM_TIMER_WORKER_UP: tw_sim_worker_timer(world, timer); break;
    case TW_SIM_TIMER_PIPE:
    case TW_SIM_TIMER_DIAL:
    case TW_SIM_TIMER_LINKED:
    case TW_SIM_TIMER_UNLINKED: tw_sim_net_timer(world, timer); break;
    case TW_SIM_TIMER_FAULT:
    case TW_SIM_TIMER_HEAL:
    case TW_SIM_TIMER_CALM: tw_sim_faults_timer(world, timer); break;
    case TW_SIM_TIMER_BETRAY:
    case TW_SIM_TIMER_LATE: tw_sim_treason_timer(world, timer); break;
    case TW_SIM_TIMER_SAMPLE:
        tw_sim_calm_sample(world);
        tw_sim_push(world, world->now_us + SAMPLE_US, TW_SIM_TIMER_SAMPLE, 0, 0, 0, NULL);
        break;
    case TW_SIM_TIMER_END:
        tw_sim_calm_end(world);
        world->is_over = true;
        break;
    case TW_SIM_TIMER_TICK:
    case TW_SIM_TIMER_TO_CORE:
    case TW_SIM_TIMER_CHECKPOINT:
    case TW_SIM_TIMER_STORED:
    case TW_SIM_TIMER_SAVED:
    case TW_SIM_TIMER_START:
    case TW_SIM_TIMER_STOP: tw_sim_shell_timer(world, timer); break;
    }
}

static void run_timers(struct tw_sim_world *world) {
    struct tw_sim_timer timer;
    while (!world->is_over && !world->result->is_failed && tw_sim_heap_pop(&world->heap, &timer)) {
        TW_ASSERT(timer.at_us >= world->now_us);
        world->now_us = timer.at_us;
        world->result->timers++;
        const struct tw_sim_node *subject = subject_of(world, &timer);
        if (subject != NULL && subject->is_running && subject->stalled_until_us > world->now_us) {
            timer.at_us = subject->stalled_until_us;
            tw_sim_heap_push(&world->heap, timer);
            continue;
        }
        dispatch(world, &timer);
        free(timer.data);
    }
}

void tw_sim_run(const struct tw_sim_options *options, struct tw_sim_result *result, FILE *trace) {
    memset(result, 0, sizeof *result);
    result->failed_node = -1;
    struct tw_sim_world *world = malloc(sizeof *world);
    TW_ASSERT(world != NULL);
    world_init(world, options, result, trace);
    assert_world = world;
    if (setjmp(assert_exit) == 0) run_timers(world);
    assert_world = NULL;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (node->is_running) node->up_total_us += world->now_us - node->up_us;
        const double hours = (double)node->up_total_us / SECOND_US / 3600;
        struct tw_sim_use *use =
            &result->use[options->heads_count > 0 && i >= options->heads_count];
        use->node_hours += hours;
        use->messages += node->sent_count;
        use->sent_bytes += node->sent_bytes;
        use->received_bytes += node->received_bytes;
        result->node_hours += hours;
    }
    world_deinit(world);
    free(world);
}
