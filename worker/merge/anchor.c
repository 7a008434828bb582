#include "worker/merge/anchor.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/norm.h"
#include "kernels/outer.h"
#include "kernels/type.h"
#include "proto/run/run_key.h"
#include "proto/worker_request.h"
#include "worker/merge/inflight.h"

/* ---- publication ----------------------------------------------------------------------------- */

void tw_anchor_publish_begin(struct tw_merger *merger, uint32_t fragment,
                             struct tw_anchor_publish *stage) {
    struct tw_shm_view old;
    stage->fragment = fragment;
    stage->momentum = merger->shm->momentum;
    stage->elements = (size_t)tw_shm_fragment_elements(merger->shm, fragment);
    tw_shm_stage_begin(merger->shm, fragment, &stage->phi, &stage->u);
    tw_shm_view(merger->shm, fragment, &old);
    TW_ASSERT(old.phi != stage->phi);
    stage->phi_old = old.phi;
    stage->u_old = old.u;
    stage->live_old = tw_device_anchor_phi(&merger->twin, fragment);
    stage->live = NULL;
}

enum tw_status tw_anchor_publish_seal(const struct tw_anchor_publish *stage, uint64_t rounds,
                                      struct tw_shm_state *state, struct tw_error *err) {
    if (!tw_is_finite(stage->phi, stage->elements) ||
        !tw_momentum_is_finite(stage->momentum, stage->u, stage->elements)) {
        return tw_fail(err, TW_CORRUPT, "fragment %u would no longer be finite", stage->fragment);
    }
    *state = (struct tw_shm_state){.rounds = rounds};
    state->digest = tw_shm_digest(stage->phi, stage->u, stage->elements, stage->momentum);
    return TW_OK;
}

/* Publishes the staged values by a single store. */
static void publish_stage(struct tw_merger *merger, struct tw_anchor_publish *stage,
                          const struct tw_shm_state *state) {
    tw_shm_stage_publish(merger->shm, stage->fragment, state);
    merger->changes_count++;
    stage->live = tw_device_anchor_next(&merger->twin, stage->fragment);
}

enum tw_status tw_anchor_publish_end(struct tw_merger *merger, struct tw_anchor_publish *stage,
                                     uint64_t rounds, const struct tw_id *expected,
                                     struct tw_error *err) {
    struct tw_shm_state state;
    TW_TRY(tw_anchor_publish_seal(stage, rounds, &state, err));
    if (expected != NULL && !tw_id_equal(&state.digest, expected)) {
        return tw_fail(err, TW_CORRUPT, "state of fragment %u does not have the digest it should",
                       stage->fragment);
    }
    publish_stage(merger, stage, &state);
    return TW_OK;
}

void tw_anchor_publish_reply(const struct tw_merger *merger, uint32_t fragment,
                             enum tw_status status, struct tw_wmsg_applied *reply) {
    memset(reply, 0, sizeof(*reply));
    reply->fragment = fragment;
    reply->status = status;
    if (fragment >= merger->shm->fragments_count) return;
    struct tw_shm_view view;
    tw_shm_view(merger->shm, fragment, &view);
    reply->rounds = view.state.rounds;
    reply->digest = view.state.digest;
}

bool tw_anchor_publish_is_applied(const struct tw_merger *merger, uint32_t fragment,
                                  uint64_t round) {
    struct tw_shm_view view;
    tw_shm_view(merger->shm, fragment, &view);
    return view.state.rounds > round;
}

/* ---- momentum -------------------------------------------------------------------------------- */

enum { PIECE = 1024 }; /* elements that are converted at a time */

static void take(enum tw_momentum momentum, const void *u, size_t begin, float *out, size_t n) {
    if (momentum == TW_MOMENTUM_NONE) {
        memset(out, 0, n * sizeof(float));
        return;
    }
    const uint16_t *const from = (const uint16_t *)u + begin;
    for (size_t i = 0; i < n; i++) out[i] = tw_bf16_to_f32(from[i]);
}

