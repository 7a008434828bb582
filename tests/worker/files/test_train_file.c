/* test_train_file.c - a saved training state is restored bit for bit, or not at all. */
#include "worker/files/train_file.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "proto/run/run_key.h"
#include "tests/test.h"

static struct tw_layout layout;
static struct tw_train_file saved, loaded;
static char folder[64], path[96];
static struct tw_out_file out;
static struct tw_error err;

/* Makes an array with random numbers in the tensors and zeros in the padding. */
static float *array(uint64_t seed) {
    struct tw_rng rng;
    float *const numbers = calloc(layout.elements, sizeof(float));
    assert_non_null(numbers);
    tw_rng_seed(&rng, seed);
    for (uint32_t i = 0; seed != 0 && i < layout.tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout.tensors[i];
        for (uint64_t k = 0; k < (uint64_t)tensor->rows * tensor->cols; k++) {
            numbers[tensor->offset + k] = (float)tw_rng_unit(&rng) - 0.5f;
        }
    }
    return numbers;
}

static int set_up(void **state) {
    tw_run_defaults(&saved.run);
    saved.run.model.layers = 2;
    saved.run.model.width = 16;
    saved.run.model.heads = 2;
    saved.run.model.context = 8;
    tw_run_apply_preset(&saved.run, TW_PRESET_STREAMING);
    if (tw_layout_init(&layout, &saved.run, &err) != TW_OK) fail_msg("%s", err.message);
    saved.data_seed = 77;
    saved.skipped = 3;
    saved.pass = (struct tw_train_pass){.micro_batch = 5, .compute = TW_COMPUTE_BF16};
    saved.state = (struct tw_train_state){.theta = array(1),
                                          .m = array(2),
                                          .v = array(3),
                                          .step = 1000,
                                          .tokens = 64000,
                                          .updates = 997,
                                          .cursor = 64000};
    memset(&loaded, 0, sizeof(loaded));
    loaded.state = (struct tw_train_state){.theta = array(0), .m = array(0), .v = array(0)};
    memcpy(folder, "/tmp/tw_train_XXXXXX", 21);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/run.state", folder);
    if (tw_out_hold(&out, path, &err) != TW_OK) fail_msg("%s", err.message);
    return 0;
}

