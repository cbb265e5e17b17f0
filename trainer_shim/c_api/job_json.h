#ifndef BALLAST_TRAINER_SHIM_C_API_JOB_JSON_H_
#define BALLAST_TRAINER_SHIM_C_API_JOB_JSON_H_

#include <string>

#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// One line of JSON: "fingerprint", "data_fingerprint" and every field of the
// job, those that are not set as well, under their names in proto/job.proto.
// Values of enumerations are written as in the configuration ("vision",
// "exchange"), whole numbers as numbers.
std::string JobToJson(const v1::Job& job, const v1::Fingerprint& fingerprint);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_JOB_JSON_H_
