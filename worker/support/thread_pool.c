/* thread_pool.c - a pool of threads that share the pieces of one run at a time: thread_pool.h.
 *
 * A run is published as one atomic word: run number in the upper half, next free piece in the lower
 * half. A thread claims a piece by compare-and-swap of the whole word. A helper that slept through
 * a run thus cannot claim a piece of a newer run by mistake. Before a run's fields change, the word
 * is CLOSED: it offers no piece.
 *
 * Threads sleep on two conditions. In both, the sleeper sets its flag and then checks the state
 * again, while the waker changes the state and then checks the flag. All accesses are sequentially
 * consistent, so at least one of them sees the other's change. */
#include "worker/support/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { SPINS = 2000 }; /* about 20 us */

/* lower half of the word while no piece can be claimed */
static const uint64_t CLOSED = UINT32_MAX;

struct helper {
    struct tw_thread_pool *team;
    pthread_t thread;
    uint32_t number; /* number of this thread, counted from 1 */
};

struct tw_thread_pool {
    uint32_t threads;
    atomic_bool is_running;

    _Atomic uint64_t word; /* run number << 32 | next free piece (or CLOSED) */
    _Atomic(tw_thread_pool_fn *) work;
    _Atomic(void *) context;
    atomic_uint pieces;
    atomic_uint left; /* number of pieces not yet done */

    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    atomic_uint sleepers;   /* number of helpers that wait at `wake` */
    atomic_bool is_waiting; /* the caller waits at `done` */
    atomic_bool is_over;

    uint32_t helpers_count;
    struct helper helpers[];
};

static uint64_t run_of(uint64_t word) {
    return word >> 32;
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Claims and runs pieces until the run of `word` has none left. */
static void work_off(struct tw_thread_pool *team, uint64_t word, uint32_t thread) {
    const uint64_t run = run_of(word);
    for (;;) {
        tw_thread_pool_fn *work = atomic_load(&team->work);
        void *context = atomic_load(&team->context);
        const uint32_t pieces = atomic_load(&team->pieces), piece = (uint32_t)word;
        if (run_of(word) != run || piece >= pieces) return;
        if (!atomic_compare_exchange_weak(&team->word, &word, word + 1)) continue;
        work(context, piece, thread);
        word++;
        if (atomic_fetch_sub(&team->left, 1) == 1 && atomic_load(&team->is_waiting)) {
            (void)pthread_mutex_lock(&team->mutex);
            (void)pthread_cond_signal(&team->done);
            (void)pthread_mutex_unlock(&team->mutex);
        }
    }
}

/* Waits until the word has a run number other than `seen`, and returns the word. If the pool is to
 * end, the returned word still has the run number `seen`. */
static uint64_t next_word(struct tw_thread_pool *team, uint64_t seen) {
    uint64_t word = 0;
    for (int i = 0; i < SPINS; i++) {
        word = atomic_load(&team->word);
        if (run_of(word) != seen) return word;
        pause_cpu();
    }
    (void)pthread_mutex_lock(&team->mutex);
    atomic_fetch_add(&team->sleepers, 1);
    while (run_of(word = atomic_load(&team->word)) == seen && !atomic_load(&team->is_over)) {
        (void)pthread_cond_wait(&team->wake, &team->mutex);
    }
    atomic_fetch_sub(&team->sleepers, 1);
    (void)pthread_mutex_unlock(&team->mutex);
    return word;
}

static void *run_helper(void *argument) {
    const struct helper *helper = argument;
    struct tw_thread_pool *team = helper->team;
    uint64_t seen = 0;
    for (;;) {
        const uint64_t word = next_word(team, seen);
        if (run_of(word) == seen) return NULL;
        seen = run_of(word);
        work_off(team, word, helper->number);
    }
}

static void wait_until_done(struct tw_thread_pool *team) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&team->left) == 0) return;
        pause_cpu();
    }
    (void)pthread_mutex_lock(&team->mutex);
    atomic_store(&team->is_waiting, true);
    while (atomic_load(&team->left) != 0) (void)pthread_cond_wait(&team->done, &team->mutex);
    atomic_store(&team->is_waiting, false);
    (void)pthread_mutex_unlock(&team->mutex);
}

