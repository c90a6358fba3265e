/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/plan_run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include "common/limits.h"
#include "common/error.h"
#include "trainerd/plan/compact.h"

#define GB 1e9

/* Live engines' own model stands for the trainers' where --model gives none. */
static int ask_live(struct sw_plan_run *run, struct sw_error *e)
{
    const struct sw_plan_request *r = run->request;
    char where[300];
    const struct sw_control_where control = {.host = where,
        .daemon = "inferd",
        .secret_file = r->secret_file,
        .group = r->group,
        .timeout_ms = SW_CLIENT_MS};
    int code;

    snprintf(where, sizeof(where), strchr(r->engine.host, ':') ? "[%.255s]:%u" : "%.255s:%u",
        r->engine.host, r->engine.port);
    code = sw_plan_live_ask(&control, r->layouts, &run->live, e);
    if (code || run->model)
        return code;
    if (!run->live.n_models)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "the engines at %s hold whole tensors by their checkpoint names: --model must tell "
            "what "
            "trainers hold",
            where);
    run->model = run->live.models[0].model;
    run->config = run->live.models[0].config;
    return 0;
}

static int read_files(struct sw_plan_run *run, struct sw_error *e)
{
    const struct sw_plan_request *r = run->request;
    int code = 0;

    if (r->model) {
        code = sw_model_files_read(r->model, r->layouts, r->layout,
            r->kind ? SW_ENGINE_VLLM : SW_ENGINE_SGLANG, &run->files, e);
        run->model = run->files.model;
        run->config = run->files.config;
    }
    if (!code && r->engine.host)
        code = ask_live(run, e);
    return code;
}

static int make_scene(struct sw_plan_run *run, struct sw_error *e)
{
    const bool live = run->live.n_targets > 0;
    uint32_t block[2] = {0, 0};
    int code;

    if (!sw_config_fp8(run->config, block))
        block[0] = block[1] = 0;
    code = sw_plan_request_specs(run->request, block, &run->trainer, &run->engine, e);
    if (!code)
        code = sw_scene_make(run->model, &run->trainer, live ? NULL : &run->engine, &run->scene, e);
    if (!code && live) {
        run->scene.targets = run->live.targets;
        run->scene.n_targets = run->live.n_targets;
    }
    return code;
}

static int make_plan(struct sw_plan_run *run, struct sw_error *e)
{
    const struct sw_plan_request *r = run->request;
    const struct sw_scene *s = &run->scene;
    const struct sw_plan_options options = {
        .assignment = (enum sw_assignment)r->assignment, .replica_limit = r->replica_limit};
    int code = sw_layout_make(
        s->ranks, s->n_ranks, s->targets, s->n_targets, &options, &run->layout, &run->notes, e);

    if (!code)
        code = sw_writes_make(run->layout, s->targets, s->n_targets, &run->writes, e);
    if (!code)
        code = sw_cost_make(run->layout, run->writes, s->ranks, s->n_ranks, s->targets,
            s->n_targets, &run->machine, &run->cost, e);
    return code;
}

int sw_plan_run_make(const struct sw_plan_request *r, struct sw_plan_run *run, struct sw_error *e)
{
    int code;

    *run = (struct sw_plan_run){.request = r,
        .machine = {.nic = r->nic_gbit * GB / 8,
            .pcie = r->pcie_gb * GB,
            .stage = r->stage_gb * GB,
            .host = r->host_gb * GB}};
    code = read_files(run, e);
    if (!code)
        code = make_scene(run, e);
    if (!code)
        code = make_plan(run, e);
    if (code) {
        sw_plan_run_clear(run);
        return code;
    }
    sw_plan_run_warn(run);
    return 0;
}

void sw_plan_run_clear(struct sw_plan_run *run)
{
    sw_cost_clear(&run->cost);
    sw_writes_free(run->writes);
    sw_layout_free(run->layout);
    sw_scene_clear(&run->scene);
    sw_plan_live_clear(&run->live);
    sw_model_files_clear(&run->files);
    run->writes = NULL;
    run->layout = NULL;
}

/* ---- warnings ---- */

__attribute__((format(printf, 2, 3))) static void warn(
    struct sw_plan_run *run, const char *format, ...)
{
    va_list args;

    if (run->n_warnings == SW_PLAN_WARNINGS_MAX)
        return;
    va_start(args, format);
    vsnprintf(run->warnings[run->n_warnings++], sizeof(run->warnings[0]), format, args);
    va_end(args);
}

static uint64_t zero_bytes(const struct sw_plan_run *run)
{
    const struct sw_compact *c = sw_layout_compact(run->layout);
    uint64_t bytes = 0;

    for (uint32_t s = 0; s < c->n_slabs; s++)
        if (c->formats[c->slabs[s].format].transform == SW_TRANSFORM_ZERO)
            for (uint32_t i = 0; i < c->splits[c->slabs[s].split].n; i++)
                bytes += c->cells[c->splits[c->slabs[s].split].first + i].bytes;
    return bytes;
}

static uint64_t fullest_host(const struct sw_cost *c)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < c->n_source_hosts; i++)
        most = c->source_hosts[i].replica > most ? c->source_hosts[i].replica : most;
    return most;
}

void sw_plan_run_warn(struct sw_plan_run *run)
{
    const struct sw_plan_request *r = run->request;
    const struct sw_cost *c = &run->cost;
    const uint64_t zeros = zero_bytes(run), host = fullest_host(c);

    if (zeros)
        warn(run,
            "the vocabulary is no multiple of what the engine pads it to: %" PRIu64
            " bytes of zero rows are sent with it",
            zeros);
    if (r->host_memory && 2 * host > r->host_memory)
        warn(run,
            "the replica of the fullest training host takes 2 x %.1f GB (two buffers) of its %.1f "
            "GB; fewer ranks a host, one buffer, or --replica-limit",
            (double)host / GB, (double)r->host_memory / GB);
    if (c->lower_bound && c->busiest > c->lower_bound + c->lower_bound / 50)
        warn(run, "the busiest source NIC sends %.1f%% more than the lower bound",
            100.0 * ((double)c->busiest / (double)c->lower_bound - 1));
    if (run->notes.unused)
        warn(run, "%u tensors that trainers hold are wanted by no engine: %s", run->notes.unused,
            run->notes.unused_names);
    if (c->maxima)
        warn(run,
            "FP8 blocks span trainer ranks: they exchange %.1f MB of block maxima in staging "
            "(tensors stay untouched until the end of staging)",
            (double)c->maxima * sizeof(float) / 1e6);
    if (r->replica_limit)
        warn(run,
            "with a limited replica a version passes in waves: engines stand still meanwhile, "
            "and no late joiner or repair can be served from it");
}
