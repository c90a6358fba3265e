/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fcntl.h>
#include <unistd.h>
#include "inferd/manifest.h"
#include "inferd/test_support.h"

static struct sw_manifest m;
static struct sw_error e;

static void teardown(void)
{
    sw_manifest_clear(&m);
}

static int begin(struct sw_msg *msg)
{
    int rc = sw_manifest_begin(&m, msg, 1u << 30, &e);

    sw_msg_free(msg);
    return rc;
}

static int add(uint32_t first, uint32_t total, const struct declared *list, uint32_t n)
{
    struct sw_msg *msg = make_parameters("A", 1, 1, first, total, list, n);
    int rc = sw_manifest_add(&m, &msg->u.parameters, 1u << 30, &e);

    sw_msg_free(msg);
    return rc;
}

static void said(const char *part)
{
    ck_assert_msg(part && strstr(e.text, part) != NULL, "'%s' lacks '%s'", e.text, part);
}

/* ---- the rank ---- */

struct rank_case {
    const char *what;
    int code;
    const char *text;
};

static struct sw_msg *good_rank(void)
{
    return make_engine_rank("A", 1, 2, 1, 1000, 4, -1);
}

START_TEST(rank_checks)
{
    static const struct rank_case cases[] = {
        {"engine", SW_ERR_INVALID, "1 to 64"},
        {"control", SW_ERR_INVALID, "printable"},
        {"rank", SW_ERR_INVALID, "rank 2 of a world of 2"},
        {"world", SW_ERR_INVALID, "world"},
        {"instance", SW_ERR_INVALID, "instance"},
        {"coordinates", SW_ERR_INVALID, "tp 2/2"},
        {"scale", SW_ERR_UNSUPPORTED, "'e4m3'"},
        {"regions", SW_ERR_LIMIT, "0 regions"},
        {"descriptors", SW_ERR_PROTOCOL, "2 descriptors"},
        {"empty region", SW_ERR_LIMIT, "region 0 has 0 bytes"},
        {"huge region", SW_ERR_LIMIT, "region 0 has"},
        {"no parameters", SW_ERR_LIMIT, "0 parameters"},
        {"parameters", SW_ERR_LIMIT, "1000001 parameters"},
        {"layout", SW_ERR_INVALID, "needs the kind of engine"},
    };
    const struct rank_case *c = &cases[_i];
    struct sw_msg *msg = good_rank();
    struct sw_engine_rank *in = &msg->u.engine_rank;

    switch (_i) {
    case 0:
        in->engine = "";
        break;
    case 1:
        in->engine = "A\nB";
        break;
    case 2:
        in->rank = 2;
        break;
    case 3:
        in->world = SW_WORLD_MAX + 1;
        break;
    case 4:
        memset(&in->instance, 0, sizeof(in->instance));
        break;
    case 5:
        in->at.of[SW_GROUP_TP] = (struct sw_group){2, 2};
        break;
    case 6:
        in->scale_format = "e4m3";
        break;
    case 7:
        in->n_regions = msg->n_fds = 0;
        break;
    case 8:
        msg->n_fds = 2;
        msg->fds[1] = -1;
        break;
    case 9:
        in->region_bytes[0] = 0;
        break;
    case 10:
        in->region_bytes[0] = SW_BYTES_MAX + 1;
        break;
    case 11:
        in->n_parameters = 0;
        break;
    case 12:
        in->n_parameters = SW_PARAMETERS_MAX + 1;
        break;
    default:
        in->layout = "auto";
        break;
    }
    ck_assert_msg(begin(msg) == c->code, "%s: %d %s", c->what, e.code, e.text);
    said(c->text);
    ck_assert_ptr_null(m.items);
}
END_TEST

START_TEST(descriptors_are_owned)
{
    int fd = open("/dev/null", O_RDONLY);

    ck_assert_int_eq(begin(make_engine_rank("A", 1, 2, 1, 1000, 4, fd)), 0);
    ck_assert_int_eq(m.fds[0], fd);
    ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
    sw_manifest_clear(&m);
    ck_assert_int_lt(fcntl(fd, F_GETFD), 0);
}
END_TEST

