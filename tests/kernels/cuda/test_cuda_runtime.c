/* test_cuda_runtime.c - memory, streams, events, graphs and faults of a device. */
#include "kernels/cuda/ops.h"
#ifdef TW_CUDA_EMULATED
#include "tests/emulated/emulation.h"
#endif

#include "tests/kernels/cuda/device.h"

enum { N = 1000, BYTES = N * sizeof(float) };

static void a_device_describes_itself(void **state) {
    struct tw_cuda_info info;
    struct tw_error err = {0};
    assert_int_equal(tw_cuda_info(&info, 0, &err), TW_OK);
    assert_true(info.name[0] != '\0' && info.total_bytes > 0 && info.major >= 8);
    assert_string_equal(info.reason, "");
    const int count = tw_cuda_count(&err);
    assert_int_equal(tw_cuda_info(&info, count, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "there is no cuda:"));
    struct tw_cuda *none = NULL;
    assert_int_equal(tw_cuda_open(&none, -1, 0, &err), TW_CONFIG);
    assert_null(none);
}

static void copies_arrive_in_order(void **state) {
    float from[N], to[N] = {0};
    for (size_t i = 0; i < N; i++) from[i] = (float)i;
    float *a = device_new(BYTES), *b = device_new(BYTES);
    tw_cuda_copy_in(device, TW_CUDA_COMPUTE, a, from, BYTES);
    tw_cuda_zero(device, TW_CUDA_COMPUTE, b, BYTES);
    tw_cuda_copy(device, TW_CUDA_COMPUTE, b + 1, a, BYTES - sizeof(float));
    tw_cuda_add(device_stream, TW_F32, b, a, N);
    device_get(to, b, BYTES);
    assert_true(to[0] == 0.0f);
    for (size_t i = 1; i < N; i++) assert_true(to[i] == (float)(2 * i - 1));
    device_free(a), device_free(b);
}

/* Copies columns [1, 4) of rows of 5 elements to columns [2, 5) of rows of 7. The other columns do
 * not change. */
static void rows_are_copied_and_nothing_beside_them(void **state) {
    enum { ROWS = 9, FROM = 5, TO = 7, COLUMNS = 3 };
    float from[ROWS * FROM], to[ROWS * TO];
    for (size_t i = 0; i < ROWS * FROM; i++) from[i] = (float)(i + 1);
    float *a = device_of(from, sizeof(from)), *b = device_new(sizeof(to));
    tw_cuda_zero(device, TW_CUDA_COMPUTE, b, sizeof(to));
    struct tw_cuda_rows copy = {.to = b + 2,
                                .from = a + 1,
                                .to_stride = TO * sizeof(float),
                                .from_stride = FROM * sizeof(float),
                                .bytes = COLUMNS * sizeof(float),
                                .rows = ROWS - 1};
    tw_cuda_copy_rows(device, TW_CUDA_COMPUTE, copy);
    copy.rows = 0, copy.to = b;
    tw_cuda_copy_rows(device, TW_CUDA_COMPUTE, copy);
    copy.rows = 1, copy.bytes = 0;
    tw_cuda_copy_rows(device, TW_CUDA_COMPUTE, copy);
    device_get(to, b, sizeof(to));
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < TO; c++) {
            const bool is_copied = r < ROWS - 1 && c >= 2 && c < 2 + COLUMNS;
            assert_true(to[r * TO + c] == (is_copied ? from[r * FROM + c - 1] : 0.0f));
        }
    }
    /* Straight to the host, which leaves the columns besides as they are, too. */
    memset(to, 0, sizeof(to));
    copy.rows = ROWS - 1, copy.bytes = COLUMNS * sizeof(float), copy.to = to + 2;
    tw_cuda_copy_rows_out(device, TW_CUDA_COMPUTE, copy);
    copy.rows = 0;
    tw_cuda_copy_rows_out(device, TW_CUDA_COMPUTE, copy);
    device_finish();
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < TO; c++) {
            const bool is_copied = r < ROWS - 1 && c >= 2 && c < 2 + COLUMNS;
            assert_true(to[r * TO + c] == (is_copied ? from[r * FROM + c - 1] : 0.0f));
        }
    }
    device_free(a), device_free(b);
}

