#include "trainer_shim/resample_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "proto/image/job_images.h"
#include "proto/image/resample_weights.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxCount = uint64_t{1} << 31;
constexpr uint64_t kPixelBytes = 3;

uint64_t NarrowPitch(const ResampleRequest& request) {
  return AlignUp(request.out_width * kPixelBytes, 4);
}

absl::Status Check(absl::Span<const ResampleRequest> requests,
                   const Resampling& resampling) {
  // The filter reaches this number of samples of the longer side, in both
  // directions together.
  const auto reach =
      static_cast<uint64_t>(2 * FilterRadius(resampling.filter)) + 1;
  uint64_t rows = 0;
  uint64_t weights = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const ResampleRequest& request = requests[i];
    const PlaneForm& form = request.form;
    if (form.width == 0 || form.height == 0 || request.out_width == 0 ||
        request.out_height == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("image ", i, " of ", form.width, "x", form.height,
                       " pixels to resize to ", request.out_width, "x",
                       request.out_height, ": a side is 0"));
    }
    if (IsResizedAlongYFirst(resampling.library, form.width, form.height,
                             request.out_width, request.out_height)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image ", i, " of ", form.width, "x", form.height,
          " pixels to resize to ", request.out_width, "x", request.out_height,
          ": the library of model.resample begins with its height, and ranks "
          "begin with the width; the server should have sent its pixels, so "
          "compare the versions of server and trainer"));
    }
    rows += std::max(form.height, request.out_height);
    weights += reach * (uint64_t{form.width} + form.height + request.out_width +
                        request.out_height);
  }
  if (rows >= kMaxCount || weights >= kMaxCount) {
    return absl::InvalidArgumentError(
        absl::StrCat(requests.size(), " images of ", rows,
                     " rows are too many to resample at once; fewer than ",
                     kMaxCount, " rows and weights are possible"));
  }
  return absl::OkStatus();
}

}  // namespace

VideoColours GetVideoColours(VideoMatrix matrix, bool is_full) {
  // What red takes of Cr, blue of Cb, green of Cb and Cr, with 16 bits of
  // fraction, for samples of limited range.
  struct Row {
    int64_t red_cr, blue_cb, green_cb, green_cr;
  };
  constexpr Row kRows[] = {
      {104597, 132201, 25675, 53279},  // kBt601
      {117489, 138438, 13975, 34925},  // kBt709
      {104448, 132798, 24759, 53109},  // kFcc
      {117579, 136230, 16907, 35559},  // kSmpte240
      {110013, 140363, 12277, 42626},  // kBt2020
  };
  constexpr int64_t kOne = 1 << 16;
  const Row& row = kRows[static_cast<size_t>(matrix)];
  const auto chroma = [&](int64_t value) {
    if (is_full) value = value * 224 / 255;
    return static_cast<int16_t>((value * (1 << 13) + kOne / 2) >> 16);
  };
  const int64_t luma = is_full ? kOne : kOne * 255 / 219;
  VideoColours colours;
  colours.black = is_full ? 0 : 16 * 8;
  colours.luma = static_cast<int16_t>((luma * (1 << 13) + kOne / 2) >> 16);
  colours.red_cr = chroma(row.red_cr);
  colours.green_cb = chroma(-row.green_cb);
  colours.green_cr = chroma(-row.green_cr);
  colours.blue_cb = chroma(row.blue_cb);
  return colours;
}

uint64_t DecodeMemory(const ResampleRequest& request) {
  return LayOutPlanes(request.form).bytes +
         NarrowPitch(request) * request.form.height;
}

