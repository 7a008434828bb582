#include "worker/data/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "kernels/ops.h"

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
    file->has_answers = shard->has_answers;
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
        const uint64_t number = token_at(file, reader->bytes, i);
        const uint64_t token = file->has_answers ? number >> 1 : number;
        const bool is_unscored = file->has_answers && (number & 1) == 0;
        if (token >= reader->vocab || token > UINT32_MAX) {
            return tw_fail(err, TW_DATA,
                           "%.120s: token %" PRIu64 " is %" PRId64
                           ", outside the vocabulary of %" PRIu64
                           ": it was not made with this model's tokenizer",
                           file->path, first + i, (int64_t)token, reader->vocab);
        }
        tokens[i] = (uint32_t)token | (is_unscored ? TW_TOKEN_UNSCORED : 0);
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

/* ---- Megatron-LM ----------------------------------------------------------------------------- */

/* The .idx file begins with a header: MMIDIDX\0\0, u64 version, u8 type, u64 sequences, u64
 * documents + 1. Three tables follow: the length of each sequence (i32), the byte offset of each
 * sequence (i64), and the first sequence of each document (i64). */
enum { MAGIC_BYTES = 9, AT_VERSION = 9, AT_TYPE = 17, AT_SEQUENCES = 18, AT_DOCUMENTS = 26 };
enum { HEAD_BYTES = 34 };
static const char magic[MAGIC_BYTES] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

static bool ends_with(const char *path, const char *end) {
    const size_t size = strlen(path), end_size = strlen(end);
    return size > end_size && strcmp(path + size - end_size, end) == 0;
}

