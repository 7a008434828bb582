/* model.c - forward and backward passes. The arithmetic is in kernels/; here is its order. */
#include "worker/model.h"

#include <string.h>

#include "base/assert.h"
#include "worker/team.h"

/* What every step of a pass needs. */
struct pass {
    struct tw_model *model;
    const struct tw_ops *ops;
    const float *params;
    float *gradient; /* NULL in a forward pass */
    const struct tw_model_batch *batch;
    uint32_t rows;
};

static struct pass pass_of(struct tw_model *model, const float *params, float *gradient,
                           const struct tw_model_batch *batch) {
    TW_ASSERT(batch->sequences > 0 && batch->sequences <= model->sequences_max);
    TW_ASSERT(batch->context > 0 && batch->context <= model->context);
    return (struct pass){.model = model,
                         .ops = model->ops,
                         .params = params,
                         .gradient = gradient,
                         .batch = batch,
                         .rows = batch->sequences * batch->context};
}

/* ---- work shared among threads: pieces of rows, or whole sequences ------------------------- */

/* One operation over all rows; which members it uses is the operation's own matter. */
struct job {
    const struct pass *pass;
    float *y;
    const float *x, *residual;
    const struct tw_model_pair *pair;
    const struct tw_layernorm *ln;
    const struct tw_model_activations *activations;
    size_t width; /* of a row */
    uint32_t rows;
    const uint32_t *targets;
    float scale;
    double *losses; /* one per piece, so that their sum has one order */
};

static uint32_t pieces_of(uint32_t rows) {
    return (rows + TW_MODEL_PIECE_ROWS - 1) / TW_MODEL_PIECE_ROWS;
}

static void run_rows(tw_team_fn *work, struct job *job) {
    tw_team_run(job->pass->model->threads, pieces_of(job->rows), work, job);
}

static uint32_t rows_of_piece(const struct job *job, uint32_t piece) {
    const uint32_t left = job->rows - piece * TW_MODEL_PIECE_ROWS;
    return left < TW_MODEL_PIECE_ROWS ? left : TW_MODEL_PIECE_ROWS;
}

static void fill_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct job *job = context;
    const size_t at = (size_t)piece * TW_MODEL_PIECE_ROWS * job->width;
    (void)thread;
    job->pass->ops->bias_fill(job->y + at, job->residual == NULL ? NULL : job->residual + at,
                              job->pass->params + job->pair->bias, rows_of_piece(job, piece),
                              (uint32_t)job->width);
}

static void norm_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct job *job = context;
    const size_t first = (size_t)piece * TW_MODEL_PIECE_ROWS;
    struct tw_layernorm ln = *job->ln;
    (void)thread;
    ln.rows = rows_of_piece(job, piece);
    ln.x += first * ln.width;
    ln.mean += first;
    ln.rstd += first;
    job->pass->ops->layernorm(job->y + first * ln.width, job->pass->params + job->pair->bias, &ln);
}

static void gelu_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct job *job = context;
    const size_t at = (size_t)piece * TW_MODEL_PIECE_ROWS * job->width;
    (void)thread;
    job->pass->ops->gelu(job->y + at, job->x + at, rows_of_piece(job, piece) * job->width);
}

static void gelu_backward_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct job *job = context;
    const size_t at = (size_t)piece * TW_MODEL_PIECE_ROWS * job->width;
    (void)thread;
    job->pass->ops->gelu_backward(job->y + at, job->x + at, rows_of_piece(job, piece) * job->width);
}

static void cross_entropy_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct job *job = context;
    const size_t first = (size_t)piece * TW_MODEL_PIECE_ROWS;
    (void)thread;
    job->losses[piece] =
        job->pass->ops->cross_entropy(job->y + first * job->width, job->targets + first,
                                      rows_of_piece(job, piece), (uint32_t)job->width, job->scale);
}

static struct tw_attention attention_of(const struct pass *pass) {
    return (struct tw_attention){.sequences = 1,
                                 .context = pass->batch->context,
                                 .heads = pass->model->heads,
                                 .width = pass->model->width};
}

static void attention_piece(void *context, uint32_t sequence, uint32_t thread) {
    const struct job *job = context;
    const struct tw_attention shape = attention_of(job->pass);
    const struct tw_model *model = job->pass->model;
    const size_t row = (size_t)sequence * shape.context;
    job->pass->ops->attention(job->activations->attention + row * shape.width,
                              job->activations->lse + row * shape.heads,
                              job->activations->qkv + row * 3 * shape.width,
                              model->scratch + thread * model->scratch_count, &shape);
}

static void attention_backward_piece(void *context, uint32_t sequence, uint32_t thread) {
    const struct job *job = context;
    const struct tw_attention shape = attention_of(job->pass);
    const struct tw_model *model = job->pass->model;
    const struct tw_model_activations *a = job->activations;
    const size_t row = (size_t)sequence * shape.context, wide = row * shape.width;
    job->pass->ops->attention_backward(job->y + 3 * wide, job->x + wide, a->qkv + 3 * wide,
                                       a->attention + wide, a->lse + row * shape.heads,
                                       model->scratch + thread * model->scratch_count, &shape);
}

