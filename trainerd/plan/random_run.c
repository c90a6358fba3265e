/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/random_run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/random_model.h"

static void *need(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);

    ck_assert_ptr_nonnull(p);
    return p;
}

static void memory_make(struct run_memory *m, uint64_t bytes)
{
    ck_assert_uint_lt(bytes, 1u << 28);
    *m = (struct run_memory){bytes, need(bytes, 1), need(bytes, 1)};
    memset(m->data, 0xee, bytes);
}

static void memory_write(struct run_memory *m, uint64_t at, const uint8_t *data, uint64_t n)
{
    random_must(at <= m->bytes && n <= m->bytes - at);
    for (uint64_t i = 0; i < n; i++) {
        random_must(!m->written[at + i]); /* once */
        m->data[at + i] = data[i];
        m->written[at + i] = 1;
    }
}

/* ---- one rank's view ---- */

struct view {
    struct run *run;
    uint32_t rank;
    const struct sw_plan_rank *ranks;
    run_values *values;
    void *arg;
};

struct grid { /* maxima of one grid of a rank, in its own order */
    uint64_t shape[SW_MAX_DIMS];
    float *maxima;
};

static const struct sw_plan_tensor *tensor_of(const struct view *v, uint32_t source)
{
    random_must(source < v->ranks[v->rank].list->n);
    return &v->ranks[v->rank].list->tensors[source];
}

static const struct sw_box *box_of(const struct view *v, uint32_t source)
{
    return &v->ranks[v->rank].boxes[v->ranks[v->rank].list->group[source]];
}

/* The place of an element in a dense tensor. */
static uint64_t dense(uint32_t ndim, const uint64_t *shape, const uint64_t *at)
{
    uint64_t i = 0;

    for (uint32_t d = 0; d < ndim; d++) {
        random_must(at[d] < shape[d]);
        i = i * shape[d] + at[d];
    }
    return i;
}

/* Next index within len; false after the last one. */
static bool next(uint32_t ndim, const uint64_t *len, uint64_t *i)
{
    for (uint32_t d = ndim; d-- > 0;) {
        if (++i[d] < len[d])
            return true;
        i[d] = 0;
    }
    return false;
}

static bool empty(uint32_t ndim, const uint64_t *len)
{
    for (uint32_t d = 0; d < ndim; d++)
        if (len[d] == 0)
            return true;
    return false;
}

/* ---- block maxima ---- */

static uint64_t side(const struct sw_grid *g, uint32_t ndim, uint32_t d)
{
    return d + 1 == ndim ? g->block[1] : d + 2 == ndim ? g->block[0] : 1;
}

/* Which block of the grid has an element of the tensor. */
static uint64_t block_of(
    const struct view *v, const struct sw_grid *g, const struct grid *grid, const uint64_t *element)
{
    const struct sw_box *box = box_of(v, g->source);
    uint64_t at[SW_MAX_DIMS] = {0};

    for (uint32_t d = 0; d < box->ndim; d++)
        at[d] = element[d] / side(g, box->ndim, d) - box->lo[d] / side(g, box->ndim, d);
    return dense(box->ndim, grid->shape, at);
}

static uint64_t grid_shape(const struct view *v, const struct sw_grid *g, uint64_t *shape)
{
    const struct sw_box *box = box_of(v, g->source);
    uint64_t n = 1;

    for (uint32_t d = 0; d < box->ndim; d++) {
        const uint64_t b = side(g, box->ndim, d);

        shape[d] = (box->lo[d] + box->len[d] + b - 1) / b - box->lo[d] / b;
        n *= shape[d];
    }
    return n;
}

