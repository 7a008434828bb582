/* status_view.h - everything a person or a scraper may want to know about a node, as one plain
 * struct: the shell fills it, the API turns it into JSON and Prometheus text, the CLI draws it.
 *
 * No pointers, so a copy is a snapshot. A float that was never measured is NaN and a time that
 * never came is TW_VIEW_NEVER; both become `null` in JSON. Ages and durations are at the moment of
 * fill. */
#ifndef TW_DAEMON_API_STATUS_VIEW_H
#define TW_DAEMON_API_STATUS_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/net/dial_error.h"
#include "daemon/net/pacer.h"
#include "daemon/net/reachability.h"
#include "proto/run/run.h"
#include "sync/node.h"

enum {
    TW_VIEW_PEERS_MAX = TW_KNOWN_MAX,
    TW_VIEW_BOOTSTRAP_MAX = 32,
    TW_VIEW_ROUNDS_MAX = 64,
    TW_VIEW_EVENTS_MAX = 64,
    TW_VIEW_LOSSES_MAX = 64,
    TW_VIEW_RUNGS_MAX = 16,
    TW_VIEW_TEXT_BYTES = 256, /* of an event or a reason, with NUL */
};

#define TW_VIEW_NEVER UINT64_MAX

enum tw_view_worker {
    TW_VIEW_WORKER_ABSENT,   /* none attached; systemd or the user must start it */
    TW_VIEW_WORKER_WAITING,  /* there is nothing to train on yet: see data */
    TW_VIEW_WORKER_STARTING, /* spawned or attached, not stepping yet */
    TW_VIEW_WORKER_RUNNING,
    TW_VIEW_WORKER_PAUSED,     /* by the user */
    TW_VIEW_WORKER_RESTARTING, /* died; another one comes after a delay */
    TW_VIEW_WORKER_FAILED,     /* the daemon's own, given up: deaths without progress */
    TW_VIEW_WORKER_FINISHED,   /* reached the budget or stop_step */
};

enum tw_view_data {
    TW_VIEW_DATA_TEXT,     /* a text of this node; nothing travels */
    TW_VIEW_DATA_WAITING,  /* a dataset; no whole shard to train on yet */
    TW_VIEW_DATA_FETCHING, /* trains on what is here, the rest is on its way */
    TW_VIEW_DATA_PARTIAL,  /* a folder of the user that lacks files */
    TW_VIEW_DATA_WHOLE,
    TW_VIEW_DATA_UNUSABLE, /* the index of the dataset is no good: see error */
};

enum tw_view_link {
    TW_VIEW_LINK_KNOWN,   /* in the table, no link */
    TW_VIEW_LINK_DIALING, /* connecting or shaking hands */
    TW_VIEW_LINK_UP,      /* authenticated, silent too long or not heard yet */
    TW_VIEW_LINK_ALIVE,   /* heard within TW_PEER_SILENCE_US */
    TW_VIEW_LINK_REFUSED, /* wrong secret, wrong run, wrong id, no common version: see `error` */
};

struct tw_view_peer {
    struct tw_id id;                /* zero: a bootstrap address whose id is not known yet */
    char addr[TW_ADDR_BYTES];       /* "" when only it dials us */
    char error[TW_VIEW_TEXT_BYTES]; /* why the last attempt failed; "" when it did not */
    enum tw_view_link link;
    enum tw_node_state state; /* as it last said; only meaningful when heard */
    bool is_member;           /* of our roster */
    bool same_lineage;
    uint64_t rtt_us;               /* TW_VIEW_NEVER: not measured */
    uint64_t up_bytes, down_bytes; /* at the socket, this process, both connections */
    uint64_t step, tokens;
    uint32_t tokens_per_s;
    uint64_t rounds;
    double token_share;               /* of the run's tokens, a ratio; NaN = not known */
    uint64_t last_mixed_round;        /* newest round of ours it entered; TW_VIEW_NEVER */
    uint64_t heard_us;                /* ago; TW_VIEW_NEVER */
    char stall[TW_VIEW_TEXT_BYTES];   /* why rounds do not wait for it; "" when they do */
    char strike[TW_VIEW_TEXT_BYTES];  /* why it owns no part; "" when it may */
    char refused[TW_VIEW_TEXT_BYTES]; /* why its contributions are not merged here; "" */
    uint64_t in_bytes_s, out_bytes_s; /* of its payloads to us; the path to it; 0 = not known */
    double loss, reliability;         /* of segments to it; of the time, linked; NaN = not known */
    char anomaly[TW_VIEW_TEXT_BYTES]; /* what sets it apart from all others, with evidence; "" */
};