/* Whatever a rank says of itself, the coordinator hears, how often it comes back. */
START_TEST(all_is_told)
{
    static uint32_t map[4] = {3, 1, 0, 2};
    struct sw_msg *msg = good_rank(), *told;
    struct sw_engine_rank *in = &msg->u.engine_rank, *out;

    for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
        in->at.of[g] = (struct sw_group){1, 2};
    in->layout = "family";
    in->kind = SW_ENGINE_VLLM;
    in->config = "{\"a\": 1}";
    in->scale_format = "ue8m0";
    in->block_rows = 128;
    in->block_columns = 64;
    in->fused_shared_experts = 1;
    in->expert_map_version = 9;
    in->expert_map_layers = in->expert_map_slots = 2;
    in->n_expert_map = 4;
    in->expert_map = map;
    in->version = 5;
    in->torn = 1;
    ck_assert_msg(begin(msg) == 0, "%s", e.text);
    for (int i = 0; i < 2; i++) {
        told = sw_manifest_rank_message(&m, 77);
        out = &told->u.engine_rank;
        ck_assert_str_eq(out->layout, "family");
        ck_assert_str_eq(out->config, "{\"a\": 1}");
        ck_assert_str_eq(out->scale_format, "ue8m0");
        ck_assert(out->kind == SW_ENGINE_VLLM && out->fused_shared_experts == 1);
        ck_assert(out->block_rows == 128 && out->block_columns == 64);
        ck_assert(out->expert_map_version == 9 && out->expert_map_layers == 2);
        ck_assert(out->expert_map_slots == 2 && out->n_expert_map == 4);
        ck_assert_mem_eq(out->expert_map, map, sizeof(map));
        ck_assert(out->at.of[SW_GROUP_HEAD_TP].rank == 1 && out->at.of[SW_GROUP_PP].size == 2);
        ck_assert(out->version == 5 && out->torn == 1 && out->pid == 77 && told->n_fds == 0);
        sw_msg_free(told);
    }
}
END_TEST

START_TEST(rank_memory_is_bounded)
{
    struct sw_msg *msg = good_rank();

    msg->u.engine_rank.config = "0123456789012345678901234567890123456789012345678901234567890123";
    ck_assert_int_eq(sw_manifest_begin(&m, msg, sizeof(*msg) + 60, &e), SW_ERR_LIMIT);
    said("manifests kept here");
    ck_assert_ptr_null(m.declared);
    sw_msg_free(msg);
}
END_TEST

/* ---- parts ---- */

static const struct declared four[] = {
    {"a", 0, 100, NULL}, {"b", 100, 100, NULL}, {"c", 300, 100, NULL}, {"d", 0, 100, "a"}};

START_TEST(parts_join)
{
    ck_assert_int_eq(begin(good_rank()), 0);
    ck_assert_int_eq(add(0, 4, four, 1), 0);
    ck_assert_int_eq(add(0, 4, four, 1), SW_ERR_PROTOCOL);
    said("does not join");
    ck_assert_int_eq(add(2, 4, four, 1), SW_ERR_PROTOCOL);
    ck_assert_int_eq(add(1, 5, four + 1, 3), SW_ERR_PROTOCOL);
    ck_assert_int_eq(add(1, 4, four, 4), SW_ERR_PROTOCOL);
    ck_assert_int_eq(add(1, 4, four, 0), SW_ERR_PROTOCOL);
    ck_assert_int_eq(add(1, 4, four + 1, 3), 0);
    ck_assert_uint_eq(m.n, 4);
    ck_assert_int_eq(sw_manifest_check(&m, &e), 0);
    ck_assert_uint_eq(m.parameter_bytes, 300);
    ck_assert_uint_eq(m.n_runs, 2);
    ck_assert_uint_eq(m.runs[0].length, 200);
    ck_assert_uint_eq(m.runs[1].offset, 300);
}
END_TEST

