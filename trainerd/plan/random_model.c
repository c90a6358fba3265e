/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/random_model.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
    return random_next(state) % n;
}

static uint32_t one_of(uint64_t *state, uint32_t n, const uint32_t *choices)
{
    return choices[random_below(state, n)];
}

/* ---- values ---- */

float value_read(enum sw_dtype dtype, const uint8_t *at)
{
    uint32_t bits = 0;
    uint16_t half;
    float v;

    if (dtype == SW_F32) {
        memcpy(&bits, at, sizeof(bits));
    } else {
        memcpy(&half, at, sizeof(half));
        bits = (uint32_t)half << 16;
    }
    memcpy(&v, &bits, sizeof(v));
    return v;
}

void value_write(enum sw_dtype dtype, uint8_t *at, float v)
{
    uint32_t bits;
    uint16_t half;

    memcpy(&bits, &v, sizeof(bits));
    if (dtype == SW_F32) {
        memcpy(at, &bits, sizeof(bits));
        return;
    }
    half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(at, &half, sizeof(half));
}

static float e4m3_value(unsigned code)
{
    const int exponent = (int)(code >> 3), fraction = (int)(code & 7);

    return exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
}

uint8_t value_to_e4m3(float v)
{
    const float a = fabsf(v);
    unsigned low = 0, high = 126; /* 126: 448, the largest */

    while (high - low > 1) {
        const unsigned mid = (low + high) / 2;

        if (e4m3_value(mid) <= a)
            low = mid;
        else
            high = mid;
    }
    if (a - e4m3_value(low) > e4m3_value(high) - a ||
        (a - e4m3_value(low) == e4m3_value(high) - a && high % 2 == 0))
        low = high;
    return (uint8_t)(low | (signbit(v) ? 0x80 : 0));
}

float value_scale(enum sw_scale_format format, float amax)
{
    int exponent;
    float s, mantissa;

    if (format == SW_SCALE_FP32)
        return fmaxf(amax, 1e-10f) / 448.0f;
    s = fmaxf(amax, 1e-4f) / 448.0f;
    mantissa = frexpf(s, &exponent); /* [0.5, 1) */
    return ldexpf(1.0f, mantissa == 0.5f ? exponent - 1 : exponent);
}

void value_write_scale(enum sw_dtype dtype, uint8_t *at, float scale)
{
    int exponent;

    if (dtype == SW_F32) {
        memcpy(at, &scale, sizeof(scale));
        return;
    }
    frexpf(scale, &exponent); /* 2^n is 0.5 * 2^(n + 1) */
    *at = (uint8_t)(exponent - 1 + 127);
}

uint8_t value_quantise(float v, float scale)
{
    return value_to_e4m3(fminf(fmaxf(v * (1.0f / scale), -448.0f), 448.0f));
}

/* ---- the checkpoint ---- */

static const char *const words[R_COUNT] = {"embed.weight", "head.weight", "norm.weight", "q.weight",
    "k.weight", "v.weight", "q.bias", "o.weight", "kva.weight", "gate.weight", "up.weight",
    "down.weight", "router.weight", "correction", "gate", "up", "down", "s.gate", "s.up", "s.down"};

static bool is_vector(uint32_t role)
{
    return role == R_NORM || role == R_Q_BIAS || role == R_CORRECTION;
}

static bool is_expert(uint32_t role)
{
    return role == R_EG || role == R_EU || role == R_ED;
}

/* Those of parameters that may be FP8. */
static bool is_quantised(uint32_t role)
{
    return (role >= R_Q && role <= R_V) || role == R_O || role == R_KVA ||
           (role >= R_GATE && role <= R_DOWN) || role >= R_EG;
}

static struct stored *add(
    struct random_model *m, const char *name, uint32_t pattern, enum sw_dtype dtype)
{
    struct stored *s = &m->stored[m->n_stored++];

    *s = (struct stored){.pattern = pattern, .dtype = dtype};
    snprintf(s->name, sizeof(s->name), "%s", name);
    return s;
}

static void shape(struct stored *s, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t all[] = {a, b, c};

    s->ndim = ndim;
    memcpy(s->shape, all, sizeof(all));
}

