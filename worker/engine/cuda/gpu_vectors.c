/* gpu_vectors.c - implements vectors.h, the arithmetic of merging, on a device. Every function
 * queues kernels on the compute stream, between two steps. Packed bytes and new anchors use the
 * same stream: the caller waits for them anyway, so a second stream would overlap nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/machine.h"
#include "kernels/cuda/pack.h"
#include "proto/run/layout.h"
#include "worker/engine/cuda/gpu_model.h"

enum { ALIGN = 256, SCRATCH_BYTES = 8192 };
_Static_assert(SCRATCH_BYTES >= (int)TW_CUDA_ENERGIES_SCRATCH &&
                   SCRATCH_BYTES >= (int)TW_CUDA_SUM_SCRATCH &&
                   SCRATCH_BYTES >= (int)TW_CUDA_LEAD_SCRATCH,
               "scratch of every operation");

/* Results copied back to the host. */
struct numbers {
    double sums[TW_OUTLIER_BLOCKS];
    uint32_t refused;
};

struct tw_gpu_vectors {
    struct tw_gpu *gpu;
    void *block;             /* device memory of numbers, scratch and packed */
    struct numbers *numbers; /* device */
    void *scratch;           /* SCRATCH_BYTES of device memory */
    uint8_t *packed;         /* device: packed bytes of one part, with room for a whole fragment */
    struct numbers *here;    /* page-locked host copy of `numbers` */
};

static uint64_t aligned(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t packed_bytes(const struct tw_layout *layout) {
    uint64_t most = 0;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const size_t n = (size_t)(layout->fragment_begin[p + 1] - layout->fragment_begin[p]);
        for (int format = TW_CUDA_PACK_BF16; format <= TW_CUDA_PACK_SIGN; format++) {
            const uint64_t bytes = tw_cuda_pack_bytes((enum tw_cuda_pack_format)format, n);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

uint64_t tw_gpu_vectors_bytes(const struct tw_layout *layout) {
    return aligned(sizeof(struct numbers)) + SCRATCH_BYTES + packed_bytes(layout);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static enum tw_status vectors_alloc(void *self, float **x, size_t n, const char *what,
                                    struct tw_error *err) {
    const struct tw_gpu_vectors *vectors = self;
    void *floats = NULL;
    *x = NULL;
    if (n == 0) return TW_OK;
    TW_TRY(tw_cuda_alloc(vectors->gpu->cuda, &floats, n * sizeof(float), what, err));
    tw_cuda_zero(vectors->gpu->cuda, TW_CUDA_COMPUTE, floats, n * sizeof(float));
    *x = floats;
    return TW_OK;
}

static void vectors_free(void *self, float *x) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_free(vectors->gpu->cuda, x);
}

static enum tw_status vectors_host_alloc(void *self, float **x, size_t n, const char *what,
                                         struct tw_error *err) {
    const struct tw_gpu_vectors *vectors = self;
    void *floats = NULL;
    *x = NULL;
    if (n == 0) return TW_OK;
    TW_TRY(tw_cuda_host_alloc(vectors->gpu->cuda, &floats, n * sizeof(float), what, err));
    memset(floats, 0, n * sizeof(float));
    *x = floats;
    return TW_OK;
}

static void vectors_host_free(void *self, float *x) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_host_free(vectors->gpu->cuda, x);
}

/* Page-locked memory is unavailable to all other processes, so at most half of the free memory is
 * locked. */
static bool vectors_pin(void *self, void *host, uint64_t bytes) {
    const struct tw_gpu_vectors *vectors = self;
    if (bytes == 0 || bytes > tw_machine_memory() / 2) return false;
    return tw_cuda_host_pin(vectors->gpu->cuda, host, bytes);
}

static void vectors_unpin(void *self, void *host) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_host_unpin(vectors->gpu->cuda, host);
}

static enum tw_status vectors_finish(void *self, struct tw_error *err) {
    const struct tw_gpu_vectors *vectors = self;
    return tw_cuda_finish(vectors->gpu->cuda, TW_CUDA_COMPUTE, err);
}

static void vectors_copy_in(void *self, float *x, const float *from, size_t n) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_copy_in(vectors->gpu->cuda, TW_CUDA_COMPUTE, x, from, n * sizeof(float));
}

static enum tw_status vectors_copy_out(void *self, float *to, const float *x, size_t n,
                                       struct tw_error *err) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_copy_out(vectors->gpu->cuda, TW_CUDA_COMPUTE, to, x, n * sizeof(float));
    return vectors_finish(self, err);
}

static void vectors_copy(void *self, float *x, const float *from, size_t n) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_copy(vectors->gpu->cuda, TW_CUDA_COMPUTE, x, from, n * sizeof(float));
}

