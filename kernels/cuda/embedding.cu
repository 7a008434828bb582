/* embedding.cu - token and position embeddings: forward gathers rows, backward adds the rows of
 * each token in the order of the batch.
 *
 * Backward: the rows, sorted by token (`order`), are split into chunks. If all rows of a token are
 * in one chunk, their sum is added to the table directly. If a token's rows cross a border, each
 * chunk stores a partial sum (part), and a second kernel adds the parts. Part 0 of a chunk belongs
 * to the last token of the chunk before, part 1 to the first token of the next chunk. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

enum : unsigned { CHUNK = 32, COLUMNS = 128 };

static __host__ __device__ __forceinline__ uint32_t token_of(const struct tw_embedding &in,
                                                             size_t row) {
    const size_t at = in.row_first + row;
    return in.tokens[at / in.context * in.token_stride + at % in.context] & ~TW_TOKEN_UNSCORED;
}

template <typename T, int WIDTH>
static __global__ void gather(T *x, const float *wte, const float *wpe, struct tw_embedding in) {
    const size_t pieces = in.width / WIDTH, threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < in.rows * pieces;
         i += threads) {
        const size_t row = i / pieces, column = i % pieces * WIDTH;
        const size_t position = in.position_first + (in.row_first + row) % in.context;
        const float *token = wte + (size_t)token_of(in, row) * in.width + column;
        const float *place = wpe == NULL ? NULL : wpe + position * in.width + column;
        float v[WIDTH];
        for (int j = 0; j < WIDTH; j++) v[j] = token[j] + (place == NULL ? 0.0f : place[j]);
        if constexpr (WIDTH == 8) {
            tw_vec8_store(x + row * in.width + column, v);
        } else {
            tw_store_f32(x, row * in.width + column, v[0]);
        }
    }
}

template <typename T>
static void launch_gather(void *stream, T *x, const float *wte, const float *wpe,
                          const struct tw_embedding *in) {
    const size_t all = (size_t)in->rows * in->width;
    if (all == 0) return;
    if (tw_is_octets(x, in->width)) {
        TW_LAUNCH((gather<T, 8>), tw_stream_blocks(all / 8), TW_STREAM_THREADS, 0, stream, x, wte,
                  wpe, *in);
    } else {
        TW_LAUNCH((gather<T, 1>), tw_stream_blocks(all), TW_STREAM_THREADS, 0, stream, x, wte, wpe,
                  *in);
    }
}

extern "C" void tw_cuda_embedding(void *stream, enum tw_type type, void *x, const float *wte,
                                  const float *wpe, const struct tw_embedding *in) {
    TW_BY_TYPE(type, T, launch_gather(stream, (T *)x, wte, wpe, in));
}

/* ---- backward ---- */

extern "C" void tw_cuda_embedding_order(uint32_t *order, uint32_t *swap,
                                        const struct tw_embedding *in) {
    enum : uint32_t { DIGIT_BITS = 11, DIGITS = 1u << DIGIT_BITS };
    uint32_t *from = swap, *to = order;
    for (uint32_t r = 0; r < in->rows; r++) from[r] = r;
    for (unsigned shift = 0; shift < 33;
         shift += DIGIT_BITS) { /* an odd number of passes (three), so that the result ends in
                                   `order` */
        uint32_t begins[DIGITS + 1] = {0};
        for (uint32_t r = 0; r < in->rows; r++) begins[(token_of(*in, r) >> shift) % DIGITS + 1]++;
        for (uint32_t d = 0; d < DIGITS; d++) begins[d + 1] += begins[d];
        for (uint32_t i = 0; i < in->rows; i++)
            to[begins[(token_of(*in, from[i]) >> shift) % DIGITS]++] = from[i];
        uint32_t *const was = from;
        from = to, to = was;
    }
}

struct scatter {
    struct tw_embedding in;
    float *dwte, *parts; /* parts (chunks, 2, width) */
    const uint32_t *order;

    /* Returns the token at position i of the order, or UINT64_MAX beyond either end. */
    __device__ __forceinline__ uint64_t token_at(int64_t i) const {
        return i < 0 || i >= (int64_t)in.rows ? UINT64_MAX : token_of(in, order[i]);
    }
    __device__ __forceinline__ float *part(size_t chunk, unsigned which, unsigned column) const {
        return parts + (chunk * 2 + which) * in.width + column;
    }
};

