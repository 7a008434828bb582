#include "worker/data/prepare/prepare_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { HEAD_BYTES_MAX = 2048, SUM_BYTES = 4 + 16 + 1 };
static const char magic[] = "thinwire-prepare ";

/* Number of counters in struct tw_prepare_counts, which is copied as an array. */
enum { COUNTS = sizeof(struct tw_prepare_counts) / sizeof(uint64_t) };
_Static_assert(COUNTS * sizeof(uint64_t) == sizeof(struct tw_prepare_counts), "numbers alone");

/* ---- encode --------------------------------------------------------------------------------- */

static size_t put_head(const struct tw_prepare_state *state, char text[HEAD_BYTES_MAX]) {
    char options[TW_ID_HEX_BYTES], inputs[TW_ID_HEX_BYTES];
    uint64_t counts[COUNTS];
    tw_id_hex(&state->options, options);
    tw_id_hex(&state->inputs, inputs);
    memcpy(counts, &state->counts, sizeof(counts));
    int used =
        snprintf(text, HEAD_BYTES_MAX,
                 "%s2\noptions %s\ninputs %s\nnext %" PRIu64 " %" PRIu64 " %" PRIu64 "\ncounts",
                 magic, options, inputs, state->next.file, state->next.at, state->line);
    for (unsigned i = 0; i < COUNTS; i++) {
        used += snprintf(text + used, HEAD_BYTES_MAX - (size_t)used, " %" PRIu64, counts[i]);
    }
    used += snprintf(text + used, HEAD_BYTES_MAX - (size_t)used,
                     "\npending %" PRIu64 " %" PRIu64 " %016" PRIx64 "\nfirst %s\ndone %d\n",
                     state->pending.documents, state->pending.bytes, state->pending.checksum,
                     state->first_bad, state->is_done);
    return (size_t)used;
}

enum tw_status tw_prepare_state_encode(const struct tw_prepare_state *state, char **text,
                                       size_t *size, struct tw_error *err) {
    /* The line of a shard has at most 200 bytes, the line of a source at most 60. */
    const size_t index_bytes =
        512 + 200 * (size_t)state->dataset.shards_count + 60 * (size_t)state->dataset.sources_count;
    *text = malloc(HEAD_BYTES_MAX + index_bytes + SUM_BYTES + 1);
    if (*text == NULL) return tw_fail(err, TW_NOMEM, "no memory for the state");
    const size_t head = put_head(state, *text);
    size_t index = 0;
    const enum tw_status status =
        tw_dataset_encode(&state->dataset, *text + head, index_bytes, &index, err);
    if (status != TW_OK) {
        free(*text);
        *text = NULL;
        return status;
    }
    *size = head + index;
    (void)snprintf(*text + *size, SUM_BYTES + 1, "sum %016" PRIx64 "\n", tw_xxh64(*text, *size));
    *size += SUM_BYTES;
    return TW_OK;
}

/* ---- decode --------------------------------------------------------------------------------- */

struct reader {
    const char *at, *end;
    bool is_bad;
};

static void take_text(struct reader *reader, const char *text) {
    const size_t length = strlen(text);
    if (reader->is_bad || (size_t)(reader->end - reader->at) < length ||
        memcmp(reader->at, text, length) != 0) {
        reader->is_bad = true;
        return;
    }
    reader->at += length;
}

static uint64_t take_number(struct reader *reader, const char *before, unsigned base) {
    take_text(reader, before);
    uint64_t value = 0;
    const char *const begin = reader->at;
    while (!reader->is_bad && reader->at < reader->end && reader->at - begin < 20) {
        const char c = *reader->at;
        const unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                               : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                      : 16;
        if (digit >= base) break;
        value = value * base + digit;
        reader->at++;
    }
    if (reader->at == begin) reader->is_bad = true;
    return value;
}

static void take_id(struct reader *reader, const char *before, struct tw_id *id) {
    char hex[TW_ID_HEX_BYTES] = {0};
    take_text(reader, before);
    if (reader->is_bad || reader->end - reader->at < TW_ID_HEX_BYTES - 1) {
        reader->is_bad = true;
        return;
    }
    memcpy(hex, reader->at, TW_ID_HEX_BYTES - 1);
    reader->at += TW_ID_HEX_BYTES - 1;
    if (!tw_id_parse(hex, id)) reader->is_bad = true;
}

static void take_sentence(struct reader *reader, char *sentence, size_t room) {
    take_text(reader, "\nfirst ");
    if (reader->is_bad) return;
    const char *const end = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    if (end == NULL || (size_t)(end - reader->at) >= room) {
        reader->is_bad = true;
        return;
    }
    memcpy(sentence, reader->at, (size_t)(end - reader->at));
    sentence[end - reader->at] = 0;
    reader->at = end;
}

static void take_head(struct reader *reader, struct tw_prepare_state *state) {
    uint64_t counts[COUNTS];
    take_id(reader, "\noptions ", &state->options);
    take_id(reader, "\ninputs ", &state->inputs);
    state->next.file = take_number(reader, "\nnext ", 10);
    state->next.at = take_number(reader, " ", 10);
    state->line = take_number(reader, " ", 10);
    take_text(reader, "\ncounts");
    for (unsigned i = 0; i < COUNTS; i++) counts[i] = take_number(reader, " ", 10);
    memcpy(&state->counts, counts, sizeof(counts));
    state->pending.documents = take_number(reader, "\npending ", 10);
    state->pending.bytes = take_number(reader, " ", 10);
    state->pending.checksum = take_number(reader, " ", 16);
    take_sentence(reader, state->first_bad, sizeof(state->first_bad));
    state->is_done = take_number(reader, "\ndone ", 2) == 1;
    take_text(reader, "\n");
}

enum tw_status tw_prepare_state_decode(const char *text, size_t size,
                                       struct tw_prepare_state *state, struct tw_error *err) {
    struct reader reader = {.at = text, .end = text + size};
    memset(state, 0, sizeof(*state));
    take_text(&reader, magic);
    if (!reader.is_bad && (reader.at == reader.end || *reader.at != '2')) {
        return tw_fail(err, TW_VERSION, "the state of another version of Thinwire");
    }
    char sum[SUM_BYTES + 1];
    bool is_good = !reader.is_bad && size > SUM_BYTES;
    if (is_good) {
        (void)snprintf(sum, sizeof(sum), "sum %016" PRIx64 "\n", tw_xxh64(text, size - SUM_BYTES));
        reader.end -= SUM_BYTES;
        is_good = memcmp(reader.end, sum, SUM_BYTES) == 0;
    }
    if (is_good) {
        reader.at++;
        take_head(&reader, state);
        is_good = !reader.is_bad;
    }
    if (!is_good) return tw_fail(err, TW_CORRUPT, "it is damaged");
    const size_t left = (size_t)(reader.end - reader.at);
    const uint32_t capacity = tw_dataset_lines(reader.at, left);
    struct tw_dataset_shard *const shards = malloc((capacity + 1) * sizeof(*shards));
    if (shards == NULL) return tw_fail(err, TW_NOMEM, "no memory for %u shards", capacity);
    const enum tw_status status =
        tw_dataset_decode(reader.at, left, shards, capacity, &state->dataset, err);
    if (status != TW_OK) {
        free(shards);
        state->dataset.shards = NULL;
    }
    return status;
}
