/* limits.h - bounds that several libraries share, and sizes on the wire, each with its unit. A
 * bound that only one file needs is defined in that file. */
#ifndef TW_BASE_LIMITS_H
#define TW_BASE_LIMITS_H

enum tw_limits {
    /* the run */
    TW_MEMBERS_MAX = 64,          /* members of a group's roster; sets of contributors are 64-bit
                                     masks */
    TW_FRAGMENTS_MAX = 1024,      /* fragments of a model */
    TW_PARTS_MAX = 16,            /* owners (and so parts) of one round */
    TW_TENSORS_MAX = 4096,        /* tensors of a model */
    TW_TENSOR_NAME_BYTES = 128,   /* name of a tensor, including NUL */
    TW_TENSOR_RANK_MAX = 6,       /* dimensions of a tensor */
    TW_TENSORS_TEXT_BYTES = 8192, /* names and shapes of a run's tensors as text, including NUL */
    TW_CLAIM_MEDIANS = 4, /* steps and tokens that a contribution claims count up to this multiple
                             of the (lower) median of its round: in weights, guard and clock */
    TW_CLAIM_FEW = 16,    /* the same where one or two contributions show no usual number */
    TW_CLAIM_LONE = 2,    /* tokens of a lone contributor count up to this multiple of the mean
                             advance of the run clock in a round */
    TW_VOTES_YOUNG = 8,   /* merges of a group's oldest voter below which any number of nodes gets
                             seats in one round */
    TW_GROUP_OLD = 64,    /* merges of a group's oldest voter from which ids that its members never
                             met in a roster draw none of them away */
    TW_PART_ALIGN = 1024, /* elements; part boundaries are multiples of this, and this is a multiple
                             of every codec's block */
    TW_FRAGMENT_ELEMENTS_MAX =
        120 << 20, /* elements of a fragment: its (phi, u) must fit into one payload */

    /* the node */
    TW_PEERS_MAX = 64,      /* authenticated peers linked at once */
    TW_PEERS_FREE_MAX = 48, /* linked peers below which TW_PEERS_FRESH_PER_HOST does not apply */
    TW_PEERS_FRESH_PER_HOST = 4, /* linked nodes of one host with new ids */
    TW_KNOWN_MAX = 256,          /* rows of the member table */
    TW_BANS_MAX = 256,           /* bans of nodes that broke the protocol, kept across restarts */
    TW_ADDRS_MAX = 4,            /* addresses kept per member */
    TW_ADDR_BYTES = 72,          /* "host:port", including NUL */
    TW_ROUNDS_KEPT = 64,         /* committed round records kept for members that missed them */
    TW_PAYLOADS_MAX = 512,       /* payloads known to a node: wanted, arriving or held */
    TW_ACTIONS_MAX = 4096,       /* actions that the core may queue before the runtime polls them */
    TW_TRANSFERS_MAX = 64,       /* payloads being received at once */
    TW_STATES_KEPT = 4,    /* packed states of the largest fragment for which memory is reserved */
    TW_SERVING_ROWS = 128, /* nodes whose budget is kept (daemon/config/serving.h) */
    TW_SERVING_BYTES_MIN = 1 << 20, /* least size that a budget assumes for a model or a dataset */
    TW_HEARTBEAT_US = 1000 * 1000,  /* time between two STATUS messages on a control link */
    TW_PEER_SILENCE_US =
        6 * 1000 * 1000, /* silence after which the link is closed and the peer counts as dead */

    TW_SIGNATURE_BYTES = 64, /* an Ed25519 signature */

