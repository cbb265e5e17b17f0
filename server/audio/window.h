#ifndef BALLAST_SERVER_AUDIO_WINDOW_H_
#define BALLAST_SERVER_AUDIO_WINDOW_H_

#include <vector>

#include "proto/audio_family.pb.h"

namespace ballast {

// The window of a family over the points of its transform, 0 where the window
// has none. Pure.
std::vector<double> MakeWindow(const v1::AudioFamily::Features& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_AUDIO_WINDOW_H_