/* Replaces the extension .idx or .bin of path by `end`, or appends `end` if there is none. */
static bool sibling(const char *path, const char *end, char to[PATH_MAX]) {
    const bool has_end = ends_with(path, ".idx") || ends_with(path, ".bin");
    const size_t size = strlen(path) - (has_end ? 4 : 0);
    if (size + 5 > PATH_MAX) return false;
    memcpy(to, path, size);
    memcpy(to + size, end, 5);
    return true;
}

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool tw_megatron_is_pair(const char *path) {
    char index[PATH_MAX], tokens[PATH_MAX];
    uint8_t head[MAGIC_BYTES];
    if (ends_with(path, ".idx")) return is_file(path);
    if (is_file(path) && !ends_with(path, ".bin")) return false;
    if (!sibling(path, ".idx", index) || !sibling(path, ".bin", tokens)) return false;
    if (!is_file(tokens)) return false;
    const int fd = open(index, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* it may be a FIFO */
    if (fd < 0) return false;
    const bool is_index = read(fd, head, sizeof(head)) == (ssize_t)sizeof(head) &&
                          memcmp(head, magic, sizeof(magic)) == 0;
    (void)close(fd);
    return is_index;
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum tw_status open_files(struct tw_megatron *pair, const char *path, uint64_t *index_bytes,
                                 struct tw_error *err) {
    char name[PATH_MAX];
    struct stat info;
    *pair = (struct tw_megatron){.fd = -1};
    if (sibling(path, ".idx", name)) pair->index_path = strdup(name);
    if (sibling(path, ".bin", name)) pair->tokens_path = strdup(name);
    if (pair->index_path == NULL || pair->tokens_path == NULL) {
        return tw_fail(err, TW_NOMEM, "%.120s: no memory for its name", path);
    }
    if (stat(pair->tokens_path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return tw_fail(err, TW_DATA, "%.120s is not a plain file, but %.100s needs it",
                       pair->tokens_path, pair->index_path);
    }
    pair->tokens_file_bytes = (uint64_t)info.st_size;
    pair->fd = open(pair->index_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (pair->fd < 0 || fstat(pair->fd, &info) != 0) {
        return tw_fail(err, TW_DATA, "%.120s: %s", pair->index_path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return tw_fail(err, TW_DATA, "%.120s is not a plain file", pair->index_path);
    }
    *index_bytes = (uint64_t)info.st_size;
    return TW_OK;
}

static enum tw_status set_type(struct tw_megatron *pair, uint8_t type, struct tw_error *err) {
    static const struct {
        uint8_t bytes;
        bool is_signed;
    } TYPES[] = {
        [1] = {1, false}, [3] = {2, true}, [4] = {4, true}, [5] = {8, true}, [8] = {2, false}};
    if (type >= sizeof(TYPES) / sizeof(TYPES[0]) || TYPES[type].bytes == 0) {
        return tw_fail(err, TW_DATA,
                       "%.120s: numbers of type %u; those of 1 (u8), 3 (i16), 4 (i32), 5 (i64) and "
                       "8 (u16) are read",
                       pair->index_path, type);
    }
    pair->token_bytes = TYPES[type].bytes;
    pair->is_signed = TYPES[type].is_signed;
    return TW_OK;
}

static enum tw_status damaged(const struct tw_megatron *pair, const char *what, uint64_t at,
                              struct tw_error *err) {
    return tw_fail(err, TW_DATA, "%.120s: %s %" PRIu64 " is impossible: the file is damaged",
                   pair->index_path, what, at);
}

static enum tw_status read_head(struct tw_megatron *pair, uint64_t index_bytes,
                                struct tw_error *err) {
    uint8_t head[HEAD_BYTES];
    if (index_bytes < HEAD_BYTES) {
        return tw_fail(err, TW_DATA, "%.120s is not an index of Megatron-LM: it is too short",
                       pair->index_path);
    }
    TW_TRY(tw_token_file_bytes(pair->fd, pair->index_path, 0, head, sizeof(head), err));
    if (memcmp(head, magic, sizeof(magic)) != 0) {
        return tw_fail(err, TW_DATA,
                       "%.120s is not an index of Megatron-LM: it does not begin with MMIDIDX",
                       pair->index_path);
    }
    if (tw_get_u64(head + AT_VERSION) != 1) {
        return tw_fail(err, TW_DATA, "%.120s is of version %" PRIu64 "; version 1 is read",
                       pair->index_path, tw_get_u64(head + AT_VERSION));
    }
    TW_TRY(set_type(pair, head[AT_TYPE], err));
    const uint64_t sequences = tw_get_u64(head + AT_SEQUENCES);
    const uint64_t documents = tw_get_u64(head + AT_DOCUMENTS);
    const uint64_t room = index_bytes - HEAD_BYTES;
    /* After the tables, the file may hold one more byte per sequence, the sequence's mode. */
    if (sequences == 0 || documents < 2 || sequences > room / 12 || documents > room / 8 ||
        (room - 12 * sequences < 8 * documents)) {
        return tw_fail(err, TW_DATA,
                       "%.120s names %" PRIu64 " sequences and %" PRIu64
                       " documents, which its %" PRIu64 " bytes do not hold: it is cut off",
                       pair->index_path, sequences, documents, index_bytes);
    }
    pair->sequences_count = sequences;
    pair->documents_count = documents - 1;
    return TW_OK;
}

enum tw_status tw_megatron_open(struct tw_megatron *pair, const char *path, struct tw_error *err) {
    uint64_t index_bytes = 0, first = 0, end = 0;
    enum tw_status status = open_files(pair, path, &index_bytes, err);
    if (status == TW_OK) status = read_head(pair, index_bytes, err);
    if (status == TW_OK) {
        pair->tokens_count = pair->tokens_file_bytes / pair->token_bytes;
        if (pair->tokens_count == 0 || pair->tokens_file_bytes % pair->token_bytes != 0) {
            status =
                tw_fail(err, TW_DATA,
                        "%.120s has %" PRIu64 " bytes, not a whole number of %u-byte tokens: it "
                        "is cut off",
                        pair->tokens_path, pair->tokens_file_bytes, pair->token_bytes);
        }
    }
    if (status == TW_OK) status = tw_megatron_document(pair, 0, &first, err);
    if (status == TW_OK) status = tw_megatron_document(pair, pair->documents_count, &end, err);
    if (status == TW_OK && first != 0)
        status = damaged(pair, "the first document at token", first, err);
    if (status != TW_OK) tw_megatron_close(pair);
    return status;
}

void tw_megatron_close(struct tw_megatron *pair) {
    if (pair->index_path != NULL && pair->fd >= 0) (void)close(pair->fd);
    free(pair->index_path);
    free(pair->tokens_path);
    *pair = (struct tw_megatron){.fd = -1};
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Sets *first and *end to the token range of sequence i, and checks that it is within the file. */
static enum tw_status sequence_at(const struct tw_megatron *pair, uint64_t i, uint64_t *first,
                                  uint64_t *end, struct tw_error *err) {
    uint8_t length[4], pointer[8];
    const uint64_t pointers = HEAD_BYTES + 4 * pair->sequences_count;
    TW_TRY(tw_token_file_bytes(pair->fd, pair->index_path, HEAD_BYTES + 4 * i, length,
                               sizeof(length), err));
    TW_TRY(tw_token_file_bytes(pair->fd, pair->index_path, pointers + 8 * i, pointer,
                               sizeof(pointer), err));
    const uint64_t at = tw_get_u64(pointer), count = tw_get_u32(length);
    *first = at / pair->token_bytes;
    *end = *first + count;
    if (at % pair->token_bytes == 0 && count <= INT32_MAX && *first <= pair->tokens_count &&
        count <= pair->tokens_count - *first) {
        return TW_OK;
    }
    return damaged(pair, "the place of sequence", i, err);
}

enum tw_status tw_megatron_document(const struct tw_megatron *pair, uint64_t i, uint64_t *first,
                                    struct tw_error *err) {
    uint8_t bytes[8];
    uint64_t end = 0;
    TW_ASSERT(i <= pair->documents_count);
    const uint64_t documents = HEAD_BYTES + 12 * pair->sequences_count;
    TW_TRY(tw_token_file_bytes(pair->fd, pair->index_path, documents + 8 * i, bytes, sizeof(bytes),
                               err));
    const uint64_t sequence = tw_get_u64(bytes);
    if (sequence > pair->sequences_count) return damaged(pair, "the beginning of document", i, err);
    if (sequence < pair->sequences_count) return sequence_at(pair, sequence, first, &end, err);
    TW_TRY(sequence_at(pair, sequence - 1, first, &end, err));
    if (end != pair->tokens_count) {
        return tw_fail(err, TW_DATA,
                       "%.120s ends at token %" PRIu64 ", and %.80s has %" PRIu64
                       ": they do not belong together",
                       pair->index_path, end, pair->tokens_path, pair->tokens_count);
    }
    *first = end;
    return TW_OK;
}

enum tw_status tw_megatron_boundary(const struct tw_megatron *pair, uint64_t token, uint64_t *first,
                                    struct tw_error *err) {
    /* binary search: the answer is in [low, high] */
    uint64_t low = 0, high = pair->documents_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        uint64_t begin = 0;
        TW_TRY(tw_megatron_document(pair, middle, &begin, err));
        if (begin >= token) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return tw_megatron_document(pair, low, first, err);
}
