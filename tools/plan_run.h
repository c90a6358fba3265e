/* SPDX-License-Identifier: Apache-2.0 */
/* A plan made for `shardctl plan`: what was asked, and everything that came of it. */
#ifndef SW_TOOLS_PLAN_RUN_H
#define SW_TOOLS_PLAN_RUN_H

#include <stdio.h>
#include <jansson.h>
#include "tools/plan_live.h"
#include "tools/plan_options.h"
#include "trainerd/plan/cost.h"

#define SW_PLAN_WARNINGS_MAX 8

struct sw_plan_run {
    const struct sw_plan_request *request;
    struct sw_model_files files;  /* of --model; empty when live engines gave the model */
    struct sw_plan_live live;     /* engines of --engine; else empty */
    const struct sw_model *model; /* what trainers hold */
    const struct sw_config *config;
    struct sw_trainer_spec trainer;
    struct sw_engine_spec engine; /* of made up engines */
    struct sw_scene scene;        /* its targets are the live ones, if there are any */
    struct sw_layout *layout;
    struct sw_writes *writes;
    struct sw_plan_notes notes;
    struct sw_machine machine;
    struct sw_cost cost;
    uint32_t n_warnings;
    char warnings[SW_PLAN_WARNINGS_MAX][512];
};

/* Reads the files, makes the plan, proves it, and looks at what it costs. */
int sw_plan_run_make(
    const struct sw_plan_request *request, struct sw_plan_run *run, struct sw_error *e);
void sw_plan_run_clear(struct sw_plan_run *run);

/* For people; as JSON (NULL = no memory; the caller owns it). */
void sw_plan_run_print(const struct sw_plan_run *run, FILE *out);
json_t *sw_plan_run_json(const struct sw_plan_run *run);

/* What people get wrong, into run->warnings. */
void sw_plan_run_warn(struct sw_plan_run *run);

/* One tensor (checkpoint name) or parameter (engine name): where its bytes come from and go to.
 * SW_ERR_NOT_FOUND when there is none of that name. */
int sw_plan_run_explain(
    const struct sw_plan_run *run, const char *name, FILE *out, struct sw_error *e);

/* A picture of who sends what to whom, into a file. */
int sw_plan_run_svg(const struct sw_plan_run *run, const char *path, struct sw_error *e);

#endif
