/* SPDX-License-Identifier: Apache-2.0 */
/* One row of an option table and its value: text to value and back. Pure. Used by options*.c. */
#ifndef SW_COMMON_OPTION_VALUE_H
#define SW_COMMON_OPTION_VALUE_H

#include "common/options.h"

#define SW_OPTION_TEXT 256 /* room for any of the descriptions below */

/* Parses `text` into the row's field of *config, which holds a valid value (it is freed). */
int sw_option_set(const struct sw_option *o, const char *text, void *config, struct sw_error *e);

/* The row's default into its field, whatever was there. */
int sw_option_set_default(const struct sw_option *o, void *config, struct sw_error *e);

void sw_option_free(const struct sw_option *o, void *config);

/* "a number from 1 to 65535" */
const char *sw_option_expected(const struct sw_option *o, char out[SW_OPTION_TEXT]);
/* "1 to 65535"; "" when there is nothing to say */
const char *sw_option_range(const struct sw_option *o, char out[SW_OPTION_TEXT]);
/* The default as one would type it; "" = none. */
const char *sw_option_default(const struct sw_option *o, char out[SW_OPTION_TEXT]);
/* "NUMBER" */
const char *sw_option_metavar(const struct sw_option *o, char out[SW_OPTION_TEXT]);

#endif
