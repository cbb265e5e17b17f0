#ifndef BALLAST_CLIENT_BALLASTCTL_MODULE_TABLE_H_
#define BALLAST_CLIENT_BALLASTCTL_MODULE_TABLE_H_

#include <string>

#include "client/ballastctl/snapshot.h"
#include "proto/job.pb.h"

namespace ballast {

// The sizes of a job's modules as a table and, where `now` has it, the balance
// of training's current step. `now` may be null. Pure.
std::string ModuleTable(const v1::Job& job, const Snapshot* now);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_MODULE_TABLE_H_
