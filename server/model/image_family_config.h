#ifndef BALLAST_SERVER_MODEL_IMAGE_FAMILY_CONFIG_H_
#define BALLAST_SERVER_MODEL_IMAGE_FAMILY_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "proto/image_family.pb.h"
#include "proto/model.pb.h"
#include "server/media/image_plan/image_family.h"
#include "server/settings/key_report.h"

namespace ballast {

// The family that a configuration describes, with the defaults of
// proto/image_family.proto for numbers that are 0. `config` names a rule.
ImageFamily FamilyOfConfig(const v1::ImageFamily& config);

// The inverse: fields with their defaults stay unset.
v1::ImageFamily ConfigOfFamily(const ImageFamily& family);

// The family as YAML to put below `model:` in a configuration:
// `image_family:` and one line for each field that is not at its default.
std::string FamilyYaml(const ImageFamily& family);

// Adds the faults of model.image_family: a missing rule, numbers that the rule
// lacks, cannot take or does not read, and marks that contradict each other.
void ValidateImageFamily(const v1::ImageFamily& config, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_IMAGE_FAMILY_CONFIG_H_
