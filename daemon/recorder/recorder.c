#include "daemon/recorder/recorder.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <zstd.h>

#include "base/bytes.h"
#include "daemon/store/file.h"
#include "sync/trace/trace.h"

enum {
    FLUSH_BYTES = 128 << 10,
    FLUSH_US = 2 * 1000 * 1000,
    RETRY_US = 30 * 1000 * 1000,
    /* space for the largest event, its signatures, and their tags */
    EVENT_ROOM = TW_EVENT_BYTES_MAX + (64 << 10),
    /* Space for the start of a file: TW_FLIGHT_ABOUT and TW_FLIGHT_MANIFEST. */
    HEAD_ROOM = 128 << 10,
    NAME_BYTES = 32,
    LEVEL = 1, /* compression level of zstd */
};

struct block {
    uint8_t *bytes;
    size_t size;
    bool is_new; /* the block begins a file */
};

struct tw_recorder {
    struct tw_recorder_about about;
    const struct tw_file_ops *ops;
    int folder;
    size_t capacity; /* size of a block in bytes */

    /* used by the caller's thread */
    struct block filling;
    size_t event_at; /* offset in the block where the present event begins */
    uint64_t flushed_us, now_us;
    uint64_t retry_us;   /* no new file is begun before this time */
    bool has_file;       /* the present file has no gap: blocks are appended to it */
    bool is_recording;   /* an event has begun and not ended */
    struct tw_rate rate; /* download cap as last recorded */
    uint32_t actions;
    uint64_t hash, events; /* hash of the present event's actions; number of events so far, recorded
                              or not */

    /* used by both threads, under the lock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool is_busy, is_ending; /* is_busy: `writing` belongs to the writing thread */
    bool is_file_full, has_failed;
    char error[128];

    /* used by the writing thread while is_busy */
    struct block writing;
    int file;
    uint64_t number, file_bytes;
    uint8_t *packed;
    size_t packed_capacity;
    ZSTD_CCtx *zstd;
};

/* ---- the writing thread ---------------------------------------------------------------------- */

static void name_of(uint64_t number, char name[NAME_BYTES]) {
    (void)snprintf(name, NAME_BYTES, "%08llu.flight", (unsigned long long)number);
}

static int64_t write_all(struct tw_recorder *recorder, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    while (size > 0) {
        const int64_t done = recorder->ops->write(recorder->ops->ctx, recorder->file, at, size,
                                                  recorder->file_bytes);
        if (done == -EINTR) continue;
        if (done <= 0) return done == 0 ? -EIO : done;
        at += done;
        size -= (size_t)done;
        recorder->file_bytes += (uint64_t)done;
    }
    return 0;
}

static void close_handle(const struct tw_recorder *recorder, int handle) {
    if (handle >= 0) (void)recorder->ops->close(recorder->ops->ctx, handle);
}

static int64_t begin_file(struct tw_recorder *recorder) {
    char name[NAME_BYTES];
    close_handle(recorder, recorder->file);
    recorder->number++;
    if (recorder->number > TW_RECORDER_FILES) {
        name_of(recorder->number - TW_RECORDER_FILES, name);
        (void)recorder->ops->unlink(recorder->ops->ctx, recorder->folder, name);
    }
    name_of(recorder->number, name);
    recorder->file_bytes = 0;
    recorder->file = recorder->ops->create(recorder->ops->ctx, recorder->folder, name);
    return recorder->file < 0 ? recorder->file
                              : write_all(recorder, TW_RECORDER_MAGIC, TW_RECORDER_MAGIC_BYTES);
}

/* Compresses and writes one block. Returns 0, or a negative errno. */
static int64_t write_block(struct tw_recorder *recorder) {
    uint8_t head[8];
    const struct block *const block = &recorder->writing;
    const int64_t begun = block->is_new ? begin_file(recorder) : 0;
    if (begun < 0) return begun;
    const size_t size = ZSTD_compress2(recorder->zstd, recorder->packed, recorder->packed_capacity,
                                       block->bytes, block->size);
    if (ZSTD_isError(size)) return -ENOMEM;
    tw_put_u32(head, (uint32_t)size);
    tw_put_u32(head + 4, (uint32_t)block->size);
    const int64_t written = write_all(recorder, head, sizeof(head));
    return written < 0 ? written : write_all(recorder, recorder->packed, size);
}

