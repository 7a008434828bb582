/* codec_auto.c - the codec auto: the format of its payloads, the choice of a rung for each piece
 * within a byte limit, and encoding. */
#include "compress/codec_auto.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"

static const enum tw_codec_id ladder[TW_AUTO_RUNGS] = {
    TW_CODEC_INT8,  TW_CODEC_INT4,   TW_CODEC_ECSQ4,   TW_CODEC_ECSQ3,  TW_CODEC_ECSQ2,
    TW_CODEC_ECSQ1, TW_CODEC_ECSQ05, TW_CODEC_TOPK256, TW_CODEC_TOPK64, TW_CODEC_TOPK32,
};

enum {
    INT4_RUNG = 1,
    PIECE_END = TW_AUTO_PIECE_MAX + TW_AUTO_BLOCK, /* above every piece */
    RUNG_SHIFT = 24,
};
_Static_assert(PIECE_END <= 1 << RUNG_SHIFT, "elements and rung share a word");
_Static_assert((int)TW_AUTO_RUNGS <= (int)TW_BUDGET_RUNGS_MAX, "every rung is a choice");

const struct tw_codec *tw_auto_rung(uint32_t rung) {
    TW_ASSERT(rung < TW_AUTO_RUNGS);
    return tw_codec_get(ladder[rung]);
}

static bool is_ecsq(uint32_t rung) {
    TW_ASSERT(rung < TW_AUTO_RUNGS);
    return ladder[rung] >= TW_CODEC_ECSQ4 && ladder[rung] <= TW_CODEC_ECSQ05;
}

static size_t pieces_max(size_t n) {
    return n < TW_AUTO_BLOCK ? 1 : n / TW_AUTO_BLOCK;
}

/* No codec of the ladder needs more bytes than ecsq, with two exceptions. Each piece may begin a
 * new block and a new stream: 32 bytes. topk needs a buffer for a whole chunk even if the piece is
 * shorter: 256 bytes. */
static size_t bound(size_t n) {
    if (n == 0) return 0;
    return TW_AUTO_HEAD_BYTES + pieces_max(n) * (TW_AUTO_PIECE_HEAD_BYTES + 32) + 256 +
           tw_codec_get(TW_CODEC_ECSQ4)->bound(n);
}

