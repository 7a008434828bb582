/* sample.h - the next token from logits: temperature, the k likeliest, the nucleus, less
 * repetition.
 *
 *     l_i  = logits, those of recent tokens made less likely (Keskar et al., arXiv 1909.05858, 4.1:
 *            l / penalty when positive, l * penalty when not)
 *     p_i  = softmax(l / temperature) over the top_k largest
 *     then = over the fewest likeliest tokens whose p sum to top_p (Holtzman et al., arXiv
 *            1904.09751)
 *
 * Ties go to the smaller token, so the same logits and generator give the same token. */
#ifndef TW_WORKER_ENGINE_SAMPLE_H
#define TW_WORKER_ENGINE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

struct tw_sample_config {
    float temperature;    /* 0 = always the likeliest token */
    uint32_t top_k;       /* sample among the k likeliest; 0 = all */
    float top_p;          /* of their probability, this much; 0 or >= 1 = all */
    float repeat_penalty; /* > 1 makes tokens of the recent past less likely; 0 or 1 = off */
};

/* Room for one choice; vocab of them. */
struct tw_candidate {
    float logit;
    uint32_t token;
    double weight;
};

/* Makes each different token of recent (count) less likely in logits (vocab); tokens outside the
 * vocabulary are passed over. */
void tw_sample_penalise(float *logits, uint32_t vocab, const uint32_t *recent, size_t count,
                        float penalty);

/* A token of logits (vocab), finite, after any penalty. candidates (vocab): scratch. Draws from rng
 * once, or not at all when the choice is forced. */
uint32_t tw_sample(const float *logits, uint32_t vocab, const struct tw_sample_config *config,
                   struct tw_candidate *candidates, struct tw_rng *rng);

#endif
