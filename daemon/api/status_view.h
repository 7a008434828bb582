/* status_view.h - the state of a node for people and scrapers, as one plain struct. The runtime
 * (daemon/node) fills it, the API writes it as JSON and Prometheus text, and the CLI draws it.
 *
 * A copy is a snapshot: the only pointer is to a string constant. A float that was not measured is
 * NaN, a time that never came is TW_VIEW_NEVER, and both are `null` in JSON. Ages are counted back
 * from the moment of the fill. Bytes and events are counted since the start of the process. */
#ifndef TW_DAEMON_API_STATUS_VIEW_H
#define TW_DAEMON_API_STATUS_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/api/attacks.h"
#include "daemon/api/health.h"
#include "daemon/api/scores.h"
#include "daemon/net/dial_error.h"
#include "daemon/net/pacer.h"
#include "daemon/net/reachability.h"
#include "daemon/router/nat_kind.h"
#include "daemon/router/port_mapping.h"
#include "proto/run/run.h"
#include "proto/worker_msg.h"
#include "sync/node.h"

enum {
    TW_VIEW_PEERS_MAX = TW_KNOWN_MAX,
    TW_VIEW_BOOTSTRAP_MAX = 32,
    TW_VIEW_ROUNDS_MAX = 64,
    TW_VIEW_EVENTS_MAX = 64,
    TW_VIEW_LOSSES_MAX = 64,
    TW_VIEW_RUNGS_MAX = 16,
    TW_VIEW_TWINS_MAX = 8,
    TW_VIEW_TEXT_BYTES = 256, /* text of an event or a reason, with NUL */
};

#define TW_VIEW_NEVER UINT64_MAX

enum tw_view_worker {
    TW_VIEW_WORKER_ABSENT,   /* no worker is attached; systemd or the user must start one */
    TW_VIEW_WORKER_WAITING,  /* no training data yet: see data */
    TW_VIEW_WORKER_STARTING, /* spawned or attached, no step yet */
    TW_VIEW_WORKER_RUNNING,
    TW_VIEW_WORKER_PAUSED,     /* see pause */
    TW_VIEW_WORKER_RESTARTING, /* died; the next one starts after a delay */
    TW_VIEW_WORKER_FAILED,     /* given up after deaths without progress */
    TW_VIEW_WORKER_FINISHED,   /* the token budget or stop_step is reached */
};

enum tw_view_data {
    TW_VIEW_DATA_TEXT,     /* a local text; nothing is fetched or served */
    TW_VIEW_DATA_TRAINER,  /* the trainer brings its own: a run of any model */
    TW_VIEW_DATA_WAITING,  /* a dataset without a whole training shard yet */
    TW_VIEW_DATA_FETCHING, /* training on the local shards while others are fetched */
    TW_VIEW_DATA_PARTIAL,  /* the user's folder lacks files */
    TW_VIEW_DATA_WHOLE,
    TW_VIEW_DATA_UNUSABLE, /* the index of the dataset is invalid: see error */
};

enum tw_view_link {
    TW_VIEW_LINK_KNOWN,   /* in the member table, not linked */
    TW_VIEW_LINK_DIALING, /* connecting, or in the handshake */
    TW_VIEW_LINK_UP,      /* authenticated; no STATUS yet, or silent for too long */
    TW_VIEW_LINK_ALIVE,   /* a message was received within TW_PEER_SILENCE_US */
    TW_VIEW_LINK_REFUSED, /* wrong secret, run or id, or no common version: see `error` */
};

