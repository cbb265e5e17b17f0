// ballast_batch_*: what a batch holds.

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/call.h"
#include "trainer_shim/c_api/handles.h"

namespace ballast {
namespace {

absl::StatusOr<const BatchView*> ViewIn(const ballast_batch* batch) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  if (batch->view == nullptr) {
    return absl::InvalidArgumentError(
        "the batch is gone: it was valid until the next call for one, which "
        "failed");
  }
  return batch->view;
}

absl::Status CheckIndex(const char* what, uint32_t index, size_t count) {
  if (index < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no ", what, " number ", index, ": the batch has ", count));
}

absl::Status GetInfo(const ballast_batch* batch, ballast_batch_info* out) {
  BALLAST_ASSIGN_OR_RETURN(const BatchView* view, ViewIn(batch));
  ballast_batch_info info = {};
  info.module = view->role.module();
  info.dp_rank = view->role.dp_rank();
  info.tp_rank = batch->shim->place.tp_rank;
  info.pp_rank = batch->shim->place.pp_rank;
  info.cp_rank = batch->shim->place.cp_rank;
  info.step = view->step;
  info.micro_batch = view->micro_batch;
  info.num_micro_batches = view->num_micro_batches;
  info.num_tensors = view->tensors.size();
  info.num_samples = view->samples->size();
  info.max_seqlen = view->max_seqlen;
  info.vision_max_seqlen = view->vision_max_seqlen;
  info.dummy_image = view->dummy_image;
  info.bytes_read = view->bytes_read;
  info.bytes_moved = view->bytes_moved;
  info.pack_ms = view->pack_ms;
  return WriteStruct(info, out, "info");
}

absl::Status GetTensor(const ballast_batch* batch, uint32_t index,
                       ballast_tensor* out) {
  BALLAST_ASSIGN_OR_RETURN(const BatchView* view, ViewIn(batch));
  BALLAST_RETURN_IF_ERROR(CheckIndex("tensor", index, view->tensors.size()));
  const TensorView& from = view->tensors[index];
  ballast_tensor tensor = {};
  tensor.dtype = from.dtype;
  tensor.name = from.name;
  tensor.data = const_cast<void*>(from.data);
  tensor.device_type = from.device_type;
  tensor.device_id = from.device_id;
  tensor.ndim = from.shape.size();
  std::copy(from.shape.begin(), from.shape.end(), tensor.shape);
  return WriteStruct(tensor, out, "tensor");
}

absl::Status GetSample(const ballast_batch* batch, uint32_t index,
                       ballast_sample* out) {
  BALLAST_ASSIGN_OR_RETURN(const BatchView* view, ViewIn(batch));
  BALLAST_RETURN_IF_ERROR(CheckIndex("sample", index, view->samples->size()));
  const PackedSample& from = (*view->samples)[index];
  ballast_sample sample = {};
  sample.source = from.source;
  sample.position = from.position;
  sample.ordinal = from.ordinal;
  sample.name = from.name.c_str();
  sample.placeholder = view->placeholders == nullptr
                           ? from.placeholder
                           : view->placeholders[index] != 0;
  return WriteStruct(sample, out, "sample");
}

absl::Status GetTotals(const ballast_batch* batch, int of,
                       ballast_totals* out) {
  BALLAST_ASSIGN_OR_RETURN(const BatchView* view, ViewIn(batch));
  const PackedTotals* from = nullptr;
  switch (of) {
    case BALLAST_TOTALS_RANK:
      from = &view->totals;
      break;
    case BALLAST_TOTALS_MICRO_BATCH:
      from = &view->micro_batch_totals;
      break;
    case BALLAST_TOTALS_STEP:
      from = &view->step_totals;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("there are no totals of ", of,
                       ", wanted a ballast_totals_of, 0 to 2"));
  }
  ballast_totals totals = {};
  totals.samples = from->samples;
  totals.tokens = from->tokens;
  totals.tokens_squared = from->tokens_squared;
  totals.padded_tokens = from->padded_tokens;
  totals.padded_tokens_squared = from->padded_tokens_squared;
  totals.label_tokens = from->label_tokens;
  totals.patches = from->patches;
  totals.images = from->images;
  return WriteStruct(totals, out, "totals");
}

absl::Status GetDigest(const ballast_batch* batch, void* stream, char* digest) {
  BALLAST_RETURN_IF_ERROR(ViewIn(batch).status());
  BALLAST_RETURN_IF_ERROR(CheckGiven(digest, "digest"));
  BALLAST_ASSIGN_OR_RETURN(const std::string hex,
                           batch->shim->feed->Digest(stream));
  std::memcpy(digest, hex.c_str(), hex.size() + 1);
  return absl::OkStatus();
}

}  // namespace
}  // namespace ballast

int ballast_batch_get_info(const ballast_batch* batch,
                           ballast_batch_info* info) {
  return ballast::Call([=] { return ballast::GetInfo(batch, info); });
}

int ballast_batch_get_tensor(const ballast_batch* batch, uint32_t index,
                             ballast_tensor* tensor) {
  return ballast::Call(
      [=] { return ballast::GetTensor(batch, index, tensor); });
}

int ballast_batch_get_sample(const ballast_batch* batch, uint32_t index,
                             ballast_sample* sample) {
  return ballast::Call(
      [=] { return ballast::GetSample(batch, index, sample); });
}

int ballast_batch_get_totals(const ballast_batch* batch, int of,
                             ballast_totals* totals) {
  return ballast::Call([=] { return ballast::GetTotals(batch, of, totals); });
}

int ballast_batch_digest(const ballast_batch* batch, void* stream,
                         char* digest) {
  return ballast::Call(
      [=] { return ballast::GetDigest(batch, stream, digest); });
}
