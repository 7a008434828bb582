/* sample.h - samples the next token from logits: repetition penalty, temperature, top-k, top-p
 * (nucleus).
 *
 *     l_i  = logits, those of recent tokens made less likely (Keskar et al., arXiv 1909.05858, 4.1:
 *            l / penalty when positive, l * penalty when not)
 *     p_i  = softmax(l / temperature) over the top_k largest
 *     next = drawn from the fewest likeliest tokens whose p sum to top_p (Holtzman et al., arXiv
 *            1904.09751)
 *
 * Ties go to the smaller token, so the same logits and generator state give the same token. */
#ifndef TW_WORKER_ENGINE_SAMPLE_H
#define TW_WORKER_ENGINE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

struct tw_sample_config {
    float temperature;    /* 0: always the likeliest token */
    uint32_t top_k;       /* sample among the k likeliest; 0: all */
    float top_p;          /* probability mass of the nucleus; 0 or >= 1: all */
    float repeat_penalty; /* > 1 makes recent tokens less likely; 0 or 1: off */
};

/* Scratch for one token; tw_sample needs `vocab` of these. */
struct tw_candidate {
    float logit;
    uint32_t token;
    double weight;
};

/* Makes each distinct token of recent (count) less likely in logits (vocab). Tokens of `recent`
 * outside the vocabulary are ignored. */
void tw_sample_penalise(float *logits, uint32_t vocab, const uint32_t *recent, size_t count,
                        float penalty);

/* Samples a token from logits (vocab), which must be finite; apply any penalty first. candidates
 * (vocab) is scratch. Draws from rng at most once, and not at all if the choice is forced. */
uint32_t tw_sample(const float *logits, uint32_t vocab, const struct tw_sample_config *config,
                   struct tw_candidate *candidates, struct tw_rng *rng);

#endif
