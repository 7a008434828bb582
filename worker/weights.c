#include "worker/weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "proto/safetensors.h"

enum {
    JSON_BYTES_MAX = 16 * 1024 * 1024,
    FILE_TENSORS_MAX = 5 * TW_TENSORS_MAX, /* anchor, momentum, live and two moments */
};

/* An open file and its parsed header. */
struct source {
    const char *path;
    FILE *file;
    char *json;
    uint64_t data_at; /* bytes from the start of the file */
    struct tw_safetensors st;
};

static void source_close(struct source *source) {
    if (source->file != NULL) (void)fclose(source->file);
    free(source->json);
    free(source->st.tensors);
}

static enum tw_status read_header(struct source *source, struct tw_error *err) {
    struct stat info;
    uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES];
    uint64_t json_bytes;
    struct tw_error why;
    if (fstat(fileno(source->file), &info) != 0 || !S_ISREG(info.st_mode)) {
        return tw_fail(err, TW_IO, "%s is no regular file", source->path);
    }
    const uint64_t bytes = (uint64_t)info.st_size;
    if (fread(prefix, 1, sizeof(prefix), source->file) != sizeof(prefix)) {
        return tw_fail(err, TW_CORRUPT, "%s is too short for a safetensors file", source->path);
    }
    if (tw_safetensors_prefix(prefix, bytes, JSON_BYTES_MAX, &json_bytes, &why) != TW_OK) {
        return tw_fail(err, TW_CORRUPT, "%s: %s", source->path, why.message);
    }
    source->json = malloc(json_bytes + 1);
    source->st.tensors_capacity = FILE_TENSORS_MAX;
    source->st.tensors = calloc(FILE_TENSORS_MAX, sizeof(*source->st.tensors));
    if (source->json == NULL || source->st.tensors == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for the header of %s", source->path);
    }
    if (fread(source->json, 1, json_bytes, source->file) != json_bytes) {
        return tw_fail(err, TW_CORRUPT, "%s ends within its header", source->path);
    }
    source->data_at = sizeof(prefix) + json_bytes;
    if (tw_safetensors_parse(&source->st, source->json, json_bytes, bytes - source->data_at,
                             &why) != TW_OK) {
        return tw_fail(err, TW_CORRUPT, "%s: %s", source->path, why.message);
    }
    return TW_OK;
}

static const struct tw_safetensors_tensor *find(const struct source *source, const char *part,
                                                const char *name) {
    const char *const prefixes[] = {part, ".", "", "", "transformer", "."};
    for (unsigned i = 0; i < 3; i++) {
        char full[TW_SAFETENSORS_NAME_BYTES];
        (void)snprintf(full, sizeof(full), "%s%s%s", prefixes[2 * i], prefixes[2 * i + 1], name);
        const struct tw_safetensors_tensor *const found = tw_safetensors_find(&source->st, full);
        if (found != NULL) return found;
    }
    return NULL;
}

static bool has_shape(const struct tw_safetensors_tensor *found, const struct tw_tensor *tensor) {
    return found->rank == tensor->rank && found->shape[0] == tensor->rows &&
           (tensor->rank == 1 || found->shape[1] == tensor->cols);
}

static enum tw_status load_tensor(const struct source *source,
                                  const struct tw_safetensors_tensor *found,
                                  const struct tw_tensor *tensor, float *to, struct tw_error *err) {
    const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
    const uint32_t size = tw_dtype_bytes(found->dtype);
    if (!has_shape(found, tensor)) {
        return tw_fail(err, TW_CONFIG,
                       "%s: %s has another shape than the manifest's model; name the manifest it "
                       "was trained with",
                       source->path, found->name);
    }
    if (found->dtype != TW_DTYPE_F32 && found->dtype != TW_DTYPE_BF16) {
        return tw_fail(err, TW_CONFIG, "%s: %s is %s; F32 and BF16 can be read", source->path,
                       found->name, tw_dtype_name(found->dtype));
    }
    /* Both types read into the upper end of the room for float32, and are widened from its start.
     */
    uint8_t *const raw = (uint8_t *)to + (sizeof(float) - size) * count;
    if (fseeko(source->file, (off_t)(source->data_at + found->begin), SEEK_SET) != 0 ||
        fread(raw, size, count, source->file) != count) {
        return tw_fail(err, TW_IO, "%s: %s cannot be read", source->path, found->name);
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bits =
            size == 4 ? tw_get_u32(raw + 4 * i) : (uint32_t)tw_get_u16(raw + 2 * i) << 16;
        memcpy(&to[i], &bits, sizeof(bits));
        if (!isfinite(to[i])) {
            return tw_fail(err, TW_CORRUPT, "%s: %s holds numbers that are not finite",
                           source->path, found->name);
        }
    }
    return TW_OK;
}

