/* Tests of daemon/store/checkpoint*.c on the simulated disk. */
#include "tests/test.h"

#include <errno.h>

#include "daemon/store/checkpoint.h"
#include "proto/safetensors.h"
#include "state_sample.h"
#include "tests/daemon/store/disk.h"

static const char *const slots[2] = {"ckpt.a.safetensors", "ckpt.b.safetensors"};

/* The state of one node: a model, its arrays and its folder. */
static struct tw_run run;
static struct tw_layout layout, other_layout;
static const struct tw_id run_id = {{1, 2, 3}}, other_run_id = {{0xab, 0xcd}};
static struct sample_arrays saved, loaded;
static struct tw_disk *disk;
static struct tw_checkpoint *checkpoint;
static struct tw_checkpoint_state state_saved, state_loaded;
static struct tw_checkpoint_found found;
static struct tw_error err;

static int make_node(void **state) {
    disk = tw_disk_create();
    checkpoint = NULL;
    sample_layout(&layout, &run, 2, 8, 2);
    sample_arrays_init(&saved, &layout, false);
    sample_arrays_init(&loaded, &layout, false);
    return 0;
}

static int drop_node(void **state) {
    tw_checkpoint_destroy(checkpoint);
    sample_arrays_deinit(&saved);
    sample_arrays_deinit(&loaded);
    tw_disk_destroy(disk);
    return 0;
}

#define FACT(name) TEST_IN(make_node, drop_node, name)

static void open_on(struct tw_disk *on, const struct tw_layout *with, const struct tw_id *id) {
    tw_checkpoint_destroy(checkpoint);
    assert_int_equal(tw_checkpoint_create(&checkpoint, tw_disk_ops(on), "state", with, id, &err),
                     TW_OK);
}

static enum tw_status load(void) {
    return tw_checkpoint_load(checkpoint, &loaded.at, &state_loaded, &found, &err);
}

/* Saves generation `number`, whose contents are derived from its number. */
static enum tw_status save(uint64_t number) {
    sample_fill(&saved, &layout, number);
    sample_state(&state_saved, layout.fragments_count, number * 3, number);
    return tw_checkpoint_save(checkpoint, &state_saved, &saved.at, &err);
}

static void save_up_to(uint64_t count) {
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    for (uint64_t i = 1; i <= count; i++) {
        if (save(i) != TW_OK) fail_msg("%s", err.message);
        assert_int_equal(tw_checkpoint_generation(checkpoint), i);
    }
}

/* Returns true if the loaded state is generation `number`, bit by bit. */
static bool is_generation(uint64_t number) {
    struct tw_checkpoint_state expected;
    sample_state(&expected, layout.fragments_count, number * 3, number);
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
        if (!sample_matches(&loaded, &layout, (enum tw_checkpoint_kind)k, number)) return false;
    }
    return found.is_loaded && memcmp(&expected, &state_loaded, sizeof(expected)) == 0;
}

FACT(saved_state_loads_to_the_bit) {
    for (uint64_t count = 1; count <= 4; count++) {
        save_up_to(count);
        open_on(disk, &layout, &run_id);
        assert_int_equal(load(), TW_OK);
        assert_true(is_generation(count));
        assert_int_equal(found.generation, count);
        assert_string_equal(found.refused[0], "");
        assert_string_equal(found.refused[1], "");
        tw_disk_remove(disk, slots[0]);
        tw_disk_remove(disk, slots[1]);
    }
}

FACT(an_empty_folder_is_a_fresh_start) {
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    assert_false(found.is_loaded);
}

FACT(padding_is_neither_stored_nor_written) {
    memset(saved.kinds[0], 0x55, layout.elements * 4);
    memset(loaded.kinds[0], 0x77, layout.elements * 4);
    save_up_to(1);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
    uint64_t kept = 0;
    for (uint64_t i = 0; i < layout.elements; i++) {
        assert_int_not_equal(loaded.kinds[0][4 * i + 1], 0x55);
        kept += loaded.kinds[0][4 * i] == 0x77;
    }
    assert_int_equal(kept, layout.elements - layout.params);
}

