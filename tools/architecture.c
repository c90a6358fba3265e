/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/architecture.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"

#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"
#define DIMENSION_MAX (1ull << 31) /* of one dimension: products of two can't overflow */
#define LAYERS_MAX 10000

struct builder {
    const json_t *config;
    enum sw_tied_head tied;
    enum sw_dtype dtype;
    struct sw_model model;
    size_t capacity;
    int code; /* the first failure; later steps do nothing */
    struct sw_error *e;
};

static uint64_t get_number(struct builder *b, const char *key, uint64_t max)
{
    const json_t *value = json_object_get(b->config, key);
    const json_int_t n = json_integer_value(value);

    if (b->code)
        return 1;
    if (!json_is_integer(value) || n < 1 || (uint64_t)n > max) {
        b->code = sw_fail(b->e, SW_ERR_INVALID, "\"%s\" must be an integer from 1 to %llu", key,
            (unsigned long long)max);
        return 1;
    }
    return (uint64_t)n;
}

static bool get_flag(struct builder *b, const char *key)
{
    const json_t *value = json_object_get(b->config, key);

    if (value && !json_is_boolean(value) && !b->code)
        b->code = sw_fail(b->e, SW_ERR_INVALID, "\"%s\" must be true or false", key);
    return json_is_true(value);
}

static void reserve(struct builder *b, uint64_t tensors)
{
    if (b->code)
        return;
    b->capacity = tensors;
    b->model.tensors = sw_arena_array(&b->model.arena, tensors, sizeof(*b->model.tensors));
    if (!b->model.tensors)
        b->code =
            sw_fail(b->e, SW_ERR_NOMEM, "no memory for %llu tensors", (unsigned long long)tensors);
}

/* Adds rows x columns (columns 0: a vector of `rows`) with a name like printf's. */
__attribute__((format(printf, 4, 5))) static struct sw_model_tensor *add(
    struct builder *b, uint64_t rows, uint64_t columns, const char *format, ...)
{
    struct sw_model_tensor *t;
    char name[SW_NAME_MAX + 1];
    va_list args;

    if (b->code || b->model.n == b->capacity)
        return NULL;
    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    t = &b->model.tensors[b->model.n];
    t->name = sw_arena_strdup(&b->model.arena, name);
    t->dtype = b->dtype;
    t->ndim = columns ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = columns;
    if (!t->name) {
        b->code = sw_fail(b->e, SW_ERR_NOMEM, "no memory for tensor names");
    } else if (sw_tensor_bytes(t->dtype, t->ndim, t->shape, &t->bytes) < 0 ||
               t->bytes > SW_BYTES_MAX - b->model.bytes) {
        b->code = sw_fail(b->e, SW_ERR_LIMIT, "tensor %s makes the model larger than %llu bytes",
            name, SW_BYTES_MAX);
    } else {
        b->model.bytes += t->bytes;
        b->model.n++;
        return t;
    }
    return NULL;
}

struct qwen3 {
    uint64_t vocabulary, hidden, intermediate, layers, heads, kv_heads, head;
    bool bias;
};

static void add_qwen3_layer(struct builder *b, const struct qwen3 *q, unsigned i)
{
    const uint64_t query = q->heads * q->head, kv = q->kv_heads * q->head;

    add(b, q->hidden, 0, "model.layers.%u.input_layernorm.weight", i);
    add(b, query, q->hidden, "model.layers.%u.self_attn.q_proj.weight", i);
    add(b, kv, q->hidden, "model.layers.%u.self_attn.k_proj.weight", i);
    add(b, kv, q->hidden, "model.layers.%u.self_attn.v_proj.weight", i);
    add(b, q->hidden, query, "model.layers.%u.self_attn.o_proj.weight", i);
    if (q->bias) {
        add(b, query, 0, "model.layers.%u.self_attn.q_proj.bias", i);
        add(b, kv, 0, "model.layers.%u.self_attn.k_proj.bias", i);
        add(b, kv, 0, "model.layers.%u.self_attn.v_proj.bias", i);
        add(b, q->hidden, 0, "model.layers.%u.self_attn.o_proj.bias", i);
    }
    add(b, q->head, 0, "model.layers.%u.self_attn.q_norm.weight", i);
    add(b, q->head, 0, "model.layers.%u.self_attn.k_norm.weight", i);
    add(b, q->hidden, 0, "model.layers.%u.post_attention_layernorm.weight", i);
    add(b, q->intermediate, q->hidden, "model.layers.%u.mlp.gate_proj.weight", i);
    add(b, q->intermediate, q->hidden, "model.layers.%u.mlp.up_proj.weight", i);
    add(b, q->hidden, q->intermediate, "model.layers.%u.mlp.down_proj.weight", i);
}

