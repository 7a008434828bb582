#include "tests/daemon/api/view_sample.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void set_text(char *to, size_t size, const char *text) {
    (void)snprintf(to, size, "%s", text);
}
#define SET(field, text) set_text(field, sizeof(field), text)

static void sample_peer(struct tw_view_peer *peer, uint8_t seed, const char *addr) {
    memset(&peer->id, seed, sizeof(peer->id));
    SET(peer->addr, addr);
    peer->link = TW_VIEW_LINK_ALIVE;
    peer->state = TW_STATE_MEMBER;
    peer->is_member = peer->is_voter = peer->same_lineage = true;
    peer->rtt_us = 41200u + seed;
    peer->up_bytes = 24u << 20;
    peer->down_bytes = 23u << 20;
    peer->step = 11900u + seed;
    peer->tokens = peer->step * 1024;
    peer->tokens_per_s = 9800;
    peer->token_share = peer->clock_share = 0.249;
    peer->rounds = 1187;
    memset(&peer->lineage, 0xee, sizeof(peer->lineage));
    memset(&peer->tip, 0x42, sizeof(peer->tip));
    peer->last_mixed_round = 1186;
    peer->heard_us = 400000;
}

static void sample_peers(struct tw_status_view *view) {
    view->peers_count = 4;
    for (uint32_t i = 0; i < 4; i++) {
        view->peers[i].token_share = view->peers[i].clock_share = view->peers[i].loss =
            view->peers[i].reliability = NAN;
        view->peers[i].rtt_us = view->peers[i].heard_us = view->peers[i].last_mixed_round =
            view->peers[i].absent_us = TW_VIEW_NEVER;
    }
    sample_peer(&view->peers[0], 0x1b, "10.0.0.2:4747");
    SET(view->peers[0].name, "barn");
    sample_peer(&view->peers[1], 0x5e, "11.0.0.7:50012");
    sample_peer(&view->peers[2], 0xc4, "");
    view->peers[2].in_bytes_s = 41000;
    view->peers[2].out_bytes_s = 1800000;
    view->peers[2].loss = 0.012;
    view->peers[2].reliability = 0.75;
    view->peers[2].is_relayed = true;
    view->peers[2].via = view->peers[0].id;
    view->peers[0].is_mapped = true;
    view->peers[1].is_punched = true;
    SET(view->peers[2].way, "a direct link was punched in vain; next try in 4 min at the earliest");
    SET(view->peers[2].anomaly,
        "slow sender: 41.0 kB/s to us in 12 transfers; median of the others: 1.90 MB/s");
    SET(view->peers[1].refused,
        "its last 5 contributions to our part were far larger than usual and were not "
        "merged");
    SET(view->peers[3].addr, "10.0.0.9:4747");
    SET(view->peers[3].error, "connection refused");
    view->peers[3].link = TW_VIEW_LINK_DIALING;
}

static void sample_bans(struct tw_status_view *view) {
    view->relay.is_on = true;
    view->relay.cap_bytes_s = 250000;
    view->relay.pipes = 4;
    view->relay.bytes = 31u << 20;
    view->net.banned = 1;
    memset(&view->bans[0].id, 0x77, sizeof(view->bans[0].id));
    view->bans[0].left_s = 2520;
}

static void sample_history(struct tw_status_view *view) {
    view->train.losses_count = 40;
    for (uint32_t i = 0; i < 40; i++) {
        struct tw_view_loss *const point = &view->train.losses[i];
        point->step = 300u * (i + 1);
        point->train = 1.6f + 3.9f * expf(-(float)i / 8);
        point->live = i % 5 == 4 ? point->train + 0.05f : NAN;
        point->anchor = i % 5 == 4 ? point->train + 0.03f : NAN;
    }
    view->rounds_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        view->rounds[i] = (struct tw_view_round){.round = 1186 - i,
                                                 .fragment = (1186 - i) % 3,
                                                 .contributors = 4 - i % 2,
                                                 .roster = 4,
                                                 .bytes = 431000,
                                                 .took_us = 812000 + 1000 * i,
                                                 .age_us = (2 + 10 * i) * 1000000,
                                                 .is_ours = true};
    }
    view->events_count = 3;
    static const char *const NAMES[] = {"round_done", "checkpoint_done", "worker_died"};
    static const char *const TEXTS[] = {"round=1186 fragment=1 peers=4",
                                        "step=11800 bytes=10100000",
                                        "signal=9 step=8123; restarted from snapshot at 8101"};
    static const uint64_t AGES_S[] = {2, 190, 3720};
    for (uint32_t i = 0; i < 3; i++) {
        view->events[i].id = 41 - i;
        view->events[i].unix_us = 1769860800 * UINT64_C(1000000) - AGES_S[i] * 1000000;
        view->events[i].age_us = AGES_S[i] * 1000000;
        view->events[i].is_warning = i == 2;
        SET(view->events[i].name, NAMES[i]);
        SET(view->events[i].text, TEXTS[i]);
    }
}