FACT(another_fragment_layout_finds_its_tensors) {
    struct tw_run other_run;
    save_up_to(2);
    for (uint32_t fragments = 1; fragments <= 3; fragments++) {
        struct sample_arrays other;
        sample_layout(&other_layout, &other_run, 2, 8, fragments);
        sample_arrays_init(&other, &other_layout, false);
        open_on(disk, &other_layout, &run_id);
        assert_int_equal(tw_checkpoint_load(checkpoint, &other.at, &state_loaded, &found, &err),
                         TW_OK);
        for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
            assert_true(sample_matches(&other, &other_layout, (enum tw_checkpoint_kind)k, 2));
        }
        assert_int_equal(state_loaded.step, 2);
        assert_int_equal(state_loaded.has_position, fragments == 2);
        sample_arrays_deinit(&other);
    }
}

/* A fragment that lies elsewhere in memory is read from there. */
FACT(fragments_may_lie_apart) {
    struct sample_arrays spare;
    sample_arrays_init(&spare, &layout, false);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    sample_fill(&spare, &layout, 1);
    struct tw_checkpoint_arrays split = saved.at;
    split.at[TW_CHECKPOINT_ANCHOR][1] = spare.at.at[TW_CHECKPOINT_ANCHOR][1];
    sample_fill(&saved, &layout, 1);
    const uint64_t begin = layout.fragment_begin[1];
    memset(saved.kinds[TW_CHECKPOINT_ANCHOR] + begin * 4, 0xee, (layout.elements - begin) * 4);
    sample_state(&state_saved, 2, 3, 1);
    assert_int_equal(tw_checkpoint_save(checkpoint, &state_saved, &split, &err), TW_OK);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
    sample_arrays_deinit(&spare);
}

static void list_layout(struct tw_layout *to, uint32_t fragments) {
    static struct tw_run list;
    tw_run_defaults(&list);
    assert_int_equal(tw_run_apply_tensors(&list, "a:3000 h.{0-1}.w:50x30x2 h.{0-1}.b:7", &err),
                     TW_OK);
    list.sync.fragments = fragments;
    list.sync.period = 4 * fragments;
    assert_int_equal(tw_layout_init(to, &list, &err), TW_OK);
}

/* A tensor that spans several fragments is contiguous in the file. */
FACT(tensors_may_reach_over_fragments) {
    struct sample_arrays in, out;
    for (uint32_t from = 1; from <= 5; from++) {
        list_layout(&layout, from);
        sample_arrays_init(&in, &layout, true);
        /* puts the fragments far apart in memory */
        for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
            struct sample_arrays copy;
            sample_arrays_init(&copy, &layout, true);
            sample_fill(&in, &layout, from);
            sample_fill(&copy, &layout, from);
            struct tw_checkpoint_arrays split = in.at;
            for (uint32_t p = 0; p < from; p += 2) split.at[k][p] = copy.at.at[k][p];
            open_on(disk, &layout, &run_id);
            sample_state(&state_saved, from, 3, from);
            enum tw_status status =
                tw_checkpoint_load(checkpoint, &in.at, &state_loaded, &found, &err);
            assert_int_equal(status, TW_OK);
            sample_fill(&in, &layout, from);
            status = tw_checkpoint_save(checkpoint, &state_saved, &split, &err);
            if (status != TW_OK) fail_msg("%s", err.message);
            sample_arrays_deinit(&copy);
        }
        for (uint32_t to = 1; to <= 5; to++) {
            list_layout(&other_layout, to);
            sample_arrays_init(&out, &other_layout, to % 2 == 0);
            open_on(disk, &other_layout, &run_id);
            assert_int_equal(tw_checkpoint_load(checkpoint, &out.at, &state_loaded, &found, &err),
                             TW_OK);
            for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++)
                assert_true(sample_matches(&out, &other_layout, (enum tw_checkpoint_kind)k, from));
            sample_arrays_deinit(&out);
        }
        sample_arrays_deinit(&in);
        tw_disk_remove(disk, slots[0]);
        tw_disk_remove(disk, slots[1]);
    }
    sample_layout(&layout, &run, 2, 8, 2); /* teardown needs a valid layout */
}

