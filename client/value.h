/* SPDX-License-Identifier: Apache-2.0 */
/* Values that a trainer puts, against what it declared. */
#ifndef SW_CLIENT_VALUE_H
#define SW_CLIENT_VALUE_H

#include <stdint.h>
#include <shardwire/error.h>
#include <shardwire/trainer.h>
#include "common/program.h"

/* Checks a value against the declared box; its strides in bytes come out: sums of them over the
 * box don't overflow. Errors name the tensor. */
int sw_value_check(
    const struct sw_source *s, const struct sw_tensor *v, int64_t *stride, struct sw_error *e);

/* Says which element (of F32, BF16 or F16) is NaN or infinite; `wanted`: what it would have become
 * ("F16"). Always SW_ERR_INVALID. The box has elements. */
int sw_value_not_finite(const struct sw_source *s, const void *data, const int64_t *stride,
    const char *wanted, struct sw_error *e);

#endif
