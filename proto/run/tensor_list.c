#include "proto/run/tensor_list.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

/* One entry of the list, as positions in the text. */
struct entry {
    const char *name, *end; /* name including braces; `end` is the colon after it */
    uint32_t braces_count;
    struct {
        const char *from, *end; /* text between the braces */
    } braces[TW_TENSOR_BRACES_MAX];
    struct tw_tensor_shape shape;
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '.' ||
           c == '_' || c == '-';
}

uint64_t tw_tensor_shape_elements(const struct tw_tensor_shape *shape) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < shape->rank; i++) elements *= shape->sides[i];
    return elements;
}

/* ---- one entry ------------------------------------------------------------------------------- */

/* Reads a decimal of at most `max` without leading zeros. Returns false for any other text. */
static bool take_number(const char **at, uint64_t max, uint64_t *number) {
    const char *from = *at;
    *number = 0;
    if (!is_digit(*from) || (from[0] == '0' && is_digit(from[1]))) return false;
    for (; is_digit(*from); from++) {
        *number = *number * 10 + (uint64_t)(*from - '0');
        if (*number > max) return false;
    }
    *at = from;
    return true;
}

/* Reads the next number or range between two braces. */
static bool take_range(const char **at, uint64_t *first, uint64_t *last) {
    *last = 0;
    if (!take_number(at, TW_TENSOR_NUMBER_MAX, first)) return false;
    *last = *first;
    if (**at != '-') return true;
    (*at)++;
    return take_number(at, TW_TENSOR_NUMBER_MAX, last) && *last > *first;
}

/* Counts the numbers between two braces. Returns 0 unless they are two or more, ascending, in the
 * shortest form. */
static uint64_t count_numbers(const char *from, const char *end) {
    uint64_t count = 0, least = 0;
    for (;;) {
        uint64_t first, last;
        if (!take_range(&from, &first, &last) || from > end || first < least) return 0;
        count += last - first + 1;
        least = last + 2; /* last + 1 is refused: the shortest form includes it in the range */
        if (from == end) return count >= 2 ? count : 0;
        if (*from++ != ',') return 0;
    }
}

static const char *take_name(const char *at, struct entry *entry) {
    entry->name = at;
    entry->braces_count = 0;
    for (; *at != ':'; at++) {
        if (*at == '{') {
            const char *end = strchr(at, '}');
            const uint32_t i = entry->braces_count++;
            if (end == NULL) return "has an open brace";
            if (i == TW_TENSOR_BRACES_MAX) return "has more than two pairs of braces";
            entry->braces[i].from = at + 1;
            entry->braces[i].end = end;
            if (count_numbers(at + 1, end) == 0)
                return "needs two or more ascending numbers in braces, such as {0-3} or {0-2,5}";
            at = end;
        } else if (!is_name_character(*at)) {
            return *at == '\0' || *at == ' ' ? "has no shape: it is written NAME:ROWSxCOLS"
                                             : "has a name with other characters than "
                                               "A-Z, a-z, 0-9, point, hyphen and underscore";
        }
    }
    entry->end = at;
    return at == entry->name ? "has no name" : NULL;
}

static const char *take_shape(const char **at, struct tw_tensor_shape *shape) {
    uint64_t side, elements = 1, below = 1;
    *shape = (struct tw_tensor_shape){0};
    do {
        (*at)++; /* skips the colon or x */
        if (shape->rank == TW_TENSOR_RANK_MAX) return "has a shape of more than 6 numbers";
        if (!take_number(at, INT32_MAX, &side) || side == 0)
            return "has a shape that is not of numbers from 1 to 2147483647 with x between";
        if (elements > TW_TENSOR_ELEMENTS_MAX / side) return "has more than 2^40 elements";
        elements *= side;
        below *= shape->rank > 0 ? side : 1;
        if (below > UINT32_MAX) return "has rows of more than 2^32 elements";
        shape->sides[shape->rank++] = (uint32_t)side;
    } while (**at == 'x');
    return **at == '\0' || **at == ' ' ? NULL : "has characters after its shape";
}

/* Reads the entry at *at and the blank after it. Returns NULL, or the reason why it is malformed.
 */
static const char *take_entry(const char **at, struct entry *entry) {
    const char *why = take_name(*at, entry);
    if (why != NULL) return why;
    *at = entry->end;
    why = take_shape(at, &entry->shape);
    if (why == NULL && **at == ' ') (*at)++;
    return why;
}

/* ---- expansion ------------------------------------------------------------------------------- */

struct expansion {
    void (*take)(void *self, const char *name, const struct tw_tensor_shape *shape);
    void *self;
    uint64_t numbers[TW_TENSOR_BRACES_MAX]; /* numbers that currently replace the braces */
};

