/* node.c - one node of the bench: its engine, memory and merging. */
#include "tests/bench/quality/node.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/rng.h"
#include "compress/lattice.h"
#include "kernels/norm.h"
#include "tests/bench/quality/exact.h"

void payload_free(struct payload *payload) {
    free(payload->bytes);
    *payload = (struct payload){.bytes = NULL};
}

struct payload payload_copy(const void *bytes, uint32_t size) {
    struct payload payload = {.bytes = malloc(size > 0 ? size : 1), .size = size};
    TW_ASSERT(payload.bytes != NULL);
    memcpy(payload.bytes, bytes, size);
    return payload;
}

/* ---- opening ------------------------------------------------------------------------------- */

static enum tw_status open_memory(struct node *node, struct tw_error *err) {
    const uint32_t gamma = node->setting->gamma_millionths;
    struct tw_shm_geometry geometry;
    uint64_t largest = 0;
    for (uint32_t p = 0; p < node->layout->fragments_count; p++) {
        const uint64_t n = node->layout->fragment_begin[p + 1] - node->layout->fragment_begin[p];
        if (n > largest) largest = n;
    }
    /* Room for the largest request: float32 contributions of all nodes to one undivided fragment,
     * or packed (phi, u) of a fragment. Untouched pages cost nothing. */
    const uint64_t pool = (largest * 6 + TW_PARTS_MAX * 8192) * (node->setting->nodes + 2);
    TW_TRY(tw_shm_geometry_init(&geometry, node->layout, TW_SNAPSHOT_OFF, pool, err));
    node->memory_bytes = (size_t)geometry.bytes;
    node->memory = mmap(NULL, node->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (node->memory == MAP_FAILED) {
        node->memory = NULL;
        return tw_fail(err, TW_NOMEM, "no memory for a node: %zu bytes", node->memory_bytes);
    }
    tw_shm_bind(&node->shm, node->memory, &geometry, node->layout);
    tw_shm_format(&node->shm);
    node->merge_run = node->setting->run;
    if (gamma > 0) node->merge_run.sync.consensus_millionths = gamma;
    node->vectors = tw_vectors_host(node->engine->theta, node->engine->m, node->engine->v);
    TW_TRY(tw_merger_init(&node->merger, &node->merge_run, &node->shm, &node->vectors, err));
    node->has_merger = true;
    TW_TRY(tw_pairing_init(&node->pairing, &node->merger, err));
    node->has_pairing = true;
    if (node->setting->is_exact) node->merger.codec = node->merger.result = &exact_codec;
    return TW_OK;
}

static void fill_anchor(struct node *node) {
    for (uint32_t p = 0; p < node->shm.fragments_count; p++) {
        const size_t n = (size_t)tw_shm_fragment_elements(&node->shm, p);
        float *phi;
        void *u;
        tw_shm_home(&node->shm, p, &phi, &u);
        memcpy(phi, tw_merger_theta(&node->merger, p), n * sizeof(float));
        memset(u, 0, n * (size_t)tw_momentum_bytes(node->shm.momentum));
        const struct tw_shm_state state = {.digest = tw_shm_digest(phi, u, n, node->shm.momentum)};
        tw_shm_home_set(&node->shm, p, &state);
    }
}

/* Node i draws the same windows of a text in every case with the same seed and mix. With KIND_BIG,
 * the node draws the windows of all nodes. */
static void open_streams(struct node *node) {
    const bool is_big = node->setting->kind == KIND_BIG;
    node->streams_count = is_big ? node->setting->nodes : 1;
    for (uint32_t i = 0; i < node->streams_count; i++) {
        struct stream *stream = &node->streams[i];
        *stream = (struct stream){.owner = is_big ? i : node->index};
        uint64_t state = node->setting->seed * 1000 + stream->owner;
        for (uint32_t k = 0; k < node->texts->count; k++) stream->seeds[k] = tw_splitmix64(&state);
    }
}

enum tw_status node_open(struct node *node, const struct setting *setting,
                         const struct tw_layout *layout, uint32_t index, const struct texts *texts,
                         struct tw_error *err) {
    const struct tw_run *run = &setting->run;
    memset(node, 0, sizeof(*node));
    node->setting = setting;
    node->layout = layout;
    node->index = index;
    node->is_alive = node->is_owner = true;
    node->is_hostile = index >= setting->nodes - setting->hostile.count;
    node->step_us = (uint64_t)setting->step_ms * 1000 * setting->slow[index];
    node->next_us = node->step_us;
    node->texts = texts;
    for (uint32_t k = 0; k < texts->count; k++) {
        TW_TRY(tw_data_open(&node->data[k], texts->paths[k], run, err));
    }
    node->tokens = calloc((size_t)run->train.batch * (run->model.context + 1), sizeof(uint32_t));
    if (node->tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a batch of tokens");
    /* With float32, machines with the same instruction set compute the same bits. */
    const struct tw_engine_config config = {.run = run,
                                            .layout = layout,
                                            .compute = {.device = {.kind = TW_DEVICE_CPU},
                                                        .compute = setting->compute,
                                                        .threads = setting->threads}};
    TW_TRY(tw_engine_create(&node->engine, &config, err));
    tw_engine_init_params(run, layout, node->engine->theta);
    open_streams(node);
    if (setting->kind != KIND_GROUP) return TW_OK;
    /* the learning rate falls as in a group of that size */
    if (run->sync.topology == TW_TOPOLOGY_SOLO) {
        node->told.contributors = setting->nodes;
        return TW_OK;
    }
    TW_TRY(open_memory(node, err));
    fill_anchor(node);
    if (run->sync.topology == TW_TOPOLOGY_PAIR) node->told.contributors = setting->nodes;
    return TW_OK;
}

static void pair_forget(struct node *node) {
    payload_free(&node->pair.own_delta);
    payload_free(&node->pair.own_phi);
    payload_free(&node->pair.their_delta);
    payload_free(&node->pair.their_phi);
    node->pair.is_out = false;
}

void node_close(struct node *node) {
    if (node->has_pairing) tw_pairing_deinit(&node->pairing);
    if (node->has_merger) tw_merger_deinit(&node->merger);
    pair_forget(node);
    tw_engine_destroy(node->engine);
    for (uint32_t k = 0; k < TEXTS_MAX; k++) {
        if (node->data[k].inner != NULL) tw_data_close(&node->data[k]);
    }
    if (node->memory != NULL) (void)munmap(node->memory, node->memory_bytes);
    free(node->tokens);
    memset(node, 0, sizeof(*node));
}

/* ---- training ------------------------------------------------------------------------------ */

/* Returns the run clock as the trainer computes it (worker/loop/trainer.c). */
static uint64_t clock_of(struct node *node) {
    const uint64_t budget = node->setting->run.train.tokens;
    const uint64_t factor = node->told.contributors > 1 ? node->told.contributors : 1;
    const uint64_t own =
        node->trained > node->told.tokens_listed ? node->trained - node->told.tokens_listed : 0;
    uint64_t clock = budget;
    if (node->told.clock_tokens < budget && own <= (budget - node->told.clock_tokens) / factor) {
        clock = node->told.clock_tokens + own * factor;
    }
    if (clock > node->clock) node->clock = clock;
    return node->clock;
}

/* Returns the text of a stream's next window. Shares are exact over few windows, and nodes start at
 * different texts. */
static uint32_t text_of(const struct node *node, const struct stream *stream) {
    const uint32_t count = node->texts->count, own = stream->owner % count;
    const enum mix mix = node->setting->mix;
    const bool is_own = mix == MIX_OWN || (mix == MIX_HALF && stream->windows % 2 == 0);
    if (is_own) return own;
    const uint64_t turn = mix == MIX_HALF ? stream->windows / 2 : stream->windows;
    return (uint32_t)((own + turn) % count);
}

static enum tw_status draw_window(struct node *node, struct stream *stream, uint32_t *tokens,
                                  struct tw_error *err) {
    const uint32_t k = text_of(node, stream);
    stream->windows++;
    return tw_data_draw(&node->data[k], stream->seeds[k], &stream->cursors[k], 1, tokens, err);
}

enum tw_status node_heldout(struct node *node, const float *params, uint64_t windows,
                            double *by_text, struct tw_eval *eval, struct tw_error *err) {
    const uint32_t count = node->texts->count;
    double variance = 0;
    *eval = (struct tw_eval){.nats = 0};
    for (uint32_t k = 0; k < count; k++) {
        struct tw_eval one;
        TW_TRY(tw_eval_heldout(node->engine, &node->data[k], params, windows, &one, err));
        by_text[k] = one.nats;
        eval->nats += one.nats / count;
        eval->windows += one.windows;
        eval->tokens += one.tokens;
        variance += one.standard_error * one.standard_error / count / count;
    }
    eval->standard_error = sqrt(variance);
    return TW_OK;
}

enum tw_status node_step(struct node *node, struct tw_error *err) {
    const struct tw_run *run = &node->setting->run;
    const uint32_t each = run->train.batch / node->streams_count;
    const size_t window = (size_t)run->model.context + 1;
    struct tw_step_result result;
    for (uint32_t i = 0; i < node->streams_count; i++) {
        for (uint32_t row = 0; row < each; row++) {
            uint32_t *tokens = node->tokens + (i * each + row) * window;
            TW_TRY(draw_window(node, &node->streams[i], tokens, err));
        }
    }
    const float lr = tw_schedule_lr(run, clock_of(node), node->engine->updates);
    TW_TRY(tw_engine_step(node->engine, node->tokens, lr, &result, err));
    node->skipped += result.is_skipped;
    node->steps++;
    node->trained += (uint64_t)run->train.batch * run->model.context;
    return TW_OK;
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* An allocator in the pool, for one request at a time. */
struct places {
    struct node *node;
    uint64_t used;
};

static struct tw_span place(struct places *places, uint64_t bytes) {
    const struct tw_shm_geometry *geometry = &places->node->shm.geometry;
    const struct tw_span span = {.offset = geometry->pool + places->used, .bytes = (uint32_t)bytes};
    places->used += (bytes + 63) / 64 * 64;
    TW_ASSERT(places->used <= geometry->pool_bytes);
    return span;
}

static struct tw_span put(struct places *places, const struct payload *payload) {
    const struct tw_span span = place(places, payload->size);
    memcpy(tw_shm_pool(&places->node->shm, span.offset, span.bytes), payload->bytes, payload->size);
    return span;
}

static struct payload get(const struct node *node, const struct tw_span *span, uint32_t bytes) {
    return payload_copy(tw_shm_pool(&node->shm, span->offset, bytes), bytes);
}

/* Returns 1 or -1 for each element: a fixed direction, common to all hostile nodes. */
static double direction(const struct node *node, uint32_t fragment, uint64_t i) {
    uint64_t state = node->setting->seed * 1000003 + fragment * UINT64_C(0x100000000) + i;
    return (tw_splitmix64(&state) & 1) != 0 ? 1 : -1;
}

/* Changes theta so that anchor - theta is the outer gradient that this hostile node claims. */
static void bend(struct node *node, uint32_t fragment, float *theta) {
    struct tw_shm_view view;
    struct tw_rng rng;
    double squares = 0;
    tw_shm_view(&node->shm, fragment, &view);
    for (uint64_t i = 0; i < view.elements; i++) {
        const double d = (double)view.phi[i] - (double)theta[i];
        squares += d * d;
    }
    const double size = sqrt(squares / (double)view.elements);
    tw_rng_seed(&rng, node->setting->seed * 77 + node->steps * 64 + node->index);
    for (uint64_t i = 0; i < view.elements; i++) {
        if (node->setting->hostile.kind == HOSTILE_FLIP) {
            theta[i] = view.phi[i] + 10 * (view.phi[i] - theta[i]);
        } else if (node->setting->hostile.kind == HOSTILE_SHIFT) {
            theta[i] = view.phi[i] + (float)(2 * size * direction(node, fragment, i));
        } else {
            double sum = -6;
            for (unsigned k = 0; k < 12; k++) sum += tw_rng_unit(&rng);
            theta[i] = (float)((double)view.phi[i] + 1000 * size * sum);
        }
    }
}

static bool is_lying(const struct node *node) {
    return node->is_hostile && !node->setting->hostile.is_secret;
}

/* Changes theta of a lying node. Returns the original theta, or NULL bytes if theta is unchanged.
 */
static struct payload bend_begin(struct node *node, uint32_t fragment) {
    if (!is_lying(node) || node->setting->hostile.kind == HOSTILE_NAN)
        return (struct payload){.bytes = NULL};
    float *theta = tw_merger_theta(&node->merger, fragment);
    const size_t bytes = (size_t)tw_shm_fragment_elements(&node->shm, fragment) * sizeof(float);
    struct payload kept = payload_copy(theta, (uint32_t)bytes);
    bend(node, fragment, theta);
    return kept;
}

static void bend_end(struct node *node, uint32_t fragment, struct payload *kept) {
    if (kept->bytes == NULL) return;
    memcpy(tw_merger_theta(&node->merger, fragment), kept->bytes, kept->size);
    payload_free(kept);
}

/* Makes a Delta undecodable if its sender lies with HOSTILE_NAN. */
static void garble(const struct node *from, struct payload *delta) {
    if (is_lying(from) && from->setting->hostile.kind == HOSTILE_NAN)
        memset(delta->bytes, 0xff, delta->size);
}

enum tw_status node_encode(struct node *node, uint64_t round, uint32_t fragment,
                           const struct division *division, struct contribution *out,
                           struct tw_error *err) {
    struct places places = {.node = node};
    struct tw_wmsg_encode request = {
        .round = round, .fragment = fragment, .parts_count = division->parts};
    struct tw_wmsg_encoded reply;
    for (uint32_t k = 0; k < division->parts; k++) {
        request.parts[k].begin = division->begin[k];
        request.parts[k].count = division->count[k];
        request.parts[k].bytes_max = division->count[k] * node->setting->budget[node->index] / 8000;
        request.parts[k].out =
            place(&places, node->merger.codec->bound((size_t)division->count[k]));
    }
    struct payload kept = bend_begin(node, fragment);
    const enum tw_status status = tw_merger_encode(&node->merger, &request, &reply, err);
    bend_end(node, fragment, &kept);
    if (status != TW_OK) return status;
    for (uint32_t k = 0; k < division->parts; k++) {
        out->parts[k] = get(node, &request.parts[k].out, reply.bytes[k]);
        garble(node, &out->parts[k]);
    }
    out->has = true;
    out->tokens = node->trained - node->listed_tokens;
    out->fragment_tokens = node->trained - node->delta_tokens[fragment];
    out->fragment_steps = (uint32_t)(node->steps - node->delta_steps[fragment]);
    if (is_lying(node) && node->setting->hostile.claims > 0) {
        out->fragment_steps *= node->setting->hostile.claims;
        out->fragment_tokens *= node->setting->hostile.claims;
    }
    node->own_steps = node->last_send_step = node->steps;
    node->own_tokens = node->trained;
    return TW_OK;
}

bool node_check(struct node *node, const struct payload *payload, uint64_t count,
                enum tw_content content) {
    struct places places = {.node = node};
    struct tw_wmsg_checked reply;
    const struct tw_wmsg_check request = {
        .elements = count, .content = content, .in = put(&places, payload)};
    return tw_merger_check(&node->merger, &request, &reply, NULL) == TW_OK;
}

enum jury_finding node_finding(struct node *node, const struct payload *result, uint32_t fragment,
                               uint64_t begin, uint64_t count) {
    struct places places = {.node = node};
    struct tw_wmsg_checked reply;
    const struct tw_wmsg_check request = {.elements = count,
                                          .content = TW_CONTENT_RESULT,
                                          .fragment = fragment,
                                          .begin = begin,
                                          .in = put(&places, result)};
    if (tw_merger_check(&node->merger, &request, &reply, NULL) != TW_OK) return JURY_UNFIT;
    if (reply.sanity == TW_SANITY_EXTREME) return JURY_EXTREME;
    return reply.sanity == TW_SANITY_OUTLIER ? JURY_OUTLIER : JURY_FAIR;
}

bool node_takes(struct node *node, const struct payload *result, uint32_t fragment, uint64_t begin,
                uint64_t count) {
    return node->is_hostile || node_finding(node, result, fragment, begin, count) == JURY_FAIR;
}

enum tw_status node_falsify(const struct node *node, struct payload *payload, uint32_t fragment,
                            uint64_t count, double times, struct tw_error *err) {
    const struct tw_codec *codec = node->merger.result;
    if (node->setting->hostile.kind == HOSTILE_NAN) {
        memset(payload->bytes, 0xff, payload->size);
        return TW_OK;
    }
    struct tw_rng rng;
    float *values = malloc(count * sizeof(*values));
    const size_t capacity = codec->bound((size_t)count);
    uint8_t *bytes = malloc(capacity);
    size_t size = 0;
    TW_ASSERT(values != NULL && bytes != NULL);
    enum tw_status status = codec->decode(payload->bytes, payload->size, values, (size_t)count);
    const double rms =
        status == TW_OK ? sqrt(tw_norm_squared(values, (size_t)count) / (double)count) : 0;
    tw_rng_seed(&rng, node->steps);
    for (uint64_t i = 0; i < count; i++) {
        switch (node->setting->hostile.kind) {
        case HOSTILE_FLIP: values[i] *= (float)-times; break;
        case HOSTILE_SHIFT: values[i] = (float)(3 * rms * direction(node, fragment, i)); break;
        case HOSTILE_NOISE:
        case HOSTILE_NAN:
        case HOSTILE_NONE: values[i] *= (float)(times * (2 * tw_rng_unit(&rng) - 1)); break;
        }
    }
    if (status == TW_OK) status = codec->encode(values, (size_t)count, bytes, capacity, &size);
    payload_free(payload);
    if (status == TW_OK) *payload = payload_copy(bytes, (uint32_t)size);
    free(values);
    free(bytes);
    return status == TW_OK ? TW_OK : tw_fail(err, status, "a false result could not be made");
}

enum tw_status node_reduce(struct node *node, uint64_t round, uint32_t fragment,
                           const struct division *division, uint32_t part,
                           const struct contribution *from, uint64_t *merged, struct payload *out,
                           struct tw_error *err) {
    struct places places = {.node = node};
    struct tw_wmsg_reduce request = {.round = round,
                                     .begin = division->begin[part],
                                     .count = division->count[part],
                                     .fragment = fragment,
                                     .part = part};
    struct tw_wmsg_reduced reply;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((*merged >> i & 1) == 0) continue;
        const uint32_t to = request.inputs_count++;
        request.inputs[to].in = put(&places, &from[i].parts[part]);
        request.inputs[to].tokens = from[i].fragment_tokens;
        request.inputs[to].steps = from[i].fragment_steps;
    }
    request.out = place(&places, node->merger.result->bound((size_t)division->count[part]));
    TW_TRY(tw_merger_reduce(&node->merger, &request, &reply, err));
    *out = get(node, &request.out, reply.bytes);
    for (uint32_t i = 0, at = 0; i < TW_MEMBERS_MAX; i++) {
        if ((*merged >> i & 1) == 0) continue;
        *merged &= ~((reply.refused >> at++ & 1) << i);
    }
    if (!node->is_hostile || !node->setting->hostile.is_owner) return TW_OK;
    const double times = node->setting->hostile.kind == HOSTILE_NOISE ? 1000 : 10;
    return node_falsify(node, out, fragment, division->count[part], times, err);
}

enum tw_status node_apply(struct node *node, struct commit *commit, struct tw_error *err) {
    struct places places = {.node = node};
    struct tw_wmsg_apply request = {.round = commit->round,
                                    .version = commit->round / node->layout->fragments_count,
                                    .fragment = commit->fragment,
                                    .parts_count = commit->division.parts,
                                    .is_final = commit->is_final,
                                    .is_refused = commit->refused >> node->index & 1,
                                    .steps = commit->steps};
    const struct tw_run *run = &node->setting->run;
    struct tw_wmsg_applied reply;
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        request.parts[k].begin = commit->division.begin[k];
        request.parts[k].count = commit->division.count[k];
        if (commit->results[k].size == 0) {
            request.parts[k].mode = TW_APPLY_ABSENT;
            continue;
        }
        request.parts[k].mode =
            (commit->listed[k] >> node->index & 1) != 0 ? TW_APPLY_MIX : TW_APPLY_SHIFT;
        request.parts[k].contributors = (uint32_t)__builtin_popcountll(commit->listed[k]);
        request.parts[k].in = put(&places, &commit->results[k]);
    }
    node->merger.inner.m = node->engine->m;
    node->merger.inner.v = node->engine->v;
    node->merger.inner.lr = tw_schedule_lr(run, clock_of(node), node->engine->updates);
    node->merger.inner.correction2 =
        (float)(1.0 - pow(run->train.beta2_millionths / 1e6, (double)node->engine->updates));
    TW_TRY(tw_anchor_apply(&node->merger, &request, &reply, err));
    node->applied = commit->round + 1;
    if (!commit->has_digest) {
        commit->has_digest = true;
        commit->digest = reply.digest;
    }
    if (tw_id_equal(&commit->digest, &reply.digest)) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "anchors of node %u and of others differ after round %llu",
                   node->index, (unsigned long long)commit->round);
}

