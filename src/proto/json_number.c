/* json_number.c - numbers of JSON as numbers of C: exactly, or not at all. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_read.h"

/* The digits of a whole number, or -ERANGE. */
static int read_digits(struct bytes text, uint64_t max, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (text.count == 0) return -ERANGE;
    for (size_t i = 0; i < text.count; i++) {
        uint64_t digit = (uint64_t)(text.at[i] - '0');

        if (!is_digit(text.at[i])) return -ERANGE;
        if (value > (max - digit) / 10 || digit > max) return -ERANGE;
        value = value * 10 + digit;
    }
    *ret_value = value;
    return 0;
}

int json_uint(const struct json_token *token, uint64_t max, uint64_t *ret_value)
{
    if (token->kind != JSON_NUMBER) return -ERANGE;
    return read_digits(token->text, max, ret_value);
}

int json_int(const struct json_token *token, int64_t min, int64_t max, int64_t *ret_value)
{
    struct bytes text = token->text;
    bool negative = text.count > 0 && text.at[0] == '-';
    uint64_t digits;
    int64_t value;

    if (token->kind != JSON_NUMBER) return -ERANGE;
    if (negative) text = bytes_after(text, 1);
    if (read_digits(text, (uint64_t)INT64_MAX + negative, &digits) < 0) return -ERANGE;
    value = negative ? (int64_t)(0 - digits) : (int64_t)digits;
    if (value < min || value > max) return -ERANGE;
    *ret_value = value;
    return 0;
}

enum {
    DIGITS_MAX = 19,       /* that fit into 64 bits whatever they are */
    EXPONENT_MAX = 100000, /* beyond it nothing is told apart, and nothing overflows */
};

struct decimal {
    uint64_t digits;
    int exponent; /* of ten */
    bool negative;
    bool cut; /* there were more digits */
};

/* Beyond those that fit, digits only move the exponent. */
static void put_digit(struct decimal *decimal, unsigned *count, char digit, bool fraction)
{
    if (*count < DIGITS_MAX) {
        decimal->digits = decimal->digits * 10 + (uint64_t)(digit - '0');
        if (decimal->digits > 0) (*count)++;
        if (fraction && decimal->exponent > -EXPONENT_MAX) decimal->exponent--;
    } else {
        if (digit != '0') decimal->cut = true;
        if (!fraction && decimal->exponent < EXPONENT_MAX) decimal->exponent++;
    }
}

static struct decimal read_decimal(struct bytes text)
{
    struct decimal decimal = {.negative = text.at[0] == '-'};
    int exponent = 0, sign = 1;
    unsigned count = 0;
    bool fraction = false;
    size_t at = decimal.negative;

    for (; at < text.count && text.at[at] != 'e' && text.at[at] != 'E'; at++) {
        if (text.at[at] == '.') {
            fraction = true;
        } else {
            put_digit(&decimal, &count, text.at[at], fraction);
        }
    }
    for (at++; at < text.count; at++) {
        if (text.at[at] == '-') sign = -1;
        if (is_digit(text.at[at]) && exponent < EXPONENT_MAX) {
            exponent = exponent * 10 + (text.at[at] - '0');
        }
    }
    decimal.exponent += sign * exponent;
    return decimal;
}

/* By the C library, which rounds once. What it reads has no decimal point: so the locale does
 * not matter. */
static double rounded(const struct decimal *decimal)
{
    char text[48]; /* 20 digits, an e, an exponent of at most eight characters */

    snprintf(text, sizeof text, "%" PRIu64 "e%d", decimal->digits, decimal->exponent);
    return strtod(text, NULL);
}

/* A number may lie so near to the middle of two doubles that only its last digit tells to which it
 * belongs. Longer ones are taken by their first digits. */
static __attribute__((noinline)) double rounded_whole(struct bytes text,
                                                      const struct decimal *decimal)
{
    char whole[1024];
    double value;

    if (text.count >= sizeof whole) return rounded(decimal);
    memcpy(whole, text.at, text.count);
    whole[text.count] = '\0';
    value = strtod(whole, NULL);
    return decimal->negative ? -value : value;
}

/* Both the digits and the power are doubles themselves: so one operation rounds once. */
static bool is_exact(const struct decimal *decimal)
{
    return decimal->digits < UINT64_C(1) << 53 && decimal->exponent >= -22 &&
           decimal->exponent <= 22;
}

static double exact(const struct decimal *decimal)
{
    double power = 1;

    for (int i = decimal->exponent < 0 ? -decimal->exponent : decimal->exponent; i > 0; i--) {
        power *= 10;
    }
    return decimal->exponent < 0 ? (double)decimal->digits / power
                                 : (double)decimal->digits * power;
}

int json_double(const struct json_token *token, double *ret_value)
{
    struct decimal decimal;
    double value;

    if (token->kind != JSON_NUMBER) return -ERANGE;
    decimal = read_decimal(token->text);
    if (decimal.cut) {
        value = rounded_whole(token->text, &decimal);
    } else {
        value = is_exact(&decimal) ? exact(&decimal) : rounded(&decimal);
    }
    if (__builtin_isinf(value)) return -ERANGE;
    *ret_value = decimal.negative ? -value : value;
    return 0;
}
