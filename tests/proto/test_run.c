/* Tests of proto/run*.c: manifests and run files. */
#include "tests/test.h"

#include <stdbool.h>

#include "base/rng.h"
#include "proto/run/run.h"
#include "proto/run/run_key.h"

static struct tw_run run;
static struct tw_error err;
static char text[TW_MANIFEST_BYTES_MAX];
static size_t size;

TEST(defaults_pass_the_check) {
    tw_run_defaults(&run);
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
}

TEST(every_key_survives_text) {
    struct tw_run back;
    tw_run_defaults(&run);
    tw_run_encode(&run, text, &size);
    assert_int_equal(tw_run_decode(text, size, &back, &err), TW_OK);
    assert_memory_equal(&run, &back, sizeof(run));
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        char value[TW_RUN_VALUE_BYTES];
        tw_run_key_format(&keys[i], &run, value);
        assert_int_equal(tw_run_set(&back, keys[i].name, value, &err), TW_OK);
    }
    assert_memory_equal(&run, &back, sizeof(run));
}

/* Draws a value of the key's range: one of its ends, or a random value between. */
static uint64_t draw(struct tw_rng *rng, const struct tw_run_key *key) {
    const uint64_t span = key->max - key->min;
    const uint64_t pick = tw_rng_below(rng, 8);
    if (pick == 0) return key->min;
    if (pick == 1) return key->max;
    return key->min + (span == UINT64_MAX ? tw_rng_next(rng) : tw_rng_below(rng, span + 1));
}

TEST(random_values_have_one_canonical_form) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 20240607);
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    for (unsigned trial = 0; trial < 20000; trial++) {
        const struct tw_run_key *key = &keys[tw_rng_below(&rng, count)];
        if (key->kind == TW_RUN_NAME || key->kind == TW_RUN_SHA256) continue;
        if (key->kind == TW_RUN_TENSORS) continue;
        struct tw_run first, second;
        char a[TW_RUN_VALUE_BYTES], b[TW_RUN_VALUE_BYTES];
        memset(&first, 0, sizeof(first));
        memset(&second, 0, sizeof(second));
        const uint64_t value = draw(&rng, key);
        const uint32_t narrow = (uint32_t)value;
        const bool is_wide = key->kind == TW_RUN_U64 || key->kind == TW_RUN_TOKENS;
        memcpy((uint8_t *)&first + key->offset, is_wide ? (const void *)&value : &narrow,
               is_wide ? sizeof(value) : sizeof(narrow));
        tw_run_key_format(key, &first, a);
        assert_int_equal(tw_run_key_parse(key, a, &second, &err), TW_OK);
        assert_memory_equal(&first, &second, sizeof(first));
        tw_run_key_format(key, &second, b);
        assert_string_equal(a, b);
    }
}

