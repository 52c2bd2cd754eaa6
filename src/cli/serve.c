/* serve.c - weir serve: settings for the server, and its end as an exit status. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/settings.h"
#include "server/serve.h"

/* The demo's folder: one for each user, and nobody else's. */
static int demo_folder(struct config *config)
{
    const char *tmp = getenv("TMPDIR");
    char path[CONFIG_TEXT_BYTES];
    struct stat status;

    if (config->values[SETTING_SERVER_DATA].level != CONFIG_DEFAULT) return CLI_OK;
    (void)snprintf(path, sizeof path, "%.400s/weir-demo-%u", tmp && *tmp ? tmp : "/tmp",
                   (unsigned)getuid());
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return fail(CLI_FAILED, "'%s': %s; --data says another folder", path, strerror(errno));
    if (lstat(path, &status) < 0 || !S_ISDIR(status.st_mode) || status.st_uid != getuid() ||
        (status.st_mode & 077) != 0)
        return fail(CLI_FAILED, "'%s' is not a folder of yours alone; --data says another", path);
    config_set(config, CONFIG_FLAG, "server.data", bytes_of(path), "--demo");
    return CLI_OK;
}

static struct config *settings(const struct cli_call *call)
{
    struct config *config = settings_of(call, cli_text(call, "config"));

    if (config && cli_has(call, "demo") && demo_folder(config) != CLI_OK)
        config_set(config, CONFIG_FLAG, "server.data", BYTES(""), "--demo");
    return config;
}

static struct config *reread(void *arg)
{
    return settings(arg);
}

/* Blocks from there on have pages of their own, and go back to the system with their end. glibc
 * would learn from the first that ends to put the next into its heap, where each that was there
 * beside others leaves a hole: memory would grow with every burst of long answers. */
static void give_large_blocks_back(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

int command_serve(struct cli_call *call)
{
    static const enum cli_exit exits[] = {
        [SERVE_DRAINED] = CLI_OK,       [SERVE_FAILED] = CLI_FAILED, [SERVE_CUT_OFF] = CLI_TIMEOUT,
        [SERVE_ENDED_NOW] = CLI_FAILED, [SERVE_REFUSED] = CLI_USAGE,
    };
    struct config *config = settings(call);
    enum serve_end end;

    if (!config) return fail(CLI_FAILED, "no memory");
    if (config->problem_count > 0) {
        config_print_problems(config, stderr);
        config_free(config);
        return fail(CLI_USAGE,
                    "the settings are not valid; 'weir help serve' and weir.conf(5) tell "
                    "what there is");
    }
    give_large_blocks_back();
    end = serve(&(struct serve_spec){
        .config = config, .reread = reread, .reread_arg = call, .demo = cli_has(call, "demo")});
    config_free(config);
    return (int)exits[end];
}
