/* batches.h - the batches that an engine trains on. While a device computes a step, the batch of
 * the next step is drawn, so that the device need not wait for it. Every step trains on the batch
 * that would be drawn when it begins. */
#ifndef TW_WORKER_LEARN_BATCHES_H
#define TW_WORKER_LEARN_BATCHES_H

#include "worker/data/data.h"
#include "worker/engine/engine.h"

struct tw_batches {
    struct tw_data *data; /* borrowed */
    uint64_t seed;
    uint32_t batch;   /* sequences of a batch */
    uint32_t *tokens; /* current batch, (batch, context + 1) */
    uint64_t reached; /* cursor after the current batch */
    struct {
        uint32_t *tokens; /* batch drawn for the next step, (batch, context + 1) */
        bool is_drawn;
        uint64_t begin, end; /* cursor before and after this batch */
        uint32_t files_here; /* number of the files that it was drawn from */
    } next;
};

/* Lets the engine look ahead at these batches (tw_engine_look_ahead): they must not be closed
 * before its last step. `data` may be refreshed, and held-out windows read, between steps. Errors:
 * TW_NOMEM. */
enum tw_status tw_batches_open(struct tw_batches *batches, struct tw_engine *engine,
                               struct tw_data *data, uint64_t seed, struct tw_error *err);
void tw_batches_close(struct tw_batches *batches); /* zeros are allowed */

/* Works like tw_data_draw, for the batch of the step that begins now. The result is
 * batches->tokens, which stays unchanged until the next call. */
enum tw_status tw_batches_draw(struct tw_batches *batches, uint64_t *cursor, struct tw_error *err);

#endif