void ResamplePlanner::Compute(uint32_t source, uint32_t output,
                              Axis* axis) const {
  axis->taps.clear();
  axis->weights.clear();
  axis->taps.reserve(output);
  if (source == output) {
    // Libraries omit a pass that changes nothing; a pass with this weight
    // changes nothing either.
    for (uint32_t i = 0; i < output; ++i) axis->taps.push_back({i, 1, 0});
    axis->weights.push_back(1 << kWeightBits);
    return;
  }
  FilterWeights filter(source, output, resampling_);
  axis->weights.reserve(size_t{filter.most_taps()} * output);
  for (uint32_t begin = 0; begin < output; begin += FilterWeights::kGroup) {
    const FilterWeights::Group& group = filter.WeightsOfGroup(begin);
    const uint32_t size = std::min(FilterWeights::kGroup, output - begin);
    for (uint32_t i = 0; i < size; ++i) {
      axis->taps.push_back({group.first[i], group.count[i], begin + i});
    }
    const size_t needed = group.rows.size() * output;
    if (axis->weights.size() < needed) axis->weights.resize(needed);
    for (size_t t = 0; t < group.rows.size(); ++t) {
      std::copy_n(group.rows[t].data(), size,
                  &axis->weights[t * output + begin]);
    }
  }
}

ResamplePlanner::Axis& ResamplePlanner::Find(uint32_t source, uint32_t output) {
  const std::pair<uint32_t, uint32_t> lengths = {source, output};
  const auto found = axes_.find(lengths);
  if (found != axes_.end()) return found->second;
  // Reused memory need not come from the system.
  Axes::node_type forgotten;
  while (kept_ > kMaxKept) {
    const auto oldest = std::min_element(axes_.begin(), axes_.end(),
                                         [](const auto& a, const auto& b) {
                                           return a.second.plan < b.second.plan;
                                         });
    if (oldest->second.plan == plans_) break;
    forgotten = axes_.extract(oldest);
    kept_ -= forgotten.mapped().bytes();
  }
  if (!forgotten.empty()) {
    forgotten.key() = lengths;
    axes_.insert(std::move(forgotten));
  }
  Axis& axis = axes_[lengths];
  axis.plan = 0;
  Compute(source, output, &axis);
  kept_ += axis.bytes();
  return axis;
}

uint32_t ResamplePlanner::Add(uint32_t source, uint32_t output) {
  Axis& axis = Find(source, output);
  if (axis.plan == plans_) return axis.index;
  axis.plan = plans_;
  axis.index = static_cast<uint32_t>(plan_.taps.size());
  const auto base = static_cast<uint32_t>(plan_.weights.size());
  for (AxisTaps taps : axis.taps) {
    taps.weights += base;
    plan_.taps.push_back(taps);
  }
  plan_.weights.insert(plan_.weights.end(), axis.weights.begin(),
                       axis.weights.end());
  return axis.index;
}

absl::Status ResamplePlanner::Plan(absl::Span<const ResampleRequest> requests) {
  const absl::Status status = Check(requests, resampling_);
  if (!status.ok()) return status;
  ++plans_;
  plan_.images.clear();
  plan_.taps.clear();
  plan_.weights.clear();
  plan_.rows = plan_.out_rows = plan_.most_width = 0;
  plan_.narrow_bytes = 0;
  for (const ResampleRequest& request : requests) {
    const PlaneForm& form = request.form;
    const PlaneLayout layout = LayOutPlanes(form);
    ResampleImage image = {};
    for (int plane = 0; plane < form.planes(); ++plane) {
      image.planes[plane] = request.planes + layout.offset[plane];
      image.pitch[plane] = layout.pitch[plane];
    }
    image.sampling = form.sampling;
    if (form.sampling == ChromaSampling::kVideo) {
      image.colours = GetVideoColours(form.matrix, form.is_full);
    }
    image.width = form.width;
    image.height = form.height;
    image.chroma_width = form.plane_width(1);
    image.chroma_height = form.plane_height(1);
    image.out = request.out;
    image.out_width = request.out_width;
    image.out_height = request.out_height;
    image.narrow = plan_.narrow_bytes;
    image.narrow_pitch = static_cast<uint32_t>(NarrowPitch(request));
    image.columns = Add(form.width, request.out_width);
    image.rows = Add(form.height, request.out_height);
    image.first_row = plan_.rows;
    image.first_out_row = plan_.out_rows;
    plan_.rows += form.height;
    plan_.out_rows += request.out_height;
    plan_.most_width = std::max(plan_.most_width, form.width);
    plan_.narrow_bytes += uint64_t{image.narrow_pitch} * form.height;
    plan_.images.push_back(image);
  }
  return absl::OkStatus();
}

}  // namespace ballast
