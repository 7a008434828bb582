/* exact.h - uncompressed outer gradients: float32 in, float32 out. Not a codec of the product; the
 * baseline for the cost of compression. */
#ifndef TW_TESTS_QUALITY_EXACT_H
#define TW_TESTS_QUALITY_EXACT_H

#include "compress/codec.h"

extern const struct tw_codec exact_codec;

#endif
