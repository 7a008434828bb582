/* vote_store.h - this node's vote on disk: two small files, vote.a and vote.b, written alternately.
 *
 * If a node forgets a vote that it has sent, two different records can be committed for one round.
 * Opening therefore gives one of three answers:
 *
 *   VALID    use the vote.
 *   NONE     no vote was ever stored. Safe only for a node without a membership: if the
 *            checkpoint's position has a nonce != 0, treat this as CORRUPT.
 *   CORRUPT  a vote was stored, and the newest one cannot be proven intact. The node must never
 *            vote under its old nonce again: start with vote = NULL and position = NULL, so that
 *            it joins under a fresh nonce as a new member. (phi, u) and theta stay.
 *
 * The files alternate, and a save is acknowledged only when it is durable. Intact files thus have
 * the sequence numbers {1} or {s - 1, s}. Anything else, such as a missing or unreadable file, is
 * CORRUPT, because the lost file may have been the newest. */
#ifndef TW_DAEMON_STORE_VOTE_STORE_H
#define TW_DAEMON_STORE_VOTE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"
#include "sync/node.h"

enum tw_vote_found { TW_VOTE_NONE, TW_VOTE_VALID, TW_VOTE_CORRUPT };

struct tw_vote_store {
    const struct tw_file_ops *ops; /* borrowed */
    int dir;
    bool is_foul;      /* unusable files exist, which the next save replaces */
    uint64_t sequence; /* highest sequence number in an intact file; 0 = none */
};

/* Opens the folder and reads the newest vote. Sets *vote if *found is VALID. If *found is CORRUPT,
 * the call still succeeds, and `err` has the reason. Returns TW_IO if the folder cannot be opened.
 */
enum tw_status tw_vote_store_open(struct tw_vote_store *store, const struct tw_file_ops *ops,
                                  const char *dir_path, struct tw_vote *vote,
                                  enum tw_vote_found *found, struct tw_error *err);

/* Saves a vote durably. Only after TW_OK may it be sent. After TW_IO it must not be sent, but the
 * save may be repeated. Blocks for one or two disk syncs. No heap. */
enum tw_status tw_vote_store_save(struct tw_vote_store *store, const struct tw_vote *vote,
                                  struct tw_error *err);

void tw_vote_store_close(struct tw_vote_store *store);

#endif