static void *run_writer(void *argument) {
    struct tw_recorder *recorder = argument;
    (void)pthread_mutex_lock(&recorder->lock);
    for (;;) {
        while (!recorder->is_busy && !recorder->is_ending)
            (void)pthread_cond_wait(&recorder->wake, &recorder->lock);
        if (!recorder->is_busy) break;
        (void)pthread_mutex_unlock(&recorder->lock);
        const int64_t written = write_block(recorder);
        (void)pthread_mutex_lock(&recorder->lock);
        recorder->is_busy = false;
        recorder->has_failed = written < 0;
        recorder->is_file_full =
            recorder->file_bytes >= recorder->about.bytes_max / TW_RECORDER_FILES;
        recorder->error[0] = '\0';
        if (written < 0)
            (void)snprintf(recorder->error, sizeof(recorder->error), "%s", strerror((int)-written));
        (void)pthread_cond_broadcast(&recorder->wake);
    }
    (void)pthread_mutex_unlock(&recorder->lock);
    return NULL;
}

/* ---- filling a block ------------------------------------------------------------------------- */

static void put(struct tw_recorder *recorder, const void *bytes, size_t size) {
    memcpy(recorder->filling.bytes + recorder->filling.size, bytes, size);
    recorder->filling.size += size;
}

static void put_tag(struct tw_recorder *recorder, enum tw_flight_tag tag) {
    recorder->filling.bytes[recorder->filling.size++] = (uint8_t)tag;
}

static void put_u32(struct tw_recorder *recorder, uint32_t value) {
    tw_put_u32(recorder->filling.bytes + recorder->filling.size, value);
    recorder->filling.size += 4;
}

static void put_u64(struct tw_recorder *recorder, uint64_t value) {
    tw_put_u64(recorder->filling.bytes + recorder->filling.size, value);
    recorder->filling.size += 8;
}

static void put_text(struct tw_recorder *recorder, enum tw_flight_tag tag, const void *text,
                     size_t size) {
    put_tag(recorder, tag);
    put_u32(recorder, (uint32_t)size);
    put(recorder, text, size);
}

/* Writes TW_FLIGHT_ABOUT. Event times are monotonic, so it pairs one of them with the wall clock.
 */
static void put_about(struct tw_recorder *recorder, uint64_t now_us) {
    char text[512], id[TW_ID_HEX_BYTES], run[TW_ID_HEX_BYTES];
    struct timespec clock;
    (void)clock_gettime(CLOCK_REALTIME, &clock);
    tw_id_hex(&recorder->about.id, id);
    tw_id_hex(&recorder->about.run, run);
    const int size = snprintf(text, sizeof(text),
                              "version %s\nnode %s\nid %s\nrun %s\nevents %llu\nnow_us %llu\n"
                              "unix_us %llu\n",
                              TW_RELEASE, recorder->about.node, id, run,
                              (unsigned long long)recorder->events, (unsigned long long)now_us,
                              (unsigned long long)clock.tv_sec * 1000000 +
                                  (unsigned long long)clock.tv_nsec / 1000);
    put_text(recorder, TW_FLIGHT_ABOUT, text, (size_t)size);
}

/* Passes the block to the writing thread, unless that is busy. */
static void flush(struct tw_recorder *recorder) {
    if (recorder->filling.size == 0) return;
    (void)pthread_mutex_lock(&recorder->lock);
    if (!recorder->is_busy) {
        const struct block done = recorder->filling;
        recorder->filling = (struct block){.bytes = recorder->writing.bytes};
        recorder->writing = done;
        recorder->is_busy = true;
        recorder->flushed_us = recorder->now_us;
        (void)pthread_cond_broadcast(&recorder->wake);
    }
    (void)pthread_mutex_unlock(&recorder->lock);
}

/* Makes room for an event. Begins a new file if the last one is full, failed or has a gap. Returns
 * false if the event cannot be recorded now. */
