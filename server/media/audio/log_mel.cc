#include "server/media/audio/log_mel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/media/audio/log_mel.cc"
// The vectors' size is to be known.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Some neighbouring lanes. No products are fused with sums, so that all
// processors get the same values.
constexpr hn::CappedTag<double, Fourier::kLanes> d;
using Doubles = hn::Vec<decltype(d)>;
constexpr hn::Rebind<float, decltype(d)> df;
using Floats = hn::Vec<decltype(df)>;
constexpr size_t kStep = hn::MaxLanes(d);
static_assert(Fourier::kLanes % kStep == 0);

// Windows `seen` samples of each lane, which begin `hop` samples apart.
void WindowLanes(const LogMelWindow& window, const float* HWY_RESTRICT stretch,
                 double* HWY_RESTRICT frame) {
  const hn::RebindToSigned<decltype(df)> di;
  const Floats c = hn::Set(df, window.preemphasis);
  const Floats gain = hn::Set(df, window.gain);
  for (size_t l = 0; l < Fourier::kLanes; l += kStep) {
    const auto places = hn::Mul(hn::Iota(di, static_cast<int32_t>(l)),
                                hn::Set(di, static_cast<int32_t>(window.hop)));
    for (size_t i = 0; i < window.seen; ++i) {
      const float* at = stretch + i;
      Floats value = hn::GatherIndex(df, at, places);
      if (window.preemphasis != 0) {
        value = i == 0
                    ? hn::Mul(value, hn::Set(df, window.first))
                    : hn::Sub(value,
                              hn::Mul(c, hn::GatherIndex(df, at - 1, places)));
      }
      value = hn::Mul(value, gain);
      const double weight = window.weights[i];
      const Doubles product =
          window.is_single
              ? hn::PromoteTo(
                    d, hn::Mul(value, hn::Set(df, static_cast<float>(weight))))
              : hn::Mul(hn::PromoteTo(d, value), hn::Set(d, weight));
      hn::StoreU(product, d, frame + i * Fourier::kLanes + l);
    }
  }
}

void SquareRoots(double* HWY_RESTRICT values, size_t count) {
  for (size_t i = 0; i < count; i += kStep) {
    hn::StoreU(hn::Sqrt(hn::LoadU(d, values + i)), d, values + i);
  }
}

// The natural logarithm of a normal number, to 4e-15: x = 2^e * m with m from
// sqrt(1/2) to sqrt(2), and ln m = 2 artanh((m - 1) / (m + 1)). Infinity and
// NaN stay.
HWY_INLINE Doubles Logarithm(Doubles x) {
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  constexpr uint64_t kBias = uint64_t{1023} << 52;
  const auto bits = hn::BitCast(du, x);
  const auto biased =
      hn::ShiftRight<52>(hn::Add(bits, hn::Set(du, kBias - kSqrtHalf)));
  // The number's bits are 2^52 + biased.
  const Doubles e =
      hn::Sub(hn::BitCast(d, hn::Or(biased, hn::Set(du, uint64_t{1075} << 52))),
              hn::Set(d, 0x1p52 + 1023));
  const Doubles m = hn::BitCast(
      d, hn::Sub(hn::Add(bits, hn::Set(du, kBias)), hn::ShiftLeft<52>(biased)));
  const Doubles one = hn::Set(d, 1.0);
  const Doubles s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const Doubles square = hn::Mul(s, s);
  Doubles series = hn::Set(d, 1.0 / 21);
  for (int n = 19; n >= 1; n -= 2) {
    series = hn::Add(hn::Mul(series, square), hn::Set(d, 1.0 / n));
  }
  const Doubles log = hn::Add(hn::Mul(e, hn::Set(d, std::numbers::ln2)),
                              hn::Mul(hn::Add(s, s), series));
  return hn::IfThenElse(hn::IsFinite(x), log, x);
}

