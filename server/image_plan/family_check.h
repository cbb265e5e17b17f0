#ifndef BALLAST_SERVER_IMAGE_PLAN_FAMILY_CHECK_H_
#define BALLAST_SERVER_IMAGE_PLAN_FAMILY_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/image_plan/image_family.h"

namespace ballast {

// A number or text of a family that its rule cannot take. `key` is the field's
// name, with `[i]` and `.` for parts: "canvases[2].width", "marks.row_end".
struct FamilyFault {
  std::string key;
  std::string found;
  std::string wanted;
};

// The first fault of a family, in the order of its fields; nullopt if images of
// it can be planned.
std::optional<FamilyFault> FindFamilyFault(const ImageFamily& family);

// Whether a rule reads a number (a field of ImageFamily, such as "max_tiles").
// True for those that every rule reads, and for layout, filter and marks.
bool ReadsNumber(ImageRule rule, absl::string_view key);

// Whether every crop of the family is tile x tile pixels.
bool HasSquareCrops(const ImageFamily& family);

// What is wanted in place of `axes` axes of a position id; "" if the family's
// images can be counted on so many (0 stands for 1).
std::string FindAxesFault(const ImageFamily& family, uint32_t axes);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_FAMILY_CHECK_H_