START_TEST(part_of_another_rank)
{
    struct sw_msg *msg = make_parameters("B", 1, 1, 0, 4, four, 1);

    ck_assert_int_eq(begin(good_rank()), 0);
    ck_assert_int_eq(sw_manifest_add(&m, &msg->u.parameters, 1u << 30, &e), SW_ERR_PROTOCOL);
    msg->u.parameters.engine = "A";
    msg->u.parameters.instance = make_id(2, 'e');
    ck_assert_int_eq(sw_manifest_add(&m, &msg->u.parameters, 1u << 30, &e), SW_ERR_PROTOCOL);
    msg->u.parameters.instance = make_id(1, 'e');
    ck_assert_int_eq(sw_manifest_add(&m, &msg->u.parameters, 1u << 30, &e), 0);
    sw_msg_free(msg);
}
END_TEST

START_TEST(memory_is_bounded)
{
    struct sw_msg *msg = make_parameters("A", 1, 1, 0, 4, four, 4);

    ck_assert_int_eq(begin(good_rank()), 0);
    ck_assert_int_eq(sw_manifest_add(&m, &msg->u.parameters, 200, &e), SW_ERR_LIMIT);
    said("200 bytes");
    sw_msg_free(msg);
}
END_TEST

/* ---- parameters ---- */

START_TEST(parameter_checks)
{
    static const struct {
        struct declared p[2];
        int code;
        const char *text;
    } cases[] = {
        {{{"x", 950, 51}}, SW_ERR_INVALID, "51 bytes at offset 950 do not fit into region 0"},
        {{{"x", UINT64_MAX, 2}}, SW_ERR_INVALID, "do not fit"},
        {{{"x", 0, UINT64_MAX}}, SW_ERR_INVALID, "has no valid size"},
        {{{"", 0, 1}}, SW_ERR_INVALID, "name"},
        {{{"x\x7f", 0, 1}}, SW_ERR_INVALID, "printable"},
        {{{"x", 0, 10}, {"x", 20, 10}}, SW_ERR_EXISTS, "'x' twice"},
        {{{"x", 0, 10}, {"y", 9, 10}}, SW_ERR_INVALID, "'x' (offset 0, 10 bytes) and 'y'"},
        {{{"x", 0, 10}, {"y", 0, 9}}, SW_ERR_INVALID, "overlap in region 0"},
        {{{"x", 0, 10}, {"y", 3, 2}}, SW_ERR_INVALID, "overlap"},
        {{{"x", 0, 10}, {"y", 0, 9, "x"}}, SW_ERR_INVALID, "is not the same"},
        {{{"x", 0, 10}, {"y", 20, 10, "x"}}, SW_ERR_INVALID, "is not the same"},
        {{{"x", 0, 10}, {"y", 0, 10, "z"}}, SW_ERR_NOT_FOUND, "alias of 'z'"},
        {{{"x", 0, 10, "y"}, {"y", 0, 10, "x"}}, SW_ERR_INVALID, "itself an alias"},
        {{{"x", 0, 10, "x"}, {"y", 20, 10}}, SW_ERR_INVALID, "itself an alias"},
    };
    struct sw_msg *msg = good_rank();
    uint32_t n = cases[_i].p[1].name ? 2 : 1;
    int rc;

    msg->u.engine_rank.n_parameters = n;
    ck_assert_int_eq(begin(msg), 0);
    rc = add(0, n, cases[_i].p, n);
    if (!rc)
        rc = sw_manifest_check(&m, &e);
    ck_assert_int_eq(rc, cases[_i].code);
    said(cases[_i].text);
    ck_assert_ptr_null(m.runs);
}
END_TEST

START_TEST(region_and_dtype)
{
    struct sw_msg *msg = make_parameters("A", 1, 1, 0, 4, four, 1);

    ck_assert_int_eq(begin(good_rank()), 0);
    msg->u.parameters.items[0].region = 1;
    ck_assert_int_eq(sw_manifest_add(&m, &msg->u.parameters, 1u << 30, &e), SW_ERR_INVALID);
    said("region 1; there are 1 regions");
    msg->u.parameters.items[0].region = 0;
    msg->u.parameters.items[0].dtype = SW_DTYPE_INVALID;
    ck_assert_int_eq(sw_manifest_add(&m, &msg->u.parameters, 1u << 30, &e), SW_ERR_INVALID);
    msg->u.parameters.items[0].dtype = SW_U8;
    msg->u.parameters.items[0].ndim = SW_MAX_DIMS + 1;
    ck_assert_int_eq(sw_manifest_add(&m, &msg->u.parameters, 1u << 30, &e), SW_ERR_INVALID);
    sw_msg_free(msg);
}
END_TEST

