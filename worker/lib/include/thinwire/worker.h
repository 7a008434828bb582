/* thinwire/worker.h - makes a trainer of your own the worker of a Thinwire node.
 *
 * The daemon thinwired decides, stores and talks to other nodes. The trainer trains. This library
 * stands between the two: it encodes the trainer's work, merges that of other nodes, and changes
 * the parameters at step boundaries. Encoding and merging run on threads of the library. The
 * trainer's thread is held only while parameters are copied.
 *
 *     struct thinwire_worker *worker;
 *     thinwire_worker_open(&worker, &(struct thinwire_config){.device = "mine"}, -1, &error);
 *     thinwire_worker_start(worker, &trainer, &error);
 *     status = thinwire_worker_step(worker, NULL, -1, &next, &error);
 *     while (status == THINWIRE_OK) {
 *         ... take one step at the rate next.lr ...
 *         status = thinwire_worker_step(worker, &done, -1, &next, &error);
 *     }
 *     thinwire_worker_close(worker);
 *
 * One thread at a time may call the functions for a worker, and callbacks run on that thread,
 * inside a call of step or close. A process may have several workers. Link with -lthinwire
 * (pkg-config thinwire). deploy/examples/trainer.c is a whole trainer. */
#ifndef THINWIRE_WORKER_H
#define THINWIRE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define THINWIRE_API __attribute__((visibility("default")))

/* Version of this interface. It is raised when a program must be compiled again, and with it the
 * soname. */
#define THINWIRE_WORKER_API 1

enum thinwire_status {
    THINWIRE_OK = 0,       /* take a step */
    THINWIRE_WAIT = 1,     /* take no step now: paused, or no daemon is connected */
    THINWIRE_FINISHED = 2, /* the run is over, and its last merges are in the parameters */
    /* errors; the message says more */
    THINWIRE_INVALID = -1, /* an argument, or a call out of order */
    THINWIRE_DENIED = -2,  /* the daemon does not take this worker */
    THINWIRE_DATA = -3,    /* training data are missing or damaged */
    THINWIRE_TRAINER = -4, /* a callback failed, or a number is not finite */
    THINWIRE_FAILED = -5,  /* anything else: no memory, a daemon of another version, ... */
};

struct thinwire_worker; /* opaque */

struct thinwire_error {
    enum thinwire_status status;
    char message[500]; /* one sentence */
};

struct thinwire_config {
    const char *socket; /* the daemon's worker socket. NULL: $THINWIRE_WORKER_SOCKET, else
                           /run/thinwire/worker.sock */
    const char *device; /* for people, in `thinwire status`: "PyTorch 2.6, cuda:0"; at most 63
                           characters, NULL: none */
    bool is_talkative;  /* log lines on stderr for each change of state, not only for faults */
};

/* A tensor of the run's model. Elements are counted row after row. */
struct thinwire_tensor {
    const char *name;
    uint64_t elements;
    uint32_t rank;
    uint64_t shape[4]; /* (rank) */
};

/* Valid until thinwire_worker_close. */
struct thinwire_run {
    const char *name;
    char id[65];                           /* hexadecimal */
    const struct thinwire_tensor *tensors; /* (tensors_count) */
    uint32_t tensors_count;
    uint64_t parameters;
    uint64_t batch, context;  /* sequences of a step; tokens of a sequence */
    uint64_t tokens_per_step; /* batch * context: tokens that a step counts for, on every node */
    uint64_t tokens;          /* budget of the run, over all nodes */
    const char *data_path;    /* training data as the daemon has them; empty: the trainer's own */
    uint64_t data_seed;       /* seed of this node's order of the data */
    uint64_t heldout_windows; /* held-out windows that thinwire-worker evaluates */
    uint32_t threads;         /* threads that the node's configuration allows; 0: no limit */
};

/* Arrays over the run's tensors. */
enum thinwire_array {
    THINWIRE_PARAMETERS,
    THINWIRE_MOMENT1, /* AdamW's first moment */
    THINWIRE_MOMENT2, /* AdamW's second moment */
};

/* The trainer, as the library sees it. Callbacks return 0, or another number if they fail, which
 * ends the worker. All numbers are float32. */
struct thinwire_trainer {
    void *self;

    /* Copies elements [begin, begin + count) of tensor `tensor` of an array out of the trainer, or
     * into it. */
    int (*read)(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                uint64_t count, float *to);
    int (*write)(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                 uint64_t count, const float *from);

    /* Loss of the parameters as they are now, in nats per token on held-out data, the same data
     * every time. The library also calls it with the anchor in place of the parameters. NULL: the
     * node does not evaluate, and cannot warn of merges that hurt. */
    int (*heldout)(void *self, double *loss);

    bool has_moments; /* whether read and write know the moments. If not, a restart begins with
                         moments of zero */