FACT(moments_change_width_as_the_reader_wishes) {
    struct sample_arrays narrow;
    sample_arrays_init(&narrow, &layout, true);
    /* float32 to bf16 */
    save_up_to(1);
    assert_int_equal(tw_checkpoint_load(checkpoint, &narrow.at, &state_loaded, &found, &err),
                     TW_OK);
    assert_true(sample_matches(&narrow, &layout, TW_CHECKPOINT_ADAM_V, 1));
    assert_true(sample_matches(&narrow, &layout, TW_CHECKPOINT_LIVE, 1));
    /* Moments saved as bf16 are loaded as bf16 and as float32. */
    sample_fill(&narrow, &layout, 2);
    sample_state(&state_saved, 2, 6, 2);
    assert_int_equal(tw_checkpoint_save(checkpoint, &state_saved, &narrow.at, &err), TW_OK);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(2));
    memset(narrow.kinds[TW_CHECKPOINT_ADAM_M], 0, layout.elements * 4);
    assert_int_equal(tw_checkpoint_load(checkpoint, &narrow.at, &state_loaded, &found, &err),
                     TW_OK);
    assert_true(sample_matches(&narrow, &layout, TW_CHECKPOINT_ADAM_M, 2));
    sample_arrays_deinit(&narrow);
}

FACT(bf16_is_rounded_to_nearest_even) {
    const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0xbf818000,
                             0x7f800000, 0x7f800001, 0x7f7fffff, 0x00000001};
    const uint16_t rounded[] = {0x3f80, 0x3f82, 0x3f81, 0x3f80, 0xbf82,
                                0x7f80, 0x7fc0, 0x7f80, 0x0000};
    struct sample_arrays narrow;
    sample_arrays_init(&narrow, &layout, true);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    sample_state(&state_saved, 2, 3, 1);
    const struct tw_tensor *first = &layout.tensors[0];
    memcpy(saved.kinds[TW_CHECKPOINT_ADAM_M] + first->offset * 4, bits, sizeof(bits));
    assert_int_equal(tw_checkpoint_save(checkpoint, &state_saved, &saved.at, &err), TW_OK);
    assert_int_equal(tw_checkpoint_load(checkpoint, &narrow.at, &state_loaded, &found, &err),
                     TW_OK);
    assert_memory_equal(narrow.kinds[TW_CHECKPOINT_ADAM_M] + first->offset * 2, rounded,
                        sizeof(rounded));
    sample_arrays_deinit(&narrow);
}

FACT(kinds_may_be_left_out) {
    struct tw_checkpoint_arrays some = saved.at;
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    tw_checkpoint_arrays_set(&some, TW_CHECKPOINT_ADAM_M, &layout, NULL, false);
    tw_checkpoint_arrays_set(&some, TW_CHECKPOINT_ADAM_V, &layout, NULL, false);
    sample_fill(&saved, &layout, 1);
    sample_state(&state_saved, 2, 0, 1);
    state_saved.has_position = false;
    assert_int_equal(tw_checkpoint_save(checkpoint, &state_saved, &some, &err), TW_OK);
    struct tw_checkpoint_arrays anchor_only = {{{NULL}}, {false}};
    tw_checkpoint_arrays_set(&anchor_only, TW_CHECKPOINT_ANCHOR, &layout, loaded.kinds[0], false);
    assert_int_equal(tw_checkpoint_load(checkpoint, &anchor_only, &state_loaded, &found, &err),
                     TW_OK);
    assert_true(found.has_kind[TW_CHECKPOINT_LIVE]);
    assert_false(found.has_kind[TW_CHECKPOINT_ADAM_M]);
    assert_false(state_loaded.has_position);
    assert_true(sample_matches(&loaded, &layout, TW_CHECKPOINT_ANCHOR, 1));
    assert_false(sample_matches(&loaded, &layout, TW_CHECKPOINT_LIVE, 1));
}

FACT(another_run_is_refused_and_left_alone) {
    save_up_to(1);
    open_on(disk, &layout, &other_run_id);
    assert_int_equal(load(), TW_DENIED);
    assert_non_null(strstr(err.message, "of run 0102030000000000.."));
    assert_non_null(strstr(err.message, "this is run abcd000000000000.."));
    assert_int_equal(save(7), TW_DENIED);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
}