    /* the wire */
    TW_FRAME_HEADER_BYTES = 32,       /* frame header, PROTOCOL.md section 2 */
    TW_RETRY_S_MAX = 32 * 24 * 3600,  /* longest wait that MISSING announces, in seconds */
    TW_CONTROL_BYTES_MAX = 64 * 1024, /* body of a control frame */
    TW_CHUNK_BYTES_MAX = 256 * 1024,  /* payload bytes in a bulk frame */
    TW_CHUNK_HEADER_BYTES = 40,       /* payload id (32), chunk index (4), reserved (4) */
    TW_FRAME_BODY_MAX = TW_CHUNK_BYTES_MAX + TW_CHUNK_HEADER_BYTES,
    TW_PAYLOAD_BYTES_MAX = 1 << 30, /* size of a payload */
    TW_CHUNKS_MAX = TW_PAYLOAD_BYTES_MAX / TW_CHUNK_BYTES_MAX,
    TW_MANIFEST_BYTES_MAX = 24 * 1024, /* canonical text of a run manifest */

    /* connections */
    TW_LISTEN_MAX = 4,         /* addresses that a node listens on */
    TW_BIND_MAX = 2,           /* local addresses that a node dials from, one per address family */
    TW_HELLO_BYTES_MAX = 1024, /* body of a HELLO or GOODBYE */
    TW_HELLO_EXTENSIONS_MAX = 8, /* extensions of a HELLO */
    TW_HELLO_EXTENSIONS_BYTES =
        600, /* total bytes of all extensions: they fit a HELLO beside 4 addresses of full length */
    TW_WELCOME_BYTES_MAX = 28 * 1024, /* body of a WELCOME: a manifest and 4 KiB for all other
                                         fields */
    TW_ACCEPTS_PER_S = 500,           /* TCP connections accepted per second */
    TW_HANDSHAKE_LIMITER_PER_S = 50, /* handshakes begun per second by all unknown hosts together */
    TW_HANDSHAKE_LIMITER_BURST = 512,    /* burst of handshakes of all unknown hosts together */
    TW_HANDSHAKE_LIMITER_NET_PER_S = 10, /* handshakes per second of one network (/24 or /48), or of
                                            one host from which members connected */
    TW_HANDSHAKE_LIMITER_NET_BURST =
        128, /* burst of handshakes of one network: all its nodes may restart together */
    TW_MESSAGES_PER_S =
        4000, /* control messages read per second from one peer; some kinds count as several */
    TW_MESSAGES_BURST = 8000,           /* burst of control messages of one peer */
    TW_PEER_CONTROL_BYTES = 2 << 20,    /* most memory of a peer's control connection */
    TW_PEER_BULK_BYTES = 8 << 20,       /* most memory of a peer's bulk connection */
    TW_HANDSHAKES_MAX = 64,             /* connections accepted but not yet admitted */
    TW_HANDSHAKES_PER_HOST = 16,        /* handshakes of one host (IPv6: /64) in progress at once */
    TW_HANDSHAKE_US = 5 * 1000 * 1000,  /* time from accept or connect to admission */
    TW_HANDSHAKE_BYTES_MAX = 16 * 1024, /* ciphertext received before admission */
    TW_DIALS_MAX = 32,                  /* outgoing connections in progress */
    TW_CONNECT_US = 10 * 1000 * 1000,   /* time for name lookup and TCP connect */
    TW_PROBE_US = 4 * 1000 * 1000,      /* time for name lookup and TCP connect of a dial that a
                                           peer asked for */
    TW_DIAL_STAGGER_US = 250 * 1000,    /* delay between dials to two addresses of one node */
    TW_CONTROL_QUEUE_BYTES = 256 * 1024, /* bytes queued for a peer's control connection */
    TW_BULK_QUEUE_CHUNKS = 1024,     /* payload chunks queued for the peer that requested them */
    TW_BACKGROUND_QUEUE_CHUNKS = 64, /* dataset chunks read from disk and queued for one peer */
    TW_INFLIGHT_BYTES_MAX =
        64 * 1024, /* ciphertext of one connection not yet accepted by the kernel */
    /* bytes of one TLS record; a control message waits for at most one record */
    TW_TLS_RECORD_BYTES_MAX = 16 * 1024,

