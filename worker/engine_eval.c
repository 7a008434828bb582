/* thinwire-engine eval: held-out loss of exported weights. */
#include <math.h>
#include <stdio.h>

#include "worker/engine_verb.h"
#include "worker/eval.h"
#include "worker/weights.h"

enum tw_exit engine_eval(struct engine_bench *bench) {
    const struct engine_options *const options = bench->options;
    struct tw_error err;
    double loss = NAN;
    if (tw_weights_load(options->file, &bench->layout, options->part, bench->engine->theta, &err) !=
            TW_OK ||
        tw_eval_heldout(bench->engine, &bench->data, bench->engine->theta, options->windows, &loss,
                        &err) != TW_OK) {
        return engine_fail(&err);
    }
    const uint64_t all = tw_data_heldout_count(&bench->data);
    const uint64_t windows =
        options->windows == 0 || options->windows > all ? all : options->windows;
    const unsigned long long tokens = (unsigned long long)windows * bench->run.model.context;
    if (options->json) {
        (void)printf("{\"validation_nats\": %.6f, \"tokens\": %llu, \"part\": \"%s\"}\n", loss,
                     tokens, options->part);
    } else {
        (void)printf("%.4f nats/token (%.3f bits, perplexity %.2f) on %llu held-out tokens\n", loss,
                     loss / log(2), exp(loss), tokens);
    }
    return TW_EXIT_OK;
}
