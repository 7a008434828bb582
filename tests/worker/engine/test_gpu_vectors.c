/* test_gpu_vectors.c - the arithmetic of merging on a device matches the host's. Every function of
 * the table runs on both: elementwise functions give the same bits, every codec the same bytes. */
#include "worker/engine/vectors.h"

#include "tests/emulated/emulation.h"
#include "tests/kernels/fill.h"
#include "tests/worker/engine/engine_fixture.h"
#include "worker/engine/cuda/gpu_model.h"

enum { SEED = 6174, AT = 3, BESIDE = 5, N_MAX = 5003, SKIPPED = 77 };

static const size_t sizes[] = {0, 1, 2, 31, 33, 64, 127, 257, 1000, N_MAX};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static struct tw_error err;
static struct tw_rng rng;

/* The two sides that are compared: an engine on the device, and the host's functions on arrays in
 * host memory. */
static struct engine_fixture *fixture;
static struct tw_engine *engine;
static struct tw_gpu *gpu;
static struct tw_vectors host, device;

static void open_engine(enum tw_compute compute) {
    const struct tw_engine_config config = {
        .run = &fixture->run,
        .layout = &fixture->layout,
        .compute = {.device = {.kind = TW_DEVICE_CUDA}, .compute = compute}};
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    memcpy(engine->theta, fixture->engine->theta, fixture->layout.elements * sizeof(float));
    assert_int_equal(tw_engine_push(engine, TW_ENGINE_THETA, 0, fixture->layout.elements, &err),
                     TW_OK);
    gpu = engine->memory->gpu;
    if (tw_gpu_vectors_open(gpu, &device, &err) != TW_OK) fail_msg("%s", err.message);
}

static int set_up(void **state) {
    if (engine_set_up(state, ENGINE_LLAMA_FULL) != 0) return -1;
    fixture = *state;
    engine_shake(fixture);
    tw_rng_seed(&rng, SEED);
    host = tw_vectors_host(fixture->engine->theta, fixture->engine->m, fixture->engine->v);
    open_engine(TW_COMPUTE_BF16);
    return 0;
}

static int tear_down(void **state) {
    tw_engine_destroy(engine);
    return engine_tear_down(state);
}

/* ---- arrays on both sides -------------------------------------------------------------------- */

/* Elements [AT, AT + n) of arrays of AT + n + BESIDE elements. */
struct twin {
    float *host_all, *device_all, *host, *device;
    size_t n;
};

static struct twin twin_new(size_t n, float scale) {
    struct twin twin = {.host_all = fill_new(&rng, AT + n + BESIDE, scale), .n = n};
    if (device.alloc(device.self, &twin.device_all, AT + n + BESIDE, "a test", &err) != TW_OK)
        fail_msg("%s", err.message);
    device.copy_in(device.self, twin.device_all, twin.host_all, AT + n + BESIDE);
    assert_int_equal(device.finish(device.self, &err), TW_OK);
    twin.host = twin.host_all + AT;
    twin.device = twin.device_all + AT;
    return twin;
}

/* Checks that both sides are equal, including the elements around the range. */
static void twin_check(const char *what, const struct twin *twin) {
    const size_t all = AT + twin->n + BESIDE;
    float *const got = fill_copy(twin->host_all, all);
    assert_int_equal(device.copy_out(device.self, got, twin->device_all, all, &err), TW_OK);
    for (size_t i = 0; i < all; i++) {
        if (memcmp(&got[i], &twin->host_all[i], sizeof(float)) != 0)
            fail_msg("%s: element %zd of %zu is %.9g, on the host %.9g", what, (ssize_t)i - AT,
                     twin->n, (double)got[i], (double)twin->host_all[i]);
    }
    free(got);
}

static void twin_free(struct twin *twin) {
    device.free(device.self, twin->device_all);
    free(twin->host_all);
}

/* ---- elements -------------------------------------------------------------------------------- */

static void new_arrays_are_zeros_and_copies_are_exact(void **state) {
    for (size_t s = 1; s < SIZES; s++) {
        const size_t n = sizes[s];
        struct twin x = twin_new(n, 1.0f), y = twin_new(n, 1.0f);
        float *zeros, *got = fill_copy(x.host, n);
        assert_int_equal(device.alloc(device.self, &zeros, n, "zeros", &err), TW_OK);
        assert_int_equal(device.copy_out(device.self, got, zeros, n, &err), TW_OK);
        for (size_t i = 0; i < n; i++) assert_true(got[i] == 0.0f);
        twin_check("copy_in", &x);
        device.copy(device.self, x.device, y.device, n);
        host.copy(host.self, x.host, y.host, n);
        twin_check("copy", &x);
        device.zero(device.self, x.device, n / 2);
        host.zero(host.self, x.host, n / 2);
        twin_check("zero", &x);
        device.free(device.self, zeros);
        device.free(device.self, NULL);
        free(got);
        twin_free(&x), twin_free(&y);
    }
}