static bool prepare(struct tw_recorder *recorder, const struct tw_node *node) {
    (void)pthread_mutex_lock(&recorder->lock);
    const bool is_busy = recorder->is_busy, has_failed = recorder->has_failed;
    const bool is_full = !is_busy && recorder->is_file_full;
    recorder->has_failed = false;
    if (is_full) recorder->is_file_full = false;
    (void)pthread_mutex_unlock(&recorder->lock);
    if (has_failed) {
        recorder->has_file = false;
        recorder->filling.size = 0;
        recorder->retry_us = recorder->now_us + RETRY_US;
    }
    if (is_full && recorder->has_file) {
        flush(recorder); /* writes the rest of the full file: the thread is idle */
        recorder->has_file = false;
    }
    if (recorder->has_file) return recorder->capacity - recorder->filling.size > EVENT_ROOM;
    if (recorder->now_us < recorder->retry_us) return false;
    if (recorder->filling.size > 0) flush(recorder); /* writes the events before the gap */
    if (recorder->filling.size > 0) return false;
    recorder->filling.is_new = true;
    recorder->rate = (struct tw_rate){0};
    put_about(recorder, recorder->now_us);
    put_text(recorder, TW_FLIGHT_MANIFEST, recorder->about.manifest,
             strlen(recorder->about.manifest));
    put_text(recorder, TW_FLIGHT_CORE, node, tw_node_bytes());
    recorder->has_file = true;
    return true;
}

static void put_rate(struct tw_recorder *recorder, const struct tw_rate *rate) {
    if (rate == NULL || memcmp(rate, &recorder->rate, sizeof(*rate)) == 0) return;
    recorder->rate = *rate;
    put_tag(recorder, TW_FLIGHT_RATE);
    put_u64(recorder, rate->per_s);
    put_u64(recorder, rate->burst);
    put_u64(recorder, (uint64_t)rate->credit_millionths);
    put_u64(recorder, rate->now_us);
}

void tw_recorder_event(struct tw_recorder *recorder, const struct tw_node *node,
                       const struct tw_event *event, const struct tw_rate *rate, uint64_t now_us) {
    if (recorder == NULL) return;
    recorder->now_us = now_us;
    recorder->is_recording = prepare(recorder, node);
    recorder->events++;
    if (!recorder->is_recording) {
        recorder->has_file = false; /* this event is missing: a gap */
        return;
    }
    recorder->event_at = recorder->filling.size;
    recorder->actions = 0;
    recorder->hash = 0;
    put_rate(recorder, rate);
    put_tag(recorder, TW_FLIGHT_EVENT);
    put_u64(recorder, now_us);
    uint8_t *const size_at = recorder->filling.bytes + recorder->filling.size;
    const size_t size = tw_event_encode(event, size_at + 4);
    tw_put_u32(size_at, (uint32_t)size);
    recorder->filling.size += 4 + size;
}

void tw_recorder_signed(struct tw_recorder *recorder, const uint8_t signature[TW_SIGNATURE_BYTES]) {
    if (recorder == NULL || !recorder->is_recording) return;
    if (recorder->capacity - recorder->filling.size < 2 * TW_SIGNATURE_BYTES) {
        recorder->filling.size = recorder->event_at;
        recorder->is_recording = recorder->has_file = false;
        return;
    }
    put_tag(recorder, TW_FLIGHT_SIGNED);
    put(recorder, signature, TW_SIGNATURE_BYTES);
}

void tw_recorder_action(struct tw_recorder *recorder, const struct tw_action *action) {
    if (recorder == NULL || !recorder->is_recording) return;
    recorder->actions++;
    recorder->hash = tw_trace_mix(recorder->hash, tw_trace_action(action));
}

void tw_recorder_done(struct tw_recorder *recorder) {
    if (recorder == NULL || !recorder->is_recording) return;
    put_tag(recorder, TW_FLIGHT_DONE);
    put_u32(recorder, recorder->actions);
    put_u64(recorder, recorder->hash);
    recorder->is_recording = false;
    if (recorder->filling.is_new || recorder->filling.size >= FLUSH_BYTES ||
        recorder->now_us - recorder->flushed_us >= FLUSH_US)
        flush(recorder);
}

bool tw_recorder_error(struct tw_recorder *recorder, char *text, size_t capacity) {
    text[0] = '\0';
    if (recorder == NULL) return false;
    (void)pthread_mutex_lock(&recorder->lock);
    (void)snprintf(text, capacity, "%s", recorder->error);
    (void)pthread_mutex_unlock(&recorder->lock);
    return text[0] != '\0';
}

/* ---- life ------------------------------------------------------------------------------------ */

