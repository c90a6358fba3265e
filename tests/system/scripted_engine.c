/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine rank for tests that says what lines on standard input say, right or wrong, and then
 * follows updates as an engine must.
 *
 *     scripted_engine SOCKET GROUP ENGINE
 *
 * Lines: rank R WORLD, layout NAME, kind NAME, config FILE, block ROWS COLUMNS, scale FORMAT, GROUP
 * RANK SIZE for a parallel group (tp, ep, ...), map VERSION LAYERS SLOTS NUMBER..., parameter NAME
 * DTYPE [SIZE...], register. Each but the last is silent; that one prints `registered` or `refused:
 * TEXT`. Afterwards `live VERSION` for each resume. It ends with its input.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shardwire/engine.h>

#define LINE (1u << 20)
#define PARAMETERS 10000
#define CONFIG (1u << 20)
#define SLOTS (1u << 18)

static struct parameter {
    char name[512];
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
} parameters[PARAMETERS];
static uint32_t n_parameters;
static uint32_t map[SLOTS];
static struct sw_engine_options options = {.size = sizeof(options)};
static sw_engine *engine;

static char *word(char **rest)
{
    char *w = strtok_r(NULL, " ", rest);

    return w ? w : "";
}

static uint32_t number(char **rest)
{
    return (uint32_t)strtoul(word(rest), NULL, 10);
}

static const char *keep(const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        abort();
    return copy;
}

static void read_config(const char *path)
{
    char *text = calloc(1, CONFIG + 1);
    FILE *f = fopen(path, "re");

    if (!f || !text || !fread(text, 1, CONFIG, f))
        abort();
    fclose(f);
    options.config = text;
}

static void read_map(char **rest)
{
    const char *w;
    uint32_t n = 0;

    options.expert_map_version = number(rest);
    options.expert_map_layers = number(rest);
    options.expert_map_slots = number(rest);
    for (w = word(rest); *w && n < SLOTS; w = word(rest))
        map[n++] = (uint32_t)strtoul(w, NULL, 10);
    options.expert_map = map;
}

static void read_parameter(char **rest)
{
    struct parameter *p = &parameters[n_parameters++];
    const char *w;

    if (n_parameters >= PARAMETERS)
        abort();
    snprintf(p->name, sizeof(p->name), "%s", word(rest));
    p->dtype = sw_dtype_from_name(word(rest));
    for (w = word(rest); *w; w = word(rest)) {
        if (p->ndim == SW_MAX_DIMS)
            abort();
        p->shape[p->ndim++] = strtoull(w, NULL, 10);
    }
}

/* Whether the line names a parallel group. */
static int read_group(const char *name, char **rest)
{
    struct sw_engine_coordinates *at = &options.at;
    struct {
        const char *name;
        uint32_t *rank;
    } groups[] = {{"pp", &at->pp}, {"tp", &at->tp}, {"ep", &at->ep}, {"dp", &at->dp},
        {"attn_tp", &at->attn_tp}, {"moe_tp", &at->moe_tp}, {"mlp_tp", &at->mlp_tp},
        {"shared_tp", &at->shared_tp}, {"embed_tp", &at->embed_tp}, {"head_tp", &at->head_tp}};

    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        if (strcmp(name, groups[i].name) == 0) {
            groups[i].rank[0] = number(rest);
            groups[i].rank[1] = number(rest); /* the size follows the rank */
            return 1;
        }
    return 0;
}

static uint64_t bytes_of(const struct parameter *p)
{
    uint64_t bits = sw_dtype_bits(p->dtype);

    for (uint32_t d = 0; d < p->ndim; d++)
        bits *= p->shape[d];
    return (bits / 8 + 255) / 256 * 256;
}

static int fill(struct sw_error *e)
{
    uint64_t total = 256, at = 0;
    uint32_t region;
    void *memory;
    int code;

    for (uint32_t i = 0; i < n_parameters; i++)
        total += bytes_of(&parameters[i]);
    code = sw_engine_alloc(engine, total, &memory, &region, e);
    for (uint32_t i = 0; !code && i < n_parameters; i++) {
        const struct parameter *p = &parameters[i];

        code = sw_engine_parameter(engine, p->name, p->dtype, p->ndim, p->shape, region, at, e);
        at += bytes_of(p);
    }
    return code;
}

static void start(const char *const *arguments)
{
    struct sw_error e = {0};
    int code;

    options.socket = arguments[0];
    options.group = arguments[1];
    options.engine = arguments[2];
    code = sw_engine_open(&options, &engine, &e);
    if (!code)
        code = fill(&e);
    if (!code)
        code = sw_engine_register(engine, &e);
    if (code)
        printf("refused: %s\n", e.text);
    else
        printf("registered\n");
}

static void follow(void)
{
    struct sw_event event;
    struct sw_error e;

    while (sw_engine_next_event(engine, 0, &event, &e) == 0 && event.kind != SW_EVENT_NONE) {
        sw_engine_ack(engine, &event, 0, "", &e);
        if (event.kind == SW_EVENT_RESUME)
            printf("live %llu\n", (unsigned long long)event.version);
    }
}

static void obey(char *line, const char *const *arguments)
{
    char *rest = NULL;
    const char *command = strtok_r(line, " ", &rest);

    if (!command)
        return;
    if (strcmp(command, "rank") == 0) {
        options.rank = number(&rest);
        options.world = number(&rest);
    } else if (strcmp(command, "layout") == 0) {
        options.layout = keep(word(&rest));
    } else if (strcmp(command, "kind") == 0) {
        options.kind = keep(word(&rest));
    } else if (strcmp(command, "config") == 0) {
        read_config(word(&rest));
    } else if (strcmp(command, "block") == 0) {
        options.block_rows = number(&rest);
        options.block_columns = number(&rest);
    } else if (strcmp(command, "scale") == 0) {
        options.scale_format = keep(word(&rest));
    } else if (strcmp(command, "map") == 0) {
        read_map(&rest);
    } else if (strcmp(command, "parameter") == 0) {
        read_parameter(&rest);
    } else if (strcmp(command, "register") == 0) {
        start(arguments);
    } else if (!read_group(command, &rest)) {
        abort();
    }
}

/* Lines without a buffer of stdio: poll must know what there is. */
static int read_line(char *line)
{
    size_t n = 0;
    char c;

    while (read(STDIN_FILENO, &c, 1) == 1) {
        if (c == '\n') {
            line[n] = '\0';
            return 0;
        }
        if (n + 1 < LINE)
            line[n++] = c;
    }
    return -1;
}

int main(int argc, char **argv)
{
    static char line[LINE];

    if (argc != 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
            {.fd = engine ? sw_engine_fd(engine) : -1, .events = POLLIN}};

        if (poll(fds, 2, -1) < 0)
            return 1;
        if (fds[0].revents) {
            if (read_line(line))
                break;
            obey(line, (const char *const *)argv + 1);
        }
        if (engine)
            follow();
    }
    sw_engine_close(engine);
    return 0;
}
