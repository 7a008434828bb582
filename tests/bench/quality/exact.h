/* exact.h - outer gradients as they are: float32 in, float32 out. No codec of the product; what
 * compression costs is told against it. */
#ifndef TW_TESTS_QUALITY_EXACT_H
#define TW_TESTS_QUALITY_EXACT_H

#include "compress/codec.h"

extern const struct tw_codec exact_codec;

#endif
