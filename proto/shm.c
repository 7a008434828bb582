#include "proto/shm.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

_Static_assert(sizeof(float) == 4, "float32 arrays");

enum { PAGE_BYTES = 4096 };

static const char shm_magic[8] = {'T', 'W', 'S', 'H', 'M', '0', '0', '2'};

/* ---- geometry ------------------------------------------------------------------------------ */

uint64_t tw_shm_snapshot_bytes(uint64_t elements, enum tw_snapshot_mode mode) {
    switch (mode) {
    case TW_SNAPSHOT_FULL: return elements * 12;
    case TW_SNAPSHOT_BF16_MOMENTS: return elements * 8;
    case TW_SNAPSHOT_OFF: return 0;
    }
    return 0;
}

/* Reserves a region of `bytes`, rounded up to pages, and returns its offset. */
static uint64_t region_take(uint64_t *end, uint64_t bytes) {
    const uint64_t begin = *end;
    *end += (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return begin;
}

enum tw_status tw_shm_geometry_init(struct tw_shm_geometry *geometry,
                                    const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                    uint64_t pool_bytes, struct tw_error *err) {
    const uint64_t elements = layout->elements;
    if (elements > UINT64_C(1) << 40 || pool_bytes > UINT64_C(1) << 46) {
        return tw_fail(err, TW_LIMIT, "a model of %llu elements does not fit in shared memory",
                       (unsigned long long)elements);
    }
    uint64_t spare = 0;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const uint64_t count = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
        if (count > spare) spare = count;
    }
    memset(geometry, 0, sizeof(*geometry));
    geometry->elements = elements;
    geometry->spare_elements = spare;
    geometry->snapshot_bytes = tw_shm_snapshot_bytes(elements, mode);
    geometry->pool_bytes = pool_bytes;

    uint64_t end = 0;
    (void)region_take(&end, sizeof(struct tw_shm_control));
    geometry->phi = region_take(&end, elements * 4);
    const uint64_t u_bytes = tw_momentum_bytes(layout->momentum);
    geometry->u = region_take(&end, elements * u_bytes);
    geometry->spare_phi = region_take(&end, spare * 4);
    geometry->spare_u = region_take(&end, spare * u_bytes);
    for (uint32_t slot = 0; slot < TW_SNAPSHOT_SLOTS; slot++) {
        geometry->snapshot[slot] = region_take(&end, geometry->snapshot_bytes);
    }
    geometry->pool = region_take(&end, pool_bytes);
    geometry->bytes = end;
    return TW_OK;
}

enum tw_status tw_shm_geometry_check(const struct tw_shm_geometry *geometry,
                                     const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                     uint64_t bytes_mapped, struct tw_error *err) {
    struct tw_shm_geometry own = {0};
    TW_TRY(tw_shm_geometry_init(&own, layout, mode, geometry->pool_bytes, err));
    if (geometry->elements != own.elements || geometry->spare_elements != own.spare_elements) {
        return tw_fail(err, TW_PROTO,
                       "shared memory is for %llu elements, the run's model has %llu: daemon and "
                       "worker are of different releases",
                       (unsigned long long)geometry->elements, (unsigned long long)own.elements);
    }
    if (bytes_mapped != own.bytes) {
        return tw_fail(err, TW_PROTO, "shared memory has %llu bytes, its geometry needs %llu",
                       (unsigned long long)bytes_mapped, (unsigned long long)own.bytes);
    }
    /* A byte comparison is valid: every field is a uint64_t, so the struct has no padding. */
    if (memcmp(geometry, &own, sizeof(own)) != 0) {
        return tw_fail(err, TW_PROTO,
                       "shared memory regions lie elsewhere than this release puts them: daemon "
                       "and worker are of different releases");
    }
    return TW_OK;
}

void tw_shm_bind(struct tw_shm *shm, void *base, const struct tw_shm_geometry *geometry,
                 const struct tw_layout *layout) {
    TW_ASSERT((uintptr_t)base % PAGE_BYTES == 0);
    TW_ASSERT(layout->fragments_count <= TW_FRAGMENTS_MAX);
    TW_ASSERT(layout->elements == geometry->elements);
    shm->base = base;
    shm->geometry = *geometry;
    shm->momentum = layout->momentum;
    shm->fragments_count = layout->fragments_count;
    memcpy(shm->fragment_begin, layout->fragment_begin, sizeof(shm->fragment_begin));
    shm->hashed = NULL;
}

