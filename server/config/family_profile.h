#ifndef BALLAST_SERVER_CONFIG_FAMILY_PROFILE_H_
#define BALLAST_SERVER_CONFIG_FAMILY_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/model.pb.h"

namespace ballast {

// The mean and deviation of RGB in [0, 1].
struct PixelNorm {
  double mean[3];
  double std[3];
};

// The settings of a released family's checkpoints beside its images, which
// FindImageFamily has.
struct FamilyProfile {
  absl::string_view name;
  PixelNorm norm;
  uint32_t position_axes;
  absl::string_view end_of_text;  // as its tokenizer spells it
  // The family whose images it has; empty: that of its name.
  absl::string_view images_of = {};

  absl::string_view images() const {
    return images_of.empty() ? name : images_of;
  }
};

// nullptr for a name that is not a family's, and for an encoder whose images
// stand in no text.
const FamilyProfile* FindFamilyProfile(absl::string_view name);

// In alphabetical order.
std::vector<std::string> FamilyProfileNames();

// Fills in what follows from the model's image family: the family itself where
// the profile names a released one, patch, merge, temporal_patch and the bounds
// of pixels, and, for a released one, mean, std and position_axes, where unset.
// A bound of pixels that is given overrides the profile's. Token ids that are
// not given are set to -1: the tokenizer has them (OpenModelTokenizer). Does
// nothing for a model without a family.
void FillFamily(v1::Model* model);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_FAMILY_PROFILE_H_
