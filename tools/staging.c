/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/staging.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "tools/checkpoint.h"
#include "tools/jobs.h"
#include "tools/progress.h"

#define ALONE_BYTES (4u << 20) /* larger tensors are put one by one, each by all threads */
#define UNUSED_NAMES 5

struct staging {
    const struct sw_ctl *ctl;
    struct sw_checkpoint *checkpoint;
    const struct sw_checkpoint_tensor **order; /* largest first */
    size_t n, n_large;                         /* of order: what this rank holds */
    const struct sw_checkpoint_tensor *tensors;
    struct sw_box *boxes; /* by tensor of the checkpoint */
    uint64_t bytes;       /* that this rank holds */
    sw_trainer *trainer;
    struct sw_progress *progress;
    uint64_t version;
};

static int larger_first(const void *a, const void *b)
{
    const struct sw_checkpoint_tensor *x = *(const struct sw_checkpoint_tensor *const *)a,
                                      *y = *(const struct sw_checkpoint_tensor *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->file != y->file ? (x->file < y->file ? -1 : 1) : (x->offset < y->offset ? -1 : 1);
}

static uint64_t held_bytes(const struct staging *s, const struct sw_checkpoint_tensor *t)
{
    const struct sw_box *box = &s->boxes[t - s->tensors];
    uint64_t bytes = 0;

    return sw_tensor_bytes(t->dtype, t->ndim, box->len, &bytes) < 0 ? 0 : bytes;
}

/* Which tensors this rank has something of, the largest first. */
static int choose(struct staging *s, size_t n, struct sw_error *e)
{
    s->order = malloc((n + 1) * sizeof(*s->order));
    if (!s->order)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        const bool whole = s->ctl->share.spec.world == 1; /* tensors without elements too */

        if (!whole && sw_share_empty(&s->boxes[i]))
            continue;
        s->order[s->n++] = &s->tensors[i];
        s->bytes += held_bytes(s, &s->tensors[i]);
    }
    qsort(s->order, s->n, sizeof(*s->order), larger_first);
    while (s->n_large < s->n && s->order[s->n_large]->bytes >= ALONE_BYTES)
        s->n_large++;
    return 0;
}

static int read_checkpoint(struct staging *s, struct sw_error *e)
{
    const char *warning;
    size_t n;
    int code = sw_checkpoint_open(s->ctl->folder, SW_CHECKPOINT_DATA, &s->checkpoint, e);

    if (code)
        return code;
    for (size_t i = 0; (warning = sw_checkpoint_warning(s->checkpoint, i)); i++)
        fprintf(stderr, "shardctl: warning: %s: %s\n", s->ctl->folder, warning);
    s->tensors = sw_checkpoint_tensors(s->checkpoint, &n);
    code = sw_share_make(&s->ctl->share, s->checkpoint, &s->boxes, e);
    return code ? code : choose(s, n, e);
}

static int declare(struct staging *s, struct sw_error *e)
{
    struct sw_source_tensor *sources = calloc(s->n + 1, sizeof(*sources));
    int code;

    if (!sources)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu tensors", s->n);
    for (size_t i = 0; i < s->n; i++) {
        const struct sw_checkpoint_tensor *t = s->order[i];
        const struct sw_box *box = &s->boxes[t - s->tensors];

        sources[i].name = t->name;
        sources[i].dtype = t->dtype;
        sources[i].ndim = t->ndim;
        memcpy(sources[i].shape, t->shape, sizeof(sources[i].shape));
        memcpy(sources[i].box_lo, box->lo, sizeof(sources[i].box_lo));
        memcpy(sources[i].box_len, box->len, sizeof(sources[i].box_len));
    }
    code = sw_trainer_declare(s->trainer, sources, s->n, e);
    free(sources);
    return code;
}

