/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet run, in parts: run_options.c reads the command line, run_environment.c knows
 * torchrun's variables and other launchers', run_preload.c finds the drop-in and
 * refuses what it cannot reach, run_spawn.c starts a rank, run_output.c prefixes its
 * lines, run_maps.c looks which libraries the processes mapped, run.c watches over them.
 */
#ifndef MOTET_TOOLS_RUN_H
#define MOTET_TOOLS_RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>

#define RUN_RANKS_MAX 1024
#define RUN_ENV_MAX   256
/** Longest line that stays in one piece. */
#define RUN_LINE_MAX (1024 * 1024)

/** Exit codes beside the ranks' own, as env(1) and timeout(1) use them. */
enum { EXIT_TIMEOUT = 124, EXIT_NOT_RUNNABLE = 126, EXIT_NOT_FOUND = 127 };

struct run_options {
    int n;           /* 0: not said */
    const char *as;  /* "nccl", "rccl" or NULL */
    const char *lib; /* the drop-in, instead of the one beside this command */
    const char *tag; /* in front of the rank in a prefix */
    bool prefix;     /* lines carry one */
    int timeout_s, grace_s;
    const char *device; /* MOTET_DEVICE */
    const char *master_addr, *master_port;
    char *env[RUN_ENV_MAX]; /* "K=V" */
    int nenv;
    char **cmd; /* NULL-terminated */
};

/** Fill @p o. −1: go on; otherwise the exit code. */
int run_read_options(int argc, char **argv, struct run_options *o);

/* ---- run_environment.c */

/** What the ranks of one run have in common. */
struct run_group {
    int nranks;
    char master_addr[256], master_port[16], id[64];
};

/** Choose an id, and an address and port for rank 0's rendezvous. −1 with errno. */
int run_group_make(const struct run_options *o, struct run_group *g);
/** In the child: torchrun's variables of @p rank. −1 with errno. */
int run_environment_of_rank(const struct run_group *g, int rank);

/** Ranks that another launcher has given to this process. */
struct run_launcher {
    const char *name;                       /* "Slurm" …; NULL: none */
    int rank, size, local_rank, local_size; /* −1: not known */
    int node, nodes;
    char master_addr[256], master_port[16], id[64]; /* "": not known */
    char why_not[256]; /* a launcher is there, but cannot be used; "" if it can */
};

/** getenv() in the command, a table in tests. */
typedef const char *(*run_lookup)(const char *name, void *arg);

void run_launcher_find(run_lookup lookup, void *arg, struct run_launcher *out);
/** Set torchrun's variables that are not set yet. −1 with errno. */
int run_environment_of_launcher(const struct run_launcher *l);
/** First host of a Slurm node list: "a[03-07,9],b" gives "a03". False if malformed. */
bool run_first_host(const char *list, char *buf, size_t bytes);
/** First number of Slurm's "4(x2),3" for node @p node; −1 if there is none. */
int run_tasks_of_node(const char *list, int node);

/* ---- run_preload.c */

/** Find the drop-in. False with a sentence in @p why. */
bool run_preload_find(const struct run_options *o, char path[PATH_MAX], char *why,
        size_t why_bytes);
/** −1: the command can be reached by LD_PRELOAD; otherwise an exit code, after saying why. */
int run_preload_refuse(const struct run_options *o, const char *dropin);
/** Set LD_PRELOAD and, where unset, the clients' own variables. −1 with errno. */
int run_preload_environment(const char *as, const char *dropin);

/* ---- run_maps.c */

#define RUN_FOREIGN_MAX 64

struct run_foreign {
    pid_t pid;
    char command[32];
    char path[PATH_MAX];
};

/** Processes that mapped another library with the NCCL ABI than the drop-in. */
struct run_maps {
    dev_t device;
    ino_t inode;
    char dropin[PATH_MAX];
    struct run_foreign *found; /* RUN_FOREIGN_MAX */
    int nfound;
    int more; /* found, but no room */
    uint64_t next_ns, interval_ns;
};

int run_maps_start(struct run_maps *m, const char *dropin);
/** Look at all descendants of this process, if it is time. */
void run_maps_scan(struct run_maps *m, uint64_t now_ns);
/** One line of /proc/PID/maps: the path, if it is a library with the NCCL ABI; else NULL. */
const char *run_maps_library(char *line);
/** Say on stderr what was found; frees. */
void run_maps_report(struct run_maps *m);

/* ---- run_output.c */

/** One stream of one rank: lines come in, prefixed lines go out. */
struct run_stream {
    int fd; /* −1: ended */
    int to; /* 1 or 2 */
    char *line;
    size_t used, room;
    char prefix[160];
    size_t prefix_bytes;
};

/** Called for each piece to write; false stops the stream (nobody reads any more). */
typedef bool (*run_sink)(void *arg, int fd, const char *data, size_t bytes);

void run_stream_start(struct run_stream *s, int fd, int to, const char *tag, int rank,
        bool prefix);
/** Feed bytes; complete lines reach @p sink. False when the sink refused. */
bool run_stream_feed(struct run_stream *s, const char *data, size_t bytes,
        run_sink sink, void *arg);
/** The stream has ended: what is left is written as a line. Frees. */
void run_stream_end(struct run_stream *s, run_sink sink, void *arg);

/* ---- run_spawn.c */

struct run_child {
    pid_t pid; /* 0 once it has been reaped */
    bool own_group;
    struct run_stream stream[2]; /* stdout, stderr; fd −1 without pipes */
};

/**
 * Start @p o's command as rank @p rank of @p group (NULL: no rank variables), with its
 * output through pipes if @p pipes. 0, or an exit code after saying why.
 */
int run_spawn(const struct run_options *o, const struct run_group *group, int rank,
        bool pipes, struct run_child *child);

/** Replace this process by the command. Returns an exit code after saying why. */
int run_exec(const struct run_options *o);

#endif