uint64_t tw_auto_bytes_min(uint64_t n) {
    const uint64_t pieces = n / TW_AUTO_PIECE_MAX + 1;
    const struct tw_codec *lowest = tw_auto_rung(TW_AUTO_RUNGS - 1);
    return TW_AUTO_HEAD_BYTES + pieces * TW_AUTO_PIECE_HEAD_BYTES + lowest->bound((size_t)n);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Iterates over the pieces of a payload, and checks each header. */
struct walk {
    const uint8_t *head, *body;
    size_t rest; /* bytes of the body not read yet */
    uint32_t pieces_left;
    const struct tw_codec *codec; /* codec of the current piece; the fields below describe that
                                     piece, too */
    uint32_t rung;
    size_t elements, bytes;
    const uint8_t *payload;
};

static enum tw_status walk_begin(struct walk *walk, const uint8_t *src, size_t bytes, size_t n) {
    *walk = (struct walk){.pieces_left = 0};
    if (n == 0) return bytes == 0 ? TW_OK : TW_CORRUPT;
    if (n > TW_PAYLOAD_BYTES_MAX || bytes < TW_AUTO_HEAD_BYTES) return TW_CORRUPT;
    const uint32_t count = tw_get_u32(src);
    if (count == 0 || count > pieces_max(n)) return TW_CORRUPT;
    const size_t heads = TW_AUTO_HEAD_BYTES + (size_t)count * TW_AUTO_PIECE_HEAD_BYTES;
    if (bytes < heads) return TW_CORRUPT;
    *walk = (struct walk){.head = src + TW_AUTO_HEAD_BYTES,
                          .body = src + heads,
                          .rest = bytes - heads,
                          .pieces_left = count};
    return TW_OK;
}

/* Moves to the next piece, which must exist. is_single: the payload has only one piece. */
static enum tw_status walk_next(struct walk *walk, bool is_single) {
    const uint32_t word = tw_get_u32(walk->head);
    const uint32_t bytes = tw_get_u32(walk->head + 4);
    const uint32_t elements = word & ((1u << RUNG_SHIFT) - 1), rung = word >> RUNG_SHIFT;
    if (elements >= PIECE_END || (elements < TW_AUTO_BLOCK && !is_single)) return TW_CORRUPT;
    if (rung >= TW_AUTO_RUNGS || bytes > walk->rest) return TW_CORRUPT;
    walk->rung = rung;
    walk->codec = tw_auto_rung(rung);
    walk->elements = elements;
    walk->bytes = bytes;
    walk->payload = walk->body;
    walk->head += TW_AUTO_PIECE_HEAD_BYTES;
    walk->body += bytes;
    walk->rest -= bytes;
    walk->pieces_left--;
    return TW_OK;
}

enum tw_status tw_auto_mix(const uint8_t *src, size_t bytes, size_t n,
                           uint64_t elements[TW_AUTO_RUNGS]) {
    struct walk walk;
    size_t sum = 0;
    TW_TRY(walk_begin(&walk, src, bytes, n));
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) elements[r] = 0;
    const bool is_single = walk.pieces_left == 1;
    while (walk.pieces_left > 0) {
        TW_TRY(walk_next(&walk, is_single));
        elements[walk.rung] += walk.elements;
        sum += walk.elements;
    }
    return sum == n && walk.rest == 0 ? TW_OK : TW_CORRUPT;
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    uint64_t elements[TW_AUTO_RUNGS];
    struct walk walk;
    TW_TRY(tw_auto_mix(src, bytes, n, elements));
    TW_TRY(walk_begin(&walk, src, bytes, n));
    const bool is_single = walk.pieces_left == 1;
    while (walk.pieces_left > 0) {
        TW_TRY(walk_next(&walk, is_single));
        TW_TRY(walk.codec->check(walk.payload, walk.bytes, walk.elements));
    }
    return TW_OK;
}

/* Decodes all pieces into dst or, if weight is not NULL, adds them to dst with that weight. */
static enum tw_status read_all(const uint8_t *src, size_t bytes, const float *weight, float *dst,
                               size_t n) {
    uint64_t elements[TW_AUTO_RUNGS];
    struct walk walk;
    TW_TRY(tw_auto_mix(src, bytes, n, elements)); /* also checks the number of pieces */
    TW_TRY(walk_begin(&walk, src, bytes, n));
    const bool is_single = walk.pieces_left == 1;
    for (; walk.pieces_left > 0; dst += walk.elements) {
        TW_TRY(walk_next(&walk, is_single));
        const struct tw_codec *codec = walk.codec;
        TW_TRY(weight == NULL
                   ? codec->decode(walk.payload, walk.bytes, dst, walk.elements)
                   : codec->decode_add(walk.payload, walk.bytes, *weight, dst, walk.elements));
    }
    return TW_OK;
}

static enum tw_status decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    return read_all(src, bytes, NULL, dst, n);
}