char *tw_tensor_append_number(char *to, uint64_t number) {
    char reversed[20];
    unsigned count = 0;
    do {
        reversed[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0) *to++ = reversed[--count];
    return to;
}

static void take_tensor(const struct expansion *expansion, const struct entry *entry) {
    char name[TW_TENSOR_NAME_BYTES + 32], *to = name;
    uint32_t brace = 0;
    for (const char *at = entry->name; at < entry->end; at++) {
        TW_ASSERT(to < name + TW_TENSOR_NAME_BYTES);
        if (*at == '{') {
            at = entry->braces[brace].end;
            to = tw_tensor_append_number(to, expansion->numbers[brace++]);
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
    expansion->take(expansion->self, name, &entry->shape);
}

/* Returns true if both names have the same text up to the closing brace of this level. */
static bool is_grouped(const struct entry *a, const struct entry *b, uint32_t level) {
    if (b->braces_count <= level) return false;
    const size_t size = (size_t)(a->braces[level].end - a->name);
    return size == (size_t)(b->braces[level].end - b->name) && memcmp(a->name, b->name, size) == 0;
}

/* Returns the end of the group whose first entry is the one before `next`. */
static const char *group_end(const struct entry *entry, const char *next, const char *end,
                             uint32_t level) {
    while (next < end) {
        struct entry other;
        const char *after = next;
        (void)take_entry(&after, &other);
        if (!is_grouped(entry, &other, level)) break;
        next = after;
    }
    return next;
}

/* Expands the entries of [at, end). The numbers of the first `level` pairs of braces are already
 * chosen. */
static void expand(struct expansion *expansion, const char *at, const char *end, uint32_t level) {
    while (at < end) {
        struct entry entry;
        const char *next = at;
        (void)take_entry(&next, &entry);
        if (entry.braces_count <= level) {
            take_tensor(expansion, &entry);
            at = next;
            continue;
        }
        next = group_end(&entry, next, end, level);
        const char *range = entry.braces[level].from;
        while (range < entry.braces[level].end) {
            uint64_t first, last;
            (void)take_range(&range, &first, &last);
            for (uint64_t n = first; n <= last; n++) {
                expansion->numbers[level] = n;
                expand(expansion, at, next, level + 1); /* the recursion is at most
                                                           TW_TENSOR_BRACES_MAX levels deep */
            }
            range++; /* skips the comma */
        }
        at = next;
    }
}

void tw_tensor_list_expand(const char *text,
                           void (*take)(void *self, const char *name,
                                        const struct tw_tensor_shape *shape),
                           void *self) {
    struct expansion expansion = {.take = take, .self = self};
    expand(&expansion, text, text + strlen(text), 0);
}

/* ---- checks ---------------------------------------------------------------------------------- */

enum { NAME_SLOTS = 2 * TW_TENSORS_MAX };

/* Hashes of the names, in a table with open addressing. Two names with equal hashes count as
 * duplicates: the chance of that is 2^-40. */
struct names {
    uint64_t slots[NAME_SLOTS]; /* 0: free */
    char twice[TW_TENSOR_NAME_BYTES];
};

static void add_name(void *self, const char *name, const struct tw_tensor_shape *shape) {
    struct names *names = self;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    (void)shape;
    for (const char *at = name; *at != '\0'; at++)
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    if (hash == 0) hash = 1;
    size_t i = hash % NAME_SLOTS;
    while (names->slots[i] != 0 && names->slots[i] != hash) i = (i + 1) % NAME_SLOTS;
    if (names->slots[i] == hash) memcpy(names->twice, name, strlen(name) + 1);
    names->slots[i] = hash;
}

static enum tw_status fail_entry(const char *entry, const char *why, struct tw_error *err) {
    const size_t size = strcspn(entry, " ");
    return tw_fail(err, TW_CONFIG, "model.tensors: `%.*s` %s", (int)(size < 60 ? size : 60), entry,
                   why);
}

/* Returns the length of the longest name that the entry expands to. */
static size_t name_size(const struct entry *entry) {
    size_t size = (size_t)(entry->end - entry->name);
    for (uint32_t i = 0; i < entry->braces_count; i++) {
        const char *from = entry->braces[i].from, *end = entry->braces[i].end;
        const char *last = end;
        while (last > from && is_digit(last[-1])) last--;
        size -= (size_t)(last - from) + 2; /* the last number between the braces is the longest */
    }
    return size;
}

static enum tw_status measure(const char *entry_text, const struct entry *entry,
                              struct tw_tensor_list_size *size, struct tw_error *err) {
    uint64_t count = 1;
    if (name_size(entry) >= TW_TENSOR_NAME_BYTES)
        return fail_entry(entry_text, "has a name of more than 127 characters", err);
    if (entry->end - entry->name == 12 && memcmp(entry->name, "__metadata__", 12) == 0)
        return fail_entry(entry_text, "has a name that safetensors files use for other things",
                          err);
    for (uint32_t i = 0; i < entry->braces_count; i++) {
        const uint64_t numbers = count_numbers(entry->braces[i].from, entry->braces[i].end);
        count *= numbers; /* < 2^40 */
        if (i == 0 && numbers > size->layers) size->layers = (uint32_t)numbers;
    }
    if (count > TW_TENSORS_MAX - size->tensors)
        return tw_fail(err, TW_CONFIG, "model.tensors: more than %d tensors", TW_TENSORS_MAX);
    size->tensors += (uint32_t)count;
    /* cannot overflow: below 2^12 * 2^40 */
    size->elements += count * tw_tensor_shape_elements(&entry->shape);
    if (size->elements > TW_TENSOR_ELEMENTS_MAX)
        return tw_fail(err, TW_CONFIG, "model.tensors: more than 2^40 elements");
    return TW_OK;
}

enum tw_status tw_tensor_list_check(const char *text, struct tw_tensor_list_size *size,
                                    struct tw_error *err) {
    const char *at = text;
    struct tw_tensor_list_size sum = {.layers = 1};
    if (strlen(text) >= TW_TENSORS_TEXT_BYTES)
        return tw_fail(err, TW_CONFIG, "model.tensors: more than %d characters",
                       TW_TENSORS_TEXT_BYTES - 1);
    do {
        struct entry entry;
        const char *const begin = at;
        const char *const why = take_entry(&at, &entry);
        if (why != NULL) return fail_entry(begin, why, err);
        TW_TRY(measure(begin, &entry, &sum, err));
    } while (*at != '\0' || at[-1] == ' ');
    struct names names = {{0}, {0}};
    tw_tensor_list_expand(text, add_name, &names);
    if (names.twice[0] != '\0')
        return tw_fail(err, TW_CONFIG, "model.tensors: %s is there twice", names.twice);
    *size = sum;
    return TW_OK;
}