/* ---- parts of a layer ---------------------------------------------------------------------- */

/* y = x weight + bias + residual (or nothing) */
static void linear(const struct pass *pass, const struct tw_model_pair *pair, float *y,
                   const float *x, const float *residual) {
    struct job job = {.pass = pass,
                      .y = y,
                      .residual = residual,
                      .pair = pair,
                      .width = pair->out,
                      .rows = pass->rows};
    run_rows(fill_piece, &job);
    pass->model->multiply(y, x, pass->params + pair->weight,
                          (struct tw_matmul){.m = pass->rows,
                                             .k = pair->in,
                                             .n = pair->out,
                                             .form = TW_MATMUL_NN,
                                             .is_added = true});
}

/* dx = dy weight^T, and the gradients of weight and bias. */
static void linear_backward(const struct pass *pass, const struct tw_model_pair *pair, float *dx,
                            const float *x, const float *dy) {
    pass->ops->bias_backward(pass->gradient + pair->bias, dy, pass->rows, pair->out);
    pass->model->multiply(pass->gradient + pair->weight, x, dy,
                          (struct tw_matmul){.m = pair->in,
                                             .k = pass->rows,
                                             .n = pair->out,
                                             .form = TW_MATMUL_TN,
                                             .is_added = true});
    pass->model->multiply(
        dx, dy, pass->params + pair->weight,
        (struct tw_matmul){.m = pass->rows, .k = pair->out, .n = pair->in, .form = TW_MATMUL_NT});
}

static struct tw_layernorm norm_of(const struct pass *pass, const struct tw_model_pair *pair,
                                   const float *x, float *mean, float *rstd) {
    return (struct tw_layernorm){.rows = pass->rows,
                                 .width = pair->in,
                                 .x = x,
                                 .weight = pass->params + pair->weight,
                                 .mean = mean,
                                 .rstd = rstd};
}

static void norm(const struct pass *pass, const struct tw_model_pair *pair, float *y,
                 const struct tw_layernorm *ln) {
    struct job job = {.pass = pass, .y = y, .pair = pair, .ln = ln, .rows = pass->rows};
    run_rows(norm_piece, &job);
}

/* dx += through the norm, and the gradients of its weight and bias. */
static void norm_backward(const struct pass *pass, const struct tw_model_pair *pair,
                          const struct tw_layernorm *ln, float *dx, const float *dy) {
    pass->ops->layernorm_backward(dx, pass->gradient + pair->weight, pass->gradient + pair->bias,
                                  dy, ln);
}

static void layer_forward(const struct pass *pass, const struct tw_model_layer *layer,
                          const struct tw_model_activations *a, float *output) {
    const struct tw_layernorm norm1 = norm_of(pass, &layer->norm1, a->input, a->mean1, a->rstd1);
    struct job attention = {.pass = pass, .activations = a};
    norm(pass, &layer->norm1, a->norm1, &norm1);
    linear(pass, &layer->qkv, a->qkv, a->norm1, NULL);
    tw_team_run(pass->model->threads, pass->batch->sequences, attention_piece, &attention);
    linear(pass, &layer->proj, a->middle, a->attention, a->input);

    const struct tw_layernorm norm2 = norm_of(pass, &layer->norm2, a->middle, a->mean2, a->rstd2);
    struct job gelu = {
        .pass = pass, .y = a->gelu, .x = a->up, .width = layer->up.out, .rows = pass->rows};
    norm(pass, &layer->norm2, a->norm2, &norm2);
    linear(pass, &layer->up, a->up, a->norm2, NULL);
    run_rows(gelu_piece, &gelu);
    linear(pass, &layer->down, output, a->gelu, a->middle);
}

/* model->dx: gradient of the layer's output on entry, of its input on return. */
static void layer_backward(const struct pass *pass, const struct tw_model_layer *layer,
                           const struct tw_model_activations *a) {
    struct tw_model *model = pass->model;
    float *dx = model->dx, *dnorm = model->dnorm, *dwide = model->dwide;
    struct job gelu = {
        .pass = pass, .y = dwide, .x = a->up, .width = layer->up.out, .rows = pass->rows};
    struct job attention = {.pass = pass, .y = dwide, .x = dnorm, .activations = a};

    linear_backward(pass, &layer->down, dwide, a->gelu, dx);
    run_rows(gelu_backward_piece, &gelu);
    linear_backward(pass, &layer->up, dnorm, a->norm2, dwide);
    const struct tw_layernorm norm2 = norm_of(pass, &layer->norm2, a->middle, a->mean2, a->rstd2);
    norm_backward(pass, &layer->norm2, &norm2, dx, dnorm);

    linear_backward(pass, &layer->proj, dnorm, a->attention, dx);
    tw_team_run(model->threads, pass->batch->sequences, attention_backward_piece, &attention);
    linear_backward(pass, &layer->qkv, dnorm, a->norm1, dwide);
    const struct tw_layernorm norm1 = norm_of(pass, &layer->norm1, a->input, a->mean1, a->rstd1);
    norm_backward(pass, &layer->norm1, &norm1, dx, dnorm);
}

