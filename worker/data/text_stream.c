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
#include <zstd_errors.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/file_kind.h"
#include "base/machine.h"
#include "base/units.h"

enum {
    PACKED_BYTES = 128 << 10,
    SKIP_BYTES = 64 << 10,
    WINDOW_LOG = 27,     /* zstd accepts windows of up to 2^27 bytes by default */
    WINDOW_LOG_MAX = 31, /* largest window that zstd can make */
    FRAME_HEAD_BYTES = 14,
    FIRST_BYTES = 4096,
};

struct tw_text_stream {
    char *path;
    int fd;
    enum tw_packing packing;
    uint64_t taken;
    bool is_end;                /* end of the file reached */
    uint8_t first[FIRST_BYTES]; /* (first_bytes) bytes read at opening, of which first_at are
                                   consumed */
    size_t first_bytes, first_at;
    /* Packed only: */
    uint8_t *packed; /* (packed_bytes) bytes read from the file, of which packed_at are consumed */
    size_t packed_bytes, packed_at;
    bool is_between; /* at the end of a gzip member or zstd frame, where the file may end */
    z_stream gzip;
    bool has_gzip;
    ZSTD_DStream *zstd;
    int window_log;    /* log2 of the window size that zstd may use at present */
    uint64_t frame_at; /* offset of the current zstd frame in the file */
};

static const char *packing_name(enum tw_packing packing) {
    return packing == TW_PACKING_GZIP ? "gzip" : "zstd";
}

/* ---- the file -------------------------------------------------------------------------------- */

static size_t held_bytes(const struct tw_text_stream *stream) {
    return stream->first_bytes - stream->first_at;
}

