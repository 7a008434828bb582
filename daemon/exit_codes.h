/* exit_codes.h - the list lives in base/, because the worker ends with the same numbers. */
#ifndef TW_DAEMON_EXIT_CODES_H
#define TW_DAEMON_EXIT_CODES_H

#include "base/exit_codes.h"

#endif
