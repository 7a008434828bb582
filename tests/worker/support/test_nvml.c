/* test_nvml.c - readings of a GPU through NVML: numbers if the library reports them, zeros if not,
 * and a message if the library is unusable. The library is a fake. */
#include "worker/support/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <time.h>

#include "tests/test.h"
#include "worker/loop/session.h"

static const char PCI[] = "0000:17:00.0";
static const char *fake; /* path of the fake library */

static struct tw_nvml *open_fake(const char *how) {
    struct tw_nvml *nvml;
    struct tw_error err;
    assert_int_equal(setenv("FAKE_NVML", how, 1), 0);
    if (tw_nvml_open(&nvml, fake, PCI, &err) != TW_OK) fail_msg("%s", err.message);
    return nvml;
}

static void refused(const char *library, const char *pci, const char *sentence) {
    struct tw_nvml *nvml;
    struct tw_error err;
    assert_int_equal(tw_nvml_open(&nvml, library, pci, &err), TW_DEVICE);
    assert_null(nvml);
    if (strstr(err.message, sentence) == NULL) fail_msg("`%s` is not: %s", sentence, err.message);
}

TEST(values_of_the_card_are_seen) {
    struct tw_nvml *const nvml = open_fake("");
    struct tw_nvml_look look;
    tw_nvml_look(nvml, &look);
    assert_int_equal(look.temperature_c, 61);
    assert_int_equal(look.power_mw, 412500);
    assert_int_equal(look.power_max_mw, 0); /* the library lacks this function */
    assert_int_equal(look.memory_used_bytes, 10737418240);
    assert_int_equal(look.memory_bytes, 85899345920);
    assert_int_equal(look.load_percent, 97);
    assert_string_equal(tw_nvml_version(nvml), "580.65.06");
    tw_nvml_close(nvml);
}

TEST(values_missing_from_the_card_are_zero) {
    static const struct tw_nvml_look nothing;
    struct tw_nvml *const nvml = open_fake("silent");
    struct tw_nvml_look look;
    memset(&look, 0xff, sizeof(look));
    tw_nvml_look(nvml, &look);
    assert_memory_equal(&look, &nothing, sizeof(look));
    tw_nvml_close(nvml);
}

TEST(release_without_an_end_is_cut) {
    struct tw_nvml *const nvml = open_fake("unending");
    assert_int_equal(strlen(tw_nvml_version(nvml)), TW_NVML_VERSION_BYTES - 1);
    tw_nvml_close(nvml);
}

TEST(library_that_cannot_be_asked_says_why) {
    assert_int_equal(setenv("FAKE_NVML", "", 1), 0);
    refused("libthinwire-nothing.so.1", PCI, "libthinwire-nothing.so.1 could not be loaded");
    refused("libm.so.6", PCI, "libm.so.6 is not an NVML that this program knows");
    refused(fake, "0000:99:00.0", "knows no GPU at 0000:99:00.0: Not Found");
    assert_int_equal(setenv("FAKE_NVML", "refuses", 1), 0);
    refused(fake, PCI, "refused to start NVML: Unknown Error");
}

TEST(library_is_shut_down_when_closed) {
    void *const library = dlopen(fake, RTLD_NOW | RTLD_LOCAL);
    int (*begun)(void);
    assert_non_null(library);
    void *const found = dlsym(library, "fake_nvml_begun");
    assert_non_null(found);
    memcpy(&begun, &found, sizeof(begun));
    struct tw_nvml *const nvml = open_fake("");
    assert_int_equal(begun(), 1);
    tw_nvml_close(nvml);
    assert_int_equal(begun(), 0);
    refused(fake, "0000:99:00.0", "knows no GPU");
    assert_int_equal(begun(), 0);
    assert_int_equal(dlclose(library), 0);
}

/* ---- other processes --------------------------------------------------------------------------
 */

static double others_at_second_look(const char *how) {
    struct tw_nvml *const nvml = open_fake(how);
    assert_true(isnan(tw_nvml_others(nvml))); /* of a time before this process looked */
    const double others = tw_nvml_others(nvml);
    tw_nvml_close(nvml);
    return others;
}

TEST(newest_use_by_other_processes_is_added_up) {
    const double others = others_at_second_look("shared");
    assert_true(others > 0.4199 && others < 0.4201); /* 35 % and 7 % */
    assert_true(others_at_second_look("crowded") == 1);
}

TEST(idle_gpu_has_no_others) {
    struct tw_nvml *const nvml = open_fake("shared");
    for (int i = 0; i < 2; i++) (void)tw_nvml_others(nvml);
    assert_int_equal(setenv("FAKE_NVML", "idle", 1), 0);
    assert_true(tw_nvml_others(nvml) == 0);
    tw_nvml_close(nvml);
}

/* As in a container: the driver's numbers of processes are those of the host. */
TEST(use_is_unknown_where_this_process_is_not_seen) {
    assert_true(isnan(others_at_second_look("strangers")));
    assert_true(isnan(others_at_second_look("silent")));
}

/* ---- the thread ------------------------------------------------------------------------------ */

TEST(watch_writes_the_values_it_sees) {
    static struct tw_shm_device device;
    struct tw_device_watch watch;
    struct tw_error err;
    assert_int_equal(setenv("FAKE_NVML", "", 1), 0);
    assert_int_equal(setenv("TW_NVML", fake, 1), 0);
    assert_int_equal(tw_device_watch_open(&watch, &device, PCI, &err), TW_OK);
    assert_true(atomic_load(&device.seen_us) > 0);
    assert_int_equal(atomic_load(&device.temperature_c), 61);
    assert_int_equal(atomic_load(&device.power_mw), 412500);
    assert_int_equal(atomic_load(&device.power_max_mw), 0);
    assert_int_equal(atomic_load(&device.memory_used_bytes), 10737418240);
    assert_int_equal(atomic_load(&device.memory_bytes), 85899345920);
    assert_int_equal(atomic_load(&device.load_percent), 97);
    assert_int_equal(atomic_load(&device.others_percent), 0); /* not known yet */
    tw_device_watch_close(&watch);
}

TEST(watch_sees_others_within_a_second) {
    static struct tw_shm_device device;
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    struct tw_device_watch watch;
    struct tw_error err;
    assert_int_equal(setenv("FAKE_NVML", "shared", 1), 0);
    assert_int_equal(setenv("TW_NVML", fake, 1), 0);
    assert_int_equal(tw_device_watch_open(&watch, &device, PCI, &err), TW_OK);
    for (int i = 0; i < 1000 && atomic_load(&device.others_percent) == 0; i++)
        (void)nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&device.others_percent), 43);
    tw_device_watch_close(&watch);
}

TEST(nothing_to_watch_is_no_thread) {
    static struct tw_shm_device device;
    struct tw_device_watch watch;
    struct tw_error err;
    assert_int_equal(tw_device_watch_open(&watch, &device, "", &err), TW_OK);
    tw_device_watch_close(&watch);
    assert_int_equal(setenv("TW_NVML", "libthinwire-nothing.so.1", 1), 0);
    assert_int_equal(tw_device_watch_open(&watch, &device, PCI, &err), TW_DEVICE);
    tw_device_watch_close(&watch);
    assert_int_equal(atomic_load(&device.seen_us), 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    fake = argv[1];
    return test_run(NULL, NULL);
}
