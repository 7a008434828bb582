/* fuzz_hf_config.c - arbitrary bytes as config.json: refused with a sentence, or a model that our
 * own writer can write and that reads back the same. */
#include <string.h>

#include "base/assert.h"
#include "proto/run/model_config.h"
#include "worker/files/hf_config.h"
#include "worker/files/model_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_run run, back, before;
    struct tw_error err = {TW_OK, ""};
    char text[TW_MODEL_CONFIG_BYTES];
    size_t text_size;
    tw_run_defaults(&run);
    before = run;
    if (tw_hf_config_parse(&run, (const char *)data, size, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != 0);
        TW_ASSERT(memcmp(&run, &before, sizeof(run)) == 0);
        return 0;
    }
    if (tw_run_check(&run, &err) != TW_OK) return 0;
    if (tw_model_config_write(&run, TW_DTYPE_F32, NULL, text, &text_size, &err) != TW_OK) return 0;
    back = before;
    TW_ASSERT(tw_hf_config_parse(&back, text, text_size, &err) == TW_OK);
    TW_ASSERT(tw_model_same(&back, &run, &err) == TW_OK);
    TW_ASSERT(back.model.context == run.model.context);
    return 0;
}
