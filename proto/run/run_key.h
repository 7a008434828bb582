/* run_key.h - the table of the run manifest: every key with its type, offset, range and help.
 * Setting, writing, reading, checking and `thinwire run new` all use it. */
#ifndef TW_PROTO_RUN_RUN_KEY_H
#define TW_PROTO_RUN_RUN_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"

enum tw_run_kind {
    TW_RUN_NAME,     /* char[64]: [a-z0-9-] */
    TW_RUN_ENUM,     /* enum, one of `names` */
    TW_RUN_U32,      /* whole number */
    TW_RUN_U64,      /* whole number */
    TW_RUN_TOKENS,   /* uint64_t; a person may write 500k, 2m, 1.5g */
    TW_RUN_REAL,     /* uint32_t millionths; a person may write 5% */
    TW_RUN_DURATION, /* uint32_t milliseconds; written in seconds: 1.5s */
    TW_RUN_SHA256,   /* struct tw_id; zero is `any` */
    TW_RUN_TENSORS,  /* char[TW_TENSORS_TEXT_BYTES]: tensor_list.h; empty is `none` */
};

enum {
    TW_RUN_VALUE_BYTES = TW_TENSORS_TEXT_BYTES
}; /* bytes of the longest value as text, with NUL */

struct tw_run_key {
    const char *name; /* "sync.period" */
    const char *help; /* one line */
    enum tw_run_kind kind;
    uint32_t offset;          /* in struct tw_run */
    uint64_t min, max;        /* range in the stored unit; not for NAME, SHA256 and TENSORS */
    const char *const *names; /* ENUM: by value, ends with NULL */
};

/* The table, in canonical order. Static storage. */
const struct tw_run_key *tw_run_keys(uint32_t *count);

/* The row of that name or NULL. */
const struct tw_run_key *tw_run_key_find(const char *name);

/* The key a person most likely meant by `name`, or NULL when nothing is close. */
const struct tw_run_key *tw_run_key_guess(const char *name);

/* The values that the key accepts: "1 to 341", "bf16 or int8", "0 to 1, such as 0.05 or 5%". */
void tw_run_key_accepts(const struct tw_run_key *key, char text[160]);

/* The value in *run as canonical text. */
void tw_run_key_format(const struct tw_run_key *key, const struct tw_run *run,
                       char text[TW_RUN_VALUE_BYTES]);

/* The first key with different values in a and b; NULL if both are the same run. */
const struct tw_run_key *tw_run_key_differing(const struct tw_run *a, const struct tw_run *b);

/* Reads the value into *run. TW_CONFIG, and *run unchanged, if the key does not accept it. */
enum tw_status tw_run_key_parse(const struct tw_run_key *key, const char *text, struct tw_run *run,
                                struct tw_error *err);

/* For keys with a range: gives *run the least value, or tells whether it has that. */
void tw_run_key_set_least(const struct tw_run_key *key, struct tw_run *run);
bool tw_run_key_is_least(const struct tw_run_key *key, const struct tw_run *run);

/* Checks that the key accepts the value in *run: TW_CONFIG if not. */
enum tw_status tw_run_key_check(const struct tw_run_key *key, const struct tw_run *run,
                                struct tw_error *err);

/* True if the codec is so coarse that the residual must be sent later. Equals the flag in struct
 * tw_codec of compress/codec.h. */
bool tw_run_needs_feedback(enum tw_codec_id codec);

/* True for merge rules that reject outliers. They give every node the same weight. */
bool tw_run_is_robust(enum tw_merge merge);

/* Whether the merge rule works with contributions in this codec. The median and the trimmed mean,
 * parameter by parameter, do not if nodes send most elements as 0: the zeros of the other nodes
 * outvote the one value. */
bool tw_run_can_code(enum tw_merge merge, enum tw_codec_id codec);

/* True for codecs of about a bit per element or less, which send most of an outer gradient rounds
 * later. */
bool tw_run_is_coarse(enum tw_codec_id codec);

/* True for a key that only our engine reads, in a run of family tensors: the trainer brings its
 * own. Such a key has the least value that it accepts. */
bool tw_run_is_for_engine(const struct tw_run_key *key, const struct tw_run *run);

/* Gives each such key its least value. */
void tw_run_clear_engine(struct tw_run *run);

/* Checks that each such key has its least value, and the relations between the other keys of family
 * tensors: run_tensors.c. TW_CONFIG. */
enum tw_status tw_run_check_tensors(const struct tw_run *run, struct tw_error *err);

/* Checks that a key that a person wrote has an effect in *run: TW_CONFIG with the reason if not.
 * Only for run files: a manifest always has every key. */
enum tw_status tw_run_check_written(const struct tw_run_key *key, const struct tw_run *run,
                                    struct tw_error *err);

/* Relations between the keys of sync.*: run_sync.c. TW_CONFIG. */
enum tw_status tw_run_check_sync(const struct tw_run *run, struct tw_error *err);

#endif
