/* data.c - a mapped file of bytes or token numbers, its held-out end, and windows drawn from the
 * rest. */
#include "worker/data.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
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

/* ---- token numbers --------------------------------------------------------------------------- */

/* Headers of llm.c's token shards: 256 words, the first three magic, version, tokens. */
enum { SHARD_BYTES = 1024, SHARD_16 = 20240520, SHARD_32 = 20240801 };

static uint32_t token_at(const struct tw_data *data, uint64_t i) {
    if (data->token_bytes == 1) return data->tokens[i];
    return data->token_bytes == 2 ? tw_get_u16(data->tokens + 2 * i)
                                  : tw_get_u32(data->tokens + 4 * i);
}

static enum tw_status find_ids(struct tw_data *data, const char *path, const struct tw_run *run,
                               struct tw_error *err) {
    size_t left = data->bytes;
    const uint32_t magic = left >= SHARD_BYTES ? tw_get_u32(data->text) : 0;
    data->token_bytes = run->model.vocab <= 65536 ? 2 : 4;
    if (magic == SHARD_16 || magic == SHARD_32) {
        data->token_bytes = magic == SHARD_16 ? 2 : 4;
        data->tokens += SHARD_BYTES;
        left -= SHARD_BYTES;
        if (tw_get_u32(data->text + 8) != left / data->token_bytes) {
            return tw_fail(err, TW_DATA,
                           "training text %.120s is a token shard of %u tokens and holds %zu: it "
                           "is cut off or damaged",
                           path, tw_get_u32(data->text + 8), left / data->token_bytes);
        }
    }
    data->tokens_count = left / data->token_bytes;
    if (left % data->token_bytes == 0) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "training text %.120s has %zu bytes, no whole number of %u-byte token numbers: "
                   "data.tokenizer is ids",
                   path, left, data->token_bytes);
}

/* Two letters are a number below 31355, so text would be taken for tokens without a word. */
static bool looks_like_text(const struct tw_data *data) {
    enum { LOOKED_AT = 4096 };
    const size_t count = data->bytes < LOOKED_AT ? data->bytes : LOOKED_AT;
    for (size_t i = 0; i < count; i++) {
        const uint8_t byte = data->text[i];
        const bool is_text =
            (byte >= 32 && byte < 127) || byte == '\n' || byte == '\t' || byte == '\r';
        if (!is_text) return false;
    }
    return true;
}

static enum tw_status check_ids(const struct tw_data *data, const char *path, uint32_t vocab,
                                struct tw_error *err) {
    if (looks_like_text(data)) {
        return tw_fail(err, TW_DATA,
                       "training text %.120s is text, but data.tokenizer is ids: give token "
                       "numbers, or make a run with --set data.tokenizer=bytes --set "
                       "model.vocab=256",
                       path);
    }
    for (uint64_t i = 0; i < data->tokens_count; i++) {
        if (token_at(data, i) < vocab) continue;
        return tw_fail(err, TW_DATA,
                       "training text %.120s: token %llu is %u, outside the vocabulary of %u: it "
                       "was not made with this model's tokenizer",
                       path, (unsigned long long)i, token_at(data, i), vocab);
    }
    return TW_OK;
}

/* ---- the split ------------------------------------------------------------------------------- */

static enum tw_status split(struct tw_data *data, const char *path, const struct tw_run *run,
                            struct tw_error *err) {
    const uint64_t share = run->data.heldout_millionths, count = data->tokens_count;
    const uint64_t heldout = count / 1000000 * share + count % 1000000 * share / 1000000;
    const uint64_t window = (uint64_t)data->context + 1;
    data->train_count = count - heldout;
    if (data->train_count >= window && (share == 0 || heldout >= window)) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "training text %.120s has %llu %s, too few for one window of %llu on either "
                   "side of the held-out split: use a longer text or a shorter context",
                   path, (unsigned long long)count, data->token_bytes == 1 ? "bytes" : "tokens",
                   (unsigned long long)window);
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
    enum tw_status status = map_file(data, fd, path, err);
    (void)close(fd);
    if (status != TW_OK) return status;
    data->tokens = data->text;
    data->token_bytes = 1;
    data->tokens_count = data->bytes;
    if (run->data.tokenizer == TW_TOKENIZER_IDS) {
        status = find_ids(data, path, run, err);
        if (status == TW_OK) status = check_ids(data, path, run->model.vocab, err);
    }
    if (status == TW_OK) status = split(data, path, run, err);
    if (status != TW_OK) tw_data_close(data);
    return status;
}

void tw_data_close(struct tw_data *data) {
    if (data->text != NULL) (void)munmap((void *)(uintptr_t)data->text, data->bytes);
    *data = (struct tw_data){0};
}

static void copy_window(const struct tw_data *data, uint64_t begin, uint32_t *tokens) {
    for (uint32_t i = 0; i <= data->context; i++) tokens[i] = token_at(data, begin + i);
}

void tw_data_draw(const struct tw_data *data, uint64_t seed, uint64_t *cursor,
                  uint32_t sequences_count, uint32_t *tokens) {
    const uint64_t starts = data->train_count - data->context; /* a window is context + 1 */
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
    const uint64_t heldout = data->tokens_count - data->train_count;
    return heldout == 0 ? 0 : (heldout - 1) / data->context;
}

void tw_data_heldout(const struct tw_data *data, uint64_t i, uint64_t count, uint32_t *tokens) {
    const uint64_t windows = tw_data_heldout_count(data);
    TW_ASSERT(i < count && count <= windows);
    /* floor(i windows / count): below 2^64 for texts of less than 2^38 windows taken. */
    copy_window(data, data->train_count + i * windows / count * data->context, tokens);
}
