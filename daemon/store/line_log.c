#include "daemon/store/line_log.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TAIL_BYTES = 64 << 10, /* longer than any line that a crash can truncate */
};

void tw_line_log_name(uint64_t number, char name[TW_LINE_LOG_NAME_BYTES]) {
    (void)snprintf(name, TW_LINE_LOG_NAME_BYTES, "%08llu.jsonl", (unsigned long long)number);
}

static void close_file(struct tw_line_log *log) {
    if (log->file >= 0) (void)log->ops->close(log->ops->ctx, log->file);
    log->file = -1;
}

/* Writes all bytes, of which *done were written. Returns 0, or a negative errno. */
static int64_t write_all(const struct tw_line_log *log, const char *bytes, size_t size,
                         uint64_t offset, size_t *done) {
    for (*done = 0; *done < size;) {
        const int64_t written =
            log->ops->write(log->ops->ctx, log->file, bytes + *done, size - *done, offset + *done);
        if (written == -EINTR) continue;
        if (written <= 0) return written == 0 ? -EIO : written;
        *done += (size_t)written;
    }
    return 0;
}

/* Turns the bytes of a truncated line into an empty line. Their disk space exists, so this works
 * even on a full disk. */
static int64_t blank(const struct tw_line_log *log, uint64_t from, size_t size) {
    static const char SPACES[] = "                                                                ";
    size_t done;
    for (; size > 1; size -= done, from += done) {
        const size_t piece = size - 1 < sizeof(SPACES) - 1 ? size - 1 : sizeof(SPACES) - 1;
        const int64_t written = write_all(log, SPACES, piece, from, &done);
        if (written < 0) return written;
    }
    return size > 0 ? write_all(log, "\n", 1, from, &done) : 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Returns the largest file number in the folder, or 0 if there is no file. */
static uint64_t find_newest(const char *folder) {
    DIR *const dir = opendir(folder);
    const struct dirent *row;
    uint64_t newest = 0;
    while (dir != NULL && (row = readdir(dir)) != NULL) {
        char *end;
        if (row->d_name[0] < '0' || row->d_name[0] > '9') continue;
        const uint64_t number = strtoull(row->d_name, &end, 10);
        if (strcmp(end, ".jsonl") == 0 && number > newest && number < UINT64_MAX) newest = number;
    }
    if (dir != NULL) (void)closedir(dir);
    return newest;
}

/* Blanks the file after its last whole line. A power cut may leave zero bytes there. */
static int64_t mend(struct tw_line_log *log) {
    static char tail[TAIL_BYTES];
    const int64_t size = log->ops->size(log->ops->ctx, log->file);
    if (size < 0) return size;
    const size_t wanted = size < TAIL_BYTES ? (size_t)size : TAIL_BYTES;
    const uint64_t begin = (uint64_t)size - wanted;
    size_t got = 0;
    while (got < wanted) {
        const int64_t read =
            log->ops->read(log->ops->ctx, log->file, tail + got, wanted - got, begin + got);
        if (read == -EINTR) continue;
        if (read <= 0) return read == 0 ? -EIO : read;
        got += (size_t)read;
    }
    const char *const zero = memchr(tail, '\0', wanted);
    size_t whole = zero != NULL ? (size_t)(zero - tail) : wanted;
    while (whole > 0 && tail[whole - 1] != '\n') whole--;
    log->size = (uint64_t)size;
    return blank(log, begin + whole, wanted - whole);
}

/* Opens the newest file for appending. If it cannot be read or mended, the next write begins a new
 * file. */
static void open_newest(struct tw_line_log *log) {
    char name[TW_LINE_LOG_NAME_BYTES];
    if (log->number == 0) return;
    tw_line_log_name(log->number, name);
    log->file = log->ops->open_write(log->ops->ctx, log->folder, name);
    if (log->file >= 0 && mend(log) < 0) close_file(log);
}

enum tw_status tw_line_log_open(struct tw_line_log *log, const struct tw_file_ops *ops,
                                const char *folder, uint64_t bytes_max, struct tw_error *err) {
    *log = (struct tw_line_log){.ops = ops, .file = -1, .bytes_max = bytes_max / TW_LINE_LOG_FILES};
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return tw_fail(err, TW_IO, "%s: %s", folder, strerror(errno));
    log->folder = ops->dir_open(ops->ctx, folder);
    if (log->folder < 0) return tw_fail(err, TW_IO, "%s: %s", folder, strerror(-log->folder));
    log->number = find_newest(folder);
    open_newest(log);
    return TW_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Called once a line is in the new file: only then is the oldest file deleted. */
static void drop_oldest(const struct tw_line_log *log) {
    char name[TW_LINE_LOG_NAME_BYTES];
    if (log->number <= TW_LINE_LOG_FILES) return;
    tw_line_log_name(log->number - TW_LINE_LOG_FILES, name);
    (void)log->ops->unlink(log->ops->ctx, log->folder, name);
}

static int64_t begin_file(struct tw_line_log *log) {
    char name[TW_LINE_LOG_NAME_BYTES];
    close_file(log);
    tw_line_log_name(log->number + 1, name);
    log->size = 0;
    log->file = log->ops->create(log->ops->ctx, log->folder, name);
    if (log->file >= 0 || log->file == -EEXIST) log->number++;
    return log->file;
}

enum tw_status tw_line_log_write(struct tw_line_log *log, const char *lines, size_t size,
                                 struct tw_error *err) {
    size_t done = 0;
    const bool is_full = log->size > 0 && log->size + size > log->bytes_max;
    int64_t result = log->file < 0 || is_full ? begin_file(log) : 0;
    if (result >= 0) result = write_all(log, lines, size, log->size, &done);
    if (result >= 0) {
        if (log->size == 0) drop_oldest(log);
        log->size += size;
        return TW_OK;
    }
    if (log->file >= 0 && blank(log, log->size, done) < 0) close_file(log);
    log->size += done;
    return tw_fail(err, TW_IO, "%s", strerror((int)-result));
}

void tw_line_log_close(struct tw_line_log *log) {
    close_file(log);
    (void)log->ops->close(log->ops->ctx, log->folder);
}