struct tw_view_peer {
    struct tw_id id;                /* zero: a bootstrap address whose node is not known yet */
    char addr[TW_ADDR_BYTES];       /* "" when only the peer dials */
    bool is_relayed;                /* the link runs through another member */
    bool is_punched;                /* both nodes dialled at the same time (hole punching) */
    bool is_mapped;                 /* the peer dialled the port at this node's router */
    char way[TW_VIEW_TEXT_BYTES];   /* is_relayed: why it is not direct; else "" */
    struct tw_id via;               /* is_relayed: the member that relays */
    char error[TW_VIEW_TEXT_BYTES]; /* why the last attempt failed; "": it did not */
    enum tw_view_link link;
    enum tw_node_state
        state; /* state in the last STATUS of the peer; only meaningful if one was received */
    enum tw_node_role role;    /* in that STATUS */
    struct tw_id lineage, tip; /* in that STATUS; tip: digest of its newest committed record */
    bool is_member;            /* listed in this node's roster */
    bool same_lineage;
    uint64_t rtt_us;               /* TW_VIEW_NEVER: not measured */
    uint64_t up_bytes, down_bytes; /* of the control and the bulk connection */
    uint64_t step, tokens;
    uint32_t tokens_per_s;
    uint64_t rounds;
    double token_share;        /* the peer's tokens divided by the run's; NaN: not known */
    uint64_t last_mixed_round; /* newest round of this node with its contribution; TW_VIEW_NEVER */
    uint64_t heard_us;         /* age of the peer's last message; TW_VIEW_NEVER */
    char stall[TW_VIEW_TEXT_BYTES];   /* why rounds do not wait for the peer; "": they do */
    char strike[TW_VIEW_TEXT_BYTES];  /* why the peer owns no part; "": it may own parts */
    char refused[TW_VIEW_TEXT_BYTES]; /* why this node does not merge the peer's work; or "" */
    uint64_t in_bytes_s;              /* rate at which the peer's payloads arrive; 0: not known */
    uint64_t out_bytes_s;             /* rate of the path to the peer; 0: not known */
    double loss, reliability;         /* lost segments; time linked; ratios, NaN: not known */
    char refuses[TW_VIEW_TEXT_BYTES]; /* why the peer does not merge this node's work; or "" */
    char twin[TW_VIEW_TEXT_BYTES];    /* another machine with the peer's key; "": none */
    char anomaly[TW_VIEW_TEXT_BYTES]; /* why the link is an outlier, with numbers; or "" */
};

/* A configured address and the node behind it. */
struct tw_view_bootstrap {
    char address[TW_ADDR_BYTES];
    struct tw_id id;        /* node at the address; zero: not known yet */
    enum tw_view_link link; /* UP also when the link uses another address */
    enum tw_dial_cause cause;
    char error[TW_VIEW_TEXT_BYTES]; /* why the last dial failed; "": it did not */
    uint32_t failures;              /* failed dials in a row */
    uint64_t failed_us;             /* age of the last failure; TW_VIEW_NEVER */
};

struct tw_view_round {
    uint64_t round;
    uint32_t fragment;
    uint32_t contributors, roster; /* listed in the round record; members at that time */
    uint64_t bytes;                /* payload bytes sent and received for the round */
    uint64_t took_us;              /* from encoding to commit, on this node */
    uint64_t age_us;
    bool is_ours; /* the round record lists this node */
    bool is_solo;
    struct tw_id partner; /* in pairs: the node merged with; zero: alone */
};

struct tw_view_event {
    uint64_t id;      /* 1 for the first event since the start of the daemon, then one more each */
    uint64_t unix_us; /* wall clock when it was added */
    uint64_t age_us;
    bool is_warning;               /* a person may have to act */
    char name[32];                 /* name of the event in the log, such as "worker_died" */
    char text[TW_VIEW_TEXT_BYTES]; /* one sentence */
};

/* A node that broke the protocol and may not link for a while. */
struct tw_view_ban {
    struct tw_id id;
    uint64_t left_s;
};

/* A key that two machines have. */
struct tw_view_twin {
    struct tw_id id;
    bool is_self;                /* the key of this node */
    char address[TW_ADDR_BYTES]; /* address of the machine that has no link to this node; or "" */
    char linked[TW_ADDR_BYTES];  /* address of the linked machine; "": none is linked */
};

struct tw_view_loss {
    uint64_t step;
    float train, live, anchor; /* nats per token; NaN: not measured */
};

/* State of the worker's GPU, read from its driver; 0: not known. */
struct tw_view_gpu {
    bool is_seen; /* read within the last seconds; otherwise the rest is undefined */
    uint32_t temperature_c, load_percent;
    double power_w, power_max_w;
    uint64_t memory_used_bytes, memory_bytes;
};

