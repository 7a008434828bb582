/* codec_auto_fit.c - divides a part into pieces, estimates bytes and error of each piece with each
 * codec of the ladder (codec_auto.h), and encodes the pieces within the byte limit. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "compress/codec_auto.h"

enum {
    RUNS = 4,
    RUN = TW_AUTO_SAMPLE / RUNS,
    TRIES = 6,
    RATE_ONE = 1024, /* factor of ecsq's bits per element, from RATE_LEAST to RATE_MOST */
    RATE_LEAST = 640,
    RATE_MOST = 1536,
};

/* Returns the size of the next piece: at most `most` of the elements left, and such that the
 * remaining elements are enough for another piece. */
static size_t piece_size(size_t left, size_t most) {
    if (left <= most) return left;
    if (left - most >= TW_AUTO_BLOCK) return most;
    return most > TW_AUTO_BLOCK ? most - TW_AUTO_BLOCK : left;
}

/* ---- bytes and errors, estimated ------------------------------------------------------------- */

static double squares(const float *x, const float *y, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (y != NULL ? (double)y[i] : 0.0);
        sum += d * d;
    }
    return sum;
}

/* Returns the long-run size of the residual. A codec loses the share e of the squared norm
 * `energy`, and error feedback adds the loss to the next outer gradient. With squared norms r of
 * the residual and d of an outer gradient orthogonal to it, the next residual has r' = e * (d + r),
 * so r tends to e / (1 - e) * d. This is minimised instead of e. Below one bit, every further byte
 * lowers e by nearly the same amount. Minimising e therefore sent a few tensors finely in each
 * round, and nodes drifted apart in the others (tests/RECORDS.md, "auto"). */
static double held(double energy, double e) {
    const double most = 0.999;
    return energy * (e < most ? e / (1.0 - e) : most / (1.0 - most));
}

/* Copies a sample of x, at most TW_AUTO_SAMPLE elements. Returns its size. */
static size_t sample(struct tw_auto *work, const float *x, size_t n) {
    if (n <= TW_AUTO_SAMPLE) {
        memcpy(work->sample, x, n * sizeof(*x));
        return n;
    }
    for (size_t k = 0; k < RUNS; k++) {
        const size_t from = (n - RUN) / (RUNS - 1) * k;
        memcpy(work->sample + k * RUN, x + from, RUN * sizeof(*x));
    }
    return TW_AUTO_SAMPLE;
}

/* For each rung, bytes per element and squared error divided by the squared norm, measured on a
 * sample. */
struct rates {
    double bytes[TW_AUTO_RUNGS], error[TW_AUTO_RUNGS];
};

static enum tw_status measure(struct tw_auto *work, const float *x, size_t n, struct rates *rates) {
    const size_t taken = sample(work, x, n);
    const double energy = squares(work->sample, NULL, taken);
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) {
        const struct tw_codec *codec = tw_auto_rung(r);
        size_t bytes;
        TW_TRY(codec->encode(work->sample, taken, work->coded, sizeof(work->coded), &bytes));
        TW_TRY(codec->decode(work->coded, bytes, work->decoded, taken));
        const double lost = squares(work->sample, work->decoded, taken);
        rates->error[r] = energy > 0.0 ? lost / energy : 1.0;
        rates->bytes[r] = (double)bytes / (double)taken;
    }
    return TW_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Adds the cells of a range. They share one measurement of the rungs. */
static enum tw_status add_cells(struct tw_auto *work, const struct tw_auto_part *part, size_t begin,
                                size_t end) {
    struct rates rates;
    /* A change of rung between two ecsq codecs costs the states of an entropy coder. Sparse rungs
     * have no such states, but their rates cannot be adjusted, so small limits get smaller cells.
     */
    const bool is_sparse = part->bytes_max < part->n / 16;
    const size_t few = (part->n / 64 / TW_AUTO_BLOCK + 1) * TW_AUTO_BLOCK;
    const size_t most = is_sparse && few < TW_AUTO_CELL_MAX ? few : TW_AUTO_CELL_MAX;
    TW_TRY(measure(work, part->x + begin, end - begin, &rates));
    while (begin < end) {
        const size_t size = piece_size(end - begin, most);
        const double energy = squares(part->x + begin, NULL, size);
        struct tw_budget_piece *cell = &work->cells[work->cells_count];
        if (!isfinite(energy)) return TW_CORRUPT;
        for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) {
            cell->error[r] = held(energy, rates.error[r]);
            cell->bytes[r] = (uint32_t)(rates.bytes[r] * (double)size) + 1;
        }
        work->begins[work->cells_count++] = begin;
        begin += size;
    }
    return TW_OK;
}