template <typename T> static __global__ void scatter_chunks(struct scatter s, const T *dx) {
    const unsigned column = blockIdx.y * COLUMNS + threadIdx.x;
    const int64_t begin = (int64_t)blockIdx.x * CHUNK;
    const int64_t end = begin + CHUNK < s.in.rows ? begin + CHUNK : s.in.rows;
    uint64_t token = s.token_at(begin);
    bool is_taken_over = s.token_at(begin - 1) == token;
    float sum = 0.0f;
    if (column >= s.in.width) return;
    for (int64_t i = begin; i < end; i++) {
        const uint64_t next = s.token_at(i + 1);
        sum += tw_load_f32(dx, (size_t)s.order[i] * s.in.width + column);
        if (next == token && i + 1 < end) continue;
        if (is_taken_over) {
            *s.part(blockIdx.x, 0, column) = sum;
        } else if (next == token) {
            *s.part(blockIdx.x, 1, column) = sum;
        } else {
            s.dwte[token * s.in.width + column] += sum;
        }
        token = next;
        is_taken_over = false;
        sum = 0.0f;
    }
}

static __global__ void scatter_join(struct scatter s) {
    const unsigned column = blockIdx.y * COLUMNS + threadIdx.x;
    const int64_t begin = (int64_t)blockIdx.x * CHUNK, end = begin + CHUNK;
    const uint64_t token = s.token_at(end - 1);
    const bool is_handed_on = token != UINT64_MAX && s.token_at(end) == token;
    if (column >= s.in.width || !is_handed_on) return;
    /* If the token began in an earlier chunk, that chunk's block adds the parts. */
    if (s.token_at(begin) == token && s.token_at(begin - 1) == token) return;
    float sum = *s.part(blockIdx.x, 1, column);
    for (size_t chunk = blockIdx.x + 1; s.token_at((int64_t)chunk * CHUNK) == token; chunk++)
        sum += *s.part(chunk, 0, column);
    s.dwte[token * s.in.width + column] += sum;
}

/* Adds the gradients of position t: rows t, t + context, ... of the batch. With is_first, they
 * replace dwpe's row. */
template <typename T>
static __global__ void scatter_places(float *dwpe, const T *dx, struct tw_embedding in,
                                      bool is_first) {
    const unsigned column = blockIdx.y * COLUMNS + threadIdx.x, t = blockIdx.x;
    if (column >= in.width) return;
    float sum = 0.0f;
    for (size_t row = (t + in.context - in.row_first % in.context) % in.context; row < in.rows;
         row += in.context)
        sum += tw_load_f32(dx, row * in.width + column);
    float *const place = dwpe + (size_t)(in.position_first + t) * in.width + column;
    *place = is_first ? sum : *place + sum;
}

template <typename T>
static void launch_scatter(void *stream, const struct tw_embedding *in,
                           const struct tw_cuda_embedding_gradients *g) {
    const struct scatter s = {*in, g->dwte, (float *)g->scratch, g->order};
    const unsigned chunks = (in->rows + CHUNK - 1) / CHUNK;
    const unsigned tiles = (in->width + COLUMNS - 1) / COLUMNS;
    if (in->rows == 0 || in->width == 0) return;
    TW_LAUNCH(scatter_chunks<T>, dim3(chunks, tiles), COLUMNS, 0, stream, s, (const T *)g->dx);
    TW_LAUNCH(scatter_join, dim3(chunks, tiles), COLUMNS, 0, stream, s);
    if (g->dwpe == NULL) return;
    TW_LAUNCH(scatter_places<T>, dim3(in->context, tiles), COLUMNS, 0, stream, g->dwpe,
              (const T *)g->dx, *in, g->is_first);
}

extern "C" void tw_cuda_embedding_backward(void *stream, enum tw_type type,
                                           const struct tw_embedding *in,
                                           const struct tw_cuda_embedding_gradients *gradients) {
    TW_BY_TYPE(type, T, launch_scatter<T>(stream, in, gradients));
}

extern "C" size_t tw_cuda_embedding_backward_scratch(const struct tw_embedding *in) {
    return ((size_t)in->rows + CHUNK - 1) / CHUNK * 2 * in->width * sizeof(float);
}
