#include "worker/files/model_feed.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "worker/files/elements.h"

enum tw_dtype tw_model_feed_dtype(const struct tw_model_feed *feed, uint32_t i,
                                  enum tw_dtype dtype) {
    if ((int)dtype != TW_FEED_KEEP) return dtype;
    return feed->params != NULL ? TW_DTYPE_F32 : tw_model_source_dtype(feed->source, i);
}

enum tw_status tw_model_feed_read(const struct tw_model_feed *feed, uint32_t i, uint64_t first,
                                  uint64_t count, float *to, struct tw_error *err) {
    const struct tw_tensor *const tensor = &feed->layout->tensors[i];
    if (feed->is_interrupted != NULL && feed->is_interrupted()) {
        return tw_fail(err, TW_AGAIN, "interrupted; nothing was written");
    }
    if (feed->progress != NULL) feed->progress(feed->user, count);
    if (feed->params == NULL) return tw_model_source_read(feed->source, i, first, count, to, err);
    TW_ASSERT(first + count <= (uint64_t)tensor->rows * tensor->cols);
    memcpy(to, feed->params + tensor->offset + first, count * sizeof(*to));
    return TW_OK;
}

enum tw_status tw_model_feed_store(const struct tw_model_feed *feed, uint32_t i,
                                   enum tw_dtype dtype, float *values, uint64_t count,
                                   struct tw_error *err) {
    const char *const name = feed->layout->tensors[i].name;
    for (uint64_t k = 0; k < count; k++) {
        if (!isfinite(values[k])) {
            return tw_fail(err, TW_CORRUPT, "%s holds numbers that are not finite", name);
        }
    }
    if (tw_elements_store(dtype, (uint8_t *)values, values, count) == count) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "%s holds numbers too large for %s: choose another --dtype (f32 takes all)",
                   name, tw_dtype_name(dtype));
}
