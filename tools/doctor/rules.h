/* SPDX-License-Identifier: Apache-2.0 */
/* The readers and the rules, each called once for everything that was added. */
#ifndef MOTET_DOCTOR_RULES_H
#define MOTET_DOCTOR_RULES_H

#include "doctor.h"

/* Readers: from lines to the facts of their family. */
void dr_read_pci(struct doctor *d);
void dr_read_platform(struct doctor *d);
void dr_read_job(struct doctor *d);
void dr_read_vm(struct doctor *d);
void dr_read_watch(struct doctor *d);
void dr_read_measure(struct doctor *d);
void dr_read_access(struct doctor *d);
void dr_read_packages(struct doctor *d);

/* Rules: from facts to findings; which code is found by which stands in codes_*.def. */
void dr_rule_atomics(struct doctor *d);
void dr_rule_vm(struct doctor *d);
void dr_rule_kfd_skipped(struct doctor *d);
void dr_rule_launch(struct doctor *d);
void dr_rule_hostcall_images(struct doctor *d);
void dr_rule_frozen(struct doctor *d);
void dr_rule_probe_record(struct doctor *d);
void dr_rule_iommu(struct doctor *d);
void dr_rule_acs(struct doctor *d);
void dr_rule_transport(struct doctor *d);
void dr_rule_peer_tests(struct doctor *d);
void dr_rule_bar(struct doctor *d);
void dr_rule_kernel(struct doctor *d);
void dr_rule_benign(struct doctor *d);
void dr_rule_shm(struct doctor *d);
void dr_rule_kfd_node(struct doctor *d);
void dr_rule_container(struct doctor *d);
void dr_rule_identity(struct doctor *d);
void dr_rule_libraries(struct doctor *d);
void dr_rule_hosts(struct doctor *d);
void dr_rule_interfaces(struct doctor *d);
void dr_rule_reach(struct doctor *d);
void dr_rule_rdma(struct doctor *d);
void dr_rule_peer_exited(struct doctor *d);
void dr_rule_ranks(struct doctor *d);
void dr_rule_recorder(struct doctor *d);
void dr_rule_teardown(struct doctor *d);
void dr_rule_rates(struct doctor *d);
void dr_rule_slots(struct doctor *d);
void dr_rule_topology(struct doctor *d);
void dr_rule_experts(struct doctor *d);
void dr_rule_none(struct doctor *d);

#endif
