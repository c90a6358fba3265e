/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "common/error.h"
#include "tools/plan_run.h"
#include "tools/shardctl.h"

static int print_json(const struct sw_plan_run *run, struct sw_error *e)
{
    json_t *document = sw_plan_run_json(run);
    int code = 0;

    if (!document)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the document");
    if (json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) < 0)
        code = sw_fail(e, SW_ERR_IO, "standard output");
    putchar('\n');
    json_decref(document);
    return code;
}

static int show(const struct sw_plan_run *run, struct sw_error *e)
{
    const struct sw_plan_request *r = run->request;
    int code = 0;

    if (r->explain)
        code = sw_plan_run_explain(run, r->explain, stdout, e);
    else if (r->json)
        code = print_json(run, e);
    else
        sw_plan_run_print(run, stdout);
    if (!code && r->svg)
        code = sw_plan_run_svg(run, r->svg, e);
    return code;
}

int sw_ctl_plan(int argc, char **argv)
{
    struct sw_plan_request request;
    struct sw_plan_run run;
    struct sw_error e = {0};
    int code = sw_plan_request_parse(argc, argv, &request);

    if (code >= 0)
        return code;
    code = sw_plan_run_make(&request, &run, &e);
    if (!code) {
        code = show(&run, &e);
        sw_plan_run_clear(&run);
    }
    sw_plan_request_clear(&request);
    return code ? sw_ctl_fail("plan", &e) : SW_CTL_OK;
}