static enum tw_status read_file(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                size_t *got, struct tw_error *err) {
    const size_t held = held_bytes(stream);
    *got = held < room ? held : room;
    memcpy(to, stream->first + stream->first_at, *got);
    stream->first_at += *got;
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

static void set_window(struct tw_text_stream *stream, int log) {
    stream->window_log = log;
    TW_ASSERT(!ZSTD_isError(ZSTD_DCtx_setParameter(stream->zstd, ZSTD_d_windowLogMax, log)));
}

static enum tw_status unpack_init(struct tw_text_stream *stream, struct tw_error *err) {
    stream->packed = malloc(PACKED_BYTES);
    stream->is_between = true;
    if (stream->packing == TW_PACKING_GZIP) {
        /* 15: the largest window; + 16: expect a gzip header */
        stream->has_gzip = inflateInit2(&stream->gzip, 16 + 15) == Z_OK;
    } else {
        stream->zstd = ZSTD_createDStream();
    }
    const bool is_made = stream->has_gzip || stream->zstd != NULL;
    if (stream->packed == NULL || !is_made) {
        return tw_fail(err, TW_NOMEM, "%s: no memory to unpack it", stream->path);
    }
    if (stream->zstd != NULL) set_window(stream, WINDOW_LOG);
    return TW_OK;
}

/* Detects the compression by the first bytes. */
static enum tw_status look(struct tw_text_stream *stream, struct tw_error *err) {
    uint8_t *const first = stream->first;
    TW_TRY(read_file(stream, first, FIRST_BYTES, &stream->first_bytes, err));
    stream->packing = tw_packing_of_bytes(first, stream->first_bytes);
    return stream->packing != TW_PACKING_NONE ? unpack_init(stream, err) : TW_OK;
}

enum tw_status tw_text_stream_open(struct tw_text_stream **stream_out, const char *path,
                                   struct tw_error *err) {
    struct stat info;
    struct tw_text_stream *const stream = calloc(1, sizeof(*stream));
    *stream_out = NULL;
    if (stream == NULL) return tw_fail(err, TW_NOMEM, "%s: no memory to read it", path);
    stream->path = strdup(path);
    stream->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum tw_status status = TW_OK;
    if (stream->path == NULL) {
        status = tw_fail(err, TW_NOMEM, "%s: no memory to read it", path);
    } else if (stream->fd < 0 || fstat(stream->fd, &info) != 0) {
        status = tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = tw_fail(err, TW_DATA, "%s is not a plain file", path);
    } else {
        status = look(stream, err);
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

/* Reports bytes after the last gzip member or zstd frame. The compressed data themselves are not
 * damaged. */
static enum tw_status has_rest(const struct tw_text_stream *stream, struct tw_error *err) {
    return tw_fail(
        err, TW_DATA,
        "%s: its %s data end at byte %llu, and other bytes follow: cut them off, or fetch "
        "it again",
        stream->path, packing_name(stream->packing),
        (unsigned long long)tw_text_stream_taken(stream));
}

/* Skips zeros after a gzip member: gzip itself accepts them as padding, too. */
static void skip_padding(struct tw_text_stream *stream) {
    while (stream->packed_at < stream->packed_bytes && stream->packed[stream->packed_at] == 0) {
        stream->packed_at++;
    }
}

/* Decompresses one step: consumes some bytes of `packed` and adds the bytes written to *got. */
static enum tw_status unpack_gzip(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                  size_t *got, struct tw_error *err) {
    z_stream *const gzip = &stream->gzip;
    if (stream->is_between) {
        skip_padding(stream);
        if (stream->packed_at == stream->packed_bytes) return TW_OK;
        if (stream->packed[stream->packed_at] != 0x1F) return has_rest(stream, err);
        if (inflateReset(gzip) != Z_OK) return damaged(stream, err, "gzip");
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

/* Size of the window that the header of a zstd frame asks for (RFC 8878, 3.1.1.1), or 0 if
 * unknown. */
static uint64_t frame_window(const uint8_t *head, size_t size) {
    static const uint8_t ID_BYTES[] = {0, 1, 2, 4};
    if (size < FRAME_HEAD_BYTES || tw_packing_of_bytes(head, size) != TW_PACKING_ZSTD) return 0;
    const bool is_single = (head[4] & 0x20) != 0;
    if (is_single) { /* a single-segment frame: its window is its content */
        const size_t at = 5 + (size_t)ID_BYTES[head[4] & 3];
        return head[4] >> 6 == 3 && at + 8 <= size ? tw_get_u64(head + at)
               : head[4] >> 6 == 2                 ? tw_get_u32(head + at)
                                                   : 0;
    }
    const uint64_t base = UINT64_C(1) << (10 + (head[5] >> 3));
    return base + base / 8 * (head[5] & 7);
}

/* Reads the frame again with a window limit of half the free memory. */
static enum tw_status allow_window(struct tw_text_stream *stream, struct tw_error *err) {
    uint8_t head[FRAME_HEAD_BYTES];
    char needed[TW_UNITS_BYTES], free_text[TW_UNITS_BYTES];
    const uint64_t free_bytes = tw_machine_memory();
    const ssize_t size = pread(stream->fd, head, sizeof(head), (off_t)stream->frame_at);
    const uint64_t window = size > 0 ? frame_window(head, (size_t)size) : 0;
    int log = WINDOW_LOG;
    while (log < WINDOW_LOG_MAX && free_bytes / 2 > UINT64_C(1) << (log + 1)) log++;
    if (log == stream->window_log || window > UINT64_C(1) << log) {
        return tw_fail(err, TW_DATA,
                       "%s needs %s of memory to unpack (zstd --long), and half of the %s that are "
                       "free may be used: unpack it elsewhere (zstd -d --long=31)",
                       stream->path,
                       window > 0 ? tw_units_bytes(needed, (double)window) : "too much",
                       tw_units_bytes(free_text, (double)free_bytes));
    }
    (void)ZSTD_DCtx_reset(stream->zstd, ZSTD_reset_session_only);
    set_window(stream, log);
    if (lseek(stream->fd, (off_t)stream->frame_at, SEEK_SET) < 0) {
        return tw_fail(err, TW_IO, "%s: %s", stream->path, strerror(errno));
    }
    stream->taken = stream->frame_at;
    stream->first_at = stream->first_bytes;
    stream->packed_at = stream->packed_bytes = 0;
    stream->is_end = false;
    return TW_OK;
}

/* Explains an error of zstd. A file packed with --patch-from or a raw dictionary carries no mark of
 * it, so such a file may seem damaged. */
static enum tw_status explain_zstd(struct tw_text_stream *stream, size_t result,
                                   struct tw_error *err) {
    switch ((int)ZSTD_getErrorCode(result)) {
    case ZSTD_error_frameParameter_windowTooLarge: return allow_window(stream, err);
    case ZSTD_error_dictionary_wrong:
    case ZSTD_error_dictionary_corrupted:
        return tw_fail(err, TW_DATA,
                       "%s was packed with a dictionary, which is in another file: unpack it with "
                       "`zstd -d -D DICTIONARY`",
                       stream->path);
    case ZSTD_error_memory_allocation:
        return tw_fail(err, TW_NOMEM, "%s: no memory to unpack it", stream->path);
    case ZSTD_error_prefix_unknown:
        return stream->is_between ? has_rest(stream, err) : damaged(stream, err, "zstd");
    case ZSTD_error_frameParameter_unsupported:
    case ZSTD_error_version_unsupported:
        return tw_fail(err, TW_DATA,
                       "%s: zstd cannot unpack this kind of frame (%s): pack it again",
                       stream->path, ZSTD_getErrorName(result));
    default: break;
    }
    return tw_fail(
        err, TW_DATA,
        "%s is damaged within its first %llu bytes (%s): fetch it again; or it was packed "
        "with a dictionary or --patch-from",
        stream->path, (unsigned long long)stream->taken, ZSTD_getErrorName(result));
}

static enum tw_status unpack_zstd(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                  size_t *got, struct tw_error *err) {
    if (stream->is_between) stream->frame_at = tw_text_stream_taken(stream);
    ZSTD_inBuffer in = {
        .src = stream->packed, .size = stream->packed_bytes, .pos = stream->packed_at};
    ZSTD_outBuffer out = {.dst = to, .size = room, .pos = *got};
    const size_t result = ZSTD_decompressStream(stream->zstd, &out, &in);
    stream->packed_at = in.pos;
    *got = out.pos;
    if (ZSTD_isError(result)) return explain_zstd(stream, result, err);
    stream->is_between = result == 0;
    return TW_OK;
}

/* At the end of the file the decompressor is still called until it is empty, because it may hold
 * text for which there was no room. */
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
        const uint64_t place = stream->taken - held_bytes(stream) + bytes;
        if (lseek(stream->fd, (off_t)place, SEEK_SET) < 0) {
            return tw_fail(err, TW_IO, "%s: %s", stream->path, strerror(errno));
        }
        stream->taken = place;
        stream->first_at = stream->first_bytes;
        stream->is_end = false;
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
    return stream->taken - held_bytes(stream) - (stream->packed_bytes - stream->packed_at);
}

bool tw_text_stream_is_as_listed(const struct tw_text_stream *stream, uint64_t bytes,
                                 int64_t changed_ns) {
    struct stat info;
    return fstat(stream->fd, &info) == 0 && (uint64_t)info.st_size == bytes &&
           (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec == changed_ns;
}
