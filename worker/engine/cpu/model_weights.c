/* model_weights.c - sets the parameters in use and renews their packed copies on all threads. */
#include <string.h>

#include "worker/engine/cpu/model_pass.h"

/* Packs one panel of one weight, as a piece of the thread pool. */
static void pack_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct tw_model *model = context;
    struct tw_weight *const *weight = model->weights;
    for (uint32_t panels = tw_weight_panels(*weight); piece >= panels;
         panels = tw_weight_panels(*weight)) {
        piece -= panels;
        weight++;
    }
    tw_weight_pack(model->multipliers[thread], *weight, piece);
}

static void set_master(struct tw_model *model, struct tw_model_linear *linear,
                       const float *params) {
    struct tw_weight *const weights[2] = {&linear->forward, &linear->backward};
    for (unsigned i = 0; i < 2; i++) {
        weights[i]->master = params + linear->weight;
        if (weights[i]->packed != NULL) model->weights[model->weights_count++] = weights[i];
    }
}

void tw_model_use(struct tw_model *model, const float *params) {
    uint32_t pieces = 0;
    model->params = params;
    model->weights_count = 0;
    for (uint32_t l = 0; l < model->shape.layers; l++) {
        struct tw_model_layer *layer = &model->layers[l];
        set_master(model, &layer->qkv, params);
        set_master(model, &layer->out, params);
        set_master(model, &layer->up, params);
        set_master(model, &layer->down, params);
    }
    set_master(model, &model->head, params);
    for (uint32_t i = 0; i < model->weights_count; i++)
        pieces += tw_weight_panels(model->weights[i]);
    if (pieces > 0) tw_thread_pool_run(model->team, pieces, pack_piece, model);
}

void tw_model_clear(const struct tw_model *model, float *gradient) {
    const struct tw_layout *layout = model->config.layout;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &layout->tensors[i];
        if (tensor->is_hidden || tensor->offset == model->head.weight) continue;
        memset(gradient + tensor->offset, 0,
               (size_t)tensor->rows * tensor->cols * sizeof(*gradient));
    }
}
