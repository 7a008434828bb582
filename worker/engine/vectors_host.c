/* vectors_host.c - implements vectors.h for parameters in host memory. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/outer.h"
#include "worker/engine/vectors.h"

static enum tw_status alloc(void *self, float **x, size_t n, const char *what,
                            struct tw_error *err) {
    (void)self;
    *x = calloc(n, sizeof(float));
    if (*x != NULL) return TW_OK;
    return tw_fail(err, TW_NOMEM, "no memory for %s: %zu bytes", what, n * sizeof(float));
}

static void free_(void *self, float *x) {
    (void)self;
    free(x);
}

static bool pin(void *self, void *host, uint64_t bytes) {
    (void)self, (void)host, (void)bytes;
    return false;
}

static void unpin(void *self, void *host) {
    (void)self, (void)host;
}

static void copy(void *self, float *x, const float *from, size_t n) {
    (void)self;
    memcpy(x, from, n * sizeof(float));
}

static enum tw_status copy_out(void *self, float *to, const float *x, size_t n,
                               struct tw_error *err) {
    (void)self, (void)err;
    memcpy(to, x, n * sizeof(float));
    return TW_OK;
}

static void zero(void *self, float *x, size_t n) {
    (void)self;
    memset(x, 0, n * sizeof(float));
}

static void scale(void *self, float *x, float factor, size_t n) {
    (void)self;
    tw_scale(x, factor, n);
}

static void add(void *self, float *x, const float *y, float weight, size_t n) {
    (void)self;
    tw_merge_add(x, y, weight, n);
}

static void delta(void *self, const struct tw_vectors_delta *d) {
    (void)self;
    if (d->ahead == NULL && d->residual != NULL) {
        const struct tw_delta all = {.v = d->v,
                                     .delta = d->given,
                                     .anchor = d->phi,
                                     .theta = d->theta,
                                     .residual = d->residual,
                                     .beta = d->beta,
                                     .n = d->n};
        tw_delta_feedback(&all);
        return;
    }
    tw_delta(d->v, d->phi, d->theta, d->n);
    if (d->ahead != NULL) tw_merge_add(d->v, d->ahead, 1.0f, d->n);
    if (d->given != NULL) memcpy(d->given, d->v, d->n * sizeof(float));
    if (d->residual != NULL) tw_merge_add(d->v, d->residual, d->beta, d->n);
}

static void mix(void *self, float *theta, const float *anchor_new, float alpha, size_t n) {
    (void)self;
    tw_mix(theta, anchor_new, alpha, n);
}

static void shift(void *self, float *theta, const float *anchor_new, const float *anchor_old,
                  size_t n) {
    (void)self;
    tw_shift(theta, anchor_new, anchor_old, n);
}

static void outer(void *self, const struct tw_vectors_outer *step) {
    (void)self;
    if (step->is_heavyball) {
        tw_outer_heavyball(step->anchor, step->momentum, step->delta, step->n, step->rule);
    } else {
        tw_outer_nesterov(step->anchor, step->momentum, step->delta, step->n, step->rule);
    }
}

static void regain(void *self, const struct tw_regain *r) {
    (void)self;
    tw_regain(r);
}

static void lead(void *self, float *m, const float *v, const float *merged, size_t n,
                 const struct tw_momentum_lead *cfg) {
    (void)self;
    tw_momentum_lead(m, v, merged, n, cfg);
}

static double norm_squared(void *self, const float *x, size_t n) {
    (void)self;
    return tw_norm_squared(x, n);
}

static double distance_squared(void *self, const float *a, const float *b, size_t n) {
    (void)self;
    return tw_distance_squared(a, b, n);
}

static void energies(void *self, double *into, const float *x, size_t n) {
    struct tw_outlier_sizes sizes = {.count = {0}};
    (void)self;
    tw_outlier_add(&sizes, x, 0, n, n);
    memcpy(into, sizes.energy, sizeof(sizes.energy));
}

static bool can_pack(void *self, const struct tw_codec *codec) {
    (void)self, (void)codec;
    return false;
}

static enum tw_status pack(void *self, const struct tw_vectors_pack *wanted, struct tw_error *err) {
    (void)self, (void)err;
    TW_ASSERT(can_pack(self, wanted->codec));
    return TW_OK;
}

static void written(void *self, size_t begin, size_t n) {
    (void)self, (void)begin, (void)n;
}

static enum tw_status finish(void *self, struct tw_error *err) {
    (void)self, (void)err;
    return TW_OK;
}

struct tw_vectors tw_vectors_host(float *theta, float *m, float *v) {
    return (struct tw_vectors){
        .is_host = true,
        .theta = theta,
        .m = m,
        .v = v,
        .alloc = alloc,
        .free = free_,
        .host_alloc = alloc,
        .host_free = free_,
        .pin = pin,
        .unpin = unpin,
        .copy_in = copy,
        .copy_out = copy_out,
        .copy = copy,
        .zero = zero,
        .scale = scale,
        .add = add,
        .delta = delta,
        .mix = mix,
        .shift = shift,
        .outer = outer,
        .regain = regain,
        .lead = lead,
        .norm_squared = norm_squared,
        .distance_squared = distance_squared,
        .energies = energies,
        .can_pack = can_pack,
        .pack = pack,
        .written = written,
        .finish = finish,
    };
}