/* ---- joining ------------------------------------------------------------------------------- */

static enum tw_status join_fragment(struct node *node, struct node *donor, uint32_t fragment,
                                    uint64_t *bytes, struct tw_error *err) {
    struct places from = {.node = donor}, to = {.node = node};
    struct tw_wmsg_exported exported;
    struct tw_wmsg_applied loaded;
    const size_t n = (size_t)tw_shm_fragment_elements(&donor->shm, fragment);
    const struct tw_wmsg_export wanted = {.fragment = fragment,
                                          .out = place(&from, tw_pack_bound(n))};
    TW_TRY(tw_anchor_export(&donor->merger, &wanted, &exported, err));
    struct payload packed = get(donor, &wanted.out, exported.bytes);
    const struct tw_wmsg_load load = {.fragment = fragment,
                                      .mode = TW_LOAD_RESET,
                                      .rounds = exported.rounds,
                                      .digest = exported.digest,
                                      .in = put(&to, &packed)};
    *bytes += packed.size;
    payload_free(&packed);
    return tw_anchor_load(&node->merger, &load, &loaded, err);
}

enum tw_status node_join(struct node *node, struct node *donor, uint64_t *bytes,
                         struct tw_error *err) {
    const size_t size = (size_t)node->layout->elements * sizeof(float);
    *bytes = 0;
    for (uint32_t p = 0; p < node->layout->fragments_count; p++) {
        TW_TRY(join_fragment(node, donor, p, bytes, err));
    }
    memset(node->engine->m, 0, size);
    memset(node->engine->v, 0, size);
    node->engine->updates = 0;
    node->applied = donor->applied;
    node->told = donor->told;
    node->listed_tokens = node->told.tokens_listed = node->trained;
    node->last_send_step = node->steps;
    for (uint32_t p = 0; p < node->layout->fragments_count; p++) {
        node->delta_tokens[p] = node->trained;
        node->delta_steps[p] = node->steps;
    }
    node->is_alive = true;
    node->is_owner = false;
    return TW_OK;
}

