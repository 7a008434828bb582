#include "daemon/config/allowance.h"

#include "base/assert.h"
#include "daemon/config/quota.h"

#define CREDIT_CYCLES 2.0 /* cycles of budget that can be saved up or overdrawn */
#define MEAN_CYCLES 2.0   /* cycles over which the rate of other traffic is averaged */
#define CYCLE_FLOOR_S 30.0

enum { SECOND_US = 1000 * 1000, DAY_S = 86400 };

void tw_allowance_init(struct tw_allowance *allowance, const struct tw_budget_config *config) {
    *allowance = (struct tw_allowance){.is_month = config->is_month};
    const double bytes = (double)config->bytes * (TW_SOCKET_PERCENT / 100.0);
    allowance->bytes_per_s = config->is_month ? bytes / TW_MONTH_S : bytes;
}

static double cycle_s(const struct tw_allowance *allowance) {
    return allowance->cycle_s > CYCLE_FLOOR_S ? allowance->cycle_s : CYCLE_FLOOR_S;
}

/* With a budget as a rate, little can be saved, because an idle line is not faster afterwards. A
 * monthly budget has a total: up to a day of it can be saved, and debt lasts until the month ends.
 */
static double clamp_credit(const struct tw_allowance *allowance, double credit) {
    const double saved_s = CREDIT_CYCLES * allowance->cycle_s;
    const double most_s = allowance->is_month && saved_s < DAY_S ? DAY_S : saved_s;
    const double owed_s = allowance->is_month ? TW_MONTH_S : CREDIT_CYCLES * cycle_s(allowance);
    double most = most_s * allowance->bytes_per_s;
    /* room for the credit of two contributions, so that one is always affordable */
    if (most < 2.0 * allowance->least) most = 2.0 * allowance->least;
    if (credit > most) return most;
    if (credit < -owed_s * allowance->bytes_per_s) return -owed_s * allowance->bytes_per_s;
    return credit;
}

void tw_allowance_look(struct tw_allowance *allowance, uint64_t now_us, uint64_t bytes) {
    if (!allowance->has_looked) {
        allowance->has_looked = true;
        allowance->started_us = allowance->at_us = now_us;
        allowance->bytes = bytes;
        return;
    }
    if (now_us <= allowance->at_us || bytes < allowance->bytes) return;
    const double passed_s = (double)(now_us - allowance->at_us) / SECOND_US;
    const double alive_s = (double)(now_us - allowance->started_us) / SECOND_US;
    const double moved = (double)(bytes - allowance->bytes);
    const double ours = moved < allowance->pending ? moved : allowance->pending;
    const double mean_s = MEAN_CYCLES * cycle_s(allowance);
    const double weight = passed_s / (alive_s < mean_s ? alive_s : mean_s);
    allowance->pending -= ours;
    allowance->rest_per_s +=
        (weight < 1.0 ? weight : 1.0) * ((moved - ours) / passed_s - allowance->rest_per_s);
    allowance->credit =
        clamp_credit(allowance, allowance->credit + allowance->bytes_per_s * passed_s - moved);
    allowance->at_us = now_us;
    allowance->bytes = bytes;
}

void tw_allowance_sent(struct tw_allowance *allowance, uint64_t bytes) {
    /* bytes of the last contribution that peers have not fetched yet are never fetched */
    allowance->pending = (double)bytes;
}

bool tw_allowance_ask(struct tw_allowance *allowance, const struct tw_allowance_ask *ask,
                      uint64_t *bytes_max) {
    *bytes_max = UINT64_MAX;
    if (allowance->bytes_per_s <= 0.0) return true;
    allowance->least = (double)ask->least + (double)ask->besides;
    if (ask->cycle_us > 0) allowance->cycle_s = (double)ask->cycle_us / SECOND_US;
    const double credit = allowance->credit - allowance->pending, least = (double)ask->least;
    double may = 0.0;
    if (ask->cycle_us > 0) {
        const double cycle = (double)ask->cycle_us / SECOND_US;
        const double known = (double)ask->besides / ask->share; /* for all fragments */
        const double seen = allowance->rest_per_s * cycle, rest = seen > known ? seen : known;
        may = ask->share * (allowance->bytes_per_s * cycle - rest + credit / CREDIT_CYCLES);
    }
    if (may < least && credit < allowance->least) return false;
    *bytes_max = may > least ? (uint64_t)may : ask->least;
    return true;
}

bool tw_allowance_is_hopeless(const struct tw_allowance *allowance) {
    return allowance->bytes_per_s > 0.0 && allowance->rest_per_s >= allowance->bytes_per_s;
}

void tw_allowance_deal(struct tw_allowance_part *parts, uint32_t parts_count, uint64_t bytes_max) {
    bool is_settled[TW_PARTS_MAX] = {false};
    TW_ASSERT(parts_count <= TW_PARTS_MAX);
    double left = (double)bytes_max;
    /* Each pass caps the parts whose links are too slow for their share, until no further part
     * exceeds its link. */
    for (uint32_t pass = 0; pass <= parts_count; pass++) {
        double elements = 0.0;
        bool is_changed = false;
        for (uint32_t k = 0; k < parts_count; k++)
            elements += is_settled[k] ? 0.0 : (double)parts[k].elements;
        const double each = elements > 0.0 ? left / elements : 0.0;
        for (uint32_t k = 0; k < parts_count; k++) {
            if (is_settled[k]) continue;
            const double wanted = each * (double)parts[k].elements;
            is_settled[k] = wanted > (double)parts[k].link_max;
            is_changed |= is_settled[k];
            parts[k].bytes_max = is_settled[k] ? parts[k].link_max : (uint64_t)wanted;
        }
        if (!is_changed) return;
        left = (double)bytes_max;
        for (uint32_t k = 0; k < parts_count; k++)
            left -= is_settled[k] ? (double)parts[k].bytes_max : 0.0;
    }
}
