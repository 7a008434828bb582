/* test_devices.c - which device is chosen on machines with and without GPUs. */
#include "tests/test.h"
#include "worker/engine/devices.h"

static const struct tw_devices NONE = {.why_no_gpu = "the driver sleeps"};
static const struct tw_devices OLD_AND_NEW = {
    .gpus_count = 2, .gpus = {{.reason = "it is too old"}, {.ordinal = 1, .name = "new"}}};
static const struct tw_devices OLD = {
    .gpus_count = 1, .gpus = {{.reason = "it is too old"}}, .why_no_gpu = "it is too old"};

static struct tw_device_choice chosen(const struct tw_devices *devices, const char *wanted) {
    struct tw_device_choice choice, device;
    struct tw_error err;
    assert_int_equal(tw_device_parse(wanted, &choice, &err), TW_OK);
    if (tw_devices_choose(devices, &choice, &device, &err) != TW_OK) fail_msg("%s", err.message);
    return device;
}

static void refused(const struct tw_devices *devices, const char *wanted, const char *sentence) {
    struct tw_device_choice choice, device;
    struct tw_error err;
    assert_int_equal(tw_device_parse(wanted, &choice, &err), TW_OK);
    assert_int_equal(tw_devices_choose(devices, &choice, &device, &err), TW_DEVICE);
    assert_string_equal(err.message, sentence);
}

TEST(auto_takes_the_first_gpu_that_can_be_used) {
    assert_int_equal(chosen(&OLD_AND_NEW, "auto").kind, TW_DEVICE_CUDA);
    assert_int_equal(chosen(&OLD_AND_NEW, "auto").ordinal, 1);
    assert_int_equal(chosen(&OLD, "auto").kind, TW_DEVICE_CPU);
    assert_int_equal(chosen(&NONE, "auto").kind, TW_DEVICE_CPU);
}

TEST(named_device_is_taken) {
    assert_int_equal(chosen(&OLD_AND_NEW, "cpu").kind, TW_DEVICE_CPU);
    assert_int_equal(chosen(&OLD_AND_NEW, "cuda:1").kind, TW_DEVICE_CUDA);
    assert_int_equal(chosen(&OLD_AND_NEW, "cuda:1").ordinal, 1);
}

TEST(unusable_named_device_is_refused_with_the_reason) {
    refused(&NONE, "cuda", "device = cuda:0, but there is no GPU: the driver sleeps");
    refused(&OLD_AND_NEW, "cuda:2", "device = cuda:2, but GPUs here are cuda:0 to cuda:1");
    refused(&OLD_AND_NEW, "cuda", "cuda:0 cannot be used: it is too old");
}