static enum tw_status decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n) {
    return read_all(src, bytes, &weight, dst, n);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A piece to encode. */
struct piece {
    const float *x;
    size_t elements;
    uint32_t rung;
    uint32_t rate_1024; /* ecsq: its bits per element divided by the nominal ones, times 1024 */
};

static void put_count(uint8_t *dst, uint32_t pieces_count) {
    tw_put_u32(dst, pieces_count);
}

/* Writes one piece, its header to `head` and its bytes to `to`. */
static enum tw_status put_piece(const struct piece *piece, uint8_t *head, uint8_t *to,
                                size_t capacity, size_t *bytes_out) {
    const struct tw_codec *codec = tw_auto_rung(piece->rung);
    TW_ASSERT(piece->elements < PIECE_END);
    if (is_ecsq(piece->rung) && piece->rate_1024 != 1024) {
        const uint32_t bits_256 = (uint32_t)(codec->bits * piece->rate_1024 / 4.0);
        const struct tw_codec_source source = {.x = piece->x, .n = piece->elements};
        TW_TRY(codec->encode_at(codec->id, bits_256, source, to, capacity, bytes_out));
    } else {
        TW_TRY(codec->encode(piece->x, piece->elements, to, capacity, bytes_out));
    }
    tw_put_u32(head, (uint32_t)piece->elements | piece->rung << RUNG_SHIFT);
    tw_put_u32(head + 4, (uint32_t)*bytes_out);
    return TW_OK;
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    *bytes_out = 0;
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < bound(n)) return TW_LIMIT;
    if (n == 0) return TW_OK;
    /* Every piece has the largest size; a remainder below the smallest size is added to the last
     * piece. */
    const size_t whole = n / TW_AUTO_PIECE_MAX;
    const bool has_more = whole == 0 || n % TW_AUTO_PIECE_MAX >= TW_AUTO_BLOCK;
    const size_t count = whole + has_more;
    uint8_t *head = dst + TW_AUTO_HEAD_BYTES, *to = head + count * TW_AUTO_PIECE_HEAD_BYTES;
    put_count(dst, (uint32_t)count);
    for (size_t i = 0; i < count; i++, head += TW_AUTO_PIECE_HEAD_BYTES) {
        const size_t begin = i * TW_AUTO_PIECE_MAX;
        const struct piece piece = {.rate_1024 = 1024,
                                    .x = src + begin,
                                    .elements = i + 1 < count ? TW_AUTO_PIECE_MAX : n - begin,
                                    .rung = INT4_RUNG};
        size_t bytes;
        TW_TRY(put_piece(&piece, head, to, (size_t)(dst + capacity - to), &bytes));
        to += bytes;
    }
    *bytes_out = (size_t)(to - dst);
    TW_ASSERT(*bytes_out <= capacity);
    return TW_OK;
}

const struct tw_codec tw_codec_auto = {.name = "auto",
                                       .id = TW_CODEC_AUTO,
                                       .bits = 4.25,
                                       .needs_feedback = TW_CODEC_FEEDBACK_AUTO,
                                       .bound = bound,
                                       .encode = encode,
                                       .decode = decode,
                                       .decode_add = decode_add,
                                       .check = check};

/* ---- a rung for each piece, within a byte limit --------------------------------------------- */

/* Returns the rung with the smallest error + lambda * bytes. Ties are resolved by the fewest bytes,
 * then by the smallest error. */
static uint32_t rung_at(const struct tw_budget_piece *piece, uint32_t rungs_count, double lambda) {
    uint32_t best = 0;
    double best_cost = piece->error[0] + lambda * piece->bytes[0];
    for (uint32_t r = 1; r < rungs_count; r++) {
        const double cost = piece->error[r] + lambda * piece->bytes[r];
        const uint32_t bytes = piece->bytes[r], best_bytes = piece->bytes[best];
        if (cost > best_cost || (cost == best_cost && bytes > best_bytes)) continue;
        if (cost == best_cost && bytes == best_bytes && piece->error[r] >= piece->error[best])
            continue;
        best = r;
        best_cost = cost;
    }
    return best;
}

struct problem {
    struct tw_budget_piece *pieces;
    size_t pieces_count;
    uint32_t rungs_count;
};

static uint64_t choose_at(const struct problem *problem, double lambda) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < problem->pieces_count; i++) {
        struct tw_budget_piece *piece = &problem->pieces[i];
        piece->rung = rung_at(piece, problem->rungs_count, lambda);
        bytes += piece->bytes[piece->rung];
    }
    return bytes;
}

/* Returns a lambda so large that each piece gets its codec with the fewest bytes. */
static double price_of_nothing(const struct problem *problem) {
    double most = 0.0;
    for (size_t i = 0; i < problem->pieces_count; i++) {
        for (uint32_t r = 0; r < problem->rungs_count; r++) {
            const double error = problem->pieces[i].error[r];
            if (error > most) most = error;
        }
    }
    return 2.0 * most;
}

/* Non-negative doubles have the same order as their 64 bits, so bisection over the bits ends at
 * adjacent numbers. */
static double number_of(uint64_t bits) {
    double number;
    memcpy(&number, &bits, sizeof(number));
    return number;
}

