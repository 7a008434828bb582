/* status_view.h - the state of a node for people and scrapers, as one plain struct. The runtime
 * (daemon/node) fills it, the API writes it as JSON and Prometheus text, and the CLI draws it.
 *
 * A copy is a snapshot: its pointers point only to string constants. An unmeasured float is NaN and
 * an unknown time is TW_VIEW_NEVER; both are `null` in JSON. Ages are relative to the moment of the
 * fill. Bytes and events are counted since the start of the process. */
#ifndef TW_DAEMON_API_STATUS_VIEW_H
#define TW_DAEMON_API_STATUS_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/api/health.h"
#include "daemon/api/known_peers.h"
#include "daemon/api/scores.h"
#include "daemon/net/dial.h"
#include "daemon/net/pacer.h"
#include "daemon/net/reachability.h"
#include "daemon/router/port_mapping.h"
#include "daemon/router/punch_plan.h"
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
#define TW_VIEW_NO_CLOCK INT64_MIN

enum tw_view_worker {
    TW_VIEW_WORKER_ABSENT,   /* no worker is attached; systemd or the user must start one */
    TW_VIEW_WORKER_WAITING,  /* no training data yet: see `data` */
    TW_VIEW_WORKER_STARTING, /* started or attached, but no step yet */
    TW_VIEW_WORKER_LOADING,  /* does not train yet: looks for the run's state, or fetches it */
    TW_VIEW_WORKER_RUNNING,
    TW_VIEW_WORKER_PAUSED,     /* see `pause` */
    TW_VIEW_WORKER_RESTARTING, /* died; the next one starts after a delay */
    TW_VIEW_WORKER_FAILED,     /* given up after several deaths without progress */
    TW_VIEW_WORKER_FINISHED,   /* the token budget or stop_step is reached */
};

enum tw_view_data {
    TW_VIEW_DATA_TEXT,     /* a local text: nothing is fetched or served */
    TW_VIEW_DATA_TRAINER,  /* the user's own trainer brings the data: a run of any model */
    TW_VIEW_DATA_WAITING,  /* no complete training shard of the dataset yet */
    TW_VIEW_DATA_FETCHING, /* training on the local shards while others are being fetched */
    TW_VIEW_DATA_PARTIAL,  /* the user's own folder lacks files of the dataset */
    TW_VIEW_DATA_WHOLE,
    TW_VIEW_DATA_UNUSABLE, /* the index of the dataset is invalid: see `error` */
};

enum tw_view_link {
    TW_VIEW_LINK_KNOWN,   /* in the member table, not linked */
    TW_VIEW_LINK_DIALING, /* connecting, or in the handshake */
    TW_VIEW_LINK_UP,      /* authenticated, but no STATUS yet or silent for too long */
    TW_VIEW_LINK_ALIVE,   /* a message was received within TW_PEER_SILENCE_US */
    TW_VIEW_LINK_REFUSED, /* wrong secret, run or id, or no common version: see `error` */
    TW_VIEW_LINK_LEFT,    /* the last four: of nodes that were linked (known_peers.h) */
    TW_VIEW_LINK_PAUSED,
    TW_VIEW_LINK_AWAY,
    TW_VIEW_LINK_GONE,
};

