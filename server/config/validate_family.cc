// Checks of a model's image family beside its other settings.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/config/config_validate.h"
#include "server/config/profiles.h"
#include "server/image_plan/family_check.h"
#include "server/image_plan/image_family.h"

namespace ballast {
namespace {

// Numbers beside a family that has its own.
void CheckFamilyNumbers(const v1::Model& model, KeyReport* report) {
  if (!model.has_image_family()) return;
  const bool is_own = report->Has("model.image_family");
  const ImageFamily family = GetImageFamily(model);
  const auto refuse = [&](const char* name, absl::string_view why) {
    const std::string key = ChildKey("model", name);
    if (!report->Has(key) || report->IsFaulty(key)) return;
    report->AddFault(key, absl::StrCat("found it beside the family ",
                                       family.name, ", ", why));
  };
  for (const char* name : {"patch", "merge", "temporal_patch"}) {
    refuse(name,
           "which has its own; wanted it omitted, or within "
           "model.image_family");
  }
  for (const char* name : {"min_pixels", "max_pixels"}) {
    if (is_own) {
      refuse(name, "which has its own; wanted it within model.image_family");
    } else if (!ReadsNumber(family.rule, name)) {
      refuse(name, "whose rule does not read it; wanted it omitted");
    }
  }
}

void CheckAxes(const v1::Model& model, KeyReport* report) {
  constexpr char kKey[] = "model.position_axes";
  if (report->IsFaulty(kKey)) return;
  const std::string wanted =
      FindAxesFault(GetImageFamily(model), model.position_axes());
  if (wanted.empty()) return;
  report->AddFault(report->Has(kKey) ? kKey : "model.image_family",
                   absl::StrCat("found ", model.position_axes(),
                                " axes of positions; wanted ", wanted));
}

void CheckForm(const v1::Model& model, KeyReport* report) {
  constexpr char kKey[] = "model.image_form";
  if (report->IsFaulty(kKey)) return;
  const ImageFamily family = GetImageFamily(model);
  if (model.image_form() == v1::Model::IMAGE_FORM_PADDED &&
      (HasSquareCrops(family) || family.max_patches == 0)) {
    report->AddFault(kKey,
                     "found padded; wanted a form other than it, since no "
                     "max_patches bounds the patches of a crop");
  }
  if (model.image_form() == v1::Model::IMAGE_FORM_MERGE_ORDER &&
      HasSquareCrops(family) &&
      family.tile / family.patch % family.merge != 0) {
    report->AddFault(
        kKey, absl::StrCat("found merge_order; wanted a form other than it, "
                           "since crops of ",
                           family.tile / family.patch,
                           " patches a side are no multiples of merge ",
                           family.merge));
  }
}

// Whether the family makes of an image one crop, the whole image resized once:
// such images may travel encoded.
bool IsResizedOnce(const ImageFamily& family) {
  switch (family.rule) {
    case ImageRule::kSmartResize:
    case ImageRule::kSmartResizeFrames:
    case ImageRule::kFillBudget:
    case ImageRule::kLongestEdge:
      return true;
    case ImageRule::kFixedSize:
      return family.max_tiles <= 1;
    default:
      return false;
  }
}

void CheckDevice(const v1::Model& model, KeyReport* report) {
  if (model.decode() != v1::Model::DECODE_DEVICE ||
      report->IsFaulty("model.decode")) {
    return;
  }
  const ImageFamily family = GetImageFamily(model);
  if (IsResizedOnce(family)) return;
  report->AddFault(
      "model.decode",
      absl::StrCat("found device beside the family ", family.name,
                   ", whose images are cut, padded or resized more than once; "
                   "wanted host"));
}

}  // namespace

void ValidateModelFamily(const v1::Model& model, KeyReport* report) {
  if (report->HasFaultWithin("model.image_family")) return;
  CheckFamilyNumbers(model, report);
  CheckAxes(model, report);
  CheckForm(model, report);
  CheckDevice(model, report);
}

}  // namespace ballast
