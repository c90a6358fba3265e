/* SPDX-License-Identifier: Apache-2.0 */
/* What `shardctl plan` prints. */
#include <inttypes.h>
#include <stdio.h>
#include "tools/plan_run.h"
#include "tools/table.h"
#include "trainerd/plan/compact.h"

#define GB 1e9
#define ROWS_MAX 16u /* of a table; --json has all */

static void number(struct sw_table *t, uint64_t n)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, n);
    sw_table_cell(t, text);
}

static void gigabytes(struct sw_table *t, uint64_t bytes)
{
    char text[32];

    snprintf(text, sizeof(text), "%.3f", (double)bytes / GB);
    sw_table_cell(t, text);
}

static void titles(struct sw_table *t, const char *first, const char *moved, bool replica)
{
    sw_table_cell(t, first);
    sw_table_cell(t, "HOST");
    sw_table_cell(t, "NIC");
    if (replica)
        sw_table_cell(t, "REPLICA GB");
    sw_table_cell(t, moved);
    sw_table_cell(t, "PAIRS");
    sw_table_row(t);
}

static void print_places(const char *heading, const char *first, const char *moved, bool replica,
    const struct sw_cost_place *p, uint32_t n, FILE *out)
{
    struct sw_table *t = sw_table_new();

    fprintf(out, "\n%s\n", heading);
    titles(t, first, moved, replica);
    for (uint32_t i = 0; i < n && i < ROWS_MAX; i++) {
        number(t, i);
        number(t, p[i].host);
        number(t, p[i].nic);
        if (replica)
            gigabytes(t, p[i].replica);
        gigabytes(t, p[i].moved);
        number(t, p[i].pairs);
        sw_table_row(t);
    }
    sw_table_print(t, 2, out);
    if (n > ROWS_MAX)
        fprintf(out, "  ... and %u more (--json has all)\n", n - ROWS_MAX);
}

static uint64_t most_replica(const struct sw_cost_place *p, uint32_t n)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = p[i].replica > most ? p[i].replica : most;
    return most;
}

static void print_scene(const struct sw_plan_run *run, FILE *out)
{
    static const char *const holds[] = {
        "all tensors of its pipeline stage", "its Megatron shard", "its FSDP rows of every tensor"};
    const struct sw_trainer_spec *t = &run->trainer;
    const struct sw_engine_spec *e = &run->engine;
    const struct sw_cost *c = &run->cost;

    const char *architecture = sw_config_architecture(run->config, 0);

    fprintf(out, "%s: layout for %s\n",
        run->request->model ? run->request->model : run->request->engine.host,
        architecture ? architecture : "?");
    fprintf(out, "  trainers   %u ranks on %u hosts (tp %u, pp %u, ep %u); a rank holds %s\n",
        c->n_ranks, c->n_source_hosts, t->tp, t->pp, t->ep, holds[t->holds]);
    if (run->live.n_targets) {
        fprintf(out, "  engines    %u ranks, as registered with the inferd at %s\n", c->n_targets,
            run->request->engine.host);
        return;
    }
    fprintf(out, "  engines    %u of %s, %u ranks on %u hosts (tp %u, ep %u, pp %u, dp %u)",
        e->engines, sw_engine_kind_name(e->kind), c->n_targets, c->n_target_hosts, e->tp, e->ep,
        e->pp, e->dp);
    if (e->scale)
        fprintf(out, ", FP8 in blocks of %ux%u with %s scales", e->block[0], e->block[1],
            e->scale == SW_SCALE_UE8M0 ? "UE8M0" : "FP32");
    fputc('\n', out);
}

static void print_totals(const struct sw_plan_run *run, FILE *out)
{
    const struct sw_compact *p = sw_layout_compact(run->layout);
    const struct sw_cost *c = &run->cost;
    const struct sw_machine *m = &run->machine;

    fprintf(out, "  tensors    %u; %u distinct pieces of final bytes\n", p->n_entries, p->n_slabs);
    fprintf(out,
        "  to stage   %.3f GB; the replica takes %.3f in the fullest rank, %.3f in the fullest "
        "host, with two buffers twice that\n",
        (double)c->distinct / GB, (double)most_replica(c->ranks, c->n_ranks) / GB,
        (double)most_replica(c->source_hosts, c->n_source_hosts) / GB);
    if (c->waves > 1)
        fprintf(out, "  waves      %u: a rank's replica holds a part of its tensors at a time\n",
            c->waves);
    fprintf(out, "  to move    %.3f GB to all engines, in %u (trainer rank, engine rank) pairs\n",
        (double)c->moved / GB, c->pairs);
    fprintf(out,
        "  balance    the busiest source NIC sends %.3f GB; no assignment could do with less "
        "than %.3f (%.2f%% above)\n",
        (double)c->busiest / GB, (double)c->lower_bound / GB,
        c->lower_bound ? 100.0 * ((double)c->busiest / (double)c->lower_bound - 1) : 0.0);
    fprintf(out, "  predicted  stage %.3f s (bound by %s), pause %.3f s (bound by %s)\n",
        c->stage_seconds, sw_limit_name(c->stage_limit), c->publish_seconds,
        sw_limit_name(c->publish_limit));
    fprintf(out,
        "             from %.0f GB/s a NIC, %.0f into a GPU, %.0f out of a trainer's GPU, "
        "%.0f a training host's memory; bytes on the wire only\n",
        m->nic / GB, m->pcie / GB, m->stage / GB, m->host / GB);
    if (run->notes.derived)
        fprintf(
            out, "  left out   %u parameters that engines make themselves\n", run->notes.derived);
}

void sw_plan_run_print(const struct sw_plan_run *run, FILE *out)
{
    const struct sw_cost *c = &run->cost;

    print_scene(run, out);
    print_totals(run, out);
    for (uint32_t i = 0; i < run->n_warnings; i++)
        fprintf(out, "  warning: %s\n", run->warnings[i]);
    print_places("Trainer ranks", "RANK", "SENDS GB", true, c->ranks, c->n_ranks, out);
    print_places("Engine ranks", "TARGET", "GETS GB", false, c->targets, c->n_targets, out);
    print_places(
        "Training hosts", "NO.", "SENDS GB", true, c->source_hosts, c->n_source_hosts, out);
}