struct tw_view_peer {
    struct tw_id id;                 /* zero while the node behind a bootstrap address is unknown */
    char name[TW_KNOWN_LABEL_BYTES]; /* name of the node, unique among the peers; "": none */
    uint64_t absent_us;              /* time without a link; TW_VIEW_NEVER: never linked */
    char said[TW_KNOWN_SAID_BYTES];  /* reason that an absent peer gave; "": none */
    bool has_merged;                 /* work of the peer was merged here */
    bool is_shut_out;                /* the owner of the run has revoked the peer */
    char addr[TW_ADDR_BYTES]; /* address at which the peer is dialled; "": only the peer dials */
    bool is_relayed;          /* the link runs through another member */
    bool is_punched;          /* both nodes dialled at the same time (hole punching) */
    bool is_mapped;           /* the peer dialled the port that this node mapped at its router */
    char way[TW_VIEW_TEXT_BYTES];   /* why a relayed link is not direct; "": it is not relayed */
    struct tw_id via;               /* member that relays the link */
    char error[TW_VIEW_TEXT_BYTES]; /* why the last dial failed; "": it succeeded */
    enum tw_view_link link;
    enum tw_node_state
        state; /* peer's state in its last STATUS; meaningless before the first one */
    struct tw_id lineage, tip; /* from that STATUS; tip: digest of its newest committed record */
    enum tw_node_role role;    /* role in that STATUS */
    bool is_member;            /* listed in this node's roster */
    bool waits_for_room;       /* its disk cannot store the data without which it does not train */
    uint64_t gives_none_us; /* for so long it gives this node no more state or data; 0: it gives */
    uint64_t gets_none_us;  /* for so long this node gives it no more of them; 0: it gets some */
    bool is_voter;          /* listed there with a vote */
    bool same_lineage;
    uint64_t rtt_us;               /* TW_VIEW_NEVER: not measured */
    uint64_t up_bytes, down_bytes; /* bytes on the control and bulk connections together */
    uint64_t step, tokens;
    uint32_t tokens_per_s;
    uint64_t rounds;
    double token_share;               /* the peer's tokens divided by the run's; NaN: not known */
    double clock_share;               /* fraction of the run clock's newest advance that the peer's
                                         contributions made; NaN: not known */
    uint64_t last_mixed_round;        /* newest round merged here with the peer's contribution;
                                         TW_VIEW_NEVER: none */
    uint64_t heard_us;                /* age of the peer's last message; TW_VIEW_NEVER: none */
    char stall[TW_VIEW_TEXT_BYTES];   /* why rounds do not wait for the peer; "": they do */
    char strike[TW_VIEW_TEXT_BYTES];  /* why the peer owns no part; "": it may own parts */
    char refused[TW_VIEW_TEXT_BYTES]; /* why this node rejects the peer's work; "": it does not */
    uint32_t merges, large_merges;    /* of its work in parts of this node's, the newest few; of
                                         them those that scaled it down */
    char large[TW_VIEW_TEXT_BYTES];   /* how much larger its work is than others'; "": it is not */
    uint64_t in_bytes_s;              /* rate at which the peer's payloads arrive; 0: not known */
    uint64_t out_bytes_s;             /* rate of the path to the peer; 0: not known */
    int64_t ahead_s; /* by which the peer's wall clock is ahead of this node's; TW_VIEW_NO_CLOCK:
                        not known */
    double loss, reliability;         /* fraction of segments lost; fraction of time linked; NaN:
                                         not known */
    char refuses[TW_VIEW_TEXT_BYTES]; /* why the peer rejects this node's work; "": it does not */
    char twin[TW_VIEW_TEXT_BYTES];    /* another machine that uses the peer's key; "": none */
    char clock_note[TW_VIEW_TEXT_BYTES]; /* how much of the clock it moves; "": no unusual share */
    char anomaly[TW_VIEW_TEXT_BYTES]; /* why the link is an outlier, with numbers; "": it is not */
};

/* One configured address and the node behind it. */
struct tw_view_bootstrap {
    char address[TW_ADDR_BYTES];
    struct tw_id id;        /* node at the address; zero: not known yet */
    enum tw_view_link link; /* link to that node, even by another address */
    enum tw_dial_cause cause;
    char error[TW_VIEW_TEXT_BYTES]; /* why the last dial failed; "": it succeeded */
    uint32_t failures;              /* consecutive failed dials */
    uint64_t failed_us;             /* age of the last failure; TW_VIEW_NEVER: none */
};

struct tw_view_round {
    uint64_t round;
    uint32_t fragment;
    uint32_t contributors, roster; /* nodes listed in the round record; members at that time */
    uint64_t bytes;                /* payload bytes sent and received for the round */
    uint64_t took_us;              /* time from encoding to commit on this node */
    uint64_t age_us;
    bool is_ours; /* the round record lists this node */
    bool is_solo;
    struct tw_id partner; /* node merged with, in pairs; zero: the node merged alone */
};

