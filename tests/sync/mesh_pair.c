/* mesh_pair.c - the integer arithmetic of a pair run, and the books that check it. */
#include <string.h>

#include "base/assert.h"
#include "tests/sync/mesh.h"

void mesh_pair_step(struct mesh_worker *worker, uint32_t node, uint32_t fragments_count) {
    for (uint32_t p = 0; p < fragments_count; p++) {
        const int64_t moved = 1000 + 37 * (int64_t)node + (int64_t)(worker->step % 11);
        worker->pair[p].theta -= moved;
        worker->worked[p] += moved;
    }
}

/* The first 8 bytes of a payload's name are its value. */
static struct tw_id name_of(int64_t value, uint64_t tag) {
    struct tw_id name = mesh_digest(tag);
    memcpy(name.bytes, &value, sizeof(value));
    return name;
}

static int64_t value_of(const struct tw_id *name) {
    int64_t value;
    memcpy(&value, name->bytes, sizeof(value));
    return value;
}

static int64_t decoded(int64_t value) {
    return value - (value % 16 + 16) % 16;
}

void mesh_pair_encode(struct mesh *mesh, uint32_t node, const struct tw_action *action,
                      struct tw_id names[TW_PAIR_PAYLOADS]) {
    struct mesh_worker *worker = &mesh->workers[node];
    const uint32_t fragment = action->u.pair_encode.fragment;
    struct mesh_pair *pair = &worker->pair[fragment];
    const int64_t phi = (int64_t)worker->phi[fragment];
    pair->has_sent = true;
    pair->sent_round = action->u.pair_encode.round;
    pair->sent = phi - pair->theta;
    mesh->encodes++;
    mesh->wholes[node] += action->u.pair_encode.is_whole;
    names[TW_PAIR_DELTA] = name_of(decoded(pair->residual + pair->sent), 4 * mesh->encodes);
    names[TW_PAIR_PHI] = name_of(phi, 4 * mesh->encodes + 1 + action->u.pair_encode.is_whole);
    /* The last byte of the name tells the partner whether phi is encoded whole. */
    names[TW_PAIR_PHI].bytes[31] = action->u.pair_encode.is_whole != 0;
}

static void book_merge(struct mesh *mesh, const struct tw_action *action, int64_t moved) {
    struct tw_id deltas;
    for (unsigned i = 0; i < sizeof(deltas.bytes); i++)
        deltas.bytes[i] = action->inputs[TW_PAIR_DELTA].bytes[i] ^
                          action->inputs[TW_PAIR_THEIRS + TW_PAIR_DELTA].bytes[i];
    for (uint32_t i = 0; i < mesh->merges_count; i++) {
        if (!tw_id_equal(&mesh->merges[i].deltas, &deltas)) continue;
        mesh->merges[i].moved += moved;
        mesh->merges[i].sides++;
        TW_ASSERT(mesh->merges[i].sides == 2);
        return;
    }
    TW_ASSERT(mesh->merges_count < MESH_MERGES_MAX);
    mesh->merges[mesh->merges_count++] =
        (struct mesh_merge){.deltas = deltas, .moved = moved, .sides = 1};
}

bool mesh_pair_apply(struct mesh *mesh, uint32_t node, const struct tw_action *action,
                     bool is_refused) {
    struct mesh_worker *worker = &mesh->workers[node];
    const uint32_t fragment = action->u.pair_apply.fragment;
    struct mesh_pair *pair = &worker->pair[fragment];
    const int64_t phi = (int64_t)worker->phi[fragment];
    const bool has_sent = pair->has_sent && pair->sent_round == action->u.pair_apply.round;
    TW_ASSERT(has_sent || action->u.pair_apply.is_alone);
    const int64_t delta = has_sent ? pair->sent : phi - pair->theta;
    const int64_t wanted = pair->residual + delta;
    bool is_alone = action->u.pair_apply.is_alone;
    int64_t outer = wanted;
    if (!is_alone) {
        const struct tw_id *theirs_name = &action->inputs[TW_PAIR_THEIRS + TW_PAIR_PHI];
        const int64_t theirs_phi = value_of(theirs_name);
        const int64_t apart = phi > theirs_phi ? phi - theirs_phi : theirs_phi - phi;
        is_alone = is_refused || (mesh->wrap_limit > 0 && apart > mesh->wrap_limit &&
                                  theirs_name->bytes[31] == 0);
        if (!is_alone) {
            const int64_t own = decoded(wanted);
            const int64_t theirs = value_of(&action->inputs[TW_PAIR_THEIRS + TW_PAIR_DELTA]);
            TW_ASSERT(own == value_of(&action->inputs[TW_PAIR_DELTA]));
            outer = (own + theirs) / 2 + (phi - theirs_phi) / 2;
            book_merge(mesh, action, own - outer);
        }
    }
    pair->residual = is_alone ? 0 : wanted - decoded(wanted);
    worker->phi[fragment] = (uint64_t)(phi - outer);
    pair->theta += delta - outer;
    if (action->u.pair_apply.is_final) {
        worker->worked[fragment] += pair->theta - (phi - outer); /* given up: theta becomes phi */
        pair->theta = phi - outer;
    }
    pair->has_sent = false;
    return is_alone && !action->u.pair_apply.is_alone;
}

void mesh_pair_solo(struct mesh_worker *worker, uint32_t fragment) {
    struct mesh_pair *pair = &worker->pair[fragment];
    pair->theta -= pair->residual;
    pair->residual = 0;
    pair->has_sent = false;
    worker->phi[fragment] = (uint64_t)pair->theta;
}

void mesh_pair_load(struct mesh_worker *worker, uint32_t fragment, enum tw_load_mode mode,
                    uint64_t phi_before) {
    struct mesh_pair *pair = &worker->pair[fragment];
    const int64_t phi = (int64_t)worker->phi[fragment];
    const int64_t before = pair->theta;
    if (mode == TW_LOAD_RESET) pair->theta = phi;
    if (mode == TW_LOAD_SHIFT) pair->theta += phi - (int64_t)phi_before;
    if (mode == TW_LOAD_BACK) worker->phi[fragment] = (uint64_t)pair->theta;
    worker->worked[fragment] += before - pair->theta; /* so that the books stay even */
}

int64_t mesh_pair_imbalance(const struct mesh *mesh, uint32_t *one_sided) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < mesh->nodes_count; i++) {
        const struct mesh_worker *worker = &mesh->workers[i];
        for (uint32_t p = 0; p < mesh->config.fragments_count; p++)
            sum += worker->worked[p] + worker->pair[p].theta - worker->pair[p].residual;
    }
    for (uint32_t i = 0; i < mesh->merges_count; i++) {
        if (mesh->merges[i].sides == 2) TW_ASSERT(mesh->merges[i].moved == 0);
        if (mesh->merges[i].sides == 2) continue;
        sum -= mesh->merges[i].moved;
        (*one_sided)++;
    }
    return sum;
}