static int tear_down(void **state) {
    struct tw_train_state *const states[] = {&saved.state, &loaded.state};
    for (unsigned i = 0; i < 2; i++) {
        free(states[i]->theta);
        free(states[i]->m);
        free(states[i]->v);
    }
    tw_out_abort(&out);
    (void)unlink(path);
    return rmdir(folder); /* fails if a temporary file was left */
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

static void save(void) {
    if (tw_train_file_save(&out, &layout, &saved, &err) != TW_OK) fail_msg("%s", err.message);
}

FACT(a_training_comes_back_to_the_bit) {
    const size_t bytes = layout.elements * sizeof(float);
    save();
    if (tw_train_file_load(path, &layout, &loaded, &err) != TW_OK) fail_msg("%s", err.message);
    assert_memory_equal(loaded.state.theta, saved.state.theta, bytes);
    assert_memory_equal(loaded.state.m, saved.state.m, bytes);
    assert_memory_equal(loaded.state.v, saved.state.v, bytes);
    assert_int_equal(loaded.state.step, 1000);
    assert_int_equal(loaded.state.tokens, 64000);
    assert_int_equal(loaded.state.updates, 997);
    assert_int_equal(loaded.state.cursor, 64000);
    assert_int_equal(loaded.data_seed, 77);
    assert_int_equal(loaded.skipped, 3);
    char a[TW_MANIFEST_BYTES_MAX], b[TW_MANIFEST_BYTES_MAX];
    size_t a_size, b_size;
    tw_run_encode(&saved.run, a, &a_size);
    tw_run_encode(&loaded.run, b, &b_size);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    struct tw_run peeked;
    struct tw_train_pass pass;
    bool is_one = false;
    assert_int_equal(tw_train_file_peek(path, &is_one, &peeked, &pass, &err), TW_OK);
    assert_true(is_one);
    assert_int_equal(peeked.model.width, 16);
    assert_int_equal(pass.micro_batch, 5);
    assert_int_equal(pass.compute, TW_COMPUTE_BF16);
    assert_int_equal(loaded.pass.micro_batch, 5);
    assert_int_equal(loaded.pass.compute, TW_COMPUTE_BF16);
}

FACT(a_file_that_does_not_say_how_it_was_computed_is_read) {
    saved.pass = (struct tw_train_pass){.micro_batch = 0};
    save();
    loaded.pass = (struct tw_train_pass){.micro_batch = 5, .compute = TW_COMPUTE_BF16};
    assert_int_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
    assert_int_equal(loaded.pass.micro_batch, 0);
    assert_int_equal(loaded.pass.compute, TW_COMPUTE_AUTO);
}

FACT(a_later_save_takes_the_place_of_an_earlier_one) {
    save();
    saved.state.step = 2000;
    saved.state.theta[0] = 9;
    save();
    assert_int_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
    assert_int_equal(loaded.state.step, 2000);
    assert_true(loaded.state.theta[0] == 9);
}

FACT(values_not_finite_are_not_saved) {
    save();
    saved.state.m[3] = NAN;
    assert_int_equal(tw_train_file_save(&out, &layout, &saved, &err), TW_CORRUPT);
    assert_int_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
}

FACT(a_save_that_fails_leaves_the_earlier_one) {
    struct rlimit limit;
    save();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit less = {.rlim_cur = 10000, .rlim_max = limit.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    saved.state.step = 2000;
    const enum tw_status status = tw_train_file_save(&out, &layout, &saved, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, TW_IO);
    assert_int_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
    assert_int_equal(loaded.state.step, 1000);
    save();
    assert_int_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
    assert_int_equal(loaded.state.step, 2000);
}

/* If the part file is deleted between saves, the next save makes a new one. */
FACT(a_part_that_was_removed_is_made_anew) {
    char part[sizeof(path) + 8];
    (void)snprintf(part, sizeof(part), "%s.part", path);
    save();
    assert_int_equal(unlink(part), 0);
    saved.state.step = 1001;
    save();
    if (tw_train_file_load(path, &layout, &loaded, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(loaded.state.step, 1001);
}

FACT(two_trainings_do_not_share_a_file) {
    struct tw_out_file second;
    assert_int_equal(tw_out_hold(&second, path, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "another process"));
    save();
    /* the lock is held between saves, too */
    assert_int_equal(tw_out_hold(&second, path, &err), TW_CONFIG);
    save();
    assert_int_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
}

FACT(rest_of_a_dead_training_is_taken_over) {
    assert_int_equal(write(out.fd, "half", 4), 4);
    assert_int_equal(close(out.fd), 0); /* as if the process had ended */
    if (tw_out_hold(&out, path, &err) != TW_OK) fail_msg("%s", err.message);
    save();
    assert_int_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
}

FACT(a_file_that_came_later_is_not_replaced) {
    char byte = 0;
    for (int has_saved = 0; has_saved < 2; has_saved++) {
        if (has_saved != 0) save();
        (void)unlink(path);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        assert_int_equal(write(fd, "x", 1), 1);
        assert_int_equal(close(fd), 0);
        assert_int_equal(tw_train_file_save(&out, &layout, &saved, &err), TW_CONFIG);
        fd = open(path, O_RDONLY);
        assert_int_equal(read(fd, &byte, 1), 1);
        assert_int_equal(byte, 'x');
        assert_int_equal(close(fd), 0);
        assert_int_equal(unlink(path), 0);
    }
    save(); /* without the obstacle, saving works again */
}

/* Truncation at, and a change of, any sampled byte is detected. */
FACT(damage_anywhere_is_noticed) {
    struct stat info;
    const size_t bytes = layout.elements * sizeof(float);
    unsigned harmless = 0;
    save();
    assert_int_equal(stat(path, &info), 0);
    const off_t size = info.st_size;
    for (off_t at = 0; at < size; at += at < 4096 ? 1 : 997) {
        uint8_t byte, changed;
        const int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        changed = byte ^ 0x10;
        assert_int_equal(pwrite(fd, &changed, 1, at), 1);
        const enum tw_status status = tw_train_file_load(path, &layout, &loaded, &err);
        /* A change in `format` is harmless, as no value depends on it. */
        const bool is_same =
            loaded.state.step == 1000 && loaded.data_seed == 77 && loaded.pass.micro_batch == 5 &&
            loaded.pass.compute == TW_COMPUTE_BF16 && loaded.run.model.width == 16 &&
            memcmp(loaded.state.theta, saved.state.theta, bytes) == 0;
        if (status == TW_OK && !is_same) fail_msg("byte %ld", (long)at);
        harmless += status == TW_OK;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(close(fd), 0);
    }
    assert_true(harmless <= 8);
    for (off_t cut = size - 1; cut > 0; cut -= 1 + size / 50) {
        assert_int_equal(truncate(path, cut), 0);
        assert_int_not_equal(tw_train_file_load(path, &layout, &loaded, &err), TW_OK);
        bool is_one = false;
        (void)tw_train_file_peek(path, &is_one, &loaded.run, NULL, &err);
        assert_false(cut < 100 && is_one);
    }
}

/* Replaces the `what_size` bytes from the first `what` on by `with`. The text keeps its size: its
 * end is padded with spaces or cut. */
static void replace(char *json, const char *what, size_t what_size, const char *with) {
    const size_t size = strlen(json), with_size = strlen(with);
    char *const at = strstr(json, what);
    char *const copy = strdup(json);
    assert_true(at != NULL && copy != NULL);
    const size_t begin = (size_t)(at - json);
    memset(json, ' ', size);
    memcpy(json, copy, begin);
    memcpy(json + begin, with, with_size);
    const size_t rest = strlen(copy + begin + what_size);
    const size_t room = size - begin - with_size;
    memcpy(json + begin + with_size, copy + begin + what_size, rest < room ? rest : room);
    free(copy);
}

/* Rewrites a file as a version without security.owner would: the manifest lacks that key, and the
 * checksum covers this manifest. */
static void write_older(void) {
    static const char KEY[] = "security.owner = any\n", SUM[] = "\"thinwire.xxh64\":\"";
    const uint64_t counters[] = {1, 1000, 64000, 997, 64000, 77, 3, 0, 5, 16};
    char manifest[TW_MANIFEST_BYTES_MAX], sum[64];
    size_t manifest_bytes;
    uint64_t head = 0;
    struct stat info;
    const int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &info), 0);
    char *const file = malloc((size_t)info.st_size);
    assert_int_equal(pread(fd, file, (size_t)info.st_size, 0), info.st_size);
    memcpy(&head, file, 8);
    char *const json = strndup(file + 8, head);
    assert_non_null(json);
    replace(json, "security.owner = any|", sizeof(KEY) - 1, "");
    tw_run_encode(&saved.run, manifest, &manifest_bytes);
    manifest_bytes -= sizeof(KEY) - 1;
    assert_memory_equal(manifest + manifest_bytes, KEY, sizeof(KEY) - 1);
    const struct tw_range ranges[] = {
        {counters, sizeof(counters)},
        {manifest, manifest_bytes},
        {file + 8 + head, (size_t)info.st_size - 8 - head},
    };
    (void)snprintf(sum, sizeof(sum), "%s%llu\"", SUM,
                   (unsigned long long)tw_xxh64_ranges(ranges, 3));
    const char *const digits = strstr(json, SUM);
    assert_non_null(digits);
    const size_t size = sizeof(SUM) - 1 + strcspn(digits + sizeof(SUM) - 1, "\"") + 1;
    replace(json, SUM, size, sum);
    assert_int_equal(pwrite(fd, json, head, 8), (ssize_t)head);
    assert_int_equal(close(fd), 0);
    free(json);
    free(file);
}

FACT(a_file_of_a_version_with_fewer_keys_is_read) {
    struct tw_run run;
    bool is_one = false;
    save();
    write_older();
    if (tw_train_file_peek(path, &is_one, &run, NULL, &err) != TW_OK) fail_msg("%s", err.message);
    assert_true(is_one);
    assert_null(tw_run_key_differing(&run, &saved.run));
    if (tw_train_file_load(path, &layout, &loaded, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(loaded.state.step, 1000);
    assert_null(tw_run_key_differing(&loaded.run, &saved.run));
    run.train.tokens++;
    assert_string_equal(tw_run_key_differing(&run, &saved.run)->name, "train.tokens");
}

/* Bare weights are not a training file. A training file with an unreadable manifest is refused. */
FACT(a_damaged_training_is_not_taken_for_bare_weights) {
    char head[8192];
    struct tw_run run;
    bool is_one = false;
    save();
    const int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, head, sizeof(head) - 1, 8), (ssize_t)sizeof(head) - 1);
    head[sizeof(head) - 1] = 0;
    const char *const key = strstr(head, "train.tokens");
    assert_non_null(key);
    assert_int_equal(pwrite(fd, "fleet.tokens", 12, 8 + key - head), 12);
    assert_int_equal(close(fd), 0);
    assert_int_equal(tw_train_file_peek(path, &is_one, &run, NULL, &err), TW_CORRUPT);
    assert_true(is_one);
    assert_non_null(strstr(err.message, "fleet.tokens"));
}

FACT(another_model_is_refused_by_name) {
    struct tw_layout other;
    struct tw_run run = saved.run;
    save();
    run.model.width = 24;
    assert_int_equal(tw_layout_init(&other, &run, NULL), TW_OK);
    loaded.state.theta = realloc(loaded.state.theta, other.elements * sizeof(float));
    loaded.state.m = realloc(loaded.state.m, other.elements * sizeof(float));
    loaded.state.v = realloc(loaded.state.v, other.elements * sizeof(float));
    assert_int_equal(tw_train_file_load(path, &other, &loaded, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "another shape"));
    run.model.width = 16;
    run.model.layers = 3;
    assert_int_equal(tw_layout_init(&other, &run, NULL), TW_OK);
    loaded.state.theta = realloc(loaded.state.theta, other.elements * sizeof(float));
    loaded.state.m = realloc(loaded.state.m, other.elements * sizeof(float));
    loaded.state.v = realloc(loaded.state.v, other.elements * sizeof(float));
    assert_int_equal(tw_train_file_load(path, &other, &loaded, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "holds no live.h.2."));
}