struct tw_view_event {
    uint64_t id;      /* number of the event since the daemon started, from 1 */
    uint64_t unix_us; /* wall-clock time of the event */
    uint64_t age_us;
    bool is_warning;               /* a person may have to act */
    char name[32];                 /* name of the event in the log, such as "worker_died" */
    char text[TW_VIEW_TEXT_BYTES]; /* one sentence */
};

/* A node that broke the protocol and is refused links until the ban ends. */
struct tw_view_ban {
    struct tw_id id;
    uint64_t left_s;
};

/* A key that two machines use. */
struct tw_view_twin {
    struct tw_id id;
    bool is_self;                /* the key is this node's own */
    char address[TW_ADDR_BYTES]; /* address of the machine that has no link to this node; "": not
                                    known */
    char linked[TW_ADDR_BYTES];  /* address of the linked machine; "": none is linked */
};

struct tw_view_loss {
    uint64_t step;
    float train, live, anchor; /* losses in nats per token; NaN: not measured */
};

/* State of the worker's GPU, read from its driver; 0: not known. */
struct tw_view_gpu {
    bool is_seen; /* read within the last seconds; otherwise the rest is undefined */
    uint32_t temperature_c, load_percent;
    double power_w, power_max_w;
    uint64_t memory_used_bytes, memory_bytes;
};

/* Why training is paused. Training resumes when no reason is left. */
struct tw_view_pause {
    bool is_by_user, is_by_hours, is_by_owner; /* is_by_owner: the machine's owner is using it */
    bool is_by_run;                            /* the run's owner paused all nodes */
    bool is_memory_back;                       /* the worker has exited, which freed its memory */
    uint32_t until_min;     /* minute of the day at which is_by_hours ends; 1440: never */
    uint32_t yield_percent; /* threshold of worker.yield; 0: off */
    uint64_t quiet_us;      /* time until is_by_owner ends if the machine stays quiet */
    uint64_t age_us;        /* time since the pause began; TW_VIEW_NEVER: no pause */
    /* fractions of all CPUs and of the GPU that other programs use; NaN: not measured */
    double others_cpu, others_gpu;
    bool is_gpu; /* is_by_owner for the sake of the GPU */
};

/* Transfers before which a node has no numbers of the run. */
struct tw_view_join {
    enum tw_view_join_phase {
        TW_VIEW_JOIN_NONE,
        TW_VIEW_JOIN_DATA,  /* the index of the dataset and the first shard */
        TW_VIEW_JOIN_STATE, /* anchor and momentum */
        TW_VIEW_JOIN_SEAT,  /* the state is here; the next round gives a seat */
    } phase;
    bool is_return;             /* this node was a member before, and catches up */
    uint64_t bytes, bytes_here; /* estimated size; 0: not known yet */
    double bytes_per_s;         /* over the last ten seconds; NaN: not known */
    uint64_t eta_us;            /* TW_VIEW_NEVER: not known */
};

/* Signs of bad merging, with the values at the last evaluation. */
struct tw_view_health {
    bool has[TW_FINDINGS];
    uint64_t rounds, refused; /* rounds since the evaluation before; those in which this node's work
                                 was refused */
    struct tw_id refused_by;  /* owner that refused most recently; zero: none yet */
    float distance, distance_most, live, live_least;
    uint64_t open_us, open_round;
    uint64_t seatless_us; /* time for which this node has asked for a seat; 0: it has one or does
                             not ask */
    uint64_t differed, differed_round; /* times that this node's anchor differed; the last such
                                          round */
    uint32_t members,
        members_here; /* members of the roster; members linked to this node, itself included */
};

/* Work of the run that a restart of its nodes lost. */
struct tw_view_lost {
    bool is_lost; /* lost within the last hour; otherwise the rest is undefined */
    bool is_anew; /* the run began anew: no node had a checkpoint */
    bool is_kept; /* the checkpoint of before is kept as the undone one, of `kept_rounds` rounds */
    uint64_t kept_rounds;
    uint64_t rounds_before,
        rounds; /* rounds before the restart; rounds from which the run goes on */
    uint64_t clock_before, tokens; /* run clock before the restart; tokens lost */
    uint64_t steps;                /* steps of this node since its checkpoint */
    uint64_t work_us;              /* time that the lost rounds took; TW_VIEW_NEVER: not known */
    uint64_t age_us;
};