TEST(human_units_are_understood) {
    tw_run_defaults(&run);
    const struct {
        const char *key, *value, *canonical;
    } rows[] = {
        {"train.tokens", "2m", "2000000"},
        {"train.tokens", "500k", "500000"},
        {"train.tokens", "1.5G", "1500000000"},
        {"sync.interval", "1500ms", "1.5s"},
        {"sync.interval", "2s", "2s"},
        {"sync.interval", "2min", "120s"},
        {"sync.mix", "5%", "0.05"},
        {"sync.mix", "0.50", "0.5"},
        {"sync.mix", ".5", "0.5"},
        {"data.heldout", "2.5%", "0.025"},
        {"train.lr", "0.0004", "0.0004"},
        {"data.sha256", "any", "any"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char value[TW_RUN_VALUE_BYTES];
        assert_int_equal(tw_run_set(&run, rows[i].key, rows[i].value, &err), TW_OK);
        tw_run_key_format(tw_run_key_find(rows[i].key), &run, value);
        assert_string_equal(value, rows[i].canonical);
    }
}

TEST(values_out_of_range_are_refused_and_change_nothing) {
    struct tw_run before;
    tw_run_defaults(&run);
    before = run;
    const struct {
        const char *key, *value;
    } rows[] = {
        {"model.layers", "0"},
        {"model.layers", "342"},
        {"model.layers", "4 "},
        {"model.layers", "-1"},
        {"model.layers", "4k"},
        {"model.layers", "0x4"},
        {"model.layers", ""},
        {"model.seed", "18446744073709551616"},
        {"train.lr", "0.0000001"},
        {"train.lr", "1e-3"},
        {"train.lr", "."},
        {"train.lr", "1."},
        {"train.tokens", "0"},
        {"train.tokens", "99999999999t"},
        {"train.tokens", "18446745t"}, /* 2^64 + 9e11 */
        {"train.tokens", "1.0000001k"},
        {"sync.mix", "1"},
        {"sync.mix", "101%"},
        {"sync.interval", "0.1ms"},
        {"sync.interval", "1000"},
        {"sync.codec", "int9"},
        {"sync.codec", "INT8"},
        {"run.name", ""},
        {"run.name", "First Light"},
        {"run.name", "0123456789012345678901234567890123456789012345678901234567890123"},
        {"data.sha256", "abc"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(tw_run_set(&run, rows[i].key, rows[i].value, &err), TW_CONFIG);
        assert_non_null(strstr(err.message, rows[i].key));
        assert_memory_equal(&run, &before, sizeof(run));
    }
}

TEST(unknown_key_is_answered_with_the_nearest) {
    tw_run_defaults(&run);
    const struct {
        const char *key, *guess;
    } rows[] = {
        {"sync.preiod", "sync.period"},
        {"period", "sync.period"},
        {"model.layer", "model.layers"},
        {"train.learning", NULL},
        {"outer_lr", "sync.outer_lr"},
        {"train.wamup_tokens", "train.warmup_tokens"},
        {"banana", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(tw_run_set(&run, rows[i].key, "1", &err), TW_CONFIG);
        if (rows[i].guess != NULL) {
            assert_non_null(strstr(err.message, "did you mean"));
            assert_non_null(strstr(err.message, rows[i].guess));
        } else {
            assert_null(strstr(err.message, "did you mean"));
        }
    }
}

static const char owner_hex[] = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/* Sets one key of the defaults. The error of the check must contain `word`. */
static void check_names(const char *key, const char *value, const char *word) {
    tw_run_defaults(&run);
    assert_int_equal(tw_run_set(&run, key, value, &err), TW_OK);
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, word));
}

TEST(relations_between_keys_are_checked) {
    check_names("model.heads", "3", "model.width");
    check_names("model.kv_heads", "3", "model.heads");
    check_names("model.kv_heads", "2", "model.family = llama");
    check_names("model.head_size", "64", "model.family = llama");
    check_names("model.qk_norm", "yes", "model.qk_norm");
    check_names("model.qkv_bias", "yes", "model.qkv_bias");
    check_names("model.vocab", "257", "256");
    check_names("data.form", "dataset", "data.sha256");
    check_names("train.tokens", "1000", "train.batch");
    check_names("train.warmup_tokens", "1g", "train.tokens");
    check_names("sync.fragments", "6", "model.layers");
    check_names("sync.fragments", "4", "32 would do");
    check_names("sync.overlap", "10", "sync.overlap");
    check_names("sync.members", "3", "sync.nodes");
    check_names("sync.quorum", "5", "set sync.quorum = 4 or less");
    check_names("security.admission", "owner", "thinwire owner new");
    check_names("security.owner", owner_hex, "unless security.admission = owner");
}

TEST(an_owner_is_part_of_the_runs_name) {
    struct tw_run back;
    tw_run_defaults(&run);
    const struct tw_id before = tw_run_id(&run);
    assert_int_equal(tw_run_set(&run, "security.admission", "owner", &err), TW_OK);
    assert_int_equal(tw_run_set(&run, "security.owner", owner_hex, &err), TW_OK);
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    const struct tw_id first = tw_run_id(&run);
    assert_false(tw_id_equal(&before, &first));
    tw_run_encode(&run, text, &size);
    assert_int_equal(tw_run_decode(text, size, &back, &err), TW_OK);
    assert_memory_equal(&run, &back, sizeof(run));
    run.security.owner.bytes[31] ^= 1;
    const struct tw_id other = tw_run_id(&run);
    assert_false(tw_id_equal(&first, &other));
}

TEST(the_loss_is_written_only_if_it_leaves_tokens_out) {
    struct tw_run back;
    tw_run_defaults(&run);
    tw_run_encode(&run, text, &size);
    assert_null(memmem(text, size, "data.loss", 9));
    run.data.loss = TW_LOSS_ANSWERS;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "needs a dataset"));
    run.data.form = TW_FORM_DATASET;
    run.data.sha256.bytes[0] = 1;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    tw_run_encode(&run, text, &size);
    assert_non_null(memmem(text, size, "\ndata.loss = answers\n", 21));
    assert_int_equal(tw_run_decode(text, size, &back, &err), TW_OK);
    assert_int_equal(back.data.loss, TW_LOSS_ANSWERS);
}

