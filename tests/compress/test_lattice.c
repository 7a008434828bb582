/* test_lattice.c - anchors in lattice form are decoded exactly, or the failure is detected. */
#include "compress/lattice.h"

#include "tests/kernels/fill.h"

enum { SEED = 414, N = 5000, N_LAST = N - 4 * TW_LATTICE_BLOCK };

struct fixture {
    struct tw_rng rng;
    float *x, *y, *out, *again;
    uint8_t *bytes, *bytes_ref;
    size_t size;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    tw_rng_seed(&f->rng, SEED);
    f->x = fill_new(&f->rng, N, 0.05f);
    f->y = fill_copy(f->x, N);
    f->out = fill_copy(f->x, N);
    f->again = fill_copy(f->x, N);
    f->bytes = calloc(1, tw_lattice_bound(N));
    f->bytes_ref = calloc(1, tw_lattice_bound(N));
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    free(f->x), free(f->y), free(f->out), free(f->again), free(f->bytes), free(f->bytes_ref);
    free(f);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* y := x plus noise of at most `apart`. */
static void move(struct fixture *f, float apart) {
    for (size_t i = 0; i < N; i++)
        f->y[i] = f->x[i] + apart * (float)(2.0 * tw_rng_unit(&f->rng) - 1.0);
}

static void encode(struct fixture *f, float distance) {
    assert_int_equal(tw_lattice_encode(f->x, N, distance, f->bytes, tw_lattice_bound(N), &f->size),
                     TW_OK);
    assert_int_equal(tw_lattice_check(f->bytes, f->size, N), TW_OK);
}

static double step_of(const struct fixture *f) {
    return ldexp(1.0, (int8_t)f->bytes[1]);
}

FACT(a_byte_per_element_is_within_half_a_step) {
    struct fixture *f = *state;
    for (float distance = 1e-6f; distance < 1.0f; distance *= 3.0f) {
        encode(f, distance);
        assert_int_equal(f->size, 8 + 2 * 5 + N);
        assert_true(step_of(f) >= 4.0 * (double)distance / 256.0);
        assert_true(step_of(f) < 8.0 * (double)distance / 256.0 || distance < 2e-6f);
        move(f, 1.9f * distance);
        assert_int_equal(tw_lattice_decode(f->bytes, f->size, f->y, f->out, N), TW_OK);
        for (size_t i = 0; i < N; i++)
            assert_true(fabs((double)f->out[i] - (double)f->x[i]) <= step_of(f) / 2.0);
        /* The sender and every receiver that can decode the bytes get the same values. */
        assert_int_equal(tw_lattice_decode(f->bytes, f->size, f->x, f->again, N), TW_OK);
        assert_memory_equal(f->out, f->again, N * sizeof(float));
    }
}

FACT(the_slow_twin_makes_the_same_bytes_and_values) {
    struct fixture *f = *state;
    const float distances[] = {0, 1e-9f, 1e-5f, 0.0078125f, 0.01f, 3.0f, 1e30f, INFINITY, -1.0f};
    for (size_t k = 0; k < sizeof(distances) / sizeof(distances[0]); k++) {
        size_t size_ref = 0;
        f->x[k] = (float)(1 << k);
        encode(f, distances[k]);
        assert_int_equal(tw_lattice_encode_ref(f->x, N, distances[k], f->bytes_ref,
                                               tw_lattice_bound(N), &size_ref),
                         TW_OK);
        assert_int_equal(f->size, size_ref);
        assert_memory_equal(f->bytes, f->bytes_ref, f->size);
        for (double apart = 0.5; apart < 6.0; apart += 0.25) {
            move(f, (float)(apart * step_of(f) * 64.0));
            const enum tw_status status = tw_lattice_decode(f->bytes, f->size, f->y, f->out, N);
            assert_int_equal(tw_lattice_decode_ref(f->bytes, f->size, f->y, f->again, N), status);
            if (status == TW_OK) assert_memory_equal(f->out, f->again, N * sizeof(float));
        }
    }
}

FACT(a_receiver_too_far_away_notices) {
    struct fixture *f = *state;
    encode(f, 0.001f);
    const float wrap = (float)(256.0 * step_of(f));
    for (unsigned trial = 0; trial < 2000; trial++) { /* one element is off by one or more wraps */
        move(f, 0.001f);
        const size_t i = (size_t)tw_rng_below(&f->rng, N);
        const float turns = (float)(1 + tw_rng_below(&f->rng, 5));
        f->y[i] += tw_rng_below(&f->rng, 2) == 0 ? turns * wrap : -turns * wrap;
        assert_int_equal(tw_lattice_decode(f->bytes, f->size, f->y, f->out, N), TW_AGAIN);
    }
    unsigned missed = 0;
    for (unsigned trial = 0; trial < 2000; trial++) { /* many elements */
        move(f, 0.001f);
        for (size_t i = 0; i < TW_LATTICE_BLOCK; i++)
            if (tw_rng_below(&f->rng, 3) == 0) f->y[i] += wrap;
        missed += tw_lattice_decode(f->bytes, f->size, f->y, f->out, N) == TW_OK;
    }
    assert_in_range(missed, 0, 3); /* 2000 wrong decodes, each missed with probability 1/65536 */
}

FACT(whole_form_is_exact_however_far) {
    struct fixture *f = *state;
    f->x[3] = -0.0f;
    f->x[4] = 3.4028235e38f;
    f->x[5] = 1e-42f;
    encode(f, 0.0f);
    assert_int_equal(f->size, tw_lattice_bound(N));
    move(f, 100.0f);
    assert_int_equal(tw_lattice_decode(f->bytes, f->size, f->y, f->out, N), TW_OK);
    assert_memory_equal(f->out, f->x, N * sizeof(float));
}

FACT(large_values_get_a_coarser_step_not_a_wrong_one) {
    struct fixture *f = *state;
    f->x[0] = 1e6f;
    encode(f, 1e-6f);
    assert_true(step_of(f) >= 1e6 / 0x1p30);
    memcpy(f->y, f->x, N * sizeof(float));
    assert_int_equal(tw_lattice_decode(f->bytes, f->size, f->y, f->out, N), TW_OK);
    assert_true(f->out[0] == f->x[0]);
    f->y[1] = 1e9f; /* the receiver's anchor is beyond the range of k */
    assert_int_equal(tw_lattice_decode(f->bytes, f->size, f->y, f->out, N), TW_AGAIN);
}

FACT(bytes_are_pinned) {
    /* Expected bytes, computed with exact fractions in Python. */
    static const uint8_t golden[] = {0x00, 0xf4, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0xfa, 0x64, 0x9a, 0x00, 0x00, 0x00, 0x00, 0xa0};
    const float x[] = {0.1f, -0.25f, 3.0f, 1e-6f, -7.5f, 0.3515625f};
    uint8_t bytes[64];
    size_t size;
    assert_int_equal(tw_lattice_encode(x, 6, 0.01f, bytes, sizeof(bytes), &size), TW_OK);
    assert_int_equal(size, sizeof(golden));
    assert_memory_equal(bytes, golden, size);
}

FACT(bytes_that_are_no_anchor_are_refused) {
    struct fixture *f = *state;
    size_t size;
    f->x[N - 1] = NAN;
    assert_int_equal(tw_lattice_encode(f->x, N, 0.1f, f->bytes, tw_lattice_bound(N), &size),
                     TW_CORRUPT);
    f->x[N - 1] = INFINITY;
    assert_int_equal(tw_lattice_encode(f->x, N, 0.0f, f->bytes, tw_lattice_bound(N), &size),
                     TW_CORRUPT);
    f->x[N - 1] = 0;
    encode(f, 0.1f);
    assert_int_equal(tw_lattice_encode(f->x, N, 0.1f, f->bytes, f->size - 1, &size), TW_LIMIT);
    assert_int_equal(tw_lattice_encode(f->x, N, 0.0f, f->bytes, 4 * N, &size), TW_LIMIT);
    encode(f, 0.1f);
    assert_int_equal(tw_lattice_check(f->bytes, f->size - 1, N), TW_CORRUPT);
    assert_int_equal(tw_lattice_check(f->bytes, f->size, N - 1), TW_CORRUPT);
    assert_int_equal(tw_lattice_check(f->bytes, 7, 0), TW_CORRUPT);
    for (unsigned i = 2; i < 8; i++) {
        f->bytes[i] = 1;
        assert_int_equal(tw_lattice_check(f->bytes, f->size, N), TW_CORRUPT);
        f->bytes[i] = 0;
    }
    f->bytes[0] = 2;
    assert_int_equal(tw_lattice_check(f->bytes, f->size, N), TW_CORRUPT);
    f->bytes[0] = 0;
    f->bytes[1] = 91;
    assert_int_equal(tw_lattice_check(f->bytes, f->size, N), TW_CORRUPT);
    f->bytes[1] = (uint8_t)-121;
    assert_int_equal(tw_lattice_decode(f->bytes, f->size, f->y, f->out, N), TW_CORRUPT);
    encode(f, 0.0f);
    f->bytes[f->size - 1] = 0x7F;
    f->bytes[f->size - 2] = 0x80;
    assert_int_equal(tw_lattice_check(f->bytes, f->size, N), TW_CORRUPT);
}

FACT(distance_is_the_largest) {
    struct fixture *f = *state;
    move(f, 0.01f);
    f->y[N - 1] = f->x[N - 1] - 0.5f;
    assert_true(fabsf(tw_lattice_distance(f->x, f->y, N) - 0.5f) < 1e-6f);
    assert_true(tw_lattice_distance(f->x, f->x, N) == 0.0f);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