/* Why training is paused. It goes on when no reason holds any more. */
struct tw_view_pause {
    bool is_by_user, is_by_hours, is_by_owner; /* owner: of the machine */
    bool is_by_run;                            /* the owner of the run pauses all nodes */
    bool is_memory_back;    /* the worker has ended, so that its memory is free */
    uint32_t until_min;     /* is_by_hours: minute of the day of its end; 1440: never */
    uint32_t yield_percent; /* threshold of worker.yield; 0: off */
    uint64_t quiet_us;      /* is_by_owner: time until it ends if others leave the machine alone */
    uint64_t age_us;        /* TW_VIEW_NEVER: no pause */
    double others;          /* share of all processors that others use; NaN: not measured */
};

/* Signs of bad merging, with the values of the last look. */
struct tw_view_health {
    bool has[TW_FINDINGS];
    uint64_t rounds, refused; /* rounds since the look before; those in which work was refused */
    struct tw_id refused_by;  /* the owner that refused last; zero: none yet */
    float distance, distance_most, live, live_least;
    uint64_t open_us, open_round;
    uint64_t seatless_us; /* for how long this node has asked for a seat; 0: it has one, or does not
                             ask */
    uint64_t differed, differed_round; /* times that this node's anchor differed; the last round */
    uint32_t members,
        members_here; /* members of the roster; those that are linked to this node, itself included
                       */
};

/* Values that the user's program measured last. */
struct tw_view_scores {
    uint32_t every_rounds;          /* rounds between two evaluations; 0: there is no program */
    bool is_running;                /* the program runs now */
    uint64_t rounds, step;          /* of the evaluated checkpoint */
    uint64_t age_us, took_us;       /* TW_VIEW_NEVER: none ended well yet */
    struct tw_scores scores;        /* none before that */
    char error[TW_VIEW_TEXT_BYTES]; /* fault of the last program; "": none */
};

struct tw_status_view {
    struct {
        struct tw_id id;
        char name[64];
        char version[24];
        uint64_t uptime_us;
        uint32_t boot;                     /* number of starts of this node */
        uint64_t unix_us, started_unix_us; /* wall clock of the fill, and of the start */
        enum tw_node_state state;
        enum tw_node_role role;
        bool is_leaving;      /* saving and saying goodbye */
        bool links;           /* false: network.links = off */
        uint64_t loop_lag_us; /* longest turn of the loop within the last minute */
    } node;

    struct {
        struct tw_id id;
        char name[64];
        struct tw_id lineage, tip; /* tip: digest of the newest committed record; zero: none */
        uint64_t clock_tokens, budget_tokens;
        uint64_t eta_us; /* until the token budget is used up; TW_VIEW_NEVER */
        uint32_t fragments_count;
        uint64_t fragment_versions[TW_FRAGMENTS_MAX]; /* rounds applied to each (phi, u) */
        uint64_t params;
        bool is_any_model;  /* a run of any model: the worker is a trainer of the user's own */
        uint64_t period_us; /* mean time between two rounds; TW_VIEW_NEVER */
    } run;

    struct {
        uint64_t step, tokens;
        uint64_t stop_step;  /* 0: none */
        double tokens_per_s; /* mean speed over the last minute */
        double flops_s;      /* arithmetic of the inner steps at that speed */
        double mfu;          /* model FLOPs utilisation: flops_s to the measured peak */
        float loss;          /* training loss, smoothed, nats per token */
        float lr, grad_norm;
        float loss_live, loss_anchor; /* held-out loss at eval_step, nats per token */
        uint64_t eval_step;
        struct tw_wmsg_sample sample; /* untrusted text; empty: none yet */
        bool is_anchor_bad;           /* merging hurts the anchor: merge_health.h */
        float distance;               /* ||theta - phi|| / ||phi||, a ratio */
        double token_share;           /* this node's tokens divided by the run's tokens */
        uint64_t steps_skipped;       /* steps whose gradients were not finite */
        double utilisation;        /* fraction of the time since the start spent in inner steps */
        double utilisation_minute; /* fraction of the last minute spent in inner steps */
        uint32_t losses_count;
        struct tw_view_loss losses[TW_VIEW_LOSSES_MAX]; /* oldest first, evenly spaced in steps */
    } train;

    struct tw_view_health health;

