// ballast_shim_*, ballast_query_job, ballast_checkpoint_read, ballast_bytes_*.

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/attach_all.h"
#include "client/loader_client.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/schedule_table.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/call.h"
#include "trainer_shim/c_api/checkpoint.h"
#include "trainer_shim/c_api/cuda_support.h"
#include "trainer_shim/embedding_moves.h"
#include "trainer_shim/host/trainer_shim.h"
#include "trainer_shim/role_source.h"

namespace ballast {
namespace {

absl::Status QueryJob(const ballast_connection* connection,
                      ballast_bytes** job) {
  SendLibraryLogsToLog();
  BALLAST_RETURN_IF_ERROR(CheckGiven(job, "job"));
  BALLAST_ASSIGN_OR_RETURN(const Connection known, GetConnection(connection));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<std::unique_ptr<LoaderClient>> clients,
      GetClients(known.servers));
  std::vector<LoaderClient*> servers;
  for (const auto& client : clients) servers.push_back(client.get());
  BALLAST_ASSIGN_OR_RETURN(
      const v1::AttachResponse attached,
      AttachAll(servers, {}, {}, known.failover.start_patience));
  *job = NewBytes(JobToJson(attached.job(), attached.fingerprint()));
  return absl::OkStatus();
}

absl::Status CheckEnd(const ballast_communicator* given,
                      ballast_backend backend, const char* name) {
  if (given == nullptr) return absl::OkStatus();
  const ballast_backend of =
      given->end->on_device() ? BALLAST_BACKEND_CUDA : BALLAST_BACKEND_HOST;
  if (of == backend) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("options.", name, " is of backend ", of,
                   ", wanted one of options.backend, ", backend));
}

absl::StatusOr<std::unique_ptr<RankShim>> MakeHostShim(ShimOptions options) {
  TrainerShim::Options shim;
  static_cast<RankShim::Options&>(shim) = std::move(options.shim);
  shim.pixel_type = options.pixel_type;
  shim.normalisation = options.normalisation;
  return TrainerShim::Create(std::move(shim));
}

absl::Status Create(const ballast_shim_options* given, ballast_shim** shim) {
  SendLibraryLogsToLog();
  BALLAST_ASSIGN_OR_RETURN(const ballast_shim_options known,
                           ReadStruct(given, "options"));
  // From here on this call owns the communicators, even if it fails.
  const std::unique_ptr<ballast_communicator> data(known.communicator);
  if (data != nullptr && known.tensor_communicator == data.get()) {
    return absl::InvalidArgumentError(
        "options.communicator and options.tensor_communicator are one end, "
        "wanted ends of two groups");
  }
  const std::unique_ptr<ballast_communicator> tensor(known.tensor_communicator);
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  BALLAST_ASSIGN_OR_RETURN(ShimOptions options, GetShimOptions(known));
  BALLAST_RETURN_IF_ERROR(
      CheckEnd(data.get(), options.backend, "communicator"));
  BALLAST_RETURN_IF_ERROR(
      CheckEnd(tensor.get(), options.backend, "tensor_communicator"));
  // The shim's errors abort them.
  if (data != nullptr) options.shim.communicator = std::move(data->end);
  if (tensor != nullptr) {
    options.shim.tensor_communicator = std::move(tensor->end);
  }
  // A tensor peer that receives its batches pulls none, so it does not request
  // direct delivery.
  const bool receives = options.shim.tensor_communicator != nullptr &&
                        options.shim.source.place.tp_rank != 0;
  if (options.backend == BALLAST_BACKEND_HOST &&
      options.shim.communicator == nullptr && !receives) {
    options.shim.source.role.set_delivery(v1::DELIVERY_DIRECT);
  }
  auto made = std::make_unique<ballast_shim>();
  BALLAST_ASSIGN_OR_RETURN(made->shim, options.backend == BALLAST_BACKEND_CUDA
                                           ? MakeCudaShim(std::move(options))
                                           : MakeHostShim(std::move(options)));
  *shim = made.release();
  return absl::OkStatus();
}

using Take = absl::StatusOr<BatchRef<BatchInfo>> (RankShim::*)(StreamHandle);
absl::Status TakeBatch(Take take, ballast_shim* shim, void* stream,
                       const ballast_batch** batch) {
  BALLAST_RETURN_IF_ERROR(CheckStream(shim, stream));
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  BALLAST_ASSIGN_OR_RETURN(BatchRef<BatchInfo> taken,
                           (shim->shim.get()->*take)(stream));
  *batch = GetHandle(taken.Detach());
  return absl::OkStatus();
}

