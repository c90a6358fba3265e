/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"

#define METADATA "__metadata__"
#define LL(x) ((unsigned long long)(x))

int sw_safetensors_length(
    const uint8_t first[8], uint64_t file_bytes, uint64_t *length, struct sw_error *e)
{
    uint64_t n = 0;

    if (file_bytes < 8)
        return sw_fail(e, SW_ERR_INVALID,
            "truncated: %llu bytes, a safetensors file begins with 8 bytes of header length",
            LL(file_bytes));
    for (int i = 7; i >= 0; i--)
        n = n << 8 | first[i];
    if (n > SW_SAFETENSORS_HEADER_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "header of %llu bytes, the format allows %llu: not a safetensors file?", LL(n),
            LL(SW_SAFETENSORS_HEADER_MAX));
    if (n > file_bytes - 8)
        return sw_fail(e, SW_ERR_INVALID,
            "truncated: a header of %llu bytes in a file of %llu bytes", LL(n), LL(file_bytes));
    *length = n;
    return 0;
}

/* A non-negative integer; jansson refuses numbers above INT64_MAX itself. */
static int number(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int read_shape(const char *name, json_t *shape, struct sw_safetensor *t, struct sw_error *e)
{
    const size_t n = json_array_size(shape);

    if (!json_is_array(shape))
        return sw_fail(e, SW_ERR_INVALID, "tensor %s: no \"shape\" array", name);
    if (n > SW_MAX_DIMS)
        return sw_fail(e, SW_ERR_UNSUPPORTED, "tensor %s: %zu dimensions, at most %d are supported",
            name, n, SW_MAX_DIMS);
    for (size_t d = 0; d < n; d++)
        if (number(json_array_get(shape, d), &t->shape[d]) < 0)
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %s: dimension %zu of its shape is no non-negative integer", name, d);
    t->ndim = (uint32_t)n;
    return 0;
}

static int read_dtype(const char *name, json_t *dtype, struct sw_safetensor *t, struct sw_error *e)
{
    if (!json_is_string(dtype))
        return sw_fail(e, SW_ERR_INVALID, "tensor %s: no \"dtype\" string", name);
    t->dtype = sw_dtype_from_name(json_string_value(dtype));
    if (t->dtype == SW_DTYPE_INVALID)
        return sw_fail(e, SW_ERR_UNSUPPORTED, "tensor %s: unknown dtype \"%.32s\"", name,
            json_string_value(dtype));
    return 0;
}

static int read_offsets(const char *name, json_t *offsets, uint64_t data_bytes,
    struct sw_safetensor *t, struct sw_error *e)
{
    uint64_t bytes;

    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        number(json_array_get(offsets, 0), &t->begin) < 0 ||
        number(json_array_get(offsets, 1), &t->end) < 0)
        return sw_fail(e, SW_ERR_INVALID,
            "tensor %s: \"data_offsets\" is no pair of non-negative integers", name);
    if (t->end < t->begin)
        return sw_fail(e, SW_ERR_INVALID,
            "tensor %s: data_offsets end before they begin (%llu, %llu)", name, LL(t->begin),
            LL(t->end));
    if (t->end > data_bytes)
        return sw_fail(e, SW_ERR_INVALID,
            "tensor %s: data_offsets [%llu, %llu] outside of the file's %llu bytes of data (is the "
            "file truncated?)",
            name, LL(t->begin), LL(t->end), LL(data_bytes));
    if (sw_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes) < 0)
        return sw_fail(e, SW_ERR_INVALID,
            "tensor %s: its shape overflows, or does not fill whole bytes of %s", name,
            sw_dtype_name(t->dtype));
    if (bytes != t->end - t->begin)
        return sw_fail(e, SW_ERR_INVALID,
            "tensor %s: shape and %s need %llu bytes, data_offsets [%llu, %llu] hold %llu", name,
            sw_dtype_name(t->dtype), LL(bytes), LL(t->begin), LL(t->end), LL(t->end - t->begin));
    if (bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "tensor %s: %llu bytes, at most %llu are supported", name,
            LL(bytes), LL(SW_BYTES_MAX));
    return 0;
}