static void one_stream_waits_for_the_other(void **state) {
    float from[N], to[N] = {0};
    for (size_t i = 0; i < N; i++) from[i] = (float)i;
    float *a = device_new(BYTES), *b = device_new(BYTES);
    assert_true(tw_cuda_is_done(device, 0));
    tw_cuda_wait_for(device, TW_CUDA_SIDE, 0);
    for (int turn = 0; turn < 300; turn++) { /* records more events than a device keeps */
        tw_cuda_copy_in(device, TW_CUDA_COMPUTE, a, from, BYTES);
        const uint64_t event = tw_cuda_record(device, TW_CUDA_COMPUTE);
        assert_true(event != 0);
        tw_cuda_wait_for(device, TW_CUDA_SIDE, event);
        tw_cuda_copy(device, TW_CUDA_SIDE, b, a, BYTES);
        tw_cuda_wait_for(device, TW_CUDA_COMPUTE, tw_cuda_record(device, TW_CUDA_SIDE));
        tw_cuda_zero(device, TW_CUDA_COMPUTE, a, BYTES);
    }
    tw_cuda_copy_out(device, TW_CUDA_SIDE, to, b, BYTES);
    const uint64_t last = tw_cuda_record(device, TW_CUDA_SIDE);
    struct tw_error err = {0};
    assert_int_equal(tw_cuda_finish(device, TW_CUDA_SIDE, &err), TW_OK);
    assert_true(tw_cuda_is_done(device, last));
    assert_true(tw_cuda_is_done(device, 2)); /* an old event */
    assert_memory_equal(to, from, BYTES);
    device_free(a), device_free(b);
}

static void memory_has_a_limit(void **state) {
    struct tw_cuda *small = NULL;
    struct tw_error err = {0};
    void *a = NULL, *b = NULL, *workspace;
    size_t workspace_bytes = 0;
    uint64_t limit = 0;
    workspace = tw_cuda_workspace(device, &workspace_bytes);
    assert_true(workspace != NULL && (uintptr_t)workspace % 256 == 0 && workspace_bytes > 0);
    assert_int_equal(tw_cuda_open(&small, 0, workspace_bytes + 3 * BYTES, &err), TW_OK);
    assert_int_equal(tw_cuda_alloc(small, &a, 2 * BYTES, "the first", &err), TW_OK);
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_int_equal(tw_cuda_memory(small, &limit), workspace_bytes + 2 * BYTES);
    assert_int_equal(limit, workspace_bytes + 3 * BYTES);
    assert_int_equal(tw_cuda_alloc(small, &b, 2 * BYTES, "the second", &err), TW_NOMEM);
    assert_null(b);
    assert_non_null(strstr(err.message, "no memory for the second on cuda:0"));
    tw_cuda_free(small, a);
    tw_cuda_free(small, NULL);
    assert_int_equal(tw_cuda_alloc(small, &b, 3 * BYTES, "the second", &err), TW_OK);
    assert_int_equal(tw_cuda_alloc(small, &a, UINT64_MAX, "far too much", &err), TW_NOMEM);
    tw_cuda_close(small); /* frees b too */
    assert_int_equal(tw_cuda_open(&small, 0, 1000, &err), TW_NOMEM);
    tw_cuda_close(NULL);
    assert_int_equal(tw_cuda_host_alloc(device, &a, BYTES, "a buffer", &err), TW_OK);
    memset(a, 1, BYTES);
    tw_cuda_host_free(device, a);
}

/* Copies from and to pinned memory give the same bytes. */
static void memory_of_others_can_be_pinned(void **state) {
    enum { PAGES = 64 * 1024 }; /* a multiple of every machine's page size */
    const size_t n = PAGES / sizeof(float);
    float *host = aligned_alloc(PAGES, 2 * PAGES);
    struct tw_error err = {0};
    void *there = NULL;
    assert_non_null(host);
    assert_int_equal(tw_cuda_alloc(device, &there, PAGES, "a test", &err), TW_OK);
    for (size_t i = 0; i < 2 * n; i++) host[i] = (float)i;
    const bool is_pinned = tw_cuda_host_pin(device, host, PAGES);
    tw_cuda_copy_in(device, TW_CUDA_COMPUTE, there, host, PAGES);
    tw_cuda_copy_out(device, TW_CUDA_COMPUTE, host + n, there, PAGES); /* not pinned */
    assert_int_equal(tw_cuda_finish(device, TW_CUDA_COMPUTE, &err), TW_OK);
    assert_memory_equal(host, host + n, PAGES);
    if (is_pinned) tw_cuda_host_unpin(device, host);
    tw_cuda_host_unpin(device, NULL);
#ifdef TW_CUDA_EMULATED
    assert_true(is_pinned);
    tw_emulation_set_pins(false);
    assert_false(tw_cuda_host_pin(device, host, PAGES));
    tw_emulation_set_pins(true);
#endif
    tw_cuda_free(device, there);
    free(host);
}

