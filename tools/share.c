/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "tools/model_files.h"

bool sw_share_empty(const struct sw_box *b)
{
    for (uint32_t d = 0; d < b->ndim; d++)
        if (!b->len[d])
            return true;
    return false;
}

/* Whether experts are packed: the checkpoint has a way of storing them of more dimensions. */
static bool is_packed(const struct sw_model *m, const struct sw_checkpoint *c)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);

    for (size_t i = 0; i < n; i++) {
        uint32_t stored;

        if (t[i].ndim == 3 && sw_model_find(m, t[i].name, &stored) == SW_KNOWN)
            return true;
    }
    return false;
}

/* Whether the checkpoint has draft layers: only then trainers hold them. */
static bool has_draft(const struct sw_model *m, const struct sw_checkpoint *c)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);

    for (size_t i = 0; i < n; i++) {
        struct sw_stored s;
        uint32_t stored;

        if (sw_model_find(m, t[i].name, &stored) != SW_KNOWN)
            continue;
        sw_model_stored_get(m, stored, &s);
        if (s.draft)
            return true;
    }
    return false;
}

/* Whether the checkpoint is quantised already. */
static bool is_fp8(const struct sw_checkpoint *c)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);

    for (size_t i = 0; i < n; i++)
        if (t[i].dtype == SW_F8_E4M3)
            return true;
    return false;
}

static int give(const struct sw_plan_rank *rank, const struct sw_checkpoint *c,
    struct sw_box *boxes, struct sw_error *e)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);

    for (uint32_t i = 0; i < rank->list->n; i++) {
        const struct sw_plan_tensor *wanted = &rank->list->tensors[i];
        const struct sw_box *box = &rank->boxes[rank->list->group[i]];
        const struct sw_checkpoint_tensor *found = sw_checkpoint_find(c, wanted->name);

        if (!found)
            return sw_fail(e, SW_ERR_NOT_FOUND,
                "the checkpoint has no tensor %s, which config.json and layout file say it has",
                wanted->name);
        if (found->ndim != wanted->ndim ||
            memcmp(found->shape, wanted->shape, found->ndim * sizeof(found->shape[0])) != 0)
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %s has another shape in the checkpoint than config.json and layout file "
                "say",
                wanted->name);
        boxes[found - t] = *box;
    }
    return 0;
}

static void give_all(const struct sw_checkpoint *c, struct sw_box *boxes)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);

    for (size_t i = 0; i < n; i++) {
        boxes[i].ndim = t[i].ndim;
        memcpy(boxes[i].len, t[i].shape, sizeof(t[i].shape));
    }
}

static int give_some(const struct sw_share_options *o, const struct sw_checkpoint *c,
    struct sw_box *boxes, struct sw_error *e)
{
    struct sw_trainer_spec spec = o->spec;
    struct sw_model_files files = {0};
    struct sw_scene scene = {0};
    char path[4096];
    int code;

    if ((size_t)snprintf(path, sizeof(path), "%s/config.json", o->folder) >= sizeof(path))
        return sw_fail(e, SW_ERR_INVALID, "%s: the path is too long", o->folder);
    code = sw_model_files_read(path, o->layouts, o->layout, SW_ENGINE_SGLANG, &files, e);
    if (!code) {
        spec.packed = is_packed(files.model, c);
        spec.draft = has_draft(files.model, c);
        spec.fp8 = is_fp8(c);
        code = sw_scene_make(files.model, &spec, NULL, &scene, e);
    }
    if (!code)
        code = give(&scene.ranks[o->rank], c, boxes, e);
    sw_scene_clear(&scene);
    sw_model_files_clear(&files);
    return code;
}

int sw_share_make(const struct sw_share_options *o, const struct sw_checkpoint *c,
    struct sw_box **boxes, struct sw_error *e)
{
    struct sw_box *b;
    size_t n;
    int code = 0;

    sw_checkpoint_tensors(c, &n);
    if (o->rank >= o->spec.world)
        return sw_fail(e, SW_ERR_INVALID, "trainer rank %u in a world of %u: ranks count from 0",
            o->rank, o->spec.world);
    b = calloc(n + 1, sizeof(*b));
    if (!b)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        b[i].ndim = 1; /* nothing, until it is given */
    if (o->spec.world == 1)
        give_all(c, b);
    else
        code = give_some(o, c, b, e);
    if (code) {
        free(b);
        return code;
    }
    *boxes = b;
    return 0;
}
