#include "worker/learn/batches.h"

#include <stdlib.h>
#include <string.h>

/* Draws the batch of the next step. An error is found again, and reported, when that step begins.
 */
static const uint32_t *draw_next(void *self) {
    struct tw_batches *batches = self;
    batches->next.begin = batches->next.end = batches->reached;
    batches->next.files_here = batches->data->files_here;
    batches->next.is_drawn = tw_data_draw(batches->data, batches->seed, &batches->next.end,
                                          batches->batch, batches->next.tokens, NULL) == TW_OK;
    return batches->next.is_drawn ? batches->next.tokens : NULL;
}

enum tw_status tw_batches_open(struct tw_batches *batches, struct tw_engine *engine,
                               struct tw_data *data, uint64_t seed, struct tw_error *err) {
    const size_t tokens = (size_t)engine->run->train.batch * (engine->run->model.context + 1);
    *batches = (struct tw_batches){.data = data, .seed = seed, .batch = engine->run->train.batch};
    batches->tokens = calloc(tokens, sizeof(*batches->tokens));
    batches->next.tokens = calloc(tokens, sizeof(*batches->next.tokens));
    if (batches->tokens == NULL || batches->next.tokens == NULL) {
        tw_batches_close(batches);
        return tw_fail(err, TW_NOMEM, "no memory for a batch of tokens");
    }
    tw_engine_look_ahead(engine, draw_next, batches);
    return TW_OK;
}

void tw_batches_close(struct tw_batches *batches) {
    free(batches->next.tokens);
    free(batches->tokens);
    memset(batches, 0, sizeof(*batches));
}

/* Makes the batch drawn ahead the current one, if it is the one at this cursor. After new files
 * have arrived, another batch may be there. */
static bool take_next(struct tw_batches *batches, uint64_t cursor) {
    const bool is_same = batches->next.is_drawn && batches->next.begin == cursor &&
                         batches->next.files_here == batches->data->files_here;
    batches->next.is_drawn = false;
    if (!is_same) return false;
    uint32_t *const tokens = batches->tokens;
    batches->tokens = batches->next.tokens;
    batches->next.tokens = tokens;
    return true;
}

enum tw_status tw_batches_draw(struct tw_batches *batches, uint64_t *cursor, struct tw_error *err) {
    if (take_next(batches, *cursor)) {
        *cursor = batches->next.end;
    } else {
        TW_TRY(tw_data_draw(batches->data, batches->seed, cursor, batches->batch, batches->tokens,
                            err));
    }
    batches->reached = *cursor;
    return TW_OK;
}
