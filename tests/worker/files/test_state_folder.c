/* Tests of worker/files/train_file.c, on checkpoints written by the daemon's own code. */
#include "worker/files/train_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "daemon/store/checkpoint.h"
#include "tests/daemon/store/state_sample.h"
#include "tests/test.h"

static struct tw_run run;
static struct tw_layout layout;
static struct tw_id run_id;
static struct sample_arrays arrays;
static char home[64], folder[96];
static struct tw_state_found found;
static struct tw_error err;

static void path_of(char path[160], const char *in, const char *name) {
    (void)snprintf(path, 160, "%s/%s", in, name);
}

/* Saves `count` generations, with steps 101, 102, ... */
static void save(const char *in, uint64_t count) {
    static struct tw_checkpoint_state state;
    static struct tw_checkpoint_found before;
    struct tw_checkpoint *checkpoint = NULL;
    assert_int_equal(
        tw_checkpoint_create(&checkpoint, tw_file_system(), in, &layout, &run_id, &err), TW_OK);
    assert_int_equal(tw_checkpoint_load(checkpoint, &arrays.at, &state, &before, &err), TW_OK);
    for (uint64_t i = 0; i < count; i++) {
        sample_fill(&arrays, &layout, i);
        sample_state(&state, layout.fragments_count, i + 1, i + 1);
        state.step = 101 + i;
        assert_int_equal(tw_checkpoint_save(checkpoint, &state, &arrays.at, &err), TW_OK);
    }
    tw_checkpoint_destroy(checkpoint);
}

static void manifest_write(const char *in, const struct tw_run *of) {
    char path[160], text[TW_MANIFEST_BYTES_MAX];
    size_t size = 0;
    path_of(path, in, "run.manifest");
    tw_run_encode(of, text, &size);
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static int start(void **state) {
    char hex[TW_ID_HEX_BYTES];
    sample_layout(&layout, &run, 2, 64, 2);
    sample_arrays_init(&arrays, &layout, false);
    tw_run_defaults(&run); /* any valid manifest; the test does not depend on its model */
    run_id = tw_run_id(&run);
    tw_id_hex(&run_id, hex);
    memcpy(home, "/tmp/tw_state_XXXXXX", 21);
    if (mkdtemp(home) == NULL) return 1;
    (void)snprintf(folder, sizeof(folder), "%s/%.16s", home, hex);
    return mkdir(folder, 0700);
}

static int stop(void **state) {
    static const char *const NAMES[] = {"ckpt.a.safetensors", "ckpt.b.safetensors", "run.manifest"};
    char path[160];
    for (unsigned i = 0; i < 3; i++) {
        path_of(path, folder, NAMES[i]);
        (void)unlink(path);
        path_of(path, home, NAMES[i]);
        (void)unlink(path);
    }
    sample_arrays_deinit(&arrays);
    return rmdir(folder) != 0 || rmdir(home) != 0;
}

#define FACT(name) TEST_IN(start, stop, name)

static void takes(const char *path, const char *part, const char *name, uint64_t step) {
    bool is_one = false;
    if (tw_state_folder_find(path, part, &is_one, &found, &err) != TW_OK)
        fail_msg("%s", err.message);
    assert_true(is_one);
    char wanted[160];
    path_of(wanted, folder, name);
    assert_string_equal(found.checkpoint, wanted);
    assert_int_equal(found.step, step);
}

/* Flips one bit of byte `at`; a negative `at` counts from the end. */
static void flip(const char *name, off_t at) {
    char path[160], byte = 0;
    path_of(path, folder, name);
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    const off_t place = at < 0 ? lseek(fd, at, SEEK_END) : at;
    assert_int_equal(pread(fd, &byte, 1, place), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, place), 1);
    assert_int_equal(close(fd), 0);
}

FACT(the_newer_one_is_taken_whichever_it_is) {
    save(folder, 1);
    takes(folder, "live", "ckpt.a.safetensors", 101);
    save(folder, 1);
    takes(folder, "live", "ckpt.b.safetensors", 101);
    save(folder, 3);
    takes(folder, "live", "ckpt.a.safetensors", 103);
    assert_string_equal(found.refused, "");
}

