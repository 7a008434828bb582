/* thinwire-engine verify: repeats a run from its archive (proto/archive.h), and so proves a model.
 *
 * Three things are checked of each round: that the voters of the record before decided it; that
 * each result has the hash in the record; and that (phi, u) had, before the merge, the digest that
 * the voters wrote into the record. The merges are those of a node: worker/merge/anchor.h.
 *
 * A fragment whose state is not known, at the beginning or after rounds that one node trained
 * alone, goes on from the archived state that the next record of the fragment names. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/units.h"
#include "proto/archive.h"
#include "proto/shm.h"
#include "worker/cli/engine_verb.h"
#include "worker/engine/engine.h"
#include "worker/engine/vectors.h"
#include "worker/files/archive_chain.h"
#include "worker/files/model_source.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"
#include "worker/support/progress.h"
#include "worker/support/signals.h"

/* Knowledge of a fragment's (phi, u) at the present round. */
enum knowledge {
    UNKNOWN,
    GIVEN,  /* the seed's values, or a state from the archive that no record has named yet */
    MERGED, /* the outcome of an archived merge: the next record must name it */
};

struct proof {
    const char *folder, *model, *part;
    bool json;
    struct tw_run run;
    struct tw_layout layout;
    struct tw_archive_chain chain;

    void *memory; /* (phi, u) and room for the results of one round, as a node shares them */
    size_t memory_bytes;
    struct tw_shm shm;
    float *theta; /* (elements); never written */
    struct tw_vectors vectors;
    struct tw_merger merger;
    bool has_merger;

    enum knowledge known[TW_FRAGMENTS_MAX];
    char missing[128]; /* first file that the archive lacks; "": none */
    uint64_t votes, merges, matches, states, forks;
    uint64_t foreign_forks; /* founded by a node without a seat */
    bool is_closed;         /* the run's closing record names the whole model */
    struct tw_chain_round now, before;
};

/* ---- memory ---------------------------------------------------------------------------------- */

