/* node.h - one node: a real engine on its own data, and the worker's merging on plain memory. The
 * world (world.h) plays its daemon. */
#ifndef TW_TESTS_QUALITY_NODE_H
#define TW_TESTS_QUALITY_NODE_H

#include "proto/run/layout.h"
#include "proto/shm.h"
#include "sync/node.h"
#include "tests/bench/quality/jury.h"
#include "tests/bench/quality/setting.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"
#include "worker/merge/pairing.h"

/* Bytes that travel; heap. */
struct payload {
    uint8_t *bytes;
    uint32_t size;
};
void payload_free(struct payload *payload);
struct payload payload_copy(const void *bytes, uint32_t size);

/* Who owns which range of the fragment. */
struct division {
    uint32_t parts;
    uint32_t owners[TW_PARTS_MAX]; /* nodes */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
};

struct contribution {
    bool has;
    uint64_t tokens;          /* since the last one that was listed, of any fragment: the clock */
    uint64_t fragment_tokens; /* in this Delta: weights and guard */
    uint32_t fragment_steps;
    struct payload parts[TW_PARTS_MAX];
};

struct commit {
    uint64_t round;
    uint32_t fragment;
    bool is_final;
    uint32_t steps; /* inner ones in a Delta: mean of who is listed */
    struct division division;
    struct payload results[TW_PARTS_MAX]; /* size 0: the part is absent */
    uint64_t listed[TW_PARTS_MAX];        /* sets of nodes */
    bool has_digest;
    struct tw_id digest; /* of the fragment, where it was applied first */
};

struct stream {
    uint64_t seed, cursor; /* of a node's data: KIND_BIG draws from those of all nodes */
};

struct node {
    const struct setting *setting;
    const struct tw_layout *layout;
    uint32_t index;
    struct tw_engine *engine;
    struct tw_data data;
    uint32_t *tokens; /* a batch */
    struct stream streams[TW_MEMBERS_MAX];
    uint32_t streams_count;
    void *memory;
    size_t memory_bytes;
    struct tw_shm shm;
    struct tw_run merge_run;   /* the setting's, with a consensus that no manifest may have */
    struct tw_vectors vectors; /* of the merger: theta where the engine has it */
    struct tw_merger merger;
    struct tw_pairing pairing;
    struct {
        bool is_out, is_unread; /* sent and not applied; the last partner could not be read */
        uint32_t with;          /* whose share it got */
        uint64_t struck; /* set of nodes it deals with no more: a strike outlasts these runs */
        struct payload own_delta, own_phi, their_delta, their_phi;
    } pair;
    bool has_merger, has_pairing, is_alive, is_owner, is_hostile;
    bool is_apart;  /* merges no more: sync.together */
    bool is_struck; /* owns no part any more: a ban is longer than these runs */
    uint64_t next_us, boundary_us, step_us;
    uint64_t steps, trained; /* inner steps and tokens so far */
    uint64_t listed_tokens, last_send_step;
    /* Where the work that Delta of a fragment holds began: sync/account.c. */
    uint64_t delta_steps[TW_FRAGMENTS_MAX], delta_tokens[TW_FRAGMENTS_MAX];
    uint64_t own_steps, own_tokens; /* when it last contributed */
    uint64_t applied;               /* rounds */
    struct tw_wmsg_clock told;      /* the daemon's CLOCK */
    uint64_t clock;                 /* of the run, as this node sees it; never falls */
    uint64_t skipped;               /* steps whose gradient was not finite, rounds it could not
                                       encode for */
};

/* text_path: the training text. *node must stay where it is. On failure node_close is still due. */
enum tw_status node_open(struct node *node, const struct setting *setting,
                         const struct tw_layout *layout, uint32_t index, const char *text_path,
                         struct tw_error *err);
void node_close(struct node *node);

/* One inner step. */
enum tw_status node_step(struct node *node, struct tw_error *err);

/* Its outer gradient, as a hostile one would have it if it is one. TW_CORRUPT: not finite. */
enum tw_status node_encode(struct node *node, uint64_t round, uint32_t fragment,
                           const struct division *division, struct contribution *out,
                           struct tw_error *err);

/* What a node asks its worker about bytes of others before it uses them. */
bool node_check(struct node *node, const struct payload *payload, uint64_t count,
                enum tw_content content);

/* What its worker makes of a result of elements [begin, begin + count), and whether the node would
 * vote for it: hostile nodes would for any. */
enum jury_finding node_finding(struct node *node, const struct payload *result, uint32_t fragment,
                               uint64_t begin, uint64_t count);
bool node_takes(struct node *node, const struct payload *result, uint32_t fragment, uint64_t begin,
                uint64_t count);

/* What a hostile node makes of a result: -`times` of it, or noise as large, or bytes that are
 * nothing, or three times its size in one direction for ever. */
enum tw_status node_falsify(const struct node *node, struct payload *payload, uint32_t fragment,
                            uint64_t count, double times, struct tw_error *err);

/* Merges part `part` of the contributions of the nodes in *merged into out. *merged becomes the set
 * of those that entered it: some may be refused. */
enum tw_status node_reduce(struct node *node, uint64_t round, uint32_t fragment,
                           const struct division *division, uint32_t part,
                           const struct contribution *from, uint64_t *merged, struct payload *out,
                           struct tw_error *err);

/* The next round's results. TW_CORRUPT when the anchor is not that of the others. */
enum tw_status node_apply(struct node *node, struct commit *commit, struct tw_error *err);

/* A node that comes back without anything: state and place of `donor`. *bytes: what that took. */
enum tw_status node_join(struct node *node, struct node *donor, uint64_t *bytes,
                         struct tw_error *err);

/* In pairs: Delta and phi of the next round's fragment. TW_CORRUPT: not finite. */
enum tw_status node_pair_encode(struct node *node, struct tw_error *err);

/* What it got of node `with`, if that can be read; else that one is struck. */
void node_pair_take(struct node *node, const struct node *with);

/* The step with what was exchanged, or alone where nothing was. *is_alone: what was exchanged was
 * of no use. A partner whose share was far too large is struck. */
enum tw_status node_pair_apply(struct node *node, bool is_final, bool *is_alone,
                               struct tw_error *err);

/* phi of all fragments into to (elements). */
void node_anchor(const struct node *node, float *to);

#endif
