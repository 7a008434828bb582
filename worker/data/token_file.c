#include "worker/data/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"

enum { TOKEN_BYTES_MAX = 8, ROOM_BYTES = TW_TOKEN_READ_MAX * TOKEN_BYTES_MAX };

_Static_assert((int)ROOM_BYTES >= (int)TW_SHARD_PIECE_BYTES, "a piece fits");
_Static_assert((int)ROOM_BYTES >= (int)TW_SHARD_HEAD_BYTES_MAX, "a head fits");

void tw_token_file_deinit(struct tw_token_file *file) {
    if (file->fd >= 0 && file->path != NULL) (void)close(file->fd);
    free(file->path);
    free(file->checked);
    *file = (struct tw_token_file){.fd = -1};
}

void tw_token_file_set_shard(struct tw_token_file *file, const struct tw_shard *shard) {
    file->is_shard = true;
    file->token_bytes = shard->token_bytes;
    file->begin_bytes = shard->head_bytes;
    file->tokens_count = shard->tokens_count;
    file->documents_begin = shard->documents_begin;
    file->documents_count = shard->documents_count;
    file->file_bytes = shard->head_bytes + shard->body_bytes;
}

enum tw_status tw_token_reader_init(struct tw_token_reader *reader, uint64_t vocab,
                                    struct tw_error *err) {
    *reader = (struct tw_token_reader){.vocab = vocab, .bytes = malloc(ROOM_BYTES)};
    if (reader->bytes != NULL) return TW_OK;
    return tw_fail(err, TW_NOMEM, "no memory to read training data");
}

void tw_token_reader_deinit(struct tw_token_reader *reader) {
    for (unsigned i = 0; i < TW_TOKEN_FILES_OPEN; i++) {
        if (reader->open[i] == NULL) continue;
        (void)close(reader->open[i]->fd);
        reader->open[i]->fd = -1;
    }
    free(reader->bytes);
    *reader = (struct tw_token_reader){.bytes = NULL};
}

/* ---- bytes ----------------------------------------------------------------------------------- */

enum tw_status tw_token_file_bytes(int fd, const char *path, uint64_t offset, void *bytes,
                                   size_t size, struct tw_error *err) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(fd, (uint8_t *)bytes + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tw_fail(err, TW_DATA, "%.120s: %s", path, strerror(errno));
        if (n == 0) {
            return tw_fail(err, TW_DATA,
                           "%.120s ends at byte %" PRIu64 " but must have byte %" PRIu64
                           ": it was cut off; copy it again",
                           path, offset + done, offset + size - 1);
        }
        done += (size_t)n;
    }
    return TW_OK;
}

bool tw_token_file_is_there(const struct tw_token_file *file) {
    struct stat info;
    return stat(file->path, &info) == 0 && S_ISREG(info.st_mode) &&
           (uint64_t)info.st_size == file->file_bytes;
}

/* If the cache is full, closes the file that was opened first. */
enum tw_status tw_token_open(struct tw_token_reader *reader, struct tw_token_file *file,
                             struct tw_error *err) {
    if (file->fd >= 0) return TW_OK;
    struct tw_token_file **const slot = &reader->open[reader->open_next];
    if (*slot != NULL) {
        (void)close((*slot)->fd);
        (*slot)->fd = -1;
        *slot = NULL;
    }
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0) return tw_fail(err, TW_DATA, "%.120s: %s", file->path, strerror(errno));
    *slot = file;
    reader->open_next = (reader->open_next + 1) % TW_TOKEN_FILES_OPEN;
    return TW_OK;
}

/* ---- pieces of a shard ----------------------------------------------------------------------- */

static enum tw_status check_piece(struct tw_token_reader *reader, struct tw_token_file *file,
                                  uint32_t piece, struct tw_error *err) {
    struct tw_shard shard;
    const uint32_t head_bytes = (uint32_t)file->begin_bytes;
    TW_TRY(tw_token_file_bytes(file->fd, file->path, 0, reader->bytes, head_bytes, err));
    const struct tw_id name = tw_sha256(reader->bytes, head_bytes);
    if (!tw_id_equal(&name, &file->name) ||
        tw_shard_decode(reader->bytes, head_bytes, &shard, NULL) != TW_OK ||
        shard.tokens_count != file->tokens_count ||
        shard.documents_count != file->documents_count || shard.token_bytes != file->token_bytes) {
        return tw_fail(err, TW_DATA,
                       "%.120s is not the shard that the index names: delete it, and fetch or copy "
                       "it again",
                       file->path);
    }
    TW_ASSERT(piece < shard.pieces_count);
    const struct tw_id wanted = tw_shard_digest(reader->bytes, piece);
    const uint32_t size = tw_shard_piece_bytes(&shard, piece);
    const uint64_t offset = file->begin_bytes + (uint64_t)piece * TW_SHARD_PIECE_BYTES;
    TW_TRY(tw_token_file_bytes(file->fd, file->path, offset, reader->bytes, size, err));
    const struct tw_id found = tw_sha256(reader->bytes, size);
    if (!tw_id_equal(&found, &wanted)) {
        return tw_fail(err, TW_DATA,
                       "%.120s is damaged within bytes %" PRIu64 " to %" PRIu64
                       ": delete it, and fetch or copy it again",
                       file->path, offset, offset + size - 1);
    }
    file->checked[piece / 8] |= (uint8_t)(1u << piece % 8);
    return TW_OK;
}

