#ifndef BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_
#define BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_

#include "proto/config.pb.h"
#include "server/config/key_report.h"

namespace ballast {

// Adds to `report` whatever is wrong with a configuration beyond the type and
// range of a single value: keys that are missing, and values that contradict
// each other. `config` has its defaults; `report` knows which keys its file
// holds. A key that `report` already calls faulty is not judged again. Touches
// no file.
void ValidateConfig(const v1::Config& config, KeyReport* report);

// Its parts, by section.
void ValidateSources(const v1::Config& config, KeyReport* report);
void ValidateModel(const v1::Model& model, KeyReport* report);
void ValidateTopology(const v1::Config& config, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_
