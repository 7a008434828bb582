/* worker_msg.h - the link between daemon and worker: fixed structs over a SOCK_SEQPACKET Unix
 * socket, and shared memory. A trainer in any language can be a worker. WORKER.md is the guide;
 * this file and worker_request.h are normative.
 *
 * 1. The worker connects and sends HELLO. The daemon answers WELCOME with one memfd (SCM_RIGHTS),
 *    sealed against shrinking and growing. Or it answers FATAL with the reason, and closes.
 * 2. The worker builds its start state and sends READY: from then on (phi, u) are valid.
 * 3. The worker trains. Between inner steps it reads all messages that have arrived, in order.
 *    ENCODE, REDUCE, CHECK, APPLY, SOLO, EXPORT, LOAD, PAIR_ENCODE, PAIR_APPLY and SNAPSHOT are
 *    requests. The worker answers each exactly once; a status other than OK reports failure. REDUCE
 *    and CHECK use no fragment and are best answered at once, during a step. Other requests
 *    on one fragment are done in the order of arrival. APPLY and PAIR_APPLY wait for their
 *    min_step, unless the worker is paused or finished. Requests on other fragments do not wait
 *    for them.
 * 4. Either side may close at any time. Without the daemon the worker exits with status 0 after
 *    its step, or keeps its parameters and connects again. A worker that cannot continue sends
 * FATAL first, and one that ends in order sends FATAL with status 0. The shared memory keeps its
 *    content.
 *
 * The daemon treats the whole page as hostile: it copies a field once, checks the range of the
 * copy, and trusts only offsets that it assigned itself.
 *
 * Shared memory, offsets in `struct tw_shm_geometry`, all float32 arrays in layout.h order:
 *   control page | phi and u | spare (largest fragment, phi and u) | 2 snapshots | pool
 *
 * Publishing (phi, u) of one fragment is atomic: even after a kill at any instruction, either the
 * old or the new state is there. `published` is one 64-bit word. It names the fragment, if any,
 * that is in the spare buffer. Rounds and digest are stored with the buffer that they describe.
 * shm.h implements these steps:
 *   1. a fragment in the spare is copied to its home, its place in phi and u (data, rounds,
 *      digest), then `published` := none;
 *   2. the new phi', u', rounds and digest of fragment p are written to the spare;
 *   3. `published` := p. This store is the merge.
 * Before step 3 nobody reads the spare; after it nobody reads the home of p. Step 1 may be
 * repeated. Every store to `published` increments its sequence, so that a reader detects a change
 * during its read. */
#ifndef TW_PROTO_WORKER_MSG_H
#define TW_PROTO_WORKER_MSG_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/compute.h"
#include "proto/message.h"
#include "proto/run/run.h"
#include "proto/worker_request.h"

enum { TW_SAMPLE_BYTES_MAX = 1024 }; /* prompt or text of a sample, including the final NUL */
enum { TW_WORKER_VERSION = 13, TW_WORKER_MSG_BYTES_MAX = 16384, TW_SNAPSHOT_SLOTS = 2 };

/* ---- shared memory ------------------------------------------------------------------------- */

struct tw_shm_geometry {
    uint64_t bytes;          /* size of the memfd */
    uint64_t elements;       /* elements of the model: layout.h */
    uint64_t spare_elements; /* largest number of elements in a fragment */
    uint64_t phi, u;         /* byte offsets of the arrays, of `elements` floats each */
    uint64_t spare_phi, spare_u;
    uint64_t snapshot[TW_SNAPSHOT_SLOTS]; /* byte offsets */
    uint64_t snapshot_bytes;              /* size of one snapshot */
    uint64_t pool, pool_bytes;
};

enum tw_snapshot_mode { TW_SNAPSHOT_FULL, TW_SNAPSHOT_BF16_MOMENTS, TW_SNAPSHOT_OFF };

/* A snapshot is theta (float32), then m and v (float32, or bf16 in BF16_MOMENTS mode), each of
 * `elements`. This struct describes it. */