// The filters' sums over the bins of each lane, up to the logarithm; kLanes
// values for each filter.
void SumFilters(const LogMelFilters& filters, const double* HWY_RESTRICT bins,
                float* HWY_RESTRICT values) {
  const Doubles floor = hn::Set(d, filters.floor);
  const Doubles scale = hn::Set(d, filters.scale);
  const double* weight = filters.weights.data();
  for (const LogMelFilters::Bins& filter : filters.bins) {
    for (size_t l = 0; l < Fourier::kLanes; l += kStep) {
      Doubles sum = hn::Zero(d);
      const double* at = bins + filter.first * Fourier::kLanes + l;
      for (size_t k = 0; k < filter.count; ++k, at += Fourier::kLanes) {
        sum = hn::Add(sum, hn::Mul(hn::LoadU(d, at), hn::Set(d, weight[k])));
      }
      // IfThenElse keeps NaN on every machine; Max gives the floor on ARM.
      sum = filters.add_floor ? hn::Add(sum, floor)
                              : hn::IfThenElse(hn::Lt(sum, floor), floor, sum);
      hn::StoreU(hn::DemoteTo(df, hn::Mul(Logarithm(sum), scale)), df,
                 values + l);
    }
    weight += filter.count;
    values += Fourier::kLanes;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(WindowLanes);
HWY_EXPORT(SquareRoots);
HWY_EXPORT(SumFilters);

namespace {

using Family = v1::AudioFamily;
using Features = Family::Features;

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

// The filters of a family, for a transform of family.transform() points at
// kModelRate: triangles over the bins of a spectrum.
LogMelFilters MakeFilters(const Features& family) {
  const Features::Scale scale = family.scale();
  const std::vector<double> corners = MakeCorners(family);
  LogMelFilters filters;
  filters.floor = family.floor();
  filters.add_floor = family.add_floor();
  filters.scale = family.decimal() ? std::numbers::log10e : 1;
  for (size_t m = 0; m < family.mels(); ++m) {
    LogMelFilters::Bins& bins = filters.bins.emplace_back();
    for (size_t bin = 0; bin < family.transform() / 2 + 1; ++bin) {
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
      if (bins.count++ == 0) bins.first = bin;
      filters.weights.push_back(weight);
    }
  }
  return filters;
}

constexpr double kTurn = 2 * std::numbers::pi;

// numpy's cosine of a float32 where the processor has fused multiply-add:
// reduced by multiples of pi/2 in three steps, then a polynomial. It differs
// from the nearest float32 in every sixth value, by one place, which shows in
// the logarithm of bins that hold almost nothing.
float NumpyCosine(float x) {
  constexpr float kMagic = 0x1.8p+23F;
  const float quarters = std::fma(x, 0x1.45f306p-1F, kMagic) - kMagic;
  float r = std::fma(quarters, -0x1.921fb0p+0F, x);
  r = std::fma(quarters, -0x1.5110b4p-22F, r);
  r = std::fma(quarters, -0x1.846988p-48F, r);
  const float r2 = r * r;
  float cosine = 0x1.98e616p-16F;
  for (const float term : {-0x1.6c06dcp-10F, 0x1.55553cp-5F, -0.5F, 1.0F}) {
    cosine = std::fma(cosine, r2, term);
  }
  float sine = 0x1.7d3bbcp-19F;
  for (const float term :
       {-0x1.a06bbap-13F, 0x1.11119ap-7F, -0x1.555556p-3F, 0.0F}) {
    sine = std::fma(sine, r2, term);
  }
  sine = std::fma(sine, r, r);
  switch (static_cast<int>(quarters) & 3) {
    case 0:
      return cosine;
    case 1:
      return -sine;
    case 2:
      return -cosine;
    default:
      return sine;
  }
}

double MakeWeight(Features::Window window, size_t i, size_t length) {
  const auto at = static_cast<double>(i);
  const double turn = kTurn / static_cast<double>(length);
  const float angle = static_cast<float>(at) * static_cast<float>(turn);
  switch (window) {
    case Features::WINDOW_HAMMING:
      return 0.54 -
             0.46 * std::cos(kTurn * at / static_cast<double>(length - 1));
    case Features::WINDOW_HANN_TORCH:
      return 0.5F - 0.5F * static_cast<float>(std::cos(double{angle}));
    case Features::WINDOW_HANN_NUMPY:
      return 0.5F * (1.0F - NumpyCosine(angle));
    default:
      return static_cast<float>(0.5 - 0.5 * std::cos(turn * at));
  }
}

// Numbers that are 1 unless a family gives them.
double OrOne(double value) { return value == 0 ? 1 : value; }
uint32_t Stack(const Family& family) {
  return std::max(family.frames().stack(), uint32_t{1});
}

LogMelWindow MakeWindow(const Family& family) {
  const Features& features = family.features();
  LogMelWindow window;
  window.hop = family.frames().hop();
  window.seen = std::min<size_t>(features.transform(), family.frames().span());
  window.preemphasis = static_cast<float>(features.preemphasis());
  window.first = static_cast<float>(1 - features.preemphasis());
  window.gain = static_cast<float>(OrOne(features.gain()));
  window.is_single = features.window() != Features::WINDOW_HAMMING;
  window.weights.resize(features.transform());
  const size_t length = features.window_length();
  const size_t first =
      features.centred() ? (features.transform() - length) / 2 : 0;
  for (size_t i = 0; i < length; ++i) {
    window.weights[first + i] = MakeWeight(features.window(), i, length);
  }
  return window;
}

}  // namespace

absl::StatusOr<LogMel> LogMel::Create(const Family& family) {
  auto fourier = Fourier::Create(family.features().transform());
  if (!fourier.ok()) return fourier.status();
  return LogMel(family, *std::move(fourier));
}

LogMel::LogMel(const Family& family, Fourier fourier)
    : family_(family),
      fourier_(std::move(fourier)),
      window_(MakeWindow(family)),
      filters_(MakeFilters(family.features())),
      stretch_((kLanes - 1) * window_.hop + window_.seen),
      frame_(fourier_.points() * kLanes),
      power_(fourier_.bins() * kLanes),
      logarithms_(filters_.bins.size() * kLanes) {}

size_t LogMel::width() const {
  return size_t{family_.features().mels()} * Stack(family_);
}

absl::StatusOr<std::vector<float>> LogMel::Compute(
    const AudioPlan& plan, absl::Span<const float> samples, uint64_t frames) {
  if (samples.size() < plan.samples || frames > plan.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "features of ", frames, " frames of ", samples.size(),
        " samples; the plan has ", plan.shape, " and ", plan.samples));
  }
  const uint64_t stack = Stack(family_);
  const size_t mels = family_.features().mels();
  const uint64_t rows = frames * stack;
  const uint64_t sounding = CountSounding(plan);
  // The loudest row may be one that is not wanted.
  const uint64_t computed =
      family_.features().range() == 0 ? std::min(rows, sounding) : sounding;
  std::vector<float> values(std::max(rows, computed) * mels);
  const absl::Span<const float> clip = samples.first(plan.samples);
  for (uint64_t row = 0; row < computed; row += kLanes) {
    AddRows(plan, clip, row, std::min<uint64_t>(kLanes, computed - row),
            &values[row * mels]);
  }
  if (rows > computed) {
    std::fill(power_.begin(), power_.end(), 0);
    HWY_DYNAMIC_DISPATCH(SumFilters)
    (filters_, power_.data(), logarithms_.data());
    std::fill(values.begin() + static_cast<ptrdiff_t>(computed * mels),
              values.end(), logarithms_.front());
  }
  Finish(&values);
  values.resize(rows * mels);
  if (family_.frames().zero_invalid()) {
    // Times 0, as the processor: the sign stays.
    for (size_t i = plan.frames * stack * mels; i < values.size(); ++i) {
      values[i] *= 0;
    }
  }
  return values;
}

