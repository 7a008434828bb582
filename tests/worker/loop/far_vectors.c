#include "tests/worker/loop/far_vectors.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

void far_open(struct far *far) {
    const struct far kept = *far;
    *far = (struct far){.can_pack = kept.can_pack, .calls_fail = kept.calls_fail};
    far->host = tw_vectors_host(NULL, NULL, NULL);
}

static void free_region(struct far *far, void *base) {
    for (unsigned i = 0; base != NULL && i < FAR_REGIONS_MAX; i++) {
        if (far->regions[i].base != base) continue;
        (void)munmap(base, far->regions[i].bytes);
        far->regions[i].base = NULL;
        return;
    }
    TW_ASSERT(base == NULL);
}

void far_close(struct far *far) {
    TW_ASSERT(far->pinned == NULL);
    for (unsigned i = 0; i < FAR_REGIONS_MAX; i++) free_region(far, far->regions[i].base);
}

float *far_alloc(struct far *far, size_t n) {
    for (unsigned i = 0; i < FAR_REGIONS_MAX; i++) {
        if (far->regions[i].base != NULL) continue;
        const size_t bytes = n * sizeof(float);
        void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        TW_ASSERT(base != MAP_FAILED);
        far->regions[i].base = base;
        far->regions[i].bytes = bytes;
        return base;
    }
    TW_ASSERT(!"a region is free");
    return NULL;
}

static void protect(const struct far *far, int how) {
    for (unsigned i = 0; i < FAR_REGIONS_MAX; i++) {
        if (far->regions[i].base == NULL) continue;
        TW_ASSERT(mprotect(far->regions[i].base, far->regions[i].bytes, how) == 0);
    }
}

void far_unlock(struct far *far) {
    protect(far, PROT_READ | PROT_WRITE);
}

void far_lock(struct far *far) {
    protect(far, PROT_NONE);
}

static bool has_failed(const struct far *far) {
    return far->calls_fail > 0 && far->calls >= far->calls_fail;
}

enum tw_status far_call(struct far *far, struct tw_error *err) {
    far->calls++;
    return has_failed(far) ? tw_fail(err, TW_DEVICE, "the stub's device fell") : TW_OK;
}

/* Counts the call. Unlocks far memory and returns true unless the device has failed. */
static bool begin(struct far *far) {
    if (far_call(far, NULL) != TW_OK) return false;
    far_unlock(far);
    return true;
}

static enum tw_status alloc(void *self, float **x, size_t n, const char *what,
                            struct tw_error *err) {
    (void)what, (void)err;
    *x = far_alloc(self, n);
    return TW_OK;
}

static void free_(void *self, float *x) {
    free_region(self, x);
}

static enum tw_status host_alloc(void *self, float **x, size_t n, const char *what,
                                 struct tw_error *err) {
    struct far *far = self;
    return far->host.host_alloc(NULL, x, n, what, err);
}

static void host_free(void *self, float *x) {
    struct far *far = self;
    far->host.host_free(NULL, x);
}

static bool pin(void *self, void *host, uint64_t bytes) {
    struct far *far = self;
    TW_ASSERT(far->pinned == NULL && bytes > 0 && (uintptr_t)host % 4096 == 0);
    far->pinned = host;
    return true;
}

static void unpin(void *self, void *host) {
    struct far *far = self;
    TW_ASSERT(host != NULL && far->pinned == host);
    far->pinned = NULL;
}

static void copy_in(void *self, float *x, const float *from, size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    far->bytes_in += n * sizeof(float);
    memcpy(x, from, n * sizeof(float));
    far_lock(far);
}

static enum tw_status copy_out(void *self, float *to, const float *x, size_t n,
                               struct tw_error *err) {
    struct far *far = self;
    if (!begin(far)) return tw_fail(err, TW_DEVICE, "the stub's device fell");
    far->bytes_out += n * sizeof(float);
    memcpy(to, x, n * sizeof(float));
    far_lock(far);
    return TW_OK;
}

static void copy(void *self, float *x, const float *from, size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.copy(NULL, x, from, n);
    far_lock(far);
}

static void zero(void *self, float *x, size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.zero(NULL, x, n);
    far_lock(far);
}

static void scale(void *self, float *x, float factor, size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.scale(NULL, x, factor, n);
    far_lock(far);
}

static void add(void *self, float *x, const float *y, float weight, size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.add(NULL, x, y, weight, n);
    far_lock(far);
}