/* A configured address, whoever is there. */
struct tw_view_bootstrap {
    char address[TW_ADDR_BYTES];
    struct tw_id id;        /* of the node there; zero = not known yet */
    enum tw_view_link link; /* UP whatever address the link took */
    enum tw_dial_cause cause;
    char error[TW_VIEW_TEXT_BYTES]; /* why the last dial failed; "" when it did not */
    uint32_t failures;              /* in a row */
    uint64_t failed_us;             /* ago; TW_VIEW_NEVER */
};

struct tw_view_round {
    uint64_t round;
    uint32_t fragment;
    uint32_t contributors, roster; /* listed in the manifest / members at the time */
    uint64_t bytes;                /* payload bytes we sent and received for it */
    uint64_t took_us;              /* from opening to commit, here */
    uint64_t age_us;               /* ago */
    bool is_ours;                  /* the manifest lists us */
    bool is_solo;
    struct tw_id partner; /* a run in pairs: merged with; zero = alone */
};

struct tw_view_event {
    uint64_t age_us;               /* ago */
    bool is_warning;               /* something a person may have to act on */
    char name[32];                 /* "worker_died", as in the log */
    char text[TW_VIEW_TEXT_BYTES]; /* one sentence */
};

/* A node that broke the protocol and is left alone. */
struct tw_view_ban {
    struct tw_id id;
    uint64_t left_s;
};

struct tw_view_loss {
    uint64_t step;
    float train, live, anchor; /* nats per token; NaN = not measured */
};

/* The GPU the worker computes on, as its driver tells; a value of 0 is not known. */
struct tw_view_gpu {
    bool is_seen; /* lately; else the rest means nothing */
    uint32_t temperature_c, load_percent;
    double power_w, power_max_w;
    uint64_t memory_used_bytes, memory_bytes;
};

struct tw_status_view {
    struct {
        struct tw_id id;
        char name[64];
        char version[24];
        uint64_t uptime_us;
        enum tw_node_state state;
        bool is_leaving;      /* draining: saving and saying goodbye */
        bool links;           /* false: configured `links = off` */
        uint64_t loop_lag_us; /* longest callback of the last minute */
    } node;

    struct {
        struct tw_id id;
        char name[64];
        struct tw_id lineage;
        uint64_t clock_tokens, budget_tokens;
        uint64_t eta_us; /* to the budget at the present rate of the clock; TW_VIEW_NEVER */
        uint32_t fragments_count;
        uint64_t fragment_versions[TW_FRAGMENTS_MAX]; /* rounds applied to (phi, u) of each */
        uint64_t params;
        uint64_t period_us; /* time between two rounds of any fragment, as it went; or NEVER */
    } run;

    struct {
        uint64_t step, tokens;
        uint64_t stop_step;  /* 0 = none */
        double tokens_per_s; /* last minute or since start, whichever is shorter */
        double flops_s;      /* of its steps at that speed */
        double mfu;          /* that to what its matrix products alone reach, a ratio */
        float loss;          /* training, EWMA, nats per token */
        float lr, grad_norm;
        float loss_live, loss_anchor; /* held out, nats per token, at eval_step */
        uint64_t eval_step;
        float distance;            /* ||theta - phi|| / ||phi||, a ratio */
        double token_share;        /* of the run's tokens so far, a ratio */
        uint64_t steps_skipped;    /* gradients were not finite */
        double utilisation;        /* 1 - sync / wall, a ratio, since the start */
        double utilisation_minute; /* the last minute */
        uint32_t losses_count;
        struct tw_view_loss losses[TW_VIEW_LOSSES_MAX]; /* oldest first, even in steps */
    } train;

    struct {
        uint32_t roster_count;        /* members of our roster, us included */
        uint32_t members_max;         /* of the manifest */
        bool is_shut_out;             /* it asks to join, and the roster is full */
        uint32_t known, alive, mixed; /* three separate numbers; us not included */
        uint64_t rounds_committed;    /* of our lineage, known here */
        uint64_t rounds_contributed, rounds_missed;
        uint64_t lineage_changes;
        uint64_t audits;                /* merges of others done again here, this process */
        uint64_t contributions_refused; /* too large to be merged in our part, this process */
        enum tw_topology topology;
        /* a run in pairs: our rounds by outcome, and requests we turned down; this process */
        uint64_t pairs_merged, pairs_alone, pairs_one_sided, pairs_refused;
        uint64_t pairs_struck;   /* partners, for what they sent */
        struct tw_id partner;    /* merged with last; zero: nobody yet */
        uint64_t partner_age_us; /* ago; TW_VIEW_NEVER */
        float partner_distance;  /* ||phi_theirs - phi|| / ||phi|| when they met; NaN = not known */
    } sync;

