/* SPDX-License-Identifier: Apache-2.0 */
#include "common/journal.h"

/* No CODE_FILE and the like: the place would always be log.c. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#define FIELD_MAX 512 /* bytes of one field, name included; longer values are cut */

/* sd_journal_sendv calls it a success when there is no such socket (another mount namespace). */
bool sw_journal_available(void)
{
    return access("/run/systemd/journal/socket", W_OK) == 0;
}

bool sw_journal_send(const char *program, int priority, const char *text,
    const struct sw_log_field *fields, size_t n)
{
    char message[4096];
    char level[16];
    char identifier[80];
    char extra[SW_LOG_FIELDS_MAX][FIELD_MAX];
    struct iovec iov[3 + SW_LOG_FIELDS_MAX];
    int count = 3;

    snprintf(message, sizeof(message), "MESSAGE=%s", text);
    snprintf(level, sizeof(level), "PRIORITY=%d", priority);
    snprintf(identifier, sizeof(identifier), "SYSLOG_IDENTIFIER=%s", program);
    iov[0] = (struct iovec){message, strlen(message)};
    iov[1] = (struct iovec){level, strlen(level)};
    iov[2] = (struct iovec){identifier, strlen(identifier)};
    for (size_t i = 0; i < n && count < 3 + SW_LOG_FIELDS_MAX; i++) {
        char *to = extra[count - 3];

        if (!fields[i].value)
            continue;
        snprintf(to, FIELD_MAX, "SHARDWIRE_%s=%s", fields[i].name, fields[i].value);
        iov[count++] = (struct iovec){to, strlen(to)};
    }
    return sd_journal_sendv(iov, count) == 0;
}
