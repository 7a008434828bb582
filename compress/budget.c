/* budget.c - chooses a codec for each piece within a byte limit. */
#include "compress/budget.h"

#include <string.h>

#include "base/assert.h"

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