FACT(another_shape_is_refused_and_both_are_named) {
    struct tw_run other_run;
    save_up_to(1);
    sample_layout(&other_layout, &other_run, 2, 16, 2);
    open_on(disk, &other_layout, &run_id);
    struct tw_checkpoint_arrays none = {{{NULL}}, {false}};
    assert_int_equal(tw_checkpoint_load(checkpoint, &none, &state_loaded, &found, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "anchor.wte.weight is (16, 8) there and (16, 16)"));
    sample_layout(&other_layout, &other_run, 1, 8, 2);
    open_on(disk, &other_layout, &run_id);
    assert_int_equal(tw_checkpoint_load(checkpoint, &none, &state_loaded, &found, &err), TW_CONFIG);
    sample_layout(&other_layout, &other_run, 3, 8, 2);
    open_on(disk, &other_layout, &run_id);
    assert_int_equal(tw_checkpoint_load(checkpoint, &none, &state_loaded, &found, &err), TW_CONFIG);
}

FACT(the_older_generation_steps_in_with_a_reason) {
    size_t size;
    save_up_to(4);
    (void)tw_disk_bytes(disk, slots[1], &size);
    tw_disk_flip(disk, slots[1], size - 5, 0x10);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(3));
    assert_non_null(strstr(found.refused[1], "ckpt.b.safetensors (generation 4): MiB 0"));
    /* The next save replaces the damaged generation, not the loaded one. */
    assert_int_equal(save(5), TW_OK);
    assert_int_equal(tw_checkpoint_generation(checkpoint), 5);
    tw_disk_flip(disk, slots[1], 4, 0x10);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(3));
}

FACT(two_damaged_generations_are_no_fresh_start) {
    size_t size;
    save_up_to(4);
    for (int i = 0; i < 2; i++) {
        (void)tw_disk_bytes(disk, slots[i], &size);
        tw_disk_flip(disk, slots[i], size / 2, 1);
    }
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_CORRUPT);
    assert_false(found.is_loaded);
    assert_string_not_equal(found.refused[0], "");
    assert_string_not_equal(found.refused[1], "");
    /* The next save takes a number above all seen, so that no old generation can be newest
     * later. */
    assert_int_equal(save(9), TW_OK);
    assert_true(tw_checkpoint_generation(checkpoint) > 4);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(9));
}

/* Loading survives one failing call: with two good generations on disk, the newest is still
 * loaded. */
FACT(a_hiccup_while_loading_costs_nothing) {
    save_up_to(2);
    const uint64_t before = tw_disk_calls(disk);
    assert_int_equal(load(), TW_OK);
    const uint64_t calls = tw_disk_calls(disk) - before;
    for (uint64_t call = 0; call < calls; call++) {
        open_on(disk, &layout, &run_id);
        tw_disk_fail_at(disk, tw_disk_calls(disk) + call, EIO);
        assert_int_equal(load(), TW_OK);
        assert_true(is_generation(2));
    }
    open_on(disk, &layout, &run_id);
    tw_disk_set_transfer_max(disk, 100);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(2));
}

FACT(a_file_that_cannot_be_read_is_not_called_damaged) {
    save_up_to(2);
    tw_disk_set_bad(disk, slots[1]);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
    assert_non_null(strstr(found.refused[1], "Input/output error"));
    tw_disk_set_bad(disk, slots[0]);
    assert_int_equal(load(), TW_IO);
    assert_non_null(strstr(err.message, "Input/output error"));
}

FACT(the_number_of_an_unreadable_generation_is_not_used_again) {
    save_up_to(2);
    struct tw_disk *bad = tw_disk_copy(disk);
    tw_disk_set_bad(bad, slots[1]);
    open_on(bad, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
    assert_int_equal(save(7), TW_OK);
    assert_true(tw_checkpoint_generation(checkpoint) > 2);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(7));
    tw_checkpoint_destroy(checkpoint);
    checkpoint = NULL;
    tw_disk_destroy(bad);
}

