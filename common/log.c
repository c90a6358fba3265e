/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common/journal.h"
#include "common/text.h"

#define TEXT_MAX 2048 /* of one message; what is longer ends in "..." */
#define LINE_MAX_BYTES (TEXT_MAX + 128)

enum form { FORM_PLAIN, FORM_TERMINAL, FORM_COLOUR, FORM_JOURNAL, FORM_PREFIX };

const char *const sw_log_level_names[] = {"error", "warning", "notice", "info", "debug", NULL};

static const char *const colours[] = {"\033[1;31m", "\033[1;33m", "\033[1m", "", "\033[2m"};

static struct {
    const char *program;
    enum form form;
    atomic_int level;
    pthread_mutex_t lock; /* keeps lines whole when stderr takes them in parts */
} the_log = {.program = "shardwire", .level = SW_LOG_INFO, .lock = PTHREAD_MUTEX_INITIALIZER};

/* systemd tells device and inode of the journal's socket; stderr may have been redirected since. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device;
    unsigned long long inode;
    struct stat st;
    char *end;

    if (!stream || fstat(STDERR_FILENO, &st) != 0)
        return false;
    device = strtoull(stream, &end, 10);
    if (end == stream || *end != ':')
        return false;
    stream = end + 1;
    inode = strtoull(stream, &end, 10);
    return end != stream && *end == '\0' && st.st_dev == device && st.st_ino == inode;
}

static enum form choose_form(void)
{
    const char *term = getenv("TERM");
    const char *no_colour = getenv("NO_COLOR");

    if (stderr_is_journal())
        return sw_journal_available() ? FORM_JOURNAL : FORM_PREFIX;
    if (!isatty(STDERR_FILENO))
        return FORM_PLAIN;
    if ((no_colour && *no_colour) || !term || strcmp(term, "dumb") == 0)
        return FORM_TERMINAL;
    return FORM_COLOUR;
}

void sw_log_open(const char *program, enum sw_log_level level)
{
    tzset(); /* localtime_r need not do it */
    the_log.program = program;
    the_log.form = choose_form();
    sw_log_set_level(level);
}

void sw_log_set_level(enum sw_log_level level)
{
    atomic_store_explicit(&the_log.level, level, memory_order_relaxed);
}

bool sw_log_enabled(enum sw_log_level level)
{
    return (int)level <= atomic_load_explicit(&the_log.level, memory_order_relaxed);
}

static size_t level_index(enum sw_log_level level)
{
    return level < SW_LOG_ERROR   ? 0
           : level > SW_LOG_DEBUG ? SW_LOG_DEBUG - SW_LOG_ERROR
                                  : (size_t)level - SW_LOG_ERROR;
}

/* "05:34:11.123", or with the date and in UTC. */
static void format_time(char *out, size_t size, bool terminal)
{
    struct timespec now;
    struct tm tm;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &now);
    if (terminal)
        localtime_r(&now.tv_sec, &tm);
    else
        gmtime_r(&now.tv_sec, &tm);
    n = strftime(out, size, terminal ? "%H:%M:%S" : "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, size - n, ".%03ld%s", now.tv_nsec / 1000000, terminal ? "" : "Z");
}

/* The line without its end; `text` is escaped already. */
static void format_line(char *out, size_t size, enum sw_log_level level, const char *text)
{
    const size_t index = level_index(level);
    const char *name = sw_log_level_names[index];
    char when[48];

    switch (the_log.form) {
    case FORM_PREFIX:
        snprintf(out, size, "<%d>%s", (int)level, text);
        break;
    case FORM_TERMINAL:
        format_time(when, sizeof(when), true);
        snprintf(out, size, "%s %-7s %s", when, name, text);
        break;
    case FORM_COLOUR:
        format_time(when, sizeof(when), true);
        snprintf(out, size, "%s %s%-7s %s%s", when, colours[index], name, text,
            *colours[index] ? "\033[0m" : "");
        break;
    default:
        format_time(when, sizeof(when), false);
        snprintf(out, size, "%s %s[%d] %s: %s", when, the_log.program, (int)getpid(), name, text);
    }
}

/* One write for the whole line where the kernel takes it at once. If stderr is gone or full and
 * does not block, there is nobody left to tell: the rest is dropped. */
static void write_line(char *line)
{
    size_t left = strlen(line);

    line[left++] = '\n'; /* in place of the NUL */
    pthread_mutex_lock(&the_log.lock);
    while (left > 0) {
        const ssize_t n = write(STDERR_FILENO, line, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        line += n;
        left -= (size_t)n;
    }
    pthread_mutex_unlock(&the_log.lock);
}

static __attribute__((format(printf, 4, 0))) void emit(enum sw_log_level level,
    const struct sw_log_field *fields, size_t n, const char *format, va_list args)
{
    const int saved = errno;
    char raw[TEXT_MAX];
    char text[TEXT_MAX];
    char line[LINE_MAX_BYTES];
    int length;

    if (!sw_log_enabled(level))
        return;
    length = vsnprintf(raw, sizeof(raw), format, args);
    if (length < 0)
        snprintf(raw, sizeof(raw), "(a message that could not be formatted: %.100s)", format);
    else if ((size_t)length >= sizeof(raw))
        memcpy(raw + sizeof(raw) - 4, "...", 4);
    sw_text_escape(text, sizeof(text), raw);
    if (the_log.form != FORM_JOURNAL ||
        !sw_journal_send(the_log.program, (int)level, text, fields, n)) {
        format_line(line, sizeof(line), level, text);
        write_line(line);
    }
    errno = saved;
}

void sw_log(enum sw_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    emit(level, NULL, 0, format, args);
    va_end(args);
}

void sw_log_fields(
    enum sw_log_level level, const struct sw_log_field *fields, size_t n, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    emit(level, fields, n, format, args);
    va_end(args);
}
