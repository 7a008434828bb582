#include "worker/loop/snapshot.h"

#include <string.h>

#include "compress/codec.h"
#include "kernels/norm.h"

/* Addresses of theta, m and v in a snapshot, and the size of one moment array. */
struct slot_map {
    uint8_t *theta, *m, *v;
    size_t elements, moment_bytes;
};

static struct slot_map slot_map(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                uint32_t slot) {
    struct slot_map map = {.theta = tw_shm_snapshot_data(shm, slot)};
    map.elements = (size_t)shm->geometry.elements;
    map.moment_bytes = map.elements * (mode == TW_SNAPSHOT_FULL ? 4 : 2);
    map.m = map.theta + map.elements * 4;
    map.v = map.m + map.moment_bytes;
    return map;
}

static enum tw_status moment_put(const struct slot_map *map, enum tw_snapshot_mode mode,
                                 uint8_t *to, const float *moment) {
    if (mode == TW_SNAPSHOT_FULL) {
        memcpy(to, moment, map->moment_bytes);
        return TW_OK;
    }
    size_t bytes;
    return tw_codec_get(TW_CODEC_BF16)
        ->encode(moment, map->elements, to, map->moment_bytes, &bytes);
}

static enum tw_status moment_get(const struct slot_map *map, enum tw_snapshot_mode mode,
                                 const uint8_t *from, float *moment) {
    if (mode == TW_SNAPSHOT_FULL) {
        memcpy(moment, from, map->moment_bytes);
        return TW_OK;
    }
    return tw_codec_get(TW_CODEC_BF16)->decode(from, map->moment_bytes, moment, map->elements);
}

enum tw_status tw_snapshot_save(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                const struct tw_train_state *state, uint32_t *slot_out,
                                struct tw_error *err) {
    *slot_out = TW_SNAPSHOT_NONE;
    if (mode == TW_SNAPSHOT_OFF) return TW_OK;
    const size_t elements = (size_t)shm->geometry.elements;
    if (!tw_is_finite(state->theta, elements) || !tw_is_finite(state->m, elements) ||
        !tw_is_finite(state->v, elements)) {
        return tw_fail(err, TW_CORRUPT, "step %llu left numbers that are not finite",
                       (unsigned long long)state->step);
    }
    struct tw_snapshot_slot meta;
    memset(&meta, 0, sizeof(meta));
    meta.step = state->step;
    meta.tokens = state->tokens;
    meta.updates = state->updates;
    meta.cursor = state->cursor;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        meta.fragment_rounds[p] = view.state.rounds;
    }

    const uint32_t slot = tw_shm_snapshot_oldest(shm);
    const struct slot_map map = slot_map(shm, mode, slot);
    tw_shm_snapshot_begin(shm, slot);
    memcpy(map.theta, state->theta, elements * sizeof(float));
    TW_TRY(moment_put(&map, mode, map.m, state->m));
    TW_TRY(moment_put(&map, mode, map.v, state->v));
    tw_shm_snapshot_end(shm, slot, &meta);
    *slot_out = slot;
    return TW_OK;
}

enum tw_status tw_snapshot_load(const struct tw_shm *shm, enum tw_snapshot_mode mode, uint32_t slot,
                                struct tw_train_state *state, uint32_t *fragments_reset,
                                struct tw_error *err) {
    if (mode == TW_SNAPSHOT_OFF) return tw_fail(err, TW_CORRUPT, "snapshots are off");
    struct tw_snapshot_slot meta;
    TW_TRY(tw_shm_snapshot_check(shm, slot, &meta, err));
    const struct slot_map map = slot_map(shm, mode, slot);
    TW_TRY(moment_get(&map, mode, map.m, state->m));
    TW_TRY(moment_get(&map, mode, map.v, state->v));
    memcpy(state->theta, map.theta, map.elements * sizeof(float));
    state->step = meta.step;
    state->tokens = meta.tokens;
    state->updates = meta.updates;
    state->cursor = meta.cursor;

    uint32_t reset = 0;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        if (view.state.rounds == meta.fragment_rounds[p]) continue;
        memcpy(state->theta + shm->fragment_begin[p], view.phi,
               (size_t)view.elements * sizeof(float));
        reset++;
    }
    if (fragments_reset != NULL) *fragments_reset = reset;
    return TW_OK;
}
