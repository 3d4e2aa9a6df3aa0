/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What logs of collective libraries and captures of a network say: hosts, processes,
 * communicators, channels, interfaces, neighbours, and what failed in which order.
 * Indices are into the arrays of struct dr_job; DR_NONE is none.
 */
#ifndef MOTET_DOCTOR_JOB_H
#define MOTET_DOCTOR_JOB_H

#include "doctor.h"
#include "facts.h"
#include "scan.h"

/** Most addresses, attempts and neighbours that are kept of a text, each. */
#define DR_PLACES_MAX 4096

/** Words that are met again and again, each kept once. */
struct dr_names {
    struct dr_span *spans; /* what was given, copied */
    uint32_t *slots;       /* index + 1 of a name, by hash */
    uint32_t count, room, num_slots;
};

/** The number of a name, from 0; new ones are added. */
uint32_t dr_name(struct doctor *d, struct dr_names *names, struct dr_span span);
/** The same of a name that is there, or DR_NONE. */
uint32_t dr_name_find(const struct dr_names *names, struct dr_span span);

/** `host:pid:tid [dev] … NCCL WARN message`. */
struct dr_log_line {
    uint32_t line, worker;
    const char *where;   /* after "[dev]": the file that says it, and the rest */
    const char *message; /* after INFO, WARN or TRACE                          */
    bool warn;
};

/** A process and device of one host that logs: a rank of each of its communicators. */
struct dr_worker {
    uint32_t host, pid, dev;
    uint32_t last;      /* its last line, an index into log  */
    uint32_t last_line; /* into doctor.lines                   */
    int rank;           /* of its largest communicator, or -1  */
};

/** `comm … rank R nranks N … - Init START`, merged with its COMPLETE. */
struct dr_init {
    uint32_t worker, line, rank, nranks;
    uint32_t comm; /* index into comms: the same for all ranks, DR_NONE: not said */
    int device;    /* cudaDev, -1                                         */
    uint64_t bus;
    bool has_bus, complete;
};

struct dr_channel {
    uint32_t worker, line, from, to;
    enum dr_via via;
};

/** `Using [0]eth0:192.0.2.1<0>`: an address that a process listens on. */
enum dr_use_kind { DR_USE_BOOTSTRAP, DR_USE_SOCKET, DR_USE_OOB, DR_USE_GLOO };
struct dr_use {
    enum dr_use_kind kind;
    uint32_t host, line; /* host: DR_NONE if the line names none */
    const char *interface, *address;
};

struct dr_version {
    const char *number, *full; /* "2.19.3", "2.19.3+cuda12.2" */
    uint32_t host, worker, line;
};

struct dr_job_host {
    const char *name;
    uint32_t ranks;       /* workers with a rank         */
    uint32_t local_ranks; /* as a line says it, or 0     */
};

/** An address of an interface of a machine, as `ip` or `ifconfig` shows it. */
struct dr_address {
    const char *host;      /* whose it is, "" if nobody says */
    const char *interface; /* "" if nobody says              */
    const char *address;
    uint32_t prefix; /* bits, 0: not said */
    bool down;
    uint32_t line;
};

/** How fast an interface is, as the machine says it. */
struct dr_speed {
    const char *host, *interface;
    double mbps; /* 0: not said */
    bool wireless;
    uint32_t line;
};

/** What a neighbour table or arping says of an address. */
enum dr_neighbour_state {
    DR_NEIGHBOUR_SILENT,
    DR_NEIGHBOUR_ANSWERS,
    DR_NEIGHBOUR_OTHER
};
struct dr_neighbour {
    const char *address;
    enum dr_neighbour_state state;
    bool asked; /* by name: `ip neigh show ADDRESS` */
    uint32_t line;
};

/** An attempt to reach an address, and how it ended. */
enum dr_reach_how { DR_REACH_PING, DR_REACH_SHELL, DR_REACH_RANK };
enum dr_reach_end {
    DR_REACH_OK,
    DR_REACH_LOST,     /* no reply to any ping     */
    DR_REACH_TIMEOUT,  /* timed out                */
    DR_REACH_NO_ROUTE, /* 113, host or net unreachable */
    DR_REACH_ABORT,    /* software caused connection abort */
    DR_REACH_REFUSED,
    DR_REACH_OTHER
};
struct dr_reach {
    const char *address, *port; /* port: "" if not said */
    enum dr_reach_how how;
    enum dr_reach_end end;
    bool gloo;  /* said by Gloo                          */
    bool final; /* the last try, not "retrying"          */
    uint32_t line;
};