static uint64_t blocks(uint64_t length, uint32_t block)
{
    return (length + block - 1) / block;
}

/* In an FP8 checkpoint: the scales of a stored tensor, which becomes FP8. */
static struct stored *add_scales(struct random_model *m, struct stored *s)
{
    char name[sizeof(s->name)];
    struct stored *scales;
    const uint32_t rows = s->ndim - 2;

    if (!m->fp8)
        return NULL;
    s->dtype = SW_F8_E4M3;
    snprintf(name, sizeof(name), "%.48s_scale_inv", s->name);
    scales = add(m, name, s->pattern, SW_F32);
    shape(scales, s->ndim, s->shape[0], s->shape[1], s->shape[2]);
    scales->shape[rows] = blocks(s->shape[rows], m->block[0]);
    scales->shape[rows + 1] = blocks(s->shape[rows + 1], m->block[1]);
    return scales;
}

static void add_role(struct random_model *m, uint32_t role, uint32_t layer, uint32_t expert)
{
    char name[48];
    struct stored *s;

    if (role <= R_HEAD)
        snprintf(name, sizeof(name), "%s", words[role]);
    else if (is_expert(role))
        snprintf(name, sizeof(name), "l.%u.e.%u.%s", layer, expert, words[role]);
    else
        snprintf(name, sizeof(name), "l.%u.%s", layer, words[role]);
    s = add(m, name, role, role == R_CORRECTION ? SW_F32 : m->dtype);
    shape(s, is_vector(role) ? 1 : 2, m->rows[role], m->columns[role], 0);
    m->where[role][layer][expert].stored = s;
    if (is_quantised(role))
        m->where[role][layer][expert].scales = add_scales(m, s);
}

/* Experts as one tensor: gate above up for each, and down. */
static void add_packed(struct random_model *m, uint32_t layer)
{
    char name[48];
    struct stored *fused, *down, *fused_scales, *down_scales;
    const uint64_t grid = blocks(m->moe_inner, m->block[0]) * blocks(m->hidden, m->block[1]);
    const uint64_t down_grid = blocks(m->hidden, m->block[0]) * blocks(m->moe_inner, m->block[1]);

    snprintf(name, sizeof(name), "l.%u.packed.gate_up", layer);
    fused = add(m, name, R_COUNT, m->dtype);
    shape(fused, 3, m->experts, 2ull * m->moe_inner, m->hidden);
    snprintf(name, sizeof(name), "l.%u.packed.down", layer);
    down = add(m, name, R_COUNT + 1, m->dtype);
    shape(down, 3, m->experts, m->hidden, m->moe_inner);
    fused_scales = add_scales(m, fused);
    down_scales = add_scales(m, down);
    for (uint32_t i = 0; i < m->experts; i++) {
        const uint64_t half = (uint64_t)m->moe_inner * m->hidden;

        m->where[R_EG][layer][i] = (struct where){fused, 2 * i * half, fused_scales, 2 * i * grid};
        m->where[R_EU][layer][i] =
            (struct where){fused, (2 * i + 1) * half, fused_scales, (2 * i + 1) * grid};
        m->where[R_ED][layer][i] = (struct where){down, i * half, down_scales, i * down_grid};
    }
}

static void add_all(struct random_model *m)
{
    m->stored =
        calloc(4 + 2 * (size_t)m->layers * (R_COUNT + 3 * (size_t)m->experts), sizeof(*m->stored));
    ck_assert_ptr_nonnull(m->stored);
    add_role(m, R_EMBED, 0, 0);
    if (random_below(&m->state, 2))
        add_role(m, R_HEAD, 0, 0);
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        for (uint32_t role = R_NORM; role < R_COUNT; role++)
            if (!is_expert(role))
                add_role(m, role, layer, 0);
        if (m->packed)
            add_packed(m, layer);
        for (uint32_t role = R_EG; !m->packed && role <= R_ED; role++)
            for (uint32_t i = 0; i < m->experts; i++)
                add_role(m, role, layer, i);
    }
}

