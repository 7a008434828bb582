/* embedding.c - token and position embeddings: gathers rows forward, scatters them backward. */
#include "kernels/cpu/vec.h"

static void gather_row(tw_act *x, const float *token, const float *position, size_t width) {
    size_t i = 0;
    for (; i + TW_VEC <= width; i += TW_VEC) {
        tw_vec value = tw_vec_load(token + i);
        if (position != NULL) value += tw_vec_load(position + i);
        tw_act_store(x + i, value);
    }
    for (; i < width; i++) {
        tw_act_put(x + i, token[i] + (position != NULL ? position[i] : 0.0f));
    }
}

static void scatter_row(float *to, const tw_act *dx, size_t n) {
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_vec_store(to + i, tw_vec_load(to + i) + tw_act_load(dx + i));
    }
    for (; i < n; i++) to[i] += tw_act_get(dx + i);
}

void TW_CPU(embedding)(void *x, const float *wte, const float *wpe, const struct tw_embedding *in) {
    const size_t width = in->width;
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const float *position = wpe == NULL ? NULL : wpe + (in->position_first + t) * width;
        gather_row((tw_act *)x + r * width, wte + in->tokens[b * in->token_stride + t] * width,
                   position, width);
    }
}

void TW_CPU(embedding_backward)(float *dwte, float *dwpe, const void *dx,
                                const struct tw_embedding *in) {
    const size_t width = in->width, first = in->column_first;
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const tw_act *from = (const tw_act *)dx + r * width + first;
        scatter_row(dwte + in->tokens[b * in->token_stride + t] * width + first, from, in->columns);
        if (dwpe == NULL) continue;
        scatter_row(dwpe + (in->position_first + t) * width + first, from, in->columns);
    }
}