static void elements_have_the_bits_of_the_host(void **state) {
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        struct twin x = twin_new(n, 1.0f), y = twin_new(n, 0.7f), z = twin_new(n, 0.1f);
        device.scale(device.self, x.device, 0.3f, n);
        host.scale(host.self, x.host, 0.3f, n);
        twin_check("scale", &x);
        device.add(device.self, x.device, y.device, -0.7f, n);
        host.add(host.self, x.host, y.host, -0.7f, n);
        twin_check("add", &x);
        device.mix(device.self, x.device, y.device, 0.4f, n);
        host.mix(host.self, x.host, y.host, 0.4f, n);
        twin_check("mix", &x);
        device.shift(device.self, x.device, y.device, z.device, n);
        host.shift(host.self, x.host, y.host, z.host, n);
        twin_check("shift", &x);
        device.mix(device.self, x.device, z.device, 0.0f, n);
        host.mix(host.self, x.host, z.host, 0.0f, n);
        twin_check("mix of nothing", &x);
        twin_check("what is read", &y);
        twin_check("what is read", &z);
        twin_free(&x), twin_free(&y), twin_free(&z);
    }
}

static void delta_has_the_bits_of_the_host(void **state) {
    for (size_t s = 0; s < SIZES; s++) {
        for (unsigned with = 0; with < 8; with++) { /* bits of `with`: given, ahead, residual */
            struct twin x[6];
            for (unsigned i = 0; i < 6; i++) x[i] = twin_new(sizes[s], i < 4 ? 1.0f : 0.1f);
            struct tw_vectors_delta on = {.v = x[0].device,
                                          .phi = x[2].device,
                                          .theta = x[3].device,
                                          .beta = 0.93f,
                                          .n = sizes[s]};
            struct tw_vectors_delta here = {
                .v = x[0].host, .phi = x[2].host, .theta = x[3].host, .beta = 0.93f, .n = sizes[s]};
            if ((with & 1) != 0) on.given = x[1].device, here.given = x[1].host;
            if ((with & 2) != 0) on.ahead = x[4].device, here.ahead = x[4].host;
            if ((with & 4) != 0) on.residual = x[5].device, here.residual = x[5].host;
            device.delta(device.self, &on);
            host.delta(host.self, &here);
            for (unsigned i = 0; i < 6; i++) twin_check("delta", &x[i]);
            for (unsigned i = 0; i < 6; i++) twin_free(&x[i]);
        }
    }
}

static void outer_steps_have_the_bits_of_the_host(void **state) {
    for (size_t s = 0; s < SIZES; s++) {
        for (unsigned kind = 0; kind < 3; kind++) { /* Nesterov, heavy ball, tempered */
            struct twin x[3];
            for (unsigned i = 0; i < 3; i++) x[i] = twin_new(sizes[s], 1.0f);
            struct tw_vectors_outer on = {.anchor = x[0].device,
                                          .momentum = x[1].device,
                                          .delta = x[2].device,
                                          .n = sizes[s],
                                          .rule = tw_outer_at(410000, 870000, 0, 0),
                                          .is_heavyball = kind > 0};
            if (kind == 2) on.rule.gain = 0.6f, on.rule.limit = 0.4f;
            struct tw_vectors_outer here = on;
            here.anchor = x[0].host, here.momentum = x[1].host, here.delta = x[2].host;
            device.outer(device.self, &on);
            host.outer(host.self, &here);
            for (unsigned i = 0; i < 3; i++) twin_check("outer", &x[i]);
            for (unsigned i = 0; i < 3; i++) twin_free(&x[i]);
        }
    }
}

