/* measure.c - held-out loss and distance of the nodes in a world. */
#include "tests/bench/quality/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

uint64_t traffic_of(uint64_t payload_bytes) {
    const uint64_t chunks = (payload_bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX;
    return payload_bytes + chunks * (TW_FRAME_HEADER_BYTES + TW_CHUNK_HEADER_BYTES);
}

uint64_t traffic_total(const struct traffic *traffic) {
    return traffic->contributions + traffic->results + traffic->states + traffic->control;
}

enum tw_status measure_open(struct measure *measure, const struct tw_layout *layout,
                            struct tw_error *err) {
    measure->params = calloc((size_t)layout->elements, sizeof(float));
    measure->mean = calloc((size_t)layout->elements, sizeof(float));
    measure->one = calloc((size_t)layout->elements, sizeof(float));
    measure->sum = calloc((size_t)layout->elements, sizeof(double));
    if (measure->params != NULL && measure->mean != NULL && measure->one != NULL &&
        measure->sum != NULL) {
        return TW_OK;
    }
    return tw_fail(err, TW_NOMEM, "no memory to measure a model");
}

void measure_close(struct measure *measure) {
    free(measure->params);
    free(measure->mean);
    free(measure->one);
    free(measure->sum);
    *measure = (struct measure){.params = NULL};
}

static bool counts(const struct node *node) {
    return node->is_alive && !node->is_hostile;
}

/* Computes the mean of the nodes' theta. Returns their distance from it. */
static double take_mean(struct measure *measure, const struct node *nodes, uint32_t count) {
    const size_t n = (size_t)nodes[0].layout->elements;
    double distance = 0, size = 0;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < count; i++) counted += counts(&nodes[i]);
    for (size_t e = 0; e < n; e++) {
        double sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (counts(&nodes[i])) sum += (double)nodes[i].engine->theta[e];
        }
        measure->mean[e] = (float)(sum / counted);
        size += (sum / counted) * (sum / counted);
        for (uint32_t i = 0; i < count; i++) {
            if (!counts(&nodes[i])) continue;
            const double d = (double)nodes[i].engine->theta[e] - sum / counted;
            distance += d * d;
        }
    }
    return sqrt(distance / counted / size);
}

/* In pairs: computes the mean of the nodes' anchors. Returns their distance from it. */
static double take_anchors(struct measure *measure, const struct node *nodes, uint32_t count) {
    const size_t n = (size_t)nodes[0].layout->elements;
    double squares = 0, size = 0;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!counts(&nodes[i])) continue;
        node_anchor(&nodes[i], measure->one);
        for (size_t e = 0; e < n; e++) {
            const double x = (double)measure->one[e];
            measure->sum[e] = (counted == 0 ? 0 : measure->sum[e]) + x;
            squares += x * x;
        }
        counted++;
    }
    for (size_t e = 0; e < n; e++) {
        const double mean = measure->sum[e] / counted;
        measure->params[e] = (float)mean;
        size += mean * mean;
    }
    return sqrt(fmax(squares / counted - size, 0) / size);
}

/* Computes the mean losses of the nodes' own anchors, or of their models if they have no anchors.
 */
static enum tw_status take_own(struct measure *measure, struct node *nodes, uint32_t count,
                               struct outcome *outcome, struct tw_error *err) {
    const uint32_t texts = nodes[0].texts->count;
    double sums[TEXTS_MAX] = {0}, sum = 0, home = 0;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct node *node = &nodes[i];
        const float *params = node->engine->theta;
        double by_text[TEXTS_MAX];
        struct tw_eval eval;
        if (!counts(node)) continue;
        if (node->has_merger && !node->is_apart) {
            node_anchor(node, measure->one);
            params = measure->one;
        }
        TW_TRY(node_heldout(node, params, 0, by_text, &eval, err));
        for (uint32_t k = 0; k < texts; k++) sums[k] += by_text[k];
        home += by_text[node->index % texts];
        sum += eval.nats;
        counted++;
    }
    outcome->own = sum / counted;
    outcome->own_at_home = home / counted;
    for (uint32_t k = 0; k < texts; k++) outcome->own_by_text[k] = sums[k] / counted;
    return TW_OK;
}

static bool has_own(const struct node *node) {
    const struct setting *setting = node->setting;
    return node->is_apart ||
           (setting->kind == KIND_GROUP && setting->run.sync.topology != TW_TOPOLOGY_GROUP);
}

enum tw_status measure_take(struct measure *measure, struct node *nodes, uint32_t count,
                            const struct traffic *traffic, bool is_last, struct outcome *outcome,
                            struct tw_error *err) {
    struct node *judge = NULL;
    struct point point = {.bytes = traffic_total(traffic)};
    struct tw_eval anchor, mean;
    double by_text[TEXTS_MAX];
    for (uint32_t i = count; i > 0; i--) {
        if (counts(&nodes[i - 1])) judge = &nodes[i - 1];
        point.tokens += nodes[i - 1].trained;
    }
    if (judge == NULL) return tw_fail(err, TW_AGAIN, "nobody is left to be measured");
    const uint64_t windows =
        is_last ? 0 : CURVE_TOKENS / judge->data[0].context / judge->texts->count;
    point.distance = take_mean(measure, nodes, count);
    TW_TRY(node_heldout(judge, measure->mean, windows, by_text, &mean, err));
    anchor = mean;
    if (judge->has_merger && !judge->is_apart) {
        if (judge->setting->run.sync.topology == TW_TOPOLOGY_PAIR) {
            point.distance = take_anchors(measure, nodes, count);
        } else {
            node_anchor(judge, measure->params);
        }
        TW_TRY(node_heldout(judge, measure->params, windows, by_text, &anchor, err));
    }
    point.anchor = anchor.nats;
    point.mean = mean.nats;
    if (outcome->count < OUTCOME_POINTS_MAX) outcome->points[outcome->count++] = point;
    if (!is_last) return TW_OK;
    outcome->anchor = anchor;
    outcome->mean = mean;
    outcome->tokens = point.tokens;
    memcpy(outcome->by_text, by_text, sizeof(by_text));
    outcome->own = outcome->own_at_home = NAN;
    return has_own(judge) ? take_own(measure, nodes, count, outcome, err) : TW_OK;
}