/* The maxima of what the rank itself holds. */
static void measure(const struct view *v, const struct sw_grid *g, struct grid *grid)
{
    const struct sw_plan_tensor *t = tensor_of(v, g->source);
    const struct sw_box *box = box_of(v, g->source);
    const uint8_t *data = v->values(v->arg, t->name);
    const uint64_t n = grid_shape(v, g, grid->shape), size = sw_dtype_bits(t->dtype) / 8;
    uint64_t i[SW_MAX_DIMS] = {0};

    if (g->shared) {
        random_must(g->first + n <= v->run->loads[v->rank].n_maxima);
        grid->maxima = v->run->maxima[v->rank] + g->first;
    } else {
        grid->maxima = need(n, sizeof(float));
    }
    if (empty(box->ndim, box->len))
        return;
    do {
        uint64_t at[SW_MAX_DIMS] = {0};
        float *max;

        for (uint32_t d = 0; d < box->ndim; d++)
            at[d] = box->lo[d] + i[d];
        max = &grid->maxima[block_of(v, g, grid, at)];
        *max = fmaxf(*max, fabsf(value_read(t->dtype, data + dense(t->ndim, t->shape, at) * size)));
    } while (next(box->ndim, box->len, i));
}

static uint32_t position(const struct view *v, uint32_t rank)
{
    uint32_t i = 0;

    while (v->ranks[i].rank != rank)
        ck_assert_uint_lt(++i, v->run->n_ranks);
    return i;
}

