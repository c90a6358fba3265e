/* SPDX-License-Identifier: Apache-2.0 */
#include "client/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "client/cast.h"
#include "common/error.h"

#define REACH_MAX (1ll << 60) /* how far strides may lead: sums of such numbers are safe */

/* Byte strides of a dense box. */
static void dense_strides(unsigned bits, const struct sw_box *box, int64_t *stride)
{
    uint64_t elements = 1;

    for (uint32_t d = box->ndim; d-- > 0;) {
        stride[d] = (int64_t)(elements * bits / 8);
        elements *= box->len[d];
    }
}

/* Byte strides of a value that has its own. Dimensions of one element have none. */
static int own_strides(const struct sw_source *s, unsigned bits, const struct sw_tensor *v,
    int64_t *stride, struct sw_error *e)
{
    int64_t low = 0, high = 0, step;
    const uint32_t last = s->ndim - 1;

    for (uint32_t d = 0; d < s->ndim; d++) {
        const int64_t given = v->strides[d];

        stride[d] = 0;
        if (s->box.len[d] <= 1)
            continue;
        if (bits % 8 && d == last && given != 1)
            return sw_fail(e, SW_ERR_UNSUPPORTED,
                "tensor %s: stride %" PRId64 " of the last dimension; elements of %u bits must lie "
                "side by side there",
                s->name, given, bits);
        if (__builtin_mul_overflow(given, (int64_t)bits, &stride[d]) ||
            (stride[d] % 8 && d != last) ||
            __builtin_mul_overflow((int64_t)(s->box.len[d] - 1), stride[d] / 8, &step) ||
            step > REACH_MAX - high || step < -REACH_MAX - low)
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %s: stride %" PRId64 " of dimension %u leads out of any memory, or into "
                "the middle of a byte",
                s->name, given, d);
        stride[d] /= 8;
        high += step > 0 ? step : 0;
        low += step < 0 ? step : 0;
    }
    return 0;
}

static int shape_differs(const struct sw_source *s, const struct sw_tensor *v, struct sw_error *e)
{
    for (uint32_t d = 0; d < s->ndim; d++)
        if (v->shape[d] != s->box.len[d])
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %s: dimension %u has %" PRIu64 " elements; %" PRIu64 " were declared",
                s->name, d, v->shape[d], s->box.len[d]);
    return 0;
}

int sw_value_check(
    const struct sw_source *s, const struct sw_tensor *v, int64_t *stride, struct sw_error *e)
{
    const unsigned bits = sw_dtype_bits(s->dtype);
    uint64_t bytes = 0;
    int rc;

    if (v->device == SW_DEVICE_CUDA)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "tensor %s is on CUDA device %d; this version takes values in host memory: copy it "
            "there",
            s->name, v->device_index);
    if (v->device != SW_DEVICE_CPU)
        return sw_fail(
            e, SW_ERR_INVALID, "tensor %s: there is no device type %d", s->name, (int)v->device);
    if (v->dtype != s->dtype)
        return sw_fail(e, SW_ERR_INVALID, "tensor %s has dtype %s; %s was declared", s->name,
            sw_dtype_name(v->dtype), sw_dtype_name(s->dtype));
    if (v->ndim != s->ndim)
        return sw_fail(e, SW_ERR_INVALID, "tensor %s has %u dimensions; %u were declared", s->name,
            v->ndim, s->ndim);
    rc = shape_differs(s, v, e);
    if (rc)
        return rc;
    if (sw_tensor_bytes(s->dtype, s->ndim, s->box.len, &bytes) || (bytes && !v->data))
        return sw_fail(
            e, SW_ERR_INVALID, "tensor %s: data is NULL, for %" PRIu64 " bytes", s->name, bytes);
    if (v->has_strides && bytes)
        return own_strides(s, bits, v, stride, e);
    dense_strides(bits, &s->box, stride);
    return 0;
}

/* Goes on to the next element in C order; false past the last one. */
static bool next_index(const struct sw_box *box, uint64_t *index)
{
    for (uint32_t d = box->ndim; d-- > 0; index[d] = 0)
        if (++index[d] < box->len[d])
            return true;
    return false;
}

int sw_value_not_finite(const struct sw_source *s, const void *data, const int64_t *stride,
    const char *wanted, struct sw_error *e)
{
    uint64_t index[SW_MAX_DIMS] = {0};
    char place[SW_MAX_DIMS * 22 + 1] = "";
    const char *what = "NaN or infinite";
    size_t used = 0;
    float f = 0;

    for (bool more = true; more; more = next_index(&s->box, index)) {
        int64_t at = 0;

        for (uint32_t d = 0; d < s->ndim; d++)
            at += (int64_t)index[d] * stride[d];
        f = sw_cast_widen(s->dtype, (const char *)data + at);
        if (!isfinite(f)) {
            what = isnan(f) ? "NaN" : f > 0 ? "inf" : "-inf";
            break;
        }
    }
    for (uint32_t d = 0; d < s->ndim; d++)
        used += (size_t)snprintf(
            place + used, sizeof(place) - used, "%s%" PRIu64, d ? ", " : "", index[d]);
    return sw_fail(e, SW_ERR_INVALID,
        "tensor %s: the value at [%s] of what was put is %s, which must not become %s in an "
        "engine: put a finite one, or abort the version",
        s->name, place, what, wanted);
}
