/* test_cuda_gemm_plans.c - the key of a plan contains everything that the plan depends on. A file
 * of plans is read completely or not at all. */
#include "kernels/cuda/gemm_plans.h"

#include <unistd.h>

#include "tests/test.h"

static char folder[] = "/tmp/thinwire-plans-XXXXXX";
static char path[64];

enum { GUESSED = 4711 }; /* value of m that marks a plan that was not timed */

static struct tw_gemm_plans *plans_new(const char *owner) {
    struct tw_gemm_plans *const plans = malloc(sizeof(*plans));
    assert_non_null(plans);
    tw_gemm_plans_init(plans, owner);
    return plans;
}

static struct tw_gemm_key key_of(uint32_t m) {
    const struct tw_cuda_gemm gemm = {.shape = {.m = m, .k = 2, .n = 3}};
    return tw_gemm_key(&gemm, 16);
}

static uint32_t put(struct tw_gemm_plans *plans, uint32_t m) {
    const struct tw_gemm_key key = key_of(m);
    const struct tw_gemm_plan plan = {
        .algo = {m, 7}, .workspace_bytes = m + 1, .is_fused = 1, .is_timed = m != GUESSED};
    return tw_gemm_plans_put(plans, &key, &plan);
}

static uint32_t find(const struct tw_gemm_plans *plans, uint32_t m) {
    const struct tw_gemm_key key = key_of(m);
    return tw_gemm_plans_find(plans, &key);
}

TEST(a_key_has_all_that_a_plan_depends_on) {
    static char memory[4];
    const struct tw_cuda_gemm base = {.shape = {.m = 1, .k = 2, .n = 3}};
    struct tw_cuda_gemm other[15];
    for (unsigned i = 0; i < 15; i++) other[i] = base;
    other[0].shape.m = 9, other[1].shape.k = 9, other[2].shape.n = 9;
    other[3].shape.form = TW_MATMUL_TN, other[4].shape.type = TW_BF16;
    other[5].shape.y_type = TW_BF16, other[6].epilogue = TW_CUDA_BIAS_GELU;
    other[7].shape.a_stride = 9, other[8].shape.b_stride = 9, other[9].shape.y_stride = 9;
    other[10].count = 2, other[11].a_step = 9, other[12].b_step = 9, other[13].y_step = 9;
    const struct tw_gemm_key key = tw_gemm_key(&base, 16), shifted = tw_gemm_key(&base, 8);
    for (unsigned i = 0; i < 14; i++) {
        const struct tw_gemm_key differs = tw_gemm_key(&other[i], 16);
        assert_memory_not_equal(&key, &differs, sizeof(key));
    }
    assert_memory_not_equal(&key, &shifted, sizeof(key));
    /* the key does not depend on y, a, is_added and spare memory, and a count of 0 means 1 */
    other[14].y = memory, other[14].a = memory, other[14].count = 1;
    other[14].shape.is_added = true, other[14].spare = memory, other[14].spare_bytes = 4;
    const struct tw_gemm_key same = tw_gemm_key(&other[14], 16);
    assert_memory_equal(&key, &same, sizeof(key));
}

TEST(the_oldest_makes_room) {
    enum { MORE = 5 };
    struct tw_gemm_plans *const plans = plans_new("x");
    assert_int_equal(find(plans, 1), TW_CUDA_GEMM_PLANS_MAX);
    for (uint32_t m = 1; m <= TW_CUDA_GEMM_PLANS_MAX + MORE; m++) {
        const uint32_t slot = put(plans, m);
        assert_true(slot < TW_CUDA_GEMM_PLANS_MAX);
        assert_int_equal(find(plans, m), slot);
        assert_int_equal(plans->plans[slot].algo[0], m);
    }
    for (uint32_t m = 1; m <= MORE; m++) assert_int_equal(find(plans, m), TW_CUDA_GEMM_PLANS_MAX);
    assert_true(find(plans, MORE + 1) < TW_CUDA_GEMM_PLANS_MAX);
    assert_int_equal(plans->count, TW_CUDA_GEMM_PLANS_MAX);
    free(plans);
}

TEST(a_plan_takes_the_place_of_that_of_its_key) {
    struct tw_gemm_plans *const plans = plans_new("x");
    const uint32_t slot = put(plans, 4);
    (void)put(plans, 5);
    assert_int_equal(put(plans, 4), slot);
    assert_int_equal(plans->count, 2);
    free(plans);
}

