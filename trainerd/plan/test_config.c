/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/test_suite.h"

static struct sw_config *parse(const char *text)
{
    struct sw_config *c = NULL;
    struct sw_error e = {0};

    ck_assert_msg(!sw_config_parse(text, strlen(text), &c, &e), "%s: %s", text, e.text);
    return c;
}

START_TEST(what_a_config_says)
{
    struct sw_config *c =
        parse("{\"architectures\": [\"A\", \"B\"], \"torch_dtype\": \"float16\"}");

    ck_assert_str_eq(sw_config_architecture(c, 0), "A");
    ck_assert_str_eq(sw_config_architecture(c, 1), "B");
    ck_assert_ptr_null(sw_config_architecture(c, 2));
    ck_assert_int_eq(sw_config_dtype(c), SW_F16);
    ck_assert(!sw_config_fp8(c, NULL));
    ck_assert(!sw_config_unconverted(c, "lm_head"));
    sw_config_free(c);
    sw_config_free(NULL);
}
END_TEST

START_TEST(dtypes)
{
    static const struct {
        const char *text;
        enum sw_dtype dtype;
    } cases[] = {
        {"{}", SW_BF16},
        {"{\"dtype\": \"bfloat16\"}", SW_BF16},
        {"{\"torch_dtype\": null, \"dtype\": \"float32\"}", SW_F32},
        {"{\"torch_dtype\": \"torch.float32\"}", SW_F32},
        {"{\"text_config\": {\"dtype\": \"float16\"}}", SW_F16},
        {"{\"torch_dtype\": \"int4\"}", SW_DTYPE_INVALID},
        {"{\"torch_dtype\": 5}", SW_DTYPE_INVALID},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_config *c = parse(cases[i].text);

        ck_assert_msg(sw_config_dtype(c) == cases[i].dtype, "%s", cases[i].text);
        sw_config_free(c);
    }
}
END_TEST

START_TEST(fp8_blocks_and_what_is_left_out)
{
    struct sw_config *c = parse("{\"quantization_config\": {\"quant_method\": \"fp8\","
                                "\"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\","
                                "\"weight_block_size\": [128, 64], \"modules_to_not_convert\":"
                                "[\"lm_head\", \"model.layers.1.mlp.gate\", 7]}}");
    uint32_t block[2] = {0};

    ck_assert(sw_config_fp8(c, block));
    ck_assert_uint_eq(block[0], 128);
    ck_assert_uint_eq(block[1], 64);
    ck_assert(sw_config_unconverted(c, "lm_head.weight"));
    ck_assert(sw_config_unconverted(c, "model.layers.1.mlp.gate.weight"));
    ck_assert(!sw_config_unconverted(c, "model.layers.1.mlp.gate_up_proj.weight"));
    ck_assert(!sw_config_unconverted(c, "model.layers.11.mlp.gate.weight"));
    ck_assert(!sw_config_unconverted(c, "model.lm_head.weight"));
    sw_config_free(c);
}
END_TEST

START_TEST(null_is_no_quantisation)
{
    struct sw_config *c = parse("{\"quantization_config\": null, \"quantization\": null}");

    ck_assert(!sw_config_fp8(c, NULL));
    sw_config_free(c);
}
END_TEST

START_TEST(other_quantisations_are_refused_by_name)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"{\"quant_method\": \"awq\", \"bits\": 4}", "'awq'"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4}", "'gptq'"},
        {"{\"quant_method\": \"compressed-tensors\"}", "'compressed-tensors'"},
        {"{\"quant_method\": \"mxfp4\"}", "'mxfp4'"},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}", "'modelopt'"},
        {"{\"quant_algo\": \"NVFP4\"}", "'NVFP4'"},
        {"{\"bits\": 4}", "'(none)'"},
        {"{\"quant_method\": \"fp8\"}", "without weight_block_size"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": null}", "without weight_block_size"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"fmt\": \"e5m2\"}",
            "'e5m2'"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128],"
         "\"activation_scheme\": \"static\"}",
            "'static'"},
    };
    char text[300];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_config *c = NULL;
        struct sw_error e = {0};

        snprintf(text, sizeof(text), "{\"quantization_config\": %s}", cases[i].text);
        ck_assert_int_eq(sw_config_parse(text, strlen(text), &c, &e), SW_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(e.text, cases[i].word), "%s", e.text);
        snprintf(
            text, sizeof(text), "{\"text_config\": {\"quantization_config\": %s}}", cases[i].text);
        ck_assert_int_eq(sw_config_parse(text, strlen(text), &c, &e), SW_ERR_UNSUPPORTED);
    }
    {
        static const char mlx[] = "{\"quantization\": {\"bits\": 4}}";
        struct sw_config *c;

        ck_assert_int_eq(sw_config_parse(mlx, strlen(mlx), &c, NULL), SW_ERR_UNSUPPORTED);
    }
}
END_TEST

START_TEST(broken_files_say_where)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\n\"a\": }", "config.json:2:"},
        {"", "config.json:1:0"},
        {"[]", "expected an object"},
        {"{\"a\": 1, \"a\": 2}", "duplicate"},
        {"{\"a\": 99999999999999999999}", "config.json:1:"},
        {"{\"quantization_config\": 3}", "expected an object or null"},
        {"{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128]}}",
            "a list of 2 numbers"},
        {"{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [0, 1]}}",
            "from 1 to"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_config *c = NULL;
        struct sw_error e = {0};

        ck_assert_int_eq(
            sw_config_parse(cases[i].text, strlen(cases[i].text), &c, &e), SW_ERR_INVALID);
        ck_assert_msg(strstr(e.text, cases[i].message), "%s: %s", cases[i].text, e.text);
        ck_assert_ptr_null(c);
    }
}
END_TEST

START_TEST(a_file_has_a_limit)
{
    const size_t n = SW_CONFIG_FILE_MAX + 1;
    char *text = malloc(n);
    struct sw_config *c;

    ck_assert_ptr_nonnull(text);
    memset(text, ' ', n);
    ck_assert_int_eq(sw_config_parse(text, n, &c, NULL), SW_ERR_LIMIT);
    memset(text, '[', n); /* deep */
    ck_assert_int_eq(sw_config_parse(text, n - 1, &c, NULL), SW_ERR_INVALID);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tc = tcase_create("config");

    tcase_add_test(tc, what_a_config_says);
    tcase_add_test(tc, dtypes);
    tcase_add_test(tc, fp8_blocks_and_what_is_left_out);
    tcase_add_test(tc, null_is_no_quantisation);
    tcase_add_test(tc, other_quantisations_are_refused_by_name);
    tcase_add_test(tc, broken_files_say_where);
    tcase_add_test(tc, a_file_has_a_limit);
    suite_add_tcase(suite, tc);
    return test_suite_run(suite);
}