/* ---- pairs --------------------------------------------------------------------------------- */

enum tw_status node_pair_encode(struct node *node, struct tw_error *err) {
    struct places places = {.node = node};
    const uint32_t fragment = (uint32_t)(node->applied % node->layout->fragments_count);
    const size_t n = (size_t)tw_shm_fragment_elements(&node->shm, fragment);
    const struct tw_wmsg_pair_encode request = {
        .round = node->applied,
        .fragment = fragment,
        .is_whole = node->setting->is_exact || node->pair.is_unread,
        .delta = place(&places, node->merger.codec->bound(n)),
        .phi = place(&places, tw_lattice_bound(n))};
    struct tw_wmsg_encoded reply;
    struct payload kept = bend_begin(node, fragment);
    const enum tw_status status = tw_pairing_encode(&node->pairing, &request, &reply, err);
    bend_end(node, fragment, &kept);
    if (status != TW_OK) return status;
    node->pair.own_delta = get(node, &request.delta, reply.bytes[0]);
    node->pair.own_phi = get(node, &request.phi, reply.bytes[1]);
    node->pair.is_out = true;
    node->last_send_step = node->steps;
    return TW_OK;
}

void node_pair_take(struct node *node, const struct node *with) {
    const uint32_t fragment = (uint32_t)(node->applied % node->layout->fragments_count);
    struct payload delta = payload_copy(with->pair.own_delta.bytes, with->pair.own_delta.size);
    garble(with, &delta);
    if (!node_check(node, &delta, tw_shm_fragment_elements(&node->shm, fragment),
                    TW_CONTENT_DELTA)) {
        node->pair.struck |= UINT64_C(1) << with->index;
        payload_free(&delta);
        return;
    }
    node->pair.with = with->index;
    node->pair.their_delta = delta;
    node->pair.their_phi = payload_copy(with->pair.own_phi.bytes, with->pair.own_phi.size);
}