TEST(a_separator_must_be_a_token_only_when_it_masks) {
    tw_run_defaults(&run);
    run.data.separator = 256;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    run.data.documents = TW_DOCUMENTS_MASKED;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "data.separator (256)"));
    run.data.separator = 255;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
}

TEST(llama_relations_are_checked) {
    const struct {
        const char *key, *value, *word;
    } rows[] = {
        {"model.heads", "3", "model.head_size"},
        {"model.kv_heads", "3", "model.heads"},
        {"model.head_size", "33", "even"},
        {"model.rope_low", "4", "model.rope_high"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        run.model.family = TW_FAMILY_LLAMA;
        run.model.kv_heads = 2;
        assert_int_equal(tw_run_check(&run, &err), TW_OK);
        assert_int_equal(tw_run_set(&run, rows[i].key, rows[i].value, &err), TW_OK);
        assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
        assert_non_null(strstr(err.message, rows[i].word));
    }
}

/* Contradictory keys are refused, and the error names the reason. */
TEST(contradictions_between_knobs_are_refused) {
    const struct {
        enum tw_preset preset;
        const char *key, *value, *reason;
    } rows[] = {
        {TW_PRESET_STREAMING, "sync.consensus", "0.7", "needs sync.topology = pair"},
        {TW_PRESET_NOLOCO, "sync.together", "0.5", "says when a group parts"},
        {TW_PRESET_STREAMING, "sync.gap_penalty", "1", "needs sync.outer = heavyball"},
        {TW_PRESET_STREAMING, "sync.momentum_clip", "3", "needs sync.outer = heavyball"},
        {TW_PRESET_STREAMING, "sync.mix", "0.5", "belongs to sync.sent = mix"},
        {TW_PRESET_STREAMING, "sync.merge", "median", "at least 5 nodes"},
        {TW_PRESET_STREAMING, "sync.merge", "trimmed", "set sync.merge = clipped"},
        {TW_PRESET_STREAMING, "sync.codec", "sign", "set sync.feedback"},
        {TW_PRESET_STREAMING, "sync.feedback_local", "0.5", "needs sync.feedback, which"},
        {TW_PRESET_SPARSELOCO, "sync.sent", "mix", "set sync.sent = keep, or"},
        {TW_PRESET_STREAMING, "sync.codec", "ecsq2", "sync.codec = ecsq2 has a large"},
        {TW_PRESET_STREAMING, "sync.result", "sign", "never sent later"},
        {TW_PRESET_STREAMING, "sync.result", "topk64", "the senders keep for later"},
        {TW_PRESET_CO2, "sync.mix", "0.5", "with eager it must be 0"},
        {TW_PRESET_NOLOCO, "sync.lead", "0.5", "the common direction of many nodes"},
        {TW_PRESET_CO2, "sync.outer", "nesterov", "needs sync.outer = heavyball"},
        {TW_PRESET_NOLOCO, "sync.outer", "nesterov", "needs sync.outer = heavyball"},
        {TW_PRESET_NOLOCO, "sync.merge", "rda", "a pair takes the mean"},
        {TW_PRESET_NOLOCO, "sync.sent", "eager", "sync.sent = eager needs sync.topology = group"},
        {TW_PRESET_NOLOCO, "sync.consensus", "0", "drift apart"},
        {TW_PRESET_NOLOCO, "sync.consensus", "1.5", "drift apart"},
        {TW_PRESET_NOLOCO, "sync.outer_momentum", "0.7", "must lie between"},
        {TW_PRESET_NOLOCO, "sync.weights", "tokens", "the two of a pair count alike"},
        {TW_PRESET_NOLOCO, "sync.topology", "group", "sync.consensus needs"},
        {TW_PRESET_STREAMING, "sync.quorum", "6", "would wait for nodes that are not planned"},
        {TW_PRESET_DECOUPLED, "sync.fragments", "6", "set sync.fragments = 5 or less"},
        {TW_PRESET_EAGER, "sync.overlap", "10", "set sync.overlap = 9 or less"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        tw_run_apply_preset(&run, rows[i].preset);
        assert_int_equal(tw_run_check(&run, &err), TW_OK);
        assert_int_equal(tw_run_set(&run, rows[i].key, rows[i].value, &err), TW_OK);
        assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
        if (strstr(err.message, rows[i].reason) == NULL) fail_msg("%s", err.message);
    }
    /* The published constants are within the bounds, and the bounds themselves are accepted. */
    tw_run_defaults(&run);
    run.sync.nodes = 5;
    tw_run_apply_preset(&run, TW_PRESET_NOLOCO);
    run.sync.outer_momentum_millionths = 500000;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    run.sync.consensus_millionths = 1499999;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    run.sync.outer_lr_millionths = 500001;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    run.sync.outer_lr_millionths = 500000;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "(0.5) must be more than sync.outer_momentum (0.5)"));
    tw_run_apply_preset(&run, TW_PRESET_STREAMING);
    run.sync.merge = TW_MERGE_TRIMMED;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    /* A robust merge accepts no weights. */
    for (unsigned merge = TW_MERGE_TRIMMED; merge <= TW_MERGE_CLIPPED; merge++) {
        run.sync.merge = (enum tw_merge)merge;
        run.sync.weights = TW_WEIGHTS_TOKENS;
        assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
        assert_non_null(strstr(err.message, "counts every node as one"));
    }
    /* A sparse result has at most as many values as a contribution. */
    tw_run_apply_preset(&run, TW_PRESET_SPARSELOCO);
    run.sync.result = TW_CODEC_TOPK64;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    run.sync.codec = TW_CODEC_TOPK32;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "more values than a contribution in sync.codec = topk32"));
    run.sync.codec = TW_CODEC_AUTO;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    run.sync.codec = TW_CODEC_TOPK64;
    run.sync.sent = TW_SENT_EAGER;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    tw_run_apply_preset(&run, TW_PRESET_STREAMING);
    /* A three-bit codec can encode results; a two-bit codec needs senders that keep its loss. */
    run.sync.merge = TW_MERGE_RDA;
    run.sync.result = TW_CODEC_ECSQ3;
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    run.sync.result = TW_CODEC_ECSQ2;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
}

