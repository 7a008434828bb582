#include "daemon/replay/flight_log.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/bytes.h"

struct flight_log {
    char folder[FLIGHT_PATH_BYTES];
    char *names[FLIGHT_FILES_MAX]; /* paths of the files, owned */
    uint32_t count, next;          /* number of files; index of the next file to open */
    FILE *file;
    uint64_t block; /* number of the block within the file, 1 for the first */
    uint8_t *packed, *bytes;
    size_t size, at; /* bytes of the uncompressed block, and how many of them are read */
};

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum tw_status add_file(struct flight_log *log, const char *path, struct tw_error *err) {
    if (log->count == FLIGHT_FILES_MAX)
        return tw_fail(err, TW_DATA, "%s: more than %d files", log->folder, FLIGHT_FILES_MAX);
    log->names[log->count] = strdup(path);
    if (log->names[log->count] == NULL) return tw_fail(err, TW_NOMEM, "out of memory");
    log->count++;
    return TW_OK;
}

static enum tw_status list_folder(struct flight_log *log, struct tw_error *err) {
    DIR *const dir = opendir(log->folder);
    const struct dirent *row;
    enum tw_status status = TW_OK;
    if (dir == NULL) return tw_fail(err, TW_DATA, "%s: %s", log->folder, strerror(errno));
    while (status == TW_OK && (row = readdir(dir)) != NULL) {
        char path[FLIGHT_PATH_BYTES + 300];
        const char *const dot = strrchr(row->d_name, '.');
        if (dot == NULL || strcmp(dot, ".flight") != 0) continue;
        (void)snprintf(path, sizeof(path), "%s/%s", log->folder, row->d_name);
        status = add_file(log, path, err);
    }
    (void)closedir(dir);
    if (status == TW_OK && log->count == 0)
        return tw_fail(err, TW_DATA,
                       "%s: no file of a flight recorder (NUMBER.flight); is `recorder` of the "
                       "node's configuration 0?",
                       log->folder);
    qsort(log->names, log->count, sizeof(log->names[0]), by_name);
    return status;
}

enum tw_status tw_flight_log_open(struct flight_log **log_out, const char *path,
                                  struct tw_error *err) {
    struct stat about;
    if (stat(path, &about) != 0) return tw_fail(err, TW_DATA, "%s: %s", path, strerror(errno));
    struct flight_log *const log = calloc(1, sizeof(*log));
    if (log == NULL) return tw_fail(err, TW_NOMEM, "out of memory");
    log->packed = malloc(ZSTD_compressBound(TW_RECORDER_BLOCK_BYTES));
    log->bytes = malloc(TW_RECORDER_BLOCK_BYTES);
    (void)snprintf(log->folder, sizeof(log->folder), "%s", path);
    enum tw_status status = TW_OK;
    if (log->packed == NULL || log->bytes == NULL) status = tw_fail(err, TW_NOMEM, "out of memory");
    if (status == TW_OK)
        status = S_ISDIR(about.st_mode) ? list_folder(log, err) : add_file(log, path, err);
    if (status != TW_OK) {
        tw_flight_log_close(log);
        return status;
    }
    *log_out = log;
    return TW_OK;
}

void tw_flight_log_close(struct flight_log *log) {
    if (log == NULL) return;
    if (log->file != NULL) (void)fclose(log->file);
    for (uint32_t i = 0; i < log->count; i++) free(log->names[i]);
    free(log->packed);
    free(log->bytes);
    free(log);
}

uint32_t tw_flight_log_files(const struct flight_log *log) {
    return log->count;
}

