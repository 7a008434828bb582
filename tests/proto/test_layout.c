/* Tests of proto/run/layout.c. */
#include "tests/test.h"

#include "base/rng.h"
#include "proto/run/layout.h"

static struct tw_layout layout;
static struct tw_run run;
static struct tw_error err;

static void make(uint32_t layers, uint32_t fragments, enum tw_pattern pattern) {
    tw_run_defaults(&run);
    run.model.layers = layers;
    run.sync.fragments = fragments;
    run.sync.period = 4 * fragments;
    run.sync.pattern = pattern;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
}

static uint64_t size_of(const struct tw_tensor *tensor) {
    return (uint64_t)tensor->rows * tensor->cols;
}

static void check_layout(void) {
    uint64_t sum = 0, held[TW_FRAGMENTS_MAX] = {0};
    uint8_t *owner = calloc(layout.elements, 1);
    assert_non_null(owner);
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &layout.tensors[i];
        const uint32_t fragment = tensor->fragment;
        assert_in_range(fragment, 0, layout.fragments_count - 1);
        assert_in_range(tensor->offset, layout.fragment_begin[fragment],
                        layout.fragment_begin[fragment + 1] - size_of(tensor));
        for (uint64_t k = 0; k < size_of(tensor); k++) {
            assert_int_equal(owner[tensor->offset + k], 0);
            owner[tensor->offset + k] = 1;
        }
        held[fragment] += size_of(tensor);
        sum += size_of(tensor);
    }
    free(owner);
    assert_int_equal(sum, layout.params);
    assert_int_equal(layout.fragment_begin[0], 0);
    assert_int_equal(layout.fragment_begin[layout.fragments_count], layout.elements);
    for (uint32_t i = 0; i < layout.fragments_count; i++) {
        const uint64_t elements = layout.fragment_begin[i + 1] - layout.fragment_begin[i];
        assert_int_equal(layout.fragment_begin[i] % TW_PART_ALIGN, 0);
        assert_true(elements >= held[i]);
        assert_true(elements - held[i] < TW_PART_ALIGN);
        assert_true(held[i] > 0);
    }
}

TEST(every_element_belongs_to_at_most_one_tensor) {
    for (uint32_t layers = 1; layers <= 7; layers++) {
        for (uint32_t fragments = 1; fragments <= layers + 1; fragments++) {
            make(layers, fragments, TW_PATTERN_STRIDED);
            check_layout();
            make(layers, fragments, TW_PATTERN_SEQUENTIAL);
            check_layout();
        }
    }
}

TEST(parameters_are_as_many_as_the_formula_says) {
    make(4, 3, TW_PATTERN_STRIDED);
    const uint64_t c = 128;
    /* embeddings, then per layer 12 C^2 weights and 13 C biases and norms, then the last norm */
    assert_int_equal(layout.params, 256 * c + 128 * c + 4 * (12 * c * c + 13 * c) + 2 * c);
    assert_int_equal(layout.tensors_count, 4 + 12 * 4);
}

