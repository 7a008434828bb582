#include "daemon/cli/run/tensor_fold.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER_DIGITS = 6, /* decimal digits of TW_TENSOR_NUMBER_MAX */
    DEPTH_MAX = 4,     /* maximum number of numbers in a name that are folded */
};

/* A text being built. If it gets too long, it is truncated, and is_full is set. */
struct text {
    char bytes[TW_TENSORS_TEXT_BYTES];
    size_t size;
    bool is_full;
};

struct folding {
    struct cli_tensor *tensors;
    struct text head; /* common start of the names being folded, with ranges such as {0-11} in place
                         of numbers */
    struct text out;
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t room = sizeof(text->bytes) - text->size;
    const int size = vsnprintf(text->bytes + text->size, room, format, args);
    va_end(args);
    if (size < 0 || (size_t)size >= room) {
        text->is_full = true;
        text->size = sizeof(text->bytes) - 1;
    } else {
        text->size += (size_t)size;
    }
}

/* Compares names. A run of digits counts as one number, so h.2 is before h.10. */
static int compare_names(const void *left, const void *right) {
    const char *a = ((const struct cli_tensor *)left)->name;
    const char *b = ((const struct cli_tensor *)right)->name;
    const char *const whole_a = a, *const whole_b = b;
    while (*a != '\0' && *b != '\0') {
        if (is_digit(*a) && is_digit(*b)) {
            a += strspn(a, "0");
            b += strspn(b, "0");
            const size_t size_a = strspn(a, "0123456789"), size_b = strspn(b, "0123456789");
            if (size_a != size_b) return size_a < size_b ? -1 : 1;
            const int order = memcmp(a, b, size_a);
            if (order != 0) return order;
            a += size_a;
            b += size_b;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    if (*a != *b) return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
    return strcmp(whole_a, whole_b);
}

/* Finds the first number at or after `from` that fills a whole component of the dotted name:
 * characters [*begin, *end). */
static bool find_number(const char *name, size_t from, size_t *begin, size_t *end) {
    for (size_t at = from; name[at] != '\0'; at++) {
        if (!is_digit(name[at]) || (at > 0 && name[at - 1] != '.')) continue;
        const size_t size = strspn(name + at, "0123456789");
        const char after = name[at + size];
        const bool is_short = size <= NUMBER_DIGITS && (size == 1 || name[at] != '0');
        if (!is_short || (after != '.' && after != '\0')) continue;
        *begin = at;
        *end = at + size;
        return true;
    }
    return false;
}

static uint32_t number_at(const struct folding *folding, uint32_t i, size_t begin) {
    return (uint32_t)strtoul(folding->tensors[i].name + begin, NULL, 10);
}

/* Returns whether tensor i has the same name as tensor `first` up to `begin`, and a number there.
 */
static bool is_like(const struct folding *folding, uint32_t first, uint32_t i, size_t begin) {
    size_t at, end;
    const char *name = folding->tensors[i].name;
    if (strncmp(name, folding->tensors[first].name, begin) != 0) return false;
    return find_number(name, begin, &at, &end) && at == begin;
}

/* Returns the end of the tensors, from i on, whose names have the same number at `begin` as tensor
 * i. */
static uint32_t block_end(const struct folding *folding, uint32_t i, uint32_t end, size_t begin) {
    uint32_t at = i + 1;
    while (at < end && number_at(folding, at, begin) == number_at(folding, i, begin)) at++;
    return at;
}

/* Tensors [first, end) of one layer: their names have the same number. */
struct block {
    uint32_t first, end;
    size_t rest; /* position in their names after that number */
};

static bool is_equal(const struct folding *folding, const struct block *a, const struct block *b) {
    if (a->end - a->first != b->end - b->first) return false;
    for (uint32_t i = 0; i < a->end - a->first; i++) {
        const struct cli_tensor *left = &folding->tensors[a->first + i];
        const struct cli_tensor *right = &folding->tensors[b->first + i];
        if (strcmp(left->name + a->rest, right->name + b->rest) != 0) return false;
        if (memcmp(&left->shape, &right->shape, sizeof(left->shape)) != 0) return false;
    }
    return true;
}

/* Returns the block that begins at tensor i, within the group that ends at `end`. */
static struct block block_at(const struct folding *folding, uint32_t i, uint32_t end,
                             size_t begin) {
    const char *name = folding->tensors[i].name;
    return (struct block){.first = i,
                          .end = block_end(folding, i, end, begin),
                          .rest = begin + strspn(name + begin, "0123456789")};
}

/* Writes the numbers of this block and of all later blocks equal to it: "{0-2,5}", or "4" alone.
 * Marks those blocks as folded. Returns whether there are any. */
static bool put_numbers(struct folding *folding, const struct block *block, uint32_t end,
                        size_t begin, bool may_fold) {
    uint32_t first = number_at(folding, block->first, begin), last = first;
    bool is_several = false;
    const size_t head_size = folding->head.size;
    put(&folding->head, "{");
    for (uint32_t i = block->end; may_fold && i < end;) {
        const struct block other = block_at(folding, i, end, begin);
        i = other.end;
        if (folding->tensors[other.first].is_folded || !is_equal(folding, block, &other)) continue;
        for (uint32_t k = other.first; k < other.end; k++) folding->tensors[k].is_folded = true;
        const uint32_t number = number_at(folding, other.first, begin);
        is_several = true;
        if (number == last + 1) {
            last = number;
            continue;
        }
        put(&folding->head, "%" PRIu32, first);
        if (last > first) put(&folding->head, "-%" PRIu32, last);
        put(&folding->head, ",");
        first = last = number;
    }
    if (!is_several) folding->head.size = head_size; /* a single number needs no braces */
    put(&folding->head, "%" PRIu32, first);
    if (last > first) put(&folding->head, "-%" PRIu32, last);
    if (is_several) put(&folding->head, "}");
    return is_several;
}

static void put_entry(struct folding *folding, struct cli_tensor *tensor, size_t from) {
    put(&folding->out, "%s%.*s%s:", folding->out.size > 0 ? " " : "", (int)folding->head.size,
        folding->head.bytes, tensor->name + from);
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        put(&folding->out, "%s%" PRIu32, i > 0 ? "x" : "", tensor->shape.sides[i]);
    tensor->is_folded = true;
}

/* Writes tensors [i, end). `head` replaces the first `from` characters of their names. */
static void fold(struct folding *folding, uint32_t i, uint32_t end, size_t from, uint32_t braces,
                 uint32_t depth) {
    while (i < end) {
        size_t begin = 0, number_end = 0;
        uint32_t group_end = i + 1;
        if (folding->tensors[i].is_folded) {
            i++;
            continue;
        }
        if (depth == DEPTH_MAX ||
            !find_number(folding->tensors[i].name, from, &begin, &number_end)) {
            put_entry(folding, &folding->tensors[i++], from);
            continue;
        }
        while (group_end < end && is_like(folding, i, group_end, begin)) group_end++;
        while (i < group_end) {
            const struct block block = block_at(folding, i, group_end, begin);
            i = block.end;
            if (folding->tensors[block.first].is_folded) continue;
            const size_t head_size = folding->head.size;
            put(&folding->head, "%.*s", (int)(begin - from),
                folding->tensors[block.first].name + from);
            const bool is_several =
                put_numbers(folding, &block, group_end, begin, braces < TW_TENSOR_BRACES_MAX);
            fold(folding, block.first, block.end, block.rest, braces + is_several, depth + 1);
            folding->head.size = head_size;
        }
    }
}

/* Checks that the list expands to the same tensors again. */
static enum tw_status check_list(const struct folding *folding, uint32_t count,
                                 struct tw_error *err) {
    struct tw_tensor_list_size size;
    uint64_t elements = 0;
    TW_TRY(tw_tensor_list_check(folding->out.bytes, &size, err));
    for (uint32_t i = 0; i < count; i++)
        elements += tw_tensor_shape_elements(&folding->tensors[i].shape);
    if (size.tensors == count && size.elements == elements) return TW_OK;
    return tw_fail(err, TW_CONFIG, "these names cannot be folded: %u tensors became %u", count,
                   size.tensors);
}

enum tw_status cli_tensors_fold(struct cli_tensor *tensors, uint32_t count,
                                char text[TW_TENSORS_TEXT_BYTES], struct tw_error *err) {
    static struct folding folding;
    memset(&folding, 0, sizeof(folding));
    folding.tensors = tensors;
    qsort(tensors, count, sizeof(*tensors), compare_names);
    for (uint32_t i = 0; i < count; i++) tensors[i].is_folded = false;
    fold(&folding, 0, count, 0, 0, 0);
    if (folding.head.is_full || folding.out.is_full)
        return tw_fail(err, TW_CONFIG,
                       "names and shapes of %u tensors take more than %d characters: train fewer "
                       "of them (--train PATTERN), such as adapters",
                       count, TW_TENSORS_TEXT_BYTES - 1);
    TW_TRY(check_list(&folding, count, err));
    memcpy(text, folding.out.bytes, folding.out.size + 1);
    return TW_OK;
}