static void give(enum tw_momentum momentum, void *u, size_t begin, const float *from, size_t n) {
    if (momentum == TW_MOMENTUM_NONE) return;
    uint16_t *const to = (uint16_t *)u + begin;
    for (size_t i = 0; i < n; i++) to[i] = tw_bf16_from_f32(from[i]);
}

static size_t piece_of(size_t left) {
    return left < PIECE ? left : PIECE;
}

typedef void (*outer_rule)(float *phi, float *u, const float *delta, size_t n,
                           struct tw_outer rule);

static void step_by(outer_rule outer, const struct tw_momentum_step *step, const float *delta,
                    struct tw_outer rule) {
    float *const phi = step->phi + step->begin;
    if (step->momentum == TW_MOMENTUM_FLOAT32) {
        outer(phi, (float *)step->u + step->begin, delta, step->n, rule);
        return;
    }
    float u[PIECE];
    for (size_t at = 0; at < step->n; at += PIECE) {
        const size_t n = piece_of(step->n - at);
        take(step->momentum, step->u, step->begin + at, u, n);
        outer(phi + at, u, delta + at, n, rule);
        give(step->momentum, step->u, step->begin + at, u, n);
    }
}

void tw_momentum_nesterov(const struct tw_momentum_step *step, const float *delta,
                          struct tw_outer rule) {
    step_by(tw_outer_nesterov, step, delta, rule);
}

void tw_momentum_heavyball(const struct tw_momentum_step *step, const float *delta,
                           struct tw_outer rule) {
    step_by(tw_outer_heavyball, step, delta, rule);
}

void tw_momentum_pull(const struct tw_momentum_step *step, const float *own, const float *theirs,
                      float half) {
    float *const phi = step->phi + step->begin;
    if (step->momentum == TW_MOMENTUM_FLOAT32) {
        tw_outer_pull(phi, (float *)step->u + step->begin, own, theirs, half, step->n);
        return;
    }
    float u[PIECE];
    for (size_t at = 0; at < step->n; at += PIECE) {
        const size_t n = piece_of(step->n - at);
        take(step->momentum, step->u, step->begin + at, u, n);
        tw_outer_pull(phi + at, u, own + at, theirs + at, half, n);
        give(step->momentum, step->u, step->begin + at, u, n);
    }
}

double tw_momentum_squared(enum tw_momentum momentum, const void *u, size_t begin, size_t n) {
    if (momentum == TW_MOMENTUM_FLOAT32) return tw_norm_squared((const float *)u + begin, n);
    if (momentum == TW_MOMENTUM_NONE) return 0.0;
    float piece[PIECE];
    double sum = 0.0;
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = piece_of(n - at);
        take(momentum, u, begin + at, piece, count);
        sum += tw_norm_squared(piece, count);
    }
    return sum;
}

bool tw_momentum_is_finite(enum tw_momentum momentum, const void *u, size_t n) {
    if (momentum == TW_MOMENTUM_FLOAT32) return tw_is_finite(u, n);
    float piece[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = piece_of(n - at);
        take(momentum, u, at, piece, count);
        if (!tw_is_finite(piece, count)) return false;
    }
    return true;
}

/* ---- anchors --------------------------------------------------------------------------------- */

static enum tw_status apply_check(const struct tw_merger *merger,
                                  const struct tw_wmsg_apply *request, struct tw_error *err) {
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    if (request->parts_count > TW_PARTS_MAX) {
        return tw_fail(err, TW_PROTO, "a round of %u parts", request->parts_count);
    }
    uint64_t end = 0;
    for (uint32_t k = 0; k < request->parts_count; k++) {
        uint8_t *bytes;
        TW_TRY(tw_request_part(merger->shm, request->fragment, request->parts[k].begin,
                               request->parts[k].count, &end, err));
        switch (request->parts[k].mode) {
        case TW_APPLY_ABSENT: break;
        case TW_APPLY_MIX:
        case TW_APPLY_SHIFT:
        case TW_APPLY_STAY:
            TW_TRY(tw_request_span(merger->shm, &request->parts[k].in, &bytes, err));
            break;
        default: return tw_fail(err, TW_PROTO, "apply mode %u", request->parts[k].mode);
        }
    }
    if (request->parts_count == 0) return TW_OK;
    return tw_request_whole(merger->shm, request->fragment, end, err);
}