FACT(the_folder_above_and_a_slash_mean_the_same) {
    char slash[128];
    save(folder, 2);
    takes(home, "live", "ckpt.b.safetensors", 102);
    (void)snprintf(slash, sizeof(slash), "%s//", folder);
    takes(slash, "anchor", "ckpt.b.safetensors", 102);
}

FACT(a_damaged_one_is_left_out_and_named) {
    save(folder, 2);
    flip("ckpt.b.safetensors", 300); /* in the header */
    takes(folder, "live", "ckpt.a.safetensors", 101);
    assert_non_null(strstr(found.refused, "ckpt.b.safetensors"));
    flip("ckpt.b.safetensors", 300);
    takes(folder, "live", "ckpt.b.safetensors", 102);
    flip("ckpt.b.safetensors", -1); /* the moments are the last part of the file */
    takes(folder, "adam_v", "ckpt.a.safetensors", 101);
    assert_non_null(strstr(found.refused, "does not match its SHA-256"));
    flip("ckpt.a.safetensors", -1);
    bool is_one = false;
    assert_int_equal(tw_state_folder_find(folder, "adam_v", &is_one, &found, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "no checkpoint in "));
    assert_non_null(strstr(err.message, "is whole: ckpt.a.safetensors: MiB "));
}

FACT(one_cut_short_is_left_out) {
    char path[160];
    save(folder, 2);
    path_of(path, folder, "ckpt.b.safetensors");
    assert_int_equal(truncate(path, 4000), 0);
    takes(folder, "live", "ckpt.a.safetensors", 101);
    assert_int_equal(truncate(path, 3), 0);
    takes(folder, "live", "ckpt.a.safetensors", 101);
}

FACT(the_manifest_is_that_of_the_run) {
    char wanted[160];
    struct tw_run other = run;
    save(folder, 1);
    takes(folder, "live", "ckpt.a.safetensors", 101);
    assert_string_equal(found.manifest, "");
    manifest_write(home, &run);
    takes(folder, "live", "ckpt.a.safetensors", 101);
    path_of(wanted, folder, "../run.manifest");
    assert_string_equal(found.manifest, wanted);
    manifest_write(folder, &run);
    takes(home, "live", "ckpt.a.safetensors", 101);
    path_of(wanted, folder, "run.manifest");
    assert_string_equal(found.manifest, wanted);
    other.model.seed++;
    manifest_write(folder, &other);
    manifest_write(home, &other);
    takes(folder, "live", "ckpt.a.safetensors", 101);
    assert_string_equal(found.manifest, "");
}

FACT(two_runs_are_for_the_caller_to_choose_from) {
    char second[128], path[160];
    bool is_one = false;
    save(folder, 1);
    (void)snprintf(second, sizeof(second), "%s/0123456789abcdef", home);
    assert_int_equal(mkdir(second, 0700), 0);
    takes(home, "live", "ckpt.a.safetensors", 101);
    save(second, 1);
    assert_int_equal(tw_state_folder_find(home, "live", &is_one, &found, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "of several runs: name the folder of one of them"));
    takes(folder, "live", "ckpt.a.safetensors", 101);
    path_of(path, second, "ckpt.a.safetensors");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(second), 0);
}

FACT(anything_else_is_none) {
    char path[160];
    bool is_one = true;
    assert_int_equal(tw_state_folder_find(home, "live", &is_one, &found, &err), TW_OK);
    assert_false(is_one);
    assert_int_equal(tw_state_folder_find("/nowhere", "live", &is_one, &found, &err), TW_OK);
    assert_false(is_one);
    save(folder, 1);
    path_of(path, folder, "ckpt.a.safetensors");
    assert_int_equal(tw_state_folder_find(path, "live", &is_one, &found, &err), TW_OK);
    assert_false(is_one);
}
