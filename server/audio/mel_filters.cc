#include "server/audio/mel_filters.h"

#include <algorithm>
#include <cmath>

#include "server/audio/audio_plan.h"

namespace ballast {
namespace {

using Features = v1::AudioFamily::Features;

// Slaney's scale is linear up to 1000 Hz, which are 15 mels.
constexpr double kLinearHertz = 1000;
constexpr double kLinearMels = 15;

double ToMels(Features::Scale scale, double hertz) {
  switch (scale) {
    case Features::SCALE_KALDI:
      return 1127.0 * std::log(1.0 + hertz / 700.0);
    case Features::SCALE_SLANEY:
      return hertz < kLinearHertz
                 ? 3.0 * hertz / 200.0
                 : kLinearMels +
                       std::log(hertz / kLinearHertz) * (27.0 / std::log(6.4));
    default:
      return 2595.0 * std::log10(1.0 + hertz / 700.0);
  }
}

double ToHertz(Features::Scale scale, double mels) {
  switch (scale) {
    case Features::SCALE_KALDI:
      return 700.0 * (std::exp(mels / 1127.0) - 1.0);
    case Features::SCALE_SLANEY:
      return mels < kLinearMels ? 200.0 * mels / 3.0
                                : kLinearHertz * std::exp(std::log(6.4) / 27.0 *
                                                          (mels - kLinearMels));
    default:
      return 700.0 * (std::pow(10.0, mels / 2595.0) - 1.0);
  }
}

// Corners of the triangles, in hertz or (Kaldi's) mels: triangle m rises from
// corner m to m + 1 and falls to m + 2.
std::vector<double> MakeCorners(const Features& family) {
  const Features::Scale scale = family.scale();
  const double low = ToMels(scale, family.min_hertz());
  const double high = ToMels(scale, family.max_hertz());
  const auto steps = static_cast<double>(family.mels() + 1);
  std::vector<double> corners(family.mels() + 2);
  for (size_t i = 0; i < corners.size(); ++i) {
    const auto at = static_cast<double>(i);
    if (scale == Features::SCALE_HTK_SINGLE) {
      // From the nearer end, as torch.linspace.
      const float step =
          static_cast<float>(high - low) / static_cast<float>(steps);
      const float mels =
          i < corners.size() / 2
              ? static_cast<float>(low) + step * static_cast<float>(at)
              : static_cast<float>(high) -
                    step * static_cast<float>(steps - at);
      corners[i] = 700.0F * (std::pow(10.0F, mels / 2595.0F) - 1.0F);
      continue;
    }
    const double mels = low + (high - low) / steps * at;
    corners[i] = scale == Features::SCALE_KALDI ? mels : ToHertz(scale, mels);
  }
  return corners;
}

template <typename Real>
Real GetWeight(const std::vector<double>& corners, size_t m, double at) {
  const auto low = static_cast<Real>(corners[m]);
  const auto top = static_cast<Real>(corners[m + 1]);
  const auto high = static_cast<Real>(corners[m + 2]);
  const auto x = static_cast<Real>(at);
  return std::min((x - low) / (top - low), (high - x) / (high - top));
}

}  // namespace

std::vector<MelFilter> MakeMelFilters(const Features& family) {
  const Features::Scale scale = family.scale();
  const std::vector<double> corners = MakeCorners(family);
  std::vector<MelFilter> made(family.mels());
  const size_t bins = family.transform() / 2 + 1;
  for (size_t m = 0; m < made.size(); ++m) {
    for (size_t bin = 0; bin < bins; ++bin) {
      const double hertz =
          static_cast<double>(bin) * kModelRate / family.transform();
      const double at =
          scale == Features::SCALE_KALDI ? ToMels(scale, hertz) : hertz;
      double weight = scale == Features::SCALE_HTK_SINGLE
                          ? GetWeight<float>(corners, m, at)
                          : GetWeight<double>(corners, m, at);
      if (weight <= 0) continue;
      if (scale == Features::SCALE_SLANEY) {
        weight *= 2.0 / (corners[m + 2] - corners[m]);
      }
      if (made[m].weights.empty()) made[m].first = bin;
      made[m].weights.push_back(weight);
    }
  }
  return made;
}

}  // namespace ballast
