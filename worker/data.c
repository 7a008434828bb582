/* data.c - a mapped text file, its held-out end, and windows drawn from the rest. */
#include "worker/data.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rng.h"

static enum tw_status map_file(struct tw_data *data, int fd, const char *path,
                               struct tw_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return tw_fail(err, TW_DATA, "training text %.120s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return tw_fail(err, TW_DATA, "training text %.120s is not a plain file: name a text file",
                       path);
    }
    if (info.st_size == 0) {
        return tw_fail(err, TW_DATA, "training text %.120s is empty", path);
    }
    data->bytes = (size_t)info.st_size;
    void *text = mmap(NULL, data->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) {
        return tw_fail(err, TW_DATA, "training text %.120s cannot be mapped: %s", path,
                       strerror(errno));
    }
    data->text = text;
    return TW_OK;
}

enum tw_status tw_data_open(struct tw_data *data, const char *path, const struct tw_run *run,
                            struct tw_error *err) {
    *data = (struct tw_data){.context = run->model.context};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return tw_fail(err, TW_DATA,
                       "training text %.120s: %s; name a text file that this user can read", path,
                       strerror(errno));
    }
    const enum tw_status status = map_file(data, fd, path, err);
    (void)close(fd);
    if (status != TW_OK) return status;

    const uint64_t share = run->data.heldout_millionths;
    const uint64_t heldout =
        data->bytes / 1000000 * share + data->bytes % 1000000 * share / 1000000;
    const size_t window = (size_t)data->context + 1, bytes = data->bytes;
    data->train_bytes = bytes - (size_t)heldout;
    if (data->train_bytes < window || (share > 0 && heldout < window)) {
        tw_data_close(data);
        return tw_fail(
            err, TW_DATA,
            "training text %.120s has %zu bytes, too few for one window of %zu on either "
            "side of the held-out split: use a longer text or a shorter context",
            path, bytes, window);
    }
    return TW_OK;
}

void tw_data_close(struct tw_data *data) {
    if (data->text != NULL) (void)munmap((void *)(uintptr_t)data->text, data->bytes);
    *data = (struct tw_data){0};
}

static void copy_window(const struct tw_data *data, uint64_t begin, uint32_t *tokens) {
    for (uint32_t i = 0; i <= data->context; i++) tokens[i] = data->text[begin + i];
}

void tw_data_draw(const struct tw_data *data, uint64_t seed, uint64_t *cursor,
                  uint32_t sequences_count, uint32_t *tokens) {
    const uint64_t starts = data->train_bytes - data->context; /* a window is context + 1 */
    for (uint32_t i = 0; i < sequences_count; i++) {
        /* A number of its own for each window, from seed and cursor. */
        uint64_t state = seed;
        state = tw_splitmix64(&state) ^ *cursor;
        copy_window(data, tw_splitmix64(&state) % starts, tokens);
        tokens += data->context + 1;
        *cursor += data->context;
    }
}

uint64_t tw_data_heldout_count(const struct tw_data *data) {
    const uint64_t heldout = data->bytes - data->train_bytes;
    return heldout == 0 ? 0 : (heldout - 1) / data->context;
}

void tw_data_heldout(const struct tw_data *data, uint64_t i, uint64_t count, uint32_t *tokens) {
    const uint64_t windows = tw_data_heldout_count(data);
    TW_ASSERT(i < count && count <= windows);
    /* floor(i windows / count): below 2^64 for texts of less than 2^38 windows taken. */
    copy_window(data, data->train_bytes + i * windows / count * data->context, tokens);
}
