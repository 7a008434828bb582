/* store_victim.c - saves one checkpoint or vote while store_sweep.sh kills it.
 *
 *   store_victim (checkpoint | vote) FOLDER save    saves the next one; status 0 = acknowledged
 *   store_victim (checkpoint | vote) FOLDER check   prints the number of the newest one and checks
 *                                                   every bit of it, and that another can be saved
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/vote_store.h"
#include "tests/daemon/store/state_sample.h"

enum { LAYERS = 3, WIDTH = 230 }; /* 9 MiB: write-back starts once */

static struct tw_layout layout;
static struct sample_arrays arrays;
static struct tw_checkpoint_state state;
static struct tw_checkpoint *checkpoint;
static struct tw_vote_store votes;
static uint64_t newest; /* number of the loaded generation; 0 = none */

static int give_up(const struct tw_error *err) {
    (void)printf("error %s\n", err->message);
    return 2;
}

/* A hash that is cheaper than sample_fill, because the program runs a thousand times. */
static uint32_t word_of(uint64_t number, uint32_t kind, uint64_t element) {
    return (uint32_t)(number * 0x9E3779B1u + kind * 77 + element * 5);
}

static void visit_tensors(uint64_t number, bool *is_wrong) {
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
        for (uint32_t i = 0; i < layout.tensors_count; i++) {
            const struct tw_tensor *tensor = &layout.tensors[i];
            const uint64_t end = tensor->offset + (uint64_t)tensor->rows * tensor->cols;
            for (uint64_t e = tensor->offset; e < end; e++) {
                const uint32_t word = word_of(number, k, e);
                if (is_wrong == NULL) {
                    memcpy(arrays.kinds[k] + e * 4, &word, 4);
                } else if (memcmp(arrays.kinds[k] + e * 4, &word, 4) != 0) {
                    *is_wrong = true;
                }
            }
        }
    }
}

static enum tw_status load_checkpoint(const char *folder, bool *is_wrong, struct tw_error *err) {
    static const struct tw_id run_id = {{9}};
    static struct tw_run run;
    struct tw_checkpoint_found found;
    sample_layout(&layout, &run, LAYERS, WIDTH, 2);
    sample_arrays_init(&arrays, &layout, false);
    TW_TRY(tw_checkpoint_create(&checkpoint, tw_file_system(), folder, &layout, &run_id, err));
    TW_TRY(tw_checkpoint_load(checkpoint, &arrays.at, &state, &found, err));
    newest = found.generation;
    if (found.is_loaded) visit_tensors(newest, is_wrong);
    if (found.is_loaded && state.step != newest) *is_wrong = true;
    return TW_OK;
}

static enum tw_status save_checkpoint(uint64_t number, struct tw_error *err) {
    visit_tensors(number, NULL);
    sample_state(&state, layout.fragments_count, number, number);
    return tw_checkpoint_save(checkpoint, &state, &arrays.at, err);
}

static enum tw_status load_vote(const char *folder, bool *is_wrong, struct tw_error *err) {
    static struct tw_vote vote, expected;
    enum tw_vote_found found;
    TW_TRY(tw_vote_store_open(&votes, tw_file_system(), folder, &vote, &found, err));
    newest = found == TW_VOTE_VALID ? vote.round : 0;
    sample_vote(&expected, newest, newest);
    if (found == TW_VOTE_CORRUPT) *is_wrong = true;
    if (found == TW_VOTE_VALID && memcmp(&vote, &expected, sizeof(vote)) != 0) *is_wrong = true;
    return TW_OK;
}

static enum tw_status save_vote(uint64_t number, struct tw_error *err) {
    static struct tw_vote vote;
    sample_vote(&vote, number, number);
    return tw_vote_store_save(&votes, &vote, err);
}

int main(int argc, char **argv) {
    struct tw_error err;
    bool is_wrong = false;
    if (argc != 4) return 2;
    const bool is_vote = strcmp(argv[1], "vote") == 0, is_check = strcmp(argv[3], "check") == 0;
    const enum tw_status loaded =
        is_vote ? load_vote(argv[2], &is_wrong, &err) : load_checkpoint(argv[2], &is_wrong, &err);
    if (loaded != TW_OK) return give_up(&err);
    if (is_check)
        (void)printf("newest %llu%s\n", (unsigned long long)newest,
                     is_wrong ? " but not as it was saved" : "");
    const enum tw_status saved =
        is_vote ? save_vote(newest + 1, &err) : save_checkpoint(newest + 1, &err);
    if (saved != TW_OK) return give_up(&err);
    return is_wrong ? 3 : 0;
}
