/* eval.c - held-out loss, one window at a time. */
#include "worker/eval.h"

#include <stdlib.h>

enum { WINDOWS_AT_A_TIME = 8 };

enum tw_status tw_eval_heldout(struct tw_engine *engine, const struct tw_data *data,
                               const float *params, uint64_t windows_count, double *loss_out,
                               struct tw_error *err) {
    const uint64_t there = tw_data_heldout_count(data);
    const uint64_t count = windows_count == 0 || windows_count > there ? there : windows_count;
    if (count == 0) {
        return tw_fail(err, TW_DATA, "nothing is held out: data.heldout of this run is zero");
    }
    const size_t window = (size_t)data->context + 1;
    uint32_t *tokens = malloc(WINDOWS_AT_A_TIME * window * sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for held-out windows");
    enum tw_status status = TW_OK;
    double sum = 0.0;
    for (uint64_t i = 0; i < count && status == TW_OK;) {
        uint32_t taken = 0;
        for (; taken < WINDOWS_AT_A_TIME && i < count; taken++, i++) {
            tw_data_heldout(data, i, count, tokens + taken * window);
        }
        double loss = 0.0;
        status = tw_engine_loss(engine, params, tokens, taken, &loss, err);
        sum += loss * (double)taken;
    }
    free(tokens);
    if (status == TW_OK) *loss_out = sum / (double)count;
    return status;
}
