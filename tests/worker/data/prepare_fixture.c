/* prepare_fixture.c - folders for tests of prepare. */
#include "prepare_fixture.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/test.h"

struct prepare_fixture *prepare_fixture_create(void) {
    struct prepare_fixture *const at = calloc(1, sizeof(*at));
    assert_non_null(at);
    (void)snprintf(at->folder, sizeof(at->folder), "/tmp/tw-prepare-XXXXXX");
    assert_non_null(mkdtemp(at->folder));
    (void)snprintf(at->in, sizeof(at->in), "%s/in", at->folder);
    (void)snprintf(at->in_a, sizeof(at->in_a), "%s/in/a", at->folder);
    (void)snprintf(at->out, sizeof(at->out), "%s/out", at->folder);
    assert_int_equal(mkdir(at->in, 0700), 0);
    at->inputs[0] = at->in;
    at->options = (struct tw_prepare_options){.out = at->out,
                                              .field = "text",
                                              .unit = TW_TEXT_PASSAGES,
                                              .heldout_millionths = 10000,
                                              .shard_tokens = 8000000,
                                              .threads = 2,
                                              .is_quiet = true,
                                              .sources_count = 1,
                                              .sources = {{"text", 0, at->inputs, 1}}};
    return at;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    return remove(path);
}

int prepare_fixture_destroy(struct prepare_fixture *at) {
    const int failed = nftw(at->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(at);
    return failed;
}

char *prepare_fixture_path(const struct prepare_fixture *at, const char *name) {
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", at->folder, name) > 0);
    return path;
}

void prepare_fixture_write(const struct prepare_fixture *at, const char *name, const void *bytes,
                           size_t size) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", at->in, name);
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void prepare_fixture_fill(const struct prepare_fixture *at, size_t bytes, uint64_t seed) {
    char name[16], *const text = malloc(bytes);
    struct tw_rng rng;
    assert_non_null(text);
    tw_rng_seed(&rng, seed);
    for (int i = 0; i < 2; i++) {
        size_t used = 0;
        while (used < bytes) {
            const uint64_t kind = tw_rng_below(&rng, 60);
            text[used++] = (char)(kind < 8 ? ' ' : kind == 9 ? '\n' : 'a' + kind % 26);
            if (kind == 9 && used < bytes && tw_rng_below(&rng, 6) == 0) text[used++] = '\n';
        }
        (void)snprintf(name, sizeof(name), "text-%d", i);
        prepare_fixture_write(at, name, text, bytes);
    }
    free(text);
}

uint8_t *prepare_fixture_read(const struct prepare_fixture *at, const char *name, size_t *size) {
    char path[256];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/%s", at->out, name);
    FILE *const file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s is not there", path);
    assert_int_equal(fstat(fileno(file), &info), 0);
    uint8_t *const bytes = malloc((size_t)info.st_size + 1);
    assert_non_null(bytes);
    *size = fread(bytes, 1, (size_t)info.st_size, file);
    assert_int_equal(*size, info.st_size);
    (void)fclose(file);
    return bytes;
}
