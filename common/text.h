/* SPDX-License-Identifier: Apache-2.0 */
/* Text that came from outside, made fit to be shown. Pure. */
#ifndef SW_COMMON_TEXT_H
#define SW_COMMON_TEXT_H

#include <stddef.h>

/* Copies `in` to `out` (at most `size` bytes, NUL included; size >= 8). Control characters, bytes
 * that are no UTF-8 and characters that reorder or break a line come out as \n, \t, \xNN or \uNNNN;
 * what does not fit is replaced by "...". Returns `out`. */
char *sw_text_escape(char *out, size_t size, const char *in);

#endif