static uint64_t bits_of(double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

uint64_t tw_budget_choose(struct tw_budget_piece *pieces, size_t pieces_count, uint32_t rungs_count,
                          uint64_t bytes_max) {
    TW_ASSERT(rungs_count > 0 && rungs_count <= TW_BUDGET_RUNGS_MAX);
    const struct problem problem = {pieces, pieces_count, rungs_count};
    uint64_t bytes = choose_at(&problem, 0.0);
    if (bytes <= bytes_max) return bytes;
    uint64_t dear = bits_of(price_of_nothing(&problem)),
             cheap = 0; /* only the choice at the largest lambda is certain to fit */
    while (dear - cheap > 1) {
        const uint64_t middle = cheap + (dear - cheap) / 2;
        if (choose_at(&problem, number_of(middle)) <= bytes_max) {
            dear = middle;
        } else {
            cheap = middle;
        }
    }
    bytes = choose_at(&problem, number_of(dear));
    for (size_t i = 0; i < pieces_count && bytes <= bytes_max; i++) {
        const uint32_t rung = rung_at(&pieces[i], rungs_count, number_of(cheap));
        const uint64_t with = bytes - pieces[i].bytes[pieces[i].rung] + pieces[i].bytes[rung];
        if (with > bytes_max) break;
        pieces[i].rung = rung;
        bytes = with;
    }
    return bytes;
}

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
    TW_ASSERT((n - RUN) / (RUNS - 1) * (RUNS - 1) + RUN <= n);
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
        TW_ASSERT(work->cells_count < TW_AUTO_CELLS_MAX);
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
    TW_ASSERT(begin == part->n && work->cells_count > 0);
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
    TW_ASSERT(goal > 0);
    double others = TW_AUTO_HEAD_BYTES + (double)pieces_count(work) * TW_AUTO_PIECE_HEAD_BYTES;
    double ecsq = 0.0;
    for (uint32_t i = 0; i < work->cells_count; i++) {
        const uint32_t rung = work->cells[i].rung;
        *(is_ecsq(rung) ? &ecsq : &others) += work->cells[i].bytes[rung];
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
    put_count(dst, count);
    for (uint32_t i = 0; i < work->cells_count; head += TW_AUTO_PIECE_HEAD_BYTES) {
        const uint32_t end = piece_end(work, i);
        TW_ASSERT(end > i && end <= work->cells_count);
        const struct piece piece = {.x = part->x + work->begins[i],
                                    .elements = work->begins[end] - work->begins[i],
                                    .rung = work->cells[i].rung,
                                    .rate_1024 = rate_1024};
        size_t bytes;
        TW_TRY(put_piece(&piece, head, to, (size_t)(dst + capacity - to), &bytes));
        to += bytes;
        i = end;
    }
    *bytes_out = (size_t)(to - dst);
    TW_ASSERT(*bytes_out <= capacity);
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
    struct piece piece = {.x = part->x, .elements = part->n, .rung = rung, .rate_1024 = RATE_ONE};
    uint8_t head[TW_AUTO_PIECE_HEAD_BYTES];
    size_t bytes = 0;
    if (part->bytes_max <= HEADS) return TW_OK;
    const size_t room = part->bytes_max - HEADS;
    double rate = RATE_ONE;
    if (is_ecsq(rung)) rate *= 8.0 * (double)room / ((double)part->n * codec->bits);
    if (rate > RATE_MOST) return TW_OK; /* a finer rung is better than so high a rate */
    for (uint32_t tries = 0; tries < TRIES && rate >= RATE_LEAST; tries++) {
        piece.rate_1024 = (uint32_t)rate;
        TW_TRY(put_piece(&piece, head, work->coded, sizeof(work->coded), &bytes));
        if (bytes <= room || !is_ecsq(rung)) break;
        rate = rate * (double)room / (double)bytes - 1.0;
    }
    if (bytes == 0 || bytes > room) return TW_OK;
    TW_TRY(codec->decode(work->coded, bytes, work->decoded, part->n));
    const double held_here = held_of_cells(work, part->x);
    if (held_here >= *least) return TW_OK;
    *least = held_here;
    put_count(dst, 1);
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