static void vectors_zero(void *self, float *x, size_t n) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_zero(vectors->gpu->cuda, TW_CUDA_COMPUTE, x, n * sizeof(float));
}

/* ---- elements -------------------------------------------------------------------------------- */

static void *queue_of(const void *self) {
    return ((const struct tw_gpu_vectors *)self)->gpu->queue;
}

static void vectors_scale(void *self, float *x, float factor, size_t n) {
    tw_cuda_scale(queue_of(self), x, factor, n);
}

static void vectors_add(void *self, float *x, const float *y, float weight, size_t n) {
    tw_cuda_merge_add(queue_of(self), x, y, weight, n);
}

static void vectors_delta(void *self, const struct tw_vectors_delta *delta) {
    const struct tw_cuda_delta on = {.v = delta->v,
                                     .given = delta->given,
                                     .phi = delta->phi,
                                     .theta = delta->theta,
                                     .ahead = delta->ahead,
                                     .residual = delta->residual,
                                     .beta = delta->beta,
                                     .n = delta->n};
    tw_cuda_delta(queue_of(self), &on);
}

static void vectors_mix(void *self, float *theta, const float *anchor_new, float alpha, size_t n) {
    tw_cuda_mix(queue_of(self), theta, NULL, anchor_new, alpha, n);
}

static void vectors_shift(void *self, float *theta, const float *anchor_new,
                          const float *anchor_old, size_t n) {
    tw_cuda_shift(queue_of(self), theta, NULL, anchor_new, anchor_old, n);
}

static void vectors_regain(void *self, const struct tw_regain *r) {
    tw_cuda_regain(queue_of(self), r);
}

static void vectors_outer(void *self, const struct tw_vectors_outer *step) {
    const struct tw_cuda_outer on = {.anchor = step->anchor,
                                     .momentum = step->momentum,
                                     .delta = step->delta,
                                     .n = step->n,
                                     .rule = step->rule};
    if (step->is_heavyball) {
        tw_cuda_outer_heavyball(queue_of(self), &on);
    } else {
        tw_cuda_outer_nesterov(queue_of(self), &on);
    }
}

static void vectors_lead(void *self, float *m, const float *v, const float *delta, size_t n,
                         const struct tw_momentum_lead *cfg) {
    const struct tw_gpu_vectors *vectors = self;
    const struct tw_cuda_lead on = {
        .m = m, .v = v, .delta = delta, .n = n, .cfg = *cfg, .scratch = vectors->scratch};
    tw_cuda_lead(queue_of(self), &on);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Waits for the first `count` sums and returns them. After a fault, the sums are NaN. */
static const double *fetch_sums(const struct tw_gpu_vectors *vectors, size_t count) {
    struct tw_error ignored; /* the next call of `finish` reports the same fault */
    tw_cuda_copy_out(vectors->gpu->cuda, TW_CUDA_COMPUTE, vectors->here->sums,
                     vectors->numbers->sums, count * sizeof(double));
    if (tw_cuda_finish(vectors->gpu->cuda, TW_CUDA_COMPUTE, &ignored) == TW_OK)
        return vectors->here->sums;
    for (size_t i = 0; i < count; i++) vectors->here->sums[i] = (double)NAN;
    return vectors->here->sums;
}

static double vectors_norm_squared(void *self, const float *x, size_t n) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_sum_squares(queue_of(self), vectors->numbers->sums, x, n, false, vectors->scratch);
    return fetch_sums(vectors, 1)[0];
}

static double vectors_distance_squared(void *self, const float *a, const float *b, size_t n) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_sum_distances(queue_of(self), vectors->numbers->sums, a, b, n, vectors->scratch);
    return fetch_sums(vectors, 1)[0];
}

static void vectors_energies(void *self, double *energies, const float *x, size_t n) {
    const struct tw_gpu_vectors *vectors = self;
    tw_cuda_energies(queue_of(self), vectors->numbers->sums, x, n, vectors->scratch);
    const double *sums = fetch_sums(vectors, TW_OUTLIER_BLOCKS);
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) energies[b] = sums[b];
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Finds the device format of this codec. Returns false if the codec has no fixed rate. */
static bool find_format(const struct tw_codec *codec, enum tw_cuda_pack_format *format) {
    static const struct {
        enum tw_codec_id codec;
        enum tw_cuda_pack_format format;
    } formats[] = {{TW_CODEC_BF16, TW_CUDA_PACK_BF16},
                   {TW_CODEC_INT8, TW_CUDA_PACK_INT8},
                   {TW_CODEC_INT4, TW_CUDA_PACK_INT4},
                   {TW_CODEC_E3M0, TW_CUDA_PACK_E3M0},
                   {TW_CODEC_SIGN, TW_CUDA_PACK_SIGN}};
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        *format = formats[i].format;
        if (formats[i].codec == codec->id) return true;
    }
    return false;
}

