#include "daemon/reload.h"

#include "daemon/http/tls.h"

struct bp_access_options bp_config_access(const struct bp_daemon_config *config)
{
    return (struct bp_access_options){.tokens = config->tokens, .peers = &config->peers, .limits = &config->limits};
}

void bp_config_check_files(const struct bp_daemon_config *config, struct bp_problems *problems)
{
    struct bp_tokens tokens = {0};
    struct bp_err err = {0};
    if (*config->tokens)
        bp_tokens_load(config->tokens, &tokens, problems);
    bp_tokens_release(&tokens);
    if (*config->tls_key && bp_tls_check(config->tls_certificate, config->tls_key, &err))
        bp_problems_add(problems, err.code, err.path, "%s", err.message);
}

static void reload_certificate(const struct bp_daemon_config *config, bool has_tls, struct bp_problems *problems)
{
    struct bp_err err = {0};
    if ((*config->tls_key != '\0') != has_tls)
        bp_fail(&err, BP_E_config_invalid, "tls-key", "cannot be given or left out without a new start");
    else if (has_tls)
        bp_tls_load(config->tls_certificate, config->tls_key, &err);
    if (err.code)
        bp_problems_add(problems, err.code, err.path, "%s", err.message);
}

bool bp_reload(int argc, char *const *argv, struct bp_access *access, bool has_tls)
{
    static struct bp_daemon_config config; /* the main thread's, and large */
    struct bp_problems problems = {0};
    bp_daemon_config_read(argc, argv, &config, &problems);
    if (bp_problems_none(&problems)) {
        struct bp_access_options options = bp_config_access(&config);
        bp_log_set_level(config.log_level);
        bp_access_reload(access, &options, &problems);
        reload_certificate(&config, has_tls, &problems);
    }
    bool all_well = bp_problems_none(&problems);
    for (size_t i = 0; i < problems.n; i++)
        bp_log_err(BP_LOG_ERROR, "not reloaded, and left as it was", &problems.at[i]);
    if (problems.out_of_memory)
        bp_log(BP_LOG_ERROR, "not reloaded for want of memory, and left as it was", NULL);
    bp_problems_release(&problems);
    if (all_well)
        bp_log(BP_LOG_INFO, "reloaded", NULL);
    return all_well;
}