static void a_merge_leads_as_on_the_host(void **state) {
    const struct tw_momentum_lead cfg = {
        .share = 0.4f, .lr = 0.01f, .steps = 30, .correction2 = 0.3f};
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        struct twin m = twin_new(n, 0.1f), v = twin_new(n, 1.0f), merged = twin_new(n, 0.05f);
        float *const got = fill_copy(m.host, n);
        for (size_t i = 0; i < n; i++) v.host[i] = i % 7 == 3 ? 0.0f : v.host[i] * v.host[i];
        device.copy_in(device.self, v.device, v.host, n);
        device.lead(device.self, m.device, v.device, merged.device, n, &cfg);
        host.lead(host.self, m.host, v.host, merged.host, n, &cfg);
        assert_int_equal(device.copy_out(device.self, got, m.device, n, &err), TW_OK);
        for (size_t i = 0; i < n; i++)
            assert_true(fabsf(got[i] - m.host[i]) <= 1e-6f * (fabsf(m.host[i]) + 1e-3f));
        twin_check("v", &v);
        twin_check("merged", &merged);
        free(got);
        twin_free(&m), twin_free(&v), twin_free(&merged);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void assert_near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * want)) fail_msg("%.17g, on the host %.17g", got, want);
}

static void sums_are_those_of_the_host(void **state) {
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        struct twin x = twin_new(n, 1.0f), y = twin_new(n, 1.0f);
        double got[TW_OUTLIER_BLOCKS], want[TW_OUTLIER_BLOCKS];
        assert_near(device.norm_squared(device.self, x.device, n),
                    host.norm_squared(host.self, x.host, n));
        assert_near(device.distance_squared(device.self, x.device, y.device, n),
                    host.distance_squared(host.self, x.host, y.host, n));
        device.energies(device.self, got, x.device, n);
        host.energies(host.self, want, x.host, n);
        for (unsigned b = 0; b < TW_OUTLIER_BLOCKS; b++) assert_near(got[b], want[b]);
        twin_free(&x), twin_free(&y);
    }
}