    struct {
        char listen[TW_ADDRS_MAX][TW_ADDR_BYTES];     /* as bound; "" after the last */
        uint64_t control_in_bytes, control_out_bytes; /* at the socket, this process */
        uint64_t bulk_in_bytes, bulk_out_bytes;
        uint64_t payload_in_bytes, payload_out_bytes; /* chunks of payloads; of these in: */
        uint64_t payload_again_bytes;                 /* here already */
        double in_bytes_per_s, out_bytes_per_s;       /* last minute */
        uint64_t upload_cap_bytes_s;                  /* 0 = none */
        enum tw_link_pace_mode pace;
        char congestion[16];       /* of bulk connections; "" without any, "mixed" */
        uint64_t path_bytes_per_s; /* the fastest path measured; 0 = none yet */
        uint64_t pace_bytes_per_s; /* what it is held to; 0 = no limit */
        uint32_t bootstrap_count, bootstrap_alive; /* configured addresses / with a live link */
        uint64_t links_refused;
        uint32_t banned; /* of bans[] */
        uint64_t pool_bytes, pool_used_bytes;
        enum tw_reachability_state reach_state;          /* can others dial it? */
        char reach_text[TW_REACHABILITY_SENTENCE_BYTES]; /* what that means, and what to open */
        uint64_t reach_age_us;                           /* ago; TW_VIEW_NEVER: nobody tried */
        uint32_t reach_count;
        struct tw_reachability_row
            reach[TW_REACHABILITY_ROWS_MAX]; /* what peers found when they dialled it */
    } net;

    struct { /* a run with an owner; else zeros */
        bool has_owner;
        bool is_admitter;               /* this node may sign for others */
        bool is_renewed;                /* its certificate is, by nodes that may admit */
        bool is_late;                   /* its end is near, and nobody renewed it */
        uint64_t until_s;               /* of it, unix */
        uint64_t left_s;                /* 0: it ended */
        uint64_t list;                  /* version of the revocations; 0: none yet */
        uint32_t revoked;               /* nodes on it */
        char error[TW_VIEW_TEXT_BYTES]; /* why nobody lets this node in; "" */
    } admission;

    struct {
        uint64_t upload_bytes_s, download_bytes_s; /* in force; 0 = none */
        bool has_limit;                            /* `thinwire limit` was said */
        bool has_hours, is_hour_off;               /* network.hours; this one is off */
        uint64_t hours_bytes_s;                    /* of this hour; 0 = none of its own */
        uint32_t until_min;                        /* of the day, when that changes; 1440: never */
        uint64_t quota_bytes;                      /* of the month; 0 = none */
        uint64_t month_bytes;                      /* passed in it, both ways */
        char month_end[16];                        /* "2026-12-01" */
        const char *resting;                       /* "none", "hours" or "quota" */
    } caps;

    struct {
        uint32_t rungs_count; /* sync.codec = auto, and something was contributed; else 0 */
        struct {
            char name[16];
            double share; /* of the elements that were contributed lately */
        } rungs[TW_VIEW_RUNGS_MAX];
        double bits;                   /* per element of it; NaN = nothing yet */
        double budget_bytes_per_s;     /* 0 = none; else of upload, or of a month: */
        bool is_month;                 /* upload and download together, over 30 days */
        double used_bytes_per_s;       /* in the same directions, last minute */
        double rest_bytes_per_s;       /* of it, what is no contribution; NaN without a budget */
        uint64_t rounds_left_out;      /* since the start, for the budget's sake */
        bool is_left_out, is_hopeless; /* so is this round; the rest alone is too much */
    } spend;

    struct {
        enum tw_view_data state;
        bool is_any;     /* each node brings its own text */
        bool is_fetched; /* from peers, into a folder of the daemon */
        char path[TW_VIEW_TEXT_BYTES];
        char text[TW_VIEW_TEXT_BYTES];  /* while waiting: "3 of 65 chunks ..." */
        char error[TW_VIEW_TEXT_BYTES]; /* what the disk or the index has against it; "" */
        uint32_t files, files_whole;    /* 0: the index is not known yet */
        uint32_t train_whole;           /* training shards */
        uint64_t bytes, bytes_here;
        uint32_t chunks_here, chunks_count; /* of the file that comes next */
        double in_bytes_per_s;              /* last minute */
        uint64_t eta_us;                    /* TW_VIEW_NEVER */
        uint32_t donors, takers;            /* peers that give lately; that are given to now */
        uint64_t in_bytes, out_bytes;       /* this process */
        uint64_t chunks_refused;            /* that were not what their hash says */
    } data;

