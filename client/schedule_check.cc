#include "client/schedule_check.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/module.h"

namespace ballast {
namespace {

// Far above any image, and small enough that sizes in bytes fit 64 bits.
constexpr uint32_t kMaxGridSide = 1 << 16;

absl::Status Wrong(absl::string_view what, uint64_t found, uint64_t wanted) {
  return absl::InternalError(
      absl::StrCat(what, " is ", found, ", wanted ", wanted));
}

absl::Status CheckLength(absl::string_view column, int found, int wanted) {
  if (found == wanted) return absl::OkStatus();
  return Wrong(absl::StrCat("length of ", column), found, wanted);
}

// Every value of `column` is below `limit`.
template <typename Column>
absl::Status CheckBelow(absl::string_view name, const Column& column,
                        uint64_t limit) {
  for (const auto value : column) {
    if (value >= limit) {
      return absl::InternalError(
          absl::StrCat(name, " holds ", value, ", wanted less than ", limit));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModule(const v1::ModuleSchedule& module, int samples) {
  BALLAST_RETURN_IF_ERROR(CheckLength("cost", module.cost_size(), samples));
  BALLAST_RETURN_IF_ERROR(CheckLength("reader", module.reader_size(), samples));
  BALLAST_RETURN_IF_ERROR(CheckLength("owner", module.owner_size(), samples));
  BALLAST_RETURN_IF_ERROR(CheckLength("load_before", module.load_before_size(),
                                      module.load_after_size()));
  const uint64_t ranks = module.load_after_size();
  BALLAST_RETURN_IF_ERROR(CheckBelow("reader", module.reader(), ranks));
  return CheckBelow("owner", module.owner(), ranks);
}

absl::Status CheckMicroBatch(const v1::MicroBatchSchedule& micro_batch,
                             const v1::StepSchedule& schedule) {
  const int samples = micro_batch.tokens_size();
  BALLAST_RETURN_IF_ERROR(
      CheckLength("source", micro_batch.source_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("ordinal", micro_batch.ordinal_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("images", micro_batch.images_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("label_tokens", micro_batch.label_tokens_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("slot", micro_batch.slot_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("place", micro_batch.place_size(), samples));

  uint64_t images = 0;
  for (const uint32_t n : micro_batch.images()) images += n;
  const uint64_t grids = micro_batch.grid_h_size();
  if (grids != images) return Wrong("length of grid_h", grids, images);
  BALLAST_RETURN_IF_ERROR(CheckLength("grid_w", micro_batch.grid_w_size(),
                                      micro_batch.grid_h_size()));

  BALLAST_RETURN_IF_ERROR(
      CheckBelow("source", micro_batch.source(), schedule.sources_size()));
  BALLAST_RETURN_IF_ERROR(
      CheckBelow("slot", micro_batch.slot(), schedule.micro_batches_size()));
  BALLAST_RETURN_IF_ERROR(
      CheckBelow("grid_h", micro_batch.grid_h(), kMaxGridSide));
  BALLAST_RETURN_IF_ERROR(
      CheckBelow("grid_w", micro_batch.grid_w(), kMaxGridSide));

  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckModule(module, samples), ModuleName(module.module())));
  }
  return absl::OkStatus();
}

// The places of each slot are 0, 1, 2, …, each once.
absl::Status CheckPlaces(const v1::StepSchedule& schedule) {
  std::vector<uint32_t> samples(schedule.micro_batches_size());
  for (const auto& micro_batch : schedule.micro_batches()) {
    for (const uint32_t slot : micro_batch.slot()) ++samples[slot];
  }
  std::vector<std::vector<bool>> taken;
  for (const uint32_t n : samples) taken.emplace_back(n);
  for (const auto& micro_batch : schedule.micro_batches()) {
    for (int i = 0; i < micro_batch.slot_size(); ++i) {
      const uint32_t slot = micro_batch.slot(i);
      const uint32_t place = micro_batch.place(i);
      if (place >= samples[slot] || taken[slot][place]) {
        return absl::InternalError(absl::StrCat(
            "slot ", slot, " of ", samples[slot], " samples holds place ",
            place, place < samples[slot] ? " twice" : ""));
      }
      taken[slot][place] = true;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSchedule(const v1::StepSchedule& schedule) {
  const std::string context =
      absl::StrCat("malformed schedule of step ", schedule.step());
  for (int m = 0; m < schedule.micro_batches_size(); ++m) {
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckMicroBatch(schedule.micro_batches(m), schedule),
                 absl::StrCat(context, ": micro-batch ", m)));
  }
  return Annotate(CheckPlaces(schedule), context);
}

}  // namespace ballast