void tw_shm_format(const struct tw_shm *shm) {
    struct tw_shm_control *control = tw_shm_control(shm);
    memset(control, 0, sizeof(*control));
    memcpy(control->magic, shm_magic, sizeof(shm_magic));
}

enum tw_status tw_shm_check_magic(const struct tw_shm *shm, struct tw_error *err) {
    if (memcmp(tw_shm_control(shm)->magic, shm_magic, sizeof(shm_magic)) == 0) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "shared memory does not start with %.8s", shm_magic);
}

struct tw_shm_control *tw_shm_control(const struct tw_shm *shm) {
    return (struct tw_shm_control *)(void *)shm->base;
}

uint64_t tw_shm_fragment_elements(const struct tw_shm *shm, uint32_t fragment) {
    TW_ASSERT(fragment < shm->fragments_count);
    return shm->fragment_begin[fragment + 1] - shm->fragment_begin[fragment];
}

void *tw_shm_pool(const struct tw_shm *shm, uint64_t offset, uint64_t bytes) {
    const struct tw_shm_geometry *g = &shm->geometry;
    if (offset < g->pool || offset - g->pool > g->pool_bytes) return NULL;
    if (bytes > g->pool_bytes - (offset - g->pool)) return NULL;
    return shm->base + offset;
}

/* ---- (phi, u) ------------------------------------------------------------------------------ */

static float *floats_at(const struct tw_shm *shm, uint64_t offset) {
    return (float *)(void *)(shm->base + offset);
}

enum { AT_HOME = TW_FRAGMENTS_MAX };

/* Returns the fragment in the spare buffer, or AT_HOME if there is none or the word is invalid. */
static uint32_t displaced_of(const struct tw_shm *shm, uint64_t published) {
    const uint32_t low = (uint32_t)published;
    return low >= 1 && low <= shm->fragments_count ? low - 1 : AT_HOME;
}

void tw_shm_home(const struct tw_shm *shm, uint32_t fragment, float **phi, void **u) {
    TW_ASSERT(fragment < shm->fragments_count);
    const uint64_t begin = shm->fragment_begin[fragment];
    *phi = floats_at(shm, shm->geometry.phi) + begin;
    *u = shm->base + shm->geometry.u + begin * tw_momentum_bytes(shm->momentum);
}

void tw_shm_view(const struct tw_shm *shm, uint32_t fragment, struct tw_shm_view *view) {
    struct tw_shm_control *control = tw_shm_control(shm);
    float *phi;
    void *u;
    tw_shm_home(shm, fragment, &phi, &u);
    view->elements = tw_shm_fragment_elements(shm, fragment);
    const uint64_t published = atomic_load_explicit(&control->published, memory_order_acquire);
    if (displaced_of(shm, published) == fragment) {
        view->phi = floats_at(shm, shm->geometry.spare_phi);
        view->u = shm->base + shm->geometry.spare_u;
        view->state = control->spare;
    } else {
        view->phi = phi;
        view->u = u;
        view->state = control->home[fragment];
    }
}

