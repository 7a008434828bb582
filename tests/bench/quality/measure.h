/* measure.h - what a case comes to: held-out loss of the shared anchor and of the mean of the
 * nodes, against tokens and against bytes at the socket. */
#ifndef TW_TESTS_QUALITY_MEASURE_H
#define TW_TESTS_QUALITY_MEASURE_H

#include "tests/bench/quality/node.h"
#include "worker/learn/eval.h"

/* CURVE_TOKENS: of the held-out text, for points before the last. CONTROL_BYTES: of a round between
 * two nodes, each way (proposal, votes, heads of what is offered and asked for), as three daemons
 * were measured: daemon/cli/run/run_budget.c. */
enum { OUTCOME_POINTS_MAX = 1001, CURVE_TOKENS = 32768, CONTROL_BYTES = 1500 };

/* Bytes of payloads that leave a node: part k of a contribution goes to its owner, a result to
 * every other live node, packed state to a node that joins. What a node is itself the owner of
 * travels nowhere. Each payload takes, per chunk of 256 KiB, a frame head and a chunk head:
 *
 *     bytes(payload) = size + 72 ceil(size / 262144) */
struct traffic {
    uint64_t contributions, results, states, control; /* bytes */
    uint64_t elements; /* of contributions, whether they travelled or not: for bits of each */
    uint64_t coded;    /* bytes of those */
    uint64_t refused;  /* contributions that did not decode, and parts the merge left out */
    uint64_t missed;   /* contributions nobody waited for */
};
uint64_t traffic_of(uint64_t payload_bytes);
uint64_t traffic_total(const struct traffic *traffic);

struct point {
    uint64_t tokens, bytes; /* trained by all nodes, sent by all nodes; so far */
    double anchor, mean;    /* nats per token: phi, and the mean of the nodes' theta */
    double distance;        /* root of the mean of |theta_i - mean|^2, over |mean|; in pairs of
                               phi_i, and anchor is that of their mean */
};

struct outcome {
    uint64_t rounds, tokens, params, skipped;
    struct traffic traffic;
    struct point points[OUTCOME_POINTS_MAX];
    uint32_t count;
    struct tw_eval anchor, mean; /* over all held-out text */
    double own; /* where nodes have anchors, or models, of their own: the mean of their losses,
                   where `anchor` is the loss of their mean; NaN where all have the same */
};

struct measure {
    float *params, *mean, *one; /* (elements) */
    double *sum;
    uint32_t taken; /* points so far */
};

enum tw_status measure_open(struct measure *measure, const struct tw_layout *layout,
                            struct tw_error *err);
void measure_close(struct measure *measure);

/* Adds a point over some of the held-out text, or with is_last the end over all of it. Nodes that
 * are gone or hostile do not count. nodes (count). */
enum tw_status measure_take(struct measure *measure, struct node *nodes, uint32_t count,
                            const struct traffic *traffic, bool is_last, struct outcome *outcome,
                            struct tw_error *err);

#endif
