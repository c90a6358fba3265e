/* SPDX-License-Identifier: Apache-2.0 */
#include "common/notify.h"

#include <systemd/sd-daemon.h>
#include "common/text.h"

#define STATUS_MAX 512

/* A line end in the status would start an assignment of its own, so it is escaped. */
static void tell(const char *state, const char *status)
{
    char shown[STATUS_MAX];

    sd_notifyf(0, "%sSTATUS=%s", state, sw_text_escape(shown, sizeof(shown), status));
}

void sw_notify_ready(const char *status)
{
    tell("READY=1\n", status);
}

void sw_notify_stopping(const char *reason)
{
    tell("STOPPING=1\n", reason);
}

void sw_notify_status(const char *status)
{
    tell("", status);
}

void sw_notify_watchdog(void)
{
    sd_notify(0, "WATCHDOG=1");
}

uint64_t sw_notify_watchdog_ms(void)
{
    uint64_t usec = 0;

    return sd_watchdog_enabled(0, &usec) > 0 ? (usec / 2000 ? usec / 2000 : 1) : 0;
}