/* Divides the part into cells: tensors. Small tensors are joined with the next, and large ones are
 * divided. A remainder too small for a cell is joined with the last cell. */
static enum tw_status cut(struct tw_auto *work, const struct tw_auto_part *part) {
    size_t begin = 0;
    work->cells_count = 0;
    for (uint32_t i = 0; i <= part->ends_count && begin < part->n; i++) {
        size_t end = i < part->ends_count ? (size_t)part->ends[i] : part->n;
        TW_ASSERT(end <= part->n);
        if (end < begin + TW_AUTO_BLOCK && end < part->n) continue;
        if (part->n - end < TW_AUTO_BLOCK) end = part->n;
        while (begin < end) {
            const size_t size = piece_size(end - begin, TW_AUTO_PIECE_MAX);
            TW_TRY(add_cells(work, part, begin, begin + size));
            begin += size;
        }
    }
    work->begins[work->cells_count] = part->n;
    return TW_OK;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* Returns the end of the piece that begins with cell i. The cells of a piece have one rung, and all
 * but the last have a multiple of 2^12 elements, so that the piece has the same blocks as its
 * cells. */
static uint32_t piece_end(const struct tw_auto *work, uint32_t i) {
    const size_t begin = work->begins[i];
    uint32_t end = i + 1;
    while (end < work->cells_count && work->cells[end].rung == work->cells[i].rung &&
           (work->begins[end] - begin) % TW_AUTO_BLOCK == 0 &&
           work->begins[end + 1] - begin <= TW_AUTO_PIECE_MAX) {
        end++;
    }
    return end;
}

static uint32_t pieces_count(const struct tw_auto *work) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < work->cells_count; i = piece_end(work, i)) count++;
    return count;
}

/* Returns the factor of ecsq's rate that gives a total of `goal` bytes. */
static uint32_t rate_for(const struct tw_auto *work, size_t goal) {
    double others = TW_AUTO_HEAD_BYTES + (double)pieces_count(work) * TW_AUTO_PIECE_HEAD_BYTES;
    double ecsq = 0.0;
    for (uint32_t i = 0; i < work->cells_count; i++) {
        const uint32_t rung = work->cells[i].rung;
        *(tw_auto_is_ecsq(rung) ? &ecsq : &others) += work->cells[i].bytes[rung];
    }
    if (ecsq == 0.0) return RATE_ONE;
    const double rate = RATE_ONE * ((double)goal - others) / ecsq;
    return rate < RATE_LEAST ? RATE_LEAST : rate > RATE_MOST ? RATE_MOST : (uint32_t)rate;
}

static enum tw_status put_pieces(const struct tw_auto *work, const struct tw_auto_part *part,
                                 uint32_t rate_1024, uint8_t *dst, size_t capacity,
                                 size_t *bytes_out) {
    const uint32_t count = pieces_count(work);
    uint8_t *head = dst + TW_AUTO_HEAD_BYTES, *to = head + count * TW_AUTO_PIECE_HEAD_BYTES;
    tw_auto_put_count(dst, count);
    for (uint32_t i = 0; i < work->cells_count; head += TW_AUTO_PIECE_HEAD_BYTES) {
        const uint32_t end = piece_end(work, i);
        const struct tw_auto_piece piece = {.x = part->x + work->begins[i],
                                            .elements = work->begins[end] - work->begins[i],
                                            .rung = work->cells[i].rung,
                                            .rate_1024 = rate_1024};
        size_t bytes;
        TW_TRY(tw_auto_put(&piece, head, to, (size_t)(dst + capacity - to), &bytes));
        to += bytes;
        i = end;
    }
    *bytes_out = (size_t)(to - dst);
    return TW_OK;
}

/* Returns the long-run residual (held), summed over all cells, of the values in work->decoded. */
static double held_of_cells(const struct tw_auto *work, const float *x) {
    double sum = 0.0;
    for (uint32_t i = 0; i < work->cells_count; i++) {
        const size_t begin = work->begins[i], size = work->begins[i + 1] - begin;
        const double energy = squares(x + begin, NULL, size);
        const double lost = squares(x + begin, work->decoded + begin, size);
        if (energy > 0.0) sum += held(energy, lost / energy);
    }
    return sum;
}

/* Encodes a small part as one piece on `rung`, if that fits. Replaces the previous result if the
 * residual is smaller. */
