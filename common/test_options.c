/* SPDX-License-Identifier: Apache-2.0 */
#include "common/options.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct config {
    char *group;
    char *socket;
    struct sw_host_port coordinator;
    struct sw_host_port listen;
    struct sw_host_port peer;
    bool strict;
    uint32_t port;
    uint16_t narrow;
    uint64_t wide;
    uint64_t memory;
    uint32_t lease_ms;
    int mode;
    char *secret;
};

static const char *const modes[] = {"auto", "tcp", "local", NULL};

static const struct sw_option rows[] = {
    {.name = "group",
        .letter = 'g',
        .type = SW_OPTION_STRING,
        SW_FIELD(struct config, group),
        .min = 2,
        .max = 8,
        .text = "default",
        .help = "the group this daemon belongs to, which is one training job with its engines"},
    {.name = "socket-path",
        .type = SW_OPTION_PATH,
        SW_FIELD(struct config, socket),
        .flags = SW_OPTION_MAY_EMPTY,
        .max = 20,
        .text = "/run/d.sock",
        .help = "UNIX socket"},
    {.name = "coordinator",
        .type = SW_OPTION_HOST_PORT,
        SW_FIELD(struct config, coordinator),
        .flags = SW_OPTION_MAY_EMPTY,
        .number = 7470,
        .help = "the coordinator"},
    {.name = "listen",
        .type = SW_OPTION_HOST_PORT,
        SW_FIELD(struct config, listen),
        .text = "127.0.0.1:7471",
        .help = "address to listen on"},
    {.name = "peer",
        .type = SW_OPTION_HOST_PORT,
        SW_FIELD(struct config, peer),
        .text = "localhost",
        .number = 7,
        .help = "a peer"},
    {.name = "strict",
        .letter = 's',
        .type = SW_OPTION_BOOL,
        SW_FIELD(struct config, strict),
        .help = "be strict"},
    {.name = "port",
        .letter = 'p',
        .type = SW_OPTION_UINT,
        SW_FIELD(struct config, port),
        .min = 1,
        .max = 65535,
        .number = 7470,
        .heading = "Network",
        .help = "control port"},
    {.name = "narrow",
        .type = SW_OPTION_UINT,
        SW_FIELD(struct config, narrow),
        .max = 65535,
        .unit = "connections",
        .help = "16 bits"},
    {.name = "wide",
        .type = SW_OPTION_UINT,
        SW_FIELD(struct config, wide),
        .max = UINT64_MAX,
        .help = "64 bits"},
    {.name = "memory",
        .type = SW_OPTION_BYTES,
        SW_FIELD(struct config, memory),
        .min = 4096,
        .max = 1ull << 40,
        .number = 1ull << 20,
        .help = "memory|limit"},
    {.name = "lease",
        .type = SW_OPTION_DURATION,
        SW_FIELD(struct config, lease_ms),
        .min = 1,
        .max = 3600000,
        .number = 240000,
        .help = "longest pause"},
    {.name = "mode",
        .type = SW_OPTION_ENUM,
        SW_FIELD(struct config, mode),
        .names = modes,
        .number = 1,
        .help = "transport"},
    {.name = "secret-file",
        .type = SW_OPTION_PATH,
        SW_FIELD(struct config, secret),
        .flags = SW_OPTION_NOT_IN_FILE,
        .help = "shared secret"},
};

static char directory[] = "/tmp/sw-options-XXXXXX";
static char default_file[64];
static char named_file[64];

static const struct sw_program program = {.name = "inferd",
    .version = "1.2.3",
    .about = "Keeps engines up to date.",
    .config_dir = directory,
    .options = rows,
    .count = sizeof(rows) / sizeof(rows[0])};
/* Another one: no file, operands, an own --version. */
static const struct sw_option tool_rows[] = {
    {.name = "version",
        .type = SW_OPTION_UINT,
        SW_FIELD(struct config, wide),
        .max = 100,
        .help = "version to push"},
    {.name = "name",
        .type = SW_OPTION_STRING,
        SW_FIELD(struct config, group),
        .flags = SW_OPTION_REQUIRED,
        .help = "name"},
};
static const struct sw_program tool = {.name = "tool",
    .version = "4",
    .operands = "COMMAND",
    .notes = "See also the manual.\n",
    .options = tool_rows,
    .count = 2};

