#include "worker/tokenizer/bpe_added.h"

#include <stdlib.h>
#include <string.h>

#include "worker/support/utf8.h"

static int compare(const void *a, const void *b) {
    const struct tw_bpe_added_token *const x = a, *const y = b;
    const size_t common = x->bytes < y->bytes ? x->bytes : y->bytes;
    const int order = memcmp(x->text, y->text, common);
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void tw_bpe_added_index(struct tw_bpe_added *added) {
    int firsts = 0;
    memset(added->is_first, 0, sizeof(added->is_first));
    added->only_first = -1;
    if (added->count == 0) return;
    qsort(added->tokens, added->count, sizeof(*added->tokens), compare);
    for (size_t i = 0; i < added->count; i++) {
        const uint8_t first = added->tokens[i].text[0];
        firsts += !added->is_first[first];
        added->is_first[first] = true;
    }
    if (firsts == 1) added->only_first = added->tokens[0].text[0];
}

/* ---- match at one position ---------------------------------------------------------------------
 */

/* Binary search in tokens [low, high), which are equal in their first `depth` bytes. Returns the
 * first token whose next byte is at least c. Tokens that end at this depth come before it. */
static size_t lower_bound(const struct tw_bpe_added *added, size_t low, size_t high, size_t depth,
                          unsigned c) {
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct tw_bpe_added_token *const token = &added->tokens[middle];
        if (token->bytes <= depth || token->text[depth] < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns the longest token with which text[left] begins, or NULL. */
static const struct tw_bpe_added_token *longest_at(const struct tw_bpe_added *added,
                                                   const uint8_t *text, size_t left) {
    const struct tw_bpe_added_token *found = NULL;
    size_t low = 0, high = added->count;
    for (size_t depth = 0; depth < left; depth++) {
        const unsigned c = text[depth];
        low = lower_bound(added, low, high, depth, c);
        high = lower_bound(added, low, high, depth, c + 1);
        if (low == high) break;
        if (added->tokens[low].bytes == depth + 1) found = &added->tokens[low];
    }
    return found;
}

static size_t first_candidate(const struct tw_bpe_added *added, struct tw_bpe_piece piece,
                              size_t from) {
    if (added->count == 0) return piece.bytes;
    if (added->only_first >= 0) {
        const uint8_t *const at = memchr(piece.text + from, added->only_first, piece.bytes - from);
        return at != NULL ? (size_t)(at - piece.text) : piece.bytes;
    }
    while (from < piece.bytes && !added->is_first[piece.text[from]]) from++;
    return from;
}

/* ---- surrounding characters --------------------------------------------------------------------
 */

static bool is_word_at(const struct tw_bpe_search *search, size_t begin, size_t end) {
    const struct tw_bpe_piece one = {search->piece.text + begin, end - begin};
    struct tw_bpe_range match;
    return tw_bpe_matcher_next(search->matcher, search->word, one, 0, &match, NULL) == TW_OK &&
           match.begin == 0 && match.end > 0;
}

static size_t character_before(struct tw_bpe_piece piece, size_t at) {
    do at--;
    while (at > 0 && (piece.text[at] & 0xC0) == 0x80);
    return at;
}

static size_t character_after(struct tw_bpe_piece piece, size_t at) {
    return at + (size_t)tw_utf8_size(piece.text + at, piece.bytes - at);
}

static bool is_within_a_word(const struct tw_bpe_search *search, struct tw_bpe_range range) {
    const struct tw_bpe_piece piece = search->piece;
    return (range.begin > 0 &&
            is_word_at(search, character_before(piece, range.begin), range.begin)) ||
           (range.end < piece.bytes &&
            is_word_at(search, range.end, character_after(piece, range.end)));
}

/* Whether the character has the Unicode property White_Space. For assigned characters, this
 * property never changes. */
static bool is_space(struct tw_bpe_piece piece, size_t begin, size_t end) {
    const uint8_t *const c = piece.text + begin;
    if (end - begin == 1) return c[0] == ' ' || (c[0] >= 9 && c[0] <= 13);
    if (end - begin == 2) return c[0] == 0xC2 && (c[1] == 0x85 || c[1] == 0xA0);
    if (end - begin != 3) return false;
    const uint32_t code = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
    return code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

static void extend_over_space(const struct tw_bpe_search *search,
                              const struct tw_bpe_added_token *token, struct tw_bpe_range *range) {
    const struct tw_bpe_piece piece = search->piece;
    while (token->is_left_strip && range->begin > search->taken) {
        const size_t before = character_before(piece, range->begin);
        if (!is_space(piece, before, range->begin)) break;
        range->begin = before;
    }
    while (token->is_right_strip && range->end < piece.bytes) {
        const size_t after = character_after(piece, range->end);
        if (!is_space(piece, range->end, after)) break;
        range->end = after;
    }
}

bool tw_bpe_search_next(struct tw_bpe_search *search, struct tw_bpe_range *range, uint32_t *token) {
    const struct tw_bpe_piece piece = search->piece;
    for (;;) {
        const size_t at = first_candidate(search->added, piece, search->scanned);
        if (at == piece.bytes) return false;
        const struct tw_bpe_added_token *const found =
            longest_at(search->added, piece.text + at, piece.bytes - at);
        if (found == NULL) {
            search->scanned = at + 1;
            continue;
        }
        *range = (struct tw_bpe_range){at, at + found->bytes};
        search->scanned = range->end;
        if (search->is_plain && found->is_special) continue;
        if (found->is_single_word && is_within_a_word(search, *range)) continue;
        /* White space that the previous token stripped may contain this token. It is then
         * skipped. */
        extend_over_space(search, found, range);
        if (range->end <= search->taken) continue;
        search->taken = range->end;
        *token = found->token;
        return true;
    }
}
