/* thinwire/worker.h - makes a trainer of your own the worker of a Thinwire node.
 *
 * The daemon thinwired decides, stores and talks to other nodes. The trainer trains. This library
 * connects the two: it encodes the trainer's work, merges the work of other nodes, and changes the
 * parameters at step boundaries. Encoding and merging run on threads of the library. The trainer's
 * thread is held only while parameters are copied.
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
 * Only one thread at a time may call the functions for a worker. Callbacks run on that thread,
 * inside a call of step or close. A process may have several workers. Link with -lthinwire
 * (pkg-config thinwire). deploy/examples/trainer.c is a complete trainer. */
#ifndef THINWIRE_WORKER_H
#define THINWIRE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define THINWIRE_API __attribute__((visibility("default")))

/* Version of this interface. It is raised, together with the soname, if programs must be compiled
 * again. */
#define THINWIRE_WORKER_API 1

enum thinwire_status {
    THINWIRE_OK = 0,       /* take a step */
    THINWIRE_WAIT = 1,     /* take no step now: paused, or no daemon is connected */
    THINWIRE_FINISHED = 2, /* the run is over, and its last merges are in the parameters */
    /* errors; the message says more */
    THINWIRE_INVALID = -1, /* a wrong argument, or a call in the wrong order */
    THINWIRE_DENIED = -2,  /* the daemon does not accept this worker */
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
    const char *socket; /* path of the daemon's worker socket. NULL: $THINWIRE_WORKER_SOCKET, else
                           /run/thinwire/worker.sock */
    const char *device; /* text shown in `thinwire status`, such as "PyTorch 2.6, cuda:0"; at most
                           63 characters, NULL: none */
    bool is_talkative;  /* log each change of state to stderr, not only faults */
};

/* A tensor of the run's model. Its elements are numbered in row-major order. */
struct thinwire_tensor {
    const char *name;
    uint64_t elements;
    uint32_t rank;
    uint64_t shape[4]; /* (rank) */
};

/* Facts about the run, valid until thinwire_worker_close. */
struct thinwire_run {
    const char *name;
    char id[65];                           /* hexadecimal */
    const struct thinwire_tensor *tensors; /* (tensors_count) */
    uint32_t tensors_count;
    uint64_t parameters;
    uint64_t batch, context;  /* sequences per step; tokens per sequence */
    uint64_t tokens_per_step; /* batch * context: tokens for which a step counts, on every node */
    uint64_t tokens;          /* token budget of the run, over all nodes */
    const char *data_path;    /* the daemon's path of the training data; empty: the trainer has its
                                 own */
    uint64_t data_seed;       /* seed of the order in which this node draws the data */
    uint64_t heldout_windows; /* number of held-out windows that thinwire-worker evaluates */
    uint32_t threads;         /* limit of threads from the node's configuration; 0: no limit */
};

/* Arrays with one element per parameter. */
enum thinwire_array {
    THINWIRE_PARAMETERS,
    THINWIRE_MOMENT1, /* AdamW's first moment */
    THINWIRE_MOMENT2, /* AdamW's second moment */
};

/* The trainer, as the library sees it. A callback returns 0 for success. Any other number ends the
 * worker. All values are float32. */
struct thinwire_trainer {
    void *self;

    /* read copies elements [begin, begin + count) of tensor number `tensor` of an array out of the
     * trainer. write copies them into it. */
    int (*read)(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                uint64_t count, float *to);
    int (*write)(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                 uint64_t count, const float *from);

    /* Sets *loss to the loss of the current parameters, in nats per token on held-out data, the
     * same data every time. The library also calls it with the anchor in place of the parameters.
     * NULL: the node does not evaluate, and cannot warn of merges that increase the loss. */
    int (*heldout)(void *self, double *loss);

    bool has_moments; /* whether read and write support the moments. If not, a restart begins with
                         moments of zero */

    /* Shown to people; NULL or 0: not known. */
    const char *engine;        /* at most 95 characters */
    uint64_t flops_per_token;  /* floating-point operations per token of a training step */
    uint64_t peak_flops_per_s; /* peak rate of the device, in operations per second */
    uint64_t memory_bytes;     /* bytes for parameters, optimizer and activations */
};

/* A step that the trainer has taken. */
struct thinwire_step {
    float loss;      /* mean loss of the batch before the update, in nats per token */
    float grad_norm; /* norm of the gradient before clipping; 0: not known */
    bool is_skipped; /* whether gradients were not finite, so that the parameters did not change */
};

