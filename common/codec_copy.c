/* SPDX-License-Identifier: Apache-2.0 */
/* Deep copies of messages: members by the codec's tables, nothing encoded. */
#include <string.h>

#include "common/codec_schema.h"

static int copy_members(struct sw_arena *arena, const struct sw_schema *s, void *ours);

static int copy_name(struct sw_arena *arena, const char **text)
{
    if (!*text)
        return 0;
    *text = sw_arena_strdup(arena, *text);
    return *text ? 0 : -1;
}

static int copy_array(struct sw_arena *arena, const struct sw_field *f, void *ours)
{
    const uint32_t n = *(const uint32_t *)sw_member(ours, f->count);
    void **items = sw_member(ours, f->offset);
    char *copy = NULL;

    if (n) {
        copy = sw_arena_array(arena, n, f->size);
        if (!copy)
            return -1;
        memcpy(copy, *items, (size_t)n * f->size);
    }
    *items = copy;
    if (f->sub)
        for (uint32_t i = 0; i < n; i++)
            if (copy_members(arena, f->sub, copy + (size_t)i * f->size))
                return -1;
    return 0;
}

/* `ours` is a shallow copy: gives it strings and arrays of its own. */
static int copy_members(struct sw_arena *arena, const struct sw_schema *s, void *ours)
{
    int rc = 0;

    for (uint32_t i = 0; i < s->n_fields && rc == 0; i++) {
        const struct sw_field *f = &s->fields[i];
        void *member = sw_member(ours, f->offset);

        switch (f->type) {
        case SW_FIELD_NAME:
        case SW_FIELD_TEXT:
            rc = copy_name(arena, member);
            break;
        case SW_FIELD_STRUCT:
            rc = copy_members(arena, f->sub, member);
            break;
        case SW_FIELD_STRUCTS:
        case SW_FIELD_NUMBERS:
        case SW_FIELD_BLOBS:
        case SW_FIELD_COLUMNS:
            rc = copy_array(arena, f, ours);
            break;
        default:
            break;
        }
    }
    return rc;
}

struct sw_msg *sw_msg_copy(const struct sw_msg *msg)
{
    const struct sw_schema *schema = sw_schema_find(msg->kind);
    struct sw_msg *copy = sw_msg_new(msg->kind);

    if (!copy)
        return NULL;
    copy->u = msg->u;
    if (schema && copy_members(&copy->arena, schema, &copy->u)) {
        sw_msg_free(copy);
        return NULL;
    }
    return copy;
}
