/* pack.h - lossless compression of a fragment's (phi, u), for nodes that join. Each float is
 * rotated left by one bit, so that its first byte is the exponent. The four bytes go to four
 * planes, most significant first; each plane is one zstd frame. rans.h would save less than one
 * percent of phi, and lose as much in u, which has long runs of zeros (tests/RECORDS.md). A
 * momentum in bf16 has two planes, split in the same way, and a run without momentum has none.
 *
 * Bytes: "TWPK", version 1 (u32), elements (u64), bytes of each of the 8 plane frames (u32 each; 0
 * for planes that u does not have), then the frames. Little-endian. Unpacking trusts no length:
 * each frame must be exactly one zstd frame with exactly n bytes of content. */
#ifndef TW_COMPRESS_PACK_H
#define TW_COMPRESS_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"

struct tw_packer; /* zstd contexts and one plane of scratch memory; one thread at a time */

/* Allocates a packer for fragments of up to elements_max elements, whose u is of this type. Returns
 * TW_NOMEM if memory is short. */
enum tw_status tw_packer_create(struct tw_packer **packer_out, size_t elements_max,
                                enum tw_momentum momentum, struct tw_error *err);
void tw_packer_destroy(struct tw_packer *packer); /* packer may be NULL */

/* Largest number of bytes that tw_pack writes for n elements of phi and n of u. */
size_t tw_pack_bound(size_t n);

/* Packs phi[n], u[n] into dst[capacity]. With TW_MOMENTUM_NONE u is not touched, here and below.
 * Returns TW_LIMIT if capacity is too small (tw_pack_bound suffices) or n exceeds elements_max,
 * TW_CORRUPT if a value is not finite; dst is then undefined.
 */
enum tw_status tw_pack(struct tw_packer *packer, const float *phi, const void *u, size_t n,
                       uint8_t *dst, size_t capacity, size_t *bytes_out, struct tw_error *err);

/* Unpacks hostile input into phi[n], u[n]. On TW_CORRUPT phi and u are undefined, so unpack into
 * spare memory. On success every value is finite. */
enum tw_status tw_unpack(struct tw_packer *packer, const uint8_t *src, size_t bytes, float *phi,
                         void *u, size_t n, struct tw_error *err);

#endif
