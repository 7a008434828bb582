#include "proto/message.h"

const char *tw_message_name(enum tw_message_kind kind) {
    switch (kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: return #name;
        TW_MESSAGE_LIST(X)
#undef X
    }
    return "?";
}