/* Release store: earlier writes become visible before it. The fence keeps later writes after it. */
static void published_set(const struct tw_shm *shm, uint32_t low) {
    struct tw_shm_control *control = tw_shm_control(shm);
    const uint64_t old = atomic_load_explicit(&control->published, memory_order_relaxed);
    const uint64_t sequence = (old >> 32) + 1;
    atomic_store_explicit(&control->published, sequence << 32 | low, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
}

void tw_shm_settle(const struct tw_shm *shm) {
    struct tw_shm_control *control = tw_shm_control(shm);
    const uint64_t published = atomic_load_explicit(&control->published, memory_order_relaxed);
    const uint32_t fragment = displaced_of(shm, published);
    if (fragment == AT_HOME) return;
    float *phi;
    void *u;
    tw_shm_home(shm, fragment, &phi, &u);
    const size_t elements = (size_t)tw_shm_fragment_elements(shm, fragment);
    memcpy(phi, floats_at(shm, shm->geometry.spare_phi), elements * sizeof(float));
    memcpy(u, shm->base + shm->geometry.spare_u, elements * tw_momentum_bytes(shm->momentum));
    control->home[fragment] = control->spare;
    published_set(shm, 0);
}

void tw_shm_stage_begin(const struct tw_shm *shm, uint32_t fragment, float **phi, void **u) {
    TW_ASSERT(fragment < shm->fragments_count);
    tw_shm_settle(shm);
    *phi = floats_at(shm, shm->geometry.spare_phi);
    *u = shm->base + shm->geometry.spare_u;
}

void tw_shm_stage_publish(const struct tw_shm *shm, uint32_t fragment,
                          const struct tw_shm_state *state) {
    struct tw_shm_control *control = tw_shm_control(shm);
    const uint64_t published = atomic_load_explicit(&control->published, memory_order_relaxed);
    TW_ASSERT(displaced_of(shm, published) == AT_HOME);
    TW_ASSERT(fragment < shm->fragments_count);
    control->spare = *state;
    published_set(shm, fragment + 1);
}

void tw_shm_home_set(const struct tw_shm *shm, uint32_t fragment,
                     const struct tw_shm_state *state) {
    struct tw_shm_control *control = tw_shm_control(shm);
    const uint64_t published = atomic_load_explicit(&control->published, memory_order_relaxed);
    TW_ASSERT(displaced_of(shm, published) == AT_HOME);
    TW_ASSERT(fragment < shm->fragments_count);
    control->home[fragment] = *state;
}

struct tw_id tw_shm_digest(const float *phi, const void *u, uint64_t elements,
                           enum tw_momentum momentum) {
    return tw_sha256_pair(phi, (size_t)elements * sizeof(float), u,
                          (size_t)(elements * tw_momentum_bytes(momentum)));
}

/* ---- snapshots ----------------------------------------------------------------------------- */

void *tw_shm_snapshot_data(const struct tw_shm *shm, uint32_t slot) {
    TW_ASSERT(slot < TW_SNAPSHOT_SLOTS);
    return shm->base + shm->geometry.snapshot[slot];
}

static struct tw_snapshot_slot *slot_of(const struct tw_shm *shm, uint32_t slot) {
    TW_ASSERT(slot < TW_SNAPSHOT_SLOTS);
    return &tw_shm_control(shm)->snapshots[slot];
}

/* Copies field by field, because `seq` is atomic. */
static void slot_copy(struct tw_snapshot_slot *to, const struct tw_snapshot_slot *from) {
    to->step = from->step;
    to->tokens = from->tokens;
    to->checksum = from->checksum;
    to->updates = from->updates;
    memcpy(to->rng, from->rng, sizeof(to->rng));
    to->cursor = from->cursor;
    to->bytes = from->bytes;
    memcpy(to->fragment_rounds, from->fragment_rounds, sizeof(to->fragment_rounds));
}

/* xxh64 over a snapshot's fields, with the xxh64 of its data among them. */
static uint64_t snapshot_checksum(const struct tw_shm *shm, uint32_t slot,
                                  const struct tw_snapshot_slot *meta) {
    const void *data = tw_shm_snapshot_data(shm, slot);
    uint64_t fields[10 + TW_FRAGMENTS_MAX] = {
        meta->step,    meta->tokens, tw_xxh64_told(data, (size_t)meta->bytes, shm->hashed),
        meta->updates, meta->rng[0], meta->rng[1],
        meta->rng[2],  meta->rng[3], meta->cursor,
        meta->bytes,
    };
    memcpy(fields + 10, meta->fragment_rounds, sizeof(meta->fragment_rounds));
    return tw_xxh64(fields, sizeof(fields));
}

void tw_shm_snapshot_begin(const struct tw_shm *shm, uint32_t slot) {
    struct tw_snapshot_slot *page = slot_of(shm, slot);
    const uint64_t seq = atomic_load_explicit(&page->seq, memory_order_relaxed);
    /* If the last write was interrupted by a kill, the sequence is already odd and stays odd. */
    atomic_store_explicit(&page->seq, seq | 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
}

void tw_shm_snapshot_end(const struct tw_shm *shm, uint32_t slot,
                         const struct tw_snapshot_slot *meta) {
    struct tw_snapshot_slot *page = slot_of(shm, slot);
    const uint64_t seq = atomic_load_explicit(&page->seq, memory_order_relaxed);
    TW_ASSERT(seq % 2 == 1);
    slot_copy(page, meta);
    page->bytes = shm->geometry.snapshot_bytes;
    page->checksum = snapshot_checksum(shm, slot, page);
    atomic_store_explicit(&page->seq, seq + 1, memory_order_release);
}

enum tw_status tw_shm_snapshot_check(const struct tw_shm *shm, uint32_t slot,
                                     struct tw_snapshot_slot *meta, struct tw_error *err) {
    const struct tw_snapshot_slot *page = slot_of(shm, slot);
    const uint64_t seq = atomic_load_explicit(&page->seq, memory_order_acquire);
    if (seq == 0) return tw_fail(err, TW_CORRUPT, "snapshot slot %u is empty", slot);
    if (seq % 2 == 1) return tw_fail(err, TW_CORRUPT, "snapshot slot %u is torn", slot);
    slot_copy(meta, page);
    atomic_init(&meta->seq, seq);
    if (meta->bytes != shm->geometry.snapshot_bytes || meta->bytes == 0) {
        return tw_fail(err, TW_CORRUPT, "snapshot slot %u has the wrong size", slot);
    }
    const uint64_t checksum = snapshot_checksum(shm, slot, meta);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&page->seq, memory_order_relaxed) != seq) {
        return tw_fail(err, TW_CORRUPT, "snapshot slot %u was overwritten meanwhile", slot);
    }
    if (checksum != meta->checksum) {
        return tw_fail(err, TW_CORRUPT, "snapshot slot %u fails its checksum", slot);
    }
    return TW_OK;
}

