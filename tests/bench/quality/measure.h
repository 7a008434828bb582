/* measure.h - results of a case: held-out loss of the shared anchor and of the mean of the nodes,
 * over tokens trained and over bytes sent. */
#ifndef TW_TESTS_QUALITY_MEASURE_H
#define TW_TESTS_QUALITY_MEASURE_H

#include "tests/bench/quality/node.h"
#include "worker/learn/learner_engine.h"

/* CURVE_TOKENS is the number of held-out tokens per point of the curve, except the last.
 * CONTROL_BYTES is the control traffic of a round between two nodes, per direction: proposal,
 * votes, announcements and requests. It was measured with three daemons
 * (daemon/cli/run/ways.c). */
enum { OUTCOME_POINTS_MAX = 1001, CURVE_TOKENS = 32768, CONTROL_BYTES = 1500 };

/* Bytes of payloads that leave a node. Part k of a contribution is sent to its owner, a result to
 * every other live node, and packed state to a node that joins. A node sends no payload to itself.
 * In each chunk of 256 KiB, a payload has a frame header and a chunk header:
 *
 *     bytes(payload) = size + 72 * ceil(size / 262144) */
struct traffic {
    uint64_t contributions, results, states, control; /* bytes */
    uint64_t elements; /* elements of all contributions, sent or not, for bits per element */
    uint64_t coded;    /* bytes of these elements when encoded */
    uint64_t refused;  /* undecodable contributions, and parts that the merge left out */
    uint64_t missed;   /* contributions that were too late */
};
uint64_t traffic_of(uint64_t payload_bytes);
uint64_t traffic_total(const struct traffic *traffic);

struct point {
    uint64_t tokens, bytes; /* totals over all nodes so far: tokens trained, bytes sent */
    double anchor, mean; /* loss of phi, and of the mean of the nodes' theta, in nats per token */
    /* root mean square of |theta_i - mean| / |mean| over the nodes; in pairs, phi_i replaces
     * theta_i, and `anchor` is the loss of the mean phi */
    double distance;
};

struct outcome {
    uint64_t rounds, tokens, params, skipped;
    struct traffic traffic;
    struct point points[OUTCOME_POINTS_MAX];
    uint32_t count;
    struct tw_eval anchor, mean; /* losses over all held-out text */
    /* mean loss of the nodes' own anchors or models (`anchor` is then the loss of their mean);
     * NaN if all have the same anchor */
    double own;
    double by_text[TEXTS_MAX];     /* loss of `anchor` by text */
    double own_by_text[TEXTS_MAX]; /* `own` by text; NaN where that is */
    /* mean loss of each node's own anchor or model on the node's own text; NaN where `own` is */
    double own_at_home;
};

struct measure {
    float *params, *mean, *one; /* (elements) */
    double *sum;
    uint32_t taken; /* points so far */
};

enum tw_status measure_open(struct measure *measure, const struct tw_layout *layout,
                            struct tw_error *err);
void measure_close(struct measure *measure);

/* Adds a point on part of the held-out text or, if is_last, the final point on all of it. Dead and
 * hostile nodes do not count. `nodes` has `count` nodes. */
enum tw_status measure_take(struct measure *measure, struct node *nodes, uint32_t count,
                            const struct traffic *traffic, bool is_last, struct outcome *outcome,
                            struct tw_error *err);

#endif
