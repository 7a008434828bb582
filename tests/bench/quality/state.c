/* state.c - writes and reads the state of a case that runs. One list of fields serves both ways. */
#include "tests/bench/quality/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

enum { PATH_BYTES = 1024, BLOCK_BYTES = 1 << 16 };

struct state {
    FILE *file;
    bool is_reading, is_good;
    struct tw_sha256_parts parts; /* of the bytes written so far */
};

/* ---- fields, both ways --------------------------------------------------------------------- */

static void bytes(struct state *state, void *at, size_t size) {
    if (!state->is_good || size == 0) return;
    if (state->is_reading) {
        state->is_good = fread(at, 1, size, state->file) == size;
        return;
    }
    tw_sha256_add(&state->parts, at, size);
    state->is_good = fwrite(at, 1, size, state->file) == size;
}

#define FIELD(state, field) bytes(state, &(field), sizeof(field))

/* When reading, the old bytes are not freed: an open world has no payloads, and those of a struct
 * that was just read are pointers of another process. */
static void payload(struct state *state, struct payload *one) {
    FIELD(state, one->size);
    if (state->is_reading) {
        one->bytes = NULL;
        if (!state->is_good || one->size == 0) return;
        one->bytes = malloc(one->size);
        TW_ASSERT(one->bytes != NULL);
    }
    bytes(state, one->bytes, one->size);
}

static void payloads(struct state *state, struct payload *some, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) payload(state, &some[i]);
}

static void engine(struct state *state, struct tw_engine *engine) {
    const size_t size = (size_t)engine->layout->elements * sizeof(float);
    bytes(state, engine->theta, size);
    bytes(state, engine->m, size);
    bytes(state, engine->v, size);
    FIELD(state, engine->updates);
    FIELD(state, engine->skipped);
}

static void merger(struct state *state, struct tw_merger *merger) {
    struct tw_inflight *inflight = &merger->inflight;
    float *const arrays[] = {inflight->residual, inflight->residual_next, inflight->given,
                             inflight->share,    inflight->ahead,         inflight->ahead_u};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        if (arrays[i] == NULL) continue;
        bytes(state, arrays[i], (size_t)merger->shm->geometry.elements * sizeof(float));
    }
    FIELD(state, inflight->fragments);
    FIELD(state, merger->must_clip);
    FIELD(state, merger->history);
    bytes(state, merger->outlier, merger->shm->fragments_count * sizeof(*merger->outlier));
    FIELD(state, merger->work);
    FIELD(state, merger->guarded_count);
    FIELD(state, merger->has_said_mean);
    FIELD(state, merger->changes_count);
}

/* The anchor, and the node's unmerged work. The pool holds nothing between two events. */
static void merging(struct state *state, struct node *node) {
    if (!node->has_merger) return;
    bytes(state, node->memory, (size_t)node->shm.geometry.pool);
    merger(state, &node->merger);
    FIELD(state, node->pairing.distance);
    FIELD(state, node->pairing.guards);
}

static void pair_of(struct state *state, struct node *node) {
    FIELD(state, node->pair.is_out);
    FIELD(state, node->pair.is_unread);
    FIELD(state, node->pair.with);
    FIELD(state, node->pair.struck);
    payload(state, &node->pair.own_delta);
    payload(state, &node->pair.own_phi);
    payload(state, &node->pair.their_delta);
    payload(state, &node->pair.their_phi);
}

static void one_node(struct state *state, struct node *node) {
    engine(state, node->engine);
    merging(state, node);
    pair_of(state, node);
    FIELD(state, node->streams);
    FIELD(state, node->is_alive);
    FIELD(state, node->is_owner);
    FIELD(state, node->is_apart);
    FIELD(state, node->strikes);
    FIELD(state, node->is_false);
    FIELD(state, node->next_us);
    FIELD(state, node->boundary_us);
    FIELD(state, node->steps);
    FIELD(state, node->trained);
    FIELD(state, node->listed_tokens);
    FIELD(state, node->last_send_step);
    FIELD(state, node->delta_steps);
    FIELD(state, node->delta_tokens);
    FIELD(state, node->own_steps);
    FIELD(state, node->own_tokens);
    FIELD(state, node->applied);
    FIELD(state, node->told);
    FIELD(state, node->clock);
    FIELD(state, node->skipped);
}

static void open_round(struct state *state, struct world *world) {
    FIELD(state, world->round);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        payloads(state, world->round.from[i].parts, TW_PARTS_MAX);
    }
}

