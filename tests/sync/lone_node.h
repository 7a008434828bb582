/* lone_node.h - one real node among peers that the test plays.
 *
 * The node is member 0 of {0, 1, 2}, after round 9 and before round 10. Votes are stored at
 * once; every other action is recorded in `seen`. */
#ifndef TW_TESTS_LONE_NODE_H
#define TW_TESTS_LONE_NODE_H

#include "base/assert.h"
#include "base/hash.h"
#include "sync/node.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

enum { FRAGMENTS = 3, ROUNDS = 10, SEEN_MAX = 4096 };
/* Largest sizes of payloads: packed states, and all others. */
enum { OPAQUE_MAX = 64 * TW_CHUNK_BYTES_MAX, CODED_MAX = 16 * TW_CHUNK_BYTES_MAX };

extern struct tw_node *node;
extern uint64_t now_us;
extern bool is_disk_full;
extern struct tw_rate download;  /* download cap of the node; none at first */
extern struct tw_position start; /* position from which the node starts */
extern bool has_rights;          /* config.has_rights, at the next start */
extern uint32_t voteless_peers;  /* set of peers whose certificates give no vote, at link_up */
/* Actions since forget(), oldest first, with copies of the messages. */
struct seen {
    struct tw_action action;
    struct tw_message message;
};
extern struct seen *seen;
extern uint32_t seen_count;

struct tw_id id_of(uint32_t member);
struct tw_id name_of(const char *text);
/* Delivers an event and records the actions that follow. */
void feed(const struct tw_event *event);
/* Delivers a message from a peer and asserts that it passes the checks of received messages. A vote
 * is signed by the peer, a COMMIT by the whole roster. */
void say(uint16_t peer, const struct tw_message *message);
/* Like say(), but the message keeps the signatures that it has. */
void say_unsigned(uint16_t peer, const struct tw_message *message);
/* Returns an empty message in static memory, to fill and pass to say(). */
struct tw_message *message_of(enum tw_message_kind kind);
void say_status(uint16_t peer, const struct tw_id *lineage, uint64_t rounds, uint64_t clock_tokens);
/* The peer answers LOG_GET with a proof of its lineage: records up to `tip`, each signed by all
 * members of the roster tip->next. Sets tip->parent. */
void prove_lineage(uint16_t peer, struct tw_record *tip);
/* The peer reports this lineage and proves it, as the lineage's only member. */
void say_and_prove(uint16_t peer, const struct tw_id *lineage, uint64_t rounds,
                   uint64_t clock_tokens);
void worker_up(void);
void step_to(uint64_t step);
/* Ticks every second until `for_us` has passed. All linked peers report the node's own round. */
void wait_us(uint64_t for_us);
/* Discards the recorded actions. */
void forget(void);
/* Returns the newest recorded action or message of this kind, or NULL. */
const struct tw_action *find_action(enum tw_action_kind kind);
const struct tw_message *find_message(enum tw_message_kind kind, uint16_t peer);
struct tw_node_view view_now(void);
void assert_follows(const struct tw_id *lineage);
/* A valid round record after `parent`, without contributions. */
struct tw_record empty_close(const struct tw_record *parent);
/* kill -9 and restart from `start`, linked to peers 1 and 2. */
void start_again(void);
/* Like start_again(), but with the vote that the node stored last. */
void start_with_vote(void);
/* Starts another member from `start`, without a vote, linked to the two others. */
void start_as(uint32_t member);
/* cmocka fixtures. two_codecs: results use another codec than contributions. few_judges: the
 * group is too small to refuse outlier results. follower: the node takes no steps. */
int set_up(void **state);
int set_up_few_judges(void **state);
int set_up_follower(void **state);
int set_up_two_codecs(void **state);
int tear_down(void **state);
/* Delivers a contribution from `peer`. The round is active from then on. */
void contribute_as(uint16_t peer);
void link_up(uint16_t peer);
/* Advances the worker to step 1010 and answers ENCODE. The node's payloads of parts 0, 1, 2 are
 * named "a", "b", "c". */
void encode_ours(void);
/* The owner of part 1 announces a result merged from one contribution: the owner's own, or in
 * say_result_of() that of `member`. */
void say_result(const struct tw_id *hash, uint32_t bytes);
void say_result_of(uint32_t member, const struct tw_id *hash, uint32_t bytes);
void say_result_by(const struct tw_contributor *by, const struct tw_id *hash, uint32_t bytes);
/* The owner of part 1 announces a result that lists this row. The row's signature is not renewed.
 */
void say_result_of_row(const struct tw_contributor *row);
/* The owner of this part (1 or 2) of the open round announces that it has nothing to merge. */
void say_no_result(uint32_t part);

/* Waits, for at most `seconds`, until this node asks the peer for a promise. Returns the ballot. */
uint64_t wait_for_prepare(uint16_t peer, uint32_t seconds);
/* Returns a promise of `ballot`, to pass to say(). It reports a lock on the record, or no lock if
 * lock_ballot is 0. */
struct tw_message *promise_with_lock(const struct tw_record *locked, uint64_t lock_ballot,
                                     uint64_t ballot);
/* A vote for say(). */
struct tw_message *accept_of(const struct tw_record *record, uint64_t ballot,
                             enum tw_vote_phase phase);

#endif