TEST(shape_follows_from_the_keys) {
    tw_run_defaults(&run);
    struct tw_run_shape shape = tw_run_shape(&run);
    assert_int_equal(shape.kv_heads, 4);
    assert_int_equal(shape.head_size, 32);
    assert_int_equal(shape.ffn, 512);
    run.model.family = TW_FAMILY_LLAMA;
    run.model.width = 4096;
    run.model.heads = 32;
    run.model.kv_heads = 8;
    shape = tw_run_shape(&run);
    assert_int_equal(shape.ffn, 10944); /* 8/3 of 4096 is 10922.67 */
    assert_int_equal(shape.kv_width, 1024);
    run.model.head_size = 64;
    run.model.ffn = 11008;
    shape = tw_run_shape(&run);
    assert_int_equal(shape.q_width, 2048);
    assert_int_equal(shape.kv_width, 512);
    assert_int_equal(shape.ffn, 11008);
}

TEST(only_canonical_bytes_decode) {
    struct tw_run back;
    tw_run_defaults(&run);
    tw_run_encode(&run, text, &size);
    char changed[TW_MANIFEST_BYTES_MAX];
    assert_int_equal(tw_run_decode(text, size - 1, &back, &err), TW_CONFIG);
    assert_int_equal(tw_run_decode(text, 0, &back, &err), TW_VERSION);
    memcpy(changed, text, size);
    changed[size] = '\n';
    assert_int_equal(tw_run_decode(changed, size + 1, &back, &err), TW_CONFIG);
    changed[13] = '2';
    assert_int_equal(tw_run_decode(changed, size, &back, &err), TW_VERSION);
    assert_int_equal(tw_run_decode(text, TW_MANIFEST_BYTES_MAX + 1, &back, &err), TW_CONFIG);
    /* With any single bit changed, the text is refused, or is the canonical text of other values.
     */
    for (size_t i = 0; i < size; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            char again[TW_MANIFEST_BYTES_MAX];
            size_t again_size;
            memcpy(changed, text, size);
            changed[i] = (char)(changed[i] ^ (1 << bit));
            if (tw_run_decode(changed, size, &back, &err) != TW_OK) continue;
            tw_run_encode(&back, again, &again_size);
            assert_int_equal(again_size, size);
            assert_memory_equal(again, changed, size);
        }
    }
}