static enum tw_status open_next(struct flight_log *log, struct tw_error *err) {
    char magic[TW_RECORDER_MAGIC_BYTES];
    const char *const path = log->names[log->next++];
    log->file = fopen(path, "re");
    log->block = 0;
    if (log->file == NULL) return tw_fail(err, TW_DATA, "%s: %s", path, strerror(errno));
    if (fread(magic, 1, sizeof(magic), log->file) == sizeof(magic) &&
        memcmp(magic, TW_RECORDER_MAGIC, sizeof(magic)) == 0)
        return TW_OK;
    return tw_fail(err, TW_DATA, "%s: no file of a flight recorder", path);
}

/* Reads the next block, from the next file if necessary. Sets *is_end if there is none. */
static enum tw_status read_block(struct flight_log *log, bool *is_end, struct tw_error *err) {
    uint8_t head[8];
    *is_end = false;
    for (;;) {
        if (log->file == NULL && log->next == log->count) {
            *is_end = true;
            return TW_OK;
        }
        if (log->file == NULL) TW_TRY(open_next(log, err));
        const bool has_head = fread(head, 1, sizeof(head), log->file) == sizeof(head);
        const size_t packed = has_head ? tw_get_u32(head) : 0;
        const size_t size = has_head ? tw_get_u32(head + 4) : 0;
        const char *const path = log->names[log->next - 1];
        log->block++;
        if (has_head && (size > TW_RECORDER_BLOCK_BYTES ||
                         packed > ZSTD_compressBound(TW_RECORDER_BLOCK_BYTES)))
            return tw_fail(err, TW_CORRUPT, "%s: block %llu is too large", path,
                           (unsigned long long)log->block);
        if (!has_head || fread(log->packed, 1, packed, log->file) != packed) {
            (void)fclose(log->file); /* end of the file, or the place where a crash cut it short */
            log->file = NULL;
            continue;
        }
        if (ZSTD_decompress(log->bytes, size, log->packed, packed) != size)
            return tw_fail(err, TW_CORRUPT, "%s: block %llu is damaged", path,
                           (unsigned long long)log->block);
        log->size = size;
        log->at = 0;
        return TW_OK;
    }
}

/* Sets *head to the size of a record's fields before its bytes, and *size to the number of these
 * bytes. Returns false if the record is unknown or does not fit the block. */
static bool measure(const struct flight_log *log, enum tw_flight_tag tag, size_t *head,
                    size_t *size) {
    const uint8_t *const at = log->bytes + log->at;
    const size_t left = log->size - log->at;
    *head = tag == TW_FLIGHT_EVENT ? 13 : 5;
    switch (tag) {
    case TW_FLIGHT_RATE: *head = 1, *size = 32; break;
    case TW_FLIGHT_SIGNED: *head = 1, *size = TW_SIGNATURE_BYTES; break;
    case TW_FLIGHT_DONE: *head = 1, *size = 12; break;
    case TW_FLIGHT_ABOUT:
    case TW_FLIGHT_MANIFEST:
    case TW_FLIGHT_CORE:
    case TW_FLIGHT_EVENT:
        if (left < *head) return false;
        *size = tw_get_u32(at + *head - 4);
        break;
    default: return false;
    }
    return left >= *head && left - *head >= *size;
}

enum tw_status tw_flight_log_next(struct flight_log *log, struct flight_record *record,
                                  struct tw_error *err) {
    size_t head, size;
    memset(record, 0, sizeof(*record));
    while (log->at == log->size) {
        bool is_end;
        TW_TRY(read_block(log, &is_end, err));
        if (is_end) return TW_OK;
    }
    const enum tw_flight_tag tag = (enum tw_flight_tag)log->bytes[log->at];
    if (!measure(log, tag, &head, &size))
        return tw_fail(err, TW_CORRUPT, "%s: block %llu has an unknown record at byte %zu",
                       log->names[log->next - 1], (unsigned long long)log->block, log->at);
    record->tag = tag;
    if (tag == TW_FLIGHT_EVENT) record->now_us = tw_get_u64(log->bytes + log->at + 1);
    record->bytes = log->bytes + log->at + head;
    record->size = size;
    log->at += head + size;
    return TW_OK;
}