static enum tw_status try_whole(struct tw_auto *work, const struct tw_auto_part *part,
                                uint32_t rung, double *least, uint8_t *dst, size_t *bytes_out) {
    enum { HEADS = TW_AUTO_HEAD_BYTES + TW_AUTO_PIECE_HEAD_BYTES };
    const struct tw_codec *codec = tw_auto_rung(rung);
    struct tw_auto_piece piece = {
        .x = part->x, .elements = part->n, .rung = rung, .rate_1024 = RATE_ONE};
    uint8_t head[TW_AUTO_PIECE_HEAD_BYTES];
    size_t bytes = 0;
    if (part->bytes_max <= HEADS) return TW_OK;
    const size_t room = part->bytes_max - HEADS;
    double rate = RATE_ONE;
    if (tw_auto_is_ecsq(rung)) rate *= 8.0 * (double)room / ((double)part->n * codec->bits);
    if (rate > RATE_MOST) return TW_OK; /* a finer rung is better than so high a rate */
    for (uint32_t tries = 0; tries < TRIES && rate >= RATE_LEAST; tries++) {
        piece.rate_1024 = (uint32_t)rate;
        TW_TRY(tw_auto_put(&piece, head, work->coded, sizeof(work->coded), &bytes));
        if (bytes <= room || !tw_auto_is_ecsq(rung)) break;
        rate = rate * (double)room / (double)bytes - 1.0;
    }
    if (bytes == 0 || bytes > room) return TW_OK;
    TW_TRY(codec->decode(work->coded, bytes, work->decoded, part->n));
    const double held_here = held_of_cells(work, part->x);
    if (held_here >= *least) return TW_OK;
    *least = held_here;
    tw_auto_put_count(dst, 1);
    memcpy(dst + TW_AUTO_HEAD_BYTES, head, sizeof(head));
    memcpy(dst + HEADS, work->coded, bytes);
    *bytes_out = HEADS + bytes;
    return TW_OK;
}

/* Tries one piece for the whole part. Each piece contains the states of an entropy coder, which for
 * a few thousand elements at one bit are a quarter of its bytes. One piece on a common rung can
 * then be better than the best rung for each cell. */
static enum tw_status try_wholes(struct tw_auto *work, const struct tw_auto_part *part,
                                 uint8_t *dst, size_t *bytes_out) {
    double least = INFINITY;
    if (part->n > TW_AUTO_SAMPLE || work->cells_count == 1) return TW_OK;
    if (*bytes_out <= part->bytes_max) {
        TW_TRY(tw_codec_auto.decode(dst, *bytes_out, work->decoded, part->n));
        least = held_of_cells(work, part->x);
    }
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++)
        TW_TRY(try_whole(work, part, r, &least, dst, bytes_out));
    return TW_OK;
}

static enum tw_status put_mixed(struct tw_auto *work, const struct tw_auto_part *part, uint8_t *dst,
                                size_t capacity, size_t *bytes_out) {
    /* Sizes are only estimates from samples. The first goal is slightly too large, to keep rungs
     * that nearly fit; then the rate of ecsq is adapted. */
    size_t goal = part->bytes_max;
    for (uint32_t tries = 0;; tries++) {
        (void)tw_budget_choose(work->cells, work->cells_count, TW_AUTO_RUNGS,
                               goal > 0 ? goal + goal / 64 + 64 : 0);
        TW_TRY(put_pieces(work, part, goal > 0 ? rate_for(work, goal) : RATE_ONE, dst, capacity,
                          bytes_out));
        if (*bytes_out <= part->bytes_max || goal == 0) return TW_OK;
        const size_t cut_back = (*bytes_out - part->bytes_max) << tries;
        goal = goal > cut_back && tries < TRIES ? goal - cut_back : 0;
    }
}

enum tw_status tw_auto_encode(struct tw_auto *work, const struct tw_auto_part *part, uint8_t *dst,
                              size_t capacity, size_t *bytes_out) {
    *bytes_out = 0;
    if (part->n > TW_FRAGMENT_ELEMENTS_MAX || capacity < tw_codec_auto.bound(part->n))
        return TW_LIMIT;
    if (part->bytes_max == 0 || part->n == 0)
        return tw_codec_auto.encode(part->x, part->n, dst, capacity, bytes_out);
    TW_TRY(cut(work, part));
    TW_TRY(put_mixed(work, part, dst, capacity, bytes_out));
    return try_wholes(work, part, dst, bytes_out);
}
