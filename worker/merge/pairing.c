#include "worker/merge/pairing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "compress/lattice.h"
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/outer.h"
#include "worker/merge/anchor.h"
#include "worker/merge/inflight.h"

/* ---- guard ----------------------------------------------------------------------------------- */

_Static_assert((int)TW_PAIR_GUARD_KEPT <= (int)TW_MEDIAN_MAX, "the median takes them all");

/* Assumed size of an anchor's change in a few dozen steps, relative to the anchor. Used until
 * enough partners' payloads are known. */
#define UNKNOWN 0.05

static double larger(double a, double b) {
    return a > b ? a : b;
}

static float factor(double size, double most) {
    return size > most ? (float)(most / size) : 1.0f;
}

struct tw_pair_verdict tw_pair_guard(struct tw_pair_guard *guard,
                                     const struct tw_pair_sizes *sizes) {
    const uint32_t count = guard->count < TW_PAIR_GUARD_KEPT ? guard->count : TW_PAIR_GUARD_KEPT;
    const bool is_known = count >= TW_PAIR_GUARD_LEAST;
    double deltas = is_known ? tw_median_low(guard->deltas, count) : 0;
    double aparts = is_known ? tw_median_low(guard->aparts, count) : 0;
    const bool may_refuse = deltas > 0;
    if (!(deltas > 0)) deltas = UNKNOWN * sizes->anchor;
    if (!(aparts > 0)) aparts = UNKNOWN * sizes->anchor;
    deltas = larger(sizes->delta_own, deltas);
    aparts = larger(sizes->delta_own, aparts);
    const uint32_t row = guard->count++ % TW_PAIR_GUARD_KEPT;
    guard->deltas[row] = sizes->delta_theirs;
    guard->aparts[row] = sizes->apart;
    return (struct tw_pair_verdict){
        .is_refused = (may_refuse && sizes->delta_theirs > TW_PAIR_GUARD_REFUSED * deltas) ||
                      sizes->apart > TW_PAIR_GUARD_FAR * sizes->anchor,
        .delta = factor(sizes->delta_theirs, TW_PAIR_GUARD_SCALED * deltas),
        .pull = factor(sizes->apart, TW_PAIR_GUARD_PULLED * aparts),
    };
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* decay of the running maximum of the distance, per exchange */
#define DISTANCE_KEPT 0.9f
#define INIT_RMS 0.02 /* RMS of initial matrices; biases are smaller */

enum tw_status tw_pairing_init(struct tw_pairing *pairing, struct tw_merger *merger,
                               struct tw_error *err) {
    memset(pairing, 0, sizeof(*pairing));
    pairing->merger = merger;
    if (merger->run->sync.topology != TW_TOPOLOGY_PAIR) return TW_OK;
    const size_t elements = (size_t)merger->shm->geometry.spare_elements;
    pairing->own = calloc(3 * elements, sizeof(float));
    if (pairing->own == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for the anchors of a pair: %zu bytes wanted",
                       3 * elements * sizeof(float));
    }
    pairing->theirs = pairing->own + elements;
    pairing->delta = pairing->theirs + elements;
    return TW_OK;
}

