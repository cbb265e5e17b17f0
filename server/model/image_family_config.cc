#include "server/model/image_family_config.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "proto/image/job_images.h"
#include "server/media/image_plan/image_family.h"
#include "server/settings/config_yaml.h"

namespace ballast {
namespace {

constexpr absl::string_view kKey = "model.image_family";

// The enumerations of the configuration have the values of ImageFamily's after
// UNSPECIFIED.
template <typename Config, typename Own>
constexpr Config GetConfig(Own value) {
  return static_cast<Config>(static_cast<int>(value) + 1);
}
template <typename Own>
constexpr Own GetOwn(int value) {
  return static_cast<Own>(value == 0 ? 0 : value - 1);
}
static_assert(GetConfig<v1::ImageFamily::Rule>(ImageRule::kSlices) ==
              v1::ImageFamily::RULE_SLICES);
static_assert(GetConfig<v1::ImageFamily::Layout>(PatchLayout::kStrips) ==
              v1::ImageFamily::LAYOUT_STRIPS);

v1::ImageFamily::Filter ConfigOfFilter(ResampleFilter filter) {
  switch (filter) {
    case ResampleFilter::kBilinear:
      return v1::ImageFamily::FILTER_BILINEAR;
    case ResampleFilter::kLanczos:
      return v1::ImageFamily::FILTER_LANCZOS;
    case ResampleFilter::kBox:
      return v1::ImageFamily::FILTER_BOX;
    case ResampleFilter::kOpenCvCubic:
      return v1::ImageFamily::FILTER_OPENCV_CUBIC;
    case ResampleFilter::kBicubic:
      break;
  }
  return v1::ImageFamily::FILTER_UNSPECIFIED;  // the default
}

uint32_t OneIfZero(uint32_t number) { return number == 0 ? 1 : number; }
uint32_t ZeroIfOne(uint32_t number) { return number == 1 ? 0 : number; }

// Each text of marks, in both forms: `visit(own, get, set)`.
template <typename Marks, typename Visit>
void VisitMarks(Marks& marks, Visit visit) {
  using M = v1::ImageFamily::Marks;
  visit(marks.placeholder, &M::placeholder, &M::mutable_placeholder);
  visit(marks.before, &M::before, &M::mutable_before);
  visit(marks.after, &M::after, &M::mutable_after);
  visit(marks.row_end, &M::row_end, &M::mutable_row_end);
  visit(marks.last_row_end, &M::last_row_end, &M::mutable_last_row_end);
  visit(marks.view_before, &M::view_before, &M::mutable_view_before);
  visit(marks.view_after, &M::view_after, &M::mutable_view_after);
  visit(marks.tile_before, &M::tile_before, &M::mutable_tile_before);
  visit(marks.tile_after, &M::tile_after, &M::mutable_tile_after);
  visit(marks.tile_seam, &M::tile_seam, &M::mutable_tile_seam);
  visit(marks.tile_row_end, &M::tile_row_end, &M::mutable_tile_row_end);
  visit(marks.tile_row_seam, &M::tile_row_seam, &M::mutable_tile_row_seam);
  visit(marks.view_seam, &M::view_seam, &M::mutable_view_seam);
  visit(marks.cut_before, &M::cut_before, &M::mutable_cut_before);
}

// Numbers that are given and that the rule does not read.
void RefuseUnread(const v1::ImageFamily& config, ImageRule rule,
                  KeyReport* report) {
  const auto* descriptor = config.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const std::string& name = descriptor->field(i)->name();
    const std::string key = ChildKey(kKey, name);
    if (ReadsNumber(rule, name) || !report->Has(key)) continue;
    if (report->HasFaultWithin(key)) continue;
    report->AddFault(
        key,
        absl::StrCat("found it with rule ",
                     YamlValue(config, *descriptor->FindFieldByName("rule")),
                     ", which does not read it; wanted it omitted"));
  }
}

}  // namespace

