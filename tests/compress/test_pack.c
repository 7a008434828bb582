/* test_pack.c - packed state is restored bit for bit, or refused. */
#include "compress/pack.h"

#include <zstd.h>

#include "base/bytes.h"
#include "tests/kernels/fill.h"

enum { SEED = 808, N = 3000, HEADER_BYTES = 48 };

struct fixture {
    struct tw_packer *packer;
    float *phi, *u, *phi_out, *u_out;
    uint8_t *bytes;
    size_t size, capacity;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    assert_int_equal(tw_packer_create(&f->packer, N, TW_MOMENTUM_FLOAT32, NULL), TW_OK);
    f->phi = fill_new(&rng, N, 0.02f);
    f->u = fill_new(&rng, N, 1e-4f);
    f->phi_out = fill_new(&rng, N, 1.0f);
    f->u_out = fill_new(&rng, N, 1.0f);
    f->phi[0] = -0.0f;
    f->phi[1] = 1e-42f; /* subnormal */
    f->u[2] = -3.4028235e38f;
    f->capacity = tw_pack_bound(N);
    f->bytes = malloc(f->capacity);
    assert_int_equal(tw_pack(f->packer, f->phi, f->u, N, f->bytes, f->capacity, &f->size, NULL),
                     TW_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    tw_packer_destroy(f->packer);
    free(f->phi), free(f->u), free(f->phi_out), free(f->u_out), free(f->bytes), free(f);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

static enum tw_status unpack(struct fixture *f, const uint8_t *bytes, size_t size, size_t n,
                             struct tw_error *err) {
    return tw_unpack(f->packer, bytes, size, f->phi_out, f->u_out, n, err);
}

FACT(state_comes_back_bit_by_bit_and_smaller) {
    struct fixture *f = *state;
    assert_int_equal(unpack(f, f->bytes, f->size, N, NULL), TW_OK);
    assert_memory_equal(f->phi, f->phi_out, N * sizeof(float));
    assert_memory_equal(f->u, f->u_out, N * sizeof(float));
    print_message("%zu of %zu bytes\n", f->size, 2 * N * sizeof(float));
    assert_true(f->size < 2 * N * sizeof(float) * 9 / 10);
}

FACT(a_fresh_momentum_costs_nothing) {
    struct fixture *f = *state;
    memset(f->u, 0, N * sizeof(float));
    const size_t before = f->size;
    assert_int_equal(tw_pack(f->packer, f->phi, f->u, N, f->bytes, f->capacity, &f->size, NULL),
                     TW_OK);
    assert_true(f->size < before * 6 / 10);
    assert_int_equal(unpack(f, f->bytes, f->size, N, NULL), TW_OK);
    assert_memory_equal(f->u, f->u_out, N * sizeof(float));
}

FACT(every_truncation_and_growth_is_refused) {
    struct fixture *f = *state;
    struct tw_error err;
    uint8_t *longer = malloc(f->size + 1);
    memcpy(longer, f->bytes, f->size);
    longer[f->size] = 0;
    assert_int_equal(unpack(f, longer, f->size + 1, N, &err), TW_CORRUPT);
    free(longer);
    for (size_t size = 0; size < f->size; size += size < 100 ? 1 : 97) {
        uint8_t *exact = malloc(size > 0 ? size : 1);
        memcpy(exact, f->bytes, size);
        assert_int_equal(unpack(f, exact, size, N, &err), TW_CORRUPT);
        free(exact);
    }
}

FACT(damage_is_refused_or_finite) {
    struct fixture *f = *state;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    unsigned refused = 0;
    for (unsigned i = 0; i < 2000; i++) {
        const size_t at = tw_rng_below(&rng, f->size);
        const uint8_t kept = f->bytes[at];
        f->bytes[at] ^= (uint8_t)(1u << tw_rng_below(&rng, 8));
        if (unpack(f, f->bytes, f->size, N, NULL) != TW_OK) {
            refused++;
        } else {
            for (size_t j = 0; j < N; j++) {
                assert_true(isfinite(f->phi_out[j]) && isfinite(f->u_out[j]));
            }
        }
        f->bytes[at] = kept;
    }
    print_message("%u of 2000 flips refused\n", refused);
    assert_true(refused > 0);
    assert_int_equal(unpack(f, f->bytes, f->size, N, NULL), TW_OK); /* the packer still works */
}

FACT(another_element_count_is_refused) {
    struct fixture *f = *state;
    struct tw_error err;
    assert_int_equal(unpack(f, f->bytes, f->size, N - 1, &err), TW_CORRUPT);
    assert_int_equal(unpack(f, f->bytes, f->size, N + 1, &err), TW_LIMIT);
    tw_put_u64(f->bytes + 8, UINT64_MAX);
    assert_int_equal(unpack(f, f->bytes, f->size, N, &err), TW_CORRUPT);
}

/* A decompression bomb: a first plane that claims and holds far more than N bytes. */
FACT(a_frame_of_another_size_is_refused) {
    struct fixture *f = *state;
    struct tw_error err;
    const size_t bomb_bytes = 1 << 20;
    uint8_t *zeros = calloc(1, bomb_bytes),
            *bomb = malloc(f->size + ZSTD_compressBound(bomb_bytes));
    const uint32_t first = tw_get_u32(f->bytes + 16);
    const size_t size =
        ZSTD_compress(bomb + HEADER_BYTES, ZSTD_compressBound(bomb_bytes), zeros, bomb_bytes, 1);
    assert_false(ZSTD_isError(size));
    memcpy(bomb, f->bytes, HEADER_BYTES);
    tw_put_u32(bomb + 16, (uint32_t)size);
    const size_t rest = f->size - HEADER_BYTES - first;
    memcpy(bomb + HEADER_BYTES + size, f->bytes + HEADER_BYTES + first, rest);
    assert_int_equal(unpack(f, bomb, HEADER_BYTES + size + rest, N, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "not one frame"));
    free(zeros), free(bomb);
}

FACT(non_finite_values_are_not_packed) {
    struct fixture *f = *state;
    size_t size;
    f->u[N - 1] = NAN;
    assert_int_equal(tw_pack(f->packer, f->phi, f->u, N, f->bytes, f->capacity, &size, NULL),
                     TW_CORRUPT);
    f->u[N - 1] = 0.0f;
    assert_int_equal(tw_pack(f->packer, f->phi, f->u, N, f->bytes, f->size / 2, &size, NULL),
                     TW_LIMIT);
    assert_int_equal(tw_pack(f->packer, f->phi, f->u, N, f->bytes, 10, &size, NULL), TW_LIMIT);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
