#include "daemon/store/checkpoint_meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

static const char format_name[] = "thinwire checkpoint 1";

/* ---- texts ---------------------------------------------------------------------------------- */

static void put_number(char text[NUMBER_BYTES], uint64_t number) {
    (void)snprintf(text, NUMBER_BYTES, "%" PRIu64, number);
}

static void put_list(char text[LIST_BYTES], const uint64_t *numbers, uint32_t count) {
    size_t size = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        size += (size_t)snprintf(text + size, LIST_BYTES - size, "%s%" PRIu64, i > 0 ? "," : "",
                                 numbers[i]);
    }
}

static void put_hex(char *text, const uint8_t *bytes, size_t size) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool get_hex(const struct tw_safetensors_text *text, uint8_t *bytes, size_t capacity,
                    size_t *size) {
    if (text->size % 2 != 0 || text->size / 2 > capacity) return false;
    for (size_t i = 0; i < text->size / 2; i++) {
        const int high = hex_value(text->bytes[2 * i]), low = hex_value(text->bytes[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    *size = text->size / 2;
    return true;
}

/* Reads exactly `count` numbers joined by commas. */
static bool get_list(const struct tw_safetensors_text *text, uint64_t *numbers, uint32_t count) {
    const char *at = text->bytes, *end = text->bytes + text->size;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = 0;
        if (i > 0 && (at == end || *at++ != ',')) return false;
        const char *first = at;
        for (; at < end && *at >= '0' && *at <= '9'; at++) {
            const uint64_t digit = (uint64_t)(*at - '0');
            if (value > (UINT64_MAX - digit) / 10) return false;
            value = value * 10 + digit;
        }
        if (at == first || (*first == '0' && at - first > 1)) return false;
        numbers[i] = value;
    }
    return at == end;
}

/* ---- writing -------------------------------------------------------------------------------- */

void tw_checkpoint_meta_encode(struct meta *meta, uint64_t generation, const struct tw_id *run,
                               const struct tw_checkpoint_state *state, uint32_t fragments_count) {
    uint8_t bytes[TW_POSITION_BYTES_MAX];
    const struct tw_id zero = {{0}};
    put_number(meta->generation, generation);
    put_number(meta->step, state->step);
    put_number(meta->tokens, state->tokens);
    put_number(meta->updates, state->updates);
    put_number(meta->cursor, state->cursor);
    put_number(meta->fragments, fragments_count);
    put_list(meta->rng, state->rng, 4);
    put_list(meta->judged, (const uint64_t[]){state->least_e6, state->is_wild}, 2);
    put_list(meta->live_rounds, state->live_rounds, fragments_count);
    tw_id_hex(run, meta->run);
    tw_id_hex(&zero, meta->digest);
    meta->position[0] = '\0';
    if (state->has_position) {
        put_hex(meta->position, bytes,
                tw_position_encode(&state->position, fragments_count, bytes));
    }
}

static void list_one(struct tw_safetensors *st, const char *key, const char *value, size_t size) {
    TW_ASSERT(st->metadata_count < TW_SAFETENSORS_METADATA_MAX);
    struct tw_safetensors_pair *pair = &st->metadata[st->metadata_count++];
    pair->key = (struct tw_safetensors_text){key, strlen(key)};
    pair->value = (struct tw_safetensors_text){value, size};
}

void tw_checkpoint_meta_list(struct tw_safetensors *st, const struct meta *meta, const char *hashes,
                             size_t hashes_size) {
    const struct {
        const char *key, *value;
    } texts[] = {
        {"format", format_name},
        {"digest", meta->digest},
        {"run", meta->run},
        {"generation", meta->generation},
        {"step", meta->step},
        {"tokens", meta->tokens},
        {"updates", meta->updates},
        {"fragments", meta->fragments},
        {"rng", meta->rng},
        {"cursor", meta->cursor},
        {"live_rounds", meta->live_rounds},
        {"judged", meta->judged},
        {"position", meta->position},
    };
    st->metadata_count = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        list_one(st, texts[i].key, texts[i].value, strlen(texts[i].value));
    }
    list_one(st, "sha256", hashes, hashes_size);
}

/* ---- reading -------------------------------------------------------------------------------- */

static enum tw_status find_text(const struct tw_safetensors *st, const char *key,
                                const struct tw_safetensors_text **text, struct tw_error *err) {
    *text = tw_safetensors_metadata(st, key);
    return *text != NULL ? TW_OK : tw_fail(err, TW_CORRUPT, "its metadata lack '%s'", key);
}

static enum tw_status find_list(const struct tw_safetensors *st, const char *key, uint64_t *numbers,
                                uint32_t count, struct tw_error *err) {
    const struct tw_safetensors_text *text;
    TW_TRY(find_text(st, key, &text, err));
    if (get_list(text, numbers, count)) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "its metadata '%s' is not %u numbers", key, count);
}