absl::Status BatchesHeld(const ballast_shim* shim, uint32_t* held) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(held, "held"));
  *held = shim->shim->batches_held();
  return absl::OkStatus();
}

absl::Status NumMicroBatches(ballast_shim* shim, uint64_t step,
                             uint32_t* number) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(number, "number"));
  BALLAST_ASSIGN_OR_RETURN(*number, shim->shim->NumMicroBatches(step));
  return absl::OkStatus();
}

absl::Status SendToTensorPeers(ballast_shim* shim, void* stream) {
  BALLAST_RETURN_IF_ERROR(CheckStream(shim, stream));
  return shim->shim->SendToTensorPeers(stream);
}

absl::Status ReportTiming(ballast_shim* shim, uint64_t step,
                          uint32_t micro_batch, double milliseconds) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  return shim->shim->ReportTiming(step, micro_batch, milliseconds);
}

absl::Status Cancel(ballast_shim* shim) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  shim->shim->Cancel();
  return absl::OkStatus();
}

absl::Status Job(const ballast_shim* shim, ballast_bytes** job) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(job, "job"));
  *job = NewBytes(JobToJson(shim->shim->job(), shim->shim->fingerprint()));
  return absl::OkStatus();
}

absl::Status Schedule(const ballast_shim* shim, ballast_bytes** schedule) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(schedule, "schedule"));
  if (shim->shim->schedule() == nullptr) {
    return absl::FailedPreconditionError(
        "there is no batch whose schedule this could be: call "
        "ballast_shim_next before");
  }
  *schedule = NewBytes(ScheduleToJson(*shim->shim->schedule()));
  return absl::OkStatus();
}

absl::Status Checkpoint(const ballast_shim* shim, uint64_t next_step,
                        ballast_bytes** checkpoint) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(checkpoint, "checkpoint"));
  v1::Checkpoint message;
  message.set_next_step(next_step == BALLAST_AFTER_LAST_STEP
                            ? shim->shim->next_step()
                            : next_step);
  *message.mutable_fingerprint() = shim->shim->fingerprint();
  message.set_split(shim->shim->job().split());
  for (v1::Revision& revision :
       shim->shim->RevisionsBefore(message.next_step())) {
    *message.add_revisions() = std::move(revision);
  }
  *checkpoint = NewBytes(CheckpointBytes(message));
  return absl::OkStatus();
}

// Copies as much as fits, and appends a 0.
template <size_t kSize>
void CopyText(const std::string& text, char (&out)[kSize]) {
  const size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(out, text.data(), size);
  out[size] = '\0';
}

absl::Status ReadCheckpoint(const void* bytes, size_t size,
                            ballast_checkpoint_info* out) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(bytes, "checkpoint"));
  BALLAST_ASSIGN_OR_RETURN(
      const v1::Checkpoint checkpoint,
      ParseCheckpoint({static_cast<const char*>(bytes), size}));
  ballast_checkpoint_info info = {};
  info.split = checkpoint.split();
  info.next_step = checkpoint.next_step();
  CopyText(checkpoint.fingerprint().hash(), info.fingerprint);
  CopyText(checkpoint.fingerprint().data_hash(), info.data_fingerprint);
  return WriteStruct(info, out, "info");
}

constexpr uint64_t kMaxWidth = uint64_t{1} << 32;

absl::StatusOr<uint64_t> ElementBytes(int32_t dtype) {
  switch (dtype) {
    case BALLAST_BFLOAT16:
    case BALLAST_FLOAT16:
      return 2;
    case BALLAST_FLOAT32:
      return 4;
    case BALLAST_FLOAT64:
      return 8;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "rows.dtype is ", dtype,
          ", wanted BALLAST_FLOAT32 (4), BALLAST_BFLOAT16 (5), BALLAST_FLOAT16 "
          "(7) or BALLAST_FLOAT64 (8)"));
  }
}

absl::StatusOr<EmbeddingRows> GetRows(const ballast_embedding_rows* given) {
  BALLAST_ASSIGN_OR_RETURN(const ballast_embedding_rows known,
                           ReadStruct(given, "rows"));
  EmbeddingRows rows;
  BALLAST_ASSIGN_OR_RETURN(const uint64_t element, ElementBytes(known.dtype));
  if (known.width == 0 || known.width > kMaxWidth) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows.width is ", known.width, ", wanted 1 to ", kMaxWidth,
                     " elements"));
  }
  rows.row_bytes = element * known.width;
  rows.tower = static_cast<uint8_t*>(known.tower);
  rows.tower_rows = known.tower_rows;
  rows.text = static_cast<uint8_t*>(known.text);
  rows.text_rows = known.text_rows;
  return rows;
}