static struct config config;
static struct sw_options_outcome outcome;
static struct sw_error error;
static char line[4096]; /* of the last call: getopt permutes pointers into it */
static char *words[32];
static int word_count;

/* Runs a command line whose words are separated by one blank each. */
static int parse(const struct sw_program *p, const char *command)
{
    char *save = NULL;

    word_count = 0;
    snprintf(line, sizeof(line), "prog %s", command);
    for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save))
        words[word_count++] = w;
    words[word_count] = NULL;
    memset(&config, 0xa5, sizeof(config)); /* whatever was there must not matter */
    memset(&outcome, 0, sizeof(outcome));
    memset(&error, 0, sizeof(error));
    return sw_options_parse(p, word_count, words, &config, &outcome, &error);
}

static void finish(const struct sw_program *p)
{
    sw_options_free(p, &config);
    sw_options_outcome_clear(&outcome);
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "we");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

static void setup(void)
{
    snprintf(directory, sizeof(directory), "/tmp/sw-options-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(default_file, sizeof(default_file), "%s/inferd.conf", directory);
    snprintf(named_file, sizeof(named_file), "%s/other.conf", directory);
}

static void teardown(void)
{
    unlink(default_file);
    unlink(named_file);
    rmdir(directory);
}

/* ---- values ---- */

START_TEST(defaults)
{
    ck_assert_int_eq(parse(&program, ""), 0);
    ck_assert_str_eq(config.group, "default");
    ck_assert_str_eq(config.socket, "/run/d.sock");
    ck_assert_ptr_null(config.coordinator.host);
    ck_assert_uint_eq(config.coordinator.port, 7470);
    ck_assert_str_eq(config.listen.host, "127.0.0.1");
    ck_assert_uint_eq(config.listen.port, 7471);
    ck_assert_str_eq(config.peer.host, "localhost");
    ck_assert_uint_eq(config.peer.port, 7);
    ck_assert(!config.strict);
    ck_assert_uint_eq(config.port, 7470);
    ck_assert_uint_eq(config.narrow, 0);
    ck_assert_uint_eq(config.memory, 1 << 20);
    ck_assert_uint_eq(config.lease_ms, 240000);
    ck_assert_int_eq(config.mode, 1);
    ck_assert_ptr_null(config.secret);
    ck_assert_ptr_null(outcome.text);
    ck_assert_ptr_null(outcome.config_path);
    finish(&program);
    ck_assert_ptr_null(config.group);
    ck_assert_ptr_null(config.listen.host);
    finish(&program); /* twice does no harm */
}
END_TEST

START_TEST(every_type)
{
    ck_assert_int_eq(
        parse(&program, "--group=abc --socket_path /x --coordinator [::1]:99 --listen=h:65535 "
                        "--strict -p 1 --narrow=65535 --wide=18446744073709551615 --memory 64M "
                        "--lease 2min --mode LOCAL --secret-file=/s"),
        0);
    ck_assert_str_eq(config.group, "abc");
    ck_assert_str_eq(config.socket, "/x");
    ck_assert_str_eq(config.coordinator.host, "::1");
    ck_assert_uint_eq(config.coordinator.port, 99);
    ck_assert_str_eq(config.listen.host, "h");
    ck_assert_uint_eq(config.listen.port, 65535);
    ck_assert(config.strict);
    ck_assert_uint_eq(config.port, 1);
    ck_assert_uint_eq(config.narrow, 65535);
    ck_assert_uint_eq(config.wide, UINT64_MAX);
    ck_assert_uint_eq(config.memory, 64 << 20);
    ck_assert_uint_eq(config.lease_ms, 120000);
    ck_assert_int_eq(config.mode, 2);
    ck_assert_str_eq(config.secret, "/s");
    finish(&program);
}
END_TEST

static const struct {
    const char *command;
    size_t offset; /* of a uint32_t or uint64_t field */
    size_t size;
    uint64_t value;
} numbers[] = {
#define WIDE(command, field, value)                                                                \
    {                                                                                              \
        command, offsetof(struct config, field), 8, value                                          \
    }
#define LEASE(command, value)                                                                      \
    {                                                                                              \
        command, offsetof(struct config, lease_ms), 4, value                                       \
    }
    WIDE("--memory=4096", memory, 4096),
    WIDE("--memory=4K", memory, 4096),
    WIDE("--memory=4k", memory, 4096),
    WIDE("--memory=2G", memory, 2ull << 30),
    WIDE("--memory=1T", memory, 1ull << 40),
    WIDE("--wide=0", wide, 0),
    WIDE("--wide=007", wide, 7),
    WIDE("--wide=1 --wide=2", wide, 2),
    LEASE("--lease=1", 1),
    LEASE("--lease=1ms", 1),
    LEASE("--lease=250ms", 250),
    LEASE("--lease=30s", 30000),
    LEASE("--lease=30S", 30000),
    LEASE("--lease=1h", 3600000),
};

START_TEST(number)
{
    ck_assert_int_eq(parse(&program, numbers[_i].command), 0);
    if (numbers[_i].size == 8)
        ck_assert_uint_eq(*(uint64_t *)((char *)&config + numbers[_i].offset), numbers[_i].value);
    else
        ck_assert_uint_eq(*(uint32_t *)((char *)&config + numbers[_i].offset), numbers[_i].value);
    finish(&program);
}
END_TEST

static const struct {
    const char *command;
    bool value;
} bools[] = {{"--strict", true}, {"-s", true}, {"--strict=yes", true}, {"--strict=on", true},
    {"--strict=1", true}, {"--strict=True", true}, {"--strict=no", false}, {"--strict=off", false},
    {"--strict=0", false}, {"--strict=false", false}, {"--strict --strict=no", false},
    {"-sp 5", true}};

START_TEST(boolean)
{
    ck_assert_int_eq(parse(&program, bools[_i].command), 0);
    ck_assert(config.strict == bools[_i].value);
    finish(&program);
}
END_TEST

START_TEST(host_without_port)
{
    ck_assert_int_eq(parse(&program, "--coordinator=example.org"), 0);
    ck_assert_str_eq(config.coordinator.host, "example.org");
    ck_assert_uint_eq(config.coordinator.port, 7470);
    finish(&program);
    ck_assert_int_eq(parse(&program, "--coordinator=[fe80::1]"), 0);
    ck_assert_str_eq(config.coordinator.host, "fe80::1");
    finish(&program);
}
END_TEST

/* ---- what is refused ---- */

#define PORT_RANGE "expected a number from 1 to 65535"
#define LEASE_RANGE "expected a time such as 250ms, 30s or 5min, from 1ms to 1h"
#define MEMORY_RANGE "expected a size such as 512K, 64M or 2G, from 4K to 1T"
#define LISTEN_FORM "expected host:port, an IPv6 address in [brackets], port 1 to 65535"

static const struct {
    const char *command;
    const char *text;
} refusals[] = {
    {"--port=0", "--port: '0': " PORT_RANGE},
    {"--port=65536", "--port: '65536': " PORT_RANGE},
    {"--port=-1", "--port: '-1': " PORT_RANGE},
    {"--port=+1", "--port: '+1': " PORT_RANGE},
    {"--port=0x10", "--port: '0x10': " PORT_RANGE},
    {"--port=80x", "--port: '80x': " PORT_RANGE},
    {"--port=", "--port: '': " PORT_RANGE},
    {"--port=1K", "--port: '1K': " PORT_RANGE},
    {"--port=4294967297", "--port: '4294967297': " PORT_RANGE},
    {"--port=99999999999999999999", "--port: '99999999999999999999': " PORT_RANGE},
    {"--port", "--port: " PORT_RANGE},
    {"-p", "--port: " PORT_RANGE},
    {"--wide=18446744073709551616",
        "--wide: '18446744073709551616': expected a number from 0 to 18446744073709551615"},
    {"--narrow=65536", "--narrow: '65536': expected a number of connections from 0 to 65535"},
    {"--lease=0", "--lease: '0': " LEASE_RANGE},
    {"--lease=2h", "--lease: '2h': " LEASE_RANGE},
    {"--lease=1.5s", "--lease: '1.5s': " LEASE_RANGE},
    {"--lease=5m", "--lease: '5m': " LEASE_RANGE},
    {"--lease=s", "--lease: 's': " LEASE_RANGE},
    {"--lease=18446744073709551615h", "--lease: '18446744073709551615h': " LEASE_RANGE},
    {"--memory=4095", "--memory: '4095': " MEMORY_RANGE},
    {"--memory=2T", "--memory: '2T': " MEMORY_RANGE},
    {"--memory=4KB", "--memory: '4KB': " MEMORY_RANGE},
    {"--memory=16777217T", "--memory: '16777217T': " MEMORY_RANGE},
    {"--strict=maybe", "--strict: 'maybe': expected yes or no"},
    {"--strict=", "--strict: '': expected yes or no"},
    {"--mode=rdma", "--mode: 'rdma': expected one of auto, tcp, local"},
    {"--mode=", "--mode: '': expected one of auto, tcp, local"},
    {"--group=", "--group: '': expected a text of 2 to 8 bytes"},
    {"--group=a", "--group: 'a': expected a text of 2 to 8 bytes"},
    {"--group=123456789", "--group: '123456789': expected a text of 2 to 8 bytes"},
    {"--group=a\033b", "--group: 'a\\x1bb': expected a text of 2 to 8 bytes"},
    {"--socket-path=/23456789012345678901",
        "--socket-path: '/23456789012345678901': expected a path of at most 20 bytes"},
    {"--secret-file=", "--secret-file: '': expected a path of at most 4095 bytes"},
    {"--listen=host", "--listen: 'host': " LISTEN_FORM},
    {"--listen=", "--listen: '': " LISTEN_FORM},
    {"--listen=:1", "--listen: ':1': " LISTEN_FORM},
    {"--listen=h:", "--listen: 'h:': " LISTEN_FORM},
    {"--listen=h:0", "--listen: 'h:0': " LISTEN_FORM},
    {"--listen=h:65536", "--listen: 'h:65536': " LISTEN_FORM},
    {"--listen=h:1x", "--listen: 'h:1x': " LISTEN_FORM},
    {"--listen=::1", "--listen: '::1': " LISTEN_FORM},
    {"--listen=[::1]", "--listen: '[::1]': " LISTEN_FORM},
    {"--listen=[::1", "--listen: '[::1': " LISTEN_FORM},
    {"--listen=[::1]x:1", "--listen: '[::1]x:1': " LISTEN_FORM},
    {"--listen=[]:1", "--listen: '[]:1': " LISTEN_FORM},
    {"--listen=h\t:1", "--listen: 'h\\t:1': " LISTEN_FORM},
    {"--coordinator=h:x",
        "--coordinator: 'h:x': expected host[:port], an IPv6 address in [brackets], "
        "port 1 to 65535"},
    {"--porq=1", "unknown or ambiguous option '--porq=1'"},
    {"-x", "unknown option '-x'"},
    {"--help=x", "'--help=x': expected no value"},
    {"stray", "unexpected argument 'stray'"},
    {"-- --port", "unexpected argument '--port'"},
    {"--config", "--config: expected a value"},
    {"--dump-options=pdf", "--dump-options: 'pdf': expected one of markdown, text, ini"},
};

START_TEST(refused)
{
    ck_assert_int_eq(parse(&program, refusals[_i].command), SW_ERR_INVALID);
    ck_assert_str_eq(error.text, refusals[_i].text);
    /* Also where nobody wants the text. */
    ck_assert_int_eq(
        sw_options_parse(&program, word_count, words, &config, &outcome, NULL), SW_ERR_INVALID);
}
END_TEST

/* ---- the file ---- */

START_TEST(file_and_precedence)
{
    static const char text[] = "\xef\xbb\xbf# a comment\n; another\n\n[inferd] ; mine\r\n"
                               "group = file\r\n"
                               "  socket_path = /from/file ; a remark\n"
                               "\tport=11\n"
                               "strict = on\n"
                               "lease = 3s\n"
                               "coordinator = a:5\n"
                               "[inferd]\n"
                               "mode = auto";

    write_file(default_file, text, strlen(text));
    ck_assert_int_eq(parse(&program, "--port=12"), 0);
    ck_assert_str_eq(config.group, "file");
    ck_assert_str_eq(config.socket, "/from/file");
    ck_assert_uint_eq(config.port, 12);
    ck_assert(config.strict);
    ck_assert_uint_eq(config.lease_ms, 3000);
    ck_assert_int_eq(config.mode, 0);
    ck_assert_str_eq(config.coordinator.host, "a");
    ck_assert_uint_eq(config.memory, 1 << 20);
    ck_assert_str_eq(outcome.config_path, default_file);
    finish(&program);

    /* The command line can also take away what the file gave. */
    ck_assert_int_eq(parse(&program, "--coordinator= --socket-path= --strict=no"), 0);
    ck_assert_ptr_null(config.coordinator.host);
    ck_assert_uint_eq(config.coordinator.port, 7470);
    ck_assert_ptr_null(config.socket);
    ck_assert(!config.strict);
    finish(&program);
}
END_TEST

START_TEST(file_by_name)
{
    char command[128];

    write_file(default_file, "[inferd]\nport = nonsense\n", 24);
    write_file(named_file, "[inferd]\nport = 77\n", 19);
    snprintf(command, sizeof(command), "--config %s", named_file);
    ck_assert_int_eq(parse(&program, command), 0);
    ck_assert_uint_eq(config.port, 77);
    ck_assert_str_eq(outcome.config_path, named_file);
    finish(&program);
}
END_TEST

START_TEST(file_absent)
{
    char command[128];
    char expected[256];

    snprintf(command, sizeof(command), "--config=%s", named_file);
    ck_assert_int_eq(parse(&program, command), SW_ERR_IO);
    snprintf(
        expected, sizeof(expected), "configuration '%s': No such file or directory", named_file);
    ck_assert_str_eq(error.text, expected);

    snprintf(command, sizeof(command), "--config=%s", directory);
    ck_assert_int_eq(parse(&program, command), SW_ERR_INVALID);
    snprintf(expected, sizeof(expected), "configuration '%s': expected a file, not a directory",
        directory);
    ck_assert_str_eq(error.text, expected);

    ck_assert_int_eq(parse(&program, "--config="), SW_ERR_IO);
}
END_TEST

static const struct {
    const char *text; /* of the file; its name stands for % in `error` */
    const char *error;
} bad_files[] = {
    {"[inferd]\nport = 0\n", "%:2: port: '0': " PORT_RANGE},
    {"[inferd]\nport = 80 x\n", "%:2: port: '80 x': " PORT_RANGE},
    {"[inferd]\n\nport =\n", "%:3: port: '': " PORT_RANGE},
    {"[inferd]\nport = 1\nlease = 4parsecs\n", "%:3: lease: '4parsecs': " LEASE_RANGE},
    {"[inferd]\nporq = 1\n", "%:2: porq: no such option; 'inferd --help' lists them"},
    {"[inferd]\npo = 1\n", "%:2: po: no such option; 'inferd --help' lists them"},
    {"[inferd]\n = 1\n", "%:2: : no such option; 'inferd --help' lists them"},
    {"[inferd]\nhelp = yes\n", "%:2: help: no such option; 'inferd --help' lists them"},
    {"[inferd]\nport = 1\nport = 1\n", "%:3: port: '1': already set in line 2"},
    {"[inferd]\nsocket-path = a\nsocket_path = b\n",
        "%:3: socket_path: 'b': already set in line 2"},
    {"[inferd]\nsecret-file = /s\n",
        "%:2: secret-file: belongs on the command line, not in a file"},
    {"[trainerd]\n", "%:1: '[trainerd]': expected the section [inferd]"},
    {"[inferd]\nport = 1\n[trainerd]\nport = 2\n",
        "%:3: '[trainerd]': expected the section [inferd]"},
    {"[]\n", "%:1: '[]': expected the section [inferd]"},
    {"[inferd\nport = 1\n", "%:1: '[inferd': expected a ']'"},
    {"[inferd] port = 1\n", "%:1: '[inferd] port = 1': expected nothing behind ']'"},
    {"port = 1\n", "%:1: port: expected the line [inferd] before it"},
    {"[inferd]\nport\n", "%:2: 'port': expected 'name = value'"},
    {"[inferd]\nport: 1\n", "%:2: 'port: 1': expected 'name = value'"},
    {"[inferd]\nport: a=1\n", "%:2: 'port: a=1': expected 'name = value'"},
    {"[inferd]\nport = 1\n  more\n", "%:3: 'more': expected 'name = value'"},
    {"[inferd]\ngroup = \"abc\"\n", "%:2: group: '\"abc\"': expected a value without quotes"},
    {"[inferd]\ngroup = abc # x\n",
        "%:2: group: 'abc # x': expected no comment here ('#' starts one only at the beginning "
        "of a line)"},
    {"[inferd]\ngroup = a\033b\n", "%:2: group: 'a\\x1bb': expected a text of 2 to 8 bytes"},
};

START_TEST(file_refused)
{
    const char *rest = bad_files[_i].error + 1;
    char expected[512];

    write_file(default_file, bad_files[_i].text, strlen(bad_files[_i].text));
    ck_assert_int_eq(parse(&program, ""), SW_ERR_INVALID);
    snprintf(expected, sizeof(expected), "%s%s", default_file, rest);
    ck_assert_str_eq(error.text, expected);
    ck_assert_ptr_null(outcome.config_path);
    /* A file that is wrong does not keep anyone from reading the help. */
    ck_assert_int_eq(parse(&program, "--help"), 0);
    ck_assert_ptr_nonnull(outcome.text);
    sw_options_outcome_clear(&outcome);
}
END_TEST

START_TEST(file_unfit)
{
    char text[4096] = "[inferd]\ngroup = ";
    char expected[256];

    memset(text + strlen(text), 'a', 3000);
    write_file(default_file, text, strlen(text));
    ck_assert_int_eq(parse(&program, ""), SW_ERR_LIMIT);
    snprintf(expected, sizeof(expected), "%s:2: the line is too long: at most ", default_file);
    ck_assert_int_eq(strncmp(error.text, expected, strlen(expected)), 0);

    write_file(default_file, "[inferd]\nport = 1\0 2\n", 21);
    ck_assert_int_eq(parse(&program, ""), SW_ERR_INVALID);
    snprintf(expected, sizeof(expected), "%s:2: a NUL byte: expected text", default_file);
    ck_assert_str_eq(error.text, expected);
}
END_TEST

START_TEST(file_endless)
{
    ck_assert_int_eq(parse(&program, "--config=/dev/zero"), SW_ERR_INVALID);
    ck_assert_str_eq(error.text, "/dev/zero:1: a NUL byte: expected text");
}
END_TEST

/* The longest line that is allowed comes whole, with nothing cut. */
START_TEST(file_longest_line)
{
    static const struct sw_option long_row[] = {
        {.name = "group", .type = SW_OPTION_STRING, SW_FIELD(struct config, group), .help = "x"}};
    static const struct sw_program long_program = {
        .name = "inferd", .version = "1", .config_dir = directory, .options = long_row, .count = 1};
    char text[2048] = "[inferd]\ngroup = ";
    const size_t start = strlen(text);
    size_t n = 1;

    for (; n < 1000; n++) {
        memset(text + start, 'a', n);
        memcpy(text + start + n, "\n", 2);
        write_file(default_file, text, strlen(text));
        if (parse(&long_program, "") != 0)
            break;
        ck_assert_uint_eq(strlen(config.group), n);
        finish(&long_program);
    }
    ck_assert_uint_gt(n, 150);
    ck_assert_int_eq(error.code, n < 1000 ? SW_ERR_LIMIT : 0);
}
END_TEST

/* ---- operands, built-ins ---- */

START_TEST(operands)
{
    ck_assert_int_eq(parse(&tool, "push --name=n DIR --version 3"), 0);
    ck_assert_uint_eq(config.wide, 3);
    ck_assert_str_eq(words[outcome.first], "push");
    ck_assert_str_eq(words[outcome.first + 1], "DIR");
    ck_assert_ptr_null(words[outcome.first + 2]);
    finish(&tool);
    ck_assert_int_eq(parse(&tool, "push"), SW_ERR_INVALID);
    ck_assert_str_eq(error.text, "--name is required");
    ck_assert_int_eq(parse(&tool, "--config=x"), SW_ERR_INVALID);
    ck_assert_str_eq(error.text, "unknown or ambiguous option '--config=x'");
    ck_assert_int_eq(parse(&tool, "-V"), 0);
    ck_assert_str_eq(outcome.text, "tool 4\n");
    sw_options_outcome_clear(&outcome);
}
END_TEST

START_TEST(stop_at_operand)
{
    struct sw_program commands = tool;

    commands.flags = SW_PROGRAM_STOP_AT_OPERAND;
    ck_assert_int_eq(parse(&commands, "--name=n push --unknown"), 0);
    ck_assert_str_eq(words[outcome.first], "push");
    ck_assert_str_eq(words[outcome.first + 1], "--unknown");
    finish(&commands);
}
END_TEST

START_TEST(help)
{
    char *save = NULL;
    char *text = sw_options_help(&program, 70);

    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(strstr(text, "Usage: inferd [OPTION]...\nKeeps engines up to date.\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "\nNetwork:\n"
                     "  -p, --port NUMBER           control port (default 7470; 1 to 65535)\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "      --lease TIME            longest pause (default 4min; 1ms to 1h)\n"));
    ck_assert_ptr_nonnull(strstr(text, "  -s, --strict[=yes|no]       be strict (default no)\n"));
    ck_assert_ptr_nonnull(strstr(text, "      --mode auto|tcp|local   transport (default tcp)\n"));
    ck_assert_ptr_nonnull(strstr(text, "(default 0 connections; 0 to\n"));
    ck_assert_ptr_nonnull(strstr(text, "--coordinator HOST[:PORT]"));
    ck_assert_ptr_nonnull(strstr(text, "--config PATH"));
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        ck_assert_msg(strlen(l) <= 70, "too long: %s", l);
    free(text);
    text = sw_options_help(&tool, 80);
    ck_assert_ptr_nonnull(strstr(text, "Usage: tool [OPTION]... COMMAND\n"));
    ck_assert_ptr_nonnull(strstr(text, "name (required)\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nSee also the manual.\n"));
    ck_assert_ptr_null(strstr(text, "--config"));
    free(text);
}
END_TEST

START_TEST(dumps)
{
    ck_assert_int_eq(parse(&program, "--dump_options markdown"), 0);
    ck_assert_ptr_nonnull(strstr(outcome.text, "| Option | Default | Range | Meaning |\n"));
    ck_assert_ptr_nonnull(strstr(outcome.text, "| `lease` | 4min | 1ms to 1h | longest pause |\n"));
    ck_assert_ptr_nonnull(strstr(outcome.text, "| `memory` | 1M | 4K to 1T | memory\\|limit |\n"));
    ck_assert_ptr_nonnull(
        strstr(outcome.text, "| `narrow` | 0 | 0 to 65535 | 16 bits (connections) |\n"));
    ck_assert_ptr_nonnull(
        strstr(outcome.text, "| `mode` | tcp | auto, tcp, local | transport |\n"));
    ck_assert_ptr_nonnull(strstr(outcome.text, "| `peer` | localhost:7 |  | a peer |\n"));
    sw_options_outcome_clear(&outcome);
    ck_assert_int_eq(parse(&program, "--dump-options=text"), 0);
    ck_assert_ptr_nonnull(
        strstr(outcome.text, "       -p, --port=NUMBER\n"
                             "              control port (default 7470; 1 to 65535)\n"));
    sw_options_outcome_clear(&outcome);
}
END_TEST

/* The dumped file, with its comments taken off, is a file that gives the defaults. */
START_TEST(dumped_file_reads_back)
{
    char *text = sw_options_dump(&program, SW_OPTIONS_INI);
    char *live;
    char *to;

    ck_assert_ptr_nonnull(text);
    live = calloc(1, strlen(text) + 1);
    ck_assert_ptr_nonnull(live);
    to = live;
    for (char *l = text; *l; l += strcspn(l, "\n") + 1) {
        const size_t n = strcspn(l, "\n");
        const bool setting = l[0] == '#' && l[1] != ' ';

        if (setting || l[0] == '[')
            to += sprintf(to, "%.*s\n", (int)(n - setting), l + setting);
    }
    ck_assert_ptr_nonnull(strstr(live, "lease = 4min\n"));
    ck_assert_ptr_null(strstr(live, "secret"));
    write_file(default_file, live, strlen(live));
    ck_assert_int_eq(parse(&program, ""), 0);
    ck_assert_ptr_nonnull(outcome.config_path);
    ck_assert_str_eq(config.group, "default");
    ck_assert_uint_eq(config.lease_ms, 240000);
    ck_assert_ptr_null(config.coordinator.host);
    finish(&program);
    free(live);
    free(text);
}
END_TEST

/* ---- the table ---- */

static const struct sw_option good_row = {
    .name = "a-b", .type = SW_OPTION_UINT, SW_FIELD(struct config, port), .max = 10, .help = "h"};

START_TEST(table_faults)
{
    struct sw_option r[2] = {good_row, good_row};
    struct sw_program p = {.name = "p", .options = r, .count = 2};

    ck_assert_int_eq(sw_options_check(&program, &error), 0);
    ck_assert_int_eq(sw_options_check(&tool, &error), 0);
    r[1].name = "a_b";
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    r[1].name = "a-b";
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    ck_assert_str_eq(
        error.text, "option table of p, row 1 (a-b): its name or letter is there twice");
    r[1].name = "c";
    ck_assert_int_eq(sw_options_check(&p, &error), 0);
    r[0].letter = r[1].letter = 'x';
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    r[0].letter = 0;
    r[1].number = 11;
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    ck_assert_str_eq(error.text, "option table of p, row 1 (c): its default is out of range");
    r[1].number = 0;
    r[1].max = 1ull << 32;
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    r[1].max = 1;
    r[1].size = 3;
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    r[1].type = SW_OPTION_PATH;
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    r[1] = good_row;
    r[1].name = "d";
    r[1].help = NULL;
    ck_assert_int_ne(sw_options_check(&p, &error), 0);
    /* Parsing refuses such a table as well. */
    ck_assert_int_eq(parse(&p, ""), SW_ERR_INVALID);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("options");
    TCase *t = tcase_create("options");
    SRunner *r;
    int failed;

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, defaults);
    tcase_add_test(t, every_type);
    tcase_add_loop_test(t, number, 0, COUNT(numbers));
    tcase_add_loop_test(t, boolean, 0, COUNT(bools));
    tcase_add_test(t, host_without_port);
    tcase_add_loop_test(t, refused, 0, COUNT(refusals));
    tcase_add_test(t, file_and_precedence);
    tcase_add_test(t, file_by_name);
    tcase_add_test(t, file_absent);
    tcase_add_loop_test(t, file_refused, 0, COUNT(bad_files));
    tcase_add_test(t, file_unfit);
    tcase_add_test(t, file_endless);
    tcase_add_test(t, file_longest_line);
    tcase_add_test(t, operands);
    tcase_add_test(t, stop_at_operand);
    tcase_add_test(t, help);
    tcase_add_test(t, dumps);
    tcase_add_test(t, dumped_file_reads_back);
    tcase_add_test(t, table_faults);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