// Rows from 0 up to the last that sees a sample of the clip; the other rows
// are silence.
uint64_t LogMel::CountSounding(const AudioPlan& plan) const {
  const Family::Frames& frames = family_.frames();
  // What is mirrored at the end may sound.
  if (plan.padded - plan.samples <= frames.reflect()) return plan.rows;
  const uint64_t before = frames.reflect() + uint64_t{frames.zeros_before()};
  return std::min(plan.rows, (plan.samples + before - 1) / frames.hop() + 1);
}

// Samples from `first` on of the padded clip with its left padding;
// later ones are 0.
void LogMel::CopySamples(const AudioPlan& plan, absl::Span<const float> clip,
                         uint64_t first, absl::Span<float> to) const {
  const auto reflect = static_cast<int64_t>(family_.frames().reflect());
  const auto before =
      reflect + static_cast<int64_t>(family_.frames().zeros_before());
  const auto end = static_cast<int64_t>(plan.padded);
  const auto size = static_cast<int64_t>(clip.size());
  const int64_t inside = static_cast<int64_t>(first) - before;
  if (inside >= 0 && inside + static_cast<int64_t>(to.size()) <= size) {
    std::copy_n(clip.begin() + inside, to.size(), to.begin());
    return;
  }
  for (size_t i = 0; i < to.size(); ++i) {
    int64_t at = static_cast<int64_t>(first + i) - before;
    if (reflect > 0 && at < 0) at = -at;
    if (reflect > 0 && at >= end) at = 2 * (end - 1) - at;
    to[i] = at >= 0 && at < size ? clip[static_cast<size_t>(at)] : 0.0F;
  }
}

// Computes `count` rows from `row` on, up to the logarithm.
void LogMel::AddRows(const AudioPlan& plan, absl::Span<const float> clip,
                     uint64_t row, size_t count, float* values) {
  CopySamples(plan, clip, row * window_.hop, absl::MakeSpan(stretch_));
  // Points after those that are seen stay 0.
  HWY_DYNAMIC_DISPATCH(WindowLanes)
  (window_, stretch_.data(), frame_.data());
  fourier_.Power(frame_.data(), &scratch_, power_.data());
  if (family_.features().magnitude()) {
    HWY_DYNAMIC_DISPATCH(SquareRoots)(power_.data(), power_.size());
  }
  HWY_DYNAMIC_DISPATCH(SumFilters)
  (filters_, power_.data(), logarithms_.data());
  const size_t mels = filters_.bins.size();
  for (size_t l = 0; l < count; ++l) {
    for (size_t m = 0; m < mels; ++m) {
      values[l * mels + m] = logarithms_[m * kLanes + l];
    }
  }
}

void LogMel::Finish(std::vector<float>* values) const {
  const Family::Features& features = family_.features();
  if (values->empty()) return;
  const float least = features.range() == 0
                          ? -std::numeric_limits<float>::infinity()
                          : *std::max_element(values->begin(), values->end()) -
                                static_cast<float>(features.range());
  const auto offset = static_cast<float>(features.offset());
  const auto divisor = static_cast<float>(OrOne(features.divisor()));
  if (features.range() == 0 && offset == 0 && divisor == 1) return;
  for (float& value : *values) {
    value = (std::max(value, least) + offset) / divisor;
  }
}

}  // namespace ballast
#endif  // HWY_ONCE