/* Scores that the user's program printed last. */
struct tw_view_scores {
    uint32_t every_rounds;          /* rounds between two runs of the program; 0: there is no
                                       program */
    bool is_running;                /* the program runs now */
    uint64_t rounds, step;          /* rounds and step of the scored checkpoint */
    uint64_t age_us, took_us;       /* time since the scores, run time of the program;
                                       TW_VIEW_NEVER: no scores yet */
    struct tw_scores scores;        /* scores of the last successful run */
    char error[TW_VIEW_TEXT_BYTES]; /* fault of the last run of the program; "": none */
};

struct tw_status_view {
    struct {
        struct tw_id id;
        char name[64];
        char version[24];
        uint64_t uptime_us;
        uint32_t boot;                     /* times that this node has been started */
        uint64_t unix_us, started_unix_us; /* wall-clock times of the fill and of the start */
        enum tw_node_state state;
        enum tw_node_role role;
        bool is_leaving;      /* saving and saying goodbye */
        bool links;           /* links to other nodes are allowed (network.links) */
        uint64_t loop_lag_us; /* longest iteration of the event loop within the last minute */
    } node;

    struct {
        struct tw_id id;
        char name[64];
        struct tw_id lineage, tip; /* tip: digest of the newest committed record; zero: none */
        uint64_t clock_tokens, budget_tokens;
        double tokens_per_s; /* speed of all nodes together; NaN: not known */
        uint32_t others;     /* alive peers that train in this lineage */
        uint64_t eta_us;     /* time until the token budget is used up; TW_VIEW_NEVER: not known */
        uint32_t fragments_count;
        uint64_t fragment_versions[TW_FRAGMENTS_MAX]; /* all rounds below this are applied */
        uint64_t params;
        bool is_any_model;        /* a run of any model: the worker is the user's own trainer */
        uint64_t unmerged_tokens; /* tokens of this node since the newest round, if rounds are
                                     long overdue; 0 otherwise */
        uint64_t period_us;       /* mean time between two rounds; TW_VIEW_NEVER: not known */
    } run;

    struct {
        uint64_t step, tokens;
        uint64_t stop_step;  /* 0: none */
        double tokens_per_s; /* mean speed over the last minute */
        double flops_s;      /* FLOP/s of the inner steps at that speed */
        double mfu;          /* model FLOPs utilisation: flops_s / measured peak */
        float loss;          /* training loss, smoothed, nats per token */
        float lr, grad_norm;
        float loss_live, loss_anchor; /* held-out loss at eval_step, nats per token */
        uint64_t eval_step;
        uint64_t eval_age_us;         /* age of that measurement; TW_VIEW_NEVER: none */
        struct tw_wmsg_sample sample; /* untrusted sample text; empty: none yet */
        bool is_anchor_bad;           /* merging hurts the anchor (health.h) */
        float distance;               /* ||theta - phi|| / ||phi||, a ratio */
        double token_share;           /* this node's tokens divided by the run's tokens */
        uint64_t steps_skipped;       /* steps whose gradients were not finite */
        double utilisation;        /* fraction of the time since the start spent in inner steps */
        double utilisation_minute; /* fraction of the last minute spent in inner steps */
        uint32_t losses_count;
        struct tw_view_loss losses[TW_VIEW_LOSSES_MAX]; /* losses, oldest first, evenly spaced in
                                                           steps */
    } train;

    struct tw_view_health health;