TEST(tensors_have_the_shapes_of_gpt2) {
    make(4, 3, TW_PATTERN_STRIDED);
    const struct {
        const char *name;
        uint32_t rows, cols, rank, fragment;
    } rows[] = {
        {"wte.weight", 256, 128, 2, 0},
        {"wpe.weight", 128, 128, 2, 0},
        {"h.0.ln_1.weight", 128, 1, 1, 1},
        {"h.1.attn.c_attn.weight", 128, 384, 2, 2},
        {"h.2.attn.c_attn.bias", 384, 1, 1, 1},
        {"h.3.attn.c_proj.weight", 128, 128, 2, 2},
        {"h.0.mlp.c_fc.weight", 128, 512, 2, 1},
        {"h.0.mlp.c_fc.bias", 512, 1, 1, 1},
        {"h.0.mlp.c_proj.weight", 512, 128, 2, 1},
        {"ln_f.bias", 128, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct tw_tensor *tensor = tw_layout_find(&layout, rows[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->rows, rows[i].rows);
        assert_int_equal(tensor->cols, rows[i].cols);
        assert_int_equal(tensor->shape.rank, rows[i].rank);
        assert_int_equal(tensor->fragment, rows[i].fragment);
        assert_int_equal(tensor->has_decay, rows[i].rank == 2);
    }
    assert_null(tw_layout_find(&layout, "h.4.ln_1.weight"));
    assert_null(tw_layout_find(&layout, ""));
}

TEST(tensors_have_the_shapes_of_llama) {
    tw_run_defaults(&run);
    run.model.family = TW_FAMILY_LLAMA;
    run.model.kv_heads = 2;
    run.model.head_size = 48;
    run.model.is_tied = TW_NO;
    run.model.qk_norm = TW_YES;
    run.model.qkv_bias = TW_YES;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    check_layout();
    const struct {
        const char *name;
        uint32_t rows, cols, rank, fragment;
        bool is_hidden, is_residual;
    } rows[] = {
        {"model.embed_tokens.weight", 256, 128, 2, 0, false, false},
        {"model.layers.0.input_layernorm.weight", 128, 1, 1, 1, false, false},
        {"model.layers.0.self_attn.q_proj.weight", 192, 128, 2, 1, true, false},
        {"model.layers.0.self_attn.k_proj.weight", 96, 128, 2, 1, true, false},
        {"model.layers.0.self_attn.v_proj.weight", 96, 128, 2, 1, true, false},
        {"model.layers.1.self_attn.q_proj.bias", 192, 1, 1, 2, false, false},
        {"model.layers.1.self_attn.k_proj.bias", 96, 1, 1, 2, false, false},
        {"model.layers.1.self_attn.k_norm.weight", 48, 1, 1, 2, false, false},
        {"model.layers.2.self_attn.o_proj.weight", 128, 192, 2, 1, true, true},
        {"model.layers.3.post_attention_layernorm.weight", 128, 1, 1, 2, false, false},
        {"model.layers.3.mlp.gate_proj.weight", 384, 128, 2, 2, true, false},
        {"model.layers.3.mlp.down_proj.weight", 128, 384, 2, 2, true, true},
        {"model.norm.weight", 128, 1, 1, 0, false, false},
        {"lm_head.weight", 256, 128, 2, 0, false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct tw_tensor *tensor = tw_layout_find(&layout, rows[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->rows, rows[i].rows);
        assert_int_equal(tensor->cols, rows[i].cols);
        assert_int_equal(tensor->shape.rank, rows[i].rank);
        assert_int_equal(tensor->fragment, rows[i].fragment);
        assert_int_equal(tensor->is_hidden, rows[i].is_hidden);
        assert_int_equal(tensor->is_residual, rows[i].is_residual);
    }
    run.model.is_tied = TW_YES;
    run.model.qk_norm = TW_NO;
    run.model.qkv_bias = TW_NO;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    assert_int_equal(layout.tensors_count, 2 + 9 * 4);
    assert_null(tw_layout_find(&layout, "lm_head.weight"));
}

/* The engine uses q, k, v as one matrix, and gate and up as another. */
TEST(matrices_that_make_one_follow_each_other) {
    static const char *const groups[][3] = {
        {"q_proj.weight", "k_proj.weight", "v_proj.weight"},
        {"q_proj.bias", "k_proj.bias", "v_proj.bias"},
    };
    tw_run_defaults(&run);
    run.model.family = TW_FAMILY_LLAMA;
    run.model.kv_heads = 1;
    run.model.qkv_bias = TW_YES;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t at = 0;
        for (unsigned j = 0; j < 3; j++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "model.layers.2.self_attn.%s", groups[i][j]);
            const struct tw_tensor *tensor = tw_layout_find(&layout, name);
            if (j > 0) assert_int_equal(tensor->offset, at);
            at = tensor->offset + size_of(tensor);
        }
    }
    const struct tw_tensor *gate = tw_layout_find(&layout, "model.layers.2.mlp.gate_proj.weight");
    const struct tw_tensor *up = tw_layout_find(&layout, "model.layers.2.mlp.up_proj.weight");
    assert_int_equal(up->offset, gate->offset + size_of(gate));
}

TEST(named_models_have_their_parameters) {
    static const struct {
        const char *name;
        uint64_t params;
    } rows[] = {
        {"gpt2-124m", 124439808},       {"gpt2-350m", 354823168},   {"gpt2-774m", 774030080},
        {"gpt2-1.5b", 1557611200},      {"smollm-135m", 134515008}, {"smollm-360m", 361821120},
        {"tinyllama-1.1b", 1100048384}, {"llama-1b", 1235814400},   {"llama-3b", 3212749824},
        {"llama-8b", 8030261248},       {"llama-70b", 70553706496}, {"qwen2.5-0.5b", 494032768},
        {"qwen3-0.6b", 596049920},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        assert_int_equal(tw_run_apply_model(&run, rows[i].name, &err), TW_OK);
        assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
        assert_int_equal(layout.params, rows[i].params);
    }
    uint64_t last = 0; /* the presets are in order of size */
    for (uint32_t i = 0; tw_run_model_name(i) != NULL; i++) {
        tw_run_defaults(&run);
        assert_int_equal(tw_run_apply_model(&run, tw_run_model_name(i), &err), TW_OK);
        assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
        print_message("%-14s %5.1f M\n", tw_run_model_name(i), (double)layout.params / 1e6);
        assert_true(layout.params >= last);
        last = layout.params;
    }
    assert_int_equal(tw_run_apply_model(&run, "lama-8b", &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "did you mean llama-8b?"));
}

TEST(sequential_fragments_are_consecutive_blocks) {
    make(7, 4, TW_PATTERN_SEQUENTIAL);
    uint32_t last = 1;
    for (uint32_t layer = 0; layer < 7; layer++) {
        char name[48];
        (void)snprintf(name, sizeof(name), "h.%u.ln_1.weight", layer);
        const uint32_t fragment = tw_layout_find(&layout, name)->fragment;
        assert_in_range(fragment, last, last + 1);
        last = fragment;
    }
    assert_int_equal(last, 3);
}

TEST(names_of_the_deepest_model_fit) {
    tw_run_defaults(&run);
    run.model.layers = 341;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    assert_non_null(tw_layout_find(&layout, "h.340.attn.c_attn.weight"));
}

TEST(fragment_too_large_for_a_payload_is_refused) {
    tw_run_defaults(&run);
    run.model.width = 16384;
    run.model.layers = 340;
    run.sync.fragments = 5;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK); /* one machine can train it */
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "a smaller model"));
    run.model.width = 4096;
    run.model.layers = 1;
    run.sync.fragments = 1;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    assert_false(layout.is_cut);
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "set sync.fragments = 2 or more"));
    run.sync.fragments = 2;
    run.sync.period = 4;
    run.sync.overlap = 1;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    assert_true(layout.is_cut);
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_OK);
}

