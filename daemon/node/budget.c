#include "daemon/node/budget.h"

#include <stdio.h>
#include <stdlib.h>

#include "compress/codec.h"
#include "compress/codec_auto.h"
#include "daemon/api/status_view.h"
#include "daemon/config/quota.h"
#include "daemon/net/transport.h"
#include "daemon/node/caps.h"
#include "daemon/node/reports.h"
#include "daemon/workerlink/worker_host.h"

/* Share of a link's rate that contributions may use. The rest is left to results and other traffic,
 * which must not wait behind contributions. */
#define LINE_SHARE 0.5
#define FADE 0.9 /* factor applied to the older sums at each contribution */

enum { SECOND_US = 1000 * 1000 };

struct tw_daemon_budget {
    struct tw_allowance allowance;
    uint64_t granted_round;  /* 1 + the round that was last granted bytes */
    uint64_t own_parts;      /* bit set of the parts of that round that this node owns */
    uint64_t left_out_round; /* 1 + the newest round without a contribution for lack of budget */
    uint64_t rounds_left_out;
    double bytes, elements; /* fading sums of the bytes and elements contributed to other nodes */
    double rungs[TW_AUTO_RUNGS];
};

/* ---- how long there is ----------------------------------------------------------------------- */

/* Returns the time between two rounds: measured, or computed from this node's speed, or 0 if
 * neither is known. */
static uint64_t round_us(const struct tw_daemon *daemon) {
    const struct tw_run *run = &daemon->setup->run;
    const uint32_t fragments = daemon->setup->layout.fragments_count;
    if (tw_daemon_reports_period_us(daemon) > 0) return tw_daemon_reports_period_us(daemon);
    if (run->sync.pace == TW_PACE_CLOCK) return (uint64_t)run->sync.pace_ms * 1000;
    const double speed = tw_daemon_samples_rate(daemon, TW_SAMPLE_TOKENS);
    const double steps = (double)run->sync.period / fragments;
    const double tokens = steps * run->train.batch * run->model.context;
    return speed > 0.0 ? (uint64_t)(tokens / speed * SECOND_US) : 0;
}

/* Returns how many bytes of contribution a link of this rate can carry in `passed_us`. */
static uint64_t line_max(uint64_t bytes_per_s, uint64_t passed_us) {
    if (bytes_per_s == 0 || passed_us == 0) return UINT64_MAX;
    return (uint64_t)(LINE_SHARE * (double)bytes_per_s * (double)passed_us / SECOND_US);
}

static uint64_t link_max(const struct tw_daemon *daemon, const struct tw_id *id,
                         uint64_t passed_us) {
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        struct tw_peer_net net;
        if (!daemon->peers[i].is_up || !tw_id_equal(&daemon->peers[i].id, id)) continue;
        if (!tw_transport_peer(daemon->transport, i, &net)) continue;
        return line_max(net.delivery_bytes_per_s, passed_us);
    }
    return UINT64_MAX;
}

/* ---- granting -------------------------------------------------------------------------------- */

/* A contribution to be granted: the parts to send, and the fields of the action to set. */
struct wanted {
    uint64_t round, elements; /* elements of the whole fragment */
    uint32_t parts_count;
    struct tw_allowance_part parts[TW_PARTS_MAX];
    uint64_t *to[TW_PARTS_MAX];
    uint64_t own_parts; /* bit set of the parts that this node owns */
    uint64_t least, usual;
    uint64_t besides; /* bytes sent in addition to the contribution */
};

static uint64_t usual_bytes(const struct tw_daemon *daemon, uint64_t elements) {
    const double bits = tw_codec_get(daemon->setup->run.sync.codec)->bits;
    return (uint64_t)((double)elements * bits / 8.0);
}

static void add_part(const struct tw_daemon *daemon, struct wanted *wanted, uint64_t elements,
                     uint64_t link_bytes, uint64_t *to) {
    const struct tw_codec *codec = tw_codec_get(daemon->setup->run.sync.codec);
    const uint64_t usual = usual_bytes(daemon, elements);
    const bool is_auto = codec->id == TW_CODEC_AUTO;
    wanted->elements += elements;
    if (elements == 0) return;
    wanted->least += is_auto ? tw_auto_bytes_min(elements) : usual;
    wanted->usual += usual;
    wanted->to[wanted->parts_count] = to;
    wanted->parts[wanted->parts_count++] =
        (struct tw_allowance_part){.elements = elements, .link_max = link_bytes};
}

/* In pairs Delta is sent together with the anchor, which needs a byte per element. A monthly budget
 * also counts the anchor that the partner sends. */
static void want_pair(const struct tw_daemon *daemon, struct wanted *wanted, uint64_t elements,
                      uint64_t link_bytes, uint64_t *to) {
    add_part(daemon, wanted, elements, link_bytes > elements ? link_bytes - elements : 0, to);
    wanted->besides = (daemon->budget->allowance.is_month ? 2 : 1) * elements;
}

