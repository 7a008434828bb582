/* node.h - one node: a real engine on its own data, and the worker's merging in ordinary memory.
 * The world (world.h) acts as its daemon. */
#ifndef TW_TESTS_QUALITY_NODE_H
#define TW_TESTS_QUALITY_NODE_H

#include "proto/run/layout.h"
#include "proto/shm.h"
#include "sync/node.h"
#include "tests/bench/quality/jury.h"
#include "tests/bench/quality/setting.h"
#include "tests/bench/quality/texts.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"
#include "worker/learn/learner_engine.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"
#include "worker/merge/pairing.h"

/* Bytes to send, on the heap. */
struct payload {
    uint8_t *bytes;
    uint32_t size;
};
void payload_free(struct payload *payload);
struct payload payload_copy(const void *bytes, uint32_t size);

/* The parts of a fragment and their owners. */
struct division {
    uint32_t parts;
    uint32_t owners[TW_PARTS_MAX]; /* nodes */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
};

struct contribution {
    bool has;
    /* tokens since the newest listed contribution to any fragment, for the run clock */
    uint64_t tokens;
    uint64_t fragment_tokens; /* tokens in this Delta, for weights and guard */
    uint32_t fragment_steps;
    struct payload parts[TW_PARTS_MAX];
};

struct commit {
    uint64_t round;
    uint32_t fragment;
    bool is_final;
    uint32_t steps; /* mean inner steps of the listed contributors */
    struct division division;
    struct payload results[TW_PARTS_MAX]; /* of size 0 if the part is absent */
    uint64_t listed[TW_PARTS_MAX];        /* sets of nodes */
    uint64_t refused; /* set of nodes whose Delta an owner refused for its size */
    bool has_digest;
    struct tw_id digest; /* digest of the fragment, from the first node that applied the round */
};

/* Place in one node's data. KIND_BIG draws from the data of all nodes. */
struct stream {
    uint32_t owner;                                /* node whose data these are */
    uint64_t seeds[TEXTS_MAX], cursors[TEXTS_MAX]; /* per text */
    uint64_t windows;                              /* drawn so far, from all texts */
};

struct node {
    const struct setting *setting;
    const struct tw_layout *layout;
    uint32_t index;
    struct tw_engine *engine;
    const struct texts *texts;
    struct tw_data data[TEXTS_MAX]; /* per text; each holds its last windows out */
    uint32_t *tokens;               /* one batch */
    struct stream streams[TW_MEMBERS_MAX];
    uint32_t streams_count;
    void *memory;
    size_t memory_bytes;
    struct tw_shm shm;
    struct tw_run merge_run;   /* run of the setting, but gamma may exceed the manifest's bounds */
    struct tw_vectors vectors; /* arithmetic of the merger, on theta in the engine's memory */
    struct tw_merger merger;
    struct tw_pairing pairing;
    struct {
        /* is_out: sent, but not applied; is_unread: the last partner's share could not be
         * decoded */
        bool is_out, is_unread;
        uint32_t with;   /* partner whose payloads this node has */
        uint64_t struck; /* set of struck nodes; strikes outlast these short runs */
        struct payload own_delta, own_phi, their_delta, their_phi;
    } pair;
    bool has_merger, has_pairing, is_alive, is_owner, is_hostile;
    bool is_apart; /* trains alone, after sync.together has ended */
    /* Penalties of an owner, which outlast these short runs: number of its results that a majority
     * refused; whether an audit proved one false. */
    uint32_t strikes;
    bool is_false;
    uint64_t next_us, boundary_us, step_us;
    uint64_t steps, trained; /* inner steps and tokens so far */
    uint64_t listed_tokens, last_send_step;
    /* Steps and tokens at the point where the fragment's Delta starts (sync/round/round.c). */
    uint64_t delta_steps[TW_FRAGMENTS_MAX], delta_tokens[TW_FRAGMENTS_MAX];
    uint64_t own_steps, own_tokens; /* counts at this node's last contribution */
    uint64_t applied;               /* rounds applied */
    struct tw_wmsg_clock told;      /* the daemon's CLOCK */
    uint64_t clock;                 /* run clock according to this node; never decreases */
    uint64_t skipped; /* steps without a finite gradient, rounds without an encoded Delta */
};

/* Opens a node that trains on these texts, which must outlive it. *node must not move. Call
 * node_close even after a failure. */
enum tw_status node_open(struct node *node, const struct setting *setting,
                         const struct tw_layout *layout, uint32_t index, const struct texts *texts,
                         struct tw_error *err);
void node_close(struct node *node);

/* Computes the loss of params on `windows` held-out windows of each text (0: all) in `by_text`
 * (texts). *eval is the mean over the texts, with equal weights. */
enum tw_status node_heldout(struct node *node, const float *params, uint64_t windows,
                            double *by_text, struct tw_eval *eval, struct tw_error *err);

/* Takes one inner step. */
enum tw_status node_step(struct node *node, struct tw_error *err);

/* Encodes the node's outer gradient, falsified if the node is hostile. Returns TW_CORRUPT if it is
 * not finite. */
enum tw_status node_encode(struct node *node, uint64_t round, uint32_t fragment,
                           const struct division *division, struct contribution *out,
                           struct tw_error *err);

/* Does the worker's check of other nodes' bytes before they are used. */
bool node_check(struct node *node, const struct payload *payload, uint64_t count,
                enum tw_content content);

/* Returns the worker's judgement of the result of elements [begin, begin + count). Hostile nodes
 * accept everything. */
enum jury_finding node_finding(struct node *node, const struct payload *result, uint32_t fragment,
                               uint64_t begin, uint64_t count);
bool node_takes(struct node *node, const struct payload *result, uint32_t fragment, uint64_t begin,
                uint64_t count);

/* Replaces a result by a hostile node's version: the result times -`times`, noise of `times` its
 * size, undecodable bytes, or three times its size in a fixed direction. */
enum tw_status node_falsify(const struct node *node, struct payload *payload, uint32_t fragment,
                            uint64_t count, double times, struct tw_error *err);

/* Merges part `part` of the contributions of the nodes in *merged into `out`. Leaves in *merged
 * only the nodes that were merged, as some may be refused. */
enum tw_status node_reduce(struct node *node, uint64_t round, uint32_t fragment,
                           const struct division *division, uint32_t part,
                           const struct contribution *from, uint64_t *merged, struct payload *out,
                           struct tw_error *err);

/* Applies the next round's results. Returns TW_CORRUPT if the anchor then differs from the other
 * nodes'. */
enum tw_status node_apply(struct node *node, struct commit *commit, struct tw_error *err);

/* Copies the state of the node `donor` to a node that has none. Sets *bytes to the transferred
 * bytes. */
enum tw_status node_join(struct node *node, struct node *donor, uint64_t *bytes,
                         struct tw_error *err);

/* In pairs: encodes Delta and phi of the next round's fragment. Returns TW_CORRUPT if they are not
 * finite. */
enum tw_status node_pair_encode(struct node *node, struct tw_error *err);

/* Receives the payloads of node `with`. If they cannot be decoded, strikes that node. */
void node_pair_take(struct node *node, const struct node *with);

/* Takes the pair step, or a step alone if nothing was exchanged. Sets *is_alone if the exchanged
 * payloads could not be used. Strikes a partner whose share is far too large. */
enum tw_status node_pair_apply(struct node *node, bool is_final, bool *is_alone,
                               struct tw_error *err);

/* Writes phi of all fragments to `to` (elements). */
void node_anchor(const struct node *node, float *to);

#endif