/* Tensors that form one matrix stay adjacent, without a gap. */
TEST(named_models_of_real_size_fit_a_group) {
    static const struct {
        const char *name;
        bool is_cut;
    } rows[] = {{"gpt2-124m", false}, {"smollm-360m", false}, {"qwen2.5-0.5b", true},
                {"llama-1b", true},   {"llama-3b", true},     {"llama-8b", true},
                {"llama-70b", true}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        assert_int_equal(tw_run_apply_model(&run, rows[i].name, &err), TW_OK);
        tw_run_apply_preset(&run, TW_PRESET_STREAMING);
        if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
        if (tw_layout_check_group(&layout, &err) != TW_OK) fail_msg("%s", err.message);
        assert_int_equal(layout.is_cut, rows[i].is_cut);
        assert_int_equal(layout.params, tw_layout_family_params(&run));
        uint64_t at = 0;
        for (uint32_t t = 0; t < layout.tensors_count && layout.is_cut; t++) {
            const struct tw_tensor *tensor = &layout.tensors[t];
            assert_int_equal(tensor->offset, at);
            assert_true(at >= layout.fragment_begin[tensor->fragment]);
            assert_true(at < layout.fragment_begin[tensor->fragment + 1]);
            at += (uint64_t)tensor->rows * tensor->cols;
        }
    }
}

TEST(parts_tile_the_fragment) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 7);
    for (unsigned trial = 0; trial < 5000; trial++) {
        uint32_t weights[TW_PARTS_MAX] = {0};
        const uint32_t parts_count = 1 + (uint32_t)tw_rng_below(&rng, TW_PARTS_MAX);
        const uint64_t units_max = (uint64_t)(trial % 3) * 40000;
        const uint64_t elements = TW_PART_ALIGN * tw_rng_below(&rng, 1 + units_max);
        for (uint32_t i = 0; i < parts_count; i++)
            weights[i] = (uint32_t)tw_rng_next(&rng) >> tw_rng_below(&rng, 33) % 32;
        if (trial % 5 == 0) memset(weights, 0, sizeof(weights));
        uint64_t at = 0;
        for (uint32_t part = 0; part < parts_count; part++) {
            uint64_t begin, count;
            tw_layout_part(elements, weights, parts_count, part, &begin, &count);
            assert_int_equal(begin, at);
            assert_int_equal(count % TW_PART_ALIGN, 0);
            at = begin + count;
        }
        assert_int_equal(at, elements);
    }
}

TEST(part_sizes_follow_the_weights) {
    const uint32_t weights[3] = {1, 0, 3};
    const uint64_t expected[3] = {25, 0, 75};
    for (uint32_t part = 0; part < 3; part++) {
        uint64_t begin, count;
        tw_layout_part((uint64_t)100 * TW_PART_ALIGN, weights, 3, part, &begin, &count);
        assert_int_equal(count, expected[part] * TW_PART_ALIGN);
    }
}

