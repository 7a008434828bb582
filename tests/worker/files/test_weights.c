/* Tests of worker/files/model_source.c. */
#include <unistd.h>

#include <math.h>

#include "proto/run/run_key.h"
#include "proto/safetensors.h"
#include "tests/test.h"
#include "tests/worker/files/load_weights.h"
#include "worker/files/model_source.h"
#include "worker/files/train_file.h"

static struct tw_run run;
static struct tw_layout layout;
static float *params, *loaded;
static char folder[64], path[96];
static struct tw_error err;

static int start(void **state) {
    tw_run_defaults(&run);
    run.model.layers = 2;
    run.model.width = 16;
    run.model.heads = 2;
    run.model.context = 8;
    if (tw_layout_init(&layout, &run, &err) != TW_OK) return 1;
    params = calloc(layout.elements, sizeof(float));
    loaded = calloc(layout.elements, sizeof(float));
    if (params == NULL || loaded == NULL) return 1;
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout.tensors[i];
        for (uint64_t k = 0; k < (uint64_t)tensor->rows * tensor->cols; k++) {
            params[tensor->offset + k] = (float)i - 0.37f * (float)k;
        }
    }
    memcpy(folder, "/tmp/tw_weights_XXXXXX", 23);
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(path, sizeof(path), "%s/w.safetensors", folder);
    return 0;
}

static int stop(void **state) {
    (void)unlink(path);
    free(params);
    free(loaded);
    return rmdir(folder); /* fails if a temporary file is left */
}

#define FACT(name) TEST_IN(start, stop, name)

/* Writes tensors named PREFIX.NAME as BF16 or F32, without tensor `skip`. */
static void write_file(const char *prefix, bool is_bf16, uint32_t skip) {
    static struct tw_safetensors st;
    static uint8_t header[64 * 1024];
    size_t size;
    memset(&st, 0, sizeof(st));
    st.tensors = calloc(layout.tensors_count, sizeof(*st.tensors));
    assert_non_null(st.tensors);
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout.tensors[i];
        if (i == skip) continue;
        struct tw_safetensors_tensor *const to = &st.tensors[st.tensors_count++];
        (void)snprintf(to->name, sizeof(to->name), "%s%s", prefix, tensor->name);
        to->dtype = is_bf16 ? TW_DTYPE_BF16 : TW_DTYPE_F32;
        to->rank = tensor->shape.rank;
        to->shape[0] = tensor->rows;
        to->shape[1] = tensor->cols;
    }
    st.tensors_capacity = st.tensors_count;
    assert_int_equal(tw_safetensors_encode(&st, header, sizeof(header), &size, &err), TW_OK);
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 1, size, file), size);
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout.tensors[i];
        for (uint64_t k = 0; i != skip && k < (uint64_t)tensor->rows * tensor->cols; k++) {
            uint32_t bits;
            memcpy(&bits, &params[tensor->offset + k], 4);
            const uint16_t half = (uint16_t)(bits >> 16);
            assert_int_equal(is_bf16 ? fwrite(&half, 2, 1, file) : fwrite(&bits, 4, 1, file), 1);
        }
    }
    assert_int_equal(fclose(file), 0);
    free(st.tensors);
}

FACT(saved_weights_are_loaded_bit_for_bit) {
    for (uint64_t i = 0; i < layout.elements; i++) loaded[i] = 7; /* padding included */
    assert_int_equal(tw_weights_save(path, &layout, NULL, params, &err), TW_OK);
    assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_OK);
    assert_memory_equal(loaded, params, layout.elements * sizeof(float));
}

