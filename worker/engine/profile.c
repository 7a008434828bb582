#include "worker/engine/profile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/units.h"

/* One thread's stopwatch, on cache lines of its own. */
struct lane {
    _Alignas(64) uint64_t last_ns;
    uint64_t ns[TW_PROFILE_KINDS];
    double flops[TW_PROFILE_KINDS];
    uint32_t in[TW_PROFILE_KINDS], out[TW_PROFILE_KINDS];
};

struct tw_profile {
    uint32_t threads;
    bool is_warm; /* the first step's times are gone */
    uint64_t steps, begin_ns, steps_ns;
    struct lane lanes[];
};

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static size_t bytes_of(uint32_t threads) {
    return sizeof(struct tw_profile) + threads * sizeof(struct lane);
}

enum tw_status tw_profile_create(struct tw_profile **profile, uint32_t threads,
                                 struct tw_error *err) {
    const size_t bytes = bytes_of(threads);
    *profile = aligned_alloc(_Alignof(struct tw_profile), bytes);
    if (*profile == NULL) return tw_fail(err, TW_NOMEM, "no memory for times by operator");
    memset(*profile, 0, bytes);
    (*profile)->threads = threads;
    return TW_OK;
}

void tw_profile_destroy(struct tw_profile *profile) {
    free(profile);
}

void tw_profile_step_begin(struct tw_profile *profile) {
    if (!profile->is_warm && profile->steps == 1) {
        const uint32_t threads = profile->threads;
        memset(profile, 0, bytes_of(threads));
        profile->threads = threads;
        profile->is_warm = true;
    }
    profile->begin_ns = now_ns();
}

void tw_profile_step_end(struct tw_profile *profile) {
    profile->steps_ns += now_ns() - profile->begin_ns;
    profile->steps++;
}

void tw_profile_start(struct tw_profile *profile, uint32_t thread) {
    profile->lanes[thread].last_ns = now_ns();
}

void tw_profile_lap(struct tw_profile *profile, uint32_t thread, enum tw_profile_kind kind) {
    struct lane *lane = &profile->lanes[thread];
    const uint64_t now = now_ns();
    TW_ASSERT(thread < profile->threads && kind < TW_PROFILE_KINDS);
    lane->ns[kind] += now - lane->last_ns;
    lane->last_ns = now;
}

void tw_profile_lap_product(struct tw_profile *profile, uint32_t thread, enum tw_profile_kind kind,
                            double flops, uint32_t in, uint32_t out) {
    struct lane *lane = &profile->lanes[thread];
    tw_profile_lap(profile, thread, kind);
    lane->flops[kind] += flops;
    lane->in[kind] = in;
    lane->out[kind] = out;
}

/* ---- results --------------------------------------------------------------------------------- */

static const char *const JSON_NAMES[] = {
#define JSON_NAME(id, json, name) json,
    TW_PROFILE_EACH(JSON_NAME)};

static const char *const NAMES[] = {
#define NAME(id, json, name) name,
    TW_PROFILE_EACH(NAME)};

static int by_seconds(const void *a, const void *b) {
    const struct tw_profile_row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

uint32_t tw_profile_rows(const struct tw_profile *profile, struct tw_profile_row *rows,
                         double *step_s, uint64_t *steps) {
    uint32_t count = 0;
    double busy_s = 0.0;
    *steps = profile->steps;
    *step_s = 0.0;
    if (profile->steps == 0) return 0;
    const double thread_steps = (double)profile->steps * profile->threads;
    *step_s = (double)profile->steps_ns * 1e-9 / (double)profile->steps;
    for (uint32_t kind = 0; kind < TW_PROFILE_WAITING; kind++) {
        struct tw_profile_row row = {.kind = (enum tw_profile_kind)kind};
        double all_s = 0.0, flops = 0.0;
        for (uint32_t i = 0; i < profile->threads; i++) {
            const struct lane *lane = &profile->lanes[i];
            all_s += (double)lane->ns[kind] * 1e-9;
            flops += lane->flops[kind];
            if (lane->in[kind] > row.in) row.in = lane->in[kind];
            if (lane->out[kind] > row.out) row.out = lane->out[kind];
        }
        if (all_s == 0.0) continue;
        row.seconds = all_s / thread_steps;
        row.share = row.seconds / *step_s;
        row.flops_s = flops / all_s * profile->threads;
        rows[count++] = row;
        busy_s += all_s / thread_steps;
    }
    const double left_s = *step_s > busy_s ? *step_s - busy_s : 0.0;
    rows[count++] = (struct tw_profile_row){
        .kind = TW_PROFILE_WAITING, .seconds = left_s, .share = left_s / *step_s};
    qsort(rows, count, sizeof(*rows), by_seconds);
    return count;
}

void tw_profile_print(FILE *out, const struct tw_profile *profile) {
    struct tw_profile_row rows[TW_PROFILE_KINDS];
    double step_s;
    uint64_t steps;
    char share[TW_UNITS_BYTES], speed[TW_UNITS_BYTES];
    const uint32_t count = tw_profile_rows(profile, rows, &step_s, &steps);
    if (count == 0) return;
    (void)fprintf(out,
                  "time by operator: mean of %" PRIu64 " step%s of %.2f ms on %" PRIu32
                  " thread%s\n  %-38s %10s %8s\n",
                  steps, tw_units_s((double)steps), step_s * 1e3, profile->threads,
                  tw_units_s(profile->threads), "operator", "ms a step", "share");
    for (uint32_t i = 0; i < count; i++) {
        (void)fprintf(out, "  %-38s %10.2f %8s", NAMES[rows[i].kind], rows[i].seconds * 1e3,
                      tw_units_percent(share, rows[i].share));
        if (rows[i].flops_s > 0.0) {
            (void)fprintf(out, "   %5" PRIu32 " x %-6" PRIu32 " %s", rows[i].in, rows[i].out,
                          tw_units_flops(speed, rows[i].flops_s));
        }
        (void)fputc('\n', out);
    }
}

void tw_profile_print_json(FILE *out, const struct tw_profile *profile) {
    struct tw_profile_row rows[TW_PROFILE_KINDS];
    double step_s;
    uint64_t steps;
    const uint32_t count = tw_profile_rows(profile, rows, &step_s, &steps);
    (void)fprintf(out,
                  "\"steps_measured\": %" PRIu64 ", \"step_s\": %.9g, \"threads\": %" PRIu32
                  ", \"operators\": [",
                  steps, step_s, profile->threads);
    for (uint32_t i = 0; i < count; i++) {
        (void)fprintf(out, "%s{\"operator\": \"%s\", \"seconds\": %.9g, \"share_ratio\": %.6g",
                      i == 0 ? "" : ", ", JSON_NAMES[rows[i].kind], rows[i].seconds, rows[i].share);
        if (rows[i].flops_s > 0.0) {
            (void)fprintf(out, ", \"in\": %" PRIu32 ", \"out\": %" PRIu32 ", \"flops_per_s\": %.6g",
                          rows[i].in, rows[i].out, rows[i].flops_s);
        }
        (void)fputc('}', out);
    }
    (void)fputc(']', out);
}
