/* Training data of the run, for trainers that have none (thinwire/worker.h). */
#include <string.h>

#include "worker/lib/worker_inner.h"

/* Opens the run's data, or looks for shards that have arrived. */
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

enum thinwire_status thinwire_worker_heldout(struct thinwire_worker *worker, uint64_t index,
                                             uint64_t count, uint32_t *tokens,
                                             struct thinwire_error *error) {
    struct tw_error reason = {.status = TW_OK};
    enum tw_status status = data_ready(worker, &reason);
    if (status == TW_OK && tw_data_heldout_count(&worker->data) == 0)
        status = tw_fail(&reason, TW_AGAIN, "no held-out shard has arrived yet");
    if (status == TW_OK) {
        const uint64_t all = tw_data_heldout_count(&worker->data);
        const uint64_t wanted = count == 0 || count > all ? all : count;
        if (index >= wanted) return tw_worker_refuse(error, "there are fewer held-out windows");
        status = tw_data_heldout(&worker->data, index, wanted, tokens, &reason);
    }
    return status == TW_OK ? THINWIRE_OK : tw_worker_tell(error, status, &reason);
}