/* Only one generation is on disk, so that no older one can hide an undetected bit flip. */
FACT(flipped_bits_are_found_wherever_they_are) {
    enum { FLIPS = 1000 };
    struct tw_rng rng;
    size_t size;
    unsigned by_header = 0, by_data = 0;
    tw_rng_seed(&rng, 5);
    save_up_to(1);
    (void)tw_disk_bytes(disk, slots[0], &size);
    for (int i = 0; i < FLIPS; i++) {
        const size_t at = tw_rng_below(&rng, size);
        const uint8_t mask = (uint8_t)(1 << tw_rng_below(&rng, 8));
        tw_disk_flip(disk, slots[0], at, mask);
        assert_int_equal(load(), TW_CORRUPT);
        if (strstr(found.refused[0], "MiB") != NULL) {
            by_data++;
        } else {
            by_header++;
        }
        tw_disk_flip(disk, slots[0], at, mask);
    }
    print_message("seed 5: %u flips of %zu bytes, %u found by the header, %u by the data\n", FLIPS,
                  size, by_header, by_data);
    assert_true(by_header > 0 && by_data > 0);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
}

FACT(cut_or_grown_files_are_refused) {
    size_t size;
    save_up_to(1);
    const uint8_t *bytes = tw_disk_bytes(disk, slots[0], &size);
    const struct tw_file_ops *ops = tw_disk_ops(disk);
    for (size_t cut = 0; cut <= size + 1; cut += cut < 40 || cut + 40 > size ? 1 : 97) {
        struct tw_disk *other = tw_disk_create();
        ops = tw_disk_ops(other);
        const int file = ops->create(ops->ctx, ops->dir_open(ops->ctx, ""), slots[0]);
        if (cut > 0) {
            assert_int_equal(ops->write(ops->ctx, file, bytes, cut < size ? cut : size, 0),
                             cut < size ? cut : size);
        }
        if (cut > size) assert_int_equal(ops->write(ops->ctx, file, "x", 1, size), 1);
        open_on(other, &layout, &run_id);
        assert_int_equal(load(), cut == size ? TW_OK : TW_CORRUPT);
        tw_checkpoint_destroy(checkpoint);
        checkpoint = NULL;
        tw_disk_destroy(other);
    }
}

FACT(a_full_disk_leaves_older_generations_alone) {
    size_t size;
    save_up_to(2);
    (void)tw_disk_bytes(disk, slots[1], &size);
    tw_disk_set_capacity(disk, size * 5 / 2);
    assert_int_equal(save(3), TW_IO);
    assert_non_null(strstr(err.message, "free some space"));
    assert_int_equal(tw_checkpoint_generation(checkpoint), 2);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(2));
    tw_disk_set_capacity(disk, 0);
    assert_int_equal(save(3), TW_OK);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(3));
}

/* Each call of a save fails once, with each error; then the power is cut. */
FACT(failed_saves_are_never_acknowledged) {
    const int errors[] = {EIO, ENOSPC, EINTR};
    unsigned failures = 0, tolerated = 0;
    struct tw_rng rng;
    tw_rng_seed(&rng, 3);
    save_up_to(2);
    const uint64_t before = tw_disk_calls(disk);
    assert_int_equal(save(3), TW_OK);
    const uint64_t calls = tw_disk_calls(disk) - before;
    for (uint64_t at = 0; at < calls * 3; at++) {
        struct tw_disk *trial = tw_disk_copy(disk);
        open_on(trial, &layout, &run_id);
        assert_int_equal(load(), TW_OK);
        tw_disk_fail_at(trial, tw_disk_calls(trial) + at / 3, errors[at % 3]);
        const enum tw_status status = save(4);
        tw_disk_crash_random(trial, &rng);
        open_on(trial, &layout, &run_id);
        assert_int_equal(load(), TW_OK);
        assert_true(is_generation(4) || (status != TW_OK && is_generation(3)));
        failures += status != TW_OK;
        tolerated += status == TW_OK;
        assert_int_equal(save(5), TW_OK);
        tw_disk_crash_random(trial, &rng);
        open_on(trial, &layout, &run_id);
        assert_int_equal(load(), TW_OK);
        assert_true(is_generation(5));
        tw_checkpoint_destroy(checkpoint);
        checkpoint = NULL;
        tw_disk_destroy(trial);
    }
    print_message("%u saves failed, %u went through their fault\n", failures, tolerated);
    assert_true(failures > 10 && tolerated > 5);
}

/* ---- every crash state of a save --------------------------------------------------------------
 */

enum { ALL_SUBSETS_UNITS = 14, RANDOM_SUBSETS = 300 };

/* A checkpoint of an anchor only, without a position. It has few enough sectors to test every
 * subset. */