static void *reserve(size_t bytes) {
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static enum tw_status open_memory(struct proof *proof, struct tw_error *err) {
    const struct tw_layout *const layout = &proof->layout;
    const struct tw_codec *const codec = tw_codec_get(proof->run.sync.result);
    struct tw_shm_geometry geometry;
    uint64_t largest = 0;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const uint64_t n = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
        if (n > largest) largest = n;
    }
    /* Parts are coded apart, so each may have a rounded end. */
    const uint64_t pool = codec->bound((size_t)largest) + TW_PARTS_MAX * 8192;
    TW_TRY(tw_shm_geometry_init(&geometry, layout, TW_SNAPSHOT_OFF, pool, err));
    proof->memory_bytes = (size_t)geometry.bytes;
    proof->memory = reserve(proof->memory_bytes);
    proof->theta = reserve((size_t)layout->elements * sizeof(float));
    if (proof->memory == NULL || proof->theta == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for the model: %zu bytes", proof->memory_bytes);
    tw_shm_bind(&proof->shm, proof->memory, &geometry, layout);
    tw_shm_format(&proof->shm);
    proof->vectors = tw_vectors_host(proof->theta, NULL, NULL);
    TW_TRY(tw_merger_init(&proof->merger, &proof->run, &proof->shm, &proof->vectors, err));
    proof->has_merger = true;
    return TW_OK;
}

static void close_memory(struct proof *proof) {
    if (proof->has_merger) tw_merger_deinit(&proof->merger);
    if (proof->memory != NULL) (void)munmap(proof->memory, proof->memory_bytes);
    if (proof->theta != NULL)
        (void)munmap(proof->theta, (size_t)proof->layout.elements * sizeof(float));
    tw_archive_chain_close(&proof->chain);
}

/* Publishes bytes, phi and then u, as the state of the fragment after `rounds` rounds. */
static void set_state(struct proof *proof, uint32_t p, const void *phi, const void *u,
                      uint64_t rounds) {
    const size_t n = (size_t)tw_shm_fragment_elements(&proof->shm, p);
    const size_t u_bytes = n * (size_t)tw_momentum_bytes(proof->shm.momentum);
    float *to;
    void *to_u;
    tw_shm_stage_begin(&proof->shm, p, &to, &to_u);
    memcpy(to, phi, n * sizeof(float));
    if (u != NULL)
        memcpy(to_u, u, u_bytes);
    else
        memset(to_u, 0, u_bytes);
    const struct tw_shm_state state = {.rounds = rounds,
                                       .digest = tw_shm_digest(to, to_u, n, proof->shm.momentum)};
    tw_shm_stage_publish(&proof->shm, p, &state);
    proof->known[p] = GIVEN;
}

/* The model with which every node of the run begins, where the manifest says it. */
static enum tw_status begin_from_seed(struct proof *proof, struct tw_error *err) {
    const struct tw_layout *const layout = &proof->layout;
    if (proof->run.model.family == TW_FAMILY_TENSORS || !tw_id_is_zero(&proof->run.model.base))
        return TW_OK;
    float *const params = calloc((size_t)layout->elements, sizeof(*params));
    if (params == NULL) return tw_fail(err, TW_NOMEM, "no memory for the model's first weights");
    tw_engine_init_params(&proof->run, layout, params);
    for (uint32_t p = 0; p < layout->fragments_count; p++)
        set_state(proof, p, params + layout->fragment_begin[p], NULL, 0);
    free(params);
    return TW_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static const struct tw_id *digest_of(const struct proof *proof, uint32_t p,
                                     struct tw_shm_view *view) {
    tw_shm_view(&proof->shm, p, view);
    return &view->state.digest;
}

static void note_missing(struct proof *proof, const char *inner, const char *name) {
    if (proof->missing[0] == '\0')
        (void)snprintf(proof->missing, sizeof(proof->missing), "%s/%s", inner, name);
}

/* Reads the archived state with this digest. It stays unknown if the archive lacks it. */
static enum tw_status load_state(struct proof *proof, uint32_t p, const struct tw_id *digest,
                                 uint64_t rounds, struct tw_error *err) {
    const size_t n = (size_t)tw_shm_fragment_elements(&proof->shm, p);
    const size_t phi_bytes = n * sizeof(float),
                 u_bytes = n * (size_t)tw_momentum_bytes(proof->shm.momentum);
    char name[TW_ARCHIVE_NAME_BYTES];
    struct tw_shm_view view;
    struct tw_error why;
    uint8_t *bytes;
    tw_archive_state_name(digest, name);
    proof->known[p] = UNKNOWN;
    if (tw_archive_read(proof->folder, "states", name, phi_bytes + u_bytes, &bytes, &why) !=
        TW_OK) {
        note_missing(proof, "states", name);
        return TW_OK;
    }
    set_state(proof, p, bytes, bytes + phi_bytes, rounds);
    free(bytes);
    proof->states++;
    if (tw_id_equal(digest_of(proof, p, &view), digest)) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "states/%s is damaged: it has not the digest of its name",
                   name);
}

/* Brings the fragment to the state that the record says it had before the round. */
static enum tw_status take_base(struct proof *proof, struct tw_error *err) {
    const struct tw_record *const record = &proof->now.record;
    const uint32_t p = record->fragment;
    struct tw_shm_view view;
    if (tw_id_is_zero(&record->base)) return TW_OK;
    if (proof->known[p] != UNKNOWN && tw_id_equal(digest_of(proof, p, &view), &record->base)) {
        proof->matches++;
        return TW_OK;
    }
    if (proof->known[p] == MERGED && proof->now.link == TW_CHAIN_DECIDED)
        return tw_fail(err, TW_CORRUPT,
                       "rounds/%s: its voters merged into another model than the archived rounds "
                       "give: a record or a result before it is not the run's",
                       proof->now.name);
    TW_TRY(load_state(proof, p, &record->base, record->round, err));
    proof->matches += proof->known[p] != UNKNOWN;
    return TW_OK;
}

/* Reads the results of the round into the pool, and checks their hashes. Sets *is_here to whether
 * the archive has them. */
static enum tw_status read_results(struct proof *proof, struct tw_wmsg_apply *apply, bool *is_here,
                                   struct tw_error *err) {
    const struct tw_record *const record = &proof->now.record;
    char name[TW_ARCHIVE_NAME_BYTES];
    struct tw_error why;
    uint64_t size = 0;
    uint8_t *bytes;
    for (uint32_t k = 0; k < record->parts_count; k++) size += record->parts[k].bytes;
    tw_archive_round_name(record, "results", name);
    *is_here = false;
    uint8_t *const pool = tw_shm_pool(&proof->shm, proof->shm.geometry.pool, size);
    if (pool == NULL)
        return tw_fail(err, TW_CORRUPT, "rounds/%s: results of %" PRIu64 " bytes are too large",
                       proof->now.name, size);
    if (size > 0 && tw_archive_read(proof->folder, "rounds", name, size, &bytes, &why) != TW_OK) {
        note_missing(proof, "rounds", name);
        return TW_OK;
    }
    if (size > 0) memcpy(pool, bytes, size);
    if (size > 0) free(bytes);
    uint64_t at = 0;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *const part = &record->parts[k];
        const struct tw_id hash = tw_sha256(pool + at, part->bytes);
        if (part->bytes > 0 && !tw_id_equal(&hash, &part->result))
            return tw_fail(err, TW_CORRUPT,
                           "rounds/%s is damaged: part %u is not the result that "
                           "the record names",
                           name, k);
        apply->parts[k].in =
            (struct tw_span){.offset = proof->shm.geometry.pool + at, .bytes = part->bytes};
        at += part->bytes;
    }
    *is_here = true;
    return TW_OK;
}

