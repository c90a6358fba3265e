/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sends what to whom: trainers on the left, engines on the right, a band for each pair, as wide
 * as its bytes. Ranks where there are few, else hosts, so that it stays a picture.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/error.h"
#include "tools/plan_run.h"

#define GB 1e9
#define RANKS_MAX 32u /* of either side, one box each */
#define WIDTH 1100.0
#define LEFT 210.0
#define RIGHT (WIDTH - 210.0)
#define BOX 190.0
#define TOP 90.0
#define COLUMN 900.0 /* height of a full column */
#define BAND_MAX 0.8 /* of a box's height: its bands together */

struct side {
    uint32_t n;
    uint64_t *bytes;
    double step;  /* from box to box */
    double *used; /* height of the bands drawn at each */
    bool ranks;
};

struct picture {
    const struct sw_plan_run *run;
    struct side from, to;
    uint64_t *bytes; /* from.n x to.n */
    uint64_t most;   /* of any box */
    FILE *out;
};

static void side_free(struct side *s)
{
    free(s->bytes);
    free(s->used);
}

static int side_make(struct side *s, uint32_t ranks, uint32_t hosts)
{
    s->ranks = ranks <= RANKS_MAX;
    s->n = s->ranks ? ranks : hosts;
    s->bytes = calloc((size_t)s->n + 1, sizeof(*s->bytes));
    s->used = calloc((size_t)s->n + 1, sizeof(*s->used));
    s->step = COLUMN / (s->n ? s->n : 1);
    return s->bytes && s->used ? 0 : -1;
}

/* Hosts are numbered in order, from 0, in made up scenes; positions in the sorted list else. */
static uint32_t host_index(const struct sw_cost_place *hosts, uint32_t n, uint32_t host)
{
    for (uint32_t i = 0; i < n; i++)
        if (hosts[i].host == host)
            return i;
    return 0;
}

static int gather(struct picture *p)
{
    const struct sw_cost *c = &p->run->cost;

    p->bytes = calloc((size_t)p->from.n * p->to.n + 1, sizeof(*p->bytes));
    if (!p->bytes)
        return -1;
    for (uint32_t i = 0; i < sw_writes_count(p->run->writes); i++) {
        const struct sw_pair *pair = sw_writes_pair(p->run->writes, i);
        const uint32_t a = p->from.ranks ? pair->rank
                                         : host_index(c->source_hosts, c->n_source_hosts,
                                               c->ranks[pair->rank].host);
        const uint32_t b = p->to.ranks ? pair->target
                                       : host_index(c->target_hosts, c->n_target_hosts,
                                             c->targets[pair->target].host);

        p->bytes[(size_t)a * p->to.n + b] += pair->bytes;
        p->from.bytes[a] += pair->bytes;
        p->to.bytes[b] += pair->bytes;
    }
    for (uint32_t i = 0; i < p->from.n; i++)
        p->most = p->from.bytes[i] > p->most ? p->from.bytes[i] : p->most;
    for (uint32_t i = 0; i < p->to.n; i++)
        p->most = p->to.bytes[i] > p->most ? p->to.bytes[i] : p->most;
    return 0;
}

static double middle(const struct side *s, uint32_t i)
{
    return TOP + s->step * (i + 0.5);
}

static double band(const struct picture *p, const struct side *s, uint64_t bytes)
{
    return p->most ? (double)bytes / (double)p->most * s->step * BAND_MAX : 0;
}

/* The next free piece of a box's edge; boxes fill from their upper end. */
static double take(const struct picture *p, struct side *s, uint32_t i, uint64_t bytes)
{
    const double top = middle(s, i) - band(p, s, s->bytes[i]) / 2 + s->used[i];

    s->used[i] += band(p, s, bytes);
    return top;
}

