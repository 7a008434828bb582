/* exact.h - uncompressed outer gradients, float32 in and out. Runs cannot use this codec; it is the
 * baseline for the cost of compression. */
#ifndef TW_TESTS_QUALITY_EXACT_H
#define TW_TESTS_QUALITY_EXACT_H

#include "compress/codec.h"

extern const struct tw_codec exact_codec;

#endif