static void sums_show_values_that_are_not_finite(void **state) {
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (unsigned i = 0; i < 3; i++) {
        struct twin x = twin_new(1000, 1.0f), y = twin_new(1000, 1.0f);
        double energies[TW_OUTLIER_BLOCKS], sum = 0.0;
        device.copy_in(device.self, x.device + 700, &bad[i], 1);
        assert_true(isfinite(device.norm_squared(device.self, x.device, 1000)) == 0);
        assert_true(isfinite(device.norm_squared(device.self, x.device, 700)) != 0);
        assert_true(isfinite(device.distance_squared(device.self, y.device, x.device, 1000)) == 0);
        device.energies(device.self, energies, x.device, 1000);
        for (unsigned b = 0; b < TW_OUTLIER_BLOCKS; b++) sum += energies[b];
        assert_true(isfinite(sum) == 0);
        twin_free(&x), twin_free(&y);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static size_t largest_fragment(void) {
    uint64_t most = 0;
    const struct tw_layout *layout = &fixture->layout;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const uint64_t n = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
        if (n > most) most = n;
    }
    return (size_t)most;
}

static void check_pack(const struct tw_codec *codec, size_t n, bool wants_decoded,
                       bool wants_lost) {
    struct twin v = twin_new(n, 1e-3f), decoded = twin_new(n, 1.0f), lost = twin_new(n, 1.0f);
    const size_t bound = codec->bound(n);
    uint8_t *const want = malloc(bound + 1), *const got = malloc(bound + 1);
    size_t bytes = 0;
    assert_true(want != NULL && got != NULL);
    got[bound] = 0x5a;
    const struct tw_vectors_pack pack = {.codec = codec,
                                         .v = v.device,
                                         .n = n,
                                         .out = got,
                                         .decoded = wants_decoded ? decoded.device : NULL,
                                         .lost = wants_lost ? lost.device : NULL};
    if (device.pack(device.self, &pack, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(codec->encode(v.host, n, want, bound, &bytes), TW_OK);
    assert_int_equal(bytes, bound);
    for (size_t i = 0; i < bytes; i++) {
        if (got[i] != want[i])
            fail_msg("%s of %zu: byte %zu is %02x, not %02x", codec->name, n, i, got[i], want[i]);
    }
    assert_int_equal(got[bound], 0x5a);
    if (wants_decoded) assert_int_equal(codec->decode(want, bytes, decoded.host, n), TW_OK);
    if (wants_lost) {
        assert_int_equal(codec->decode(want, bytes, lost.host, n), TW_OK);
        for (size_t i = 0; i < n; i++) lost.host[i] = v.host[i] - lost.host[i];
    }
    twin_check("v", &v);
    twin_check("decoded", &decoded);
    twin_check("lost", &lost);
    twin_free(&v), twin_free(&decoded), twin_free(&lost);
    free(want), free(got);
}

static void bytes_are_those_of_every_codec_of_a_fixed_rate(void **state) {
    uint32_t count, packed = 0;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    for (uint32_t c = 0; c < count; c++) {
        assert_false(host.can_pack(host.self, codecs[c]));
        if (!device.can_pack(device.self, codecs[c])) {
            assert_true(codecs[c]->id > TW_CODEC_SIGN);
            continue;
        }
        packed++;
        for (size_t s = 0; s < SIZES; s++) check_pack(codecs[c], sizes[s], s % 2 == 0, s % 3 != 0);
        check_pack(codecs[c], largest_fragment(), true, true);
    }
    assert_int_equal(packed, 5);
}

static void values_not_finite_are_refused_and_the_next_are_not(void **state) {
    const struct tw_codec *const codec = tw_codec_get(TW_CODEC_INT4);
    const float bad = NAN;
    uint8_t out[1024];
    struct twin v = twin_new(1000, 1.0f);
    device.copy_in(device.self, v.device + 500, &bad, 1);
    const struct tw_vectors_pack pack = {.codec = codec, .v = v.device, .n = 1000, .out = out};
    assert_int_equal(device.pack(device.self, &pack, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "not finite"));
    assert_non_null(strstr(err.message, codec->name));
    twin_free(&v);
    check_pack(codec, 1000, true, true);
}

/* ---- the parameters -------------------------------------------------------------------------- */

static float step_loss(struct tw_engine *of) {
    struct tw_step_result result;
    if (tw_engine_step(of, fixture->tokens, 0.0f, &result, &err) != TW_OK)
        fail_msg("%s", err.message);
    return result.loss;
}

/* Computes a loss of other parameters. The working weights are then theirs, so the next step must
 * make them from theta again. */
static void use_others(void) {
    double loss;
    assert_int_equal(
        tw_engine_loss(engine, fixture->engine->theta, fixture->tokens, 1, &loss, &err), TW_OK);
}

/* The next step must use the theta just written, whichever parameters were used before. */
static void written_theta_alone_changes(void **state) {
    const size_t elements = fixture->layout.elements, n = elements / 2, begin = 11;
    /* fp32, bf16, bf16 after other parameters were used */
    for (unsigned kind = 0; kind < 3; kind++) {
        float *const twice = fill_copy(fixture->engine->theta, elements);
        float *const got = fill_copy(twice, elements);
        tw_engine_destroy(engine);
        open_engine(kind == 0 ? TW_COMPUTE_FP32 : TW_COMPUTE_BF16);
        const float before = step_loss(engine);
        if (kind == 2) use_others();
        device.scale(device.self, device.theta + begin, 1.5f, n);
        device.written(device.self, begin, n);
        for (size_t i = begin; i < begin + n; i++) twice[i] *= 1.5f;
        assert_int_equal(device.copy_out(device.self, got, device.theta, elements, &err), TW_OK);
        assert_memory_equal(got, twice, elements * sizeof(float));
        const float after = step_loss(engine);
        assert_true(before != after);
        use_others();
        assert_true(step_loss(engine) == after); /* all of theta is converted to bf16 again */
        assert_int_equal(tw_engine_pull(engine, TW_ENGINE_THETA, 0, elements, &err), TW_OK);
        assert_memory_equal(engine->theta, twice, elements * sizeof(float));
        free(twice), free(got);
    }
}

static void the_moments_are_the_optimizers(void **state) {
    const size_t elements = fixture->layout.elements;
    struct tw_step_result result;
    float *const got = malloc(2 * elements * sizeof(float));
    assert_non_null(got);
    assert_int_equal(tw_engine_step(engine, fixture->tokens, 0.01f, &result, &err), TW_OK);
    assert_int_equal(device.copy_out(device.self, got, device.m, elements, &err), TW_OK);
    assert_int_equal(device.copy_out(device.self, got + elements, device.v, elements, &err), TW_OK);
    assert_int_equal(tw_engine_pull(engine, TW_ENGINE_STATE, 0, elements, &err), TW_OK);
    assert_memory_equal(got, engine->m, elements * sizeof(float));
    assert_memory_equal(got + elements, engine->v, elements * sizeof(float));
    assert_true(device.norm_squared(device.self, device.v, elements) > 0.0);
    free(got);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_is_as_planned(void **state) {
    const struct tw_engine_config config = {.run = &fixture->run,
                                            .layout = &fixture->layout,
                                            .compute = {.device = {.kind = TW_DEVICE_CUDA}}};
    struct tw_engine *other;
    struct tw_vectors first, again;
    uint64_t limit;
    assert_int_equal(tw_engine_create(&other, &config, &err), TW_OK);
    struct tw_cuda *const cuda = other->memory->gpu->cuda;
    const uint64_t before = tw_cuda_memory(cuda, &limit);
    assert_int_equal(tw_gpu_vectors_open(other->memory->gpu, &first, &err), TW_OK);
    const uint64_t taken = tw_cuda_memory(cuda, &limit) - before;
    assert_int_equal(taken, tw_gpu_vectors_bytes(&fixture->layout));
    assert_int_equal(tw_gpu_vectors_open(other->memory->gpu, &again, &err), TW_OK);
    assert_ptr_equal(first.self, again.self); /* each engine has one such table */
    assert_int_equal(tw_cuda_memory(cuda, &limit) - before, taken);
    tw_engine_destroy(other);
}

static void too_large_array_is_named(void **state) {
    float *x = (float *)&err;
    assert_int_equal(device.alloc(device.self, &x, (size_t)1 << 44, "what was sent", &err),
                     TW_NOMEM);
    assert_non_null(strstr(err.message, "what was sent"));
    assert_null(x);
    assert_int_equal(device.finish(device.self, &err), TW_OK);
}

#ifdef TW_CUDA_EMULATED
/* After a device failure, results are NaN, and every function that waits for the device reports the
 * reason. */
static void a_device_that_failed_says_so(void **state) {
    const struct tw_codec *const codec = tw_codec_get(TW_CODEC_BF16);
    double energies[TW_OUTLIER_BLOCKS];
    uint8_t bytes[200];
    float out[100], *more;
    struct twin x = twin_new(100, 1.0f);
    const struct tw_vectors_pack pack = {.codec = codec, .v = x.device, .n = 100, .out = bytes};
    tw_emulation_fail_after(1);
    device.scale(device.self, x.device, 2.0f, 100);
    tw_emulation_fail_after(0);
    assert_true(isnan(device.norm_squared(device.self, x.device, 100)));
    assert_true(isnan(device.distance_squared(device.self, x.device, x.device, 100)));
    device.energies(device.self, energies, x.device, 100);
    for (unsigned b = 0; b < TW_OUTLIER_BLOCKS; b++) assert_true(isnan(energies[b]));
    assert_int_equal(device.copy_out(device.self, out, x.device, 100, &err), TW_DEVICE);
    assert_int_equal(device.pack(device.self, &pack, &err), TW_DEVICE);
    assert_int_equal(device.alloc(device.self, &more, 100, "a test", &err), TW_DEVICE);
    assert_int_equal(device.finish(device.self, &err), TW_DEVICE);
    assert_non_null(strstr(err.message, "cuda:0"));
    twin_free(&x);
}

/* Each device call that opening the vectors makes fails in turn. */
static void opening_fails_in_order(void **state) {
    struct tw_vectors vectors;
    for (uint64_t call = 1; call <= 2; call++) {
        tw_engine_destroy(engine);
        const struct tw_engine_config config = {.run = &fixture->run,
                                                .layout = &fixture->layout,
                                                .compute = {.device = {.kind = TW_DEVICE_CUDA}}};
        assert_int_equal(tw_engine_create(&engine, &config, &err), TW_OK);
        tw_emulation_fail_after(call);
        assert_int_equal(tw_gpu_vectors_open(engine->memory->gpu, &vectors, &err), TW_NOMEM);
        tw_emulation_fail_after(0);
        assert_non_null(
            strstr(err.message, call == 1 ? "encoding outer gradients" : "sums of a sync"));
        assert_int_equal(tw_gpu_vectors_open(engine->memory->gpu, &vectors, &err), TW_OK);
    }
}
#endif

int main(void) {
    if (tw_cuda_count(&err) == 0) {
        print_message("skipped: %s\n", err.message);
        return SKIPPED;
    }
    print_message("seed %d\n", SEED);
#define ROW(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROW(new_arrays_are_zeros_and_copies_are_exact),
        ROW(elements_have_the_bits_of_the_host),
        ROW(delta_has_the_bits_of_the_host),
        ROW(outer_steps_have_the_bits_of_the_host),
        ROW(a_merge_leads_as_on_the_host),
        ROW(sums_are_those_of_the_host),
        ROW(sums_show_values_that_are_not_finite),
        ROW(bytes_are_those_of_every_codec_of_a_fixed_rate),
        ROW(values_not_finite_are_refused_and_the_next_are_not),
        ROW(written_theta_alone_changes),
        ROW(the_moments_are_the_optimizers),
        ROW(memory_is_as_planned),
        ROW(too_large_array_is_named),
#ifdef TW_CUDA_EMULATED
        ROW(a_device_that_failed_says_so),
        ROW(opening_fails_in_order),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
