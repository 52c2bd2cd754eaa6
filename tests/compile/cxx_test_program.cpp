/* cxx_test_program - a program of tests in strict C++17, with a main of its own. */
#include <cstdio>
#include <weir/test.h>
#include <weir/weir.h>

static int add(void *arg)
{
    *static_cast<int *>(arg) += 21;
    return 0;
}

WEIR_TEST(passes_in_cxx)
{
    int total = 21;

    WEIR_CHECK_OK(weir_run(nullptr, add, &total));
    WEIR_CHECK_INT(total, ==, 42);
    WEIR_CHECK_STR("a", "a");
    WEIR_CHECK(total == 42);
}

int main(int argc, char **argv)
{
    std::puts("a main of its own");
    return weir_test_main(argc, argv);
}