    struct {
        uint32_t roster_count;     /* members of the roster, including this node */
        uint32_t voters;           /* members of the roster with a vote */
        uint32_t vote_merges;      /* rounds until this node votes; 0: it votes, or has no seat */
        uint32_t voters_alive;     /* peers that may vote, and send messages */
        uint32_t members_max;      /* sync.members of the manifest */
        bool is_shut_out;          /* this node asks to join, but the roster is full */
        uint32_t known;            /* peers in the member table */
        uint32_t alive;            /* peers that send messages */
        uint32_t mixed;            /* peers whose contributions were merged recently */
        uint64_t alone_us;         /* time without any link, once this node has merged with others;
                                      TW_VIEW_NEVER: it has links, or never merged */
        uint64_t rounds_committed; /* committed rounds of the current lineage */
        uint64_t rounds_contributed, rounds_missed;
        uint64_t rounds_given; /* rounds with this node's work, earlier processes included */
        uint64_t lineage_changes;
        uint64_t audits;                /* merges of other owners that this node audited */
        uint64_t checks;                /* contributions whose training this node checked */
        uint64_t contributions_refused; /* contributions that this node, as owner, found too large
                                           to merge */
        enum tw_topology topology;
        /* in pairs: this node's rounds by outcome, and requests that it declined */
        uint64_t pairs_merged, pairs_alone, pairs_one_sided, pairs_refused;
        uint64_t pairs_struck;   /* partners that got a strike because of their payloads */
        struct tw_id partner;    /* last partner; zero: none yet */
        uint64_t partner_age_us; /* time since the merge with `partner`; TW_VIEW_NEVER: none yet */
        float
            partner_distance; /* ||phi_theirs - phi|| / ||phi|| at the last merge; NaN: none yet */
        uint64_t dropped[TW_DROPS_COUNT]; /* messages without effect, by reason: sync/node.h */
    } sync;

    struct {
        char listen[TW_ADDRS_MAX][TW_ADDR_BYTES]; /* addresses listened on, with the actual ports;
                                                     "" after the last */
        uint64_t control_in_bytes, control_out_bytes; /* bytes sent and received at the sockets, by
                                                         connection */
        uint64_t bulk_in_bytes, bulk_out_bytes;
        uint64_t payload_in_bytes, payload_out_bytes; /* bytes of payload chunks */
        uint64_t payload_again_bytes;                 /* bytes of payload chunks received twice */
        double in_bytes_per_s, out_bytes_per_s; /* rates at the sockets over the last minute */
        uint64_t upload_cap_bytes_s;            /* 0: none */
        enum tw_link_pace_mode pace;
        char congestion[16]; /* name of the bulk connections' congestion control; "mixed"; "": no
                                bulk connection */
        uint64_t path_bytes_per_s; /* rate of the fastest measured path; 0: none yet */
        uint64_t pace_bytes_per_s; /* pacing limit of that path; 0: none */
        uint32_t bootstrap_count, bootstrap_alive; /* configured addresses; those of them with a
                                                      link */
        bool is_offline;                           /* a dial failed as this machine has no line */
        uint64_t links_refused;
        uint64_t stale_addresses; /* addresses dropped because another node has them now */
        uint64_t open_us;         /* time for which links have been allowed */
        uint32_t banned;          /* rows of bans[] */
        uint64_t pool_bytes, pool_used_bytes;
        enum tw_reachability_state reach_state;          /* whether other nodes can dial this one */
        char reach_text[TW_REACHABILITY_SENTENCE_BYTES]; /* explanation of reach_state, with the
                                                            port to open */
        uint64_t reach_age_us;     /* age of the newest answer; TW_VIEW_NEVER: no peer has tried */
        const char *mapping_state; /* state of the port mapping at the router: tw_port_mapping_name;
                                      NULL: none */
        const char *mapping_by;    /* protocol of the mapping: "NAT-PMP", "PCP",
                                      "UPnP" or "" */
        char mapping_address[TW_ADDR_BYTES]; /* mapped address at the router; "": not mapped */
        char mapping_text[TW_PORT_SENTENCE_BYTES]; /* explanation of mapping_state, with advice */
        uint64_t mapping_renewals;
        const char *nat;                       /* kind of NAT: tw_nat_kind_name; NULL: not known */
        char nat_text[TW_NAT_SENTENCE_BYTES];  /* explanation of `nat`, with advice */
        uint64_t punch_tries, punch_successes; /* attempts to punch a direct path for a relayed
                                                  link; successes */
        uint32_t reach_count;
        struct tw_reachability_row
            reach[TW_REACHABILITY_ROWS_MAX]; /* results of the peers that dialled this node back */
    } net;