/** What went wrong, in order of first cause: a cause, or what follows from one. */
enum dr_failure_kind {
    DR_FAILED_CAUSE,     /* with a reason of its own                      */
    DR_FAILED_CONNECT,   /* dialled and not reached                       */
    DR_FAILED_IPC,       /* sharing device memory between processes       */
    DR_FAILED_TRUNCATED, /* first message of another size                 */
    DR_FAILED_RDMA,      /* a completion with status 12                   */
    DR_FAILED_NO_INTERFACE,
    DR_FAILED_CLOSED,   /* a peer closed or reset the connection         */
    DR_FAILED_FALL_OUT, /* proxy, launcher, a general sentence           */
    DR_FAILED_WARN,     /* a WARN that no pattern knows */
    DR_FAILED_NOT       /* harmless, however loud        */
};
struct dr_failure {
    enum dr_failure_kind kind;
    uint32_t line, worker;
    int rank;            /* -1 */
    double when;         /* seconds in the year, -1: no time */
    const char *address; /* of the peer, or "" */
};

struct dr_job {
    struct dr_names host_names, worker_names, comms;
    struct dr_log_line *log;
    struct dr_worker *workers;
    struct dr_init *inits;
    struct dr_channel *channels;
    struct dr_use *uses;
    struct dr_version *versions;
    struct dr_job_host *hosts;
    struct dr_address *addresses;
    struct dr_neighbour *neighbours;
    struct dr_speed *speeds;
    struct dr_reach *reaches;
    struct dr_failure *failures;
    uint32_t num_log, num_workers, num_inits, num_channels, num_uses, num_versions,
            num_hosts, num_addresses, num_neighbours, num_speeds, num_reaches,
            num_failures;
    uint32_t room_log, room_workers, room_inits, room_channels, room_uses,
            room_versions, room_hosts, room_addresses, room_neighbours, room_speeds,
            room_reaches, room_failures;
    uint32_t *log_of;         /* for each line: index into log, or DR_NONE */
    uint32_t num_machines;    /* answer of dr_num_hosts()                 */
    uint32_t stalled;         /* the line that shows it, or DR_NONE        */
    const char *missing_peer; /* whose last words nobody has, or NULL  */
};

/* ---- job_log.c ---- */
void dr_read_log(struct doctor *d);
/** "rank 1 on host", or its process, for a sentence. */
const char *dr_worker_name(struct doctor *d, uint32_t worker);
/** "0000:c3:00.0" of a bus id as the libraries print it. */
const char *dr_bus_name(struct doctor *d, uint64_t bus);
/** The rank that a line names before its text ("[rank1]: …"), or its worker's; -1: none. */
int dr_job_rank(const struct doctor *d, uint32_t line);

/** The text after what a launcher writes before each line: "[1,0]<stdout>:", "(Worker
 *  pid=7)", "[rank0]:". */
const char *dr_after_prefix(const char *text);

/* ---- job_hosts.c ---- */
void dr_read_hosts(struct doctor *d);

/* ---- job.c ---- */
/** The interface that a variable on this line asks for, or NULL. */
const char *dr_interface_at(struct doctor *d, uint32_t line);
/** The host that uses it, "" if nobody says. */
const char *dr_use_host(const struct doctor *d, const struct dr_use *u);

/* ---- job_stall.c ---- */
void dr_read_stalls(struct doctor *d);
/** Whether a line is a result or an error of the program itself, after its log. */
bool dr_is_result(const struct doctor *d, uint32_t line);

/* ---- job_fail.c ---- */
/** Seconds in the year of a time stamp at the beginning of a line, -1 without one. */
double dr_line_time(const char *text);
void dr_read_failures(struct doctor *d);
/** Whether some other cause came first, so that this failure follows from it. */
bool dr_is_fall_out(const struct doctor *d, const struct dr_failure *failure);

/* ---- net.c ---- */
void dr_read_interfaces(struct doctor *d);
/** The machine that the output at @p line speaks of: of "ssh HOST …", or of the prompt. */
const char *dr_place(struct doctor *d, uint32_t line);
/** The only global address that a host is known by; the host's name if there is none. */
const char *dr_resolve(const struct doctor *d, const char *host);
/** The name of a host with this address, or NULL. */
const char *dr_host_with(const struct doctor *d, const char *address);

/* ---- net_reach.c ---- */
void dr_read_reaches(struct doctor *d);
/* ---- net_address.c ---- */
bool dr_is_address(const char *text, size_t length);
bool dr_is_loopback(const char *address);
bool dr_is_link_local(const char *address);
/** Neither loopback nor link-local nor unspecified. */
bool dr_is_global(const char *address);
/** Whether two addresses are in one network of @p prefix bits. */
bool dr_same_network(const char *a, const char *b, uint32_t prefix);

/* ---- rules_slow.c ---- */
/** NIC_SLOW_SELECTED; of a run that is not known to stay on one host. */
void dr_rule_slow_interfaces(struct doctor *d);

#endif
