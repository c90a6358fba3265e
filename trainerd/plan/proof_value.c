/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/proof_value.h"

const char *sw_proof_value_differs(const struct sw_proof_value *a, const struct sw_proof_value *b)
{
    if (a->name != b->name)
        return "is read from another tensor";
    if (a->transform != b->transform || a->from != b->from || a->to != b->to)
        return "is made by another transform";
    if (a->block[0] != b->block[0] || a->block[1] != b->block[1] || a->scale != b->scale)
        return "is quantised in other blocks, or with another scale format";
    return NULL;
}

bool sw_proof_is_float(enum sw_dtype dtype)
{
    return dtype == SW_F32 || dtype == SW_BF16 || dtype == SW_F16;
}

bool sw_proof_value_form(
    struct sw_proof_value *v, bool scales, bool quantised, const struct sw_placement *at)
{
    if (scales)
        v->transform = SW_TRANSFORM_FP8_SCALES;
    else if (v->from == v->to)
        v->transform = SW_TRANSFORM_COPY;
    else if (sw_proof_is_float(v->from) && sw_proof_is_float(v->to))
        v->transform = SW_TRANSFORM_CAST;
    else if (sw_proof_is_float(v->from) && v->to == SW_F8_E4M3 && quantised)
        v->transform = SW_TRANSFORM_FP8_VALUES;
    else
        return false;
    if (v->transform != SW_TRANSFORM_FP8_VALUES && v->transform != SW_TRANSFORM_FP8_SCALES)
        return true;
    if (!at || !at->block[0] || !at->block[1] || !sw_proof_is_float(v->from))
        return false;
    v->block[0] = at->block[0];
    v->block[1] = at->block[1];
    v->scale = at->scale;
    return true;
}

uint64_t sw_proof_side(const uint32_t block[2], uint32_t ndim, uint32_t d)
{
    return d + 1 == ndim ? block[1] : d + 2 == ndim ? block[0] : 1;
}