enum tw_status tw_checkpoint_meta_verify(const struct tw_safetensors *st, uint8_t *header,
                                         size_t header_size, struct tw_error *err) {
    const struct tw_safetensors_text *text;
    char written[TW_ID_HEX_BYTES] = {0}, computed[TW_ID_HEX_BYTES];
    TW_TRY(find_text(st, "format", &text, err));
    if (text->size != strlen(format_name) || memcmp(text->bytes, format_name, text->size) != 0) {
        return tw_fail(err, TW_CORRUPT, "it is no checkpoint of this program: its format is '%.*s'",
                       (int)(text->size < 40 ? text->size : 40), text->bytes);
    }
    TW_TRY(find_text(st, "digest", &text, err));
    if (text->size != DIGEST_DIGITS) return tw_fail(err, TW_CORRUPT, "its digest is cut short");
    memcpy(written, text->bytes, DIGEST_DIGITS);
    memset(header + (text->bytes - (const char *)header), '0', DIGEST_DIGITS);
    const struct tw_id digest = tw_sha256(header, header_size);
    tw_id_hex(&digest, computed);
    if (memcmp(written, computed, DIGEST_DIGITS) == 0) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "its header does not match its SHA-256: bits were changed");
}

enum tw_status tw_checkpoint_meta_generation(const struct tw_safetensors *st, uint64_t *generation,
                                             struct tw_id *run, struct tw_error *err) {
    const struct tw_safetensors_text *text;
    size_t size;
    TW_TRY(find_list(st, "generation", generation, 1, err));
    TW_TRY(find_text(st, "run", &text, err));
    if (!get_hex(text, run->bytes, sizeof(run->bytes), &size) || size != sizeof(run->bytes)) {
        return tw_fail(err, TW_CORRUPT, "its metadata 'run' is no run id");
    }
    if (*generation > 0 && *generation < UINT64_MAX) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "its generation number is out of range");
}

static enum tw_status read_position(const struct tw_safetensors *st, uint32_t fragments_count,
                                    struct tw_checkpoint_state *state, struct tw_error *err) {
    uint8_t bytes[TW_POSITION_BYTES_MAX];
    const struct tw_safetensors_text *text;
    struct tw_error inner;
    size_t size;
    uint32_t count;
    TW_TRY(find_text(st, "position", &text, err));
    state->has_position = text->size > 0;
    if (!state->has_position) return TW_OK;
    if (!get_hex(text, bytes, sizeof(bytes), &size)) {
        return tw_fail(err, TW_CORRUPT, "its position is not hex of a possible length");
    }
    if (tw_position_decode(bytes, size, &state->position, &count, &inner) != TW_OK) {
        return tw_fail(err, TW_CORRUPT, "its position: %.200s", inner.message);
    }
    if (count == fragments_count) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "its position is of %u fragments, not %u", count,
                   fragments_count);
}

enum tw_status tw_checkpoint_meta_state(const struct tw_safetensors *st, uint32_t fragments_count,
                                        struct tw_checkpoint_state *state, struct tw_error *err) {
    uint64_t fragments_saved, judged[2];
    memset(state, 0, sizeof(*state));
    TW_TRY(find_list(st, "step", &state->step, 1, err));
    TW_TRY(find_list(st, "tokens", &state->tokens, 1, err));
    TW_TRY(find_list(st, "updates", &state->updates, 1, err));
    TW_TRY(find_list(st, "cursor", &state->cursor, 1, err));
    TW_TRY(find_list(st, "rng", state->rng, 4, err));
    TW_TRY(find_list(st, "judged", judged, 2, err));
    state->least_e6 = judged[0];
    state->is_wild = judged[1] != 0;
    TW_TRY(find_list(st, "fragments", &fragments_saved, 1, err));
    if (fragments_saved != fragments_count)
        return TW_OK; /* with another number of fragments, the position is not usable */
    TW_TRY(find_list(st, "live_rounds", state->live_rounds, fragments_count, err));
    return read_position(st, fragments_count, state, err);
}
