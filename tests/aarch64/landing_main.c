/* landing_main.c - runs landing.c: without an argument the switch, which must work; with
 * one the control, which must end with SIGILL. */
#include <stdio.h>

int landing_back_and_forth(int rounds);
int landing_beside_a_pad(void);

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        printf("a jump beside a landing pad was survived: %d\n", landing_beside_a_pad());
        return 0;
    }
    return landing_back_and_forth(1000) == 1001 ? 0 : 1;
}
