/* sample.h - valid rosters, round records and messages for tests, drawn from a seed. */
#ifndef TW_TESTS_PROTO_SAMPLE_H
#define TW_TESTS_PROTO_SAMPLE_H

#include "base/rng.h"
#include "proto/message.h"
#include "proto/record.h"

struct tw_id tw_sample_id(struct tw_rng *rng); /* not zero */

/* Draws `count` members sorted by id; each weight is 0 with probability 1/4. */
void tw_sample_roster(struct tw_rng *rng, struct tw_roster *roster, uint32_t count);

/* Draws a record that passes tw_record_check and fits *roster. Unused elements are zero. */
void tw_sample_close(struct tw_rng *rng, struct tw_record *record, const struct tw_roster *roster);

/* Draws a record of the largest possible size. */
void tw_sample_close_full(struct tw_rng *rng, struct tw_record *record);

/* Draws a valid message of the kind. Unused elements are zero. */
void tw_sample_message(struct tw_rng *rng, enum tw_message_kind kind, struct tw_message *message);

#endif
