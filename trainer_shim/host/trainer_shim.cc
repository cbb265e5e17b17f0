#include "trainer_shim/host/trainer_shim.h"

#include <utility>

#include "common/status_macros.h"
#include "trainer_shim/host/host_batch_maker.h"

namespace ballast {

TrainerShim::TrainerShim(Options options)
    : RankShim(std::move(options),
               std::make_unique<HostBatchMaker>(options.pixel_type,
                                                options.normalisation)) {}

absl::StatusOr<std::unique_ptr<TrainerShim>> TrainerShim::Create(
    Options options) {
  auto clients = GetClients(options.servers);
  std::unique_ptr<TrainerShim> shim(new TrainerShim(std::move(options)));
  BALLAST_RETURN_IF_ERROR(shim->Open(std::move(clients)));
  return shim;
}

absl::StatusOr<std::unique_ptr<TrainerShim>> TrainerShim::Create(
    Options options, std::vector<std::unique_ptr<LoaderClient>> clients) {
  std::unique_ptr<TrainerShim> shim(new TrainerShim(std::move(options)));
  BALLAST_RETURN_IF_ERROR(shim->Open(std::move(clients)));
  return shim;
}

absl::StatusOr<BatchRef<PackedBatch>> TrainerShim::Next() {
  return CastBatch<PackedBatch>(RankShim::Next(nullptr));
}

absl::StatusOr<BatchRef<PackedBatch>> TrainerShim::ReceiveFromTensorPeer() {
  return CastBatch<PackedBatch>(RankShim::ReceiveFromTensorPeer(nullptr));
}

}  // namespace ballast