absl::Status Exchange(ballast_shim* shim, const ballast_batch* batch,
                      const ballast_embedding_rows* given,
                      EmbeddingDirection direction, void* stream) {
  BALLAST_RETURN_IF_ERROR(CheckStream(shim, stream));
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  BALLAST_ASSIGN_OR_RETURN(const EmbeddingRows rows, GetRows(given));
  return shim->shim->ExchangeEmbeddings(GetEntry(batch)->info(), rows,
                                        direction, stream);
}

}  // namespace
}  // namespace ballast

int ballast_has_backend(int backend) {
  return backend == BALLAST_BACKEND_HOST ||
         (backend == BALLAST_BACKEND_CUDA && ballast::HasCuda());
}

const char* ballast_bytes_data(const ballast_bytes* bytes) {
  return bytes == nullptr ? nullptr : bytes->bytes.c_str();
}

size_t ballast_bytes_size(const ballast_bytes* bytes) {
  return bytes == nullptr ? 0 : bytes->bytes.size();
}

void ballast_bytes_free(ballast_bytes* bytes) { delete bytes; }

int ballast_query_job(const ballast_connection* connection,
                      ballast_bytes** job) {
  return ballast::Call([=] { return ballast::QueryJob(connection, job); });
}

int ballast_shim_create(const ballast_shim_options* options,
                        ballast_shim** shim) {
  return ballast::Call([=] { return ballast::Create(options, shim); });
}

void ballast_shim_destroy(ballast_shim* shim) { delete shim; }

int ballast_shim_next(ballast_shim* shim, void* stream,
                      const ballast_batch** batch) {
  return ballast::Call([=] {
    return ballast::TakeBatch(&ballast::RankShim::Next, shim, stream, batch);
  });
}

int ballast_shim_send_to_tensor_peers(ballast_shim* shim, void* stream) {
  return ballast::Call(
      [=] { return ballast::SendToTensorPeers(shim, stream); });
}

int ballast_shim_receive_from_tensor_peer(ballast_shim* shim, void* stream,
                                          const ballast_batch** batch) {
  return ballast::Call([=] {
    return ballast::TakeBatch(&ballast::RankShim::ReceiveFromTensorPeer, shim,
                              stream, batch);
  });
}

int ballast_shim_batches_held(const ballast_shim* shim, uint32_t* held) {
  return ballast::Call([=] { return ballast::BatchesHeld(shim, held); });
}

int ballast_shim_num_micro_batches(ballast_shim* shim, uint64_t step,
                                   uint32_t* number) {
  return ballast::Call(
      [=] { return ballast::NumMicroBatches(shim, step, number); });
}

int ballast_shim_cancel(ballast_shim* shim) {
  return ballast::Call([=] { return ballast::Cancel(shim); });
}

int ballast_shim_report_timing(ballast_shim* shim, uint64_t step,
                               uint32_t micro_batch, double milliseconds) {
  return ballast::Call([=] {
    return ballast::ReportTiming(shim, step, micro_batch, milliseconds);
  });
}

int ballast_shim_job(const ballast_shim* shim, ballast_bytes** job) {
  return ballast::Call([=] { return ballast::Job(shim, job); });
}

int ballast_shim_schedule(const ballast_shim* shim, ballast_bytes** schedule) {
  return ballast::Call([=] { return ballast::Schedule(shim, schedule); });
}

int ballast_shim_checkpoint(const ballast_shim* shim, uint64_t next_step,
                            ballast_bytes** checkpoint) {
  return ballast::Call(
      [=] { return ballast::Checkpoint(shim, next_step, checkpoint); });
}

int ballast_checkpoint_read(const void* checkpoint, size_t size,
                            ballast_checkpoint_info* info) {
  return ballast::Call(
      [=] { return ballast::ReadCheckpoint(checkpoint, size, info); });
}

int ballast_shim_exchange_embeddings(ballast_shim* shim,
                                     const ballast_batch* batch,
                                     const ballast_embedding_rows* rows,
                                     void* stream) {
  return ballast::Call([=] {
    return ballast::Exchange(shim, batch, rows,
                             ballast::EmbeddingDirection::kToText, stream);
  });
}

int ballast_shim_return_gradients(ballast_shim* shim,
                                  const ballast_batch* batch,
                                  const ballast_embedding_rows* rows,
                                  void* stream) {
  return ballast::Call([=] {
    return ballast::Exchange(shim, batch, rows,
                             ballast::EmbeddingDirection::kToTower, stream);
  });
}