/* Divides the fragment among the owners, by their weights in the record before. */
static enum tw_status divide(const struct proof *proof, struct tw_wmsg_apply *apply,
                             struct tw_error *err) {
    const struct tw_record *const record = &proof->now.record;
    const struct tw_roster *const roster = &proof->before.record.next;
    uint32_t owners[TW_PARTS_MAX], weights[TW_PARTS_MAX];
    const uint32_t count = tw_roster_owners(roster, owners);
    if (count != record->parts_count)
        return tw_fail(err, TW_CORRUPT, "rounds/%s: %u parts of %u owners", proof->now.name,
                       record->parts_count, count);
    for (uint32_t k = 0; k < count; k++) weights[k] = roster->members[owners[k]].weight;
    for (uint32_t k = 0; k < count; k++) {
        tw_layout_part(tw_shm_fragment_elements(&proof->shm, record->fragment), weights, count, k,
                       &apply->parts[k].begin, &apply->parts[k].count);
        apply->parts[k].mode = record->parts[k].bytes > 0 ? TW_APPLY_STAY : TW_APPLY_ABSENT;
    }
    return TW_OK;
}

static enum tw_status merge(struct proof *proof, struct tw_error *err) {
    static struct tw_wmsg_apply apply;
    const struct tw_record *const record = &proof->now.record;
    const uint32_t p = record->fragment;
    struct tw_wmsg_applied applied;
    bool is_here;
    apply = (struct tw_wmsg_apply){.round = record->round,
                                   .version = record->round / proof->layout.fragments_count,
                                   .fragment = p,
                                   .parts_count = record->parts_count};
    TW_TRY(take_base(proof, err));
    if (proof->known[p] == UNKNOWN) return TW_OK;
    TW_TRY(divide(proof, &apply, err));
    TW_TRY(read_results(proof, &apply, &is_here, err));
    proof->known[p] = UNKNOWN;
    if (!is_here) return TW_OK;
    TW_TRY(tw_anchor_apply(&proof->merger, &apply, &applied, err));
    proof->merges++;
    proof->known[p] = MERGED;
    return TW_OK;
}