struct tw_snapshot_slot {
    _Atomic uint64_t seq;            /* 0 = never written; odd while being written */
    uint64_t step, tokens, checksum; /* checksum: over the data and these fields (shm.c) */
    uint64_t updates;                /* optimizer steps accumulated in m and v */
    uint64_t rng[4];                 /* state of the trainer's random number generator; zero if it
                                        has none */
    uint64_t cursor;                 /* position in the training data: tokens drawn so far */
    uint64_t bytes;
    uint64_t fragment_rounds[TW_FRAGMENTS_MAX]; /* rounds that phi included when theta was copied */
};

/* State of (phi, u) in one buffer. The digest is the SHA-256 over phi, then u, as little-endian
 * float32. */
struct tw_shm_state {
    uint64_t rounds; /* number of rounds of the lineage applied: all rounds below this */
    struct tw_id digest;
};

/* Device state, for people, and for a node that yields to others. A worker leaves unknown values
 * zero. Each value is read and written separately, so together they are no consistent snapshot. */
struct tw_shm_device {
    _Atomic uint64_t seen_us;       /* CLOCK_MONOTONIC of the last query; 0 = never */
    _Atomic uint64_t temperature_c; /* degrees Celsius; in this and the following fields, 0 = not
                                       known */
    _Atomic uint64_t power_mw, power_max_mw;
    _Atomic uint64_t memory_used_bytes; /* memory in use by all processes on the device */
    _Atomic uint64_t memory_bytes;
    _Atomic uint64_t load_percent;   /* percentage of time during which a GPU kernel ran */
    _Atomic uint64_t others_percent; /* percentage of the GPU that other processes use, plus 1 */
};

struct tw_shm_control {
    char magic[8];                 /* "TWSHM002" */
    _Atomic uint64_t heartbeat_us; /* CLOCK_MONOTONIC, set by the worker at least once a second */
    _Atomic uint64_t step;
    /* High half: sequence number. Low half: 0 = the spare buffer is empty, p + 1 = it contains
     * fragment p. A zeroed page is valid. */
    _Atomic uint64_t published;
    struct tw_shm_state home[TW_FRAGMENTS_MAX], spare;
    struct tw_snapshot_slot snapshots[TW_SNAPSHOT_SLOTS];
    struct tw_shm_device device;
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "words shared by processes must need no lock");

/* ---- messages ------------------------------------------------------------------------------ */

#define TW_WORKER_MSG_LIST(X)                                                                      \
    /* worker to daemon */                                                                         \
    X(HELLO, 1, hello)                                                                             \
    X(STEP, 2, step)                                                                               \
    X(SNAPSHOT_DONE, 3, snapshot_done)                                                             \
    X(ENCODED, 4, encoded)                                                                         \
    X(REDUCED, 5, reduced)                                                                         \
    X(CHECKED, 6, checked)                                                                         \
    X(APPLIED, 7, applied)                                                                         \
    X(EXPORTED, 8, exported)                                                                       \
    X(EVALUATED, 9, evaluated)                                                                     \
    X(FATAL, 10, fatal)                                                                            \
    X(READY, 11, ready)                                                                            \
    X(SAMPLE, 12, sample)                                                                          \
    X(JUDGED, 13, judged)                                                                          \
    /* daemon to worker */                                                                         \
    X(WELCOME, 32, welcome)                                                                        \
    X(ENCODE, 33, encode)                                                                          \
    X(REDUCE, 34, reduce)                                                                          \
    X(CHECK, 35, check)                                                                            \
    X(APPLY, 36, apply)                                                                            \
    X(SOLO, 37, solo)                                                                              \
    X(EXPORT, 38, export)                                                                          \
    X(LOAD, 39, load)                                                                              \
    X(CLOCK, 40, clock)                                                                            \
    X(SNAPSHOT, 41, snapshot)                                                                      \
    X(PAUSE, 42, pause)                                                                            \
    X(RESUME, 43, resume)                                                                          \
    X(FINISH, 44, finish)                                                                          \
    X(EXIT, 45, exit)                                                                              \
    X(PAIR_ENCODE, 46, pair_encode)                                                                \
    X(PAIR_APPLY, 47, pair_apply)                                                                  \
    X(JUDGE, 48, judge)