static size_t u_bytes(const struct tw_anchor_publish *stage) {
    return stage->elements * (size_t)tw_momentum_bytes(stage->momentum);
}

/* Decodes each result to the place of its part, and sums the squares of the results and of u. */
static enum tw_status apply_decode(const struct tw_merger *merger, struct tw_anchor_work *work,
                                   struct tw_outer_sizes *sizes, struct tw_error *err) {
    const struct tw_wmsg_apply *request = &work->request;
    const struct tw_anchor_publish *stage = &work->stage;
    work->sizes = (struct tw_outlier_sizes){.count = {0}};
    work->squares = 0.0;
    *sizes = (struct tw_outer_sizes){0};
    for (uint32_t k = 0; k < request->parts_count; k++) {
        if (request->parts[k].mode == TW_APPLY_ABSENT) continue;
        const struct tw_span *span = &request->parts[k].in;
        const size_t begin = (size_t)request->parts[k].begin, n = (size_t)request->parts[k].count;
        float *delta = work->merged + begin;
        uint8_t *bytes;
        TW_TRY(tw_request_span(merger->shm, span, &bytes, err));
        const enum tw_status status = merger->result->decode(bytes, span->bytes, delta, n);
        if (status != TW_OK) {
            return tw_fail(err, status,
                           "the result of part %u is damaged: %u bytes are not %zu elements in %s",
                           k, span->bytes, n, merger->result->name);
        }
        tw_outlier_add(&work->sizes, delta, begin, n, stage->elements);
        work->squares += tw_norm_squared(delta, n);
        if (merger->run->sync.outer != TW_OUTER_HEAVYBALL) continue;
        sizes->u_squared += tw_momentum_squared(stage->momentum, stage->u_old, begin, n);
        sizes->delta_squared += tw_norm_squared(delta, n);
        sizes->count += n;
    }
    return TW_OK;
}

/* Computes phi' and u' of the whole fragment into the stage, by the run's outer rule. */
static void apply_outer(const struct tw_merger *merger, const struct tw_anchor_work *work,
                        const struct tw_outer_sizes *sizes) {
    const struct tw_run *run = merger->run;
    const struct tw_wmsg_apply *request = &work->request;
    const struct tw_anchor_publish *stage = &work->stage;
    const struct tw_outer plain =
        tw_outer_at(run->sync.outer_lr_millionths, run->sync.outer_momentum_millionths,
                    run->sync.outer_ramp, request->version);
    const struct tw_outer heavy = tw_outer_temper(plain, run->sync.gap_penalty_millionths,
                                                  run->sync.momentum_clip_millionths, sizes);
    memcpy(stage->phi, stage->phi_old, stage->elements * sizeof(float));
    memcpy(stage->u, stage->u_old, u_bytes(stage));
    for (uint32_t k = 0; k < request->parts_count; k++) {
        if (request->parts[k].mode == TW_APPLY_ABSENT) continue;
        const struct tw_momentum_step step = {.momentum = stage->momentum,
                                              .phi = stage->phi,
                                              .u = stage->u,
                                              .begin = (size_t)request->parts[k].begin,
                                              .n = (size_t)request->parts[k].count};
        const float *delta = work->merged + step.begin;
        if (run->sync.outer == TW_OUTER_HEAVYBALL) {
            tw_momentum_heavyball(&step, delta, heavy);
        } else {
            tw_momentum_nesterov(&step, delta, plain);
        }
    }
}

/* Returns the merge in the memory where theta lies; on a device, copies it there if it is needed.
 */
static const float *bring_merge(struct tw_merger *merger, const struct tw_anchor_work *work) {
    const struct tw_vectors *vectors = merger->vectors;
    const bool has_use = merger->inflight.ahead != NULL || merger->run->sync.lead_millionths > 0 ||
                         tw_run_needs_feedback(merger->run->sync.result);
    if (vectors->is_host) return work->merged;
    if (has_use) vectors->copy_in(vectors->self, merger->v, work->merged, work->stage.elements);
    return merger->v;
}

