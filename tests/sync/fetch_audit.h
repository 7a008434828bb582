/* fetch_audit.h - the invariants of a fetcher between two calls (sync/fetch/fetch_internal.h). */
#ifndef TW_TESTS_SYNC_FETCH_AUDIT_H
#define TW_TESTS_SYNC_FETCH_AUDIT_H

#include "sync/fetch/fetch.h"

/* Asserts the invariants. To be called after all actions have been fetched. */
void tw_fetch_audit(struct tw_fetch *fetch);

#endif