enum tw_worker_msg_kind {
#define X(name, value, member) TW_WMSG_##name = (value),
    TW_WORKER_MSG_LIST(X)
#undef X
};

struct tw_wmsg_hello {
    uint32_t version, pid;
    char device[64]; /* "cpu, 2 threads, AVX-512, oneDNN" */
};

/* Facts about the worker's engine, for people; empty or zero if not known. */
struct tw_wmsg_about {
    char engine[96];       /* "cpu, 2 threads, AVX-512, bf16, oneDNN" */
    uint64_t flops_token;  /* floating-point operations of a training step, per token */
    uint64_t peak_flops_s; /* peak GEMM rate in FLOP/s, measured at the start */
    uint64_t memory_bytes; /* bytes of parameters, optimizer state and activations */
};

struct tw_wmsg_ready {
    uint32_t start; /* enum tw_worker_start actually used: ANCHOR if the snapshot was unusable, KEPT
                       if the worker goes on with its own parameters */
    uint32_t comes_back; /* 1: a supervisor restarts this worker whenever it ends, so that EXIT can
                            free its memory during a pause; else 0 */
    uint32_t is_patient; /* 1: the worker is part of a program that may do something else between
                            two steps for any length of time; else 0 */
    uint32_t reserved;
    uint64_t step, tokens; /* totals at the start */
    struct tw_wmsg_about about;
};

/* Sent after every inner step. If the socket is full, the message is dropped, and its times are
 * added to the next one. */
struct tw_wmsg_step {
    uint64_t step, tokens; /* totals of this node */
    uint64_t step_us;      /* time in inner steps since the last STEP, without sync work */
    uint64_t sync_us; /* time in requests, snapshots and messages since the last STEP: CPU time plus
                         time blocked by the daemon. Held-out evaluation and pauses by the user are
                         not included */
    float loss, grad_norm, lr; /* loss in nats per token */
    uint32_t is_skipped;       /* 1: gradients were not finite, so the parameters are unchanged */
};

enum { TW_SNAPSHOT_NONE = TW_SNAPSHOT_SLOTS };

/* A snapshot is complete: an interval passed, or the daemon sent SNAPSHOT. */
struct tw_wmsg_snapshot_done {
    uint32_t slot; /* TW_SNAPSHOT_NONE: snapshots are off */
    uint32_t reserved;
    uint64_t step;
};

struct tw_wmsg_encoded {
    uint64_t round, step, tokens;
    uint32_t status; /* enum tw_status; not OK: nothing was written */
    uint32_t parts_count;
    uint32_t bytes[TW_PARTS_MAX];
    float norm; /* norm of Delta */
    float reserved;
    uint64_t cursor; /* position in the training data: tokens drawn so far; 0: not known */
};

struct tw_wmsg_reduced {
    uint64_t round;
    uint64_t refused; /* bit i: inputs[i] was left out as too large; never all inputs */
    uint32_t part, status, bytes, reserved;
    /* Of each input that the merge scaled down: its size in tenths of the usual size, more than
     * twice that. In an audit also of an input without which a far too large mean would not be one:
     * the mean in tenths of the usual merges. 0: neither. */
    uint16_t sizes[TW_MEMBERS_MAX];
};

struct tw_wmsg_checked {
    uint64_t tag;
    uint32_t status; /* TW_CORRUPT: the payload is malformed, so no node can decode it */
    uint32_t sanity; /* enum tw_sanity of a result that decodes */
};

struct tw_wmsg_applied {
    uint32_t fragment, status;
    uint64_t rounds;
    struct tw_id digest;
    uint32_t is_alone; /* PAIR_APPLY: this node took the step alone, because the partner's payloads
                          were unusable */
    float distance;    /* PAIR_APPLY with the partner: ||phi_theirs - phi|| / ||phi||; else 0 */
    uint32_t is_outlier, reserved; /* is_outlier: this node took the step alone, because the
                                      partner's Delta or phi is far too large */
};

struct tw_wmsg_exported {
    uint32_t fragment, status, bytes, reserved;
    uint64_t rounds;
    struct tw_id digest;
};