static enum tw_status read_text(const char *file) {
    return tw_run_read(file, strlen(file), &run, &err);
}

TEST(run_file_may_have_comments_and_leave_keys_out) {
    assert_int_equal(
        read_text("\xEF\xBB\xBF# my run\n\nthinwire-run 1\r\n  model.layers=2 # small\n"
                  "\ttrain.tokens = 1m\nrun.name = two-layers"),
        TW_OK);
    assert_int_equal(run.model.layers, 2);
    assert_int_equal(run.train.tokens, 1000000);
    assert_string_equal(run.name, "two-layers");
    assert_int_equal(run.model.width, 128);
}

TEST(run_file_takes_left_out_sync_keys_from_its_preset) {
    assert_int_equal(read_text("thinwire-run 1\nsync.overlap = 3\nsync.preset = diloco\n"), TW_OK);
    assert_int_equal(run.sync.fragments, 1);
    assert_int_equal(run.sync.mix_millionths, 0);
    assert_int_equal(run.sync.overlap, 3);
    /* The preset's row is fitted to the file's model and budget, wherever those keys are in the
     * file. */
    assert_int_equal(read_text("thinwire-run 1\nsync.preset = streaming\nmodel.layers = 9\n"
                               "train.tokens = 1g\n"),
                     TW_OK);
    assert_int_equal(run.sync.fragments, 4);
    assert_int_equal(run.sync.outer_lr_millionths, 400000);
}

/* If the file sets a period, the preset's outer constants are fitted to that period, too. Keys that
 * the file sets are left alone. */
TEST(run_file_fits_outer_constants_to_its_period) {
    const char tail[] = "train.batch = 8\nmodel.context = 128\nsync.nodes = 4\n"
                        "train.tokens = 1638400\ntrain.warmup_tokens = 409600\n"; /* 400 steps */
    const struct {
        const char *keys;
        uint32_t lr, momentum, overlap;
    } rows[] = {
        {"sync.preset = diloco\n", 940600, 133650, 1}, /* 13 outer steps */
        {"sync.preset = diloco\nsync.period = 10\n", 700000, 675000, 1},
        {"sync.preset = diloco\nsync.period = 10\nsync.outer_lr = 0.5\n", 500000, 675000, 1},
        {"sync.preset = eager\nsync.period = 10\n", 800200, 449550, 9},
        {"sync.preset = eager\nsync.period = 10\nsync.overlap = 4\n", 800200, 449550, 4},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[512];
        (void)snprintf(file, sizeof(file), "thinwire-run 1\n%s%s", rows[i].keys, tail);
        assert_int_equal(read_text(file), TW_OK);
        assert_int_equal(run.sync.outer_lr_millionths, rows[i].lr);
        assert_int_equal(run.sync.outer_momentum_millionths, rows[i].momentum);
        assert_int_equal(run.sync.overlap, rows[i].overlap);
    }
}

