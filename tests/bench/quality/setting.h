/* setting.h - one case of a plan: a run's manifest, and what happens to its nodes. */
#ifndef TW_TESTS_QUALITY_SETTING_H
#define TW_TESTS_QUALITY_SETTING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/run/run.h"

enum { SETTING_PAIRS_MAX = 96, SETTING_WORD_BYTES = 64, SETTING_VARIED_BYTES = 256 };

enum kind {
    KIND_GROUP, /* nodes that sync as the manifest says */
    KIND_ALONE, /* one node with a node's batch, for as many steps as a node of the group does */
    KIND_BIG    /* one node that takes the batches of all the others: data parallel, every step */
};

/* What hostile nodes send in place of their outer gradient D. */
enum hostility {
    HOSTILE_NONE,
    HOSTILE_FLIP,  /* -10 D */
    HOSTILE_NOISE, /* normal numbers, 1000 times the size of D */
    HOSTILE_NAN,   /* bytes that should decode to nothing finite */
    HOSTILE_SHIFT  /* twice the size of D, all of them in one direction: what the guard lets in */
};

struct setting {
    char name[SETTING_WORD_BYTES];     /* of the case's line in the plan */
    char varied[SETTING_VARIED_BYTES]; /* "seed=1 train.lr=0.004": the keys that have a grid */
    enum kind kind;
    uint32_t nodes, steps, warmup; /* steps: of a node at the planned speed */
    uint32_t evals;                /* points of the curve */
    uint64_t seed;                 /* of initial weights and of the order of the data */
    bool is_exact;                 /* float32 on the wire, whatever sync.codec says */
    uint32_t step_ms, latency_ms;  /* virtual: an inner step; from a closed intake to a commit */
    uint32_t slow[TW_MEMBERS_MAX]; /* a node's step takes so many times step_ms */
    /* What a node may contribute, in 1/1000 bit per parameter, where sync.codec = auto; 0: any */
    uint32_t budget[TW_MEMBERS_MAX];
    struct {
        uint32_t node, at, steps; /* gone after step `at` of a planned node, for `steps` */
    } death;                      /* steps 0: nobody dies */
    struct {
        enum hostility kind;
        uint32_t count;   /* the last ones of the nodes */
        bool is_owner;    /* their results are false too, not only their contributions */
        bool is_secret;   /* their results alone are */
        bool is_proposer; /* what they propose as proposers too: proposer.h */
        uint32_t claims;  /* they say that they took so many times the steps; 0: what they took */
    } hostile;
    uint32_t gamma_millionths; /* of pairs, outside the bounds of sync.consensus too; 0: that */
    struct tw_run run;
    struct tw_id id; /* of all of the above */
};

struct pair {
    char key[SETTING_WORD_BYTES], value[SETTING_WORD_BYTES];
};

/* From key=value pairs: keys of a manifest, where those of sync.* overrule the preset, and
 *
 *     kind     group, alone, big        nodes, steps, warmup, evals, seed    numbers
 *     model    tiny, small, medium, NAME preset   NAME          exact         yes, no
 *     step_ms, latency_ms   numbers     slow     1:1:20        death         NODE@STEP+STEPS
 *     budget   0.5, 4:1:0.5 bits per parameter of the nodes, the last of all others
 *     hostile  flip:2, noise:2, nan:2, shift:2              hostile_owner  yes, no, only
 *     hostile_proposer  yes, no     hostile_claims  64
 *     gamma    1.8
 *
 * TW_CONFIG names the case. `text`: of the training text, enters the id. */
enum tw_status setting_make(struct setting *setting, const char *name, const struct pair *pairs,
                            uint32_t count, const struct tw_id *text, struct tw_error *err);

/* Keys of the manifest that are not zero, as text lines `key = value`: what the id covers, so that
 * a key that is added later, and is zero, changes no id. size: room in text. */
void setting_manifest(const struct setting *setting, char *text, size_t size);

const char *kind_name(enum kind kind);

#endif
