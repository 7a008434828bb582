#include "worker/files/weights.h"

#include "worker/files/hf_write.h"

enum tw_status tw_weights_save(const char *path, const struct tw_layout *layout,
                               const struct tw_run *run, const float *params,
                               struct tw_error *err) {
    const struct tw_model_feed feed = {
        .run = run, .layout = layout, .params = params, .says_run = run != NULL};
    return tw_hf_write_file(path, &feed, TW_DTYPE_F32, NULL, err);
}
