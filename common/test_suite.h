/* SPDX-License-Identifier: Apache-2.0 */
/* The main function of a Check program with one case. */
#ifndef SW_COMMON_TEST_SUITE_H
#define SW_COMMON_TEST_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int test_suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
