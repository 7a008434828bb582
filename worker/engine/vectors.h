/* vectors.h - arithmetic on arrays that lie next to a learner's parameters, in host or device
 * memory. Merging changes parameters and in-flight outer gradients (inflight.h) only through the
 * functions of struct tw_vectors. On a device, a merge thus moves only packed bytes and new anchors
 * over the bus.
 *
 * Implemented twice: vectors_host.c over kernels/, and gpu_vectors.c over kernels/cuda. Elementwise
 * operations give the same bits in both, because they round alike. The order of sums depends on the
 * implementation.
 *
 * A pointer marked `live` is in the parameters' memory. Callers must not read or write through it,
 * but may form array + begin for the range [begin, end). A pointer marked `host` is host memory.
 * Arrays do not overlap unless stated. n = 0 is allowed.
 *
 * On a device, functions queue their work on the compute stream, before the next step, and return.
 * Functions that return numbers or a status wait for the stream. After a device fault, functions do
 * nothing more: `finish` and all functions that wait report the fault, and numbers are NaN. Publish
 * or send only results of work that was waited for.
 *
 * Used only by the thread that runs the steps. */
#ifndef TW_WORKER_ENGINE_VECTORS_H
#define TW_WORKER_ENGINE_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compress/codec.h"
#include "kernels/outer.h"
#include "kernels/outlier.h"

/* Inputs and outputs of `delta`, which computes the outer gradient to send for a fragment. Each
 * operation is rounded separately, in this order:
 *
 *     v = phi - theta;  v = v + ahead;  given = v;  v = v + beta * residual */
struct tw_vectors_delta {
    float *v;                 /* (n), live: out */
    float *given;             /* (n), live: out, or NULL */
    const float *phi, *theta; /* (n), live */
    const float *ahead;       /* (n), live, or NULL */
    const float *residual;    /* (n), live, or NULL */
    float beta;               /* weight of the residual */
    size_t n;
};

/* Inputs and outputs of `pack`, which encodes v. D(out) is the decoding of the bytes:
 *
 *     decoded = D(out);  lost = v - D(out) */
struct tw_vectors_pack {
    const struct tw_codec *codec; /* a codec for which can_pack() is true */
    const float *v;               /* (n), live */
    size_t n;
    uint8_t *out;   /* host: receives exactly codec->bound(n) bytes */
    float *decoded; /* (n), live: out, or NULL */
    float *lost;    /* (n), live: out, or NULL */
};

/* kernels/outer.h */
struct tw_vectors_outer {
    float *anchor, *momentum; /* (n), live: in/out */
    const float *delta;       /* (n), live */
    size_t n;
    struct tw_outer rule;
    bool is_heavyball; /* false: Nesterov */
};

struct tw_vectors {
    void *self;
    bool is_host;         /* live memory is host memory, so no copies in or out are needed */
    float *theta, *m, *v; /* (elements), live, layout.h order: parameters and moments. m and v may
                             be NULL if `lead` is not used */

    /* Allocates n live zeros. On failure, TW_NOMEM has the message "no memory for `what`" with the
     * size. free accepts NULL. */
    enum tw_status (*alloc)(void *self, float **x, size_t n, const char *what,
                            struct tw_error *err);
    void (*free)(void *self, float *x);
    /* Allocates n zeros of host memory for arrays that are copied in or out every round. For a
     * device the memory is page-locked, so that a copy runs at the speed of the bus. */
    enum tw_status (*host_alloc)(void *self, float **x, size_t n, const char *what,
                                 struct tw_error *err);
    void (*host_free)(void *self, float *x);
    /* Page-locks `bytes` of the caller's memory from `host`, a page boundary, until unpin. Returns
     * false if the system refuses, the host has too little memory, or live memory is host memory.
     * Copies are then only slower. */
    bool (*pin)(void *self, void *host, uint64_t bytes);
    void (*unpin)(void *self, void *host); /* undoes a pin that returned true */

    /* Copies from (n), host, to x (n), live. `from` must not change until `finish` returns. */
    void (*copy_in)(void *self, float *x, const float *from, size_t n);
    /* Copies x (n), live, to `to` (n), host, and waits for it. Errors: TW_DEVICE. */
    enum tw_status (*copy_out)(void *self, float *to, const float *x, size_t n,
                               struct tw_error *err);

    /* ---- elementwise: all arrays live
     * ------------------------------------------------------------ */

    void (*copy)(void *self, float *x, const float *from, size_t n);
    void (*zero)(void *self, float *x, size_t n);
    void (*scale)(void *self, float *x, float factor, size_t n);
    /* x = x + weight * y, product and sum each rounded, as tw_merge_add() of kernels/merge.h does
     */
    void (*add)(void *self, float *x, const float *y, float weight, size_t n);
    void (*delta)(void *self, const struct tw_vectors_delta *delta);
    /* kernels/outer.h */
    void (*mix)(void *self, float *theta, const float *anchor_new, float alpha, size_t n);
    void (*shift)(void *self, float *theta, const float *anchor_new, const float *anchor_old,
                  size_t n);
    void (*outer)(void *self, const struct tw_vectors_outer *step);
    void (*regain)(void *self, const struct tw_regain *r); /* kernels/outer.h */
    /* Applies kernels/outer.h. Its norms are sums, so m on a device is only close to the
     * host's m. */
    void (*lead)(void *self, float *m, const float *v, const float *delta, size_t n,
                 const struct tw_momentum_lead *cfg);

    /* ---- sums: these wait; the result is NaN or infinite if an element is not finite
     * ------------- */

    double (*norm_squared)(void *self, const float *x, size_t n);
    double (*distance_squared)(void *self, const float *a, const float *b, size_t n);
    /* Computes the block energies of a whole fragment x (n), as tw_outlier_add() of
     * kernels/outlier.h does. energies (TW_OUTLIER_BLOCKS) is host memory. */
    void (*energies)(void *self, double *energies, const float *x, size_t n);

    /* ---- bytes
     * ----------------------------------------------------------------------------------- */

    /* Returns whether pack() supports this codec. Always false on the host, where the caller
     * encodes directly. */
    bool (*can_pack)(void *self, const struct tw_codec *codec);
    /* Packs v and waits for the bytes. Returns TW_CORRUPT where codec->encode does: out, decoded
     * and lost are then undefined. Returns TW_DEVICE if the device failed. */
    enum tw_status (*pack)(void *self, const struct tw_vectors_pack *pack, struct tw_error *err);

    /* ---- order
     * ----------------------------------------------------------------------------------- */

    /* Must follow a write to theta [begin, begin + n): weights derived from it are computed again.
     */
    void (*written)(void *self, size_t begin, size_t n);
    /* Waits until all queued work is done. Returns TW_DEVICE, with the reason, if the device
     * failed, now or earlier. */
    enum tw_status (*finish)(void *self, struct tw_error *err);
};

/* Returns the host's table of functions for these parameter arrays. Only alloc can fail. */
struct tw_vectors tw_vectors_host(float *theta, float *m, float *v);

#endif
