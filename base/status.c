#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

enum tw_status tw_fail(struct tw_error *err, enum tw_status status, const char *fmt, ...) {
    if (err == NULL) return status;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->message, sizeof(err->message), fmt, args);
    va_end(args);
    err->status = status;
    return status;
}

const char *tw_status_name(enum tw_status status) {
    switch (status) {
#define X(name, value, meaning)                                                                    \
    case TW_##name: return #name;
        TW_STATUS_LIST(X)
#undef X
    }
    return "UNKNOWN";
}

const char *tw_status_meaning(enum tw_status status) {
    switch (status) {
#define X(name, value, meaning)                                                                    \
    case TW_##name: return meaning;
        TW_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}