static void a_graph_is_run_when_it_is_launched(void **state) {
    float ones[N], to[N];
    struct tw_cuda_graph *graph = NULL;
    struct tw_error err = {0};
    for (size_t i = 0; i < N; i++) ones[i] = 1.0f;
    float *a = device_of(ones, BYTES), *b = device_of(ones, BYTES);
    assert_int_equal(tw_cuda_graph_begin(device, &err), TW_OK);
    tw_cuda_add(device_stream, TW_F32, a, b, N);
    tw_cuda_copy(device, TW_CUDA_COMPUTE, b, a, BYTES);
    assert_int_equal(tw_cuda_graph_end(device, &graph, &err), TW_OK);
    device_get(to, a, BYTES);
    assert_true(to[N - 1] == 1.0f); /* captured, not run */
    for (int i = 0; i < 3; i++) tw_cuda_graph_launch(device, graph);
    device_get(to, a, BYTES);
    assert_true(to[0] == 8.0f && to[N - 1] == 8.0f);
    tw_cuda_graph_free(device, graph);
    device_free(a), device_free(b);
}

#ifdef TW_CUDA_EMULATED
static void a_fault_stays_and_is_reported(void **state) {
    struct tw_cuda *ill = NULL;
    struct tw_error err = {0};
    struct tw_cuda_graph *graph = NULL;
    void *a = NULL, *b = NULL;
    assert_int_equal(tw_cuda_open(&ill, 0, 0, &err), TW_OK);
    assert_int_equal(tw_cuda_alloc(ill, &a, BYTES, "a test", &err), TW_OK);
    const uint64_t before = tw_emulation_calls();
    tw_emulation_fail_after(2);
    tw_cuda_zero(ill, TW_CUDA_COMPUTE, a, BYTES);
    assert_int_equal(tw_cuda_finish(ill, TW_CUDA_COMPUTE, &err), TW_OK);
    tw_cuda_add(tw_cuda_stream(ill, TW_CUDA_COMPUTE), TW_F32, a, a, N);
    assert_int_equal(tw_emulation_calls(), before + 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tw_cuda_finish(ill, TW_CUDA_SIDE, &err), TW_DEVICE);
        assert_non_null(strstr(err.message, "cuda:0 (emulated) failed"));
        assert_non_null(strstr(err.message, "map"));
    }
    tw_cuda_zero(ill, TW_CUDA_COMPUTE, a, BYTES);
    assert_int_equal(tw_cuda_alloc(ill, &b, BYTES, "a test", &err), TW_DEVICE);
    assert_int_equal(tw_cuda_graph_begin(ill, &err), TW_DEVICE);
    tw_cuda_close(ill);

    assert_int_equal(tw_cuda_open(&ill, 0, 0, &err), TW_OK);
    tw_emulation_fail_after(1);
    assert_int_equal(tw_cuda_alloc(ill, &b, BYTES, "a test", &err), TW_NOMEM);
    assert_int_equal(tw_cuda_alloc(ill, &b, BYTES, "a test", &err), TW_OK);
    tw_emulation_fail_after(1);
    assert_int_equal(tw_cuda_host_alloc(ill, &a, BYTES, "a buffer", &err), TW_NOMEM);
    assert_non_null(strstr(err.message, "no page-locked memory for a buffer"));
    assert_int_equal(tw_cuda_graph_begin(ill, &err), TW_OK);
    tw_emulation_fail_after(1);
    tw_cuda_zero(ill, TW_CUDA_COMPUTE, b, BYTES);
    assert_int_equal(tw_cuda_graph_end(ill, &graph, &err), TW_DEVICE);
    assert_null(graph);
    tw_cuda_close(ill);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_describes_itself),
        cmocka_unit_test(copies_arrive_in_order),
        cmocka_unit_test(rows_are_copied_and_nothing_beside_them),
        cmocka_unit_test(one_stream_waits_for_the_other),
        cmocka_unit_test(memory_has_a_limit),
        cmocka_unit_test(memory_of_others_can_be_pinned),
        cmocka_unit_test(a_graph_is_run_when_it_is_launched),
#ifdef TW_CUDA_EMULATED
        cmocka_unit_test(a_fault_stays_and_is_reported),
#endif
    };
    return DEVICE_RUN(tests);
}