ImageFamily FamilyOfConfig(const v1::ImageFamily& config) {
  ImageFamily family;
  family.name = config.name().empty() ? "own" : config.name();
  family.rule = GetOwn<ImageRule>(config.rule());
  family.filter = GetFilter(config.filter());
  family.layout = GetOwn<PatchLayout>(config.layout());
  family.patch = config.patch();
  family.merge = OneIfZero(config.merge());
  family.temporal_patch = OneIfZero(config.temporal_patch());
  family.min_pixels = config.min_pixels();
  family.max_pixels = config.max_pixels();
  family.max_patches = config.max_patches();
  family.longest_edge = config.longest_edge();
  family.tile = config.tile();
  family.min_tiles = OneIfZero(config.min_tiles());
  family.max_tiles = config.max_tiles();
  for (const auto& canvas : config.canvases()) {
    family.canvases.push_back({canvas.height(), canvas.width()});
  }
  for (int i = 0; i < config.background_size() && i < 3; ++i) {
    family.background[i] = static_cast<uint8_t>(config.background(i));
  }
  family.cut_alone = config.cut_alone();
  family.min_crop = config.min_crop();
  family.min_ratio = config.min_ratio();
  family.share_tiles = config.share_tiles();
  family.round_sides = config.round_sides();
  family.tokens_a_row = config.tokens_a_row();
  family.tokens_an_image = config.tokens_an_image();
  VisitMarks(family.marks, [&](std::string& own, auto get, auto) {
    own = (config.marks().*get)();
  });
  return family;
}

v1::ImageFamily ConfigOfFamily(const ImageFamily& family) {
  v1::ImageFamily config;
  config.set_name(family.name);
  config.set_rule(GetConfig<v1::ImageFamily::Rule>(family.rule));
  config.set_filter(ConfigOfFilter(family.filter));
  if (family.layout != PatchLayout::kCrops) {
    config.set_layout(GetConfig<v1::ImageFamily::Layout>(family.layout));
  }
  config.set_patch(family.patch);
  config.set_merge(ZeroIfOne(family.merge));
  config.set_temporal_patch(ZeroIfOne(family.temporal_patch));
  config.set_min_pixels(family.min_pixels);
  config.set_max_pixels(family.max_pixels);
  config.set_max_patches(family.max_patches);
  config.set_longest_edge(family.longest_edge);
  config.set_tile(family.tile);
  config.set_min_tiles(ZeroIfOne(family.min_tiles));
  config.set_max_tiles(family.max_tiles);
  for (const TileShape& canvas : family.canvases) {
    auto* added = config.add_canvases();
    added->set_height(canvas.height);
    added->set_width(canvas.width);
  }
  if (family.background != ImageFamily().background) {
    for (const uint8_t value : family.background) config.add_background(value);
  }
  config.set_cut_alone(family.cut_alone);
  config.set_min_crop(family.min_crop);
  config.set_min_ratio(family.min_ratio);
  config.set_share_tiles(family.share_tiles);
  config.set_round_sides(family.round_sides);
  config.set_tokens_a_row(family.tokens_a_row);
  config.set_tokens_an_image(family.tokens_an_image);
  VisitMarks(family.marks, [&](const std::string& own, auto, auto set) {
    if (!own.empty()) *(config.mutable_marks()->*set)() = own;
  });
  return config;
}

std::string FamilyYaml(const ImageFamily& family) {
  return absl::StrCat("image_family:\n",
                      ToYaml(ConfigOfFamily(family), /*indent=*/2));
}

void ValidateImageFamily(const v1::ImageFamily& config, KeyReport* report) {
  if (!report->Has(kKey) || report->HasFaultWithin(kKey)) return;
  if (config.rule() == v1::ImageFamily::RULE_UNSPECIFIED) {
    report->AddMissing(ChildKey(kKey, "rule"), "the name of a rule");
    return;
  }
  if (config.background_size() != 0 && config.background_size() != 3) {
    report->AddFault(ChildKey(kKey, "background"),
                     absl::StrCat("found ", config.background_size(),
                                  " values; wanted 3, for R, G and B"));
  }
  for (int i = 0; i < config.background_size(); ++i) {
    const double value = config.background(i);
    if (value == std::floor(value)) continue;
    report->AddFault(
        ItemKey(ChildKey(kKey, "background"), i),
        absl::StrCat("found ", value, "; wanted a whole number, 0 to 255"));
  }
  const ImageFamily family = FamilyOfConfig(config);
  RefuseUnread(config, family.rule, report);
  const std::optional<FamilyFault> fault = FindFamilyFault(family);
  if (!fault) return;
  const std::string key = ChildKey(kKey, fault->key);
  if (report->Has(key)) {
    report->AddFault(
        key, absl::StrCat("found ", fault->found, "; wanted ", fault->wanted));
  } else {
    report->AddMissing(key, fault->wanted);
  }
}

}  // namespace ballast