static bool vectors_can_pack(void *self, const struct tw_codec *codec) {
    enum tw_cuda_pack_format format;
    (void)self;
    return find_format(codec, &format);
}

static enum tw_status vectors_pack(void *self, const struct tw_vectors_pack *pack,
                                   struct tw_error *err) {
    const struct tw_gpu_vectors *vectors = self;
    struct tw_cuda *cuda = vectors->gpu->cuda;
    struct tw_cuda_pack on = {.n = pack->n,
                              .v = pack->v,
                              .out = vectors->packed,
                              .decoded = pack->decoded,
                              .lost = pack->lost,
                              .refused = &vectors->numbers->refused};
    TW_ASSERT(find_format(pack->codec, &on.format));
    tw_cuda_zero(cuda, TW_CUDA_COMPUTE, on.refused, sizeof(*on.refused));
    tw_cuda_pack(queue_of(self), &on);
    tw_cuda_copy_out(cuda, TW_CUDA_COMPUTE, &vectors->here->refused, on.refused,
                     sizeof(*on.refused));
    tw_cuda_copy_out(cuda, TW_CUDA_COMPUTE, pack->out, on.out, tw_cuda_pack_bytes(on.format, on.n));
    TW_TRY(vectors_finish(self, err));
    if (vectors->here->refused == 0) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "an element is not finite, or too large for %s",
                   pack->codec->name);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void vectors_written(void *self, size_t begin, size_t n) {
    const struct tw_gpu_vectors *vectors = self;
    tw_gpu_written(vectors->gpu, begin, n);
}

static enum tw_status open_memory(struct tw_gpu_vectors *vectors, struct tw_error *err) {
    struct tw_gpu *gpu = vectors->gpu;
    void *here = NULL;
    TW_TRY(tw_cuda_alloc(gpu->cuda, &vectors->block, tw_gpu_vectors_bytes(gpu->engine->layout),
                         "encoding outer gradients", err));
    vectors->numbers = vectors->block;
    vectors->scratch = (uint8_t *)vectors->block + aligned(sizeof(*vectors->numbers));
    vectors->packed = (uint8_t *)vectors->scratch + SCRATCH_BYTES;
    TW_TRY(tw_cuda_host_alloc(gpu->cuda, &here, sizeof(*vectors->here), "sums of a sync", err));
    vectors->here = here;
    return tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err);
}

enum tw_status tw_gpu_vectors_open(struct tw_gpu *gpu, struct tw_vectors *out,
                                   struct tw_error *err) {
    TW_ASSERT(gpu->is_learning);
    if (gpu->vectors == NULL) {
        struct tw_gpu_vectors *vectors = calloc(1, sizeof(*vectors));
        if (vectors == NULL) return tw_fail(err, TW_NOMEM, "no memory for a sync on a device");
        vectors->gpu = gpu;
        gpu->vectors = vectors;
        const enum tw_status status = open_memory(vectors, err);
        if (status != TW_OK) {
            tw_gpu_vectors_close(gpu);
            return status;
        }
    }
    *out = (struct tw_vectors){.self = gpu->vectors,
                               .theta = gpu->theta,
                               .m = gpu->m,
                               .v = gpu->v,
                               .alloc = vectors_alloc,
                               .free = vectors_free,
                               .host_alloc = vectors_host_alloc,
                               .host_free = vectors_host_free,
                               .pin = vectors_pin,
                               .unpin = vectors_unpin,
                               .copy_in = vectors_copy_in,
                               .copy_out = vectors_copy_out,
                               .copy = vectors_copy,
                               .zero = vectors_zero,
                               .scale = vectors_scale,
                               .add = vectors_add,
                               .delta = vectors_delta,
                               .mix = vectors_mix,
                               .shift = vectors_shift,
                               .outer = vectors_outer,
                               .regain = vectors_regain,
                               .lead = vectors_lead,
                               .norm_squared = vectors_norm_squared,
                               .distance_squared = vectors_distance_squared,
                               .energies = vectors_energies,
                               .can_pack = vectors_can_pack,
                               .pack = vectors_pack,
                               .written = vectors_written,
                               .finish = vectors_finish};
    return TW_OK;
}

void tw_gpu_vectors_close(struct tw_gpu *gpu) {
    if (gpu->vectors == NULL) return;
    tw_cuda_host_free(gpu->cuda, gpu->vectors->here);
    tw_cuda_free(gpu->cuda, gpu->vectors->block);
    free(gpu->vectors);
    gpu->vectors = NULL;
}
