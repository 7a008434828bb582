/* vectors.h - arithmetic on arrays that lie where a learner's parameters lie: in the host's memory,
 * or in a device's. What was sent and is not yet merged (inflight.h) and the parameters themselves
 * are changed through this table alone, so that of a sync only packed bytes and new anchors cross
 * the bus.
 *
 * Implemented twice: vectors_host.c over kernels/, and gpu_vectors.c over kernels/cuda. Arithmetic
 * on elements has the bits of the host's, every rounding kept; sums are in the order of the
 * implementation.
 *
 * A pointer marked `live` is of memory where the parameters lie: nobody else reads or writes
 * through it, but [begin, end) of an array is array + begin. One marked `host` is of the host's
 * memory. Arrays do not overlap unless said; n of 0 is fine.
 *
 * On a device functions put their work behind what is in the compute stream, before the next step,
 * and return; those that return numbers or a status wait for it. A device that failed does nothing
 * any more; `finish` says so, and so does everything that waits (numbers are NaN then). Nothing may
 * be published, nor an answer sent, of what was not waited for.
 *
 * For one thread: the one that steps. */
#ifndef TW_WORKER_ENGINE_VECTORS_H
#define TW_WORKER_ENGINE_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compress/codec.h"
#include "kernels/momentum_lead.h"
#include "kernels/outer.h"
#include "kernels/outlier.h"

/* What there is to send of a fragment, in this order, each operation rounded by itself:
 *
 *     v = phi - theta;  v = v + ahead;  given = v;  v = v + beta residual */
struct tw_vectors_delta {
    float *v;                 /* (n), live: out */
    float *given;             /* (n), live: out; NULL: not wanted */
    const float *phi, *theta; /* (n), live */
    const float *ahead;       /* (n), live; NULL: none */
    const float *residual;    /* (n), live; NULL: none */
    float beta;               /* of the residual */
    size_t n;
};

/* v encoded where it lies. With D(out) what the bytes decode to:
 *
 *     decoded = D(out);  lost = v - D(out) */
struct tw_vectors_pack {
    const struct tw_codec *codec; /* can_pack() says that it can */
    const float *v;               /* (n), live */
    size_t n;
    uint8_t *out;   /* host: codec->bound(n) bytes are written, which is what its rate comes to */
    float *decoded; /* (n), live: out; NULL: not wanted */
    float *lost;    /* (n), live: out; NULL: not wanted */
};

/* kernels/outer.h */
struct tw_vectors_outer {
    float *anchor, *momentum; /* (n), live: in/out */
    const float *delta;       /* (n), live */
    size_t n;
    struct tw_outer rule;
    bool is_heavyball; /* else Nesterov's */
};

struct tw_vectors {
    void *self;
    bool is_host;         /* live memory is the host's: copies in and out are not needed */
    float *theta, *m, *v; /* (elements), live, layout.h order: parameters and moments; m and v may
                             be NULL where nothing leads the inner optimizer */

    /* n zeros, live, "for `what`". TW_NOMEM names it and the size. free: NULL is fine. */
    enum tw_status (*alloc)(void *self, float **x, size_t n, const char *what,
                            struct tw_error *err);
    void (*free)(void *self, float *x);

    /* x (n), live = from (n), host, which stays as it is until finish. */
    void (*copy_in)(void *self, float *x, const float *from, size_t n);
    /* to (n), host = x (n), live. Waits. TW_DEVICE. */
    enum tw_status (*copy_out)(void *self, float *to, const float *x, size_t n,
                               struct tw_error *err);

    /* ---- elements: everything live ---- */

    void (*copy)(void *self, float *x, const float *from, size_t n);
    void (*zero)(void *self, float *x, size_t n);
    void (*scale)(void *self, float *x, float factor, size_t n);
    /* x = x + weight y, both roundings kept: tw_merge_add() of kernels/merge.h */
    void (*add)(void *self, float *x, const float *y, float weight, size_t n);
    void (*delta)(void *self, const struct tw_vectors_delta *delta);
    /* kernels/mix.h */
    void (*mix)(void *self, float *theta, const float *anchor_new, float alpha, size_t n);
    void (*shift)(void *self, float *theta, const float *anchor_new, const float *anchor_old,
                  size_t n);
    void (*outer)(void *self, const struct tw_vectors_outer *step);
    /* kernels/momentum_lead.h; its norms are sums, so that on a device m is about the host's. */
    void (*lead)(void *self, float *m, const float *v, const float *delta, size_t n,
                 const struct tw_momentum_lead *cfg);

    /* ---- sums: these wait. NaN or infinite where an element is not finite ---- */

    double (*norm_squared)(void *self, const float *x, size_t n);
    double (*distance_squared)(void *self, const float *a, const float *b, size_t n);
    /* energies (TW_OUTLIER_BLOCKS), host: of the blocks of a whole fragment x (n), as
     * tw_outlier_add() of kernels/outlier.h has them. */
    void (*energies)(void *self, double *energies, const float *x, size_t n);

    /* ---- bytes ---- */

    /* Whether pack() has this codec. The host's has none: what it packs it has at hand. */
    bool (*can_pack)(void *self, const struct tw_codec *codec);
    /* Waits for the bytes. TW_CORRUPT as codec->encode: out, decoded and lost are undefined then.
     * TW_DEVICE. */
    enum tw_status (*pack)(void *self, const struct tw_vectors_pack *pack, struct tw_error *err);

    /* ---- order ---- */

    /* theta [begin, begin + n) was written: what is made of it is made anew (working weights). */
    void (*written)(void *self, size_t begin, size_t n);
    /* Everything is done. TW_DEVICE: the device failed, now or before, and why. */
    enum tw_status (*finish)(void *self, struct tw_error *err);
};

/* The host's: parameters are these arrays. Cannot fail but by alloc. */
struct tw_vectors tw_vectors_host(float *theta, float *m, float *v);

#endif