/* Verifies every piece of the shard that bytes [begin, end) of its body touch, unless it is already
 * verified. */
static enum tw_status check_pieces(struct tw_token_reader *reader, struct tw_token_file *file,
                                   uint64_t begin, uint64_t end, struct tw_error *err) {
    if (file->checked == NULL) {
        const uint64_t body = file->file_bytes - file->begin_bytes;
        file->checked = calloc((size_t)(body / TW_SHARD_PIECE_BYTES / 8 + 1), 1);
        if (file->checked == NULL) return tw_fail(err, TW_NOMEM, "no memory to read a shard");
    }
    const uint64_t last = (end - 1) / TW_SHARD_PIECE_BYTES;
    for (uint64_t i = begin / TW_SHARD_PIECE_BYTES; i <= last; i++) {
        if ((file->checked[i / 8] >> i % 8 & 1) != 0) continue;
        TW_TRY(check_piece(reader, file, (uint32_t)i, err));
    }
    return TW_OK;
}

/* Reads `size` bytes of the file, from offset begin_bytes + begin on, into reader->bytes. */
static enum tw_status fetch_bytes(struct tw_token_reader *reader, struct tw_token_file *file,
                                  uint64_t begin, size_t size, struct tw_error *err) {
    TW_ASSERT(size > 0 && size <= ROOM_BYTES);
    TW_TRY(tw_token_open(reader, file, err));
    if (file->is_shard) TW_TRY(check_pieces(reader, file, begin, begin + size, err));
    return tw_token_file_bytes(file->fd, file->path, file->begin_bytes + begin, reader->bytes, size,
                               err);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Reads a token as an unsigned number. A negative one thus becomes larger than any vocabulary. */
static uint64_t token_at(const struct tw_token_file *file, const uint8_t *bytes, uint32_t i) {
    switch (file->token_bytes) {
    case 1: return bytes[i];
    case 2: {
        const uint16_t token = tw_get_u16(bytes + 2 * (size_t)i);
        return file->is_signed ? (uint64_t)(int16_t)token : token;
    }
    case 4: {
        const uint32_t token = tw_get_u32(bytes + 4 * (size_t)i);
        return file->is_signed ? (uint64_t)(int32_t)token : token;
    }
    default: return tw_get_u64(bytes + 8 * (size_t)i);
    }
}

static enum tw_status take_tokens(const struct tw_token_reader *reader,
                                  const struct tw_token_file *file, uint64_t first, uint32_t count,
                                  uint32_t *tokens, struct tw_error *err) {
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t token = token_at(file, reader->bytes, i);
        if (token >= reader->vocab || token > UINT32_MAX) {
            return tw_fail(err, TW_DATA,
                           "%.120s: token %" PRIu64 " is %" PRId64
                           ", outside the vocabulary of %" PRIu64
                           ": it was not made with this model's tokenizer",
                           file->path, first + i, (int64_t)token, reader->vocab);
        }
        tokens[i] = (uint32_t)token;
    }
    return TW_OK;
}

enum tw_status tw_token_read(struct tw_token_reader *reader, struct tw_token_file *file,
                             uint64_t first, uint32_t count, uint32_t *tokens,
                             struct tw_error *err) {
    TW_ASSERT(first <= file->tokens_count);
    TW_ASSERT(count <= file->tokens_count - first);
    while (count > 0) {
        const uint32_t n = count < TW_TOKEN_READ_MAX ? count : TW_TOKEN_READ_MAX;
        TW_TRY(fetch_bytes(reader, file, first * file->token_bytes, (size_t)n * file->token_bytes,
                           err));
        TW_TRY(take_tokens(reader, file, first, n, tokens, err));
        first += n;
        tokens += n;
        count -= n;
    }
    return TW_OK;
}

enum tw_status tw_token_document(struct tw_token_reader *reader, struct tw_token_file *file,
                                 uint64_t i, uint64_t *first, uint64_t *count,
                                 struct tw_error *err) {
    TW_ASSERT(file->is_shard);
    TW_ASSERT(i < file->documents_count);
    const bool is_last = i + 1 == file->documents_count;
    TW_TRY(fetch_bytes(reader, file, file->documents_begin + 4 * i, is_last ? 4 : 8, err));
    const uint64_t begin = tw_get_u32(reader->bytes);
    const uint64_t end = is_last ? file->tokens_count : tw_get_u32(reader->bytes + 4);
    if (begin >= end || end > file->tokens_count) {
        return tw_fail(err, TW_DATA,
                       "%.120s: document %" PRIu64 " cannot run from token %" PRIu64 " to %" PRIu64
                       ": the program that made this shard is faulty",
                       file->path, i, begin, end);
    }
    *first = begin;
    *count = end - begin;
    return TW_OK;
}