uint32_t tw_shm_snapshot_oldest(const struct tw_shm *shm) {
    uint32_t oldest = 0;
    uint64_t oldest_step = UINT64_MAX;
    for (uint32_t slot = 0; slot < TW_SNAPSHOT_SLOTS; slot++) {
        const struct tw_snapshot_slot *page = slot_of(shm, slot);
        const uint64_t seq = atomic_load_explicit(&page->seq, memory_order_acquire);
        if (seq == 0 || seq % 2 == 1) return slot;
        if (page->step < oldest_step) {
            oldest = slot;
            oldest_step = page->step;
        }
    }
    return oldest;
}

/* Snapshots of the same step are ordered by their rounds: a merge during a pause changes theta
 * without a step. */
static bool is_newer(const struct tw_snapshot_slot *a, const struct tw_snapshot_slot *b) {
    uint64_t a_rounds = 0, b_rounds = 0;
    for (uint32_t p = 0; p < TW_FRAGMENTS_MAX; p++) {
        a_rounds += a->fragment_rounds[p];
        b_rounds += b->fragment_rounds[p];
    }
    return a->step != b->step ? a->step > b->step : a_rounds > b_rounds;
}

void tw_shm_snapshot_forget(const struct tw_shm *shm, uint32_t slot) {
    atomic_store_explicit(&slot_of(shm, slot)->seq, 0, memory_order_release);
}

int tw_shm_snapshot_newest(const struct tw_shm *shm, struct tw_snapshot_slot *meta) {
    int newest = -1;
    struct tw_snapshot_slot candidate;
    memset(&candidate, 0, sizeof(candidate));
    memset(meta, 0, sizeof(*meta));
    for (uint32_t slot = 0; slot < TW_SNAPSHOT_SLOTS; slot++) {
        if (tw_shm_snapshot_check(shm, slot, &candidate, NULL) != TW_OK) continue;
        if (newest >= 0 && !is_newer(&candidate, meta)) continue;
        slot_copy(meta, &candidate);
        atomic_init(&meta->seq, atomic_load_explicit(&candidate.seq, memory_order_relaxed));
        newest = (int)slot;
    }
    return newest;
}
