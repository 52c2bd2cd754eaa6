/* crc32c_test.c - the checksum: known values, and the instruction against the table. */
#include "base/crc32c.h"

#include <string.h>

#include "harness/test.h"

/* From RFC 3720, B.4, and the usual check value. */
TEST(crc32c_of_known_data_is_as_published)
{
    unsigned char data[32];

    CHECK_INT(crc32c(0, "123456789", 9), ==, 0xe3069283);
    CHECK_INT(crc32c(0, "", 0), ==, 0);
    memset(data, 0, sizeof data);
    CHECK_INT(crc32c(0, data, sizeof data), ==, 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    CHECK_INT(crc32c(0, data, sizeof data), ==, 0x62a8ab43);
    for (int i = 0; i < 32; i++) data[i] = (unsigned char)i;
    CHECK_INT(crc32c(0, data, sizeof data), ==, 0x46dd794e);
    for (int i = 0; i < 32; i++) data[i] = (unsigned char)(31 - i);
    CHECK_INT(crc32c(0, data, sizeof data), ==, 0x113fdb5c);
}

TEST(crc32c_by_table_of_known_data_is_as_published)
{
    CHECK_INT(crc32c_by_table(0, "123456789", 9), ==, 0xe3069283);
}

TEST(crc32c_by_instruction_and_by_table_are_the_same)
{
    unsigned char data[300];
    uint32_t state = 1;

    if (!crc32c_has_instruction()) TEST_SKIP("this processor has no instruction for it");
    for (size_t i = 0; i < sizeof data; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (unsigned char)(state >> 24);
    }
    for (size_t from = 0; from < 9; from++) {
        for (size_t bytes = 0; from + bytes <= sizeof data; bytes++) {
            CHECK_INT(crc32c_by_instruction(state, data + from, bytes), ==,
                      crc32c_by_table(state, data + from, bytes));
        }
    }
}

TEST(crc32c_of_parts_is_that_of_the_whole)
{
    const char text[] = "every async boundary names its owner";

    for (size_t cut = 0; cut < sizeof text; cut++) {
        CHECK_INT(crc32c(crc32c(0, text, cut), text + cut, sizeof text - cut), ==,
                  crc32c(0, text, sizeof text));
    }
}