static int read_tensor(const char *name, json_t *entry, uint64_t data_bytes, struct sw_arena *arena,
    struct sw_safetensor *t, struct sw_error *e)
{
    int code;

    if (!name[0])
        return sw_fail(e, SW_ERR_INVALID, "a tensor without a name");
    if (strlen(name) > SW_NAME_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "tensor %.40s...: a name of %zu bytes, at most %d are allowed", name, strlen(name),
            SW_NAME_MAX);
    if (!json_is_object(entry))
        return sw_fail(e, SW_ERR_INVALID, "tensor %s: its entry is no JSON object", name);
    code = read_dtype(name, json_object_get(entry, "dtype"), t, e);
    if (!code)
        code = read_shape(name, json_object_get(entry, "shape"), t, e);
    if (!code)
        code = read_offsets(name, json_object_get(entry, "data_offsets"), data_bytes, t, e);
    if (code)
        return code;
    t->name = sw_arena_strdup(arena, name);
    return t->name ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory for tensor names");
}

static int by_place(const void *a, const void *b)
{
    const struct sw_safetensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The format wants every byte of the data to belong to exactly one tensor. */
static int check_cover(const struct sw_safetensors *s, uint64_t data_bytes, struct sw_error *e)
{
    uint64_t at = 0;
    const char *before = NULL;

    for (size_t i = 0; i < s->n; i++) {
        const struct sw_safetensor *t = &s->tensors[i];
        if (t->begin < at)
            return sw_fail(e, SW_ERR_INVALID,
                "tensors %s and %s overlap: [.., %llu] and [%llu, %llu]", before, t->name, LL(at),
                LL(t->begin), LL(t->end));
        if (t->begin > at)
            return sw_fail(e, SW_ERR_INVALID,
                "a hole of %llu bytes at %llu of the data, before tensor %s: the format has none",
                LL(t->begin - at), LL(at), t->name);
        at = t->end;
        before = t->name;
    }
    if (at != data_bytes)
        return sw_fail(e, SW_ERR_INVALID,
            "%llu bytes after the last tensor (%s) belong to none: the format has no holes",
            LL(data_bytes - at), before ? before : "there is none");
    return 0;
}

static int read_all(json_t *root, uint64_t data_bytes, struct sw_safetensors *s, struct sw_error *e)
{
    const size_t n = json_object_size(root);
    const char *key;
    json_t *value;

    if (n > SW_TENSORS_MAX + 1)
        return sw_fail(e, SW_ERR_LIMIT, "%zu tensors, at most %u are supported", n, SW_TENSORS_MAX);
    s->tensors = sw_arena_array(&s->arena, n, sizeof(*s->tensors));
    if (!s->tensors)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu tensors", n);
    json_object_foreach(root, key, value)
    {
        int code;
        if (strcmp(key, METADATA) == 0)
            continue;
        code = read_tensor(key, value, data_bytes, &s->arena, &s->tensors[s->n], e);
        if (code)
            return code;
        s->n++;
    }
    qsort(s->tensors, s->n, sizeof(*s->tensors), by_place);
    return check_cover(s, data_bytes, e);
}

int sw_safetensors_parse(const char *json, size_t length, uint64_t data_bytes,
    struct sw_safetensors *out, struct sw_error *e)
{
    struct sw_safetensors s = {0};
    json_error_t why;
    json_t *root = json_loadb(json, length, JSON_REJECT_DUPLICATES, &why);
    int code;

    if (!root)
        return sw_fail(
            e, SW_ERR_INVALID, "header is no valid JSON (byte %d): %s", why.position, why.text);
    if (json_is_object(root))
        code = read_all(root, data_bytes, &s, e);
    else
        code = sw_fail(e, SW_ERR_INVALID, "header is no JSON object");
    json_decref(root);
    if (code) {
        sw_safetensors_clear(&s);
        return code;
    }
    *out = s;
    return 0;
}

void sw_safetensors_clear(struct sw_safetensors *s)
{
    sw_arena_clear(&s->arena);
    s->tensors = NULL;
    s->n = 0;
}
