/* model_feed.h - the parameters to write to a file, read from memory or from other files. */
#ifndef TW_WORKER_FILES_MODEL_FEED_H
#define TW_WORKER_FILES_MODEL_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/safetensors.h"
#include "worker/files/model_source.h"

struct tw_model_feed {
    const struct tw_run *run;       /* borrowed, like all pointers below */
    bool says_run;                  /* whether the manifest of `run` is written into the
                                       file's metadata */
    const struct tw_layout *layout; /* layout of run */
    const float *params;            /* (layout->elements) parameters; NULL: read from `source` */
    const struct tw_model_source *source; /* bound to `layout` */
    bool (*is_interrupted)(void);         /* reading fails once this returns true; NULL: never */
    /* called with the number of elements just read; NULL: none */
    void (*progress)(void *user, uint64_t count);
    void *user;
};

/* dtype value that keeps each tensor's type in the source */
enum { TW_FEED_KEEP = TW_DTYPES_COUNT };

/* The type in which tensor `i` is written: `dtype` or, for TW_FEED_KEEP, the source's type (float32
 * from memory). */
enum tw_dtype tw_model_feed_dtype(const struct tw_model_feed *feed, uint32_t i,
                                  enum tw_dtype dtype);

/* Reads elements [first, first + count) of tensor `i`. Fails as tw_model_source_read does, or with
 * TW_AGAIN if interrupted. */
enum tw_status tw_model_feed_read(const struct tw_model_feed *feed, uint32_t i, uint64_t first,
                                  uint64_t count, float *to, struct tw_error *err);

/* Converts values[count] to `dtype` in place. Errors name the tensor. Fails with TW_CONFIG if a
 * number does not fit (the largest float16 is 65504), or with TW_CORRUPT if a number was not finite
 * before. */
enum tw_status tw_model_feed_store(const struct tw_model_feed *feed, uint32_t i,
                                   enum tw_dtype dtype, float *values, uint64_t count,
                                   struct tw_error *err);

#endif