static void draw_bands(struct picture *p)
{
    const double bend = (RIGHT - LEFT) / 2;

    for (uint32_t a = 0; a < p->from.n; a++)
        for (uint32_t b = 0; b < p->to.n; b++) {
            const uint64_t bytes = p->bytes[(size_t)a * p->to.n + b];
            double y, z, h, g;

            if (!bytes)
                continue;
            h = band(p, &p->from, bytes);
            g = band(p, &p->to, bytes);
            y = take(p, &p->from, a, bytes);
            z = take(p, &p->to, b, bytes);
            fprintf(p->out,
                "<path d=\"M%.2f %.2fC%.2f %.2f %.2f %.2f %.2f %.2fL%.2f %.2fC%.2f %.2f %.2f %.2f "
                "%.2f %.2fZ\" fill=\"hsl(%u 60%% 45%%)\"><title>%s %u to %s %u: %.3f GB</title>"
                "</path>\n",
                LEFT, y, LEFT + bend, y, RIGHT - bend, z, RIGHT, z, RIGHT, z + g, RIGHT - bend,
                z + g, LEFT + bend, y + h, LEFT, y + h, 360 * a / p->from.n,
                p->from.ranks ? "rank" : "host", a, p->to.ranks ? "rank" : "host", b,
                (double)bytes / GB);
        }
}

static void draw_boxes(const struct picture *p, const struct side *s, bool left)
{
    const double x = left ? LEFT - BOX : RIGHT, size = s->step < 20 ? s->step * 0.6 : 12;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct sw_plan_target *t = left ? NULL : &p->run->scene.targets[i];

        fprintf(p->out,
            "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" rx=\"3\" fill=\"%s\" "
            "stroke=\"#444\"/>\n<text x=\"%.1f\" y=\"%.2f\" font-size=\"%.1f\">",
            x, TOP + s->step * i + s->step * 0.05, BOX, s->step * 0.9, left ? "#eef3fa" : "#f5f0e6",
            x + 6, middle(s, i) + size / 3, size);
        if (!s->ranks)
            fprintf(p->out, "%s host %u", left ? "training" : "inference", i);
        else if (left)
            fprintf(p->out, "trainer rank %u", i);
        else
            fprintf(p->out, "%s rank %u", t->engine, t->engine_rank);
        fprintf(p->out, ", %.2f GB</text>\n", (double)s->bytes[i] / GB);
    }
}

static void draw(struct picture *p)
{
    const struct sw_cost *c = &p->run->cost;

    fprintf(p->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
        "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
        "<text x=\"20\" y=\"32\" font-size=\"20\">%u trainer ranks to %u engine ranks: %.1f GB in "
        "%u pairs</text>\n<text x=\"20\" y=\"58\" font-size=\"14\">Widths are bytes. Busiest "
        "source "
        "NIC %.2f GB, lower bound %.2f GB. Predicted: stage %.3f s, pause %.3f s, bound by "
        "%s.</text>\n<g fill-opacity=\"0.55\">\n",
        WIDTH, TOP + COLUMN + 30, c->n_ranks, c->n_targets, (double)c->moved / GB, c->pairs,
        (double)c->busiest / GB, (double)c->lower_bound / GB, c->stage_seconds, c->publish_seconds,
        sw_limit_name(c->publish_limit));
    draw_bands(p);
    fprintf(p->out, "</g>\n");
    draw_boxes(p, &p->from, true);
    draw_boxes(p, &p->to, false);
    fprintf(p->out, "</svg>\n");
}

int sw_plan_run_svg(const struct sw_plan_run *run, const char *path, struct sw_error *e)
{
    const struct sw_cost *c = &run->cost;
    struct picture p = {.run = run};
    int code = 0;

    if (side_make(&p.from, c->n_ranks, c->n_source_hosts) ||
        side_make(&p.to, c->n_targets, c->n_target_hosts) || gather(&p))
        code = sw_fail(e, SW_ERR_NOMEM, "no memory for a picture of the plan");
    if (!code && !(p.out = fopen(path, "we")))
        code = sw_fail_errno(e, SW_ERR_IO, errno, "picture %s", path);
    if (!code) {
        draw(&p);
        if (ferror(p.out))
            code = sw_fail(e, SW_ERR_IO, "picture %s could not be written", path);
        if (fclose(p.out) && !code)
            code = sw_fail_errno(e, SW_ERR_IO, errno, "picture %s", path);
    }
    side_free(&p.from);
    side_free(&p.to);
    free(p.bytes);
    return code;
}
