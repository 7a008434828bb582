/* embedding.c - token and position embeddings: gathers rows forward, scatters them backward. */
#include "kernels/ops.h"

void tw_embedding(float *x, const float *wte, const float *wpe, const struct tw_embedding *in) {
    const size_t width = in->width;
    for (size_t b = 0; b < in->sequences; b++) {
        for (size_t t = 0; t < in->context; t++) {
            const float *token = wte + in->tokens[b * in->token_stride + t] * width;
            const float *position = wpe + t * width;
            for (size_t i = 0; i < width; i++) x[i] = token[i] + position[i];
            x += width;
        }
    }
}

void tw_embedding_backward(float *dwte, float *dwpe, const float *dx,
                           const struct tw_embedding *in) {
    const size_t width = in->width;
    for (size_t b = 0; b < in->sequences; b++) {
        for (size_t t = 0; t < in->context; t++) {
            float *token = dwte + in->tokens[b * in->token_stride + t] * width;
            float *position = dwpe + t * width;
            for (size_t i = 0; i < width; i++) {
                token[i] += dx[i];
                position[i] += dx[i];
            }
            dx += width;
        }
    }
}