    struct {
        uint32_t roster_count;     /* members of the roster, this node included */
        uint32_t members_max;      /* sync.members of the manifest */
        bool is_shut_out;          /* this node asks to join and the roster is full */
        uint32_t known;            /* peers in the member table */
        uint32_t alive;            /* peers that send messages */
        uint32_t mixed;            /* peers whose contributions were merged lately */
        uint64_t rounds_committed; /* rounds of the present lineage */
        uint64_t rounds_contributed, rounds_missed;
        uint64_t lineage_changes;
        uint64_t audits;                /* merges of other owners that this node checked */
        uint64_t contributions_refused; /* contributions too large to be merged in own parts */
        enum tw_topology topology;
        /* in pairs: own rounds by outcome, and requests that this node declined */
        uint64_t pairs_merged, pairs_alone, pairs_one_sided, pairs_refused;
        uint64_t pairs_struck;   /* partners struck for their payloads */
        struct tw_id partner;    /* last partner; zero: none yet */
        uint64_t partner_age_us; /* time since that merge; TW_VIEW_NEVER: none yet */
        float
            partner_distance; /* ||phi_theirs - phi|| / ||phi|| at the last merge; NaN: none yet */
    } sync;

    struct {
        char listen[TW_ADDRS_MAX]
                   [TW_ADDR_BYTES]; /* addresses listened on, as bound; "" after the last */
        uint64_t control_in_bytes, control_out_bytes; /* bytes at the sockets, by connection */
        uint64_t bulk_in_bytes, bulk_out_bytes;
        uint64_t payload_in_bytes, payload_out_bytes; /* payload chunks */
        uint64_t payload_again_bytes;                 /* payload chunks received twice */
        double in_bytes_per_s, out_bytes_per_s; /* rates at the sockets over the last minute */
        uint64_t upload_cap_bytes_s;            /* 0: none */
        enum tw_link_pace_mode pace;
        char congestion[16]; /* congestion control of the bulk connections: its name, "mixed", or ""
                                without one */
        uint64_t path_bytes_per_s;                 /* the fastest measured path; 0: none yet */
        uint64_t pace_bytes_per_s;                 /* pacing limit of that path; 0: none */
        uint32_t bootstrap_count, bootstrap_alive; /* configured addresses; those with a link */
        uint64_t links_refused;
        uint32_t banned; /* rows of bans[] */
        uint64_t pool_bytes, pool_used_bytes;
        enum tw_reachability_state reach_state;          /* whether other nodes can dial this one */
        char reach_text[TW_REACHABILITY_SENTENCE_BYTES]; /* explanation, with the port to open */
        uint64_t reach_age_us; /* age of the newest answer; TW_VIEW_NEVER: no peer has tried */
        const char
            *mapping_state; /* state of the port at the router: tw_port_mapping_name; NULL: none */
        const char *mapping_by;                    /* "NAT-PMP", "PCP", "UPnP" or "" */
        char mapping_address[TW_ADDR_BYTES];       /* address at the router; "": not mapped */
        char mapping_text[TW_PORT_SENTENCE_BYTES]; /* explanation, with the way out */
        uint64_t mapping_renewals;
        const char *nat;                       /* kind of NAT: tw_nat_kind_name; NULL: not known */
        char nat_text[TW_NAT_SENTENCE_BYTES];  /* explanation, with the way out */
        uint64_t punch_tries, punch_successes; /* relayed links punched since the start */
        uint32_t reach_count;
        struct tw_reachability_row
            reach[TW_REACHABILITY_ROWS_MAX]; /* results of the peers that dialled this node */
    } net;

    struct {
        bool is_on;           /* this node carries links of others */
        uint64_t cap_bytes_s; /* cap in force; 0: none of its own */
        uint32_t pipes;       /* connections carried now */
        uint64_t bytes, calls_refused;
        uint64_t own_calls, own_calls_failed; /* calls of this node through others */
    } relay;

