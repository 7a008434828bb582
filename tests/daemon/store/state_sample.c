#include "tests/daemon/store/state_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/proto/sample.h"

static void add(struct tw_layout *layout, const char *name, uint32_t fragment, uint32_t rows,
                uint32_t cols) {
    struct tw_tensor *tensor = &layout->tensors[layout->tensors_count++];
    TW_ASSERT(snprintf(tensor->name, sizeof(tensor->name), "%s", name) > 0);
    tensor->shape = (struct tw_tensor_shape){cols > 0 ? 2 : 1, {rows, cols}};
    tensor->rows = rows;
    tensor->cols = cols > 0 ? cols : 1;
    tensor->fragment = fragment;
    layout->params += (uint64_t)tensor->rows * tensor->cols;
}

static void place(struct tw_layout *layout) {
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        uint64_t end = layout->fragment_begin[p];
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            struct tw_tensor *tensor = &layout->tensors[i];
            if (tensor->fragment != p) continue;
            tensor->offset = end;
            end += (uint64_t)tensor->rows * tensor->cols;
        }
        layout->fragment_begin[p + 1] = (end + TW_PART_ALIGN - 1) / TW_PART_ALIGN * TW_PART_ALIGN;
    }
    layout->elements = layout->fragment_begin[layout->fragments_count];
}

void sample_layout(struct tw_layout *layout, struct tw_run *run, uint32_t layers, uint32_t width,
                   uint32_t fragments) {
    enum { VOCAB = 16, CONTEXT = 8 };
    memset(layout, 0, sizeof(*layout));
    memset(run, 0, sizeof(*run));
    run->model.layers = layers;
    run->model.width = width;
    run->model.heads = 1;
    run->model.context = CONTEXT;
    run->model.vocab = VOCAB;
    layout->fragments_count = fragments;
    add(layout, "wte.weight", 0, VOCAB, width);
    add(layout, "wpe.weight", 0, CONTEXT, width);
    for (uint32_t layer = 0; layer < layers; layer++) {
        char name[48];
        const uint32_t fragment = fragments == 1 ? 0 : 1 + layer % (fragments - 1);
        (void)snprintf(name, sizeof(name), "h.%u.ln_1.weight", layer);
        add(layout, name, fragment, width, 0);
        (void)snprintf(name, sizeof(name), "h.%u.attn.c_attn.weight", layer);
        add(layout, name, fragment, width, 3 * width);
        (void)snprintf(name, sizeof(name), "h.%u.mlp.c_fc.bias", layer);
        add(layout, name, fragment, 4 * width, 0);
    }
    add(layout, "ln_f.weight", 0, width, 0);
    place(layout);
}

void sample_arrays_init(struct sample_arrays *arrays, const struct tw_layout *layout, bool bf16) {
    memset(arrays, 0, sizeof(*arrays));
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
        arrays->kinds[k] = calloc(layout->elements, 4);
        TW_ASSERT(arrays->kinds[k] != NULL);
        tw_checkpoint_arrays_set(&arrays->at, (enum tw_checkpoint_kind)k, layout, arrays->kinds[k],
                                 bf16 && k >= TW_CHECKPOINT_ADAM_M);
    }
}

void sample_arrays_deinit(struct sample_arrays *arrays) {
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) free(arrays->kinds[k]);
}

static void tensor_rng(struct tw_rng *rng, const struct tw_tensor *tensor, uint32_t kind,
                       uint64_t seed) {
    uint64_t name = seed * 31 + kind;
    for (const char *at = tensor->name; *at != '\0'; at++) name = name * 131 + (uint8_t)*at;
    tw_rng_seed(rng, name);
}

/* Draws the upper half of a finite float32, which is also a bf16 number. The lower half is zero. */
static uint16_t draw(struct tw_rng *rng) {
    return (uint16_t)(tw_rng_next(rng) & 0xbf7f);
}

