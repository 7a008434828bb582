/* safetensors.c - a bounded scanner for the JSON that the safetensors format allows, and its
 * writer. */
#include "proto/safetensors.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[TW_DTYPES_COUNT] = {
#define X(name, bytes) {#name, bytes},
    TW_DTYPE_LIST(X)
#undef X
};

uint32_t tw_dtype_bytes(enum tw_dtype dtype) {
    TW_ASSERT(dtype < TW_DTYPES_COUNT);
    return dtypes[dtype].bytes;
}

const char *tw_dtype_name(enum tw_dtype dtype) {
    TW_ASSERT(dtype < TW_DTYPES_COUNT);
    return dtypes[dtype].name;
}

enum tw_status tw_safetensors_prefix(const uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES],
                                     uint64_t file_bytes, uint64_t json_bytes_max,
                                     uint64_t *json_bytes, struct tw_error *err) {
    TW_ASSERT(json_bytes_max <= TW_SAFETENSORS_JSON_MAX);
    const uint64_t claimed = tw_get_u64(prefix);
    if (file_bytes < TW_SAFETENSORS_PREFIX_BYTES ||
        claimed > file_bytes - TW_SAFETENSORS_PREFIX_BYTES) {
        return tw_fail(
            err, TW_CORRUPT,
            "its header claims %llu bytes in a file of %llu: cut short, or no safetensors",
            (unsigned long long)claimed, (unsigned long long)file_bytes);
    }
    if (claimed > json_bytes_max) {
        return tw_fail(err, TW_CORRUPT, "its header of %llu bytes is larger than the limit of %llu",
                       (unsigned long long)claimed, (unsigned long long)json_bytes_max);
    }
    *json_bytes = claimed;
    return TW_OK;
}

/* ---- scanning ------------------------------------------------------------------------------ */

struct scan {
    const char *at, *end, *start;
    struct tw_error *err;
};

static enum tw_status scan_fail(const struct scan *scan, const char *expected) {
    return tw_fail(scan->err, TW_CORRUPT, "header byte %zu: expected %s",
                   (size_t)(scan->at - scan->start), expected);
}

static void skip_space(struct scan *scan) {
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t')) {
        scan->at++;
    }
}

/* Consumes `wanted` and the white space before it, if it is the next character. */
static bool take(struct scan *scan, char wanted) {
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != wanted) return false;
    scan->at++;
    return true;
}

static enum tw_status expect(struct scan *scan, char wanted, const char *expected) {
    return take(scan, wanted) ? TW_OK : scan_fail(scan, expected);
}

static bool is_hex(char digit) {
    return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f') ||
           (digit >= 'A' && digit <= 'F');
}

/* Skips the rest of an escape sequence, after its backslash. */
static bool skip_escape(struct scan *scan) {
    if (scan->at == scan->end || *scan->at == '\0') return false;
    const char kind = *scan->at++;
    if (kind != 'u') return strchr("\"\\/bfnrt", kind) != NULL;
    for (int i = 0; i < 4; i++, scan->at++) {
        if (scan->at == scan->end || !is_hex(*scan->at)) return false;
    }
    return true;
}

/* Scans a JSON string; `text` borrows the characters between its quotes. */
static enum tw_status scan_text(struct scan *scan, struct tw_safetensors_text *text) {
    TW_TRY(expect(scan, '"', "a string"));
    text->bytes = scan->at;
    while (scan->at < scan->end && *scan->at != '"') {
        const char byte = *scan->at;
        if ((unsigned char)byte < 0x20) return scan_fail(scan, "no control character in a string");
        scan->at++;
        if (byte == '\\' && !skip_escape(scan)) return scan_fail(scan, "an escape of JSON");
    }
    if (scan->at == scan->end) return scan_fail(scan, "the end of a string");
    text->size = (size_t)(scan->at - text->bytes);
    scan->at++;
    return TW_OK;
}