static void reduce(const struct view *v, const struct sw_layout *l)
{
    struct sw_share_plan p;
    struct sw_error e;
    uint64_t elsewhere;

    ck_assert_msg(sw_layout_shares(l, 0, &p, &elsewhere, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(elsewhere, 0);
    for (uint32_t i = 0; i < p.n; i++)
        for (uint64_t k = 0; k < p.items[i].count; k++) {
            const struct sw_share_member *m = p.members + p.items[i].first_member;
            float max = 0;

            for (uint32_t j = 0; j < p.items[i].n_members; j++) {
                const uint32_t r = position(v, m[j].rank);

                random_must(m[j].first + k < v->run->loads[r].n_maxima);
                max = fmaxf(max, v->run->maxima[r][m[j].first + k]);
            }
            for (uint32_t j = 0; j < p.items[i].n_members; j++)
                v->run->maxima[position(v, m[j].rank)][m[j].first + k] = max;
        }
    sw_share_plan_clear(&p);
}

/* ---- loads ---- */

/* Elements that are no whole bytes: dense along the last dimension. */
static void load_bits(const struct view *v, const struct sw_load *load,
    const struct sw_load_template *t, uint64_t base)
{
    const struct sw_plan_tensor *tensor = tensor_of(v, load->source);
    const struct sw_box *box = box_of(v, load->source);
    const uint8_t *data = v->values(v->arg, tensor->name);
    const uint32_t last = t->ndim - 1;
    const unsigned bits = sw_dtype_bits(t->src_dtype);
    uint64_t i[SW_MAX_DIMS] = {0};

    random_must(t->transform == SW_TRANSFORM_COPY);
    random_must(t->dst_stride[last] == 0);
    do {
        uint64_t at[SW_MAX_DIMS] = {0}, dst = base;

        for (uint32_t d = 0; d < t->ndim; d++) {
            at[d] = box->lo[d] + t->lo[d] + i[d];
            dst += i[d] * t->dst_stride[d];
        }
        memory_write(&v->run->replicas[v->rank], dst,
            data + dense(tensor->ndim, tensor->shape, at) * bits / 8, t->len[last] * bits / 8);
    } while (next(last, t->len, i));
}

/* The scale of a block of the load's grid. */
static float scale_of(
    const struct view *v, const struct sw_load *load, const struct grid *grids, uint64_t block)
{
    const struct sw_load_plan *p = &v->run->loads[v->rank];

    random_must(load->grid < p->n_grids && p->grids[load->grid].source == load->source);
    return value_scale(p->grids[load->grid].scale, grids[load->grid].maxima[block]);
}

static void load_scale(const struct view *v, const struct sw_load *load,
    const struct sw_load_template *t, const struct grid *grids, const uint64_t *i, uint8_t *out)
{
    uint64_t at[SW_MAX_DIMS] = {0};

    for (uint32_t d = 0; d < t->ndim; d++)
        at[d] = t->lo[d] + i[d];
    value_write_scale(
        t->dst_dtype, out, scale_of(v, load, grids, dense(t->ndim, grids[load->grid].shape, at)));
}

static void load_value(const struct view *v, const struct sw_load *load,
    const struct sw_load_template *t, const struct grid *grids, const uint64_t *i, uint8_t *out)
{
    const struct sw_box *box = box_of(v, load->source);
    const struct sw_plan_tensor *tensor = tensor_of(v, load->source);
    uint64_t at[SW_MAX_DIMS] = {0};
    const uint8_t *from;

    for (uint32_t d = 0; d < t->ndim; d++) {
        random_must(t->lo[d] + i[d] < box->len[d]);
        at[d] = box->lo[d] + t->lo[d] + i[d];
    }
    from = v->values(v->arg, tensor->name) +
           dense(tensor->ndim, tensor->shape, at) * (sw_dtype_bits(t->src_dtype) / 8);
    if (t->transform == SW_TRANSFORM_COPY)
        memcpy(out, from, sw_dtype_bits(t->dst_dtype) / 8);
    else if (t->transform == SW_TRANSFORM_CAST)
        value_write(t->dst_dtype, out, value_read(t->src_dtype, from));
    else
        out[0] = value_quantise(value_read(t->src_dtype, from),
            scale_of(v, load, grids,
                block_of(v, &v->run->loads[v->rank].grids[load->grid], &grids[load->grid], at)));
}

static void load_element(const struct view *v, const struct sw_load *load,
    const struct sw_load_template *t, const struct grid *grids, const uint64_t *i, uint64_t dst)
{
    uint8_t out[16] = {0};

    if (t->transform == SW_TRANSFORM_ZERO) {
        random_must(load->source == UINT32_MAX);
    } else {
        random_must(t->src_dtype == tensor_of(v, load->source)->dtype);
        if (t->transform == SW_TRANSFORM_FP8_SCALES)
            load_scale(v, load, t, grids, i, out);
        else
            load_value(v, load, t, grids, i, out);
    }
    memory_write(&v->run->replicas[v->rank], dst, out, sw_dtype_bits(t->dst_dtype) / 8);
}

static void run_load(const struct view *v, const struct sw_load *load, const struct grid *grids)
{
    const struct sw_load_plan *p = &v->run->loads[v->rank];
    const struct sw_load_template *t = &p->templates[load->tmpl];
    const uint64_t base = p->tiles[load->tile].offset + load->offset;
    uint64_t i[SW_MAX_DIMS] = {0};

    random_must(load->tmpl < p->n_templates && load->tile < p->n_tiles);
    if (empty(t->ndim, t->len))
        return;
    if (sw_dtype_bits(t->dst_dtype) % 8) {
        load_bits(v, load, t, base);
        return;
    }
    do {
        uint64_t dst = base;

        for (uint32_t d = 0; d < t->ndim; d++)
            dst += i[d] * t->dst_stride[d];
        load_element(v, load, t, grids, i, dst);
    } while (next(t->ndim, t->len, i));
}

static void run_loads(const struct view *first, const struct sw_layout *l)
{
    struct run *run = first->run;
    struct grid **grids = need(run->n_ranks, sizeof(*grids));
    struct view v = *first;
    struct sw_error e;

    for (v.rank = 0; v.rank < run->n_ranks; v.rank++) {
        struct sw_load_plan *p = &run->loads[v.rank];

        ck_assert_msg(sw_layout_load(l, v.rank, p, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(p->rank, v.ranks[v.rank].rank);
        memory_make(&run->replicas[v.rank], p->replica_bytes);
        run->maxima[v.rank] = need(p->n_maxima, sizeof(float));
        grids[v.rank] = need(p->n_grids, sizeof(**grids));
        for (uint32_t i = 0; i < p->n_grids; i++)
            measure(&v, &p->grids[i], &grids[v.rank][i]);
    }
    reduce(&v, l);
    for (v.rank = 0; v.rank < run->n_ranks; v.rank++) {
        const struct sw_load_plan *p = &run->loads[v.rank];

        for (uint32_t i = 0; i < p->n_loads; i++)
            run_load(&v, &p->loads[i], grids[v.rank]);
        random_must(grids[v.rank] != NULL);
        for (uint32_t i = 0; i < p->n_grids; i++)
            if (!p->grids[i].shared)
                free(grids[v.rank][i].maxima);
        free(grids[v.rank]);
    }
    free(grids);
}

/* ---- writes ---- */

static void run_writes(
    const struct view *v, const struct sw_layout *l, const struct sw_plan_target *targets)
{
    struct run *run = v->run;
    struct sw_writes *w;
    struct sw_error e;

    ck_assert_msg(sw_writes_make(l, targets, run->n_targets, &w, &e) == 0, "%s", e.text);
    run->n_writes = sw_writes_count(w);
    run->writes = need(run->n_writes, sizeof(*run->writes));
    for (uint32_t i = 0; i < run->n_writes; i++) {
        const struct sw_pair *pair = sw_writes_pair(w, i);
        struct sw_write_plan *p = &run->writes[i];
        uint64_t bytes = 0;

        ck_assert_msg(sw_writes_get(w, i, p, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(p->rank, v->ranks[pair->rank].rank);
        ck_assert_uint_eq(p->target, targets[pair->target].target);
        for (uint64_t k = 0; k < p->n; k++) {
            const struct sw_extent *x = &p->extents[k];
            const struct run_memory *replica = &run->replicas[pair->rank];

            random_must(x->src <= replica->bytes && x->length <= replica->bytes - x->src);
            for (uint64_t b = 0; b < x->length; b++)
                random_must(replica->written[x->src + b]); /* a load filled it */
            memory_write(
                &run->regions[pair->target][x->region], x->dst, replica->data + x->src, x->length);
            bytes += x->length;
        }
        ck_assert_uint_eq(bytes, p->bytes);
        ck_assert_uint_eq(bytes, pair->bytes);
    }
    sw_writes_free(w);
}

void run_plan(struct run *run, const struct sw_layout *l, const struct sw_plan_rank *ranks,
    uint32_t n_ranks, const struct sw_plan_target *targets, uint32_t n_targets, run_values *values,
    void *arg)
{
    const struct view v = {.run = run, .ranks = ranks, .values = values, .arg = arg};

    *run = (struct run){.n_ranks = n_ranks,
        .n_targets = n_targets,
        .loads = need(n_ranks, sizeof(*run->loads)),
        .replicas = need(n_ranks, sizeof(*run->replicas)),
        .maxima = need(n_ranks, sizeof(*run->maxima)),
        .regions = need(n_targets, sizeof(*run->regions))};
    for (uint32_t i = 0; i < n_targets; i++) {
        run->regions[i] = need(targets[i].n_regions, sizeof(**run->regions));
        for (uint32_t k = 0; k < targets[i].n_regions; k++)
            memory_make(&run->regions[i][k], targets[i].region_bytes[k]);
    }
    run_loads(&v, l);
    run_writes(&v, l, targets);
}

static void memory_clear(struct run_memory *m)
{
    free(m->data);
    free(m->written);
}

void run_clear(struct run *run, const struct sw_plan_target *targets)
{
    for (uint32_t i = 0; i < run->n_ranks; i++) {
        sw_load_plan_clear(&run->loads[i]);
        memory_clear(&run->replicas[i]);
        free(run->maxima[i]);
    }
    for (uint32_t i = 0; i < run->n_targets; i++) {
        for (uint32_t k = 0; k < targets[i].n_regions; k++)
            memory_clear(&run->regions[i][k]);
        free(run->regions[i]);
    }
    for (uint32_t i = 0; i < run->n_writes; i++)
        sw_write_plan_clear(&run->writes[i]);
    free(run->loads);
    free(run->replicas);
    free(run->maxima);
    free(run->regions);
    free(run->writes);
}
