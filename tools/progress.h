/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of bytes, as a bar when standard error is a terminal; and numbers for people. */
#ifndef SW_TOOLS_PROGRESS_H
#define SW_TOOLS_PROGRESS_H

#include <stdint.h>

struct sw_progress;

/* Starts drawing on standard error, with a thread of its own, when that is a terminal. NULL = no
 * memory: all functions accept NULL, and nothing is shown. `what` is borrowed. */
struct sw_progress *sw_progress_start(const char *what, uint64_t total_bytes);

/* Any thread. */
void sw_progress_add(struct sw_progress *p, uint64_t bytes);

/* Ends it; the bar goes away. Returns the seconds since the start. */
double sw_progress_end(struct sw_progress *p);

/* "1.50 GB" (powers of 1000), into `out` of 32 bytes. Returns out. */
char *sw_format_bytes(uint64_t bytes, char out[32]);

/* "7.12 GB/s" from bytes and nanoseconds; "-" when there is no time. */
char *sw_format_rate(uint64_t bytes, uint64_t ns, char out[32]);

/* "0.21 ms", "13.2 s" */
char *sw_format_time(uint64_t ns, char out[32]);

#endif
