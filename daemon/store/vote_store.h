/* vote_store.h - the vote of this node on disk: two small files, vote.a and vote.b, in turn.
 *
 * A vote told to others and then forgotten lets two different manifests be committed for one round.
 * Hence three answers at start, and what to do with each:
 *
 *   VALID    go on with it.
 *   NONE     no vote was ever stored here. Safe only for a node that has no membership either: if
 *            the checkpoint's position has a nonce != 0, treat it as CORRUPT.
 *   CORRUPT  a vote was stored and the newest one cannot be proven intact. The node must never vote
 *            under its old nonce again: start with vote = NULL and position = NULL, and let it
 *            join again under a fresh nonce, which makes it a new member. (phi, u) and theta stay.
 *
 * The files take turns and every save is acknowledged only when durable, so intact files number
 * either {1} or {s - 1, s}; anything else (one file missing, one unreadable) is CORRUPT, for the
 * lost one may have been the newest. */
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
    bool is_foul;      /* unusable files lie there: the next save replaces both */
    uint64_t sequence; /* the largest in an intact file; 0 = none */
};

/* Opens the folder and reads the newest vote. *vote is set when *found is VALID; when it is CORRUPT
 * `err` holds the reason although the call succeeds. TW_IO when the folder cannot be opened. */
enum tw_status tw_vote_store_open(struct tw_vote_store *store, const struct tw_file_ops *ops,
                                  const char *dir_path, struct tw_vote *vote,
                                  enum tw_vote_found *found, struct tw_error *err);

/* TW_OK means durable: only then may the vote be told. Otherwise it is TW_IO, the vote must not be
 * told, and the save may be tried again. Blocks for one or two disk syncs; no heap. */
enum tw_status tw_vote_store_save(struct tw_vote_store *store, const struct tw_vote *vote,
                                  struct tw_error *err);

void tw_vote_store_close(struct tw_vote_store *store);

#endif