TEST(plans_come_back_from_their_file) {
    struct tw_error err = {0};
    struct tw_gemm_plans *const plans = plans_new("a device"), *const again = plans_new("a device");
    assert_false(tw_gemm_plans_read(again, path)); /* there is none */
    for (uint32_t m = 1; m <= TW_CUDA_GEMM_PLANS_MAX; m++) {
        (void)put(plans, m);
        if (m != 3 && m != TW_CUDA_GEMM_PLANS_MAX) continue;
        assert_true(plans->is_changed);
        assert_int_equal(tw_gemm_plans_write(plans, path, &err), TW_OK);
        assert_false(plans->is_changed);
        assert_true(tw_gemm_plans_read(again, path));
        assert_int_equal(again->count, m);
        assert_false(again->is_changed);
        assert_memory_equal(again->keys, plans->keys, m * sizeof(plans->keys[0]));
        assert_memory_equal(again->plans, plans->plans, m * sizeof(plans->plans[0]));
    }
    free(plans), free(again);
}

TEST(a_guess_is_not_written) {
    struct tw_error err = {0};
    struct tw_gemm_plans *const plans = plans_new("a device"), *const again = plans_new("a device");
    (void)put(plans, GUESSED);
    assert_false(plans->is_changed);
    (void)put(plans, 1);
    assert_int_equal(plans->count, 2);
    assert_int_equal(tw_gemm_plans_write(plans, path, &err), TW_OK);
    assert_true(tw_gemm_plans_read(again, path));
    assert_int_equal(again->count, 1);
    assert_int_equal(find(again, 1), 0);
    assert_int_equal(find(again, GUESSED), TW_CUDA_GEMM_PLANS_MAX);
    free(plans), free(again);
}

static void expect_path(const char *given, const char *device, const char *want) {
    char *const found = tw_gemm_plans_path(given, device);
    assert_non_null(found);
    assert_string_equal(found, want);
    free(found);
}

TEST(a_folder_has_a_file_of_each_kind_of_device) {
    expect_path("plans", "NVIDIA H100", "plans");
    expect_path("", "NVIDIA H100", "");
    expect_path("/a b/", "NVIDIA H100 80GB HBM3", "/a b/NVIDIA_H100_80GB_HBM3.plans");
    expect_path("./", "../x\n", "./.._x_.plans");
}

static size_t file_read(unsigned char *bytes, size_t most) {
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, most, file);
    (void)fclose(file);
    return size;
}

static void file_write(const unsigned char *bytes, size_t size) {
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

TEST(a_damaged_file_is_not_read) {
    enum { MOST = 4096 };
    unsigned char bytes[MOST];
    struct tw_error err = {0};
    struct tw_gemm_plans *const plans = plans_new("a device"), *const again = plans_new("a device");
    (void)put(plans, 1), (void)put(plans, 2);
    assert_int_equal(tw_gemm_plans_write(plans, path, &err), TW_OK);
    const size_t size = file_read(bytes, MOST);
    assert_true(size < MOST);
    (void)put(again, 77);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x10;
        file_write(bytes, size);
        assert_false(tw_gemm_plans_read(again, path));
        bytes[i] ^= 0x10;
        file_write(bytes, i);
        assert_false(tw_gemm_plans_read(again, path));
    }
    file_write(bytes, size + 1);
    assert_false(tw_gemm_plans_read(again, path));
    assert_int_equal(again->count, 1); /* unchanged */
    assert_true(find(again, 77) < TW_CUDA_GEMM_PLANS_MAX);
    free(plans), free(again);
}

TEST(the_file_of_another_device_is_not_read) {
    struct tw_error err = {0};
    struct tw_gemm_plans *const plans = plans_new("a device"), *const other = plans_new("another");
    (void)put(plans, 1);
    assert_int_equal(tw_gemm_plans_write(plans, path, &err), TW_OK);
    assert_false(tw_gemm_plans_read(other, path));
    assert_int_equal(other->count, 0);
    free(plans), free(other);
}

TEST(a_file_that_cannot_be_written_is_named) {
    struct tw_error err = {0};
    struct tw_gemm_plans *const plans = plans_new("a device");
    (void)put(plans, 1);
    assert_int_equal(tw_gemm_plans_write(plans, "/nowhere/at/all", &err), TW_IO);
    assert_non_null(strstr(err.message, "/nowhere/at/all"));
    assert_true(plans->is_changed);
    assert_int_equal(tw_gemm_plans_write(plans, folder, &err), TW_IO); /* a folder */
    free(plans);
}

int main(void) {
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(path, sizeof(path), "%s/plans", folder);
    const int failed = test_run(NULL, NULL);
    (void)remove(path);
    (void)rmdir(folder);
    return failed;
}
