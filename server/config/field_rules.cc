#include "server/config/field_rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

FieldRule Between(double min, double max) {
  FieldRule rule;
  rule.min = min;
  rule.max = max;
  return rule;
}

FieldRule AtLeast(double min) {
  FieldRule rule;
  rule.min = min;
  return rule;
}

FieldRule AboveZero(double max) {
  FieldRule rule = Between(0, max);
  rule.above_min = true;
  return rule;
}

FieldRule OrAuto(FieldRule rule) {
  rule.accepts_auto = true;
  return rule;
}

FieldRule MayBeEmpty() {
  FieldRule rule;
  rule.accepts_empty = true;
  return rule;
}

FieldRule MayBeOff() {
  FieldRule rule;
  rule.accepts_off = true;
  return rule;
}

FieldRule Bytes(FieldRule rule) {
  rule.byte_size = true;
  return rule;
}

// Upper bounds are far above any real job; they catch typing errors and keep
// products of two such numbers within 64 bits.
FieldRules MakeConfigFieldRules() {
  constexpr double kSamples = 0x1p24;
  constexpr double kTokens = 0x1p24;
  constexpr double kPixels = 0x1p32;
  constexpr double kRanks = 65536;
  constexpr double kReal = 1e9;
  // Steps with changes: times kSamples far below 2^64.
  constexpr double kSteps = 1e10;
  constexpr double kMaxInt32 = std::numeric_limits<int32_t>::max();
  FieldRules rules = {
      {"Source.weight", Between(0, 1e6)},
      {"Order.MixtureChange.step", Between(1, kSteps)},
      {"Order.MixtureChange.WeightsEntry.value", Between(0, 1e6)},
      {"Order.Skip.step", Between(1, kSteps)},
      {"Order.Skip.steps", Between(1, 1e6)},
      {"Source.Lengths.min", Between(1, kTokens)},
      {"Source.Lengths.max", Between(1, kTokens)},
      {"Source.Lengths.mean", AboveZero(kTokens)},
      {"Source.Lengths.sigma", Between(0, 100)},
      {"Source.Lengths.count", Between(1, 0x1p28)},
      {"Source.Images.min", Between(0, 64)},
      {"Source.Images.max", Between(0, 64)},
      {"Source.Images.aspect", Between(1, 100)},
      {"Source.Images.Pixels.min", Between(1, 0x1p26)},
      {"Source.Images.Pixels.max", Between(1, 0x1p26)},
      {"Source.Images.Pixels.mean", AboveZero(0x1p26)},
      {"Source.Images.Pixels.sigma", Between(0, 10)},
      {"Source.shuffle_groups", Between(1, 65536)},
      {"Source.vocabulary", Between(2, kMaxInt32)},
      {"Model.profile", MayBeEmpty()},
      {"Model.min_pixels", Between(1, kPixels)},
      {"Model.max_pixels", Between(1, kPixels)},
      {"Model.patch", Between(1, 1024)},
      {"Model.merge", Between(1, 64)},
      {"Model.temporal_patch", Between(1, 16)},
      {"Model.mean", Between(-kReal, kReal)},
      {"Model.std", AboveZero(kReal)},
      {"Model.position_axes", Between(1, 4)},
      {"Model.device_share", Between(0, 1)},
      {"Model.system_prompt", MayBeEmpty()},
      {"Model.Video.fps", AboveZero(1000)},
      {"Model.Video.min_frames", Between(1, 0x1p21)},
      {"Model.Video.max_frames", Between(1, 0x1p21)},
      {"Model.Video.min_pixels", Between(1, 0x1p40)},
      {"Model.Video.max_pixels", Between(1, 0x1p40)},
      {"Model.Video.total_pixels", Between(1, 0x1p50)},
      {"ChatTemplate.begin", MayBeEmpty()},
      {"ChatTemplate.Turn.prefix", MayBeEmpty()},
      {"ChatTemplate.Turn.end", MayBeEmpty()},
      {"ChatTemplate.Turn.suffix", MayBeEmpty()},
      {"ImageFamily.patch", Between(1, 65536)},
      {"ImageFamily.merge", Between(1, 65536)},
      {"ImageFamily.temporal_patch", Between(1, 65536)},
      {"ImageFamily.min_pixels", Between(1, kPixels)},
      {"ImageFamily.max_pixels", Between(1, kPixels)},
      {"ImageFamily.max_patches", Between(0, kPixels - 1)},
      {"ImageFamily.longest_edge", Between(1, 65536)},
      {"ImageFamily.tile", Between(1, 65536)},
      {"ImageFamily.min_tiles", Between(1, 1024)},
      {"ImageFamily.max_tiles", Between(1, 1024)},
      {"ImageFamily.Canvas.height", Between(1, 65536)},
      {"ImageFamily.Canvas.width", Between(1, 65536)},
      {"ImageFamily.background", Between(0, 255)},
      {"ImageFamily.min_crop", Between(1, 65536)},
      {"ImageFamily.min_ratio", Between(1, 1e6)},
      {"ImageFamily.tokens_a_row", Between(0, 64)},
      {"ImageFamily.tokens_an_image", Between(0, 65536)},
      {"Batch.global", Between(1, kSamples)},
      {"Batch.micro", Between(1, kSamples)},
      {"Batch.max_tokens", Between(1, kTokens)},
      {"Batch.Rampup.start", Between(1, kSamples)},
      {"Batch.Rampup.increment", Between(1, kSamples)},
      {"Batch.Rampup.samples", Between(1, 1e14)},
      {"Batch.Change.step", Between(1, kSteps)},
      {"Batch.Change.samples", Between(1, 1e14)},
      {"Batch.Change.global", Between(1, kSamples)},
      {"Topology.Module.dp", Between(1, kRanks)},
      {"Topology.Module.tp", Between(1, kRanks)},
      {"Topology.Module.pp", Between(1, kRanks)},
      {"Topology.Module.cp", Between(1, kRanks)},
      {"Topology.Server.RanksEntry.value", MayBeEmpty()},
      {"Balance.window", Between(1, 65536)},
      {"Balance.skip_below", Between(0, 1000)},
      {"Balance.CostChange.step", AtLeast(1)},
      {"Balance.Coefficients.linear", Between(0, kReal)},
      {"Balance.Coefficients.quadratic", Between(0, kReal)},
      {"Packing.max_tokens_per_rank", Between(1, kTokens)},
      {"Packing.align", OrAuto(Between(0, 65536))},
      {"Packing.row_length", OrAuto(Between(0, kTokens))},
      {"Packing.virtual_pipeline_group", Between(1, 4096)},
      {"Storage.cache", MayBeOff()},
      {"Storage.Cache.size", Bytes(Between(0x1p20, 0x1p50))},
      {"Storage.memory", Bytes(Between(0x1p20, 0x1p50))},
      {"Storage.connections", Between(1, 1024)},
      {"Storage.ahead_steps", Between(0, 65536)},
      {"Serve.threads", OrAuto(Between(0, 4096))},
      {"Serve.memory", Bytes(Between(0x1p20, 0x1p50))},
      {"Serve.prefetch_steps", Between(0, 1024)},
      {"Serve.row_group_memory", Bytes(Between(0x1p20, 0x1p50))},
      // At least kMaxImageMemory, so that no verdict depends on it.
      {"Serve.decode_memory", OrAuto(Bytes(Between(0x1p30, 0x1p50)))},
      {"Serve.read_attempts", Between(1, 100)},
      {"Serve.read_timeout", AboveZero(1e6)},
      {"Serve.stall_after", AboveZero(1e6)},
      {"Serve.max_streams", Between(1, 1 << 20)},
      {"Serve.max_streams_per_client", Between(1, 1 << 20)},
  };
  for (const char* id : {"image", "video", "vision_start", "vision_end",
                         "im_start", "im_end", "end_of_text", "pad"}) {
    rules[std::string("TokenIds.") + id] = Between(0, kMaxInt32);
  }
  FieldRules qualified;
  for (const auto& [name, rule] : rules) qualified["ballast.v1." + name] = rule;
  return qualified;
}

