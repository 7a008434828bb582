/* dump.h - writes the arrays of a case to files of raw float32 in this machine's byte order, to
 * measure codecs on real numbers (thinwire-gradient-bench). */
#ifndef TW_TESTS_QUALITY_DUMP_H
#define TW_TESTS_QUALITY_DUMP_H

#include "tests/bench/quality/node.h"

/* Writes phi - theta of a fragment, before `node` sends it, to FOLDER/CASE-fFF-rRRRRR.f32. */
enum tw_status dump_delta(const char *folder, const struct node *node, uint64_t round,
                          uint32_t fragment, struct tw_error *err);

/* Writes phi and u of all fragments to FOLDER/CASE-phi.f32 and FOLDER/CASE-u.f32. */
enum tw_status dump_state(const char *folder, const struct node *node, struct tw_error *err);

#endif