static struct tw_embedding embedding_of(const struct pass *pass) {
    return (struct tw_embedding){.sequences = pass->batch->sequences,
                                 .context = pass->batch->context,
                                 .width = pass->model->width,
                                 .tokens = pass->batch->tokens,
                                 .token_stride = pass->batch->stride};
}

void tw_model_forward(struct tw_model *model, const float *params,
                      const struct tw_model_batch *batch) {
    const struct pass pass = pass_of(model, params, NULL, batch);
    const struct tw_embedding embedding = embedding_of(&pass);
    const uint32_t last = model->layers_count - 1;
    tw_embedding(model->activations[0].input, params + model->wte, params + model->wpe, &embedding);
    for (uint32_t l = 0; l <= last; l++) {
        float *output = l == last ? model->output : model->activations[l + 1].input;
        layer_forward(&pass, &model->layers[l], &model->activations[l], output);
    }
    const struct tw_layernorm last_norm =
        norm_of(&pass, &model->norm_pair, model->output, model->mean, model->rstd);
    norm(&pass, &model->norm_pair, model->norm, &last_norm);
}

static void gather_targets(const struct pass *pass) {
    const struct tw_model_batch *batch = pass->batch;
    TW_ASSERT(batch->stride > batch->context);
    for (size_t b = 0; b < batch->sequences; b++) {
        memcpy(pass->model->targets + b * batch->context, batch->tokens + b * batch->stride + 1,
               batch->context * sizeof(uint32_t));
    }
}

/* The tied head, a few rows of logits at a time; with a gradient it leaves the gradient of the
 * final norm's output in model->dnorm. */
static double head(const struct pass *pass, float scale) {
    struct tw_model *model = pass->model;
    const float *wte = pass->params + model->wte;
    double loss = 0.0, losses[TW_MODEL_HEAD_ROWS_MAX / TW_MODEL_PIECE_ROWS];
    gather_targets(pass);
    for (uint32_t first = 0; first < pass->rows; first += model->head_rows) {
        const uint32_t left = pass->rows - first;
        const uint32_t rows = left < model->head_rows ? left : model->head_rows;
        const float *x = model->norm + (size_t)first * model->width;
        model->multiply(model->logits, x, wte,
                        (struct tw_matmul){
                            .m = rows, .k = model->width, .n = model->vocab, .form = TW_MATMUL_NT});
        struct job job = {.pass = pass,
                          .y = model->logits,
                          .width = model->vocab,
                          .rows = rows,
                          .targets = model->targets + first,
                          .scale = scale,
                          .losses = losses};
        run_rows(cross_entropy_piece, &job);
        for (uint32_t i = 0; i < pieces_of(rows); i++) loss += losses[i];
        if (pass->gradient == NULL) continue;
        model->multiply(pass->gradient + model->wte, model->logits, x,
                        (struct tw_matmul){.m = model->vocab,
                                           .k = rows,
                                           .n = model->width,
                                           .form = TW_MATMUL_TN,
                                           .is_added = true});
        model->multiply(model->dnorm + (size_t)first * model->width, model->logits, wte,
                        (struct tw_matmul){
                            .m = rows, .k = model->vocab, .n = model->width, .form = TW_MATMUL_NN});
    }
    return loss;
}

double tw_model_loss(struct tw_model *model, const float *params,
                     const struct tw_model_batch *batch) {
    const struct pass pass = pass_of(model, params, NULL, batch);
    return head(&pass, 1.0f);
}

double tw_model_backward(struct tw_model *model, const float *params, float *gradient,
                         const struct tw_model_batch *batch, float scale) {
    const struct pass pass = pass_of(model, params, gradient, batch);
    const struct tw_embedding embedding = embedding_of(&pass);
    const struct tw_layernorm last_norm =
        norm_of(&pass, &model->norm_pair, model->output, model->mean, model->rstd);
    const double loss = head(&pass, scale);
    memset(model->dx, 0, (size_t)pass.rows * model->width * sizeof(float));
    norm_backward(&pass, &model->norm_pair, &last_norm, model->dx, model->dnorm);
    for (uint32_t l = model->layers_count; l > 0; l--) {
        layer_backward(&pass, &model->layers[l - 1], &model->activations[l - 1]);
    }
    tw_embedding_backward(gradient + model->wte, gradient + model->wpe, model->dx, &embedding);
    return loss;
}

void tw_model_last_logits(struct tw_model *model, const float *params,
                          const struct tw_model_batch *batch, float *logits) {
    const float *x = model->norm + (size_t)(batch->context - 1) * model->width;
    model->multiply(
        logits, x, params + model->wte,
        (struct tw_matmul){.m = 1, .k = model->width, .n = model->vocab, .form = TW_MATMUL_NT});
}