static enum tw_status scan_number(struct scan *scan, uint64_t *number) {
    skip_space(scan);
    const char *first = scan->at;
    uint64_t value = 0;
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++) {
        const uint64_t digit = (uint64_t)(*scan->at - '0');
        if (value > (UINT64_MAX - digit) / 10) return scan_fail(scan, "a number below 2^64");
        value = value * 10 + digit;
    }
    if (scan->at == first || (*first == '0' && scan->at - first > 1)) {
        return scan_fail(scan, "a whole number without sign");
    }
    *number = value;
    return TW_OK;
}

/* Scans an array of at most `capacity` numbers. */
static enum tw_status scan_numbers(struct scan *scan, uint64_t *numbers, uint32_t capacity,
                                   uint32_t *count) {
    *count = 0;
    TW_TRY(expect(scan, '[', "'['"));
    if (take(scan, ']')) return TW_OK;
    do {
        if (*count == capacity) return scan_fail(scan, "fewer numbers in the list");
        TW_TRY(scan_number(scan, &numbers[*count]));
        (*count)++;
    } while (take(scan, ','));
    return expect(scan, ']', "',' or ']'");
}

static bool text_is(const struct tw_safetensors_text *text, const char *wanted) {
    return text->size == strlen(wanted) && memcmp(text->bytes, wanted, text->size) == 0;
}

/* Skips a string, or any run of characters that can form a number, true, false or null. */
static enum tw_status skip_scalar(struct scan *scan) {
    struct tw_safetensors_text text;
    if (scan->at < scan->end && *scan->at == '"') return scan_text(scan, &text);
    const char *const first = scan->at;
    while (scan->at < scan->end && *scan->at != '\0' &&
           strchr("+-.0123456789Eaeflnrstu", *scan->at) != NULL) {
        scan->at++;
    }
    return scan->at > first ? TW_OK : scan_fail(scan, "a value");
}

static enum tw_status skip_key(struct scan *scan) {
    struct tw_safetensors_text key;
    TW_TRY(scan_text(scan, &key));
    return expect(scan, ':', "':'");
}

/* Skips any JSON value. */
static enum tw_status skip_value(struct scan *scan) {
    char closers[TW_SAFETENSORS_DEPTH_MAX]; /* (depth) expected closing brackets, innermost last */
    for (uint32_t depth = 0;;) {
        const bool is_object = take(scan, '{');
        if (is_object || take(scan, '[')) {
            if (depth == TW_SAFETENSORS_DEPTH_MAX) return scan_fail(scan, "fewer open brackets");
            closers[depth++] = is_object ? '}' : ']';
            if (!take(scan, closers[depth - 1])) {
                if (is_object) TW_TRY(skip_key(scan));
                continue;
            }
            depth--;
        } else {
            TW_TRY(skip_scalar(scan));
        }
        while (depth > 0 && take(scan, closers[depth - 1])) depth--;
        if (depth == 0) return TW_OK;
        TW_TRY(expect(scan, ',', "',' or a closing bracket"));
        if (closers[depth - 1] == '}') TW_TRY(skip_key(scan));
    }
}

/* Parses the value of __metadata__: null, or an object of strings. If a key occurs twice, its last
 * value counts. Pairs beyond TW_SAFETENSORS_METADATA_MAX are dropped. */
static enum tw_status scan_metadata(struct scan *scan, struct tw_safetensors *st) {
    static const char NOTHING[] = "null";
    skip_space(scan);
    if ((size_t)(scan->end - scan->at) >= strlen(NOTHING) &&
        memcmp(scan->at, NOTHING, strlen(NOTHING)) == 0) {
        scan->at += strlen(NOTHING);
        return TW_OK;
    }
    TW_TRY(expect(scan, '{', "'{' after __metadata__"));
    if (take(scan, '}')) return TW_OK;
    do {
        struct tw_safetensors_pair pair;
        TW_TRY(scan_text(scan, &pair.key));
        TW_TRY(expect(scan, ':', "':'"));
        TW_TRY(scan_text(scan, &pair.value));
        if (st->metadata_count == TW_SAFETENSORS_METADATA_MAX) continue;
        st->metadata[st->metadata_count++] = pair;
    } while (take(scan, ','));
    return expect(scan, '}', "',' or '}'");
}