static void make_tiny(uint32_t width, bool named_only) {
    tw_checkpoint_destroy(checkpoint);
    checkpoint = NULL;
    sample_arrays_deinit(&saved);
    sample_arrays_deinit(&loaded);
    tw_disk_destroy(disk);
    disk = tw_disk_create();
    tw_disk_set_named_only(disk, named_only);
    sample_layout(&layout, &run, 1, width, 1);
    sample_arrays_init(&saved, &layout, false);
    sample_arrays_init(&loaded, &layout, false);
    for (uint32_t k = 1; k < TW_CHECKPOINT_KINDS; k++) saved.at.at[k][0] = NULL;
}

static enum tw_status save_tiny(uint64_t number) {
    struct tw_checkpoint_arrays all = saved.at;
    tw_checkpoint_arrays_set(&saved.at, TW_CHECKPOINT_ANCHOR, &layout, saved.kinds[0], false);
    sample_fill(&saved, &layout, number);
    saved.at = all;
    sample_state(&state_saved, 1, 0, number);
    state_saved.has_position = false;
    return tw_checkpoint_save(checkpoint, &state_saved, &saved.at, &err);
}

static bool is_tiny(uint64_t number) {
    return found.is_loaded && state_loaded.step == number &&
           sample_matches(&loaded, &layout, TW_CHECKPOINT_ANCHOR, number);
}

/* Checks that an intact generation is found after this crash: the acknowledged one or a later
 * one. */
static void check_crash(const struct tw_disk *trial, const bool *keep, uint64_t acknowledged,
                        uint64_t latest) {
    struct tw_disk *after = tw_disk_copy(trial);
    tw_disk_crash(after, keep);
    open_on(after, &layout, &run_id);
    const enum tw_status status = load();
    if (acknowledged == 0 && !found.is_loaded) {
        assert_int_equal(status, TW_OK);
    } else {
        assert_int_equal(status, TW_OK);
        assert_true((acknowledged > 0 && is_tiny(acknowledged)) || is_tiny(latest));
    }
    tw_checkpoint_destroy(checkpoint);
    checkpoint = NULL;
    tw_disk_destroy(after);
}

static unsigned crash_states(const struct tw_disk *trial, uint64_t acknowledged, uint64_t latest,
                             struct tw_rng *rng) {
    const size_t units = tw_disk_pending(trial);
    bool keep[64];
    assert_true(units < 64);
    if (units <= ALL_SUBSETS_UNITS) {
        for (uint32_t set = 0; set < 1u << units; set++) {
            for (size_t i = 0; i < units; i++) keep[i] = (set >> i & 1) != 0;
            check_crash(trial, keep, acknowledged, latest);
        }
        return 1u << units;
    }
    for (size_t prefix = 0; prefix <= units; prefix++) {
        for (size_t i = 0; i < units; i++) keep[i] = i < prefix;
        check_crash(trial, keep, acknowledged, latest);
    }
    for (int n = 0; n < RANDOM_SUBSETS; n++) {
        for (size_t i = 0; i < units; i++) keep[i] = tw_rng_below(rng, 2) == 1;
        check_crash(trial, keep, acknowledged, latest);
    }
    return (unsigned)units + 1 + RANDOM_SUBSETS;
}

FACT(no_crash_loses_an_acknowledged_generation) {
    unsigned states = 0;
    struct tw_rng rng;
    tw_rng_seed(&rng, 17);
    for (unsigned variant = 0; variant < 18; variant++) {
        static const uint32_t widths[] = {1, 12, 20};
        const uint64_t before = variant % 3; /* number of generations on disk before the save */
        make_tiny(widths[variant / 6], variant % 6 >= 3);
        open_on(disk, &layout, &run_id);
        assert_int_equal(load(), TW_OK);
        for (uint64_t i = 1; i <= before; i++) assert_int_equal(save_tiny(i), TW_OK);
        for (uint64_t stop = 0;; stop++) {
            struct tw_disk *trial = tw_disk_copy(disk);
            open_on(trial, &layout, &run_id);
            assert_int_equal(load(), TW_OK);
            tw_disk_stop_at(trial, tw_disk_calls(trial) + stop);
            const bool is_acknowledged = save_tiny(before + 1) == TW_OK;
            tw_checkpoint_destroy(checkpoint);
            checkpoint = NULL;
            states += crash_states(trial, is_acknowledged ? before + 1 : before, before + 1, &rng);
            tw_disk_destroy(trial);
            if (is_acknowledged) break;
        }
    }
    print_message("seed 17: %u crash states\n", states);
    assert_true(states > 10000);
}

