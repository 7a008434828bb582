#include "worker/merge/momentum.h"

#include <stdint.h>
#include <string.h>

#include "kernels/norm.h"
#include "kernels/type.h"

enum { PIECE = 1024 }; /* elements that are converted at a time */

static void take(enum tw_momentum momentum, const void *u, size_t begin, float *out, size_t n) {
    if (momentum == TW_MOMENTUM_NONE) {
        memset(out, 0, n * sizeof(float));
        return;
    }
    const uint16_t *const from = (const uint16_t *)u + begin;
    for (size_t i = 0; i < n; i++) out[i] = tw_bf16_to_f32(from[i]);
}

static void give(enum tw_momentum momentum, void *u, size_t begin, const float *from, size_t n) {
    if (momentum == TW_MOMENTUM_NONE) return;
    uint16_t *const to = (uint16_t *)u + begin;
    for (size_t i = 0; i < n; i++) to[i] = tw_bf16_from_f32(from[i]);
}

static size_t piece_of(size_t left) {
    return left < PIECE ? left : PIECE;
}

typedef void (*outer_rule)(float *phi, float *u, const float *delta, size_t n,
                           struct tw_outer rule);

static void step_by(outer_rule outer, const struct tw_momentum_step *step, const float *delta,
                    struct tw_outer rule) {
    float *const phi = step->phi + step->begin;
    if (step->momentum == TW_MOMENTUM_FLOAT32) {
        outer(phi, (float *)step->u + step->begin, delta, step->n, rule);
        return;
    }
    float u[PIECE];
    for (size_t at = 0; at < step->n; at += PIECE) {
        const size_t n = piece_of(step->n - at);
        take(step->momentum, step->u, step->begin + at, u, n);
        outer(phi + at, u, delta + at, n, rule);
        give(step->momentum, step->u, step->begin + at, u, n);
    }
}

void tw_momentum_nesterov(const struct tw_momentum_step *step, const float *delta,
                          struct tw_outer rule) {
    step_by(tw_outer_nesterov, step, delta, rule);
}

void tw_momentum_heavyball(const struct tw_momentum_step *step, const float *delta,
                           struct tw_outer rule) {
    step_by(tw_outer_heavyball, step, delta, rule);
}

void tw_momentum_pull(const struct tw_momentum_step *step, const float *own, const float *theirs,
                      float half) {
    float *const phi = step->phi + step->begin;
    if (step->momentum == TW_MOMENTUM_FLOAT32) {
        tw_outer_pull(phi, (float *)step->u + step->begin, own, theirs, half, step->n);
        return;
    }
    float u[PIECE];
    for (size_t at = 0; at < step->n; at += PIECE) {
        const size_t n = piece_of(step->n - at);
        take(step->momentum, step->u, step->begin + at, u, n);
        tw_outer_pull(phi + at, u, own + at, theirs + at, half, n);
        give(step->momentum, step->u, step->begin + at, u, n);
    }
}

double tw_momentum_squared(enum tw_momentum momentum, const void *u, size_t begin, size_t n) {
    if (momentum == TW_MOMENTUM_FLOAT32) return tw_norm_squared((const float *)u + begin, n);
    if (momentum == TW_MOMENTUM_NONE) return 0.0;
    float piece[PIECE];
    double sum = 0.0;
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = piece_of(n - at);
        take(momentum, u, begin + at, piece, count);
        sum += tw_norm_squared(piece, count);
    }
    return sum;
}

bool tw_momentum_is_finite(enum tw_momentum momentum, const void *u, size_t n) {
    if (momentum == TW_MOMENTUM_FLOAT32) return tw_is_finite(u, n);
    float piece[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = piece_of(n - at);
        take(momentum, u, at, piece, count);
        if (!tw_is_finite(piece, count)) return false;
    }
    return true;
}