/* Updates theta after the outer step. The change depends on whether this node's work in flight was
 * merged. */
static void apply_theta(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                        const struct tw_anchor_publish *stage, const float *merged) {
    struct tw_inflight *inflight = &merger->inflight;
    const uint32_t fragment = stage->fragment;
    const struct tw_inflight_step step = {.fragment = fragment,
                                          .version = request->version,
                                          .theta = tw_merger_theta(merger, fragment),
                                          .phi_old = stage->live_old,
                                          .phi = stage->live,
                                          .merged = merged};
    if (request->is_final) {
        merger->vectors->copy(merger->vectors->self, step.theta, stage->live, stage->elements);
        tw_inflight_forget(inflight, fragment);
        return;
    }
    const bool was_out = inflight->fragments[fragment].is_out;
    uint32_t contributors = 0;
    bool is_mixed = false;
    for (uint32_t k = 0; k < request->parts_count; k++) {
        const size_t begin = (size_t)request->parts[k].begin, n = (size_t)request->parts[k].count;
        const enum tw_apply_mode mode = (enum tw_apply_mode)request->parts[k].mode;
        tw_inflight_land(inflight, &step, begin, n, mode);
        is_mixed |= n > 0 && mode == TW_APPLY_MIX;
        if (request->parts[k].contributors > contributors)
            contributors = request->parts[k].contributors;
    }
    /* If no owner received the Delta (no link, too late, no result), nobody judged its size. */
    if (was_out && (is_mixed || request->is_refused != 0))
        tw_merger_note_landed(merger, fragment, request->is_refused == 0);
    if (request->parts_count == 0) tw_inflight_recall(inflight, fragment, step.theta);
    tw_inflight_arrive(inflight, fragment, contributors);
}

/* Updates AdamW's first moment with the merge, as sync.lead asks. */
static void apply_lead(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                       const float *merged) {
    const struct tw_momentum_lead lead = {.share = (float)(merger->run->sync.lead_millionths / 1e6),
                                          .lr = merger->inner.lr,
                                          .steps = (float)request->steps,
                                          .correction2 = merger->inner.correction2};
    const bool has_stepped = merger->inner.m != NULL && lead.correction2 > 0.0f && lead.lr > 0.0f;
    if (!has_stepped || lead.share == 0.0f || request->steps == 0 || request->is_final) return;
    for (uint32_t k = 0; k < request->parts_count; k++) {
        if (request->parts[k].mode == TW_APPLY_ABSENT || request->parts[k].mode == TW_APPLY_STAY)
            continue;
        const size_t begin = (size_t)request->parts[k].begin, n = (size_t)request->parts[k].count;
        const size_t at = (size_t)merger->shm->fragment_begin[request->fragment] + begin;
        merger->vectors->lead(merger->vectors->self, merger->inner.m + at, merger->inner.v + at,
                              merged + begin, n, &lead);
    }
}

enum tw_status tw_anchor_begin(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_anchor_work *work, struct tw_error *err) {
    TW_TRY(apply_check(merger, request, err));
    work->request = *request;
    tw_anchor_publish_begin(merger, request->fragment, &work->stage);
    return TW_OK;
}

enum tw_status tw_anchor_work(const struct tw_merger *merger, struct tw_anchor_work *work,
                              struct tw_error *err) {
    struct tw_outer_sizes sizes;
    TW_TRY(apply_decode(merger, work, &sizes, err));
    apply_outer(merger, work, &sizes);
    return tw_anchor_publish_seal(&work->stage, work->request.round + 1, &work->state, err);
}

