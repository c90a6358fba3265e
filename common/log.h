/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemons' log: the one place with process-wide state. Only main programs and the thin I/O
 * layers of daemons call it; library code returns a struct sw_error instead.
 *
 * One call, one line on stderr: with time and colour on a terminal, with date and program name
 * elsewhere. When stderr is the journal, entries go there with fields (SHARDWIRE_VERSION=7), or,
 * without libsystemd, as lines with a "<N>" priority. Control characters in the text are escaped,
 * as names come from outside. Thread-safe; errno is kept. A program that
 * logs to a pipe ignores SIGPIPE.
 */
#ifndef SW_COMMON_LOG_H
#define SW_COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>

/* The numbers are syslog's. */
enum sw_log_level {
    SW_LOG_ERROR = 3,
    SW_LOG_WARNING = 4,
    SW_LOG_NOTICE = 5,
    SW_LOG_INFO = 6,
    SW_LOG_DEBUG = 7,
};

/* For the option "log-level": index 0 is SW_LOG_ERROR; NULL at the end. */
extern const char *const sw_log_level_names[];
#define SW_LOG_LEVEL_FIRST SW_LOG_ERROR

/* Looks at stderr and decides the form of the lines; to be called once, before threads start.
 * `program` must live on (a literal). Without this call, lines are plain and the level is info. */
void sw_log_open(const char *program, enum sw_log_level level);
void sw_log_set_level(enum sw_log_level level);
/* Whether lines of this level are written: for what is costly to put together. */
bool sw_log_enabled(enum sw_log_level level);

void sw_log(enum sw_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A field of a journal entry; nothing else shows it, so the text must say it too. */
struct sw_log_field {
    const char *name;  /* upper case letters, digits, underscores; SHARDWIRE_ is put in front */
    const char *value; /* NULL = leave the field out */
};
#define SW_LOG_FIELDS_MAX 12 /* more are left out */

void sw_log_fields(enum sw_log_level level, const struct sw_log_field *fields, size_t n,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