/* Tensors that no engine wants: a warning, or the end. */
static int check_unused(const struct staging *s, struct sw_error *e)
{
    struct sw_trainer_plan plan;
    char names[600] = "";
    size_t used = 0;
    int code = sw_trainer_plan(s->trainer, &plan, e);

    if (code || !plan.n_unused)
        return code;
    for (size_t i = 0; i < plan.n_unused && i < UNUSED_NAMES && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%.100s", i ? ", " : "",
            sw_trainer_unused(s->trainer, i));
    if (s->ctl->strict)
        return sw_fail(e, SW_ERR_PLAN,
            "%zu of %zu tensors are wanted by no engine (--strict): %s%s", plan.n_unused,
            plan.n_tensors, names, plan.n_unused > UNUSED_NAMES ? ", ..." : "");
    fprintf(stderr, "shardctl: warning: %zu of %zu tensors are wanted by no engine: %s%s\n",
        plan.n_unused, plan.n_tensors, names, plan.n_unused > UNUSED_NAMES ? ", ..." : "");
    return 0;
}

/* The box that this rank holds, where it lies in the checkpoint. */
static int put(const struct staging *s, const struct sw_checkpoint_tensor *t, struct sw_error *e)
{
    const struct sw_box *box = &s->boxes[t - s->tensors];
    const unsigned bits = sw_dtype_bits(t->dtype);
    struct sw_tensor value = {.dtype = t->dtype, .ndim = t->ndim};
    uint64_t step = 1, first = 0; /* elements */
    bool whole = true;
    int code;

    for (uint32_t d = t->ndim; d-- > 0;) {
        value.shape[d] = box->len[d];
        value.strides[d] = (int64_t)step;
        first += box->lo[d] * step;
        step *= t->shape[d];
        whole = whole && box->len[d] == t->shape[d];
    }
    value.has_strides = !whole;
    value.data = t->data ? (const char *)t->data + first * bits / 8 : NULL;
    code = sw_trainer_put(s->trainer, t->name, &value, e);
    sw_progress_add(s->progress, held_bytes(s, t));
    return code;
}

static int put_small(size_t i, void *arg, struct sw_error *e)
{
    const struct staging *s = arg;

    return put(s, s->order[s->n_large + i], e);
}

static int put_all(struct staging *s, struct sw_error *e)
{
    int code = 0;

    s->progress = sw_progress_start("staging", s->bytes);
    for (size_t i = 0; !code && i < s->n_large; i++)
        code = put(s, s->order[i], e);
    if (!code)
        code = sw_jobs_run(s->ctl->threads, s->n - s->n_large, put_small, s, e);
    sw_progress_end(s->progress);
    return code ? code : sw_checkpoint_intact(s->checkpoint, e);
}

static int stage(struct staging *s, struct sw_error *e)
{
    const struct sw_trainer_options options = {.size = sizeof(options),
        .socket = s->ctl->socket,
        .group = s->ctl->group,
        .rank = s->ctl->share.rank,
        .world = s->ctl->share.spec.world,
        .threads = s->ctl->threads,
        .timeout_ms = s->ctl->timeout_ms};
    int code = read_checkpoint(s, e);

    if (!code)
        code = sw_trainer_open(&options, &s->trainer, e);
    if (!code)
        code = declare(s, e);
    if (!code)
        code = sw_trainer_begin(s->trainer, s->ctl->version, s->ctl->timeout_ms, &s->version, e);
    if (code)
        return code;
    code = check_unused(s, e);
    if (!code)
        code = put_all(s, e);
    if (!code)
        code = sw_trainer_end(s->trainer, s->ctl->timeout_ms, e);
    if (code) {
        struct sw_error second;
        sw_trainer_abort(s->trainer, e->text, &second); /* the first error is what is told */
        return sw_error_context(e, code, "version %" PRIu64 " was given up", s->version);
    }
    return 0;
}

int sw_staging_run(
    const struct sw_ctl *ctl, sw_trainer **trainer, uint64_t *version, struct sw_error *e)
{
    struct staging s = {.ctl = ctl};
    int code = stage(&s, e);

    free(s.order);
    free(s.boxes);
    sw_checkpoint_close(s.checkpoint);
    if (code) {
        sw_trainer_close(s.trainer);
        return code;
    }
    *trainer = s.trainer;
    *version = s.version;
    return 0;
}