enum tw_status tw_weights_load(const char *path, const struct tw_layout *layout, const char *part,
                               float *params, struct tw_error *err) {
    struct source source = {.path = path, .file = fopen(path, "re")};
    if (source.file == NULL) return tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    memset(params, 0, layout->elements * sizeof(*params));
    enum tw_status status = read_header(&source, err);
    for (uint32_t i = 0; status == TW_OK && i < layout->tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout->tensors[i];
        const struct tw_safetensors_tensor *const found = find(&source, part, tensor->name);
        status = found != NULL
                     ? load_tensor(&source, found, tensor, params + tensor->offset, err)
                     : tw_fail(err, TW_CORRUPT,
                               "%s holds no tensor %s, nor %s.%s: is it a checkpoint or an export "
                               "of this model?",
                               path, tensor->name, part, tensor->name);
    }
    source_close(&source);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

static enum tw_status describe(struct tw_safetensors *st, const struct tw_layout *layout,
                               struct tw_error *err) {
    st->tensors = calloc(layout->tensors_count, sizeof(*st->tensors));
    if (st->tensors == NULL) return tw_fail(err, TW_NOMEM, "no memory for a header");
    st->tensors_capacity = st->tensors_count = layout->tensors_count;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout->tensors[i];
        struct tw_safetensors_tensor *const to = &st->tensors[i];
        (void)snprintf(to->name, sizeof(to->name), "%s", tensor->name);
        to->dtype = TW_DTYPE_F32;
        to->rank = tensor->rank;
        to->shape[0] = tensor->rows;
        to->shape[1] = tensor->cols;
    }
    st->metadata_count = 1;
    st->metadata[0].key = (struct tw_safetensors_text){"format", 6};
    st->metadata[0].value = (struct tw_safetensors_text){"pt", 2};
    return TW_OK;
}

static bool write_all(FILE *file, const uint8_t *header, size_t header_bytes,
                      const struct tw_layout *layout, const float *params) {
    const uint16_t one = 1;
    TW_ASSERT(*(const uint8_t *)&one == 1); /* floats go out as they lie in memory */
    if (fwrite(header, 1, header_bytes, file) != header_bytes) return false;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout->tensors[i];
        const size_t count = (size_t)tensor->rows * tensor->cols;
        if (fwrite(params + tensor->offset, sizeof(float), count, file) != count) return false;
    }
    return fflush(file) == 0 && fsync(fileno(file)) == 0;
}

enum tw_status tw_weights_save(const char *path, const struct tw_layout *layout,
                               const float *params, struct tw_error *err) {
    struct tw_safetensors st = {0};
    char part[4096];
    size_t header_bytes = 0;
    TW_TRY(describe(&st, layout, err));
    const size_t capacity = tw_safetensors_bound(&st);
    uint8_t *const header = malloc(capacity);
    enum tw_status status = header == NULL
                                ? tw_fail(err, TW_NOMEM, "no memory for a header")
                                : tw_safetensors_encode(&st, header, capacity, &header_bytes, err);
    free(st.tensors);
    const int n = snprintf(part, sizeof(part), "%s.part", path);
    if (status == TW_OK && n >= (int)sizeof(part)) {
        status = tw_fail(err, TW_IO, "the path is too long");
    }
    FILE *const file = status == TW_OK ? fopen(part, "we") : NULL;
    if (status == TW_OK && file == NULL) {
        status = tw_fail(err, TW_IO, "%s: %s", part, strerror(errno));
    }
    if (file != NULL) {
        const bool is_written = write_all(file, header, header_bytes, layout, params);
        const int why = errno;
        if (fclose(file) != 0 || !is_written || rename(part, path) != 0) {
            status = tw_fail(err, TW_IO, "%s: %s", path, strerror(is_written ? errno : why));
            (void)unlink(part);
        }
    }
    free(header);
    return status;
}
