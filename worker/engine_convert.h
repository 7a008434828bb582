/* engine_convert.h - thinwire-engine import, export. */
#ifndef TW_WORKER_ENGINE_CONVERT_H
#define TW_WORKER_ENGINE_CONVERT_H

#include "worker/engine_verb.h"

/* The verb argv[1], import or export, with its own options. */
enum tw_exit engine_convert(int argc, char **argv);

#endif
