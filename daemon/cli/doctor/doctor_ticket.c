/* doctor_ticket.c - checks a line of `thinwire invite` on a machine that is not a node yet: is it
 * complete and still valid, and do its addresses lead to the node that made it? */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "daemon/cli/common/ticket_line.h"
#include "daemon/cli/doctor/doctor.h"
#include "proto/ticket.h"

_Static_assert((int)TW_BOOTSTRAP_MAX >= (int)TW_ADDRS_MAX, "every address is tried");

static void look_at_expiry(struct doctor *doctor, const struct tw_ticket *ticket) {
    char name[9], until[TW_UNITS_BYTES], node[9], late[TW_TICKET_AGE_BYTES];
    tw_ticket_name(ticket->id, name);
    tw_id_short(&ticket->inviter, node);
    if (cli_ticket_is_late(ticket, (uint64_t)time(NULL), late))
        doctor_say(
            doctor, DOCTOR_WARN, "ticket",
            "if the clock is right (`timedatectl` shows it), ask for a new ticket: `thinwire "
            "invite`; otherwise set the clock: `timedatectl set-ntp true`",
            "%s", late);
    else
        doctor_say(doctor, DOCTOR_OK, "ticket", NULL, "%s of node %s, valid until %s", name, node,
                   tw_units_utc(until, ticket->expires_s));
}

void doctor_ticket(struct doctor *doctor, const char *line) {
    static struct tw_bootstrap peers[TW_ADDRS_MAX];
    struct tw_ticket ticket;
    struct tw_error err;
    if (tw_ticket_decode(line, &ticket, &err) != TW_OK) {
        doctor_say(doctor, DOCTOR_FAIL, "ticket", NULL, "%s", err.message);
        return;
    }
    look_at_expiry(doctor, &ticket);
    doctor->has_identity = tw_identity_ephemeral(&doctor->identity, &err) == TW_OK;
    for (uint32_t i = 0; i < ticket.addrs_count; i++) {
        peers[i] = (struct tw_bootstrap){.has_id = true, .id = ticket.inviter};
        (void)snprintf(peers[i].address.text, TW_ADDR_BYTES, "%s", ticket.addrs[i]);
    }
    doctor_addresses(doctor, peers, ticket.addrs_count, true);
}
