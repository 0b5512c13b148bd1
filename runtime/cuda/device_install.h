/* device_install.h: a plan that comes while the run goes on. It is the *next* plan: it follows
 * the requests and serves none, as it has to find the run first. After as many requests as its
 * body has, if most of their bytes could have been served by it, and if the run moves memory
 * without it, it is put in place, between two steps of the program: where as little is allocated
 * as ever in those requests. All idle memory is given back, and from that request on the plan is
 * served, which takes memory as it needs it. What is live stays where it is, and its places in the
 * plan stay empty, without memory. A plan that was served before leaves its blocks to the pool,
 * where they stay too. */
#ifndef STPLAN_DEVICE_INSTALL_H
#define STPLAN_DEVICE_INSTALL_H

#include "device_plan.h"

/* sp_device_follow has the next plan follow a request, and puts it in place if that is due;
 * then it lets go of the lock. *place is what it says of the request, which counts if the plan
 * is in place on return (sp_device_plan_said). There has to be a next plan. Locked. */
void sp_device_follow(stplan_device *d, uint64_t need, uint64_t requested, stplan_stream stream, sp_place *place);

/* sp_device_follows_next says whether there is a next plan that the run has followed for a pass:
 * it counts then how that is followed, and no more how the plan is (sp_device_plan_followed). Locked. */
int sp_device_follows_next(const stplan_device *d);

/* sp_device_learns_of_next says whether it is the next plan, too, by which it is decided if another
 * plan is made (device_learn.h): one of sizes that vary is made again of more of them until one is in
 * place, as LoRA's of twelve iterations served later lengths better than that of four. Locked. */
int sp_device_learns_of_next(const stplan_device *d);

#endif