FACT(a_manifest_goes_along_where_one_is_given) {
    static struct tw_run found;
    bool has_run = true;
    assert_int_equal(tw_weights_save(path, &layout, NULL, params, &err), TW_OK);
    assert_int_equal(tw_train_file_run(path, &has_run, &found, &err), TW_OK);
    assert_false(has_run);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tw_weights_save(path, &layout, &run, params, &err), TW_OK);
    assert_int_equal(tw_train_file_run(path, &has_run, &found, &err), TW_OK);
    assert_true(has_run);
    assert_null(tw_run_key_differing(&found, &run));
    assert_int_equal(tw_train_file_peek(path, &has_run, &found, NULL, &err), TW_OK);
    assert_false(has_run); /* not a training file */
    assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_OK);
    assert_memory_equal(loaded, params, layout.elements * sizeof(float));
}

FACT(names_of_checkpoints_and_of_hugging_face_are_found) {
    static const char *const PREFIXES[] = {"", "live.", "transformer."};
    for (unsigned i = 0; i < 3; i++) {
        memset(loaded, 0, layout.elements * sizeof(float));
        write_file(PREFIXES[i], false, UINT32_MAX);
        assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_OK);
        assert_memory_equal(loaded, params, layout.elements * sizeof(float));
    }
    write_file("anchor.", false, UINT32_MAX);
    assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_CONFIG);
    assert_int_equal(load_weights(path, &layout, "anchor", loaded, &err), TW_OK);
}

FACT(bf16_is_widened_exactly) {
    write_file("live.", true, UINT32_MAX);
    assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_OK);
    for (uint64_t i = 0; i < layout.elements; i++) {
        uint32_t want, got;
        memcpy(&want, &params[i], 4);
        memcpy(&got, &loaded[i], 4);
        assert_int_equal(got, want & 0xFFFF0000u);
    }
}

FACT(a_missing_tensor_is_named) {
    write_file("", false, 3);
    assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, layout.tensors[3].name));
}

/* Other widths change columns; another context changes only rows. */
FACT(another_shape_is_refused) {
    static struct tw_layout other;
    assert_int_equal(tw_weights_save(path, &layout, NULL, params, &err), TW_OK);
    for (unsigned i = 0; i < 2; i++) {
        run.model.width = i == 0 ? 32 : 16;
        run.model.context = i == 0 ? 8 : 4;
        assert_int_equal(tw_layout_init(&other, &run, &err), TW_OK);
        float *const room = calloc(other.elements, sizeof(float));
        assert_non_null(room);
        assert_int_equal(load_weights(path, &other, "live", room, &err), TW_CONFIG);
        free(room);
    }
}

FACT(numbers_that_are_not_finite_are_refused) {
    params[layout.tensors[5].offset] = NAN;
    assert_int_equal(tw_weights_save(path, &layout, NULL, params, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, layout.tensors[5].name));
    write_file("", false, UINT32_MAX);
    assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, layout.tensors[5].name));
}

/* A file truncated to any length, or with any one byte of its header changed, is either refused or
 * read. */
FACT(damage_never_does_more_than_fail) {
    assert_int_equal(tw_weights_save(path, &layout, NULL, params, &err), TW_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    static char bytes[1 << 20];
    const size_t size = fread(bytes, 1, sizeof(bytes), file);
    assert_int_equal(fclose(file), 0);
    assert_in_range(size, 1, sizeof(bytes) - 1);
    for (size_t i = 0; i < 200; i++) {
        const size_t length = i < 100 ? i * size / 100 : size;
        const char kept = bytes[i];
        if (i >= 100) bytes[i] = (char)(kept ^ 0x11);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, length, file), length);
        assert_int_equal(fclose(file), 0);
        const enum tw_status status = load_weights(path, &layout, "live", loaded, &err);
        if (i < 100) assert_int_not_equal(status, TW_OK);
        bytes[i] = kept;
    }
}

FACT(a_save_that_fails_leaves_nothing) {
    assert_int_equal(tw_weights_save("/nowhere/w", &layout, NULL, params, &err), TW_IO);
    assert_non_null(strstr(err.message, "/nowhere/w"));
    assert_int_equal(load_weights(path, &layout, "live", loaded, &err), TW_IO);
}