struct tw_wmsg_judged {
    uint64_t round;
    uint32_t fragment;
    uint32_t status; /* TW_AGAIN: this worker cannot judge the contribution now */
    int32_t score;   /* in thousandths; about 0 for a Delta of other data (worker/loop/juror.h) */
    uint32_t share;  /* square root of windows compared / windows trained on, in thousandths */
    uint32_t reserved;
};

struct tw_wmsg_evaluated {
    uint64_t step;
    float loss_live,
        loss_anchor; /* losses on held-out text in nats per token; NaN if not measured */
    float distance;  /* ||theta - phi|| / ||phi|| */
    float reserved;
};

/* For people: a passage of the held-out text, and the model's continuation of it. Well-formed
 * UTF-8, padded with zeros. */
struct tw_wmsg_sample {
    uint64_t step;
    char prompt[TW_SAMPLE_BYTES_MAX], text[TW_SAMPLE_BYTES_MAX];
};

struct tw_wmsg_fatal {
    uint32_t status, reserved;
    char text[248];
};

/* State from which the worker starts. */
enum tw_worker_start {
    TW_START_FRESH,    /* initial weights from the run's seed into theta and phi; u = 0 */
    TW_START_SNAPSHOT, /* theta, m, v and counters from the snapshot; phi, u unchanged */
    TW_START_ANCHOR,   /* theta := phi, moments zero */
    TW_START_KEPT, /* only in READY: theta, m, v and counters from before the daemon's restart */
};

struct tw_wmsg_welcome {
    uint32_t version;
    uint32_t start, slot;    /* enum tw_worker_start */
    uint32_t snapshot_mode;  /* enum tw_snapshot_mode */
    uint32_t snapshot_steps; /* inner steps between snapshots; 0 = the worker spends 1 % of its time
                                on them */
    uint32_t eval_steps;     /* inner steps between held-out evaluations; 0 = never */
    uint32_t sample_bytes; /* approximate bytes of the text sampled after an evaluation; 0 = none */
    uint32_t follows; /* 1: the worker takes no steps, but merges, and evaluates the anchor now and
                         then */
    uint32_t compute, recompute;   /* enum tw_compute, enum tw_recompute (proto/compute.h) */
    uint32_t threads, micro_batch; /* as in proto/compute.h; 0 = the worker chooses */
    uint32_t device, ordinal; /* enum tw_device_kind, and its index among devices of that kind */
    uint64_t memory_bytes;
    uint64_t stop_step; /* last step of the worker, for comparisons without peers; 0 = no limit */
    uint64_t data_seed; /* seed of the order in which this node samples its data */
    uint64_t history;   /* changes whenever this node goes back to an earlier state on purpose. A
                           worker that outlives a daemon may keep its parameters only if this and
                           data_seed are unchanged */
    uint64_t batches_to_skip; /* batches to draw and discard first, because one of them may have
                                 caused a crash */
    struct tw_shm_geometry geometry;
    char data_path[1024]; /* path of the training text */
    struct tw_run run;
};

struct tw_wmsg_snapshot {
    uint32_t reserved;
};
struct tw_wmsg_pause {
    uint32_t reserved;
};
struct tw_wmsg_resume {
    uint32_t reserved;
};
struct tw_wmsg_exit {
    uint32_t reserved;
};

/* A packet: `kind`, `bytes` (size of the whole packet), and the struct of that kind. */
struct tw_worker_msg {
    uint32_t kind, bytes;
    union {
#define X(name, value, member) struct tw_wmsg_##member member;
        TW_WORKER_MSG_LIST(X)
#undef X
    } u;
};

/* Returns the only accepted size of a packet of this kind, in bytes; 0 for an unknown kind. */
static inline uint32_t tw_worker_msg_bytes(uint32_t kind) {
    switch (kind) {
#define X(name, value, member)                                                                     \
    case (value):                                                                                  \
        return (uint32_t)(offsetof(struct tw_worker_msg, u) + sizeof(struct tw_wmsg_##member));
        TW_WORKER_MSG_LIST(X)
#undef X
    default: return 0;
    }
}

_Static_assert(sizeof(struct tw_worker_msg) <= TW_WORKER_MSG_BYTES_MAX, "one packet");

#endif
