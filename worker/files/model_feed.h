/* model_feed.h - the numbers of a model on their way into a file: from memory or from other files.
 */
#ifndef TW_WORKER_FILES_MODEL_FEED_H
#define TW_WORKER_FILES_MODEL_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/safetensors.h"
#include "worker/files/model_source.h"

struct tw_model_feed {
    const struct tw_run *run;                     /* borrowed, as is all below */
    bool says_run;                                /* one file of it carries the manifest of `run` */
    const struct tw_layout *layout;               /* of run */
    const float *params;                          /* (layout->elements); NULL: read `source` */
    const struct tw_model_source *source;         /* bound to `layout` */
    bool (*is_interrupted)(void);                 /* NULL: never; when it says yes, reading fails */
    void (*progress)(void *user, uint64_t count); /* NULL: none; so many more elements were read */
    void *user;
};

enum { TW_FEED_KEEP = TW_DTYPES_COUNT }; /* a dtype to write: as the source has it */

/* The type to write tensor `i` as when `dtype` was asked for: that, or what the source has (float32
 * from memory). */
enum tw_dtype tw_model_feed_dtype(const struct tw_model_feed *feed, uint32_t i,
                                  enum tw_dtype dtype);

/* Elements [first, first + count) of tensor `i`. Errors of tw_model_source_read; TW_AGAIN when
 * interrupted. */
enum tw_status tw_model_feed_read(const struct tw_model_feed *feed, uint32_t i, uint64_t first,
                                  uint64_t count, float *to, struct tw_error *err);

/* Stores values[count] as `dtype` in place. TW_CONFIG names the tensor when a number does not fit
 * (float16 ends at 65504), TW_CORRUPT when it was not finite before. */
enum tw_status tw_model_feed_store(const struct tw_model_feed *feed, uint32_t i,
                                   enum tw_dtype dtype, float *values, uint64_t count,
                                   struct tw_error *err);

#endif
