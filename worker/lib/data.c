/* The functions of thinwire/worker.h that give a trainer the run's data. */
#include <string.h>

#include "worker/lib/worker_inner.h"

/* Opens the run's data or, if they are open, looks for shards that have arrived. */
static enum tw_status data_ready(struct thinwire_worker *worker, struct tw_error *err) {
    if (worker->data.inner == NULL) {
        if (worker->view.data_path[0] == '\0')
            return tw_fail(err, TW_DATA, "the run names no data: the trainer brings its own");
        return tw_data_open(&worker->data, worker->view.data_path, &worker->view.settings, err);
    }
    tw_data_refresh(&worker->data);
    return TW_OK;
}

enum thinwire_status thinwire_worker_draw(struct thinwire_worker *worker, uint32_t *tokens,
                                          struct thinwire_error *error) {
    struct tw_error reason = {.status = TW_OK};
    if (!worker->may_step)
        return tw_worker_refuse(error, "a batch is drawn for a step that was asked for");
    enum tw_status status = data_ready(worker, &reason);
    if (status == TW_OK) {
        status = tw_data_draw(&worker->data, worker->view.run.data_seed, &worker->cursor,
                              (uint32_t)worker->view.run.batch, tokens, &reason);
        worker->has_drawn |= status == TW_OK;
    }
    return status == TW_OK ? THINWIRE_OK : tw_worker_tell(error, status, &reason);
}

uint64_t thinwire_worker_heldout_count(struct thinwire_worker *worker,
                                       struct thinwire_error *error) {
    struct tw_error reason = {.status = TW_OK};
    const enum tw_status status = data_ready(worker, &reason);
    (void)tw_worker_tell(error, status, &reason);
    return status == TW_OK ? tw_data_heldout_count(&worker->data) : 0;
}

enum thinwire_status thinwire_worker_heldout(struct thinwire_worker *worker, uint64_t index,
                                             uint64_t count, uint32_t *tokens,
                                             struct thinwire_error *error) {
    struct tw_error reason = {.status = TW_OK};
    enum tw_status status = data_ready(worker, &reason);
    if (status == TW_OK && (index >= count || count > tw_data_heldout_count(&worker->data)))
        return tw_worker_refuse(error, "there is no held-out window of this number");
    if (status == TW_OK) status = tw_data_heldout(&worker->data, index, count, tokens, &reason);
    return status == TW_OK ? THINWIRE_OK : tw_worker_tell(error, status, &reason);
}
