/* rate_fit.h - encodes a part within a given number of bytes (sync.codec = auto). The part is split
 * into pieces, each with its own codec, at tensor ends. */
#ifndef TW_WORKER_MERGE_RATE_FIT_H
#define TW_WORKER_MERGE_RATE_FIT_H

#include "base/status.h"
#include "compress/codec_auto.h"
#include "proto/run/run.h"

/* Tensor ends and working memory for a run with codec auto. */
struct tw_rate_fit {
    uint32_t ends_count;
    uint64_t ends[TW_TENSORS_MAX]; /* ends of the tensors, in elements of the model, ascending */
    uint64_t inside[TW_TENSORS_MAX];
    struct tw_auto work;
};

/* Allocates *fit on the heap. Errors: TW_NOMEM, whose message names the size; TW_CONFIG and
 * TW_LIMIT, from tw_layout_init. */
enum tw_status tw_rate_fit_create(struct tw_rate_fit **fit, const struct tw_run *run,
                                  struct tw_error *err);
void tw_rate_fit_destroy(struct tw_rate_fit *fit);

/* The part to encode, elements [begin, begin + n) of the model, and the output buffer. */
struct tw_rate_fit_part {
    const float *x;
    uint64_t begin;
    size_t n;
    size_t bytes_max; /* 0: no target */
    uint8_t *out;
    size_t capacity;
};

/* As tw_auto_encode. */
enum tw_status tw_rate_fit_encode(struct tw_rate_fit *fit, const struct tw_rate_fit_part *part,
                                  size_t *bytes_out);

#endif
