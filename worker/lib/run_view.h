/* run_view.h - the facts about a run that thinwire/worker.h shows to a trainer. */
#ifndef TW_WORKER_LIB_RUN_VIEW_H
#define TW_WORKER_LIB_RUN_VIEW_H

#include <stdbool.h>

#include "base/status.h"
#include "worker/learn/learner.h"
#include "worker/lib/include/thinwire/worker.h"

struct tw_run_view {
    struct thinwire_run run;         /* facts for the trainer; its pointers point into the fields
                                        below */
    struct tw_run settings;          /* the manifest */
    struct tw_layout *layout;        /* owned */
    struct thinwire_tensor *tensors; /* (tensors_count), owned */
    char *data_path;                 /* owned */
    char *manifest;                  /* owned: lines "key = value", each ended by NUL */
    size_t manifest_bytes;
    double peak_lr;
};

/* Fills *view for a run. Fails with TW_NOMEM; free the view then, too. */
enum tw_status tw_run_view_make(struct tw_run_view *view, const struct tw_learner_config *config,
                                struct tw_error *err);
void tw_run_view_free(struct tw_run_view *view); /* zeros are fine */

/* Whether the view shows this run. */
bool tw_run_view_is_of(const struct tw_run_view *view, const struct tw_run *run);

/* Returns the manifest's value of a key, or NULL if there is no such key. */
const char *tw_run_view_setting(const struct tw_run_view *view, const char *key);

#endif