static bool is_plain(const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] < 0x20 || bytes[i] > 0x7e || bytes[i] == '"' || bytes[i] == '\\') return false;
    }
    return true;
}

static enum tw_status scan_dtype(struct scan *scan, struct tw_safetensors *st,
                                 enum tw_dtype *dtype) {
    struct tw_safetensors_text text;
    TW_TRY(scan_text(scan, &text));
    for (uint32_t i = 0; i < TW_DTYPES_COUNT; i++) {
        if (!text_is(&text, dtypes[i].name)) continue;
        *dtype = (enum tw_dtype)i;
        return TW_OK;
    }
    st->is_unsupported = true;
    const int size = text.size < 16 ? (int)text.size : 16;
    return tw_fail(
        scan->err, TW_CORRUPT,
        "a tensor has the type %.*s, which is not known: numbers in F32, BF16 and F16 can "
        "be read",
        is_plain(text.bytes, text.size) ? size : 0, text.bytes);
}

static enum tw_status scan_shape(struct scan *scan, struct tw_safetensors *st,
                                 struct tw_safetensors_tensor *tensor) {
    uint64_t shape[TW_SAFETENSORS_SHAPE_MAX];
    TW_TRY(scan_numbers(scan, shape, TW_SAFETENSORS_SHAPE_MAX, &tensor->rank));
    if (tensor->rank > TW_SAFETENSORS_RANK_MAX) {
        st->is_unsupported = true;
        return tw_fail(scan->err, TW_CORRUPT,
                       "the tensor %s has %u dimensions; tensors of at most %d are read",
                       tensor->name, tensor->rank, TW_SAFETENSORS_RANK_MAX);
    }
    memcpy(tensor->shape, shape, tensor->rank * sizeof(shape[0]));
    return TW_OK;
}

/* Scans {"dtype":..,"shape":..,"data_offsets":..}: each key once, in any order. Skips unknown keys.
 */
static enum tw_status scan_tensor(struct scan *scan, struct tw_safetensors *st,
                                  struct tw_safetensors_tensor *tensor) {
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0;
    bool has_escape = false; /* the object has a key with an escape sequence, which may spell one of
                                the three */
    if (take(scan, '[')) {
        st->is_unsupported = true;
        return tw_fail(scan->err, TW_CORRUPT,
                       "the tensor %s is described by a list, which is not read: write the file "
                       "again with save_file() of safetensors",
                       tensor->name);
    }
    TW_TRY(expect(scan, '{', "'{' after a tensor's name"));
    do {
        struct tw_safetensors_text key;
        unsigned field;
        TW_TRY(scan_text(scan, &key));
        TW_TRY(expect(scan, ':', "':'"));
        if (text_is(&key, "dtype")) {
            field = DTYPE;
            TW_TRY(scan_dtype(scan, st, &tensor->dtype));
        } else if (text_is(&key, "shape")) {
            field = SHAPE;
            TW_TRY(scan_shape(scan, st, tensor));
        } else if (text_is(&key, "data_offsets")) {
            uint64_t offsets[2];
            uint32_t count;
            field = OFFSETS;
            TW_TRY(scan_numbers(scan, offsets, 2, &count));
            if (count != 2) return scan_fail(scan, "two data_offsets");
            tensor->begin = offsets[0];
            tensor->end = offsets[1];
        } else {
            has_escape = has_escape || memchr(key.bytes, '\\', key.size) != NULL;
            TW_TRY(skip_value(scan));
            continue;
        }
        if ((seen & field) != 0) return scan_fail(scan, "every field of a tensor once");
        seen |= field;
    } while (take(scan, ','));
    TW_TRY(expect(scan, '}', "',' or '}'"));
    if (seen == (DTYPE | SHAPE | OFFSETS)) return TW_OK;
    st->is_unsupported = has_escape;
    return scan_fail(scan, "dtype, shape and data_offsets, written without escapes");
}

