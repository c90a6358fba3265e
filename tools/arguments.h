/* SPDX-License-Identifier: Apache-2.0 */
/* Values on the command line, whole or refused. Each prints nothing and returns -1 when the text is
 * not what it should be. */
#ifndef SW_TOOLS_ARGUMENTS_H
#define SW_TOOLS_ARGUMENTS_H

#include <stdint.h>

/* Decimal digits only. */
int sw_argument_number(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* A number with an optional k, M, G or T (powers of 1024, also as KiB, MiB, ...). */
int sw_argument_size(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* Rows and columns of an FP8 block, as "128x128"; each from 1 to 65536. */
int sw_argument_block(const char *text, uint32_t block[2]);

/* Splits "KEY=VALUE" at the first '=' (in place); NULL when there is none or the key is empty. */
char *sw_argument_split(char *text);

#endif
