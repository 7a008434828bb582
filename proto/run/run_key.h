/* run_key.h - the table of the run manifest: every key with its type, offset, range and help. All
 * functions that set, write, read or check a run use it. */
#ifndef TW_PROTO_RUN_RUN_KEY_H
#define TW_PROTO_RUN_RUN_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"

/* ---- numbers as text ------------------------------------------------------------------------ */

/* Exact decimals, no floating point. */
enum { TW_DECIMAL_BYTES = 32 }; /* 20 digits, a point, a unit and a NUL */

/* A unit, such as "m" for 1000000. A table ends with a NULL name; an empty name is for numbers
 * without a unit. */
struct tw_unit {
    const char *name;
    uint64_t scale;
};

/* Reads a decimal such as "12", "0.5", ".5" or "1.5m" and multiplies it by the unit's scale. Units
 * match in either case. Returns false and leaves *value unchanged if the text is not a plain
 * decimal with a unit of the table, is not whole after scaling ("0.1ms"), or does not fit 64 bits.
 */
bool tw_value_parse(const char *text, const struct tw_unit *units, uint64_t *value);

/* Writes value / 10^decimals (decimals <= 9) without trailing zeros, then `unit`: the canonical
 * form. */
void tw_value_format(uint64_t value, unsigned decimals, const char *unit,
                     char text[TW_DECIMAL_BYTES]);

/* ---- the table ------------------------------------------------------------------------------ */

enum tw_run_kind {
    TW_RUN_NAME,     /* char[64]: [a-z0-9-] */
    TW_RUN_ENUM,     /* enum, one of `names` */
    TW_RUN_U32,      /* whole number */
    TW_RUN_U64,      /* whole number */
    TW_RUN_TOKENS,   /* uint64_t; a run file may say 500k, 2m, 1.5g */
    TW_RUN_REAL,     /* uint32_t millionths; a run file may say 5% */
    TW_RUN_DURATION, /* uint32_t milliseconds; written in seconds: 1.5s */
    TW_RUN_SHA256,   /* struct tw_id; zero is `any` */
    TW_RUN_TENSORS,  /* char[TW_TENSORS_TEXT_BYTES]: layout.h; empty is `none` */
};

enum {
    TW_RUN_VALUE_BYTES = TW_TENSORS_TEXT_BYTES
}; /* bytes of the longest value as text, including NUL */

struct tw_run_key {
    const char *name; /* "sync.period" */
    const char *help; /* one line */
    enum tw_run_kind kind;
    uint32_t offset;          /* offset in struct tw_run */
    uint64_t min, max;        /* range in the stored unit; unused by NAME, SHA256 and TENSORS */
    const char *const *names; /* ENUM: names in order of their values, then NULL */
    bool is_later; /* runs of before this key exist: at its least value the canonical text omits it,
                      so they keep their text, and with it their id */
};

/* The table, in canonical order. Static storage. */
const struct tw_run_key *tw_run_keys(uint32_t *count);

/* Returns the row of that name, or NULL. */
const struct tw_run_key *tw_run_key_find(const char *name);

/* Returns the key that a person most likely meant by `name`, or NULL if none is similar. */
const struct tw_run_key *tw_run_key_guess(const char *name);

/* Describes the values that the key accepts: "1 to 341", "bf16 or int8", "0 to 1, such as 0.05 or
 * 5%". */
void tw_run_key_accepts(const struct tw_run_key *key, char text[160]);

/* Writes the key's value in *run as canonical text. */
void tw_run_key_format(const struct tw_run_key *key, const struct tw_run *run,
                       char text[TW_RUN_VALUE_BYTES]);

/* Returns the word of a key of the kind ENUM, such as "llama" for "model.family". Static storage.
 */
const char *tw_run_key_word(const char *name, const struct tw_run *run);

/* Returns the first key whose values in a and b differ; NULL if the runs are equal. */
const struct tw_run_key *tw_run_key_differing(const struct tw_run *a, const struct tw_run *b);

/* Parses the value into *run. Returns TW_CONFIG and leaves *run unchanged if the key does not
 * accept the value. */
enum tw_status tw_run_key_parse(const struct tw_run_key *key, const char *text, struct tw_run *run,
                                struct tw_error *err);

/* For keys with a range: sets the key to its least value, or returns whether it has that value. */
void tw_run_key_set_least(const struct tw_run_key *key, struct tw_run *run);
bool tw_run_key_is_least(const struct tw_run_key *key, const struct tw_run *run);

/* Returns TW_CONFIG unless the key accepts its value in *run. */
enum tw_status tw_run_key_check(const struct tw_run_key *key, const struct tw_run *run,
                                struct tw_error *err);

/* Returns true if the codec is so coarse that its quantisation error must be sent later (error
 * feedback). Equals the flag in struct tw_codec of compress/codec.h. */
bool tw_run_needs_feedback(enum tw_codec_id codec);

/* Returns true for merge rules that reject outliers. Such a rule gives every node the same weight.
 */
bool tw_run_is_robust(enum tw_merge merge);

/* Returns true if the merge rule works with contributions in this codec. Median and trimmed mean
 * work per coordinate. If nodes send most elements as 0, the zeros of other nodes outvote the one
 * value. */
bool tw_run_can_code(enum tw_merge merge, enum tw_codec_id codec);

/* Returns true for codecs of about one bit per element or less: they send most of an outer gradient
 * in later rounds. */
bool tw_run_is_coarse(enum tw_codec_id codec);

/* Returns true if only this project's engine reads the key, and the run is of family tensors: its
 * trainer has its own setting. Such a key has its least value. */
bool tw_run_is_for_engine(const struct tw_run_key *key, const struct tw_run *run);

/* Sets every key for which tw_run_is_for_engine is true to its least value. */
void tw_run_clear_engine(struct tw_run *run);

/* Returns TW_CONFIG with the reason if a key that a person wrote has no effect in *run. Only for
 * run files: a manifest always has every key. */
enum tw_status tw_run_check_written(const struct tw_run_key *key, const struct tw_run *run,
                                    struct tw_error *err);

#endif
