/* screen.h - prints the API's JSON for people. Pure, except for writing to screen->to. */
#ifndef TW_DAEMON_CLI_SHOW_SCREEN_H
#define TW_DAEMON_CLI_SHOW_SCREEN_H

#include <jansson.h>

#include "daemon/cli/common/line.h"

/* Prints GET /v1/status on one screen: a sentence about the node's activity, warnings with their
 * remedies, then loss, clock, training, sync, network, worker, checkpoint and the newest events.
 * With a height, the least important lines are cut. */
void screen_status(const struct screen *screen, const json_t *status);
void screen_peers(const struct screen *screen, const json_t *peers);
void screen_rounds(const struct screen *screen, const json_t *rounds);
/* Prints GET /v1/ledger. */
void screen_ledger(const struct screen *screen, const json_t *ledger);
/* Prints GET /v1/versions. */
void screen_versions(const struct screen *screen, const json_t *versions);
void screen_events(const struct screen *screen, const json_t *events);
/* Prints one event with its local time: the line of `events` and of `events --follow`. */
void screen_event(const struct screen *screen, const json_t *event);

#endif
