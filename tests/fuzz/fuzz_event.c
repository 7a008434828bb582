/* fuzz_event.c - arbitrary bytes as a recorded event: refused, or an event that is encoded and
 * decoded to itself. */
#include "base/assert.h"
#include "sync/trace/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tw_message message, message_again;
    static struct tw_worker_state worker, worker_again;
    static uint8_t bytes[TW_EVENT_BYTES_MAX];
    struct tw_event event, again;
    struct tw_error err;
    if (tw_event_decode(data, size, &event, &message, &worker, &err) != TW_OK) return 0;
    const size_t encoded = tw_event_encode(&event, bytes);
    TW_ASSERT(tw_event_decode(bytes, encoded, &again, &message_again, &worker_again, &err) ==
              TW_OK);
    TW_ASSERT(tw_trace_event(&event) == tw_trace_event(&again));
    return 0;
}
