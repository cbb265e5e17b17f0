#ifndef BALLAST_SERVER_AUDIO_MEL_FILTERS_H_
#define BALLAST_SERVER_AUDIO_MEL_FILTERS_H_

#include <cstddef>
#include <vector>

#include "proto/audio_family.pb.h"

namespace ballast {

// A triangle over the bins of a spectrum: those outside weigh 0.
struct MelFilter {
  size_t first = 0;
  std::vector<double> weights;
};

// The mel filters of a family, for a transform of family.transform() points at
// kModelRate. Pure.
std::vector<MelFilter> MakeMelFilters(const v1::AudioFamily::Features& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_AUDIO_MEL_FILTERS_H_