void tw_anchor_land(struct tw_merger *merger, const struct tw_anchor_work *work) {
    const struct tw_wmsg_apply *request = &work->request;
    struct tw_anchor_publish stage = work->stage;
    tw_outlier_note_merge(&merger->outlier[request->fragment], &work->sizes, stage.elements);
    if (work->squares > 0.0) merger->history[request->fragment].merge = (float)sqrt(work->squares);
    publish_stage(merger, &stage, &work->state);
    const float *merged = bring_merge(merger, work);
    apply_theta(merger, request, &stage, merged);
    apply_lead(merger, request, merged);
}

static enum tw_status apply_once(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                                 struct tw_error *err) {
    struct tw_anchor_work work = {.merged = merger->scratch};
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    if (tw_anchor_publish_is_applied(merger, request->fragment, request->round)) return TW_OK;
    TW_TRY(tw_anchor_begin(merger, request, &work, err));
    TW_TRY(tw_anchor_work(merger, &work, err));
    tw_anchor_land(merger, &work);
    return TW_OK;
}

enum tw_status tw_anchor_apply(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_wmsg_applied *reply, struct tw_error *err) {
    const enum tw_status status = apply_once(merger, request, err);
    tw_anchor_publish_reply(merger, request->fragment, status, reply);
    return status;
}

static enum tw_status solo_once(struct tw_merger *merger, const struct tw_wmsg_solo *request,
                                struct tw_error *err) {
    const struct tw_vectors *vectors = merger->vectors;
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    if (tw_anchor_publish_is_applied(merger, request->fragment, request->round)) return TW_OK;
    struct tw_anchor_publish stage;
    float *theta = tw_merger_theta(merger, request->fragment);
    if (merger->run->sync.topology == TW_TOPOLOGY_PAIR)
        tw_inflight_flush(&merger->inflight, request->fragment, theta);
    /* Work in flight and residuals belong to a group that this node is not in, so only theta
     * counts. */
    tw_inflight_clear(&merger->inflight, request->fragment, theta);
    tw_anchor_publish_begin(merger, request->fragment, &stage);
    TW_TRY(vectors->copy_out(vectors->self, stage.phi, theta, stage.elements, err));
    memset(stage.u, 0, u_bytes(&stage));
    TW_TRY(tw_anchor_publish_end(merger, &stage, request->round + 1, NULL, err));
    merger->must_clip[request->fragment] = false;
    tw_merger_note_begun(merger, request->fragment);
    return TW_OK;
}

enum tw_status tw_anchor_solo(struct tw_merger *merger, const struct tw_wmsg_solo *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err) {
    const enum tw_status status = solo_once(merger, request, err);
    tw_anchor_publish_reply(merger, request->fragment, status, reply);
    return status;
}

static enum tw_status export_pack(struct tw_merger *merger, const struct tw_wmsg_export *request,
                                  size_t *bytes_out, struct tw_error *err) {
    uint8_t *out;
    struct tw_shm_view view;
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    TW_TRY(tw_request_span(merger->shm, &request->out, &out, err));
    tw_shm_view(merger->shm, request->fragment, &view);
    return tw_pack(merger->packer, view.phi, view.u, (size_t)view.elements, out, request->out.bytes,
                   bytes_out, err);
}

enum tw_status tw_anchor_export(struct tw_merger *merger, const struct tw_wmsg_export *request,
                                struct tw_wmsg_exported *reply, struct tw_error *err) {
    size_t bytes = 0;
    struct tw_wmsg_applied now;
    memset(reply, 0, sizeof(*reply));
    const enum tw_status status = export_pack(merger, request, &bytes, err);
    tw_anchor_publish_reply(merger, request->fragment, status, &now);
    reply->fragment = request->fragment;
    reply->status = status;
    reply->bytes = status == TW_OK ? (uint32_t)bytes : 0;
    reply->rounds = now.rounds;
    reply->digest = now.digest;
    return status;
}

/* Sets theta to phi in all fragments at once, because theta belongs to another lineage. */
static enum tw_status load_turn(struct tw_merger *merger) {
    for (uint32_t p = 0; p < merger->shm->fragments_count; p++) {
        const float *phi = tw_device_anchor_phi(&merger->twin, p);
        float *theta = tw_merger_theta(merger, p);
        tw_inflight_clear(&merger->inflight, p, theta);
        merger->vectors->copy(merger->vectors->self, theta, phi,
                              (size_t)tw_shm_fragment_elements(merger->shm, p));
        merger->must_clip[p] = false;
    }
    merger->changes_count++;
    return TW_OK;
}