void tw_pairing_deinit(struct tw_pairing *pairing) {
    free(pairing->own);
    memset(pairing, 0, sizeof(*pairing));
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static enum tw_status encode_phi(const struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_encode *request, size_t *bytes_out,
                                 struct tw_error *err) {
    struct tw_shm_view view;
    uint8_t *out;
    TW_TRY(tw_request_fragment(pairing->merger->shm, request->fragment, err));
    TW_TRY(tw_request_span(pairing->merger->shm, &request->phi, &out, err));
    tw_shm_view(pairing->merger->shm, request->fragment, &view);
    const float distance = request->is_whole != 0 ? 0.0f : pairing->distance[request->fragment];
    const enum tw_status status = tw_lattice_encode(view.phi, (size_t)view.elements, distance, out,
                                                    request->phi.bytes, bytes_out);
    if (status == TW_OK) return TW_OK;
    return tw_fail(err, status, "the anchor of fragment %u could not be encoded: %s",
                   request->fragment, tw_status_meaning(status));
}

enum tw_status tw_pairing_encode(struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_encode *request,
                                 struct tw_wmsg_encoded *reply, struct tw_error *err) {
    struct tw_wmsg_encode delta = {
        .round = request->round, .fragment = request->fragment, .parts_count = 1};
    size_t bytes = 0;
    enum tw_status status = encode_phi(pairing, request, &bytes, err);
    if (status == TW_OK) {
        delta.parts[0].count = tw_shm_fragment_elements(pairing->merger->shm, request->fragment);
        delta.parts[0].out = request->delta;
        delta.parts[0].bytes_max = request->delta_bytes_max;
        status = tw_merger_encode(pairing->merger, &delta, reply, err);
    }
    if (status != TW_OK) memset(reply, 0, sizeof(*reply));
    reply->round = request->round;
    reply->status = status;
    reply->parts_count = TW_PAIR_PAYLOADS;
    if (status == TW_OK) reply->bytes[TW_PAIR_PHI] = (uint32_t)bytes;
    return status;
}

/* ---- the step -------------------------------------------------------------------------------- */

static struct tw_momentum_step whole_step(const struct tw_anchor_publish *stage) {
    return (struct tw_momentum_step){
        .momentum = stage->momentum, .phi = stage->phi, .u = stage->u, .n = stage->elements};
}

/* Computes phi' and u' from the delta in scratch, by a heavy-ball step. */
static void step_outer(const struct tw_pairing *pairing, uint64_t version,
                       const struct tw_anchor_publish *stage) {
    const struct tw_merger *merger = pairing->merger;
    const struct tw_run *run = merger->run;
    const size_t n = stage->elements;
    const struct tw_outer_sizes sizes = {
        .u_squared = tw_momentum_squared(stage->momentum, stage->u_old, 0, n),
        .delta_squared = tw_norm_squared(merger->scratch, n),
        .count = n};
    const struct tw_outer plain =
        tw_outer_at(run->sync.outer_lr_millionths, run->sync.outer_momentum_millionths,
                    run->sync.outer_ramp, version);
    memcpy(stage->phi, stage->phi_old, n * sizeof(float));
    memcpy(stage->u, stage->u_old, n * (size_t)tw_momentum_bytes(stage->momentum));
    const struct tw_momentum_step step = whole_step(stage);
    tw_momentum_heavyball(&step, merger->scratch,
                          tw_outer_temper(plain, run->sync.gap_penalty_millionths,
                                          run->sync.momentum_clip_millionths, &sizes));
}

/* Updates theta and the work in flight after a step was published. */
static void land(const struct tw_pairing *pairing, const struct tw_wmsg_pair_apply *request,
                 const struct tw_anchor_publish *stage) {
    struct tw_inflight *inflight = &pairing->merger->inflight;
    const struct tw_inflight_step step = {.fragment = request->fragment,
                                          .version = request->version,
                                          .theta =
                                              tw_merger_theta(pairing->merger, request->fragment),
                                          .phi_old = stage->live_old,
                                          .phi = stage->live};
    const struct tw_vectors *vectors = inflight->vectors;
    if (request->is_final != 0) {
        vectors->copy(vectors->self, step.theta, stage->live, stage->elements);
        tw_inflight_forget(inflight, request->fragment);
        return;
    }
    tw_inflight_land(inflight, &step, 0, stage->elements, TW_APPLY_MIX);
    tw_inflight_arrive(inflight, request->fragment, 0);
}

static bool is_under_way(const struct tw_pairing *pairing,
                         const struct tw_wmsg_pair_apply *request) {
    const struct tw_inflight *inflight = &pairing->merger->inflight;
    return inflight->fragments[request->fragment].is_out &&
           inflight->fragments[request->fragment].round == request->round;
}

/* Writes the v that was sent in this round to scratch, or, if nothing was sent, the current v. */
static enum tw_status take_own(struct tw_pairing *pairing, const struct tw_wmsg_pair_apply *request,
                               struct tw_error *err) {
    struct tw_merger *merger = pairing->merger;
    const struct tw_vectors *vectors = merger->vectors;
    const uint32_t fragment = request->fragment;
    const size_t n = (size_t)tw_shm_fragment_elements(merger->shm, fragment);
    float norm;
    if (is_under_way(pairing, request)) {
        tw_inflight_again(&merger->inflight, fragment, merger->v);
    } else {
        TW_TRY(tw_merger_take(merger, fragment, merger->v, &norm, err));
        tw_inflight_commit(&merger->inflight, fragment, request->round,
                           tw_merger_theta(merger, fragment));
    }
    if (vectors->is_host) return TW_OK;
    return vectors->copy_out(vectors->self, merger->scratch, merger->v, n, err);
}

static enum tw_status apply_alone(struct tw_pairing *pairing,
                                  const struct tw_wmsg_pair_apply *request, struct tw_error *err) {
    struct tw_merger *merger = pairing->merger;
    const uint32_t fragment = request->fragment;
    struct tw_anchor_publish stage;
    TW_TRY(take_own(pairing, request, err));
    tw_anchor_publish_begin(merger, fragment, &stage);
    step_outer(pairing, request->version, &stage);
    TW_TRY(tw_anchor_publish_end(merger, &stage, request->round + 1, NULL, err));
    tw_inflight_exact(&merger->inflight, fragment);
    merger->must_clip[fragment] = false;
    land(pairing, request, &stage);
    return TW_OK;
}

static void measure(const struct tw_pairing *pairing, size_t n, struct tw_pair_sizes *sizes) {
    const double begun = (double)n * INIT_RMS * INIT_RMS, size = tw_norm_squared(pairing->own, n);
    sizes->delta_own = sqrt(tw_norm_squared(pairing->merger->scratch, n));
    sizes->delta_theirs = sqrt(tw_norm_squared(pairing->delta, n));
    sizes->anchor = sqrt(size > begun ? size : begun);
    sizes->apart = sqrt(tw_distance_squared(pairing->theirs, pairing->own, n));
}

/* Decodes both deltas (this node's into scratch) and both anchors. Returns TW_AGAIN if the
 * partner's payloads are unusable, TW_CORRUPT or TW_PROTO if this node's are. */
static enum tw_status decode_all(struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_apply *request, const float *phi,
                                 size_t n, struct tw_error *err) {
    struct tw_merger *merger = pairing->merger;
    const struct tw_codec *codec = merger->codec;
    uint8_t *own_delta, *own_phi, *theirs_delta, *theirs_phi;
    TW_TRY(tw_request_span(merger->shm, &request->own.delta, &own_delta, err));
    TW_TRY(tw_request_span(merger->shm, &request->own.phi, &own_phi, err));
    TW_TRY(tw_request_span(merger->shm, &request->theirs.delta, &theirs_delta, err));
    TW_TRY(tw_request_span(merger->shm, &request->theirs.phi, &theirs_phi, err));
    if (codec->decode(own_delta, request->own.delta.bytes, merger->scratch, n) != TW_OK ||
        tw_lattice_decode(own_phi, request->own.phi.bytes, phi, pairing->own, n) != TW_OK) {
        return tw_fail(err, TW_CORRUPT, "the sent bytes of fragment %u do not decode",
                       request->fragment);
    }
    if (codec->decode(theirs_delta, request->theirs.delta.bytes, pairing->delta, n) != TW_OK ||
        tw_lattice_decode(theirs_phi, request->theirs.phi.bytes, phi, pairing->theirs, n) != TW_OK)
        return tw_fail(err, TW_AGAIN, "the partner's share of fragment %u cannot be read",
                       request->fragment);
    return TW_OK;
}

/* Updates the running maximum of the distance between the two anchors. It is at least the length of
 * one outer step, because equal anchors diverge by that much until the next exchange. */
static void note_distance(struct tw_pairing *pairing, const struct tw_anchor_publish *stage) {
    const size_t n = stage->elements;
    const float apart = tw_lattice_distance(pairing->theirs, stage->phi_old, n);
    const float moved = tw_lattice_distance(stage->phi, stage->phi_old, n);
    const float now = apart > moved ? apart : moved;
    const float kept = DISTANCE_KEPT * pairing->distance[stage->fragment];
    pairing->distance[stage->fragment] = now > kept ? now : kept;
}

/* Takes the outer step with the payloads of both nodes, after the guard scaled the partner's. */
static enum tw_status step_pair(struct tw_pairing *pairing,
                                const struct tw_wmsg_pair_apply *request,
                                const struct tw_pair_verdict *verdict,
                                struct tw_anchor_publish *stage, struct tw_error *err) {
    struct tw_merger *merger = pairing->merger;
    const double half = (double)merger->run->sync.consensus_millionths / 2e6;
    tw_scale(merger->scratch, 0.5f, stage->elements);
    tw_merge_add(merger->scratch, pairing->delta, 0.5f * verdict->delta, stage->elements);
    step_outer(pairing, request->version, stage);
    const struct tw_momentum_step whole = whole_step(stage);
    tw_momentum_pull(&whole, pairing->own, pairing->theirs, (float)(half * (double)verdict->pull));
    TW_TRY(tw_anchor_publish_end(merger, stage, request->round + 1, NULL, err));
    note_distance(pairing, stage);
    land(pairing, request, stage);
    return TW_OK;
}

static enum tw_status apply_pair(struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_apply *request,
                                 struct tw_wmsg_applied *reply, struct tw_error *err) {
    struct tw_pair_verdict verdict = {.is_refused = false};
    struct tw_pair_sizes sizes;
    struct tw_anchor_publish stage;
    if (!is_under_way(pairing, request)) {
        return tw_fail(err, TW_AGAIN, "nothing of fragment %u was sent in round %llu",
                       request->fragment, (unsigned long long)request->round);
    }
    tw_anchor_publish_begin(pairing->merger, request->fragment, &stage);
    const enum tw_status status = decode_all(pairing, request, stage.phi_old, stage.elements, err);
    if (status == TW_OK) {
        measure(pairing, stage.elements, &sizes);
        verdict = tw_pair_guard(&pairing->guards[request->fragment], &sizes);
    }
    if (status == TW_AGAIN || verdict.is_refused) {
        reply->is_alone = true;
        reply->is_outlier = verdict.is_refused;
        return apply_alone(pairing, request, err);
    }
    TW_TRY(status);
    reply->distance = (float)(sizes.apart / sizes.anchor);
    return step_pair(pairing, request, &verdict, &stage, err);
}

static enum tw_status apply_once(struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_apply *request,
                                 struct tw_wmsg_applied *reply, struct tw_error *err) {
    if (pairing->own == NULL) return tw_fail(err, TW_PROTO, "this run is not one in pairs");
    TW_TRY(tw_request_fragment(pairing->merger->shm, request->fragment, err));
    if (tw_anchor_publish_is_applied(pairing->merger, request->fragment, request->round))
        return TW_OK;
    if (request->is_alone != 0) return apply_alone(pairing, request, err);
    return apply_pair(pairing, request, reply, err);
}

enum tw_status tw_pairing_apply(struct tw_pairing *pairing,
                                const struct tw_wmsg_pair_apply *request,
                                struct tw_wmsg_applied *reply, struct tw_error *err) {
    struct tw_wmsg_applied found = {0};
    const enum tw_status status = apply_once(pairing, request, &found, err);
    tw_anchor_publish_reply(pairing->merger, request->fragment, status, reply);
    reply->is_alone = found.is_alone;
    reply->is_outlier = found.is_outlier;
    if (status == TW_OK) reply->distance = found.distance;
    return status;
}
