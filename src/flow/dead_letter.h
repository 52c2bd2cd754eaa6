/* dead_letter.h - handing over what has failed for good, also to a sink that was closed. */
#ifndef WEIR_FLOW_DEAD_LETTER_H
#define WEIR_FLOW_DEAD_LETTER_H

#include <weir/dead_letter.h>

/* As weir_dead_letters_put; WEIR_ECLOSED if the handle names none any more. */
int letters_put(const weir_dead_letters *handle, const weir_letter *letter, const void *item,
                size_t item_bytes);

#endif