/* Numbers of many sizes, some of them zero, blocks of zeros too. */
static void fill(struct random_model *m, struct stored *s)
{
    const uint64_t size = sw_dtype_bits(s->dtype) / 8;

    ck_assert_int_eq(sw_tensor_bytes(s->dtype, s->ndim, s->shape, &s->bytes), 0);
    s->data = calloc(s->bytes, 1);
    ck_assert_ptr_nonnull(s->data);
    for (uint64_t i = 0; i < s->bytes / size; i++) {
        const uint64_t r = random_next(&m->state);
        const float v = s->dtype == SW_F8_E4M3
                            ? 0
                            : ldexpf((float)(int64_t)(r % 4001) - 2000, (int)(r >> 32 & 15) - 20);

        if (s->dtype == SW_F8_E4M3)
            s->data[i] = (uint8_t)(r >> 20);
        else
            value_write(s->dtype, s->data + i * size, r >> 50 & 7 && i / 64 % 9 ? v : 0);
    }
}

/* ---- its rules ---- */

static const char rules_text[] =
    "[layout]\n"
    "architectures = Random\n"
    "[define]\n"
    "last = num_layers - 1\n"
    "[tensor embed]\nstored = embed.weight\nshape = vocab, hidden\ntrainer = rows\n"
    "[tensor head]\nstored = head.weight\nshape = vocab, hidden\noptional = 1\n"
    "[tensor norm]\nfor = layer from 0 to last\nstored = l.{layer}.norm.weight\nshape = hidden\n"
    "[tensor q]\nfor = layer from 0 to last\nstored = l.{layer}.q.weight\n"
    "shape = heads * 8, hidden\n"
    "[tensor k]\nfor = layer from 0 to last\nstored = l.{layer}.k.weight\nshape = kv * 8, hidden\n"
    "[tensor v]\nfor = layer from 0 to last\nstored = l.{layer}.v.weight\nshape = kv * 8, hidden\n"
    "[tensor q_bias]\nfor = layer from 0 to last\nstored = l.{layer}.q.bias\nshape = heads * 8\n"
    "[tensor o]\nfor = layer from 0 to last\nstored = l.{layer}.o.weight\n"
    "shape = hidden, heads * 8\n"
    "[tensor kva]\nfor = layer from 0 to last\nstored = l.{layer}.kva.weight\n"
    "shape = 10, hidden\n"
    "[tensor gate]\nfor = layer from 0 to last\nstored = l.{layer}.gate.weight\n"
    "shape = inner, hidden\n"
    "[tensor up]\nfor = layer from 0 to last\nstored = l.{layer}.up.weight\n"
    "shape = inner, hidden\n"
    "[tensor down]\nfor = layer from 0 to last\nstored = l.{layer}.down.weight\n"
    "shape = hidden, inner\n"
    "[tensor router]\nfor = layer from 0 to last\nstored = l.{layer}.router.weight\n"
    "shape = experts, hidden\n"
    "[tensor correction]\nfor = layer from 0 to last\nstored = l.{layer}.correction\n"
    "shape = experts\ndtype = F32\n"
    "[tensor eg]\nfor = layer from 0 to last\nfor = expert from 0 to experts - 1\n"
    "stored = l.{layer}.e.{expert}.gate\n"
    "stored = l.{layer}.packed.gate_up [experts, 2 * moe_inner, hidden] at expert, 0, 0\n"
    "shape = moe_inner, hidden\n"
    "[tensor eu]\nfor = layer from 0 to last\nfor = expert from 0 to experts - 1\n"
    "stored = l.{layer}.e.{expert}.up\n"
    "stored = l.{layer}.packed.gate_up [experts, 2 * moe_inner, hidden] at expert, moe_inner, 0\n"
    "shape = moe_inner, hidden\n"
    "[tensor ed]\nfor = layer from 0 to last\nfor = expert from 0 to experts - 1\n"
    "stored = l.{layer}.e.{expert}.down\n"
    "stored = l.{layer}.packed.down [experts, hidden, moe_inner] at expert, 0, 0\n"
    "shape = hidden, moe_inner\n"
    "[tensor sg]\nfor = layer from 0 to last\nstored = l.{layer}.s.gate\n"
    "shape = moe_inner, hidden\n"
    "[tensor su]\nfor = layer from 0 to last\nstored = l.{layer}.s.up\n"
    "shape = moe_inner, hidden\n"
    "[tensor sd]\nfor = layer from 0 to last\nstored = l.{layer}.s.down\n"
    "shape = hidden, moe_inner\n"
    "[parameter embed]\npart = embed, rows over embed_tp padded to pad\n"
    "[parameter head]\npart = head or embed, rows over embed_tp padded to pad\n"
    "alias = embed, tied\n"
    "[parameter l.{layer}.norm]\nfor = layer from 0 to last\npart = norm\n"
    "[parameter l.{layer}.qkv]\nfor = layer from 0 to last\n"
    "part = q, rows over attn_tp in units of 8\n"
    "part = k, rows over attn_tp in units of 8 shared\n"
    "part = v, rows over attn_tp in units of 8 shared\nquantise = yes\n"
    "[parameter l.{layer}.q_bias]\nfor = layer from 0 to last\n"
    "part = q_bias, rows over attn_tp\n"
    "[parameter l.{layer}.o]\nfor = layer from 0 to last\n"
    "part = o, columns over attn_tp in units of 8\nquantise = yes\n"
    "[parameter l.{layer}.kva]\nfor = layer from 0 to last\npart = kva\nquantise = yes\n"
    "[parameter l.{layer}.gate_up]\nfor = layer from 0 to last\n"
    "part = gate, rows over mlp_tp\npart = up, rows over mlp_tp\nquantise = yes\n"
    "[parameter l.{layer}.down]\nfor = layer from 0 to last\n"
    "part = down, columns over mlp_tp\nquantise = yes\n"
    "[parameter l.{layer}.router]\nfor = layer from 0 to last\npart = router\n"
    "[parameter l.{layer}.correction]\nfor = layer from 0 to last\npart = correction\n"
    "[parameter l.{layer}.w13]\nfor = layer from 0 to last\n"
    "stack = expert from 0 to experts - 1 over ep\n"
    "part = eg, rows over moe_tp\npart = eu, rows over moe_tp\n"
    "extra = sg, rows over moe_tp\nextra = su, rows over moe_tp\nquantise = yes\n"
    "[parameter l.{layer}.w2]\nfor = layer from 0 to last\n"
    "stack = expert from 0 to experts - 1 over ep\n"
    "part = ed, columns over moe_tp\nextra = sd, columns over moe_tp\nquantise = yes\n"
    "[derived]\nparameter = l.{layer}.derived\n";