static void delta(void *self, const struct tw_vectors_delta *wanted) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.delta(NULL, wanted);
    far_lock(far);
}

static void mix(void *self, float *theta, const float *anchor_new, float alpha, size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.mix(NULL, theta, anchor_new, alpha, n);
    far_lock(far);
}

static void shift(void *self, float *theta, const float *anchor_new, const float *anchor_old,
                  size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.shift(NULL, theta, anchor_new, anchor_old, n);
    far_lock(far);
}

static void regain(void *self, const struct tw_regain *r) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.regain(NULL, r);
    far_lock(far);
}

static void outer(void *self, const struct tw_vectors_outer *step) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.outer(NULL, step);
    far_lock(far);
}

static void lead(void *self, float *m, const float *v, const float *merged, size_t n,
                 const struct tw_momentum_lead *cfg) {
    struct far *far = self;
    if (!begin(far)) return;
    far->host.lead(NULL, m, v, merged, n, cfg);
    far_lock(far);
}

static double norm_squared(void *self, const float *x, size_t n) {
    struct far *far = self;
    if (!begin(far)) return (double)NAN;
    const double sum = far->host.norm_squared(NULL, x, n);
    far_lock(far);
    return sum;
}

static double distance_squared(void *self, const float *a, const float *b, size_t n) {
    struct far *far = self;
    if (!begin(far)) return (double)NAN;
    const double sum = far->host.distance_squared(NULL, a, b, n);
    far_lock(far);
    return sum;
}

static void energies(void *self, double *into, const float *x, size_t n) {
    struct far *far = self;
    for (unsigned b = 0; b < TW_OUTLIER_BLOCKS; b++) into[b] = (double)NAN;
    if (!begin(far)) return;
    far->host.energies(NULL, into, x, n);
    far_lock(far);
}

static bool can_pack(void *self, const struct tw_codec *codec) {
    static const enum tw_codec_id fixed[] = {TW_CODEC_BF16, TW_CODEC_INT8, TW_CODEC_INT4,
                                             TW_CODEC_E3M0, TW_CODEC_SIGN};
    const struct far *far = self;
    for (unsigned i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        if (codec->id == fixed[i]) return far->can_pack;
    return false;
}

static enum tw_status pack(void *self, const struct tw_vectors_pack *wanted, struct tw_error *err) {
    struct far *far = self;
    const struct tw_codec *codec = wanted->codec;
    const size_t n = wanted->n, bound = codec->bound(n);
    size_t bytes = 0;
    if (!begin(far)) return tw_fail(err, TW_DEVICE, "the stub's device fell");
    const enum tw_status status = codec->encode(wanted->v, n, wanted->out, bound, &bytes);
    far->bytes_out += bytes;
    if (status == TW_OK) {
        TW_ASSERT(bytes == bound);
        if (wanted->decoded != NULL)
            TW_ASSERT(codec->decode(wanted->out, bytes, wanted->decoded, n) == TW_OK);
        if (wanted->lost != NULL) {
            TW_ASSERT(codec->decode(wanted->out, bytes, wanted->lost, n) == TW_OK);
            for (size_t i = 0; i < n; i++) wanted->lost[i] = wanted->v[i] - wanted->lost[i];
        }
    }
    far_lock(far);
    return status;
}

static void written(void *self, size_t first, size_t n) {
    struct far *far = self;
    if (!begin(far)) return;
    if (far->copy != NULL) memcpy(far->copy + first, far->theta + first, n * sizeof(float));
    far_lock(far);
}

static enum tw_status finish(void *self, struct tw_error *err) {
    return far_call(self, err);
}

struct tw_vectors far_vectors(struct far *far, float *theta, float *m, float *v) {
    return (struct tw_vectors){
        .self = far,
        .theta = theta,
        .m = m,
        .v = v,
        .alloc = alloc,
        .free = free_,
        .host_alloc = host_alloc,
        .host_free = host_free,
        .pin = pin,
        .unpin = unpin,
        .copy_in = copy_in,
        .copy_out = copy_out,
        .copy = copy,
        .zero = zero,
        .scale = scale,
        .add = add,
        .delta = delta,
        .mix = mix,
        .shift = shift,
        .outer = outer,
        .regain = regain,
        .lead = lead,
        .norm_squared = norm_squared,
        .distance_squared = distance_squared,
        .energies = energies,
        .can_pack = can_pack,
        .pack = pack,
        .written = written,
        .finish = finish,
    };
}