static void release(struct tw_recorder *recorder) {
    close_handle(recorder, recorder->file);
    close_handle(recorder, recorder->folder);
    free(recorder->filling.bytes);
    free(recorder->writing.bytes);
    free(recorder->packed);
    (void)ZSTD_freeCCtx(recorder->zstd);
    free(recorder);
}

static enum tw_status allocate(struct tw_recorder *recorder, struct tw_error *err) {
    recorder->capacity = HEAD_ROOM + tw_node_bytes() + 4 * EVENT_ROOM;
    recorder->packed_capacity = ZSTD_compressBound(recorder->capacity);
    recorder->filling.bytes = malloc(recorder->capacity);
    recorder->writing.bytes = malloc(recorder->capacity);
    recorder->packed = malloc(recorder->packed_capacity);
    recorder->zstd = ZSTD_createCCtx();
    if (recorder->filling.bytes == NULL || recorder->writing.bytes == NULL ||
        recorder->packed == NULL || recorder->zstd == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for the flight recorder");
    (void)ZSTD_CCtx_setParameter(recorder->zstd, ZSTD_c_compressionLevel, LEVEL);
    (void)ZSTD_CCtx_setParameter(recorder->zstd, ZSTD_c_checksumFlag, 1);
    return TW_OK;
}

static bool is_name(const char *name, uint64_t *number) {
    char *end;
    if (name[0] < '0' || name[0] > '9') return false;
    *number = strtoull(name, &end, 10);
    return strcmp(end, ".flight") == 0;
}

/* Returns the largest file number in the folder, or 0 if there is no file. */
static uint64_t find_newest(const char *folder) {
    DIR *const dir = opendir(folder);
    const struct dirent *row;
    uint64_t newest = 0, number;
    while (dir != NULL && (row = readdir(dir)) != NULL)
        if (is_name(row->d_name, &number) && number > newest) newest = number;
    if (dir != NULL) (void)closedir(dir);
    return newest;
}

static enum tw_status open_folder(struct tw_recorder *recorder, const char *folder,
                                  struct tw_error *err) {
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return tw_fail(err, TW_IO, "%s: %s", folder, strerror(errno));
    recorder->folder = recorder->ops->dir_open(recorder->ops->ctx, folder);
    if (recorder->folder < 0)
        return tw_fail(err, TW_IO, "%s: %s", folder, strerror(-recorder->folder));
    recorder->number = find_newest(folder);
    return TW_OK;
}

enum tw_status tw_recorder_create(struct tw_recorder **recorder_out, const char *folder,
                                  const struct tw_recorder_about *about, struct tw_error *err) {
    struct tw_recorder *const recorder = calloc(1, sizeof(*recorder));
    if (recorder == NULL) return tw_fail(err, TW_NOMEM, "no memory for the flight recorder");
    recorder->about = *about;
    recorder->ops = tw_file_system();
    recorder->folder = recorder->file = -1;
    (void)pthread_mutex_init(&recorder->lock, NULL);
    (void)pthread_cond_init(&recorder->wake, NULL);
    enum tw_status status = open_folder(recorder, folder, err);
    if (status == TW_OK) status = allocate(recorder, err);
    if (status == TW_OK && pthread_create(&recorder->thread, NULL, run_writer, recorder) != 0)
        status = tw_fail(err, TW_NOMEM, "no thread for the flight recorder");
    if (status != TW_OK) {
        release(recorder);
        return status;
    }
    *recorder_out = recorder;
    return TW_OK;
}

void tw_recorder_destroy(struct tw_recorder *recorder) {
    if (recorder == NULL) return;
    (void)pthread_mutex_lock(&recorder->lock);
    while (recorder->is_busy) (void)pthread_cond_wait(&recorder->wake, &recorder->lock);
    (void)pthread_mutex_unlock(&recorder->lock);
    flush(recorder);
    (void)pthread_mutex_lock(&recorder->lock);
    recorder->is_ending = true;
    (void)pthread_cond_broadcast(&recorder->wake);
    (void)pthread_mutex_unlock(&recorder->lock);
    (void)pthread_join(recorder->thread, NULL);
    (void)pthread_mutex_destroy(&recorder->lock);
    (void)pthread_cond_destroy(&recorder->wake);
    release(recorder);
}