void sample_fill(struct sample_arrays *arrays, const struct tw_layout *layout, uint64_t seed) {
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            const struct tw_tensor *tensor = &layout->tensors[i];
            struct tw_rng rng;
            tensor_rng(&rng, tensor, k, seed);
            for (uint64_t e = 0; e < (uint64_t)tensor->rows * tensor->cols; e++) {
                const uint16_t half = draw(&rng);
                const uint32_t whole = (uint32_t)half << 16;
                if (arrays->at.is_bf16[k]) {
                    memcpy(arrays->kinds[k] + (tensor->offset + e) * 2, &half, 2);
                } else {
                    memcpy(arrays->kinds[k] + (tensor->offset + e) * 4, &whole, 4);
                }
            }
        }
    }
}

bool sample_matches(const struct sample_arrays *arrays, const struct tw_layout *layout,
                    enum tw_checkpoint_kind kind, uint64_t seed) {
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &layout->tensors[i];
        struct tw_rng rng;
        tensor_rng(&rng, tensor, kind, seed);
        for (uint64_t e = 0; e < (uint64_t)tensor->rows * tensor->cols; e++) {
            const uint16_t half = draw(&rng);
            uint16_t parts[2] = {0, 0};
            if (arrays->at.is_bf16[kind]) {
                memcpy(&parts[1], arrays->kinds[kind] + (tensor->offset + e) * 2, 2);
            } else {
                memcpy(parts, arrays->kinds[kind] + (tensor->offset + e) * 4, 4);
            }
            if (parts[0] != 0 || parts[1] != half) return false;
        }
    }
    return true;
}

static void draw_close(struct tw_rng *rng, struct tw_record *record, uint64_t round) {
    struct tw_roster roster;
    memset(&roster, 0, sizeof(roster));
    tw_sample_roster(rng, &roster, 5);
    tw_sample_close(rng, record, &roster);
    record->round = round;
}

void sample_state(struct tw_checkpoint_state *state, uint32_t fragments, uint64_t rounds,
                  uint64_t seed) {
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    memset(state, 0, sizeof(*state));
    state->step = seed;
    state->tokens = tw_rng_next(&rng);
    state->updates = seed + 1;
    state->cursor = tw_rng_next(&rng);
    for (uint32_t i = 0; i < 4; i++) state->rng[i] = tw_rng_next(&rng);
    state->least_e6 = tw_rng_next(&rng) >> 24;
    state->is_wild = seed & 1;
    state->has_position = true;
    struct tw_position *position = &state->position;
    position->lineage = tw_sample_id(&rng);
    position->lineage_parent = tw_sample_id(&rng);
    position->nonce = tw_rng_next(&rng);
    position->rounds = rounds;
    position->has_tip = rounds > 0;
    if (rounds > 0) draw_close(&rng, &position->tip, rounds - 1);
    if (rounds > 1) {
        position->tip_proof = (struct tw_proof){.ballot = seed + 1, .voters = 0x3};
        for (uint32_t i = 0; i < TW_SIGNATURE_BYTES; i++)
            position->tip_proof.signatures[1][i] = (uint8_t)(seed + i);
    }
    if (seed % 3 == 0) { /* (phi, u) contains every round up to the tip */
        position->has_held = position->has_tip;
        position->held = position->tip;
    } else if (seed % 3 == 1) {
        position->has_held = 1;
        draw_close(&rng, &position->held, seed);
    }
    for (uint32_t p = 0; p < fragments; p++) {
        state->live_rounds[p] = tw_rng_below(&rng, rounds + 1);
        position->fragment_rounds[p] = p == 1 ? UINT64_MAX : tw_rng_below(&rng, rounds + 1);
        position->fragment_digests[p] = tw_sample_id(&rng);
        position->delta_tokens[p] = tw_rng_next(&rng);
        position->delta_steps[p] = tw_rng_next(&rng);
    }
}

void sample_vote(struct tw_vote *vote, uint64_t round, uint64_t seed) {
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    memset(vote, 0, sizeof(*vote));
    draw_close(&rng, &vote->accepted, round);
    vote->lineage = vote->accepted.lineage;
    vote->nonce = tw_rng_next(&rng);
    vote->round = round;
    vote->promised = 7 + seed;
    vote->accepted_ballot = 7;
    vote->has_accepted = 1;
}