    struct {
        bool is_on;           /* this node relays links of other nodes */
        uint64_t cap_bytes_s; /* rate cap of relaying; 0: no separate cap */
        uint32_t pipes;       /* connections relayed now */
        uint64_t bytes, calls_refused;
        uint64_t pipes_cut;                   /* pipes ended as their nodes' budget was used up */
        uint64_t own_calls, own_calls_failed; /* relayed connections that this node requested;
                                                 failures */
    } relay;

    struct { /* all zero unless the run has an owner */
        bool has_owner;
        bool is_admitter; /* this node may sign certificates */
        bool has_vote;    /* this node may vote */
        bool is_renewed;  /* the certificate was renewed by a member rather than by
                             the owner */
        bool is_late;     /* the certificate expires soon and was not renewed */
        uint64_t until_s; /* expiry of the certificate, Unix time in seconds */
        uint64_t left_s;  /* seconds until the certificate expires; 0: it has expired */
        uint64_t list;    /* version of the revocation list; 0: none yet */
        uint32_t revoked; /* nodes on the list */
        uint64_t recall;  /* number of the owner's newest recall; 0: none yet */
        bool is_waiting;  /* this node waits for the state that the recall names */
        char error[TW_VIEW_TEXT_BYTES]; /* why other nodes would refuse this one; "": they would not
                                         */
    } admission;

    struct {
        uint64_t upload_bytes_s, download_bytes_s; /* rate caps in force; 0: none */
        bool has_limit;                            /* a cap was set with `thinwire limit` */
        bool has_hours, is_hour_off; /* network.hours is set; it allows no traffic now */
        uint64_t hours_bytes_s;      /* rate that network.hours sets for this hour; 0: none */
        uint32_t until_min; /* minute of the day at which network.hours changes next; 1440: never */
        uint64_t quota_bytes; /* monthly traffic quota; 0: none */
        uint64_t month_bytes; /* bytes sent and received this month, without strangers_bytes */
        /* Traffic since the start with nodes that dialled this one but proved no right to be in the
         * run. */
        uint64_t strangers_bytes;
        uint64_t strangers_refused; /* strangers without an answer, as their share was used up */
        char month_end[16];         /* first day of the next month, "2026-12-01" */
        const char *resting;        /* why links are suspended: "none", "pause", "hours", "quota" */
    } caps;

    struct {                    /* traffic for other nodes alone (daemon/config/serving.h) */
        uint64_t bytes;         /* since the start */
        uint64_t month_bytes;   /* in this month, if there is a quota */
        uint64_t outside_bytes; /* on this day (UTC), of nodes outside */
        /* Requests refused since the start, by the budget that had no room: the node's own, the one
         * of nodes outside, the half of the quota. */
        uint64_t refused_node, refused_outside, refused_half;
    } serving;

    struct {
        uint32_t rungs_count; /* rows of rungs[]; 0 unless sync.codec = auto and a contribution was
                                 sent */
        struct {
            char name[16];
            double share; /* fraction of recently contributed elements that used this codec */
        } rungs[TW_VIEW_RUNGS_MAX];
        double bits;               /* bits per recently contributed element; NaN: none yet */
        double budget_bytes_per_s; /* 0: no budget */
        bool is_month; /* the budget covers upload and download over 30 days, not upload alone */
        double used_bytes_per_s;  /* traffic that counts towards the budget, over the last minute */
        double rest_bytes_per_s;  /* part of used_bytes_per_s that is not contributions; NaN: no
                                     budget */
        uint64_t rounds_left_out; /* rounds without a contribution because of the budget */
        bool is_left_out;         /* the budget excludes a contribution to the current round */
        bool is_hopeless;         /* rest_bytes_per_s alone already exceeds the budget */
    } spend;