static uint64_t generation_in(uint32_t file) {
    struct tw_checkpoint_about about;
    tw_checkpoint_look(checkpoint, file, &about);
    assert_string_equal(about.refused, "");
    return about.exists ? about.generation : 0;
}

FACT(a_replaced_generation_is_kept_when_it_is_good) {
    save_up_to(2);
    tw_checkpoint_keep_replaced(checkpoint, true);
    assert_int_equal(save(3), TW_OK);
    assert_int_equal(generation_in(TW_CHECKPOINT_PINNED), 1);
    assert_int_equal(save(4), TW_OK);
    tw_checkpoint_keep_replaced(checkpoint, false);
    for (uint64_t i = 5; i < 8; i++) assert_int_equal(save(i), TW_OK);
    assert_int_equal(generation_in(TW_CHECKPOINT_PINNED), 2); /* the pinned generation stays */
    assert_int_equal(generation_in(0) + generation_in(1), 6 + 7);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(7)); /* load() does not read the pinned generation */
}

/* The newest generation is damaged, and the daemon goes on with the older one: its next save must
 * not put the damaged file in the place of the good pinned one. */
FACT(a_damaged_generation_is_never_pinned) {
    size_t size;
    save_up_to(2);
    tw_checkpoint_keep_replaced(checkpoint, true);
    assert_int_equal(save(3), TW_OK);
    assert_int_equal(save(4), TW_OK);
    (void)tw_disk_bytes(disk, slots[1], &size);
    tw_disk_flip(disk, slots[1], size - 5, 0x10);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(3));
    tw_checkpoint_keep_replaced(checkpoint, true);
    assert_int_equal(save(5), TW_OK);
    assert_int_equal(tw_checkpoint_verify(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_OK);
    assert_int_equal(generation_in(TW_CHECKPOINT_PINNED), 2);
    assert_int_equal(save(6), TW_OK);
    assert_int_equal(generation_in(TW_CHECKPOINT_PINNED), 3);
}

static void note_read(void *user, uint64_t read_bytes, uint64_t all_bytes) {
    assert_true(read_bytes < all_bytes);
    if (read_bytes == 0) (*(unsigned *)user)++;
}

/* For a large model each reading takes minutes. */
FACT(a_verified_file_is_not_read_again_to_go_back) {
    unsigned readings = 0;
    save_up_to(3);
    tw_checkpoint_watch(checkpoint, note_read, &readings);
    assert_int_equal(tw_checkpoint_verify(checkpoint, 1, &err), TW_OK);
    assert_int_equal(readings, 1);
    assert_int_equal(tw_checkpoint_go_back(checkpoint, 1, &err), TW_OK);
    assert_int_equal(readings, 1);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(2));
}

FACT(going_back_can_be_undone) {
    save_up_to(2);
    tw_checkpoint_keep_replaced(checkpoint, true);
    /* Now slot a has generation 3, slot b has 2, and generation 1 is pinned. */
    assert_int_equal(save(3), TW_OK);
    assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_OK);
    assert_int_equal(generation_in(TW_CHECKPOINT_UNDONE), 3);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
    assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_UNDONE, &err), TW_OK);
    assert_int_equal(generation_in(TW_CHECKPOINT_UNDONE), 1);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(3));
    assert_int_equal(save(4), TW_OK);
    assert_int_equal(tw_checkpoint_go_back(checkpoint, found.slot, &err), TW_OK); /* the older */
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(3));
    tw_disk_remove(disk, "ckpt.pinned.safetensors");
    assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_IO);
    assert_non_null(strstr(err.message, "ckpt.pinned.safetensors is not there"));
}