static bool knows_all(const struct proof *proof) {
    for (uint32_t p = 0; p < proof->layout.fragments_count; p++)
        if (proof->known[p] == UNKNOWN) return false;
    return true;
}

/* The last record of a run names the digests of all fragments together. */
static enum tw_status check_closing(struct proof *proof, struct tw_error *err) {
    struct tw_id digests[TW_FRAGMENTS_MAX];
    if (!knows_all(proof)) return TW_OK;
    for (uint32_t p = 0; p < proof->layout.fragments_count; p++) {
        struct tw_shm_view view;
        digests[p] = *digest_of(proof, p, &view);
    }
    const struct tw_id root = tw_record_root(digests, proof->layout.fragments_count);
    if (!tw_id_equal(&root, &proof->now.record.base))
        return tw_fail(err, TW_CORRUPT,
                       "rounds/%s closes the run with another model than the archived rounds give",
                       proof->now.name);
    proof->is_closed = true;
    return TW_OK;
}

static enum tw_status check_round(struct proof *proof, uint32_t i, struct tw_error *err) {
    TW_TRY(
        tw_archive_chain_read(&proof->chain, i, i > 0 ? &proof->before : NULL, &proof->now, err));
    const struct tw_record *const record = &proof->now.record;
    proof->votes += proof->now.signers;
    proof->forks += proof->now.link == TW_CHAIN_FORK;
    proof->foreign_forks += proof->now.link == TW_CHAIN_FORK && !proof->now.had_seat;
    if (record->fragment >= proof->layout.fragments_count)
        return tw_fail(err, TW_CORRUPT, "rounds/%s: the model has no fragment %u", proof->now.name,
                       record->fragment);
    if (i > 0 && record->round != proof->before.record.round + 1)
        return tw_fail(err, TW_CORRUPT, "rounds/%s does not follow round %" PRIu64, proof->now.name,
                       proof->before.record.round);
    if (record->finals > proof->layout.fragments_count) return check_closing(proof, err);
    if (record->parts_count > 0 && i > 0) return merge(proof, err);
    /* Trained by one node alone, or merged before the archive begins. */
    if (record->contributors_count > 0) proof->known[record->fragment] = UNKNOWN;
    return TW_OK;
}

static enum tw_status check_rounds(struct proof *proof, struct tw_error *err) {
    struct tw_progress progress = {.is_shown = isatty(STDERR_FILENO) == 1 && !proof->json,
                                   .unit = "rounds",
                                   .what = "verify",
                                   .all = proof->chain.count,
                                   .begin_s = engine_now_s()};
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; status == TW_OK && i < proof->chain.count; i++) {
        status = tw_signals_wanted()
                     ? tw_fail(err, TW_AGAIN, "stopped at round %u of %u", i, proof->chain.count)
                     : check_round(proof, i, err);
        proof->before = proof->now;
        tw_progress_show(&progress, i + 1, engine_now_s());
    }
    tw_progress_end(&progress);
    return status;
}

/* ---- the model ------------------------------------------------------------------------------- */

enum { PIECE = 4096 };