static void set_sizes(struct random_model *m)
{
    const uint64_t shapes[R_COUNT][2] = {[R_EMBED] = {m->vocab, m->hidden},
        [R_HEAD] = {m->vocab, m->hidden},
        [R_NORM] = {m->hidden, 1},
        [R_Q] = {8 * m->heads, m->hidden},
        [R_K] = {8 * m->kv, m->hidden},
        [R_V] = {8 * m->kv, m->hidden},
        [R_Q_BIAS] = {8 * m->heads, 1},
        [R_O] = {m->hidden, 8 * m->heads},
        [R_KVA] = {10, m->hidden},
        [R_GATE] = {m->inner, m->hidden},
        [R_UP] = {m->inner, m->hidden},
        [R_DOWN] = {m->hidden, m->inner},
        [R_ROUTER] = {m->experts, m->hidden},
        [R_CORRECTION] = {m->experts, 1},
        [R_EG] = {m->moe_inner, m->hidden},
        [R_EU] = {m->moe_inner, m->hidden},
        [R_ED] = {m->hidden, m->moe_inner},
        [R_SG] = {m->moe_inner, m->hidden},
        [R_SU] = {m->moe_inner, m->hidden},
        [R_SD] = {m->hidden, m->moe_inner}};

    for (uint32_t i = 0; i < R_COUNT; i++) {
        m->rows[i] = shapes[i][0];
        m->columns[i] = shapes[i][1];
    }
}