    /* For people; NULL or 0: not known. */
    const char *engine;        /* at most 95 characters */
    uint64_t flops_per_token;  /* operations of a training step per token */
    uint64_t peak_flops_per_s; /* peak rate of the device */
    uint64_t memory_bytes;     /* memory for parameters, optimizer and activations */
};

/* A step that the trainer has taken. */
struct thinwire_step {
    float loss;      /* mean of the batch, nats per token, before the update */
    float grad_norm; /* norm of the gradient before clipping; 0: not known */
    bool is_skipped; /* gradients were not finite; the parameters did not change */
};

/* The step to take next. */
struct thinwire_next {
    uint64_t step, tokens; /* steps and tokens of this node so far */
    float lr;              /* learning rate by the run's schedule, at the clock of the whole run */
    float lr_share; /* learning rate divided by the run's peak rate, for a trainer with rates of its
                       own */
    uint64_t updates; /* optimizer steps that the moments contain; 0: they are zero */
    bool is_restored; /* the library has put parameters, and moments if the trainer has them, in
                         place that do not follow from the last step: at the start, and when a
                         daemon came back */
};

/* Waits up to timeout_ms (-1: without limit) for the daemon and attaches to it. THINWIRE_WAIT: no
 * daemon was there in time, and *worker is NULL. THINWIRE_DENIED, THINWIRE_FAILED: *worker is NULL,
 * too. */
THINWIRE_API enum thinwire_status thinwire_worker_open(struct thinwire_worker **worker,
                                                       const struct thinwire_config *config,
                                                       int timeout_ms,
                                                       struct thinwire_error *error);

/* The run that the daemon trains. */
THINWIRE_API const struct thinwire_run *thinwire_worker_run(const struct thinwire_worker *worker);

/* The manifest's value of a key such as "train.lr" or "sync.period", as `thinwire run show` prints
 * it; NULL: no such key. */
THINWIRE_API const char *thinwire_worker_setting(const struct thinwire_worker *worker,
                                                 const char *key);

/* Says how to reach the trainer. *trainer is copied. The first call of step puts the parameters in
 * place from which this node begins or goes on: the run's initial weights, a snapshot, or the
 * anchor. THINWIRE_INVALID. */
THINWIRE_API enum thinwire_status thinwire_worker_start(struct thinwire_worker *worker,
                                                        const struct thinwire_trainer *trainer,
                                                        struct thinwire_error *error);

/* A step boundary. `done` is the step that was taken; NULL: none was, at the start and after a call
 * that did not return THINWIRE_OK. Waits up to timeout_ms (-1: without limit) until a step is
 * wanted or the run has finished. After THINWIRE_WAIT and THINWIRE_FINISHED the node goes on to
 * serve others only while the trainer calls step again. After an error only close may be called. If
 * the daemon goes, the library waits for it to come back, and then goes on from its newest
 * snapshot. */
THINWIRE_API enum thinwire_status thinwire_worker_step(struct thinwire_worker *worker,
                                                       const struct thinwire_step *done,
                                                       int timeout_ms, struct thinwire_next *next,
                                                       struct thinwire_error *error);

/* A text that the model wrote, and the prompt that it continues ("" allowed), for `thinwire status`
 * and the page of the node. It goes out after the next evaluation, and a later text takes the place
 * of one that waits. UTF-8; longer ones than 1023 bytes are cut. May be called by the callback
 * `heldout`. THINWIRE_INVALID: not UTF-8. */
THINWIRE_API enum thinwire_status thinwire_worker_sample(struct thinwire_worker *worker,
                                                         const char *prompt, const char *text,
                                                         struct thinwire_error *error);

/* Takes a snapshot, detaches from the daemon and frees the worker; NULL is allowed. Does nothing in
 * a child process of the process that opened the worker. */
THINWIRE_API void thinwire_worker_close(struct thinwire_worker *worker);

/* ---- training data of the run, for trainers that have none of their own --------------------- */

/* Draws the node's next batch into tokens (batch, context + 1). Its place in the data follows the
 * snapshots. THINWIRE_WAIT: no data have arrived yet. THINWIRE_DATA. */
THINWIRE_API enum thinwire_status thinwire_worker_draw(struct thinwire_worker *worker,
                                                       uint32_t *tokens,
                                                       struct thinwire_error *error);

/* Number of held-out windows of context + 1 tokens; 0: none has arrived yet, or an error. */
THINWIRE_API uint64_t thinwire_worker_heldout_count(struct thinwire_worker *worker,
                                                    struct thinwire_error *error);

/* Reads window `index` of `count` evenly spaced held-out windows into tokens (context + 1), with
 * index < count <= thinwire_worker_heldout_count. No token is a target of two windows.
 * THINWIRE_INVALID, THINWIRE_DATA. */
THINWIRE_API enum thinwire_status thinwire_worker_heldout(struct thinwire_worker *worker,
                                                          uint64_t index, uint64_t count,
                                                          uint32_t *tokens,
                                                          struct thinwire_error *error);

#ifdef __cplusplus
}
#endif

#endif