static void want_group(struct tw_daemon *daemon, struct tw_action *action, uint64_t passed_us,
                       struct wanted *wanted) {
    uint32_t owners[TW_PARTS_MAX];
    const uint32_t count = tw_roster_owners(&daemon->view.roster, owners);
    wanted->round = action->u.encode.round;
    for (uint32_t k = 0; k < action->u.encode.parts_count; k++) {
        const uint64_t elements = action->u.encode.parts[k].count;
        const struct tw_id *owner =
            k < count ? &daemon->view.roster.members[owners[k]].id : &daemon->setup->identity.id;
        if (tw_id_equal(owner, &daemon->setup->identity.id)) {
            wanted->own_parts |= UINT64_C(1) << k;
            wanted->elements += elements;
            continue; /* this part is not sent, so its bytes need no limit */
        }
        add_part(daemon, wanted, elements, link_max(daemon, owner, passed_us),
                 &action->u.encode.parts[k].bytes_max);
    }
}

static bool ask_allowance(struct tw_daemon *daemon, const struct wanted *wanted, uint64_t passed_us,
                          uint64_t *bytes_max) {
    const struct tw_layout *layout = &daemon->setup->layout;
    const struct tw_allowance_ask ask = {
        .cycle_us = passed_us * layout->fragments_count,
        .share = (double)wanted->elements / (double)layout->elements,
        .least = wanted->least,
        .besides = wanted->besides,
    };
    return tw_allowance_ask(&daemon->budget->allowance, &ask, bytes_max);
}

/* In pairs the core must be told beforehand that the budget is too small, or a partner would wait
 * in vain. The budget is compared with an average fragment. */
static void note_short(struct tw_daemon *daemon) {
    const struct tw_layout *layout = &daemon->setup->layout;
    struct wanted wanted = {.round = 0};
    uint64_t bytes_max;
    want_pair(daemon, &wanted, layout->elements / layout->fragments_count, UINT64_MAX, &bytes_max);
    const bool is_short = !ask_allowance(daemon, &wanted, round_us(daemon), &bytes_max);
    if (is_short == daemon->measured.is_short) return;
    if (is_short)
        tw_daemon_note(daemon, TW_LOG_INFO, "left_out",
                       "text=\"the byte budget has no room for a contribution\"");
    daemon->measured.is_short = is_short;
    tw_daemon_event_measured(daemon);
}

void tw_daemon_budget_tick(struct tw_daemon *daemon, uint64_t now_us) {
    if (daemon->transport == NULL) return;
    const struct tw_traffic all = tw_transport_traffic(daemon->transport);
    const bool is_both = daemon->budget->allowance.is_month;
    tw_allowance_look(&daemon->budget->allowance, now_us,
                      all.bytes_out + (is_both ? all.bytes_in : 0));
    if (daemon->setup->run.sync.topology == TW_TOPOLOGY_PAIR) note_short(daemon);
}

/* Answers the core's ENCODE as a worker that cannot encode would. The core asks again later, and
 * other nodes do not wait. */
static void leave_out(struct tw_daemon *daemon, uint64_t round) {
    const struct tw_event event = {.kind = TW_EV_ENCODED, .u.encoded.round = round};
    struct tw_daemon_budget *budget = daemon->budget;
    if (budget->left_out_round != round + 1) {
        budget->rounds_left_out++;
        tw_daemon_note(daemon, TW_LOG_INFO, "left_out",
                       "round=%llu text=\"the byte budget has no room for a contribution\"",
                       (unsigned long long)round);
    }
    budget->left_out_round = round + 1;
    tw_daemon_event(daemon, &event);
}