void random_model_make(struct random_model *m, uint64_t seed)
{
    char quantised[128];

    *m = (struct random_model){.state = seed};
    m->layers = 1 + (uint32_t)random_below(&m->state, LAYERS_MAX);
    m->experts = one_of(&m->state, 2, (const uint32_t[]){4, EXPERTS_MAX - 2});
    m->heads = one_of(&m->state, 2, (const uint32_t[]){4, 8});
    m->kv = one_of(&m->state, 3, (const uint32_t[]){1, 2, 4});
    m->hidden = one_of(&m->state, 3, (const uint32_t[]){12, 16, 22});
    m->inner = one_of(&m->state, 2, (const uint32_t[]){32, 64});
    m->moe_inner = 32;
    m->vocab = 17 + (uint32_t)random_below(&m->state, 8);
    m->pad = 8;
    m->tied = random_below(&m->state, 2);
    m->packed = random_below(&m->state, 3) == 0;
    m->dtype = random_below(&m->state, 4) ? SW_BF16 : SW_F32;
    m->fp8 = random_below(&m->state, 4) == 0;
    m->block[0] = 2u << random_below(&m->state, 3);
    m->block[1] = 4u << random_below(&m->state, 2);
    set_sizes(m);
    add_all(m);
    for (uint32_t i = 0; i < m->n_stored; i++)
        fill(m, &m->stored[i]);
    if (m->tied && m->where[R_HEAD][0][0].stored)
        memcpy(m->where[R_HEAD][0][0].stored->data, m->where[R_EMBED][0][0].stored->data,
            m->where[R_EMBED][0][0].stored->bytes);
    snprintf(m->rules, sizeof(m->rules), "%s", rules_text);
    snprintf(quantised, sizeof(quantised),
        ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [%u, %u]}",
        m->block[0], m->block[1]);
    snprintf(m->config, sizeof(m->config),
        "{\"architectures\": [\"Random\"], \"torch_dtype\": \"%s\", \"num_layers\": %u, "
        "\"experts\": %u, \"heads\": %u, \"kv\": %u, \"hidden\": %u, \"inner\": %u, "
        "\"moe_inner\": %u, \"vocab\": %u, \"pad\": %u, \"tied\": %s%s}",
        m->dtype == SW_BF16 ? "bfloat16" : "float32", m->layers, m->experts, m->heads, m->kv,
        m->hidden, m->inner, m->moe_inner, m->vocab, m->pad, m->tied ? "true" : "false",
        m->fp8 ? quantised : "");
}

void random_model_clear(struct random_model *m)
{
    for (uint32_t i = 0; i < m->n_stored; i++)
        free(m->stored[i].data);
    free(m->stored);
}

const uint8_t *random_model_byte(const struct random_model *m, const struct where *w,
    enum role role, uint64_t row, uint64_t column)
{
    return w->stored->data + w->first + row * m->columns[role] + column;
}

const uint8_t *random_model_stored_scale(const struct random_model *m, const struct where *w,
    enum role role, uint64_t row, uint64_t column)
{
    return w->scales->data +
           sizeof(float) *
               (w->first_scale + row / m->block[0] * blocks(m->columns[role], m->block[1]) +
                   column / m->block[1]);
}

float random_model_value(const struct random_model *m, enum role role, uint32_t layer,
    uint32_t expert, uint64_t row, uint64_t column)
{
    const struct where *w = &m->where[role][layer][expert];
    const uint64_t i = w->first + row * m->columns[role] + column;

    if (row >= m->rows[role] || column >= m->columns[role])
        return 0;
    return value_read(
        w->stored->dtype, w->stored->data + i * (sw_dtype_bits(w->stored->dtype) / 8));
}

float random_model_scale(const struct random_model *m, enum role role, uint32_t layer,
    uint32_t expert, uint64_t row, uint64_t column, const uint32_t block[2],
    enum sw_scale_format format)
{
    const uint64_t top = row / block[0] * block[0], left = column / block[1] * block[1];
    float amax = 0;

    for (uint64_t r = top; r < top + block[0]; r++)
        for (uint64_t c = left; c < left + block[1]; c++)
            amax = fmaxf(amax, fabsf(random_model_value(m, role, layer, expert, r, c)));
    return value_scale(format, amax);
}