/* Compares a tensor with the anchor, in the type in which the file has it. */
static enum tw_status compare_tensor(const struct proof *proof,
                                     const struct tw_model_source *source, uint32_t i,
                                     struct tw_error *err) {
    const struct tw_tensor *const tensor = &proof->layout.tensors[i];
    const uint64_t all = (uint64_t)tensor->rows * tensor->cols;
    const struct tw_model_feed feed = {.run = &proof->run, .layout = &proof->layout};
    const enum tw_dtype dtype = tw_model_source_dtype(source, i);
    float there[PIECE], here[PIECE];
    uint32_t p = 0;
    while (proof->layout.fragment_begin[p + 1] <= tensor->offset) p++;
    struct tw_shm_view view;
    tw_shm_view(&proof->shm, p, &view);
    for (uint64_t at = 0; at < all; at += PIECE) {
        const uint64_t n = all - at < PIECE ? all - at : PIECE;
        memcpy(here, view.phi + (tensor->offset - proof->layout.fragment_begin[p]) + at,
               n * sizeof(float));
        TW_TRY(tw_model_source_read(source, i, at, n, there, err));
        TW_TRY(tw_model_feed_store(&feed, i, dtype, here, n, err));
        TW_TRY(tw_model_feed_store(&feed, i, dtype, there, n, err));
        if (memcmp(here, there, n * (size_t)tw_dtype_bytes(dtype)) == 0) continue;
        return tw_fail(err, TW_CORRUPT,
                       "%.100s is not the run's model: %s differs, near element "
                       "%" PRIu64,
                       proof->model, tensor->name, at);
    }
    return TW_OK;
}

static enum tw_status compare_model(const struct proof *proof, struct tw_error *err) {
    struct tw_model_source source;
    if (!knows_all(proof))
        return tw_fail(err, TW_DATA,
                       "the archive does not show all of the model, so %.100s cannot be compared",
                       proof->model);
    TW_TRY(tw_engine_source_open(&source, proof->model, &proof->run, &proof->layout, proof->part,
                                 err));
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; status == TW_OK && i < proof->layout.tensors_count; i++)
        status = compare_tensor(proof, &source, i, err);
    tw_model_source_close(&source);
    return status;
}

/* ---- the output ---------------------------------------------------------------------------- */

static uint32_t count_known(const struct proof *proof) {
    uint32_t known = 0;
    for (uint32_t p = 0; p < proof->layout.fragments_count; p++)
        known += proof->known[p] != UNKNOWN;
    return known;
}

static void say_json(const struct proof *proof, bool is_same) {
    char lineage[TW_ID_HEX_BYTES];
    tw_id_hex(&proof->now.record.lineage, lineage);
    (void)printf(
        "{\"run\": \"%s\", \"rounds\": %u, \"rounds_beside\": %u, \"last_round\": %" PRIu64
        ", \"clock_tokens\": %" PRIu64 ", \"lineage\": \"%s\", \"votes\": %" PRIu64
        ", \"merges\": %" PRIu64 ", \"digests_matched\": %" PRIu64 ", \"states_loaded\": %" PRIu64
        ", \"forks\": %" PRIu64 ", \"forks_by_strangers\": %" PRIu64
        ", \"fragments\": %u, \"fragments_proven\": %u, \"is_closed\": %s, "
        "\"voters_certified\": %u, \"has_owner\": %s, \"model_is_same\": %s}\n",
        proof->run.name, proof->chain.count, proof->chain.files - proof->chain.count,
        proof->now.record.round, proof->now.record.clock_tokens, lineage, proof->votes,
        proof->merges, proof->matches, proof->states, proof->forks, proof->foreign_forks,
        proof->layout.fragments_count, count_known(proof), proof->is_closed ? "true" : "false",
        proof->chain.members_count, proof->chain.has_owner ? "true" : "false",
        proof->model == NULL ? "null"
        : is_same            ? "true"
                             : "false");
}