/* Sets phi to theta and u to 0, because the other lineage's state cannot be fetched completely. */
static enum tw_status load_back(struct tw_merger *merger, const struct tw_wmsg_load *request,
                                struct tw_error *err) {
    const struct tw_vectors *vectors = merger->vectors;
    float *theta = tw_merger_theta(merger, request->fragment);
    struct tw_anchor_publish stage;
    tw_inflight_clear(&merger->inflight, request->fragment, theta);
    tw_anchor_publish_begin(merger, request->fragment, &stage);
    TW_TRY(vectors->copy_out(vectors->self, stage.phi, theta, stage.elements, err));
    memset(stage.u, 0, u_bytes(&stage));
    TW_TRY(tw_anchor_publish_end(merger, &stage, request->rounds, NULL, err));
    merger->must_clip[request->fragment] = false;
    tw_merger_note_begun(merger, request->fragment);
    return TW_OK;
}

static enum tw_status load_stage(struct tw_merger *merger, const struct tw_wmsg_load *request,
                                 const struct tw_anchor_publish *stage, struct tw_error *err) {
    if (request->in.bytes == 0) {
        memcpy(stage->phi, stage->phi_old, stage->elements * sizeof(float));
        memcpy(stage->u, stage->u_old, u_bytes(stage));
    } else {
        uint8_t *bytes;
        TW_TRY(tw_request_span(merger->shm, &request->in, &bytes, err));
        TW_TRY(tw_unpack(merger->packer, bytes, request->in.bytes, stage->phi, stage->u,
                         stage->elements, err));
    }
    return TW_OK;
}

static enum tw_status load_once(struct tw_merger *merger, const struct tw_wmsg_load *request,
                                struct tw_error *err) {
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    if (request->mode > TW_LOAD_TURN) {
        return tw_fail(err, TW_PROTO, "load mode %u", request->mode);
    }
    if (request->mode >= TW_LOAD_BACK && request->in.bytes != 0) {
        return tw_fail(err, TW_PROTO, "a payload, and load mode %u has none", request->mode);
    }
    if (request->mode == TW_LOAD_BACK) return load_back(merger, request, err);
    if (request->mode == TW_LOAD_TURN) return load_turn(merger);
    const struct tw_vectors *vectors = merger->vectors;
    struct tw_anchor_publish stage;
    tw_anchor_publish_begin(merger, request->fragment, &stage);
    TW_TRY(load_stage(merger, request, &stage, err));
    TW_TRY(tw_anchor_publish_end(merger, &stage, request->rounds, &request->digest, err));
    float *theta = tw_merger_theta(merger, request->fragment);
    tw_inflight_clear(&merger->inflight, request->fragment, theta);
    /* The sizes of past merges are those of another history. */
    if (request->mode != TW_LOAD_SHIFT && request->in.bytes > 0)
        merger->outlier[request->fragment] = (struct tw_outlier){.checked = 0};
    switch ((enum tw_load_mode)request->mode) {
    case TW_LOAD_RESET:
        vectors->copy(vectors->self, theta, stage.live, stage.elements);
        merger->must_clip[request->fragment] = false;
        tw_merger_note_begun(merger, request->fragment);
        break;
    case TW_LOAD_KEEP: merger->must_clip[request->fragment] = true; break;
    case TW_LOAD_SHIFT:
        vectors->shift(vectors->self, theta, stage.live, stage.live_old, stage.elements);
        break;
    case TW_LOAD_BACK:
    case TW_LOAD_TURN: break; /* done above */
    }
    return TW_OK;
}

enum tw_status tw_anchor_load(struct tw_merger *merger, const struct tw_wmsg_load *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err) {
    const enum tw_status status = load_once(merger, request, err);
    tw_anchor_publish_reply(merger, request->fragment, status, reply);
    return status;
}