static enum tw_status scan_name(const struct scan *scan, struct tw_safetensors *st,
                                const struct tw_safetensors_text *text,
                                struct tw_safetensors_tensor *tensor) {
    if (text->size == 0 || text->size >= TW_SAFETENSORS_NAME_BYTES ||
        !is_plain(text->bytes, text->size)) {
        st->is_unsupported = true;
        return tw_fail(scan->err, TW_CORRUPT,
                       "header byte %zu: the name of a tensor is not 1 to %d characters of plain "
                       "ASCII: no model of a supported kind has such a tensor",
                       (size_t)(scan->at - scan->start), TW_SAFETENSORS_NAME_BYTES - 1);
    }
    memset(tensor, 0, sizeof(*tensor));
    memcpy(tensor->name, text->bytes, text->size);
    return TW_OK;
}

static enum tw_status scan_header(struct scan *scan, struct tw_safetensors *st) {
    bool has_metadata = false;
    TW_TRY(expect(scan, '{', "'{'"));
    if (!take(scan, '}')) {
        do {
            struct tw_safetensors_text name;
            TW_TRY(scan_text(scan, &name));
            TW_TRY(expect(scan, ':', "':'"));
            if (text_is(&name, "__metadata__")) {
                if (has_metadata) return scan_fail(scan, "one __metadata__");
                has_metadata = true;
                TW_TRY(scan_metadata(scan, st));
                continue;
            }
            if (st->tensors_count == st->tensors_capacity) {
                return tw_fail(scan->err, TW_LIMIT, "more than %u tensors", st->tensors_capacity);
            }
            struct tw_safetensors_tensor *tensor = &st->tensors[st->tensors_count];
            TW_TRY(scan_name(scan, st, &name, tensor));
            TW_TRY(scan_tensor(scan, st, tensor));
            st->tensors_count++;
        } while (take(scan, ','));
        TW_TRY(expect(scan, '}', "',' or '}'"));
    }
    skip_space(scan);
    return scan->at == scan->end ? TW_OK : scan_fail(scan, "nothing but space after the header");
}

/* ---- checks over all tensors --------------------------------------------------------------- */

static int compare_names(const struct tw_safetensors_tensor *a,
                         const struct tw_safetensors_tensor *b) {
    return strcmp(a->name, b->name);
}

/* Orders tensors by offset. An empty tensor sorts before another tensor at the same offset. */
static int compare_places(const struct tw_safetensors_tensor *a,
                          const struct tw_safetensors_tensor *b) {
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

typedef int compare_fn(const struct tw_safetensors_tensor *, const struct tw_safetensors_tensor *);

static void swap_tensors(struct tw_safetensors_tensor *a, struct tw_safetensors_tensor *b) {
    const struct tw_safetensors_tensor other = *a;
    *a = *b;
    *b = other;
}

static void sift_down(struct tw_safetensors_tensor *tensors, uint32_t root, uint32_t count,
                      compare_fn *compare) {
    for (uint32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && compare(&tensors[child], &tensors[child + 1]) < 0) child++;
        if (compare(&tensors[root], &tensors[child]) >= 0) return;
        swap_tensors(&tensors[root], &tensors[child]);
        root = child;
    }
}

/* Heapsort: in place, and O(n log n) on any input. */
static void sort_tensors(struct tw_safetensors_tensor *tensors, uint32_t count,
                         compare_fn *compare) {
    for (uint32_t root = count / 2; root-- > 0;) sift_down(tensors, root, count, compare);
    for (uint32_t last = count; last-- > 1;) {
        swap_tensors(&tensors[0], &tensors[last]);
        sift_down(tensors, 0, last, compare);
    }
}

