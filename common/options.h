/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a program: one table, from which come the command line, the INI file, the checks,
 * --help and --dump-options.
 *
 *     struct config { char *group; uint32_t port; uint32_t lease_ms; };
 *     static const struct sw_option options[] = {
 *         {.name = "group", .type = SW_OPTION_STRING, SW_FIELD(struct config, group),
 *             .min = 1, .max = SW_LABEL_MAX, .text = SW_GROUP_DEFAULT, .help = "the group"},
 *         {.name = "port", .letter = 'p', .type = SW_OPTION_UINT, SW_FIELD(struct config, port),
 *             .min = 1, .max = 65535, .number = SW_INFERD_PORT, .help = "control port"},
 *         {.name = "lease", .type = SW_OPTION_DURATION, SW_FIELD(struct config, lease_ms),
 *             .min = 1000, .max = 3600000, .number = SW_LEASE_MS, .help = "longest pause"},
 *     };
 *     static const struct sw_program program = {.name = "inferd", .version = ..., .about = ...,
 *         .config_dir = SW_CONFIG_DIR, .options = options, .count = ...};
 *
 *     int main(int argc, char **argv)
 *     {
 *         struct config config;
 *         struct sw_options_outcome outcome;
 *         int code = sw_options_main(&program, argc, argv, &config, &outcome);
 *         if (code >= 0)
 *             return code;
 *         ... config.port ...
 *         sw_options_outcome_clear(&outcome);
 *         sw_options_free(&program, &config);
 *     }
 *
 * Command line: --name VALUE, --name=VALUE, -p VALUE; underscores stand for dashes; the last one
 * wins. A boolean is --name or --name=no. Every program also has -h/--help, -V/--version,
 * --dump-options FORMAT (markdown, text, ini) and, with a config_dir, --config FILE; a row of the
 * table with the same name (or letter) takes the place of such a built-in one.
 *
 * File: one section, the program's name; `name = value` lines; comments are lines that start with
 * ';' or '#', or what follows " ;". The command line wins over the file, the file over defaults.
 * Unknown sections and names, repeated names, and values that are wrong in any way are errors that
 * name file and line, the value, and what was expected.
 *
 * Memory: sw_options_parse sets every field that the table names; text is malloc'ed and belongs to
 * the options until sw_options_free. Threads: parsing uses getopt_long, hence one thread at a time.
 */
#ifndef SW_COMMON_OPTIONS_H
#define SW_COMMON_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <shardwire/error.h>

enum sw_option_type {
    SW_OPTION_STRING,    /* char *; min..max bytes (max 0 = 1023). NULL when there is none */
    SW_OPTION_PATH,      /* char *; at most max bytes (0 = 4095); UNIX sockets: max = 107 */
    SW_OPTION_HOST_PORT, /* struct sw_host_port: "host", "host:port", "1.2.3.4:5", "[::1]:5" */
    SW_OPTION_BOOL,      /* bool: yes no true false on off 1 0 */
    SW_OPTION_UINT,      /* uint16_t, uint32_t or uint64_t, min..max */
    SW_OPTION_BYTES,     /* the same; a number with K, M, G or T (powers of 1024) or none (bytes) */
    SW_OPTION_DURATION,  /* the same, in milliseconds; ms, s, min, h or none (ms) */
    SW_OPTION_ENUM,      /* int or enum: the index of one of `names` */
};

enum sw_option_flags {
    SW_OPTION_REQUIRED = 1u << 0,     /* text types: must be given somewhere */
    SW_OPTION_MAY_EMPTY = 1u << 1,    /* text types: an empty value is allowed; it means none */
    SW_OPTION_NOT_IN_FILE = 1u << 2,  /* only on the command line */
    SW_OPTION_UNDOCUMENTED = 1u << 3, /* works, but is left out of help and dumps */
};

struct sw_host_port {
    char *host;    /* NULL = none; brackets of an IPv6 address are taken off */
    uint32_t port; /* as given, else the row's `number` */
};

struct sw_option {
    const char *name; /* lower case words joined by dashes */
    char letter;      /* short form, 0 = none */
    enum sw_option_type type;
    unsigned flags;           /* enum sw_option_flags */
    size_t offset, size;      /* SW_FIELD(struct config, member) */
    uint64_t min, max;        /* numbers: range in base units; STRING, PATH: length */
    uint64_t number;          /* default of BOOL, UINT, BYTES, DURATION, ENUM; HOST_PORT: the port
                                 where the value names none (0 = it must name one) */
    const char *text;         /* default of STRING, PATH, HOST_PORT; NULL = none */
    const char *const *names; /* ENUM: the values, NULL at the end */
    const char *unit;         /* UINT: what is counted ("connections"); NULL = nothing special */
    const char *heading;      /* a heading printed before this row; NULL = goes on */
    const char *help;         /* what it is for, without default and range */
};

#define SW_FIELD(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)

enum sw_program_flags {
    SW_PROGRAM_STOP_AT_OPERAND = 1u << 0, /* options end at the first operand (sub-commands) */
};

struct sw_program {
    const char *name;       /* also the file's section, and <config_dir>/<name>.conf */
    const char *version;    /* for --version */
    const char *about;      /* one paragraph */
    const char *operands;   /* usage after the options ("DIR"); NULL = takes none */
    const char *notes;      /* printed as it is at the end of --help; NULL = none */
    const char *config_dir; /* NULL = no file is read, and no --config */
    unsigned flags;         /* enum sw_program_flags */
    const struct sw_option *options;
    size_t count;
};

struct sw_options_outcome {
    char *text;        /* not NULL: --help or the like; print it and end. Config is unset then */
    char *config_path; /* the file that was read; NULL = none was */
    int first;         /* the first operand in argv (which getopt_long may have reordered) */
};

/*
 * Defaults, then the file, then the command line into *config. On failure nothing is set or left
 * allocated. SW_ERR_INVALID: what the user gave; SW_ERR_IO: the file could not be read.
 */
int sw_options_parse(const struct sw_program *p, int argc, char **argv, void *config,
    struct sw_options_outcome *out, struct sw_error *e);

/* For main(): parses, and prints what is to be printed. -1 = go on; else the exit code (0 after
 * --help, 2 after an error). */
int sw_options_main(const struct sw_program *p, int argc, char **argv, void *config,
    struct sw_options_outcome *out);

/* Frees the text in *config and sets it to NULL. */
void sw_options_free(const struct sw_program *p, void *config);
void sw_options_outcome_clear(struct sw_options_outcome *out);

/* The table's own faults (for tests; sw_options_parse checks them too): names, sizes, defaults. */
int sw_options_check(const struct sw_program *p, struct sw_error *e);

/* Texts, malloc'ed; NULL = no memory. `columns`: where lines are wrapped. */
char *sw_options_help(const struct sw_program *p, unsigned columns);

enum sw_options_format { SW_OPTIONS_MARKDOWN, SW_OPTIONS_TEXT, SW_OPTIONS_INI };
char *sw_options_dump(const struct sw_program *p, enum sw_options_format format);

#endif
