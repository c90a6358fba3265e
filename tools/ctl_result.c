/* SPDX-License-Identifier: Apache-2.0 */
/* How a publish ended, as a table. */
#include <inttypes.h>
#include <stdio.h>
#include "tools/progress.h"
#include "tools/shardctl.h"
#include "tools/table.h"

static void add_header(struct sw_table *t)
{
    static const char *const titles[] = {"ENGINE", "LIVE", "VERSION", "TRANSPORT", "BYTES", "DRAIN",
        "PAUSE", "WRITE", "POST", "WRITE RATE", "REASON"};

    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        sw_table_cell(t, titles[i]);
    sw_table_row(t);
}

static void add_engine(struct sw_table *t, const struct sw_engine_status *s)
{
    char text[32];

    sw_table_cell(t, s->engine);
    sw_table_cell(t, s->live ? "yes" : "NO");
    snprintf(text, sizeof(text), "%" PRIu64, s->version);
    sw_table_cell(t, text);
    sw_table_cell(t, s->transport);
    sw_table_cell(t, sw_format_bytes(s->bytes, text));
    sw_table_cell(t, sw_format_time(s->drain_ns, text));
    sw_table_cell(t, sw_format_time(s->pause_ns, text));
    sw_table_cell(t, sw_format_time(s->write_ns, text));
    sw_table_cell(t, sw_format_time(s->post_ns, text));
    sw_table_cell(t, sw_format_rate(s->bytes, s->write_ns, text));
    sw_table_cell(t, s->reason);
    sw_table_row(t);
}

int sw_ctl_print_result(const struct sw_publish_result *r)
{
    struct sw_table *t = sw_table_new();
    char bytes[32], time[32], rate[32];
    size_t live = 0;

    printf("version %" PRIu64 ": staged %s in %s (%s)\n", r->version,
        sw_format_bytes(r->stage_bytes, bytes), sw_format_time(r->stage_ns, time),
        sw_format_rate(r->stage_bytes, r->stage_ns, rate));
    add_header(t);
    for (size_t i = 0; i < r->n_engines; i++) {
        add_engine(t, &r->engines[i]);
        live += r->engines[i].live != 0;
    }
    sw_table_print(t, 0, stdout);
    if (live == r->n_engines)
        return SW_CTL_OK;
    return live ? SW_CTL_PARTIAL : SW_CTL_FAILED;
}
