/* vote.c - the vote on the open round: runs this node's lease, acceptor and proposer in turn. */
#include "sync/vote/vote.h"

#include "sync/core/membership.h"
#include "sync/core/state/node.h"
#include "sync/vote/acceptor.h"
#include "sync/vote/ballot_lease.h"
#include "sync/vote/proposer.h"

bool tw_vote_reply(struct tw_node *node) {
    struct tw_msg_accept own;
    while (tw_acceptor_reply(node, &own)) {
        if (tw_proposer_accept(node, NO_PEER, &own)) return true;
    }
    return false;
}

void tw_vote_advance(struct tw_node *node) {
    if (!tw_membership_takes_part(node)) return;
    tw_acceptor_keep_result(node);
    if (!tw_membership_is_voter(node)) return;
    tw_lease_advance(node);
    tw_acceptor_promise(node);
    tw_proposer_advance(node);
    tw_acceptor_consider(node);
    tw_proposer_announce(node);
}