// Writes a bound in full unless that is unreadable.
std::string WriteBound(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value)
             ? absl::StrCat(static_cast<int64_t>(value))
             : absl::StrCat(value);
}

// Writes a number of bytes as "1MiB".
std::string WriteByteSize(double value) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && value >= 1024 &&
         std::fmod(value, 1024) == 0) {
    value /= 1024;
    ++unit;
  }
  return absl::StrCat(WriteBound(value), kUnits[unit]);
}

}  // namespace

bool IsWithin(double value, const FieldRule& rule) {
  return value <= rule.max &&
         (rule.above_min ? value > rule.min : value >= rule.min);
}

std::string DescribeNumbers(absl::string_view kind, const FieldRule& rule,
                            double type_min, double type_max) {
  const double min = std::max(rule.min, type_min);
  const double max = std::min(rule.max, type_max);
  std::string text(kind);
  if (rule.byte_size) {
    text = absl::StrCat("a size from ", WriteByteSize(min), " to ",
                        WriteByteSize(max), ", as 8GiB or a number of bytes");
  } else if (rule.above_min) {
    absl::StrAppend(&text, " above ", WriteBound(min), " and at most ",
                    WriteBound(max));
  } else if (max < 1e15) {
    absl::StrAppend(&text, " from ", WriteBound(min), " to ", WriteBound(max));
  } else if (min > -1e15) {
    absl::StrAppend(&text, " of at least ", WriteBound(min));
  }
  if (rule.accepts_auto) absl::StrAppend(&text, ", or auto");
  return text;
}

const FieldRules& ConfigFieldRules() {
  static const FieldRules* const rules = new FieldRules(MakeConfigFieldRules());
  return *rules;
}

}  // namespace ballast