    struct { /* all zero unless the run has an owner */
        bool has_owner;
        bool is_admitter;               /* this node may sign certificates */
        bool is_renewed;                /* the certificate was signed by a member, not the owner */
        bool is_late;                   /* the certificate ends soon and was not renewed */
        uint64_t until_s;               /* end of the certificate, Unix time */
        uint64_t left_s;                /* seconds until then; 0: it has ended */
        uint64_t list;                  /* version of the revocation list; 0: none yet */
        uint32_t revoked;               /* nodes on the list */
        uint64_t recall;                /* number of the owner's newest recall; 0: none yet */
        bool is_waiting;                /* for the state that the recall names */
        char error[TW_VIEW_TEXT_BYTES]; /* why other nodes would not admit this one; "": they would
                                         */
    } admission;

    struct {
        uint64_t upload_bytes_s, download_bytes_s; /* caps in force; 0: none */
        bool has_limit;                            /* `thinwire limit` set a cap */
        bool has_hours, is_hour_off; /* network.hours is set; the present hour is off */
        uint64_t hours_bytes_s;      /* rate of this hour; 0: none of its own */
        uint32_t until_min;   /* minute of the day when the schedule changes next; 1440: never */
        uint64_t quota_bytes; /* quota of the month; 0: none */
        uint64_t month_bytes; /* bytes of the month, both directions, without strangers_bytes */
        /* Bytes of nodes that dialled this one and proved no right to be in the run, since the
         * start. */
        uint64_t strangers_bytes;
        char month_end[16];  /* first day of the next month, "2026-12-01" */
        const char *resting; /* why the links rest: "none", "pause", "hours", "quota" */
    } caps;

    struct {
        uint32_t rungs_count; /* 0 unless sync.codec = auto and a contribution was sent */
        struct {
            char name[16];
            double share; /* fraction of the elements contributed lately with this codec */
        } rungs[TW_VIEW_RUNGS_MAX];
        double bits;               /* bits per element contributed lately; NaN: none yet */
        double budget_bytes_per_s; /* 0: no budget */
        bool is_month; /* true: budget of upload and download over 30 days; false: of upload */
        double used_bytes_per_s;  /* traffic in the budget's directions, over the last minute */
        double rest_bytes_per_s;  /* part of that which is not contributions; NaN: no budget */
        uint64_t rounds_left_out; /* rounds without a contribution because of the budget */
        bool is_left_out;         /* the present round is left out because of the budget */
        bool is_hopeless;         /* rest_bytes_per_s alone exceeds the budget */
    } spend;

    struct {
        enum tw_view_data state;
        bool is_any;     /* each node brings its own text */
        bool is_fetched; /* fetched from peers into a folder of the daemon */
        char path[TW_VIEW_TEXT_BYTES];
        char text[TW_VIEW_TEXT_BYTES];  /* progress while waiting: "3 of 65 chunks ..." */
        char error[TW_VIEW_TEXT_BYTES]; /* error of the disk or the index; "": none */
        uint32_t files, files_whole; /* files of the dataset, and complete ones; 0: no index yet */
        uint32_t train_whole;        /* whole training shards */
        uint64_t bytes, bytes_here;  /* size of the dataset; bytes in the folder */
        uint32_t chunks_here, chunks_count; /* chunks of the file being fetched: stored; all */
        double in_bytes_per_s;              /* over the last ten seconds */
        uint64_t eta_us;         /* time until the dataset is whole; TW_VIEW_NEVER: not known */
        uint32_t donors, takers; /* peers that gave chunks lately; peers being served */
        uint64_t in_bytes, out_bytes; /* dataset bytes received and sent */
        uint64_t chunks_refused;      /* chunks with a wrong hash */
    } data;

    struct tw_view_pause pause;

    struct {
        enum tw_view_worker state;
        uint32_t pid;      /* 0: none */
        uint32_t restarts; /* deaths of workers */
        char device[64];
        char engine[96];                /* engine of the worker; "" before it is ready */
        uint64_t memory_bytes;          /* memory of the engine; 0: not known */
        char error[TW_VIEW_TEXT_BYTES]; /* cause of the worker's last death; "": none */
        bool is_device_fault;           /* a fault of the compute device caused that death */
        uint64_t snapshot_step;         /* TW_VIEW_NEVER */
        uint64_t heartbeat_us;          /* age of its last heartbeat; TW_VIEW_NEVER */
        struct tw_view_gpu gpu;
    } worker;

