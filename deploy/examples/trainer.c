/* trainer.c - a complete trainer in C as the worker of a Thinwire node. Its model is a table of
 * bigrams: row x of the tensor "bigram" holds the logits of the byte that follows byte x.
 *
 *     thinwire run new bigrams --tensors bigram:256x256 --data text.txt --batch 8 --context 128 \
 *              --tokens 4m --set train.lr=0.5
 *     cc -O2 trainer.c -o trainer $(pkg-config --cflags --libs thinwire) -lm
 *     ./trainer /run/thinwire/worker.sock */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thinwire/worker.h>

enum { BYTES = 256 };
struct model {
    float bigram[BYTES * BYTES];
    struct thinwire_worker *worker;
    const struct thinwire_run *run;
    uint32_t *tokens; /* batch * (context + 1) tokens */
};

static int read_model(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                      uint64_t count, float *to) {
    const struct model *model = self;
    (void)array, (void)tensor; /* always the weights of "bigram" */
    memcpy(to, model->bigram + begin, count * sizeof(float));
    return 0;
}

static int write_model(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                       uint64_t count, const float *from) {
    struct model *model = self;
    (void)array, (void)tensor;
    memcpy(model->bigram + begin, from, count * sizeof(float));
    return 0;
}

/* Returns the mean loss of `count` bigrams, in nats. With lr > 0, also does a step of plain SGD for
 * each of them. */
static double pass(struct model *model, const uint32_t *tokens, uint64_t count, float lr) {
    double loss = 0;
    for (uint64_t i = 0; i < count; i++) {
        float *logits = model->bigram + tokens[i] % BYTES * BYTES, shares[BYTES], sum = 0;
        for (int y = 0; y < BYTES; y++) sum += shares[y] = expf(logits[y]);
        loss -= logf(shares[tokens[i + 1] % BYTES] / sum);
        for (int y = 0; y < BYTES && lr > 0; y++) logits[y] -= lr * shares[y] / sum;
        if (lr > 0) logits[tokens[i + 1] % BYTES] += lr;
    }
    return loss / (double)count;
}

static int heldout(void *self, double *loss) {
    struct model *model = self;
    struct thinwire_error error;
    const uint64_t all = thinwire_worker_heldout_count(model->worker, &error);
    const uint64_t count = all < model->run->heldout_windows ? all : model->run->heldout_windows;
    *loss = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (thinwire_worker_heldout(model->worker, i, count, model->tokens, &error) != THINWIRE_OK)
            return 1;
        *loss += pass(model, model->tokens, model->run->context, 0) / (double)count;
    }
    return 0;
}

/* Draws a batch and trains on it. */
static enum thinwire_status train(struct model *model, const struct thinwire_next *next,
                                  struct thinwire_step *done, struct thinwire_error *error) {
    const enum thinwire_status status = thinwire_worker_draw(model->worker, model->tokens, error);
    const uint64_t length = model->run->context + 1, batch = model->run->batch;
    *done = (struct thinwire_step){.loss = 0};
    for (uint64_t i = 0; i < batch && status == THINWIRE_OK; i++)
        done->loss += (float)pass(model, model->tokens + i * length, length - 1, next->lr) / batch;
    return status;
}

int main(int argc, char **argv) {
    static struct model model;
    const struct thinwire_config config = {.socket = argc > 1 ? argv[1] : NULL,
                                           .device = "bigrams"};
    const struct thinwire_trainer trainer = {
        .self = &model, .read = read_model, .write = write_model, .heldout = heldout};
    struct thinwire_error error;
    struct thinwire_next next;
    struct thinwire_step done;
    enum thinwire_status status = thinwire_worker_open(&model.worker, &config, -1, &error);
    if (status == THINWIRE_OK) {
        model.run = thinwire_worker_run(model.worker);
        model.tokens = calloc(model.run->batch, (model.run->context + 1) * sizeof(uint32_t));
        status = thinwire_worker_start(model.worker, &trainer, &error);
        if (status == THINWIRE_OK)
            status = thinwire_worker_step(model.worker, NULL, -1, &next, &error);
        while (status == THINWIRE_OK && train(&model, &next, &done, &error) == THINWIRE_OK)
            status = thinwire_worker_step(model.worker, &done, -1, &next, &error);
        thinwire_worker_close(model.worker);
    }
    if (status < THINWIRE_OK) fprintf(stderr, "trainer: %s\n", error.message);
    return status < THINWIRE_OK;
}