static void say(const struct proof *proof) {
    char tokens[TW_UNITS_BYTES], lineage[TW_ID_HEX_BYTES];
    const uint32_t beside = proof->chain.files - proof->chain.count;
    tw_id_hex(&proof->now.record.lineage, lineage);
    (void)printf("run %s\n\n", proof->run.name);
    (void)printf("  Rounds    %u, the last one is %" PRIu64 " of lineage %.8s at %s tokens\n",
                 proof->chain.count, proof->now.record.round, lineage,
                 tw_units_short(tokens, (double)proof->now.record.clock_tokens));
    if (beside > 0)
        (void)printf("            %u more lead elsewhere: other lineages, which were left\n",
                     beside);
    (void)printf("  Votes     %" PRIu64 " signatures, in every round as many as decide\n",
                 proof->votes);
    if (proof->chain.uncertified[0] != '\0')
        (void)printf("            the archive lacks the certificate of voter %.8s\n",
                     proof->chain.uncertified);
    else if (proof->chain.has_owner)
        (void)printf("            of %u nodes that the owner of the run let vote\n",
                     proof->chain.members_count);
    else
        (void)printf("            of any nodes: the run has no owner who says which may vote\n");
    if (proof->forks > 0)
        (void)printf("            %" PRIu64 " times one node went on alone, as a new lineage%s\n",
                     proof->forks,
                     proof->foreign_forks > 0 ? "; NOT ALWAYS A MEMBER: ask who it was" : "");
    (void)printf("  Merges    %" PRIu64 " repeated; %" PRIu64
                 " times the voters had named the same state before\n",
                 proof->merges, proof->matches);
    if (proof->states > 0)
        (void)printf("            %" PRIu64 " states are taken as the voters named them, because "
                     "the rounds before are not here\n",
                     proof->states);
    (void)printf("  Model     %u of %u fragments proven%s\n", count_known(proof),
                 proof->layout.fragments_count,
                 proof->is_closed ? "; the run's last record names this model" : "");
    if (proof->missing[0] != '\0')
        (void)printf("            the archive lacks %s\n", proof->missing);
    if (proof->model != NULL)
        (void)printf("            %s is that model, to the bit\n", proof->model);
}

/* ---- the command ----------------------------------------------------------------------------- */

static enum tw_status parse(struct proof *proof, int argc, char **argv, struct tw_error *err) {
    proof->part = "anchor";
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            proof->json = true;
        else if (argv[i][0] == '-')
            return tw_fail(err, TW_CONFIG, "verify: `%.60s` is unknown; see `thinwire help verify`",
                           argv[i]);
        else if (proof->folder == NULL)
            proof->folder = argv[i];
        else if (proof->model == NULL)
            proof->model = argv[i];
        else
            return tw_fail(err, TW_CONFIG, "verify: `%.60s` is one word too many", argv[i]);
    }
    if (proof->folder != NULL) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "usage: thinwire verify ARCHIVE [MODEL]; `thinwire help verify` tells more");
}

static enum tw_status verify(struct proof *proof, struct tw_error *err) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof(path), "%s/run.manifest", proof->folder);
    if (n <= 0 || n >= (int)sizeof(path)) return tw_fail(err, TW_IO, "the path is too long");
    TW_TRY(tw_engine_manifest_read(path, &proof->run, &proof->layout, err));
    TW_TRY(tw_archive_chain_open(&proof->chain, proof->folder, &proof->run, err));
    TW_TRY(open_memory(proof, err));
    TW_TRY(begin_from_seed(proof, err));
    TW_TRY(check_rounds(proof, err));
    return proof->model != NULL ? compare_model(proof, err) : TW_OK;
}

enum tw_exit engine_verify(int argc, char **argv) {
    static struct proof proof;
    struct tw_error err;
    enum tw_status status = parse(&proof, argc, argv, &err);
    if (status == TW_OK) {
        tw_signals_catch(true);
        status = verify(&proof, &err);
    }
    const bool is_whole =
        status == TW_OK && knows_all(&proof) && proof.chain.uncertified[0] == '\0';
    if (status == TW_OK) {
        if (proof.json)
            say_json(&proof, proof.model != NULL);
        else
            say(&proof);
    }
    close_memory(&proof);
    if (status != TW_OK) return engine_fail(&err);
    return is_whole ? TW_EXIT_OK : TW_EXIT_DATA;
}