/* Pairs count rounds without commits. */
static void commits(struct state *state, struct world *world) {
    uint64_t count = world->commits != NULL ? world->rounds : 0;
    FIELD(state, count);
    if (state->is_reading && count > 0) {
        world->commits = calloc(count, sizeof(*world->commits));
        TW_ASSERT(world->commits != NULL);
        world->commits_room = count;
    }
    for (uint64_t r = 0; r < count && state->is_good; r++) {
        FIELD(state, world->commits[r]);
        payloads(state, world->commits[r].results, TW_PARTS_MAX);
    }
}

static void whole(struct state *state, struct world *world, struct outcome *outcome) {
    FIELD(state, world->now_us);
    FIELD(state, world->last_commit_us);
    FIELD(state, world->rounds);
    FIELD(state, world->clock);
    FIELD(state, world->is_final);
    FIELD(state, world->is_apart);
    FIELD(state, world->arrivals_us);
    FIELD(state, world->arrivals_count);
    FIELD(state, world->traffic);
    FIELD(state, world->measure.taken);
    bytes(state, outcome, sizeof(*outcome));
    open_round(state, world);
    commits(state, world);
    for (uint32_t i = 0; i < world->count; i++) one_node(state, &world->nodes[i]);
}

/* ---- files --------------------------------------------------------------------------------- */

bool state_can_save(const struct world *world) {
    return world->jury == NULL;
}

static void write_all(struct state *state, const struct tw_id *program, struct world *world,
                      struct outcome *outcome) {
    struct tw_id ids[2] = {*program, world->setting->id};
    tw_sha256_begin(&state->parts);
    FIELD(state, ids);
    whole(state, world, outcome);
    const struct tw_id seal = tw_sha256_end(&state->parts);
    state->is_good = state->is_good && fwrite(&seal, 1, sizeof(seal), state->file) == sizeof(seal);
}

enum tw_status state_save(const char *path, const struct tw_id *program, struct world *world,
                          struct outcome *outcome, struct tw_error *err) {
    char fresh[PATH_BYTES];
    TW_ASSERT(state_can_save(world));
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    struct state state = {.file = fopen(fresh, "wb"), .is_good = true};
    if (state.file == NULL) return tw_fail(err, TW_IO, "%s: %s", fresh, strerror(errno));
    write_all(&state, program, world, outcome);
    const bool is_closed = fclose(state.file) == 0;
    if (is_closed && state.is_good && rename(fresh, path) == 0) return TW_OK;
    const int cause = errno;
    (void)remove(fresh);
    return tw_fail(err, TW_IO, "%s: %s", path, strerror(cause));
}

/* Returns whether the file is complete, and of this case and build. */
static bool is_sound(FILE *file, const struct tw_id *program, const struct tw_id *id) {
    static uint8_t block[BLOCK_BYTES];
    struct tw_id ids[2], seal;
    struct tw_sha256_parts parts;
    if (fseek(file, 0, SEEK_END) != 0) return false;
    long left = ftell(file) - (long)sizeof(seal);
    rewind(file);
    if (left < (long)sizeof(ids) || fread(ids, 1, sizeof(ids), file) != sizeof(ids)) return false;
    if (!tw_id_equal(&ids[0], program) || !tw_id_equal(&ids[1], id)) return false;
    tw_sha256_begin(&parts);
    tw_sha256_add(&parts, ids, sizeof(ids));
    for (left -= (long)sizeof(ids); left > 0;) {
        const size_t size = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        if (fread(block, 1, size, file) != size) return false;
        tw_sha256_add(&parts, block, size);
        left -= (long)size;
    }
    const struct tw_id wanted = tw_sha256_end(&parts);
    return fread(&seal, 1, sizeof(seal), file) == sizeof(seal) && tw_id_equal(&seal, &wanted);
}

enum tw_status state_load(const char *path, const struct tw_id *program, struct world *world,
                          struct outcome *outcome, bool *is_found, struct tw_error *err) {
    struct state state = {.file = fopen(path, "rb"), .is_reading = true, .is_good = true};
    *is_found = state.file != NULL && is_sound(state.file, program, &world->setting->id);
    if (*is_found) {
        state.is_good = fseek(state.file, 2 * (long)sizeof(struct tw_id), SEEK_SET) == 0;
        whole(&state, world, outcome);
    }
    if (state.file != NULL) (void)fclose(state.file);
    return state.is_good ? TW_OK : tw_fail(err, TW_IO, "%s could not be read", path);
}
