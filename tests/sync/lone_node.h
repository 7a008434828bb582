/* lone_node.h - one node among neighbours that the test speaks for.
 *
 * The node is member 0 of {0, 1, 2}, between rounds 9 and 10. Votes are stored at once, every other
 * action is kept for the test to look at. */
#ifndef TW_TESTS_LONE_NODE_H
#define TW_TESTS_LONE_NODE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sync/node.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

enum { FRAGMENTS = 3, ROUNDS = 10, SEEN_MAX = 4096 };

extern struct tw_node *node;
extern uint64_t now_us;
extern bool is_disk_full;
extern struct tw_rate download;  /* what it may ask for; no cap at first */
extern struct tw_position start; /* where it began */
/* What the node did since forget(); messages by value. */
struct seen {
    struct tw_action action;
    struct tw_message message;
};
extern struct seen *seen;
extern uint32_t seen_count;

struct tw_id id_of(uint32_t member);
struct tw_id name_of(const char *text);
/* One event, and whatever follows from it; votes are stored at once. */
void feed(const struct tw_event *event);
/* What a neighbour says, as it would come off the wire. */
void say(uint16_t peer, const struct tw_message *message);
/* An empty message to fill and say. */
struct tw_message *message_of(enum tw_message_kind kind);
void say_status(uint16_t peer, const struct tw_id *lineage, uint64_t rounds, uint64_t clock_tokens);
void worker_up(void);
void step_to(uint64_t step);
/* Ticks until `for_us` has passed; 1 and 2 go on saying that they stand where we stand. */
void wait_us(uint64_t for_us);
/* What the node did so far is of no interest. */
void forget(void);
/* The newest, or NULL. */
const struct tw_action *find_action(enum tw_action_kind kind);
const struct tw_message *find_message(enum tw_message_kind kind, uint16_t peer);
struct tw_node_view view_now(void);
void assert_follows(const struct tw_id *lineage);
/* A sound manifest that nobody contributed to, on top of `parent`. */
struct tw_record empty_close(const struct tw_record *parent);
/* kill -9: it begins at `start` again, linked to both neighbours. */
void start_again(void);
/* For cmocka. two_codecs: results are in another codec than contributions. few_judges: insane
 * results count in larger groups than this one. */
int set_up(void **state);
int set_up_few_judges(void **state);
int set_up_two_codecs(void **state);
int tear_down(void **state);
/* Makes the round active in the node's eyes. */
void contribute_as(uint16_t peer);
void link_up(uint16_t peer);
/* Answers ENCODE: parts 0, 1, 2 are named "a", "b", "c". */
void encode_ours(void);
/* The owner of part 1 says what it merged: its own contribution alone, that of `member`, or one. */
void say_result(const struct tw_id *hash, uint32_t bytes);
void say_result_of(uint32_t member, const struct tw_id *hash, uint32_t bytes);
void say_result_by(const struct tw_contributor *by, const struct tw_id *hash, uint32_t bytes);
/* The owner of this part of the open round, 1 or 2, has nothing to merge. */
void say_no_result(uint32_t part);

#endif
