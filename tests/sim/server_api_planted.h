/* server_api_planted.h - the routes of the API, with bugs in them if one is switched on.
 *
 * Handlers of src/server are compiled once more, under other names, by server_api_planted_*.c:
 * server/planted.h.
 */
#ifndef WEIR_TESTS_SIM_SERVER_API_PLANTED_H
#define WEIR_TESTS_SIM_SERVER_API_PLANTED_H

#include "server/api.h"

/* Those of api_routes() while no bug is on, else the same with the other handlers. */
struct routes server_api_planted_routes(void);

#endif
