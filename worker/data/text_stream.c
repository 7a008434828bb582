#include "worker/data/text_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/assert.h"

enum {
    PACKED_BYTES = 128 << 10,
    SKIP_BYTES = 64 << 10,
    WINDOW_LOG_MAX = 27, /* zstd's own default limit */
};

struct tw_text_stream {
    char *path;
    int fd;
    enum tw_packing packing;
    uint64_t taken;
    bool is_end; /* end of the file reached */
    /* Packed only: */
    uint8_t *packed; /* (packed_bytes), of which packed_at are consumed */
    size_t packed_bytes, packed_at;
    bool is_between; /* at the end of a gzip member or zstd frame, where the file may end */
    z_stream gzip;
    bool has_gzip;
    ZSTD_DStream *zstd;
};

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

enum tw_packing tw_packing_of_name(const char *path) {
    if (ends_with(path, ".gz")) return TW_PACKING_GZIP;
    return ends_with(path, ".zst") ? TW_PACKING_ZSTD : TW_PACKING_NONE;
}

enum tw_packing tw_packing_of_bytes(const uint8_t *bytes, size_t size) {
    static const uint8_t FRAME[] = {0x28, 0xB5, 0x2F, 0xFD}, SKIPPED[] = {0x2A, 0x4D, 0x18};
    if (size >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B) return TW_PACKING_GZIP;
    if (size < sizeof(FRAME)) return TW_PACKING_NONE;
    const bool is_skipped = bytes[0] >> 4 == 5 && memcmp(bytes + 1, SKIPPED, 3) == 0;
    return is_skipped || memcmp(bytes, FRAME, 4) == 0 ? TW_PACKING_ZSTD : TW_PACKING_NONE;
}

static const char *packing_name(enum tw_packing packing) {
    return packing == TW_PACKING_GZIP ? "gzip" : "zstd";
}

/* ---- the file -------------------------------------------------------------------------------- */

