/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shardctl.h"

#include <inttypes.h>
#include <stdio.h>
#include "tools/staging.h"

int sw_ctl_stage(const struct sw_ctl *ctl)
{
    struct sw_error e = {0};
    sw_trainer *trainer;
    uint64_t version;

    if (sw_staging_run(ctl, &trainer, &version, &e))
        return sw_ctl_fail("stage", &e);
    printf("version %" PRIu64 " is staged; `shardctl publish` makes it live\n", version);
    sw_trainer_close(trainer);
    return SW_CTL_OK;
}