static enum tw_status check_size(const struct tw_safetensors_tensor *tensor, uint64_t data_bytes,
                                 struct tw_error *err) {
    uint64_t bytes = tw_dtype_bytes(tensor->dtype);
    bool is_empty = false;
    for (uint32_t i = 0; i < tensor->rank; i++) is_empty = is_empty || tensor->shape[i] == 0;
    for (uint32_t i = 0; i < tensor->rank && !is_empty; i++) {
        if (bytes > UINT64_MAX / tensor->shape[i]) {
            return tw_fail(err, TW_CORRUPT, "tensor %s: its shape overflows", tensor->name);
        }
        bytes *= tensor->shape[i];
    }
    if (is_empty) bytes = 0;
    if (tensor->begin > tensor->end || tensor->end > data_bytes) {
        return tw_fail(err, TW_CORRUPT, "tensor %s: bytes %llu to %llu are not within the file",
                       tensor->name, (unsigned long long)tensor->begin,
                       (unsigned long long)tensor->end);
    }
    if (tensor->end - tensor->begin != bytes) {
        return tw_fail(err, TW_CORRUPT, "tensor %s: %llu bytes, but its shape needs %llu",
                       tensor->name, (unsigned long long)(tensor->end - tensor->begin),
                       (unsigned long long)bytes);
    }
    return TW_OK;
}

/* Refuses a name that is listed twice; the safetensors library would use the last tensor of that
 * name. Leaves the tensors sorted by name. */
static enum tw_status check_names(struct tw_safetensors *st, struct tw_error *err) {
    sort_tensors(st->tensors, st->tensors_count, compare_names);
    for (uint32_t i = 1; i < st->tensors_count; i++) {
        if (compare_names(&st->tensors[i - 1], &st->tensors[i]) != 0) continue;
        st->is_unsupported = true;
        return tw_fail(err, TW_CORRUPT,
                       "the tensor %s is listed twice, which is not read: write the file again "
                       "with save_file() of safetensors",
                       st->tensors[i].name);
    }
    return TW_OK;
}

static enum tw_status check_tensors(struct tw_safetensors *st, uint64_t data_bytes,
                                    struct tw_error *err) {
    TW_TRY(check_names(st, err));
    for (uint32_t i = 0; i < st->tensors_count; i++) {
        TW_TRY(check_size(&st->tensors[i], data_bytes, err));
    }
    sort_tensors(st->tensors, st->tensors_count, compare_places);
    uint64_t covered = 0;
    for (uint32_t i = 0; i < st->tensors_count; i++) {
        if (st->tensors[i].begin != covered) {
            return tw_fail(err, TW_CORRUPT, "tensor %s: a hole or an overlap before it",
                           st->tensors[i].name);
        }
        covered = st->tensors[i].end;
    }
    if (covered != data_bytes) {
        return tw_fail(err, TW_CORRUPT, "the tensors cover %llu of %llu bytes of data",
                       (unsigned long long)covered, (unsigned long long)data_bytes);
    }
    sort_tensors(st->tensors, st->tensors_count, compare_names);
    return TW_OK;
}

enum tw_status tw_safetensors_parse(struct tw_safetensors *st, const char *json, size_t json_bytes,
                                    uint64_t data_bytes, struct tw_error *err) {
    struct scan scan = {.at = json, .end = json + json_bytes, .start = json, .err = err};
    st->tensors_count = 0;
    st->metadata_count = 0;
    st->is_unsupported = false;
    TW_TRY(scan_header(&scan, st));
    return check_tensors(st, data_bytes, err);
}