    struct {
        enum tw_view_data state;
        bool is_any;     /* each node brings its own text */
        bool is_fetched; /* fetched from peers into one of the daemon's folders */
        char path[TW_VIEW_TEXT_BYTES];
        char text[TW_VIEW_TEXT_BYTES];  /* progress while waiting: "3 of 65 chunks ..." */
        char error[TW_VIEW_TEXT_BYTES]; /* disk or index error; "": none */
        uint32_t files, files_whole;    /* files of the dataset; complete files; 0: no index yet */
        uint32_t train_whole;           /* complete training shards */
        uint64_t bytes, bytes_here;     /* size of the dataset; bytes of it in the folder */
        uint32_t chunks_here, chunks_count; /* chunks of the file being fetched: stored; in total */
        double in_bytes_per_s;              /* download rate over the last ten seconds */
        uint64_t eta_us;         /* time until the dataset is complete; TW_VIEW_NEVER: not known */
        uint32_t donors, takers; /* peers that sent chunks recently; peers being served */
        uint64_t in_bytes, out_bytes; /* dataset bytes received and sent */
        uint64_t chunks_refused;      /* chunks with a wrong hash */
    } data;

    struct tw_view_join join;
    struct tw_view_pause pause;

    struct {
        enum tw_view_worker state;
        uint32_t pid;      /* 0: none */
        uint32_t restarts; /* deaths of workers */
        char device[64];
        char engine[96];                /* engine of the worker; "" before it is ready */
        uint64_t memory_bytes;          /* memory used by the engine; 0: not known */
        bool is_service;                /* systemd starts it, and starts it again */
        char error[TW_VIEW_TEXT_BYTES]; /* cause of the worker's last death; "": none */
        bool is_device_fault;           /* a fault of the compute device caused that death */
        uint64_t snapshot_step;         /* step of the newest snapshot; TW_VIEW_NEVER: none */
        uint64_t heartbeat_us; /* age of the worker's last heartbeat; TW_VIEW_NEVER: none */
        uint64_t still_us;     /* time since the last step of a user's trainer that does something
                                  else between steps; TW_VIEW_NEVER: it does not */
        struct tw_view_gpu gpu;
    } worker;

    struct {
        uint64_t step;   /* step of the newest checkpoint; TW_VIEW_NEVER: none yet */
        uint64_t rounds; /* committed rounds in the checkpoint; TW_VIEW_NEVER: it has no position */
        uint64_t age_us; /* age of that checkpoint; TW_VIEW_NEVER: none */
        uint64_t bytes;
        uint64_t interval_us; /* time between checkpoints in force; 0: none are periodic */
        uint64_t wanted_us;   /* configured time; shorter if writing costs too much */
        bool is_room_short;   /* `error` is about the next one, for which there is no room */
        char error[TW_VIEW_TEXT_BYTES];      /* why the last checkpoint failed; "": it did not */
        char vote_error[TW_VIEW_TEXT_BYTES]; /* why the newest vote is not saved; "": it is */
    } checkpoint;
    struct tw_view_lost lost;

    struct { /* node.archive */
        bool is_on;
        uint64_t rounds, bytes;         /* written since the start */
        uint64_t lost;                  /* files left out: the disk failed, or was too slow */
        char error[TW_VIEW_TEXT_BYTES]; /* why the last file was not written; "": it was */
    } archive;

    struct tw_view_scores scores;

    uint32_t bootstrap_count, peers_count, rounds_count, events_count, twins_count;
    struct tw_view_bootstrap bootstrap[TW_VIEW_BOOTSTRAP_MAX];
    struct tw_view_peer peers[TW_VIEW_PEERS_MAX];
    struct tw_view_round rounds[TW_VIEW_ROUNDS_MAX]; /* newest first */
    struct tw_view_event events[TW_VIEW_EVENTS_MAX]; /* newest first */
    struct tw_view_ban bans[TW_BANS_MAX];            /* (net.banned) */
    struct tw_view_twin twins[TW_VIEW_TWINS_MAX];
    uint32_t attacks_count;
    struct tw_attack
        attacks[TW_ATTACKS_MAX]; /* recent attacks, in the order of tw_attacks_recent */
};

/* Sets values that may be unmeasured to NaN or TW_VIEW_NEVER, all others to zero. */
void tw_status_view_init(struct tw_status_view *view);