static void run_shared(struct tw_thread_pool *team, uint32_t pieces, tw_thread_pool_fn *work,
                       void *context) {
    const uint64_t run = run_of(atomic_load(&team->word)) + 1;
    TW_ASSERT(pieces < CLOSED - TW_THREAD_POOL_THREADS_MAX);
    atomic_store(&team->word, (run - 1) << 32 | CLOSED);
    atomic_store(&team->work, work);
    atomic_store(&team->context, context);
    atomic_store(&team->pieces, pieces);
    atomic_store(&team->left, pieces);
    atomic_store(&team->word, run << 32);
    if (atomic_load(&team->sleepers) > 0) {
        (void)pthread_mutex_lock(&team->mutex);
        (void)pthread_cond_broadcast(&team->wake);
        (void)pthread_mutex_unlock(&team->mutex);
    }
    work_off(team, run << 32, 0);
    wait_until_done(team);
}

void tw_thread_pool_run(struct tw_thread_pool *team, uint32_t pieces, tw_thread_pool_fn *work,
                        void *context) {
    TW_ASSERT(!atomic_exchange(&team->is_running, true)); /* fails if a piece calls this function */
    if (team->threads > 1 && pieces > 1) {
        run_shared(team, pieces, work, context);
    } else {
        for (uint32_t piece = 0; piece < pieces; piece++) work(context, piece, 0);
    }
    atomic_store(&team->is_running, false);
}

uint32_t tw_thread_pool_threads(const struct tw_thread_pool *team) {
    return team->threads;
}

static enum tw_status start_helpers(struct tw_thread_pool *team, struct tw_error *err) {
    sigset_t all, before;
    int error = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (error == 0 && team->helpers_count < team->threads - 1) {
        struct helper *helper = &team->helpers[team->helpers_count];
        *helper = (struct helper){.team = team, .number = team->helpers_count + 1};
        error = pthread_create(&helper->thread, NULL, run_helper, helper);
        if (error == 0) team->helpers_count++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return TW_OK;
    return tw_fail(err, TW_LIMIT, "thread %u of %u cannot be started: %s; ask for fewer threads",
                   team->helpers_count + 2, team->threads, strerror(error));
}

enum tw_status tw_thread_pool_create(struct tw_thread_pool **team_out, uint32_t threads,
                                     struct tw_error *err) {
    TW_ASSERT(threads >= 1 && threads <= TW_THREAD_POOL_THREADS_MAX);
    struct tw_thread_pool *team =
        calloc(1, sizeof(*team) + (threads - 1) * sizeof(team->helpers[0]));
    *team_out = NULL;
    if (team == NULL) return tw_fail(err, TW_NOMEM, "no memory for a pool of %u threads", threads);
    team->threads = threads;
    atomic_store(&team->word, CLOSED);
    (void)pthread_mutex_init(&team->mutex, NULL);
    (void)pthread_cond_init(&team->wake, NULL);
    (void)pthread_cond_init(&team->done, NULL);
    const enum tw_status status = start_helpers(team, err);
    if (status != TW_OK) {
        tw_thread_pool_destroy(team);
        return status;
    }
    *team_out = team;
    return TW_OK;
}

void tw_thread_pool_destroy(struct tw_thread_pool *team) {
    if (team == NULL) return;
    TW_ASSERT(!atomic_load(&team->is_running));
    (void)pthread_mutex_lock(&team->mutex);
    atomic_store(&team->is_over, true);
    (void)pthread_cond_broadcast(&team->wake);
    (void)pthread_mutex_unlock(&team->mutex);
    for (uint32_t i = 0; i < team->helpers_count; i++) {
        (void)pthread_join(team->helpers[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&team->done);
    (void)pthread_cond_destroy(&team->wake);
    (void)pthread_mutex_destroy(&team->mutex);
    free(team);
}
