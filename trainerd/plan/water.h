/* SPDX-License-Identifier: Apache-2.0 */
/* Spreading amounts, in order, over vessels, so that all come to one level. */
#ifndef SW_TRAINERD_PLAN_WATER_H
#define SW_TRAINERD_PLAN_WATER_H

#include <stdint.h>

/*
 * For each of `n_amounts` amounts its vessel, out of n > 0 that hold `loads` already. Each vessel
 * gets a run of the heavy ones (over 1/128 of a vessel's share) without passing the level, and then
 * a run of the others. `loads` and `scratch` (n each) are left undefined.
 */
void sw_pour(const uint64_t *amounts, uint32_t n_amounts, uint64_t *loads, uint32_t n,
    uint64_t *scratch, uint32_t *vessel);

#endif
