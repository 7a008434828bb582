/* setting.h - one case of a plan: the manifest of a run, and the events of its nodes. */
#ifndef TW_TESTS_QUALITY_SETTING_H
#define TW_TESTS_QUALITY_SETTING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/compute.h"
#include "proto/run/run.h"
#include "tests/bench/quality/texts.h"

enum { SETTING_PAIRS_MAX = 96, SETTING_WORD_BYTES = 64, SETTING_VARIED_BYTES = 256 };

enum kind {
    KIND_GROUP, /* nodes that merge as the manifest says */
    KIND_ALONE, /* one node with the batch of one node, for as many steps as a node of the group */
    KIND_BIG    /* one node with the batches of all nodes: data parallel at every step */
};

/* The vector that a hostile node sends instead of its outer gradient D. */
enum hostility {
    HOSTILE_NONE,
    HOSTILE_FLIP,  /* -10 * D */
    HOSTILE_NOISE, /* normally distributed noise, 1000 times the size of D */
    HOSTILE_NAN,   /* undecodable bytes */
    HOSTILE_SHIFT  /* twice the size of D in one common direction: the most that the guard admits */
};

/* The texts that a node draws its windows from. With K texts, the text of node i is text i mod K.
 */
enum mix {
    MIX_EQUAL, /* all texts in equal shares */
    MIX_HALF,  /* half of the windows from the node's text, the others from all in equal shares */
    MIX_OWN    /* the node's text only */
};

struct setting {
    char name[SETTING_WORD_BYTES];     /* name on the case's line in the plan */
    char varied[SETTING_VARIED_BYTES]; /* keys with several values, as in "seed=1 train.lr=0.004" */
    enum kind kind;
    uint32_t nodes, steps, warmup; /* steps: of a node at normal speed */
    uint32_t evals;                /* number of points on the curve */
    uint64_t seed;                 /* seed of the initial weights and of the data order */
    bool is_exact;                 /* true if float32 is sent, whatever sync.codec */
    enum mix mix;
    uint32_t threads; /* of an engine; any number gives the same bits, and the id lacks it */
    enum tw_compute compute;
    /* virtual time of an inner step; from the end of intake to the commit */
    uint32_t step_ms, latency_ms;
    uint32_t slow[TW_MEMBERS_MAX]; /* factor by which a node's step_ms is multiplied */
    /* Limit of a node's contribution with sync.codec = auto, in 1/1000 bit per parameter; 0: no
     * limit. */
    uint32_t budget[TW_MEMBERS_MAX];
    uint32_t unlinked; /* number of unlinked pairs, among the nodes after the first two */
    struct {
        /* `node` is dead for `steps` steps, after step `at` of a node at normal speed */
        uint32_t node, at, steps;
    } death; /* steps = 0: no death */
    struct {
        enum hostility kind;
        uint32_t count;   /* number of hostile nodes, which are the last ones */
        bool is_owner;    /* true if results of hostile nodes are false, too */
        bool is_secret;   /* true if only results of hostile nodes are false */
        bool is_proposer; /* true if proposals of hostile nodes are false, too (proposer.h) */
        /* factor by which hostile nodes exaggerate their steps; 0: honest counts */
        uint32_t claims;
    } hostile;
    /* gamma of pairs, within or outside the bounds of sync.consensus; 0: sync.consensus */
    uint32_t gamma_millionths;
    struct tw_run run;
    struct tw_id id; /* hash of all fields above */
};

struct pair {
    char key[SETTING_WORD_BYTES], value[SETTING_WORD_BYTES];
};

/* Makes a case from key=value pairs. Keys are those of a manifest (keys sync.* override the
 * preset), and:
 *
 *     kind     group, alone, big        nodes, steps, warmup, evals, seed    numbers
 *     model    tiny, small, medium, 3m, 10m, NAME preset   NAME          exact         yes, no
 *     step_ms, latency_ms   numbers     slow     1:1:20        death         NODE@STEP+STEPS
 *     unlinked  number of pairs without a link, like nodes behind NAT without relays: drawn by the
 *              seed among the nodes after the first two, in a group
 *     budget   0.5, 4:1:0.5 bits per parameter of the nodes; the last also for all others
 *     hostile  flip:2, noise:2, nan:2, shift:2              hostile_owner  yes, no, only
 *     hostile_proposer  yes, no     hostile_claims  64
 *     gamma    1.8        mix       equal, half, own
 *     threads  of an engine: 1   compute   fp32, bf16 (where the processor has bf16 products)
 *
 * The message of TW_CONFIG names the case. The id of `texts` is part of the
 * case's id. */
enum tw_status setting_make(struct setting *setting, const char *name, const struct pair *pairs,
                            uint32_t count, const struct texts *texts, struct tw_error *err);

/* Writes the manifest's nonzero keys as lines `key = value` to `text`, which has room for `size`
 * bytes. The id covers these lines, so a key that is added later with value zero changes no id. */
void setting_manifest(const struct setting *setting, char *text, size_t size);

const char *kind_name(enum kind kind);
const char *mix_name(enum mix mix);

#endif
