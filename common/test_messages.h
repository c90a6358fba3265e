/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with random contents for tests: every member of every kind is set, to nothing that is
 * its default. The same seed gives the same message. */
#ifndef SW_COMMON_TEST_MESSAGES_H
#define SW_COMMON_TEST_MESSAGES_H

#include "common/message.h"

/* Arrays get 1 to `items` items. NULL = no memory. */
struct sw_msg *test_message(enum sw_msg_kind kind, uint64_t seed, uint32_t items);

/* Compares everything but descriptors; false and a text in `difference` (128 bytes) if unequal. */
bool test_message_equal(const struct sw_msg *a, const struct sw_msg *b, char *difference);

uint64_t test_random(uint64_t *state);

#endif
