#include "daemon/replay/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "daemon/auth/signature.h"
#include "daemon/replay/flight_log.h"
#include "daemon/workerlink/worker_memory.h"
#include "sync/trace/event_bytes.h"
#include "sync/trace/hash.h"

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
        TW_TRY(tw_flight_log_next(player->log, &record, err));
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
    enum tw_status status = tw_flight_log_open(&player->log, path, err);
    if (status == TW_OK) {
        replay->counts.files = tw_flight_log_files(player->log);
        status = play_all(player, err);
    }
    tw_flight_log_close(player->log);
    free(player);
    return status;
}

void tw_replay_free(struct replay *replay) {
    free(replay->node);
    replay->node = NULL;
}
