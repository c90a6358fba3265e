/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of slabs in replicas: mesh groups in order, what is no expert before experts, then each
 * rank's whole slabs as the engine has them that wants them first, then slabs that are cut, those
 * of one split together.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/build.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to order the slabs of a plan");
}

/* 1 for slabs that only stacks of experts want. */
static uint8_t *find_experts(const struct sw_build *b)
{
    const struct sw_layout *l = b->l;
    uint8_t *expert = malloc((size_t)b->slabs.n + 1);

    if (!expert)
        return NULL;
    memset(expert, 1, (size_t)b->slabs.n + 1);
    for (uint32_t k = 0; k < l->c.n_kinds; k++)
        for (uint64_t i = 0; i < l->c.kinds[k].n; i++) {
            const struct sw_want *want = &l->c.wants[l->c.kinds[k].first + i];

            if (!l->known[k].expert || !l->known[k].expert[want->parameter])
                expert[want->slab] = 0;
        }
    return expert;
}

static int order_compare(const void *a, const void *b)
{
    const struct sw_order *x = a, *y = b;

    if (x->mesh != y->mesh)
        return x->mesh < y->mesh ? -1 : 1;
    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static uint32_t last_mesh(const struct sw_layout *l, const struct sw_split *s)
{
    uint32_t mesh = 0;

    for (uint32_t k = 0; k < s->n; k++) {
        const uint32_t m = l->ranks[l->c.cells[s->first + k].rank].mesh;

        mesh = m > mesh ? m : mesh;
    }
    return mesh;
}

int sw_build_order(struct sw_build *b, struct sw_order **order, struct sw_error *e)
{
    struct sw_layout *l = b->l;
    struct sw_order *items = malloc(((size_t)b->slabs.n + 1) * sizeof(*items));
    uint8_t *expert = find_experts(b);
    int err = items && expert ? 0 : no_memory(e);

    for (uint32_t i = 0; !err && i < b->slabs.n; i++) {
        const uint32_t split = sw_choices_split(
            &b->choices, l, &b->w.boxes, b->w.formats, b->choice[i], b->variant[i]);
        const struct sw_split *s;

        if (split == SW_NONE) {
            err = no_memory(e);
            break;
        }
        s = &l->c.splits[split];
        b->variant[i] = split; /* all that is needed from here on */
        items[i] = (struct sw_order){.mesh = last_mesh(l, s),
            .class = expert[i] * 2u + (s->n > 1),
            .owner = s->n > 1 ? split : l->c.cells[s->first].rank,
            .place = b->place[i],
            .slab = i};
    }
    free(expert);
    if (err) {
        free(items);
        return err;
    }
    qsort(items, b->slabs.n, sizeof(*items), order_compare);
    *order = items;
    return 0;
}