void view_sample(struct tw_status_view *view) {
    memset(&view->node.id, 0xa7, sizeof(view->node.id));
    SET(view->node.name, "attic");
    view->node.boot = 7;
    view->node.unix_us = 1769860800 * UINT64_C(1000000);
    view->node.started_unix_us = view->node.unix_us - 7384 * UINT64_C(1000000);
    SET(view->node.version, "0.1.0");
    view->node.uptime_us = UINT64_C(7384000000);
    view->node.state = TW_STATE_MEMBER;
    view->node.links = true;
    view->node.loop_lag_us = 1900;

    memset(&view->run.id, 0x3d, sizeof(view->run.id));
    SET(view->run.name, "bible");
    memset(&view->run.lineage, 0xee, sizeof(view->run.lineage));
    memset(&view->run.tip, 0x42, sizeof(view->run.tip));
    view->run.clock_tokens = 48758784;
    view->run.budget_tokens = 100000000;
    view->run.eta_us = UINT64_C(1310000000);
    view->run.tokens_per_s = 39200;
    view->run.others = 3;
    view->run.fragments_count = 3;
    for (uint32_t i = 0; i < 3; i++) view->run.fragment_versions[i] = 395 + (i == 0);
    view->run.params = 841984;
    view->run.period_us = 10000000;

    view->train.step = 12000;
    view->train.tokens = 12288000;
    view->train.tokens_per_s = 10240;
    view->train.flops_s = 56e9;
    view->train.mfu = 0.612;
    view->train.loss = 1.652f;
    view->train.lr = 0.0021f;
    view->train.grad_norm = 0.71f;
    view->train.loss_live = 1.702f;
    view->train.loss_anchor = 1.688f;
    view->train.eval_step = 11800;
    view->train.eval_age_us = UINT64_C(196000000);
    view->train.distance = 0.0123f;
    view->train.sample.step = 11800;
    SET(view->train.sample.prompt, "And the Spirit of God moved");
    SET(view->train.sample.text,
        " upon the\nface of the \"waters\", \xe2\x80\x94 and \xc2\x9b\x1b[31m");
    view->train.utilisation = 0.9921;
    view->train.utilisation_minute = 0.9934;

    view->train.token_share = 0.252;

    view->data.state = TW_VIEW_DATA_FETCHING;
    view->data.is_fetched = true;
    SET(view->data.path, "/var/lib/thinwire/bible/3d3d3d3d3d3d3d3d/data");
    view->data.files = 66;
    view->data.files_whole = 12;
    view->data.train_whole = 10;
    view->data.bytes = 1075000000;
    view->data.bytes_here = 195000000;
    view->data.chunks_here = 12;
    view->data.chunks_count = 65;
    view->data.in_bytes_per_s = 1250000;
    view->data.eta_us = UINT64_C(704000000);
    view->data.donors = 3;
    view->data.takers = 1;
    view->data.in_bytes = 120000000;
    view->data.out_bytes = 34000000;
    view->data.chunks_refused = 1;

    view->sync.roster_count = view->sync.voters = 4;
    view->sync.known = 4;
    view->sync.alive = view->sync.mixed = 3;
    view->sync.rounds_committed = 1187;
    view->sync.rounds_contributed = 1180;
    view->sync.rounds_missed = 7;
    view->sync.audits = 9;
    view->sync.dropped[TW_DROP_OLD_ROUND] = 4;
    view->sync.contributions_refused = 5;

    SET(view->net.listen[0], "0.0.0.0:4747");
    view->net.control_in_bytes = 3100000;
    view->net.control_out_bytes = 3000000;
    view->net.bulk_in_bytes = 71000000;
    view->net.bulk_out_bytes = 72000000;
    view->net.in_bytes_per_s = 98000;
    view->net.out_bytes_per_s = 101000;
    view->net.upload_cap_bytes_s = 625000;
    (void)strcpy(view->net.congestion, "bbr");
    view->net.path_bytes_per_s = 2375000;
    view->net.pace_bytes_per_s = 2018000;
    view->net.bootstrap_count = 3;
    view->net.bootstrap_alive = 2;
    view->net.pool_bytes = 64u << 20;
    view->net.mapping_state = "mapped";
    view->net.mapping_by = "NAT-PMP";
    SET(view->net.mapping_address, "11.0.0.3:4747");
    SET(view->net.mapping_text, "The router forwards 11.0.0.3:4747 to this node, by NAT-PMP");
    view->net.mapping_renewals = 5;
    view->net.nat = "endpoint_independent";
    SET(view->net.nat_text, "The router uses one outer port for a local one");
    view->net.punch_tries = 3;
    view->net.punch_successes = 1;
    view->net.pool_used_bytes = 9u << 20;

    view->spend.rungs_count = 3;
    SET(view->spend.rungs[0].name, "int4");
    SET(view->spend.rungs[1].name, "ecsq2");
    SET(view->spend.rungs[2].name, "topk64");
    view->spend.rungs[1].share = 0.625;
    view->spend.rungs[2].share = 0.375;
    view->spend.bits = 1.31;
    view->spend.budget_bytes_per_s = 125000;
    view->spend.used_bytes_per_s = 101000;
    view->spend.rest_bytes_per_s = 40000;
    view->spend.rounds_left_out = 2;

    view->worker.state = TW_VIEW_WORKER_RUNNING;
    view->worker.pid = 4711;
    view->worker.restarts = 1;
    SET(view->worker.device, "cpu, 2 threads, AVX-512, OpenBLAS");
    SET(view->worker.engine, "cpu, 2 threads, AVX-512, bf16, oneDNN");
    view->worker.memory_bytes = 31000000;
    view->worker.snapshot_step = 11990;
    view->worker.heartbeat_us = 80000;

    view->scores.every_rounds = 100;
    view->scores.rounds = 1100;
    view->scores.step = 11100;
    view->scores.age_us = 760000000;
    view->scores.took_us = 21000000;
    view->scores.scores.count = 2;
    SET(view->scores.scores.rows[0].name, "loss/poems.txt");
    view->scores.scores.rows[0].value = 1.8125;
    SET(view->scores.scores.rows[1].name, "accuracy");
    view->scores.scores.rows[1].value = 0.375;

    view->checkpoint.step = 11800;
    view->checkpoint.rounds = 1168;
    view->checkpoint.age_us = 190000000;
    view->checkpoint.bytes = 10100000;
    sample_peers(view);
    sample_bans(view);
    sample_history(view);
}
