/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules read from a config.json (model.h has the rest). Keys may be paths into objects,
 * with dots: "text_config.hidden_size". */
#ifndef SW_TRAINERD_PLAN_CONFIG_H
#define SW_TRAINERD_PLAN_CONFIG_H

#include "trainerd/plan/model.h"

enum sw_config_found {
    SW_CONFIG_MISSING,
    SW_CONFIG_NULL,
    SW_CONFIG_NUMBER, /* whole, or a truth value */
    SW_CONFIG_OTHER,  /* a string, a fraction, a list, an object */
};

/* Sets *value (0 for null). */
enum sw_config_found sw_config_get(const struct sw_config *c, const char *key, int64_t *value);

bool sw_config_is(const struct sw_config *c, const char *key, const char *word);

/* The first n whole numbers in a list into `out`; returns how many there are, 0 for no list. */
size_t sw_config_list(const struct sw_config *c, const char *key, int64_t *out, size_t n);

/* The i-th of the modules that config.json leaves unquantised; NULL past the end. */
const char *sw_config_unconverted_module(const struct sw_config *c, uint32_t i);

#endif
