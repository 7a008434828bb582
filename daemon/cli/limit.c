/* limit.c - `thinwire limit`: rate caps for the running daemon, until its next restart. */
#include <stdlib.h>
#include <string.h>

#include "daemon/cli/common/cli.h"

/* Checks "5mbit", "off" (the configured caps) or "0" (no cap) by the daemon's rules. */
static enum tw_exit check_rate(const char *rate) {
    uint64_t bytes_s;
    struct tw_error err = {0};
    if (strcmp(rate, "off") == 0 || strcmp(rate, "0") == 0 ||
        tw_rate_parse(rate, &bytes_s, &err) == TW_OK)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "limit: %s, or off", err.message);
}

enum tw_exit cli_limit(struct cli *cli) {
    const char *what = cli_operand(cli), *rate = cli_operand(cli);
    char path[128] = "limit";
    const bool is_up = what != NULL && strcmp(what, "upload") == 0;
    const bool is_down = what != NULL && strcmp(what, "download") == 0;
    if (what != NULL && rate == NULL && !is_up && !is_down) { /* thinwire limit 5mbit */
        rate = what;
    } else if (what != NULL && !is_up && !is_down) {
        return cli_fail(TW_EXIT_USAGE, "limit: `%s` is neither upload nor download", what);
    } else if (what != NULL && rate == NULL) {
        return cli_fail(TW_EXIT_USAGE,
                        "limit %s: which rate? 5mbit, off for the configured one, or 0 for none",
                        what);
    }
    const enum tw_exit usage = cli_done(cli, "limit");
    if (usage != TW_EXIT_OK) return usage;
    if (rate != NULL) {
        const enum tw_exit checked = check_rate(rate);
        if (checked != TW_EXIT_OK) return checked;
        (void)snprintf(path, sizeof(path), "limit?%s%.32s%s%.32s",
                       is_down ? "download=" : "upload=", rate,
                       is_up || is_down ? "" : "&download=", is_up || is_down ? "" : rate);
    }
    return cli_ask(cli, "limit", path, NULL);
}
