#include "daemon/replay/replay.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/bytes.h"
#include "base/status.h"
#include "daemon/auth/identity.h"
#include "daemon/recorder/recorder.h"
#include "daemon/workerlink/worker_memory.h"
#include "sync/trace/trace.h"

enum { FLIGHT_FILES_MAX = 4096, FLIGHT_PATH_BYTES = 4096 };

struct flight_record {
    enum tw_flight_tag tag;
    const uint8_t *bytes; /* content after the tag and the size; borrowed until the next call */
    size_t size;
    uint64_t now_us; /* time of an EVENT record */
};

struct flight_log;

/* ==== records of the files ==================================================================== */

struct flight_log {
    char folder[FLIGHT_PATH_BYTES];
    char *names[FLIGHT_FILES_MAX]; /* paths of the files, owned */
    uint32_t count, next;          /* number of files; index of the next file to open */
    FILE *file;
    uint64_t block; /* number of the block within the file, 1 for the first */
    uint8_t *packed, *bytes;
    size_t size, at; /* bytes of the uncompressed block, and how many of them are read */
};

static void close_flight_log(struct flight_log *log);

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

/* Opens one file, or all files of a folder in their order. The sentence of TW_DATA names the path.
 * The caller frees with close_flight_log. */
static enum tw_status open_flight_log(struct flight_log **log_out, const char *path,
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
        close_flight_log(log);
        return status;
    }
    *log_out = log;
    return TW_OK;
}

static void close_flight_log(struct flight_log *log) {
    if (log == NULL) return;
    if (log->file != NULL) (void)fclose(log->file);
    for (uint32_t i = 0; i < log->count; i++) free(log->names[i]);
    free(log->packed);
    free(log->bytes);
    free(log);
}

static uint32_t count_files(const struct flight_log *log) {
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

/* Reads the next record. At the end, record->tag is 0. A file that ends within a block was cut
 * short by a crash: the next file follows. The sentence of TW_CORRUPT names the file and the place.
 */
static enum tw_status read_next(struct flight_log *log, struct flight_record *record,
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

/* ==== running the core again ================================================================== */

enum { NODE_ALIGN = 64, SIGNATURES_MAX = 4096 };

/* One event, with everything that was recorded until it ended. */
struct step {
    bool is_open; /* the event was read, but not its end */
    struct tw_event event;
    struct tw_message message;
    struct tw_worker_state worker;
    uint8_t signatures[SIGNATURES_MAX][TW_SIGNATURE_BYTES];
    uint32_t signed_count, signed_used;
    bool lacks_signature; /* the core requested more signatures than were recorded */
};

struct player {
    struct replay *replay;
    const struct replay_eyes *eyes;
    struct flight_log *log;
    struct tw_run run;
    struct tw_rate rate;
    struct step step;
    bool is_over;
};

static void sign(void *key, const void *text, size_t size, uint8_t signature[TW_SIGNATURE_BYTES]) {
    struct step *const step = key;
    (void)text;
    (void)size;
    memset(signature, 0, TW_SIGNATURE_BYTES);
    if (step->signed_used == step->signed_count) {
        step->lacks_signature = true;
        return;
    }
    memcpy(signature, step->signatures[step->signed_used++], TW_SIGNATURE_BYTES);
}

uint64_t tw_replay_unix_us(const struct replay *replay, uint64_t now_us) {
    return replay->about.unix_us + now_us - replay->about.now_us;
}

/* ---- heads of files -------------------------------------------------------------------------- */

static void take_word(const char *text, const char *key, char *to, size_t capacity) {
    const size_t size = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, size) == 0 && line[size] == ' ') {
            (void)snprintf(to, capacity, "%.*s", (int)strcspn(line + size + 1, "\n"),
                           line + size + 1);
            return;
        }
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    to[0] = '\0';
}