/* Aliases, in any order, said or not, end at one owner; empty parameters take no place. */
START_TEST(aliases)
{
    static const struct declared list[] = {{"head", 10, 20, "tail"}, {"tail", 10, 20, "embed"},
        {"embed", 10, 20, NULL}, {"same", 10, 20, NULL}, {"empty", 15, 0, NULL},
        {"empty2", 15, 0, "empty"}, {"next", 30, 5, NULL}};
    struct sw_msg *msg = good_rank();

    msg->u.engine_rank.n_parameters = 7;
    ck_assert_int_eq(begin(msg), 0);
    ck_assert_int_eq(add(0, 7, list, 7), 0);
    ck_assert_msg(sw_manifest_check(&m, &e) == 0, "%s", e.text);
    ck_assert_str_eq(m.items[0].alias_of, "embed");
    ck_assert_str_eq(m.items[1].alias_of, "embed");
    ck_assert_ptr_null(m.items[2].alias_of);
    ck_assert_str_eq(m.items[3].alias_of, "embed");
    ck_assert_uint_eq(m.parameter_bytes, 25);
    ck_assert_uint_eq(m.n_runs, 1);
}
END_TEST

/* ---- towards the coordinator ---- */

START_TEST(parts_out)
{
    enum { N = 10000 };
    struct declared *list = calloc(N, sizeof(*list));
    char(*names)[300] = calloc(N, sizeof(*names));
    struct sw_msg *msg = make_engine_rank("A", 1, 2, 1, N, N, -1);
    uint32_t next, parts = 0;

    for (uint32_t i = 0; i < N; i++) {
        memset(names[i], 'n', i < N / 2 ? 250 : 1);
        snprintf(names[i] + strlen(names[i]), 12, "%u", i);
        list[i] = (struct declared){names[i], i, 1, NULL};
    }
    ck_assert_int_eq(begin(msg), 0);
    for (uint32_t i = 0; i < N; i += 2000)
        ck_assert_int_eq(add(i, N, list + i, 2000), 0);
    ck_assert_int_eq(sw_manifest_check(&m, &e), 0);
    for (uint32_t first = 0; first < N; first = next, parts++) {
        msg = sw_manifest_part(&m, first, &next);
        ck_assert_ptr_nonnull(msg);
        ck_assert_uint_eq(msg->u.parameters.first, first);
        ck_assert_uint_eq(msg->u.parameters.n, next - first);
        ck_assert_uint_le(msg->u.parameters.n, SW_PART_ITEMS_MAX);
        ck_assert_uint_eq(msg->u.parameters.total, N);
        ck_assert_str_eq(msg->u.parameters.items[0].name, names[first]);
        ck_assert_str_eq(msg->u.parameters.items[0].alias_of, "");
        sw_msg_free(msg);
    }
    ck_assert_uint_ge(parts, 4);
    ck_assert_uint_le(parts, 8);
    msg = sw_manifest_rank_message(&m, 77);
    ck_assert_uint_eq(msg->u.engine_rank.pid, 77);
    ck_assert_uint_eq(msg->u.engine_rank.n_parameters, N);
    ck_assert_uint_eq(msg->u.engine_rank.region_bytes[0], N);
    ck_assert_uint_eq(msg->n_fds, 0);
    sw_msg_free(msg);
    free(list);
    free(names);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tc = tcase_create("manifest");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, NULL, teardown);
    tcase_add_loop_test(tc, rank_checks, 0, 14);
    tcase_add_test(tc, all_is_told);
    tcase_add_test(tc, rank_memory_is_bounded);
    tcase_add_test(tc, descriptors_are_owned);
    tcase_add_test(tc, parts_join);
    tcase_add_test(tc, part_of_another_rank);
    tcase_add_test(tc, memory_is_bounded);
    tcase_add_loop_test(tc, parameter_checks, 0, 14);
    tcase_add_test(tc, region_and_dtype);
    tcase_add_test(tc, aliases);
    tcase_add_test(tc, parts_out);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