/* The model may get worse again before a newer generation has proved good. */
FACT(pinned_generation_stays_for_the_next_time) {
    save_up_to(2);
    tw_checkpoint_keep_replaced(checkpoint, true);
    assert_int_equal(save(3), TW_OK);
    tw_checkpoint_keep_replaced(checkpoint, false);
    for (uint64_t round = 0; round < 3; round++) {
        assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_OK);
        open_on(disk, &layout, &run_id);
        assert_int_equal(load(), TW_OK);
        assert_true(is_generation(1));
        /* The pinned generation is the current one, so going back changes nothing and the undone
         * file stays. */
        assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_OK);
        assert_int_equal(generation_in(TW_CHECKPOINT_UNDONE), 3 + 3 * round);
        for (uint64_t i = 4; i < 7; i++) assert_int_equal(save(i), TW_OK);
        /* No generation number is used twice. */
        assert_int_equal(tw_checkpoint_generation(checkpoint), 6 + 3 * round);
    }
}

/* After one save, ckpt.a or ckpt.b and the pinned file are still hard links to one file. */
FACT(second_rollback_leaves_no_file_behind) {
    save_up_to(2);
    tw_checkpoint_keep_replaced(checkpoint, true);
    assert_int_equal(save(3), TW_OK);
    tw_checkpoint_keep_replaced(checkpoint, false);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_OK);
        assert_false(tw_disk_exists(disk, "ckpt.back.tmp"));
        assert_int_equal(load(), TW_OK);
        assert_int_equal(save(4), TW_OK);
    }
}

/* A slot whose header cannot be read may contain the newest generation. */
FACT(unreadable_slot_stops_a_rollback) {
    save_up_to(2);
    tw_checkpoint_keep_replaced(checkpoint, true);
    assert_int_equal(save(3), TW_OK);
    tw_disk_set_bad(disk, "ckpt.a.safetensors");
    assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_IO);
    assert_int_equal(generation_in(1), 2);
    assert_int_equal(generation_in(TW_CHECKPOINT_UNDONE), 0);
}

FACT(nobody_goes_back_to_a_damaged_generation) {
    size_t size;
    save_up_to(2);
    tw_checkpoint_keep_replaced(checkpoint, true);
    assert_int_equal(save(3), TW_OK);
    (void)tw_disk_bytes(disk, "ckpt.pinned.safetensors", &size);
    tw_disk_flip(disk, "ckpt.pinned.safetensors", size - 1, 3);
    assert_int_equal(tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err), TW_CORRUPT);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(3));
    assert_int_equal(generation_in(TW_CHECKPOINT_UNDONE), 0);
}

/* Wherever a crash interrupts a rollback, the newest generation or the chosen one is loaded. */
FACT(no_crash_of_a_rollback_loses_both) {
    make_tiny(1, false);
    open_on(disk, &layout, &run_id);
    assert_int_equal(load(), TW_OK);
    tw_checkpoint_keep_replaced(checkpoint, true);
    for (uint64_t i = 1; i <= 3; i++) assert_int_equal(save_tiny(i), TW_OK);
    for (uint64_t stop = 0;; stop++) {
        struct tw_disk *trial = tw_disk_copy(disk);
        open_on(trial, &layout, &run_id);
        tw_disk_stop_at(trial, tw_disk_calls(trial) + stop);
        const bool is_done = tw_checkpoint_go_back(checkpoint, TW_CHECKPOINT_PINNED, &err) == TW_OK;
        tw_checkpoint_destroy(checkpoint);
        checkpoint = NULL;
        const size_t units = tw_disk_pending(trial);
        bool keep[64];
        assert_true(units < 8);
        for (uint32_t set = 0; set < 1u << units; set++) {
            for (size_t i = 0; i < units; i++) keep[i] = (set >> i & 1) != 0;
            check_crash(trial, keep, 1, is_done ? 1 : 3);
        }
        tw_disk_destroy(trial);
        if (is_done) break;
    }
}

/* The model has more than one block, and blocks begin and end inside tensors. */
FACT(models_larger_than_a_block_work) {
    size_t size;
    sample_arrays_deinit(&saved);
    sample_arrays_deinit(&loaded);
    sample_layout(&layout, &run, 3, 250, 2);
    sample_arrays_init(&saved, &layout, true);
    sample_arrays_init(&loaded, &layout, false);
    save_up_to(2);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(2));
    (void)tw_disk_bytes(disk, slots[1], &size);
    assert_true(size > 8 << 20);
    tw_disk_flip(disk, slots[1], size / 2, 2);
    assert_int_equal(load(), TW_OK);
    assert_true(is_generation(1));
}
