/* SPDX-License-Identifier: Apache-2.0 */
#include "client/declaration.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "common/codec_check.h"
#include "common/error.h"
#include "common/limits.h"

int sw_name_check(const char *what, size_t index, const char *name, struct sw_error *e)
{
    const size_t length = name ? strnlen(name, SW_NAME_MAX + 1) : 0;

    if (length == 0)
        return sw_fail(e, SW_ERR_INVALID, "%s %zu has no name", what, index);
    if (length > SW_NAME_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "%s %zu: its name has more than %d bytes: %.64s...", what,
            index, SW_NAME_MAX, name);
    if (sw_utf8_valid(name, length) != length)
        return sw_fail(e, SW_ERR_INVALID, "%s %zu: its name is no UTF-8", what, index);
    return 0;
}

/* The box as it is meant: all lengths 0 means the whole tensor. */
static void set_box(const struct sw_source_tensor *in, struct sw_source *s)
{
    bool whole = true;

    for (uint32_t d = 0; d < in->ndim; d++)
        whole = whole && in->box_len[d] == 0;
    s->box.ndim = in->ndim;
    for (uint32_t d = 0; d < in->ndim; d++) {
        s->box.lo[d] = in->box_lo[d];
        s->box.len[d] = whole ? in->shape[d] : in->box_len[d];
    }
}

static int check_box(const struct sw_source *s, struct sw_error *e)
{
    const unsigned bits = sw_dtype_bits(s->dtype);
    uint64_t bytes;

    for (uint32_t d = 0; d < s->ndim; d++)
        if (sw_range_exceeds(s->box.lo[d], s->box.len[d], s->shape[d]))
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %s: the box from %" PRIu64 ", %" PRIu64
                " long, leaves dimension %u of %" PRIu64,
                s->name, s->box.lo[d], s->box.len[d], d, s->shape[d]);
    if (sw_tensor_bytes(s->dtype, s->ndim, s->box.len, &bytes) ||
        (s->ndim && s->box.lo[s->ndim - 1] % 8 * bits % 8))
        return sw_fail(e, SW_ERR_INVALID,
            "tensor %s: its box cuts elements of %u bits in the middle of a byte", s->name, bits);
    return 0;
}

static int take_source(
    struct sw_declaration *d, size_t i, const struct sw_source_tensor *in, struct sw_error *e)
{
    struct sw_source *s = &d->sources[i];
    uint64_t bytes;
    int rc = sw_name_check("tensor", i, in->name, e);

    if (rc)
        return rc;
    if (sw_names_find(d->names, in->name) != SW_NAMES_NONE)
        return sw_fail(e, SW_ERR_EXISTS, "tensor %s is declared twice", in->name);
    if (!sw_dtype_bits(in->dtype))
        return sw_fail(
            e, SW_ERR_INVALID, "tensor %s: there is no dtype %d", in->name, (int)in->dtype);
    if (in->ndim > SW_MAX_DIMS)
        return sw_fail(e, SW_ERR_LIMIT, "tensor %s has %u dimensions; %d are possible", in->name,
            in->ndim, SW_MAX_DIMS);
    if (sw_tensor_bytes(in->dtype, in->ndim, in->shape, &bytes) || bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "tensor %s: its shape has more than %" PRIu64 " bytes, or ends in the middle of a byte",
            in->name, (uint64_t)SW_BYTES_MAX);
    s->dtype = in->dtype;
    s->ndim = in->ndim;
    for (uint32_t dim = 0; dim < in->ndim; dim++)
        s->shape[dim] = in->shape[dim];
    set_box(in, s);
    s->name = sw_arena_strdup(&d->arena, in->name);
    if (!s->name || sw_names_add(d->names, s->name, (uint32_t)i))
        return sw_fail(e, SW_ERR_NOMEM, "no memory to declare tensor %s", in->name);
    return check_box(s, e);
}

int sw_declaration_new(const struct sw_source_tensor *tensors, size_t n,
    struct sw_declaration **declaration, struct sw_error *e)
{
    struct sw_declaration *d;
    int rc = 0;

    if (n > SW_TENSORS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "%zu tensors; one rank may declare %u", n, SW_TENSORS_MAX);
    if (n && !tensors)
        return sw_fail(e, SW_ERR_INVALID, "tensors is NULL, for %zu of them", n);
    d = calloc(1, sizeof(*d));
    if (d) {
        d->names = sw_names_new();
        d->sources = sw_arena_array(&d->arena, n, sizeof(*d->sources));
        d->n = (uint32_t)n;
    }
    if (!d || !d->names || !d->sources)
        rc = sw_fail(e, SW_ERR_NOMEM, "no memory to declare %zu tensors", n);
    for (size_t i = 0; i < n && !rc; i++)
        rc = take_source(d, i, &tensors[i], e);
    if (rc) {
        sw_declaration_free(d);
        return rc;
    }
    *declaration = d;
    return 0;
}

void sw_declaration_free(struct sw_declaration *d)
{
    if (!d)
        return;
    sw_names_free(d->names);
    sw_arena_clear(&d->arena);
    free(d);
}