static void make_list(const char *tensors, uint32_t fragments) {
    tw_run_defaults(&run);
    assert_int_equal(tw_run_apply_tensors(&run, tensors, &err), TW_OK);
    run.sync.fragments = fragments;
    run.sync.period = 4 * fragments;
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
}

TEST(list_is_one_sequence_in_equal_fragments) {
    make_list("wte:700x3 h.{0-1}.w:31x100 h.{0-1}.b:2x3x4 out:1500", 3);
    const struct {
        const char *name;
        uint32_t rows, cols, rank, fragment;
        uint64_t offset;
    } rows[] = {
        {"wte", 700, 3, 2, 0, 0},     {"h.0.w", 31, 100, 2, 0, 2100},
        {"h.0.b", 2, 12, 3, 1, 5200}, {"h.1.w", 31, 100, 2, 1, 5224},
        {"h.1.b", 2, 12, 3, 2, 8324}, {"out", 1500, 1, 1, 2, 8348},
    };
    assert_int_equal(layout.tensors_count, 6);
    for (size_t i = 0; i < 6; i++) {
        const struct tw_tensor *tensor = &layout.tensors[i];
        assert_string_equal(tensor->name, rows[i].name);
        assert_int_equal(tensor->rows, rows[i].rows);
        assert_int_equal(tensor->cols, rows[i].cols);
        assert_int_equal(tensor->shape.rank, rows[i].rank);
        assert_int_equal(tensor->fragment, rows[i].fragment);
        assert_int_equal(tensor->offset, rows[i].offset);
        assert_int_equal(tensor->is_hidden, rows[i].rank > 1);
    }
    /* 9848 parameters are 10 units of 1024, divided at 3 and 6 */
    assert_int_equal(layout.params, 9848);
    assert_int_equal(layout.elements, 10240);
    const uint64_t begins[] = {0, 3072, 6144, 10240};
    for (size_t p = 0; p < 4; p++) assert_int_equal(layout.fragment_begin[p], begins[p]);
}

TEST(fragments_of_a_list_are_never_empty) {
    for (uint32_t fragments = 1; fragments <= 6; fragments++) {
        make_list("a:2049 b:3000", fragments < 6 ? fragments : 5);
        for (uint32_t p = 0; p < layout.fragments_count; p++)
            assert_true(layout.fragment_begin[p] < layout.fragment_begin[p + 1]);
    }
    run.sync.fragments = 6;
    run.sync.period = 24;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "set sync.fragments = 5 or less"));
}

/* The embedding of a 1B model is larger than a fragment may be. */
TEST(a_large_tensor_spans_fragments) {
    make_list("embed:128256x2048 h.{0-15}.w:8192x2048", 4);
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "set sync.fragments = 5 or more"));
    make_list("embed:128256x2048 h.{0-15}.w:8192x2048", 5);
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_OK);
    assert_true(layout.tensors[1].fragment == 2);
    for (uint32_t p = 0; p < 5; p++)
        assert_true(layout.fragment_begin[p + 1] - layout.fragment_begin[p] <=
                    TW_FRAGMENT_ELEMENTS_MAX);
    make_list("h.{0-31}.w:262144x1024", 64); /* 8.6 billion */
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "set sync.fragments = 69 or more"));
    make_list("h.{0-31}.w:262144x1024", 69);
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_OK);
    make_list("h.{0-511}.w:262144x1024", 1024); /* 137 billion */
    assert_int_equal(tw_layout_check_group(&layout, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "fewer tensors"));
}

TEST(presets_give_a_list_as_many_fragments_as_it_needs) {
    const struct {
        const char *tensors;
        enum tw_preset preset;
        uint32_t fragments;
    } rows[] = {
        {"h.{0-11}.w:1000x1000", TW_PRESET_DILOCO, 1},
        {"h.{0-11}.w:1000x1000", TW_PRESET_STREAMING, 5},
        {"w:1000x1000", TW_PRESET_STREAMING, 2},
        {"w:10", TW_PRESET_STREAMING, 1},
        {"w:122880x1024", TW_PRESET_DILOCO, 1},
        {"w:122880x1024 b:1", TW_PRESET_DILOCO, 2},
        {"w:122880x1024 b:1", TW_PRESET_NOLOCO, 2},
        {"h.{0-11}.w:122880x2048", TW_PRESET_STREAMING, 24},
        {"h.{0-63}.w:122880x1024", TW_PRESET_DILOCO, 64},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        assert_int_equal(tw_run_apply_tensors(&run, rows[i].tensors, &err), TW_OK);
        tw_run_apply_preset(&run, rows[i].preset);
        assert_int_equal(run.sync.fragments, rows[i].fragments);
        if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
        assert_int_equal(tw_layout_check_group(&layout, &err), TW_OK);
    }
}