bool tw_daemon_budget_grant(struct tw_daemon *daemon, struct tw_action *action) {
    const struct tw_run *run = &daemon->setup->run;
    const struct tw_layout *layout = &daemon->setup->layout;
    struct tw_daemon_budget *budget = daemon->budget;
    struct wanted wanted = {.round = 0};
    const uint64_t passed_us = round_us(daemon);
    if (daemon->transport == NULL) return true;
    tw_node_view(daemon->node, &daemon->view);
    if (action->kind == TW_ACT_PAIR_ENCODE) {
        const uint32_t p = action->u.pair_encode.fragment;
        wanted.round = action->u.pair_encode.round;
        want_pair(daemon, &wanted, layout->fragment_begin[p + 1] - layout->fragment_begin[p],
                  link_max(daemon, &action->partner, passed_us),
                  &action->u.pair_encode.delta_bytes_max);
    } else {
        want_group(daemon, action, passed_us, &wanted);
    }
    uint64_t bytes_max;
    const bool is_last = daemon->view.clock_tokens >= run->train.tokens;
    if (!ask_allowance(daemon, &wanted, passed_us, &bytes_max)) {
        if (!is_last) {
            leave_out(daemon, wanted.round);
            return false;
        }
        /* Without an allowance, the last round of the run still sends the least: the final anchor
         * should contain this node's work. */
        bytes_max = wanted.least;
    }
    tw_log(TW_LOG_DEBUG, "granted",
           "round=%llu bytes_max=%.0f usual=%llu cycle_us=%llu credit=%.0f rest_bytes_s=%.0f",
           (unsigned long long)wanted.round, (double)bytes_max, (unsigned long long)wanted.usual,
           (unsigned long long)(passed_us * layout->fragments_count), budget->allowance.credit,
           budget->allowance.rest_per_s);
    budget->granted_round = wanted.round + 1;
    budget->own_parts = wanted.own_parts;
    const uint64_t line = line_max(tw_daemon_caps_upload(daemon), passed_us);
    if (line < bytes_max) bytes_max = line;
    /* More bits than the codec's usual number improve nothing, so the rest of a larger budget stays
     * unused. */
    if (wanted.usual < bytes_max) bytes_max = wanted.usual;
    tw_allowance_deal(wanted.parts, wanted.parts_count, bytes_max);
    for (uint32_t k = 0; k < wanted.parts_count; k++) {
        const struct tw_allowance_part *part = &wanted.parts[k];
        /* If the usual number of bits fits, no limit is set: without one the codec need not search,
         * which is faster. */
        if (part->bytes_max + 1 >= usual_bytes(daemon, part->elements)) continue;
        *wanted.to[k] = part->bytes_max > 0 ? part->bytes_max : 1;
    }
    return true;
}

void tw_daemon_budget_encoded(struct tw_daemon *daemon, const struct tw_encoded *encoded) {
    struct tw_daemon_budget *budget = daemon->budget;
    const bool is_known = budget->granted_round == encoded->round + 1;
    uint64_t bytes = 0, elements = 0, rungs[TW_AUTO_RUNGS] = {0};
    for (uint32_t k = 0; k < encoded->parts_count; k++) {
        if (is_known && (budget->own_parts >> k & 1) != 0) continue;
        bytes += encoded->parts[k].bytes;
        elements += encoded->parts[k].elements;
        for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) rungs[r] += encoded->parts[k].rungs[r];
    }
    tw_allowance_sent(&budget->allowance, bytes);
    budget->bytes = FADE * budget->bytes + (double)bytes;
    budget->elements = FADE * budget->elements + (double)elements;
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++)
        budget->rungs[r] = FADE * budget->rungs[r] + (double)rungs[r];
}

/* ---- life ------------------------------------------------------------------------------------ */

enum tw_status tw_daemon_budget_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->budget = tw_daemon_alloc(sizeof(*daemon->budget), err);
    if (daemon->budget == NULL) return TW_NOMEM;
    tw_daemon_budget_apply(daemon);
    return TW_OK;
}

void tw_daemon_budget_apply(struct tw_daemon *daemon) {
    tw_allowance_init(&daemon->budget->allowance, &daemon->setup->config.network.budget);
}

void tw_daemon_budget_free(struct tw_daemon *daemon) {
    free(daemon->budget);
}

uint64_t tw_daemon_budget_left_out(const struct tw_daemon *daemon) {
    return daemon->budget->rounds_left_out;
}

void tw_daemon_budget_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_daemon_budget *budget = daemon->budget;
    const struct tw_allowance *allowance = &budget->allowance;
    if (budget->elements > 0.0) view->spend.bits = 8.0 * budget->bytes / budget->elements;
    const bool is_auto = daemon->setup->run.sync.codec == TW_CODEC_AUTO;
    for (uint32_t r = 0; is_auto && budget->elements > 0.0 && r < TW_AUTO_RUNGS; r++) {
        view->spend.rungs_count = r + 1;
        (void)snprintf(view->spend.rungs[r].name, sizeof(view->spend.rungs[r].name), "%s",
                       tw_auto_rung(r)->name);
        view->spend.rungs[r].share = budget->rungs[r] / budget->elements;
    }
    view->spend.rounds_left_out = budget->rounds_left_out + daemon->view.pairs.short_of_bytes;
    if (allowance->bytes_per_s <= 0.0) return;
    const struct tw_budget_config *config = &daemon->setup->config.network.budget;
    view->spend.is_month = config->is_month;
    view->spend.budget_bytes_per_s = (double)config->bytes / (config->is_month ? TW_MONTH_S : 1);
    view->spend.used_bytes_per_s =
        view->net.out_bytes_per_s + (config->is_month ? view->net.in_bytes_per_s : 0.0);
    view->spend.rest_bytes_per_s = allowance->rest_per_s;
    view->spend.is_left_out =
        daemon->measured.is_short ||
        (budget->left_out_round > 0 && budget->left_out_round == daemon->view.rounds + 1);
    view->spend.is_hopeless = tw_allowance_is_hopeless(allowance);
}