/* The dense Qwen3 models: grouped-query attention with norms of q and k, a gated MLP. */
static void build_qwen3(struct builder *b)
{
    const struct qwen3 q = {
        .vocabulary = get_number(b, "vocab_size", DIMENSION_MAX),
        .hidden = get_number(b, "hidden_size", DIMENSION_MAX),
        .intermediate = get_number(b, "intermediate_size", DIMENSION_MAX),
        .layers = get_number(b, "num_hidden_layers", LAYERS_MAX),
        .heads = get_number(b, "num_attention_heads", 1 << 15),
        .kv_heads = get_number(b, "num_key_value_heads", 1 << 15),
        .head = get_number(b, "head_dim", 1 << 15),
        .bias = get_flag(b, "attention_bias"),
    };
    const bool tied = get_flag(b, "tie_word_embeddings");

    reserve(b, 3 + q.layers * (q.bias ? 15 : 11));
    add(b, q.vocabulary, q.hidden, EMBED);
    for (unsigned i = 0; i < q.layers; i++)
        add_qwen3_layer(b, &q, i);
    add(b, q.hidden, 0, "model.norm.weight");
    if (!tied || b->tied == SW_TIED_HEAD_SAVED) {
        struct sw_model_tensor *head = add(b, q.vocabulary, q.hidden, HEAD);
        if (head && tied)
            head->tied_to = EMBED;
    }
}

static const struct {
    const char *type;
    void (*build)(struct builder *b);
} architectures[] = {
    {"qwen3", build_qwen3},
};

static const struct {
    const char *torch;
    enum sw_dtype dtype;
} torch_dtypes[] = {
    {"bfloat16", SW_BF16},
    {"float16", SW_F16},
    {"float32", SW_F32},
};

static void find_dtype(struct builder *b)
{
    const json_t *value = json_object_get(b->config, "torch_dtype");
    const char *name;

    if (!value)
        value = json_object_get(b->config, "dtype"); /* its name since transformers 4.56 */
    name = json_string_value(value);
    for (size_t i = 0; name && i < sizeof(torch_dtypes) / sizeof(torch_dtypes[0]); i++)
        if (strcmp(torch_dtypes[i].torch, name) == 0)
            b->dtype = torch_dtypes[i].dtype;
    if (b->dtype == SW_DTYPE_INVALID)
        b->code = sw_fail(b->e, SW_ERR_UNSUPPORTED,
            "\"torch_dtype\" is %.40s: bfloat16, float16 and float32 are known",
            name ? name : "missing");
}

static void build(struct builder *b)
{
    const char *type = json_string_value(json_object_get(b->config, "model_type"));

    find_dtype(b);
    for (size_t i = 0; type && i < sizeof(architectures) / sizeof(architectures[0]); i++) {
        if (strcmp(architectures[i].type, type) == 0) {
            architectures[i].build(b);
            return;
        }
    }
    if (!b->code)
        b->code = sw_fail(b->e, SW_ERR_UNSUPPORTED, "model_type is %.60s: only qwen3 is known",
            type ? type : "missing");
}

int sw_model_read(const char *json, size_t length, enum sw_tied_head tied, struct sw_model *out,
    struct sw_error *e)
{
    json_error_t why;
    json_t *config = json_loadb(json, length, JSON_REJECT_DUPLICATES, &why);
    struct builder b = {.config = config, .tied = tied, .e = e};

    if (!config)
        return sw_fail(e, SW_ERR_INVALID, "no valid JSON (line %d): %s", why.line, why.text);
    build(&b);
    json_decref(config);
    if (b.code) {
        sw_model_clear(&b.model);
        return b.code;
    }
    *out = b.model;
    return 0;
}

void sw_model_clear(struct sw_model *m)
{
    sw_arena_clear(&m->arena);
    *m = (struct sw_model){0};
}
