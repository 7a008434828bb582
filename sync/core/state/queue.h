/* queue.h - the actions of the current event that the runtime has not yet taken. */
#ifndef TW_SYNC_CORE_STATE_QUEUE_H
#define TW_SYNC_CORE_STATE_QUEUE_H

#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"
#include "sync/core/action.h"

enum { MESSAGES_PER_EVENT_MAX = 48, BODIES_PER_EVENT_MAX = 32 };

struct queued_action {
    enum tw_action_kind kind;
    uint16_t peer;
    uint16_t slot; /* index of `messages` or `bodies` */
    /* used by SEND_CHUNK, EXPECT, VERIFY and DROP; CLOSE has its reason in idx */
    uint32_t idx, bytes;
    uint64_t elements, begin;
    uint32_t fragment;
    enum tw_content content;
    struct tw_id hash;
};

struct queue {
    struct queued_action actions[TW_ACTIONS_MAX];
    uint32_t head, tail;
    struct tw_message messages[MESSAGES_PER_EVENT_MAX];
    struct tw_action bodies[BODIES_PER_EVENT_MAX];
    uint32_t messages_count, bodies_count;
};

#endif