const struct tw_safetensors_tensor *tw_safetensors_find(const struct tw_safetensors *st,
                                                        const char *name) {
    uint32_t low = 0, high = st->tensors_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(st->tensors[middle].name, name);
        if (order == 0) return &st->tensors[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

const struct tw_safetensors_text *tw_safetensors_metadata(const struct tw_safetensors *st,
                                                          const char *key) {
    for (uint32_t i = st->metadata_count;
         i-- > 0;) { /* if a key occurs twice, its last value counts */
        if (text_is(&st->metadata[i].key, key)) return &st->metadata[i].value;
    }
    return NULL;
}

/* ---- writing ------------------------------------------------------------------------------- */

struct sink {
    uint8_t *bytes;
    size_t capacity, size; /* size: bytes of the output, which may exceed capacity; bytes beyond it
                              are not written */
};

static void put_bytes(struct sink *sink, const void *bytes, size_t size) {
    if (sink->size <= sink->capacity && size <= sink->capacity - sink->size) {
        memcpy(sink->bytes + sink->size, bytes, size);
    }
    sink->size += size;
}

static void put_text(struct sink *sink, const char *text) {
    put_bytes(sink, text, strlen(text));
}

static void put_number(struct sink *sink, uint64_t number) {
    char digits[20];
    size_t begin = sizeof(digits);
    do {
        digits[--begin] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    put_bytes(sink, digits + begin, sizeof(digits) - begin);
}

static void put_quoted(struct sink *sink, const char *bytes, size_t size) {
    TW_ASSERT(is_plain(bytes, size));
    put_text(sink, "\"");
    put_bytes(sink, bytes, size);
    put_text(sink, "\"");
}

static void put_tensor(struct sink *sink, const struct tw_safetensors_tensor *tensor) {
    put_quoted(sink, tensor->name, strlen(tensor->name));
    put_text(sink, ":{\"dtype\":\"");
    put_text(sink, tw_dtype_name(tensor->dtype));
    put_text(sink, "\",\"shape\":[");
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (i > 0) put_text(sink, ",");
        put_number(sink, tensor->shape[i]);
    }
    put_text(sink, "],\"data_offsets\":[");
    put_number(sink, tensor->begin);
    put_text(sink, ",");
    put_number(sink, tensor->end);
    put_text(sink, "]}");
}

static void place_tensors(struct tw_safetensors *st) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < st->tensors_count; i++) {
        struct tw_safetensors_tensor *tensor = &st->tensors[i];
        uint64_t bytes = tw_dtype_bytes(tensor->dtype);
        TW_ASSERT(tensor->rank <= TW_SAFETENSORS_RANK_MAX);
        for (uint32_t k = 0; k < tensor->rank; k++) bytes *= tensor->shape[k];
        tensor->begin = end;
        end += bytes;
        tensor->end = end;
    }
}

enum tw_status tw_safetensors_encode(struct tw_safetensors *st, uint8_t *header, size_t capacity,
                                     size_t *size_out, struct tw_error *err) {
    struct sink sink = {.bytes = header, .capacity = capacity};
    const uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES] = {0};
    TW_ASSERT(st->metadata_count <= TW_SAFETENSORS_METADATA_MAX);
    place_tensors(st);
    put_bytes(&sink, prefix, sizeof(prefix));
    put_text(&sink, "{\"__metadata__\":{");
    for (uint32_t i = 0; i < st->metadata_count; i++) {
        const struct tw_safetensors_pair *pair = &st->metadata[i];
        if (i > 0) put_text(&sink, ",");
        put_quoted(&sink, pair->key.bytes, pair->key.size);
        put_text(&sink, ":");
        put_quoted(&sink, pair->value.bytes, pair->value.size);
    }
    put_text(&sink, "}");
    for (uint32_t i = 0; i < st->tensors_count; i++) {
        put_text(&sink, ",");
        put_tensor(&sink, &st->tensors[i]);
    }
    put_text(&sink, "}");
    while (sink.size % TW_SAFETENSORS_ALIGN != 0) put_text(&sink, " ");
    if (sink.size > capacity) {
        return tw_fail(err, TW_LIMIT, "the safetensors header needs %zu bytes, there are %zu",
                       sink.size, capacity);
    }
    tw_put_u64(header, sink.size - TW_SAFETENSORS_PREFIX_BYTES);
    *size_out = sink.size;
    return TW_OK;
}

size_t tw_safetensors_bound(const struct tw_safetensors *st) {
    enum { TENSOR_BYTES_MAX = TW_SAFETENSORS_NAME_BYTES + 64 + 21 * (TW_SAFETENSORS_RANK_MAX + 2) };
    size_t bytes = TW_SAFETENSORS_PREFIX_BYTES + 32 + TW_SAFETENSORS_ALIGN;
    for (uint32_t i = 0; i < st->metadata_count; i++) {
        bytes += st->metadata[i].key.size + st->metadata[i].value.size + 8;
    }
    return bytes + (size_t)st->tensors_count * TENSOR_BYTES_MAX;
}
