#include "tests/worker/files/load_weights.h"

#include <string.h>

enum tw_status load_weights(const char *path, const struct tw_layout *layout, const char *part,
                            float *params, struct tw_error *err) {
    struct tw_model_source source;
    TW_TRY(tw_model_source_open(&source, path, err));
    memset(params, 0, layout->elements * sizeof(*params));
    enum tw_status status = tw_model_source_bind(&source, layout, part, err);
    for (uint32_t i = 0; status == TW_OK && i < layout->tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout->tensors[i];
        status = tw_model_source_read(&source, i, 0, (uint64_t)tensor->rows * tensor->cols,
                                      params + tensor->offset, err);
    }
    tw_model_source_close(&source);
    return status;
}