    struct {
        uint64_t step;   /* step of the newest checkpoint; TW_VIEW_NEVER: none yet */
        uint64_t rounds; /* its committed rounds; TW_VIEW_NEVER: it has no position */
        uint64_t age_us; /* TW_VIEW_NEVER */
        uint64_t bytes;
        char error[TW_VIEW_TEXT_BYTES];      /* why the last checkpoint failed; "" */
        char vote_error[TW_VIEW_TEXT_BYTES]; /* why the newest vote is not saved; "" */
    } checkpoint;

    struct tw_view_scores scores;

    uint32_t bootstrap_count, peers_count, rounds_count, events_count, twins_count;
    struct tw_view_bootstrap bootstrap[TW_VIEW_BOOTSTRAP_MAX];
    struct tw_view_peer peers[TW_VIEW_PEERS_MAX];
    struct tw_view_round rounds[TW_VIEW_ROUNDS_MAX]; /* newest first */
    struct tw_view_event events[TW_VIEW_EVENTS_MAX]; /* newest first */
    struct tw_view_ban bans[TW_BANS_MAX];            /* (net.banned) */
    struct tw_view_twin twins[TW_VIEW_TWINS_MAX];
    uint32_t attacks_count;
    struct tw_attack attacks[TW_ATTACKS_MAX]; /* recent ones, newest first */
};

/* Sets values that may be unmeasured to NaN or TW_VIEW_NEVER, all others to zero. */
void tw_status_view_init(struct tw_status_view *view);

/* "solo", "receiver", "member", "finished", or "worker_failed" which overrides the other states. */
const char *tw_status_view_state(const struct tw_status_view *view);
const char *tw_view_state_name(enum tw_node_state state);
/* As in [node] of the configuration. */
const char *tw_view_role_name(enum tw_node_role role);
const char *tw_view_worker_name(enum tw_view_worker worker);
const char *tw_view_link_name(enum tw_view_link link);
const char *tw_view_pace_name(enum tw_link_pace_mode mode);
const char *tw_view_topology_name(enum tw_topology topology);
const char *tw_view_data_name(enum tw_view_data data);

enum { TW_VIEW_TIME_BYTES = 32 };

/* "2026-01-31T12:00:00.000Z", of microseconds since 1970. */
const char *tw_view_time(uint64_t unix_us, char text[TW_VIEW_TIME_BYTES]);

/* Model FLOPs utilisation, at most 1. The speed is sampled in whole seconds and may count a step
 * too many, hence the bound. NaN when the peak is 0 (not known). */
double tw_view_mfu(double flops_s, uint64_t peak_flops_s);

/* The peak after `flops` of steps took `took_us`. Matrix products are timed before training,
 * perhaps on a busy processor, so faster steps raise the peak. 0 (not measured) stays 0. */
uint64_t tw_view_peak(uint64_t peak_flops_s, uint64_t flops, uint64_t took_us);

/* ---- kept between two fills ------------------------------------------------ */

/* The last TW_VIEW_EVENTS_MAX events. All zero is empty. */
struct tw_event_ring {
    uint64_t added;
    struct tw_view_event events[TW_VIEW_EVENTS_MAX]; /* age_us: the time when it was added */
};

/* `unix_us`: the wall clock at now_us. */
void tw_event_ring_add(struct tw_event_ring *ring, uint64_t now_us, uint64_t unix_us,
                       bool is_warning, const char *name, const char *fmt, ...) TW_PRINTF(6, 7);
void tw_event_ring_fill(const struct tw_event_ring *ring, uint64_t now_us,
                        struct tw_status_view *view);

/* The last TW_VIEW_ROUNDS_MAX rounds. All zero is empty. */
struct tw_round_ring {
    uint64_t added;
    struct tw_view_round rounds[TW_VIEW_ROUNDS_MAX]; /* age_us: the time when it was added */
};

/* `round->age_us` is ignored. */
void tw_round_ring_add(struct tw_round_ring *ring, uint64_t now_us,
                       const struct tw_view_round *round);
/* Sets the partner of the newest round. */
void tw_round_ring_pair(struct tw_round_ring *ring, const struct tw_id *partner);
void tw_round_ring_fill(const struct tw_round_ring *ring, uint64_t now_us,
                        struct tw_status_view *view);

#endif