    struct {
        enum tw_view_worker state;
        uint32_t pid;      /* 0 = none */
        uint32_t restarts; /* deaths since the daemon started */
        char device[64];
        char engine[96];                /* what computes, once a worker is ready; "" before */
        uint64_t memory_bytes;          /* of its engine; 0 = it did not say */
        char error[TW_VIEW_TEXT_BYTES]; /* of the last death; "" */
        bool is_device_fault;           /* it was the compute device's fault */
        uint64_t snapshot_step;         /* TW_VIEW_NEVER */
        uint64_t heartbeat_us;          /* ago; TW_VIEW_NEVER */
        struct tw_view_gpu gpu;
    } worker;

    struct {
        uint64_t step;   /* TW_VIEW_NEVER: none yet */
        uint64_t age_us; /* TW_VIEW_NEVER */
        uint64_t bytes;
        char error[TW_VIEW_TEXT_BYTES];      /* why the last attempt failed; "" */
        char vote_error[TW_VIEW_TEXT_BYTES]; /* why the vote of the open round is not saved; "" */
    } checkpoint;

    uint32_t bootstrap_count, peers_count, rounds_count, events_count;
    struct tw_view_bootstrap bootstrap[TW_VIEW_BOOTSTRAP_MAX];
    struct tw_view_peer peers[TW_VIEW_PEERS_MAX];
    struct tw_view_round rounds[TW_VIEW_ROUNDS_MAX]; /* newest first */
    struct tw_view_event events[TW_VIEW_EVENTS_MAX]; /* newest first */
    struct tw_view_ban bans[TW_BANS_MAX];            /* (net.banned) */
};

/* All zero, every unmeasured float NaN, every time that never came TW_VIEW_NEVER. */
void tw_status_view_init(struct tw_status_view *view);

/* "solo", "receiver", "member", "finished", or "worker_failed" which overrides the others. */
const char *tw_status_view_state(const struct tw_status_view *view);
const char *tw_view_state_name(enum tw_node_state state);
const char *tw_view_worker_name(enum tw_view_worker worker);
const char *tw_view_link_name(enum tw_view_link link);
const char *tw_view_pace_name(enum tw_link_pace_mode mode);
const char *tw_view_topology_name(enum tw_topology topology);
const char *tw_view_data_name(enum tw_view_data data);

/* MFU: arithmetic per second to the yardstick, at most 1, as the speed is of what arrived within
 * whole seconds and may be a step too many. NaN without a yardstick (0). */
double tw_view_mfu(double flops_s, uint64_t peak_flops_s);

/* The yardstick after steps of so much arithmetic took so long: what matrix products were measured
 * to reach before training, or the steps themselves where they were faster, as when the processor
 * was busy with something else then. 0, nothing measured, stays 0. */
uint64_t tw_view_peak(uint64_t peak_flops_s, uint64_t flops, uint64_t took_us);

/* ---- what the shell keeps between two fills ------------------------------------------------ */

/* Loss curve of a whole run in a fixed number of points: when full, every second point goes and the
 * spacing doubles. Zero-initialised is empty. */
struct tw_loss_history {
    uint64_t stride; /* steps */
    uint32_t count;
    struct tw_view_loss points[TW_VIEW_LOSSES_MAX];
};

/* A point at `step`; steps that fall within the spacing update the newest point. */
void tw_loss_history_add(struct tw_loss_history *history, const struct tw_view_loss *point);

/* The last TW_VIEW_EVENTS_MAX things that happened. Zero-initialised is empty. */
struct tw_event_ring {
    uint64_t added;
    struct tw_view_event events[TW_VIEW_EVENTS_MAX]; /* age_us: the time it was added */
};

void tw_event_ring_add(struct tw_event_ring *ring, uint64_t now_us, bool is_warning,
                       const char *name, const char *fmt, ...) TW_PRINTF(5, 6);
void tw_event_ring_fill(const struct tw_event_ring *ring, uint64_t now_us,
                        struct tw_status_view *view);

/* The last TW_VIEW_ROUNDS_MAX rounds. Zero-initialised is empty. */
struct tw_round_ring {
    uint64_t added;
    struct tw_view_round rounds[TW_VIEW_ROUNDS_MAX]; /* age_us: the time it was added */
};

/* `round->age_us` is ignored. */
void tw_round_ring_add(struct tw_round_ring *ring, uint64_t now_us,
                       const struct tw_view_round *round);
/* The newest round merged with this node. */
void tw_round_ring_pair(struct tw_round_ring *ring, const struct tw_id *partner);
void tw_round_ring_fill(const struct tw_round_ring *ring, uint64_t now_us,
                        struct tw_status_view *view);

#endif
