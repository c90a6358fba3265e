/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. A function that can fail returns an int: 0, or one of the negative codes below, and fills
 * the struct sw_error it was given (which may be NULL) with a bounded message for people: what,
 * which, how much, and what to do. Callers add context on the way up; only daemons and tools print.
 */
#ifndef SHARDWIRE_ERROR_H
#define SHARDWIRE_ERROR_H

#include <shardwire/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_ERROR_TEXT 1024 /* bytes, the final NUL included */

enum sw_code {
    SW_OK = 0,
    SW_ERR_INVALID = -1,      /* an argument, a file or a message that is wrong in itself */
    SW_ERR_STATE = -2,        /* right in itself, but not now */
    SW_ERR_TIMEOUT = -3,      /* a deadline passed; the message names who did not answer */
    SW_ERR_CLOSED = -4,       /* the other side is gone, or is not running */
    SW_ERR_PROTOCOL = -5,     /* bytes that no correct peer sends */
    SW_ERR_AUTH = -6,         /* wrong secret, group, role, token or user */
    SW_ERR_NOMEM = -7,        /* memory, or memory that may be used */
    SW_ERR_IO = -8,           /* the operating system said no; errno is in the message */
    SW_ERR_LIMIT = -9,        /* over a limit of ours; both numbers are in the message */
    SW_ERR_UNSUPPORTED = -10, /* understood, and not done by this build or this version */
    SW_ERR_VERSION = -11,     /* a version number that may not be used; both numbers are given */
    SW_ERR_PLAN = -12,        /* sources and parameters do not fit; the parameter is named */
    SW_ERR_NOT_FOUND = -13,
    SW_ERR_EXISTS = -14,
    SW_ERR_PARTIAL = -15, /* some engines are live at the version, some are not */
    SW_ERR_ABORTED = -16, /* the version or update was given up; the reason is in the message */
};

struct sw_error {
    int code;
    char text[SW_ERROR_TEXT];
};

/* A short name for a code ("timeout"); never NULL. */
SW_API const char *sw_code_name(int code);

#ifdef __cplusplus
}
#endif
#endif