static enum tw_status take_about(struct player *player, const struct flight_record *record,
                                 struct tw_error *err) {
    struct replay_about *const about = &player->replay->about;
    char text[1024], number[32];
    if (record->size >= sizeof(text))
        return tw_fail(err, TW_CORRUPT, "the head of a file is too long");
    memcpy(text, record->bytes, record->size);
    text[record->size] = '\0';
    take_word(text, "version", about->version, sizeof(about->version));
    take_word(text, "node", about->node, sizeof(about->node));
    take_word(text, "id", about->id, sizeof(about->id));
    take_word(text, "run", about->run, sizeof(about->run));
    take_word(text, "events", number, sizeof(number));
    about->events = strtoull(number, NULL, 10);
    take_word(text, "now_us", number, sizeof(number));
    about->now_us = strtoull(number, NULL, 10);
    take_word(text, "unix_us", number, sizeof(number));
    about->unix_us = strtoull(number, NULL, 10);
    return TW_OK;
}

static enum tw_status take_core(struct player *player, const struct flight_record *record,
                                struct tw_error *err) {
    struct replay *const replay = player->replay;
    const struct tw_signing signing = {
        .key = &player->step,
        .sign = sign,
        .is_signed = player->eyes->is_signed != NULL ? player->eyes->is_signed : tw_is_signed};
    const struct tw_sizes sizes = {.run = &player->run, .bytes_max = tw_worker_bytes_max};
    if (strcmp(replay->about.version, TW_RELEASE) != 0 || record->size != tw_node_bytes())
        return tw_fail(
            err, TW_VERSION,
            "recorded by another build (version %s, %zu bytes of core; this one is %s with "
            "%zu): replay it with the thinwire-replay beside that daemon",
            replay->about.version, record->size, TW_RELEASE, tw_node_bytes());
    if (replay->about.events == 0 || replay->counts.events == 0) {
        replay->counts.starts++;
    } else if (replay->about.events != replay->number) {
        replay->counts.gaps++;
    }
    replay->number = replay->about.events;
    player->step.is_open = false;
    memcpy(replay->node, record->bytes, record->size);
    tw_node_rebind(replay->node, &signing, &sizes, &player->rate);
    return TW_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void take_rate(struct player *player, const struct flight_record *record) {
    player->rate = (struct tw_rate){
        .per_s = tw_get_u64(record->bytes),
        .burst = tw_get_u64(record->bytes + 8),
        .credit_millionths = (int64_t)tw_get_u64(record->bytes + 16),
        .now_us = tw_get_u64(record->bytes + 24),
    };
}

static enum tw_status take_event(struct player *player, const struct flight_record *record,
                                 struct tw_error *err) {
    struct step *const step = &player->step;
    struct replay_counts *const counts = &player->replay->counts;
    if (player->replay->about.version[0] == '\0')
        return tw_fail(err, TW_CORRUPT, "an event without the head of its file");
    TW_TRY(tw_event_decode(record->bytes, record->size, &step->event, &step->message, &step->worker,
                           err));
    step->is_open = true;
    step->signed_count = step->signed_used = 0;
    step->lacks_signature = false;
    player->replay->now_us = record->now_us;
    player->replay->number++;
    counts->last_us = tw_replay_unix_us(player->replay, record->now_us);
    if (counts->events++ == 0) counts->first_us = counts->last_us;
    return TW_OK;
}

static enum tw_status take_signature(struct player *player, const struct flight_record *record,
                                     struct tw_error *err) {
    struct step *const step = &player->step;
    if (step->signed_count == SIGNATURES_MAX)
        return tw_fail(err, TW_CORRUPT, "an event with more than %d signatures", SIGNATURES_MAX);
    memcpy(step->signatures[step->signed_count++], record->bytes, TW_SIGNATURE_BYTES);
    return TW_OK;
}

static void play(struct player *player, const uint8_t *recorded) {
    struct replay *const replay = player->replay;
    const struct replay_eyes *const eyes = player->eyes;
    struct tw_action action;
    uint64_t hash = 0;
    uint32_t count = 0;
    player->step.is_open = false;
    if (eyes->event != NULL) eyes->event(eyes->self, replay, &player->step.event);
    tw_node_event(replay->node, &player->step.event, replay->now_us);
    const enum tw_drop why = tw_node_dropped(replay->node);
    if (why != TW_DROP_NONE && eyes->dropped != NULL) eyes->dropped(eyes->self, replay, why);
    while (tw_node_next_action(replay->node, &action)) {
        hash = tw_trace_mix(hash, tw_trace_action(&action));
        count++;
        if (eyes->action != NULL) eyes->action(eyes->self, replay, &action);
    }
    replay->counts.actions += count;
    const bool is_equal =
        recorded == NULL || (tw_get_u32(recorded) == count && tw_get_u64(recorded + 4) == hash);
    if ((!is_equal || player->step.lacks_signature) && replay->difference.event == 0) {
        replay->difference = (struct replay_difference){
            .event = replay->number,
            .now_us = replay->now_us,
            .actions = count,
            .recorded_actions = recorded == NULL ? 0 : tw_get_u32(recorded)};
    }
    if (eyes->done != NULL && !eyes->done(eyes->self, replay)) player->is_over = true;
}

static enum tw_status take_record(struct player *player, const struct flight_record *record,
                                  struct tw_error *err) {
    switch (record->tag) {
    case TW_FLIGHT_ABOUT: return take_about(player, record, err);
    case TW_FLIGHT_MANIFEST:
        return tw_run_decode((const char *)record->bytes, record->size, &player->run, err);
    case TW_FLIGHT_CORE: return take_core(player, record, err);
    case TW_FLIGHT_RATE: take_rate(player, record); return TW_OK;
    case TW_FLIGHT_EVENT: return take_event(player, record, err);
    case TW_FLIGHT_SIGNED: return take_signature(player, record, err);
    case TW_FLIGHT_DONE:
        if (!player->step.is_open) return tw_fail(err, TW_CORRUPT, "an end without an event");
        play(player, record->bytes);
        return TW_OK;
    }
    return TW_OK;
}

static enum tw_status play_all(struct player *player, struct tw_error *err) {
    struct flight_record record;
    while (!player->is_over) {
        TW_TRY(read_next(player->log, &record, err));
        if (record.tag == 0) break;
        TW_TRY(take_record(player, &record, err));
    }
    player->replay->counts.is_cut = player->step.is_open;
    return TW_OK;
}

enum tw_status tw_replay_run(struct replay *replay, const char *path,
                             const struct replay_eyes *eyes, struct tw_error *err) {
    const size_t bytes = (tw_node_bytes() + NODE_ALIGN - 1) / NODE_ALIGN * NODE_ALIGN;
    struct player *const player = calloc(1, sizeof(*player));
    memset(replay, 0, sizeof(*replay));
    replay->node = aligned_alloc(NODE_ALIGN, bytes);
    if (player == NULL || replay->node == NULL) {
        free(player);
        return tw_fail(err, TW_NOMEM, "no memory for a replay");
    }
    player->replay = replay;
    player->eyes = eyes;
    enum tw_status status = open_flight_log(&player->log, path, err);
    if (status == TW_OK) {
        replay->counts.files = count_files(player->log);
        status = play_all(player, err);
    }
    close_flight_log(player->log);
    free(player);
    return status;
}

void tw_replay_free(struct replay *replay) {
    free(replay->node);
    replay->node = NULL;
}

/* ==== decisions =============================================================================== */

static void add(struct decisions *decisions, const struct decision *row) {
    if (decisions->count == decisions->capacity) {
        const size_t capacity = decisions->capacity > 0 ? 2 * decisions->capacity : 1024;
        struct decision *const rows = realloc(decisions->rows, capacity * sizeof(*rows));
        decisions->is_short |= rows == NULL;
        if (rows == NULL) return;
        decisions->rows = rows;
        decisions->capacity = capacity;
    }
    decisions->rows[decisions->count++] = *row;
}

static void see_event(void *self, const struct replay *replay, const struct tw_event *event) {
    if (event->kind != TW_EV_APPLIED || !event->ok) return;
    add(self, &(struct decision){.is_anchor = true,
                                 .fragment = event->u.applied.fragment,
                                 .round = event->u.applied.rounds,
                                 .unix_us = tw_replay_unix_us(replay, replay->now_us),
                                 .digest = event->u.applied.digest});
}

static void see_action(void *self, const struct replay *replay, const struct tw_action *action) {
    if (action->kind != TW_ACT_REPORT || action->u.report.kind != TW_REPORT_ROUND_COMMITTED) return;
    const struct tw_record *const record = action->u.report.record;
    add(self, &(struct decision){.fragment = record->fragment,
                                 .contributors = record->contributors_count,
                                 .round = record->round,
                                 .unix_us = tw_replay_unix_us(replay, replay->now_us),
                                 .lineage = record->lineage,
                                 .digest = tw_record_digest(record)});
}

enum tw_status tw_decisions_read(struct decisions *decisions, const char *path,
                                 struct tw_error *err) {
    const struct replay_eyes eyes = {.self = decisions, .event = see_event, .action = see_action};
    memset(decisions, 0, sizeof(*decisions));
    TW_TRY(tw_replay_run(&decisions->replay, path, &eyes, err));
    if (decisions->is_short) return tw_fail(err, TW_NOMEM, "%s: no memory for its decisions", path);
    return TW_OK;
}

void tw_decisions_free(struct decisions *decisions) {
    tw_replay_free(&decisions->replay);
    free(decisions->rows);
    decisions->rows = NULL;
}

/* Orders by round, then records before anchors, then by fragment, then by time. */
static int by_round(const void *left, const void *right) {
    const struct decision *const a = left, *const b = right;
    if (a->round != b->round) return a->round < b->round ? -1 : 1;
    if (a->is_anchor != b->is_anchor) return a->is_anchor ? 1 : -1;
    if (a->fragment != b->fragment) return a->fragment < b->fragment ? -1 : 1;
    return a->unix_us < b->unix_us ? -1 : a->unix_us > b->unix_us;
}

static void sort(struct decisions *decisions) {
    if (decisions->count > 0)
        qsort(decisions->rows, decisions->count, sizeof(decisions->rows[0]), by_round);
}

static bool is_same_slot(const struct decision *a, const struct decision *b) {
    return a->round == b->round && a->is_anchor == b->is_anchor && a->fragment == b->fragment;
}

/* Returns the index of the last row with the round, kind and fragment of rows[i]. A node that loads
 * a state decides a round again, and its last decision counts. */
static size_t end_of(const struct decision *rows, size_t count, size_t i) {
    while (i + 1 < count && is_same_slot(&rows[i], &rows[i + 1])) i++;
    return i;
}

bool tw_decisions_differ(struct decisions *a, struct decisions *b, struct decision *of_a,
                         struct decision *of_b, size_t *common) {
    const struct decision *const rows_a = a->rows, *const rows_b = b->rows;
    sort(a);
    sort(b);
    bool is_found = false;
    *common = 0;
    for (size_t i = 0, k = 0; !is_found && i < a->count && k < b->count;) {
        const size_t last_i = end_of(rows_a, a->count, i), last_k = end_of(rows_b, b->count, k);
        struct decision left = rows_a[last_i], right = rows_b[last_k];
        left.unix_us = right.unix_us = 0;
        const int order = by_round(&left, &right);
        if (order == 0) {
            (*common)++;
            is_found = !tw_id_equal(&left.digest, &right.digest);
            *of_a = rows_a[last_i];
            *of_b = rows_b[last_k];
        }
        if (order <= 0) i = last_i + 1;
        if (order >= 0) k = last_k + 1;
    }
    return is_found;
}
