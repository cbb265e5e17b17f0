// ballast_batch_*: references to a batch, and its contents.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/call.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {
namespace {

// The enumeration has the numbers of the C interface.
static_assert(static_cast<int>(ElementType::kInt32) == BALLAST_INT32);
static_assert(static_cast<int>(ElementType::kInt64) == BALLAST_INT64);
static_assert(static_cast<int>(ElementType::kFloat32) == BALLAST_FLOAT32);
static_assert(static_cast<int>(ElementType::kBfloat16) == BALLAST_BFLOAT16);
static_assert(static_cast<int>(ElementType::kBool) == BALLAST_BOOL);

absl::Status CheckIndex(const char* what, uint32_t index, size_t count) {
  if (index < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no ", what, " number ", index, ": the batch has ", count));
}

absl::Status GetInfo(const ballast_batch* batch, ballast_batch_info* out) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  const BatchInfo& from = GetEntry(batch)->info();
  ballast_batch_info info = {};
  info.module = from.role.module();
  info.dp_rank = from.role.dp_rank();
  info.tp_rank = from.place.tp_rank;
  info.pp_rank = from.place.pp_rank;
  info.cp_rank = from.place.cp_rank;
  info.step = from.step;
  info.micro_batch = from.micro_batch;
  info.num_micro_batches = from.num_micro_batches;
  info.num_tensors = GetEntry(batch)->tensors().size();
  info.num_samples = from.samples.size();
  info.max_seqlen = from.max_seqlen;
  info.vision_max_seqlen = from.vision_max_seqlen;
  info.dummy_image = from.dummy_image;
  info.bytes_read = from.bytes_read;
  info.bytes_moved = from.bytes_moved;
  info.pack_ms = absl::ToDoubleMilliseconds(GetEntry(batch)->pack_time());
  return WriteStruct(info, out, "info");
}

absl::Status WriteTensor(const TensorView& from, ballast_tensor* out) {
  const bool on_host = from.device == kHostMemory;
  ballast_tensor tensor = {};
  tensor.dtype = static_cast<int32_t>(from.type);
  tensor.name = from.name;
  tensor.data = const_cast<void*>(from.data);
  tensor.device_type = on_host ? BALLAST_DEVICE_CPU : BALLAST_DEVICE_CUDA;
  tensor.device_id = on_host ? 0 : from.device;
  tensor.ndim = from.shape.rank;
  std::copy(from.shape.sides.begin(), from.shape.sides.end(), tensor.shape);
  return WriteStruct(tensor, out, "tensor");
}

absl::Status GetTensor(const ballast_batch* batch, uint32_t index,
                       ballast_tensor* out) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  const std::vector<TensorView>& tensors = GetEntry(batch)->tensors();
  BALLAST_RETURN_IF_ERROR(CheckIndex("tensor", index, tensors.size()));
  return WriteTensor(tensors[index], out);
}

absl::Status GetTensorByName(const ballast_batch* batch, const char* name,
                             ballast_tensor* out) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(name, "name"));
  std::string names;
  for (const TensorView& tensor : GetEntry(batch)->tensors()) {
    if (std::strcmp(tensor.name, name) == 0) return WriteTensor(tensor, out);
    absl::StrAppend(&names, names.empty() ? "" : ", ", tensor.name);
  }
  return absl::NotFoundError(
      absl::StrCat("the batch has no tensor ", name, "; it has ",
                   names.empty() ? "none at this rank's place" : names));
}

absl::Status GetTable(ballast_bytes** out) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(out, "table"));
  const std::shared_ptr<const TensorTable> rows = MakeTensorTable();
  auto table = nlohmann::ordered_json::array();
  for (const TensorRow& row : *rows) {
    table.push_back({{"name", row.name},
                     {"dtype", std::string(ElementName(row.type))},
                     {"shape", row.shape},
                     {"receivers", std::string(GetReceivers(row.field))},
                     {"joins", std::string(JoinName(row.join))},
                     {"memory", std::string(MemoryName(row.memory))},
                     {"contents", row.contents}});
  }
  *out = NewBytes(table.dump());
  return absl::OkStatus();
}

absl::Status GetSample(const ballast_batch* batch, uint32_t index,
                       ballast_sample* out) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  const std::vector<PackedSample>& samples = GetEntry(batch)->info().samples;
  BALLAST_RETURN_IF_ERROR(CheckIndex("sample", index, samples.size()));
  const PackedSample& from = samples[index];
  ballast_sample sample = {};
  sample.source = from.source;
  sample.position = from.position;
  sample.ordinal = from.ordinal;
  sample.name = from.name.c_str();
  sample.placeholder = GetEntry(batch)->placeholder(index);
  return WriteStruct(sample, out, "sample");
}

absl::Status GetTotals(const ballast_batch* batch, int of,
                       ballast_totals* out) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  const BatchInfo& info = GetEntry(batch)->info();
  const PackedTotals* from = nullptr;
  switch (of) {
    case BALLAST_TOTALS_RANK:
      from = &info.totals;
      break;
    case BALLAST_TOTALS_MICRO_BATCH:
      from = &info.micro_batch_totals;
      break;
    case BALLAST_TOTALS_STEP:
      from = &info.step_totals;
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
  totals.videos = from->videos;
  totals.clips = from->clips;
  totals.frames = from->frames;
  return WriteStruct(totals, out, "totals");
}

absl::Status GetDigest(const ballast_batch* batch, void* stream, char* digest) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(digest, "digest"));
  BALLAST_ASSIGN_OR_RETURN(const std::string hex,
                           GetEntry(batch)->Digest(stream));
  std::memcpy(digest, hex.c_str(), hex.size() + 1);
  return absl::OkStatus();
}

absl::Status RecordStream(const ballast_batch* batch, void* stream) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  return GetEntry(batch)->RecordStream(stream);
}

}  // namespace
}  // namespace ballast

void ballast_batch_retain(const ballast_batch* batch) {
  if (batch != nullptr) ballast::GetEntry(batch)->Retain();
}

void ballast_batch_release(const ballast_batch* batch) {
  if (batch != nullptr) ballast::GetEntry(batch)->Release();
}

int ballast_batch_record_stream(const ballast_batch* batch, void* stream) {
  return ballast::Call([=] { return ballast::RecordStream(batch, stream); });
}

int ballast_batch_get_info(const ballast_batch* batch,
                           ballast_batch_info* info) {
  return ballast::Call([=] { return ballast::GetInfo(batch, info); });
}

int ballast_batch_get_tensor(const ballast_batch* batch, uint32_t index,
                             ballast_tensor* tensor) {
  return ballast::Call(
      [=] { return ballast::GetTensor(batch, index, tensor); });
}

int ballast_batch_find_tensor(const ballast_batch* batch, const char* name,
                              ballast_tensor* tensor) {
  return ballast::Call(
      [=] { return ballast::GetTensorByName(batch, name, tensor); });
}

int ballast_tensor_table(ballast_bytes** table) {
  return ballast::Call([=] { return ballast::GetTable(table); });
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
