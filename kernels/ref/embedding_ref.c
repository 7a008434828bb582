/* embedding_ref.c - token and position embeddings: gathers rows forward, scatters them backward. */
#include "kernels/ref/ref.h"

void TW_REF(embedding)(void *x, const float *wte, const float *wpe, const struct tw_embedding *in) {
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const size_t token = in->tokens[b * in->token_stride + t],
                     position = in->position_first + t;
        for (size_t i = 0; i < in->width; i++) {
            const double place = wpe == NULL ? 0.0 : (double)wpe[position * in->width + i];
            tw_ref_put(x, r * in->width + i, (double)wte[token * in->width + i] + place);
        }
    }
}

void TW_REF(embedding_backward)(float *dwte, float *dwpe, const void *dx,
                                const struct tw_embedding *in) {
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const size_t token = in->tokens[b * in->token_stride + t],
                     position = in->position_first + t;
        for (size_t i = in->column_first; i < in->column_first + in->columns; i++) {
            const float d = (float)tw_ref_get(dx, r * in->width + i);
            dwte[token * in->width + i] += d;
            if (dwpe != NULL) dwpe[position * in->width + i] += d;
        }
    }
}