enum tw_status node_pair_apply(struct node *node, bool is_final, bool *is_alone,
                               struct tw_error *err) {
    struct places places = {.node = node};
    const uint32_t count = node->layout->fragments_count;
    struct tw_wmsg_pair_apply request = {.round = node->applied,
                                         .version = node->applied / count,
                                         .fragment = (uint32_t)(node->applied % count),
                                         .is_alone = node->pair.their_delta.size == 0,
                                         .is_final = is_final};
    struct tw_wmsg_applied reply;
    if (!request.is_alone) {
        request.own.delta = put(&places, &node->pair.own_delta);
        request.own.phi = put(&places, &node->pair.own_phi);
        request.theirs.delta = put(&places, &node->pair.their_delta);
        request.theirs.phi = put(&places, &node->pair.their_phi);
    }
    TW_TRY(tw_pairing_apply(&node->pairing, &request, &reply, err));
    *is_alone = reply.is_alone && !request.is_alone;
    node->pair.is_unread = *is_alone && !reply.is_outlier;
    if (reply.is_outlier) node->pair.struck |= UINT64_C(1) << node->pair.with;
    node->applied++;
    pair_forget(node);
    return TW_OK;
}

void node_anchor(const struct node *node, float *to) {
    for (uint32_t p = 0; p < node->shm.fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(&node->shm, p, &view);
        memcpy(to + node->shm.fragment_begin[p], view.phi, (size_t)view.elements * sizeof(float));
    }
}