static enum tw_status read_file(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                size_t *got, struct tw_error *err) {
    *got = 0;
    while (*got < room && !stream->is_end) {
        const ssize_t n = read(stream->fd, to + *got, room - *got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tw_fail(err, TW_IO, "%s: %s", stream->path, strerror(errno));
        stream->is_end = n == 0;
        *got += (size_t)n;
        stream->taken += (uint64_t)n;
    }
    return TW_OK;
}

/* Ensures that packed bytes are left, unless the file has ended. */
static enum tw_status refill(struct tw_text_stream *stream, struct tw_error *err) {
    if (stream->packed_at < stream->packed_bytes) return TW_OK;
    stream->packed_at = 0;
    return read_file(stream, stream->packed, PACKED_BYTES, &stream->packed_bytes, err);
}

static enum tw_status unpack_init(struct tw_text_stream *stream, struct tw_error *err) {
    stream->packed = malloc(PACKED_BYTES);
    if (stream->packing == TW_PACKING_GZIP) {
        /* 16: a gzip header, 15: the largest window */
        stream->has_gzip = inflateInit2(&stream->gzip, 16 + 15) == Z_OK;
    } else {
        stream->zstd = ZSTD_createDStream();
    }
    const bool is_made = stream->has_gzip || stream->zstd != NULL;
    if (stream->packed == NULL || !is_made) {
        return tw_fail(err, TW_NOMEM, "%s: no memory to unpack it", stream->path);
    }
    if (stream->zstd != NULL) {
        TW_ASSERT(!ZSTD_isError(
            ZSTD_DCtx_setParameter(stream->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)));
    }
    TW_TRY(refill(stream, err));
    if (stream->packed_bytes == 0) return tw_fail(err, TW_DATA, "%s is empty", stream->path);
    if (tw_packing_of_bytes(stream->packed, stream->packed_bytes) != stream->packing) {
        return tw_fail(err, TW_DATA, "%s does not begin as a %s file does; rename it if it is none",
                       stream->path, packing_name(stream->packing));
    }
    return TW_OK;
}

enum tw_status tw_text_stream_open(struct tw_text_stream **stream_out, const char *path,
                                   enum tw_packing packing, struct tw_error *err) {
    struct stat info;
    struct tw_text_stream *const stream = calloc(1, sizeof(*stream));
    *stream_out = NULL;
    if (stream == NULL) return tw_fail(err, TW_NOMEM, "%s: no memory to read it", path);
    stream->packing = packing;
    stream->path = strdup(path);
    stream->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum tw_status status = TW_OK;
    if (stream->path == NULL) {
        status = tw_fail(err, TW_NOMEM, "%s: no memory to read it", path);
    } else if (stream->fd < 0 || fstat(stream->fd, &info) != 0) {
        status = tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = tw_fail(err, TW_DATA, "%s is not a plain file", path);
    } else if (packing != TW_PACKING_NONE) {
        status = unpack_init(stream, err);
    }
    if (status == TW_OK) {
        (void)posix_fadvise(stream->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        *stream_out = stream;
    } else {
        tw_text_stream_close(stream);
    }
    return status;
}

void tw_text_stream_close(struct tw_text_stream *stream) {
    if (stream == NULL) return;
    if (stream->has_gzip) (void)inflateEnd(&stream->gzip);
    (void)ZSTD_freeDStream(stream->zstd);
    if (stream->fd >= 0) (void)close(stream->fd);
    free(stream->packed);
    free(stream->path);
    free(stream);
}

/* ---- unpacking ------------------------------------------------------------------------------- */

static enum tw_status damaged(const struct tw_text_stream *stream, struct tw_error *err,
                              const char *why) {
    return tw_fail(err, TW_DATA, "%s is damaged within its first %llu bytes (%s); fetch it again",
                   stream->path, (unsigned long long)stream->taken, why);
}

/* One step: consumes some of `packed`, adds to *got. */
static enum tw_status unpack_gzip(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                  size_t *got, struct tw_error *err) {
    z_stream *const gzip = &stream->gzip;
    if (stream->is_between && inflateReset(gzip) != Z_OK) {
        return damaged(stream, err, "gzip");
    }
    const size_t left = room - *got;
    gzip->next_in = stream->packed + stream->packed_at;
    gzip->avail_in = (uInt)(stream->packed_bytes - stream->packed_at);
    gzip->next_out = to + *got;
    gzip->avail_out = left > (size_t)1 << 30 ? 1u << 30 : (uInt)left;
    const int result = inflate(gzip, Z_NO_FLUSH);
    stream->packed_at = (size_t)(gzip->next_in - stream->packed);
    *got = (size_t)(gzip->next_out - to);
    stream->is_between = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR) {
        return tw_fail(err, TW_NOMEM, "%s: no memory to unpack it", stream->path);
    }
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return TW_OK;
    return damaged(stream, err, gzip->msg != NULL ? gzip->msg : "gzip");
}

static enum tw_status unpack_zstd(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                  size_t *got, struct tw_error *err) {
    ZSTD_inBuffer in = {
        .src = stream->packed, .size = stream->packed_bytes, .pos = stream->packed_at};
    ZSTD_outBuffer out = {.dst = to, .size = room, .pos = *got};
    const size_t result = ZSTD_decompressStream(stream->zstd, &out, &in);
    stream->packed_at = in.pos;
    *got = out.pos;
    if (ZSTD_isError(result)) return damaged(stream, err, ZSTD_getErrorName(result));
    stream->is_between = result == 0;
    return TW_OK;
}

/* At the end of the file the decompressor is called until it is empty: it may hold text for which
 * there was no room. */
static enum tw_status unpack(struct tw_text_stream *stream, uint8_t *to, size_t room, size_t *got,
                             struct tw_error *err) {
    while (*got < room) {
        TW_TRY(refill(stream, err));
        const bool is_dry = stream->packed_at == stream->packed_bytes;
        if (is_dry && stream->is_between) return TW_OK;
        const size_t before = *got;
        TW_TRY(stream->packing == TW_PACKING_GZIP ? unpack_gzip(stream, to, room, got, err)
                                                  : unpack_zstd(stream, to, room, got, err));
        if (is_dry && *got == before && !stream->is_between) {
            return tw_fail(err, TW_DATA,
                           "%s ends in the middle: it was cut short at %llu bytes; fetch it again",
                           stream->path, (unsigned long long)stream->taken);
        }
    }
    return TW_OK;
}

enum tw_status tw_text_stream_read(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                   size_t *got, struct tw_error *err) {
    *got = 0;
    if (stream->packing == TW_PACKING_NONE) return read_file(stream, to, room, got, err);
    return unpack(stream, to, room, got, err);
}

enum tw_status tw_text_stream_skip(struct tw_text_stream *stream, uint64_t bytes,
                                   struct tw_error *err) {
    if (stream->packing == TW_PACKING_NONE) {
        if (lseek(stream->fd, (off_t)bytes, SEEK_CUR) < 0) {
            return tw_fail(err, TW_IO, "%s: %s", stream->path, strerror(errno));
        }
        stream->taken += bytes;
        return TW_OK;
    }
    uint8_t *const waste = malloc(SKIP_BYTES);
    if (waste == NULL) return tw_fail(err, TW_NOMEM, "%s: no memory to read it", stream->path);
    enum tw_status status = TW_OK;
    while (bytes > 0 && status == TW_OK) {
        const size_t want = bytes < SKIP_BYTES ? (size_t)bytes : SKIP_BYTES;
        size_t got = 0;
        status = tw_text_stream_read(stream, waste, want, &got, err);
        if (status == TW_OK && got < want) {
            status = tw_fail(err, TW_DATA, "%s has become shorter", stream->path);
        }
        bytes -= got;
    }
    free(waste);
    return status;
}

uint64_t tw_text_stream_taken(const struct tw_text_stream *stream) {
    return stream->taken - (stream->packed_bytes - stream->packed_at);
}

bool tw_text_stream_is_as_listed(const struct tw_text_stream *stream, uint64_t bytes,
                                 int64_t changed_ns) {
    struct stat info;
    return fstat(stream->fd, &info) == 0 && (uint64_t)info.st_size == bytes &&
           (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec == changed_ns;
}