/* Returns the row of a peer, a new one if it has none yet or `id` is zero; NULL if the table is
 * full.
 */
struct tw_view_peer *tw_status_view_peer(struct tw_status_view *view, const struct tw_id *id);

enum { TW_VIEW_LABEL_BYTES = TW_KNOWN_LABEL_BYTES + 12 };

/* Writes how large a peer's work is: `large` of its last `merges` merges here found it so, the
 * newest at `tenths` of the usual size. */
void tw_view_large_text(uint32_t merges, uint32_t large, uint32_t tenths, char *text, size_t size);

/* Writes a peer's name with its short id, "barn (cb0ac6de)", or the id alone. Returns `label`. */
const char *tw_status_view_label(const struct tw_status_view *view, const struct tw_id *id,
                                 char label[TW_VIEW_LABEL_BYTES]);

/* Writes since when a peer is absent, "left 3 min ago"; "" for a peer that is linked or never was.
 * Returns `text`. */
const char *tw_view_absence(const struct tw_view_peer *peer, char text[TW_VIEW_TEXT_BYTES]);

/* Returns "solo", "receiver", "member", "finished" or "worker_failed". A failed worker takes
 * precedence over the other states. */
const char *tw_status_view_state(const struct tw_status_view *view);
const char *tw_view_state_name(enum tw_node_state state);
/* As in [node] of the configuration. */
const char *tw_view_role_name(enum tw_node_role role);
const char *tw_view_worker_name(enum tw_view_worker worker);
const char *tw_view_link_name(enum tw_view_link link);
const char *tw_view_pace_name(enum tw_link_pace_mode mode);
const char *tw_view_topology_name(enum tw_topology topology);
const char *tw_view_data_name(enum tw_view_data data);
/* "data", "state" or "seat"; "none" of a node that does not join. */
const char *tw_view_join_name(enum tw_view_join_phase phase);

enum { TW_VIEW_TIME_BYTES = 32 };

/* Writes microseconds since 1970 as "2026-01-31T12:00:00.000Z". */
const char *tw_view_time(uint64_t unix_us, char text[TW_VIEW_TIME_BYTES]);

/* Returns the model FLOPs utilisation, at most 1. The bound is needed because the speed is sampled
 * in whole seconds and may count one step too many. Returns NaN if the peak is 0 (not known). */
double tw_view_mfu(double flops_s, uint64_t peak_flops_s);

/* Returns the peak, raised if inner steps of `flops` FLOPs in `took_us` were faster. The peak is
 * measured by timing GEMMs before training, perhaps on a busy processor. 0 (not measured) stays 0.
 */
uint64_t tw_view_peak(uint64_t peak_flops_s, uint64_t flops, uint64_t took_us);

/* ---- kept between two fills ------------------------------------------------ */

/* The last TW_VIEW_EVENTS_MAX events. All zero is empty. */
struct tw_event_ring {
    uint64_t added;
    struct tw_view_event events[TW_VIEW_EVENTS_MAX]; /* age_us holds the time at which the event was
                                                        added */
};

/* `unix_us`: wall-clock time at now_us. */
void tw_event_ring_add(struct tw_event_ring *ring, uint64_t now_us, uint64_t unix_us,
                       bool is_warning, const char *name, const char *fmt, ...) TW_PRINTF(6, 7);
void tw_event_ring_fill(const struct tw_event_ring *ring, uint64_t now_us,
                        struct tw_status_view *view);

/* The last TW_VIEW_ROUNDS_MAX rounds. All zero is empty. */
struct tw_round_ring {
    uint64_t added;
    struct tw_view_round rounds[TW_VIEW_ROUNDS_MAX]; /* age_us holds the time at which the round was
                                                        added */
};

/* `round->age_us` is ignored. */
void tw_round_ring_add(struct tw_round_ring *ring, uint64_t now_us,
                       const struct tw_view_round *round);
/* Sets the partner of the newest round. */
void tw_round_ring_pair(struct tw_round_ring *ring, const struct tw_id *partner);
void tw_round_ring_fill(const struct tw_round_ring *ring, uint64_t now_us,
                        struct tw_status_view *view);

#endif