    /* Relayed links: a relay is a member that forwards the connections between two other nodes. A
     * call asks a node to dial the relay; the relay then joins the two connections to a pipe. */
    TW_RELAY_TOKEN_BYTES = 16,    /* id of a call */
    TW_RELAY_PIPES_MAX = 64,      /* calls and pipes of a relay at once */
    TW_RELAY_PIPES_PER_PAIR = 4,  /* pipes between the same two nodes: control and bulk, and the
                                     connections that replace them */
    TW_RELAY_PIPES_PER_PEER = 32, /* pipes and calls of one node, in either direction */
    TW_RELAY_CALLS_MAX = 16,      /* calls of all nodes that have no pipe yet */
    TW_RELAY_CALLS_PER_PEER = 4, /* calls of one node, in either direction, that have no pipe yet */
    TW_RELAY_CALLS_PER_S = 2,    /* calls per second that one node may begin */
    TW_RELAY_ANSWERS_PER_S = 8,  /* calls answered per second through one relay */
    TW_RELAY_ANSWERS_BURST = 64, /* burst of answers through one relay */
    TW_RELAY_CALLS_BURST = 16,   /* burst of calls begun by one node */
    TW_RELAY_CALL_US = 10 * 1000 * 1000, /* time after which a call without a pipe is given up */
    TW_RELAY_QUEUE_BYTES = 256 * 1024,   /* bytes buffered in one direction of a pipe */
    TW_RELAY_ANSWERS_MAX = 8,            /* dials in progress to relays, each to answer a call */
    TW_RELAY_ANSWERS_PER_PEER = 4,       /* dials in progress to one relay, each to answer a call */
    /* Relayed bytes of a pipe with an end that is neither in the roster nor configured: of one such
     * node, and of all together. They need a relay for their first links, not for training. */
    TW_RELAY_OUTSIDE_NODE_BURST = 4 << 20,
    TW_RELAY_OUTSIDE_NODE_PER_S = 32 << 10,
    TW_RELAY_OUTSIDE_BURST = 16 << 20,
    TW_RELAY_OUTSIDE_PER_S = 128 << 10,
    TW_RELAY_JUDGE_BYTES =
        256 * 1024,                /* relayed bytes of a pipe after which its budget is looked at */
    TW_PUNCHES_MAX = 4,            /* hole punches in progress, each to replace a relayed link by a
                                      direct one */
    TW_PUNCH_US = 4 * 1000 * 1000, /* time during which both ends of a hole punch keep dialling */
};

_Static_assert(TW_MEMBERS_MAX <= 64, "contributor sets are 64-bit");
_Static_assert(TW_PARTS_MAX <= TW_MEMBERS_MAX, "every part has its own owner");
_Static_assert(TW_FRAGMENT_ELEMENTS_MAX / 1024 * 8 < TW_PAYLOAD_BYTES_MAX / 1024 * 95 / 100,
               "8 bytes per element and 5 % for the packing");
_Static_assert(TW_PEER_SILENCE_US >= 3 * TW_HEARTBEAT_US, "two lost heartbeats are survivable");
_Static_assert(TW_HANDSHAKE_LIMITER_BURST >= 4 * TW_HANDSHAKE_LIMITER_NET_BURST,
               "one network leaves room for others");
_Static_assert(TW_HANDSHAKE_LIMITER_NET_BURST >= 2 * TW_PEERS_MAX,
               "control and bulk of every peer");
_Static_assert(TW_RELAY_PIPES_PER_PEER * 2 <= TW_RELAY_PIPES_MAX,
               "one pair leaves room for others");
_Static_assert(TW_SERVING_ROWS >= 2 * TW_MEMBERS_MAX, "every member of a roster keeps its row");
_Static_assert(TW_RELAY_JUDGE_BYTES < TW_RELAY_OUTSIDE_NODE_BURST, "a burst is looked at");
_Static_assert(TW_ACTIONS_MAX >= 16 * TW_PEERS_MAX, "one event may talk to every peer");

#endif
