/* Tests of worker/engine/plans_folder.c: which folder the environment selects. */
#include "tests/test.h"
#include "worker/engine/plans_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[] = {"TW_CUDA_PLANS", "CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};

static char folder[32], file[64], found[256];

static int set_up(void **state) {
    for (unsigned i = 0; i < 4; i++) (void)unsetenv(names[i]);
    (void)strcpy(folder, "/tmp/tw-cache-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof(file), "%s/file", folder);
    const int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    return 0;
}

static int tear_down(void **state) {
    static const char *const made[] = {"x/thinwire",  "x",    "home/.cache/thinwire",
                                       "home/.cache", "home", "given"};
    char path[96];
    (void)unlink(file);
    for (unsigned i = 0; i < 6; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, made[i]);
        (void)rmdir(path);
    }
    assert_int_equal(rmdir(folder), 0); /* fails if anything else was made */
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

static void set(const char *name, const char *below) {
    char value[96];
    (void)snprintf(value, sizeof(value), "%s/%s", folder, below);
    assert_int_equal(setenv(name, value, 1), 0);
}

static void make(const char *below) {
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, below);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void expect(const char *below) {
    char want[96];
    struct stat about;
    (void)snprintf(want, sizeof(want), "%s/%s", folder, below);
    assert_true(tw_plans_folder(found, sizeof(found)));
    assert_string_equal(found, want);
    assert_int_equal(stat(found, &about), 0);
    assert_true(S_ISDIR(about.st_mode));
}

FACT(named_folder_is_taken_unchanged) {
    make("home");
    set("HOME", "home");
    set("TW_CUDA_PLANS", "anywhere/plans");
    assert_true(tw_plans_folder(found, sizeof(found)));
    assert_string_equal(found + strlen(folder), "/anywhere/plans");
    assert_int_equal(setenv("TW_CUDA_PLANS", "", 1), 0);
    assert_false(tw_plans_folder(found, sizeof(found)));
}

FACT(the_first_folder_there_can_be_is_taken) {
    assert_false(tw_plans_folder(found, sizeof(found)));
    make("home");
    set("HOME", "home");
    expect("home/.cache/thinwire/");
    expect("home/.cache/thinwire/"); /* exists now */
    make("x");
    set("XDG_CACHE_HOME", "x");
    expect("x/thinwire/");
    set("CACHE_DIRECTORY", "given:/elsewhere");
    expect("given/");
}

FACT(impossible_folders_are_passed_over) {
    set("CACHE_DIRECTORY", "file");
    set("XDG_CACHE_HOME", "absent");
    set("HOME", "file");
    assert_false(tw_plans_folder(found, sizeof(found)));
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
    assert_false(tw_plans_folder(found, sizeof(found)));
    make("home");
    set("HOME", "home");
    expect("home/.cache/thinwire/");
}

FACT(compiled_code_is_kept_beside_the_plans) {
    char want[96];
    (void)unsetenv("CUDA_CACHE_PATH");
    tw_plans_folder_keep_code(); /* without a folder, nothing is set */
    assert_null(getenv("CUDA_CACHE_PATH"));
    make("home");
    set("HOME", "home");
    tw_plans_folder_keep_code();
    (void)snprintf(want, sizeof(want), "%s/home/.cache/thinwire/code", folder);
    assert_string_equal(getenv("CUDA_CACHE_PATH"), want);
    assert_int_equal(setenv("CUDA_CACHE_PATH", "/mine", 1), 0);
    tw_plans_folder_keep_code();
    assert_string_equal(getenv("CUDA_CACHE_PATH"), "/mine");
    (void)unsetenv("CUDA_CACHE_PATH");
}

FACT(a_path_too_long_is_none) {
    make("home");
    set("HOME", "home");
    const size_t needed = strlen(folder) + strlen("/home/.cache/thinwire/") + 1;
    assert_false(tw_plans_folder(found, needed - 1));
    assert_true(tw_plans_folder(found, needed));
    set("TW_CUDA_PLANS", "plans");
    assert_false(tw_plans_folder(found, strlen(folder)));
}
