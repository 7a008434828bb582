/* run_optimizer.c - chooses between AdamW and Muon by the arithmetic that Muon adds to a step. */
#include "proto/run/layout.h"
#include "proto/run/run.h"

/* Multiplications of the five Newton-Schulz steps of a matrix (kernels/muon.h): a Gram matrix of
 * its shorter side, its square, and a product with the matrix. */
static double of_matrix(const struct tw_tensor *tensor) {
    enum { STEPS = 5 };
    const double rows = tensor->rows, cols = tensor->cols;
    const double side = rows < cols ? rows : cols, deep = rows < cols ? cols : rows;
    return STEPS * (2 * side * side * deep + side * side * side);
}

double tw_run_muon_cost(const struct tw_run *run, const struct tw_layout *layout) {
    const double tokens = (double)run->train.batch * run->model.context;
    const double attention =
        2.0 * run->model.layers * tw_run_shape(run).q_width * run->model.context;
    double muon = 0;
    if (run->model.family == TW_FAMILY_TENSORS) return 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++)
        if (layout->tensors[i].is_hidden) muon += of_matrix(&layout->tensors[i]);
    /* forward once, backward twice */
    return muon / (3 * tokens * ((double)layout->params + attention));
}

bool tw_run_fit_optimizer(struct tw_run *run, const struct tw_layout *layout) {
    const double most = 0.75;
    run->train.optimizer = TW_OPTIMIZER_ADAMW;
    if (run->model.family == TW_FAMILY_TENSORS || tw_run_muon_cost(run, layout) > most)
        return false;
    run->train.optimizer = TW_OPTIMIZER_MUON;
    return true;
}
