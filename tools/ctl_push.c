/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shardctl.h"

#include <inttypes.h>
#include <stdio.h>
#include "tools/staging.h"

int sw_ctl_push(const struct sw_ctl *ctl)
{
    struct sw_publish_result result = {0};
    struct sw_error e = {0};
    sw_trainer *trainer;
    uint64_t version;
    int status, code = sw_staging_run(ctl, &trainer, &version, &e);

    if (code)
        return sw_ctl_fail("push", &e);
    code = sw_trainer_publish(trainer, version, &e);
    if (!code)
        code = sw_trainer_wait(trainer, version, ctl->timeout_ms, &result, &e);
    status = SW_CTL_FAILED;
    if (!code || code == SW_ERR_PARTIAL)
        status = sw_ctl_print_result(&result);
    if (code)
        sw_ctl_fail("push", &e);
    sw_trainer_close(trainer);
    return status;
}