/* The step to take next. */
struct thinwire_next {
    uint64_t step, tokens; /* number of steps and tokens of this node so far */
    float lr;       /* learning rate that the schedule gives for the tokens of the whole run */
    float lr_share; /* learning rate divided by the run's peak rate, for a trainer that has its own
                       rates */
    /* number of optimizer steps that the moments contain; 0: the moments are zero */
    uint64_t updates;
    bool is_restored; /* whether the library has just written parameters (and moments, if the
                         trainer has them) that do not follow from the last step: at the start, and
                         when the node went back to an earlier state */
};

/* Waits up to timeout_ms milliseconds (-1: without limit) for the daemon and attaches to it.
 * Returns THINWIRE_WAIT if no daemon was there in time. After that, and after THINWIRE_DENIED or
 * THINWIRE_FAILED, *worker is NULL. */
THINWIRE_API enum thinwire_status thinwire_worker_open(struct thinwire_worker **worker,
                                                       const struct thinwire_config *config,
                                                       int timeout_ms,
                                                       struct thinwire_error *error);

/* Returns the run that the daemon trains. */
THINWIRE_API const struct thinwire_run *thinwire_worker_run(const struct thinwire_worker *worker);

/* Returns the manifest's value of a key such as "train.lr" or "sync.period", as `thinwire run show`
 * prints it, or NULL if there is no such key. */
THINWIRE_API const char *thinwire_worker_setting(const struct thinwire_worker *worker,
                                                 const char *key);

/* Registers the trainer's callbacks; *trainer is copied. The first call of step then writes the
 * parameters from which this node begins or continues: the run's initial weights, a snapshot, or
 * the anchor. Fails with THINWIRE_INVALID. */
THINWIRE_API enum thinwire_status thinwire_worker_start(struct thinwire_worker *worker,
                                                        const struct thinwire_trainer *trainer,
                                                        struct thinwire_error *error);

/* Call this at a step boundary. `done` is the step that was taken; it is NULL at the start and
 * after a call that did not return THINWIRE_OK. Waits up to timeout_ms milliseconds (-1: without
 * limit) until a step is wanted or the run has finished. After THINWIRE_WAIT or THINWIRE_FINISHED
 * keep calling step: the node serves other nodes only meanwhile. After an error only close may be
 * called. The program may do anything else between two calls, for any time: that is a pause, not a
 * hang. If the daemon is restarted or dies, the library waits for its return, without limit, and
 * the trainer goes on with its own parameters. They are restored only if the node went back to an
 * earlier state meanwhile (`thinwire rollback`, a recall by the run's owner). */
THINWIRE_API enum thinwire_status thinwire_worker_step(struct thinwire_worker *worker,
                                                       const struct thinwire_step *done,
                                                       int timeout_ms, struct thinwire_next *next,
                                                       struct thinwire_error *error);

/* Gives a text that the model wrote, and the prompt that it continues (may be ""), for `thinwire
 * status` and the node's web page. It is sent after the next evaluation; a later text replaces one
 * that was not sent yet. Texts longer than 1023 bytes are truncated. May be called by the callback
 * `heldout`. Fails with THINWIRE_INVALID if a text is not UTF-8. */
THINWIRE_API enum thinwire_status thinwire_worker_sample(struct thinwire_worker *worker,
                                                         const char *prompt, const char *text,
                                                         struct thinwire_error *error);

/* Takes a snapshot, detaches from the daemon and frees the worker; NULL is allowed. Does nothing in
 * a child of the process that opened the worker. */
THINWIRE_API void thinwire_worker_close(struct thinwire_worker *worker);

/* ---- training data of the run, for trainers that have none of their own --------------------- */

/* Draws the node's next batch into tokens (batch, context + 1). Snapshots contain the position in
 * the data. With data.loss = answers, a token that is no part of an answer has its highest bit set,
 * also in a held-out window: as a target, it does not count. Returns THINWIRE_WAIT if no data have
 * arrived yet. Fails with THINWIRE_DATA. */
THINWIRE_API enum thinwire_status thinwire_worker_draw(struct thinwire_worker *worker,
                                                       uint32_t *tokens,
                                                       struct thinwire_error *error);

/* Returns the number of held-out windows of context + 1 tokens, or 0 if none has arrived yet or
 * after an error. */
THINWIRE_API uint64_t thinwire_worker_heldout_count(struct thinwire_worker *worker,
                                                    struct thinwire_error *error);

/* Reads window `index` of `count` evenly spaced held-out windows into tokens (context + 1), with
 * index < count <= thinwire_worker_heldout_count. No two windows have a target token in common.
 * Fails with THINWIRE_INVALID or THINWIRE_DATA. */
THINWIRE_API enum thinwire_status thinwire_worker_heldout(struct thinwire_worker *worker,
                                                          uint64_t index, uint64_t count,
                                                          uint32_t *tokens,
                                                          struct thinwire_error *error);

#ifdef __cplusplus
}
#endif

#endif
