#include "daemon/cli/run/run_traffic.h"

#include <math.h>

#include "compress/codec.h"

/* Traffic per peer, measured with three daemons: STATUS once a second, and a round's other
 * messages. */
#define CONTROL_BYTES_S 300.0
#define CONTROL_BYTES_ROUND 1500.0
#define HEADERS 1.03 /* factor for TCP, IP and TLS headers */
#define ANCHOR_BITS 8.0

double cli_contribution_bits(const struct tw_run *run) {
    return tw_codec_get(run->sync.codec)->bits;
}

/* Returns the fraction of the values that a codec sends. */
static double density_of(enum tw_codec_id codec) {
    enum { BLOCK = 4096 };
    if (codec == TW_CODEC_TOPK256) return 256.0 / BLOCK;
    if (codec == TW_CODEC_TOPK64) return 64.0 / BLOCK;
    if (codec == TW_CODEC_TOPK32) return 32.0 / BLOCK;
    return 1.0;
}

/* The positions of n sparse contributions overlap by chance. The result needs the entropy of their
 * union and about 6 bits per value. Measured: 1.6 bits per parameter with three nodes, 3.6 with
 * eight. */
static double result_bits(const struct tw_run *run) {
    enum { VALUE_BITS = 6 };
    const double whole = tw_codec_get(run->sync.result)->bits;
    const double none = pow(1.0 - density_of(run->sync.codec), run->sync.nodes), some = 1.0 - none;
    if (!tw_codec_get(run->sync.codec)->is_sparse || none <= 0.0) return whole;
    const double positions = -none * log2(none) - some * log2(some);
    return fmin(whole, positions + some * VALUE_BITS);
}

/* Returns the bytes that a node sends per round. In a group: its contribution to the owners of the
 * other parts, and its own part's result to all others. In a pair: a contribution and the anchor.
 * With an odd number of nodes, one is left over in each round. */
static double payload_of(const struct tw_run *run, double params, double bits) {
    const double nodes = run->sync.nodes, each = params / run->sync.fragments / 8;
    switch (run->sync.topology) {
    case TW_TOPOLOGY_GROUP: return (nodes - 1) / nodes * each * (bits + result_bits(run));
    case TW_TOPOLOGY_PAIR:
        return (nodes - run->sync.nodes % 2) / nodes * each * (bits + ANCHOR_BITS);
    case TW_TOPOLOGY_SOLO: break;
    }
    return 0.0;
}

/* Each member makes as many checks a round as one contribution gets. Pairs make none. */
static double checks_of(const struct tw_run *run) {
    return run->sync.topology == TW_TOPOLOGY_GROUP ? run->sync.jury_millionths / 1e6 : 0.0;
}

double cli_checks_time(const struct tw_run *run) {
    /* Time of a check in times between two rounds: worker/loop/juror.h. */
    const double check = 2.0 / 3;
    return check * checks_of(run);
}

struct cli_traffic cli_traffic_of(const struct tw_run *run, double params, double bits,
                                  double steps_per_s) {
    const double peers = run->sync.nodes - 1.0;
    double control = CONTROL_BYTES_ROUND * peers;
    if (run->sync.topology == TW_TOPOLOGY_PAIR) control = CONTROL_BYTES_ROUND;
    if (run->sync.topology == TW_TOPOLOGY_SOLO) control = 0.0;
    const double payload = payload_of(run, params, bits);
    /* As an owner, the juror has its own part already. */
    const double checks =
        checks_of(run) * (peers / run->sync.nodes) * params / run->sync.fragments / 8 * bits;
    return (struct cli_traffic){
        .payload = payload,
        .round = HEADERS * (payload + checks + control),
        .idle = CONTROL_BYTES_S * peers,
        .rounds_s = run->sync.pace == TW_PACE_CLOCK
                        ? 1000.0 / run->sync.pace_ms
                        : steps_per_s * run->sync.fragments / run->sync.period,
    };
}

double cli_traffic_rate(const struct cli_traffic *traffic, double rounds_s) {
    return traffic->round * rounds_s + traffic->idle;
}
