/* assert.h - assertions against programmer errors, enabled in every build. Never assert on bytes
 * from a peer, a file or a user. */
#ifndef TW_BASE_ASSERT_H
#define TW_BASE_ASSERT_H

__attribute__((noreturn)) void tw_assert_failed(const char *expr, const char *file, int line);

#define TW_ASSERT(expr) ((expr) ? (void)0 : tw_assert_failed(#expr, __FILE__, __LINE__))

/* For branches that no input can reach; `what` describes the impossible condition. */
#define TW_NEVER(what) tw_assert_failed("not reached: " what, __FILE__, __LINE__)

#endif