TEST(run_file_errors_name_the_line) {
    const struct {
        const char *file, *word;
    } rows[] = {
        {"thinwire-run 1\n\nmodel.layer = 3\n", "line 3: there is no key `model.layer`: did you "
                                                "mean model.layers?"},
        {"thinwire-run 1\nmodel.layers = many\n", "line 2: model.layers"},
        {"thinwire-run 1\nmodel.layers = 2\nmodel.layers = 3\n", "line 3: model.layers is already "
                                                                 "set in line 2"},
        {"thinwire-run 1\nmodel.layers\n", "line 2: `model.layers` is not"},
        {"thinwire-run 1\n= 4\n", "line 2 has no key"},
        {"model.layers = 2\n", "line 1: a run file starts"},
        {"# nothing\n", "a run file starts"},
        {"thinwire-run 1\nthinwire-run 1\n", "line 2"},
        {"", "a run file starts"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(read_text(rows[i].file), TW_CONFIG);
        if (strstr(err.message, rows[i].word) == NULL) print_error("%s\n", err.message);
        assert_non_null(strstr(err.message, rows[i].word));
    }
    const char nul[] = "thinwire-run 1\nrun.name = a\0b\n";
    assert_int_equal(tw_run_read(nul, sizeof(nul) - 1, &run, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "line 2"));
}

/* A truncated file is refused, except one of only a few lines, which a person may have written. */
TEST(a_file_that_was_cut_off_is_refused) {
    enum { BY_HAND_MAX = 8 };
    struct tw_run back;
    tw_run_defaults(&run);
    tw_run_write(&run, text, &size);
    uint32_t keys = 0, keys_count;
    (void)tw_run_keys(&keys_count);
    for (size_t at = 0; at < size; at++) {
        if (text[at] != '\n') continue;
        const char *line = text + at;
        while (line > text && line[-1] != '\n') line--;
        keys += line[0] != '#' && memchr(line, '=', (size_t)(text + at - line)) != NULL;
        const bool is_whole = keys == keys_count;
        if (keys <= BY_HAND_MAX && !is_whole) continue;
        const enum tw_status status = tw_run_read(text, at + 1, &back, &err);
        assert_int_equal(status, is_whole ? TW_OK : TW_CONFIG);
        if (!is_whole) assert_non_null(strstr(err.message, "was it cut off?"));
    }
    assert_int_equal(keys, keys_count);
}

TEST(commented_file_reads_back) {
    struct tw_run back;
    tw_run_defaults(&run);
    run.sync.sent = TW_SENT_MIX;
    run.sync.mix_millionths = 123456;
    run.sync.pace = TW_PACE_CLOCK;
    memset(run.data.sha256.bytes, 0xab, 32);
    tw_run_write(&run, text, &size);
    assert_int_equal(tw_run_read(text, size, &back, &err), TW_OK);
    assert_memory_equal(&run, &back, sizeof(run));
}

TEST(different_runs_have_different_ids) {
    tw_run_defaults(&run);
    const struct tw_id first = tw_run_id(&run);
    run.model.seed++;
    const struct tw_id second = tw_run_id(&run);
    assert_false(tw_id_equal(&first, &second));
}

TEST(presets_make_valid_runs_of_any_depth) {
    for (uint32_t layers = 1; layers <= 341; layers++) {
        for (unsigned preset = 0; preset <= TW_PRESET_BTM; preset++) {
            tw_run_defaults(&run);
            run.model.layers = layers;
            tw_run_apply_preset(&run, (enum tw_preset)preset);
            if (tw_run_check(&run, &err) != TW_OK) fail_msg("%s", err.message);
            assert_int_equal(run.sync.preset, preset);
            if (preset <= TW_PRESET_STREAMING) assert_in_range(run.sync.period, 26, 34);
            if (preset == TW_PRESET_EAGER) assert_int_equal(run.sync.period, 10);
        }
    }
}

/* If a file sets only the period or only the fragments, the other key is adjusted, so that every
 * value works. */
TEST(a_set_period_or_fragments_fit_the_other) {
    static const char *const presets[] = {"diloco",    "streaming",  "eager",     "noloco", "co2",
                                          "decoupled", "sparseloco", "local-sgd", "btm"};
    static const uint32_t periods[] = {1, 2, 7, 12, 48, 50, 97, 1000000};
    char file[256];
    for (unsigned p = 0; p < sizeof(presets) / sizeof(presets[0]); p++) {
        for (uint32_t layers = 1; layers <= 40; layers += 3) {
            for (unsigned i = 0; i < sizeof(periods) / sizeof(periods[0]); i++) {
                (void)snprintf(file, sizeof(file),
                               "thinwire-run 1\nsync.preset = %s\nmodel.layers = %u\n"
                               "sync.period = %u\n",
                               presets[p], layers, periods[i]);
                if (read_text(file) != TW_OK) fail_msg("%s: %s", file, err.message);
                assert_int_equal(run.sync.period, periods[i]);
                assert_int_equal(run.sync.period % run.sync.fragments, 0);
            }
            for (uint32_t fragments = 1; fragments <= layers + 1; fragments++) {
                (void)snprintf(file, sizeof(file),
                               "thinwire-run 1\nsync.preset = %s\nmodel.layers = %u\n"
                               "sync.fragments = %u\n",
                               presets[p], layers, fragments);
                if (read_text(file) != TW_OK) fail_msg("%s: %s", file, err.message);
                assert_int_equal(run.sync.fragments, fragments);
            }
        }
    }
}

TEST(fragments_give_way_to_the_next_fewer) {
    const struct {
        const char *keys;
        uint32_t period, fragments, overlap;
    } rows[] = {
        {"", 30, 3, 2},
        {"sync.period = 60\n", 60, 3, 2}, /* the preset's own values */
        {"sync.period = 50\n", 50, 2, 2},
        {"sync.period = 7\n", 7, 1, 1},
        {"sync.period = 2\n", 2, 2, 0},
        {"sync.period = 1\n", 1, 1, 0},
        {"sync.fragments = 4\n", 32, 4, 1},
        {"sync.preset = decoupled\nsync.period = 24\n", 24, 4, 1},
        {"sync.period = 50\nsync.overlap = 24\n", 50, 2, 24},
        {"sync.period = 20\nsync.fragments = 5\n", 20, 5, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[256];
        (void)snprintf(file, sizeof(file), "thinwire-run 1\n%s", rows[i].keys);
        if (read_text(file) != TW_OK) fail_msg("%s: %s", file, err.message);
        assert_int_equal(run.sync.period, rows[i].period);
        assert_int_equal(run.sync.fragments, rows[i].fragments);
        assert_int_equal(run.sync.overlap, rows[i].overlap);
    }
    /* If period and fragments are both set, neither is changed. */
    assert_int_equal(read_text("thinwire-run 1\nsync.period = 50\nsync.fragments = 3\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "51 would do"));
    assert_int_equal(read_text("thinwire-run 1\nsync.period = 30\nsync.fragments = 4\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "32 would do"));
}

/* In a short file, a person expects that every key has an effect. A manifest lists all keys. */
TEST(a_key_without_effect_is_refused_if_a_person_wrote_it) {
    const struct {
        const char *keys, *reason;
    } rows[] = {
        {"sync.topology = solo\nsync.sent = keep\n",
         "line 3: sync.sent has no effect where sync.topology = solo"},
        {"sync.topology = solo\nsync.lead = 0\nsync.merge = rda\n",
         "line 4: sync.merge has no effect"},
        {"sync.topology = solo\nsync.lead = 0\nsync.outer_lr = 1\n",
         "line 4: sync.outer_lr has no effect"},
        {"sync.quorum = 2\nsync.topology = solo\nsync.lead = 0\n",
         "line 2: sync.quorum has no effect"},
        {"sync.preset = noloco\nsync.result = int4\n", "send no result"},
        {"sync.preset = noloco\nsync.quorum = 2\n", "exactly two contributors"},
        {"sync.preset = noloco\nsync.grace = 1s\n", "or set sync.topology = group"},
        {"sync.interval = 2s\n", "rounds follow sync.period, not the time"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[256];
        (void)snprintf(file, sizeof(file), "thinwire-run 1\n%s", rows[i].keys);
        if (strstr(rows[i].keys, "solo") != NULL && strstr(rows[i].keys, "lead") == NULL)
            (void)strcat(file, "sync.lead = 0\n");
        assert_int_equal(read_text(file), TW_CONFIG);
        if (strstr(err.message, rows[i].reason) == NULL) fail_msg("%s", err.message);
    }
    assert_int_equal(read_text("thinwire-run 1\nsync.interval = 2s\nsync.pace = clock\n"), TW_OK);
    assert_int_equal(read_text("thinwire-run 1\nsync.preset = noloco\nsync.feedback = 0.5\n"),
                     TW_OK);
    tw_run_defaults(&run);
    tw_run_apply_preset(&run, TW_PRESET_NOLOCO);
    tw_run_encode(&run, text, &size);
    struct tw_run back;
    assert_int_equal(tw_run_decode(text, size, &back, &err), TW_OK);
}

TEST(by_the_clock_interval_and_period_are_one_plan) {
    const struct {
        uint32_t period, fragments, pace_ms;
        uint64_t step_us;
        bool has_interval;
        uint32_t period_out, pace_ms_out;
    } rows[] = {
        {30, 3, 1000, 250000, false, 30, 2500}, /* ten steps of a quarter of a second */
        {30, 3, 2000, 250000, true, 24, 2000},
        {30, 3, 2000, 5000000, true, 3, 2000}, /* a step exceeds the interval */
        {30, 3, 1000, 10, false, 30, 10},      /* the key's minimum */
        {1000000, 1, 1000, 1000000000, false, 1000000, 86400000},
        {30, 3, 86400000, 1, true, 999999, 86400000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        run.sync.period = rows[i].period;
        run.sync.fragments = rows[i].fragments;
        run.sync.pace_ms = rows[i].pace_ms;
        const struct tw_run before = run;
        tw_run_fit_clock(&run, rows[i].step_us, rows[i].has_interval);
        assert_memory_equal(&run, &before,
                            sizeof(run)); /* with pace = steps there is nothing to fit */
        run.sync.pace = TW_PACE_CLOCK;
        tw_run_fit_clock(&run, rows[i].step_us, rows[i].has_interval);
        assert_int_equal(run.sync.period, rows[i].period_out);
        assert_int_equal(run.sync.pace_ms, rows[i].pace_ms_out);
        assert_int_equal(tw_run_check(&run, &err), TW_OK);
    }
    tw_run_defaults(&run);
    assert_int_equal(tw_run_step_us(&run), 0);
    run.sync.pace = TW_PACE_CLOCK;
    /* Three fragments in 30 steps, with an interval of one second: 10 steps take a second. */
    assert_int_equal(tw_run_step_us(&run), 100000);
}

static const char two_layers[] = "h.{0-1}.w:100x100 h.{0-1}.b:100";

TEST(run_of_any_model_survives_text) {
    struct tw_run back;
    tw_run_defaults(&run);
    assert_int_equal(tw_run_apply_tensors(&run, two_layers, &err), TW_OK);
    memset(run.model.base.bytes, 0xcd, 32);
    tw_run_encode(&run, text, &size);
    assert_int_equal(tw_run_decode(text, size, &back, &err), TW_OK);
    assert_memory_equal(&run, &back, sizeof(run));
    tw_run_write(&run, text, &size);
    assert_null(memmem(text, size, "model.width", 11)); /* unused keys are left out */
    assert_int_equal(tw_run_read(text, size, &back, &err), TW_OK);
    assert_memory_equal(&run, &back, sizeof(run));
}

TEST(run_file_of_any_model_may_be_short) {
    assert_int_equal(read_text("thinwire-run 1\nmodel.family = tensors\n"
                               "model.tensors = w:2000x1000 # one\ntrain.batch = 4\n"),
                     TW_OK);
    assert_string_equal(run.model.tensors, "w:2000x1000");
    assert_int_equal(run.model.width, 8);
    assert_int_equal(run.train.batch, 4);
    assert_int_equal(read_text("thinwire-run 1\nmodel.family = tensors\nmodel.tensors = w:9x9\n"
                               "data.sha256 = 00000000000000000000000000000000000000000000000000000"
                               "00000000001\ndata.heldout = 1%\nmodel.vocab = 300\n"
                               "data.tokenizer = ids\n"),
                     TW_OK);
    assert_int_equal(run.data.heldout_millionths, 10000);
}

TEST(keys_of_the_engine_are_refused_in_a_run_of_any_model) {
    const struct {
        const char *lines, *why;
    } rows[] = {
        {"model.width = 64", "model.width has no effect where model.family = tensors, because the "
                             "trainer brings its own model: leave it out"},
        {"model.width = 8", "line 4: model.width has no effect"},
        {"train.optimizer = muon", "train.optimizer has no effect where model.family = tensors, "
                                   "because the trainer brings its own optimizer"},
        {"train.beta1 = 0.9", "its own optimizer"},
        {"model.seed = 3", "model.seed has no effect"},
        {"sync.pattern = sequential", "sync.pattern has no effect"},
        {"data.heldout = 3%", "data.heldout has no effect where model.family = tensors and "
                              "data.sha256 = any, because the trainer brings its own data"},
        {"model.vocab = 300", "model.vocab has no effect"},
        {"sync.fragments = 2", "sync.fragments (2) is too much for 900 parameters"},
        {"data.form = dataset", "data.form has no effect"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[512];
        (void)snprintf(file, sizeof(file),
                       "thinwire-run 1\nmodel.family = tensors\nmodel.tensors = w:900\n%s\n",
                       rows[i].lines);
        assert_int_equal(read_text(file), TW_CONFIG);
        if (strstr(err.message, rows[i].why) == NULL) fail_msg("%s", err.message);
    }
    assert_int_equal(read_text("thinwire-run 1\nmodel.family = tensors\n"), TW_CONFIG);
    assert_non_null(strstr(err.message, "needs model.tensors"));
    assert_int_equal(read_text("thinwire-run 1\nmodel.tensors = w:900\n"), TW_CONFIG);
    assert_non_null(strstr(err.message, "model.tensors needs model.family = tensors"));
    assert_int_equal(read_text("thinwire-run 1\nmodel.family = tensors\nmodel.tensors = w\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "line 3: model.tensors: `w` has no shape"));
}
