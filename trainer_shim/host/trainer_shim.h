#ifndef BALLAST_TRAINER_SHIM_HOST_TRAINER_SHIM_H_
#define BALLAST_TRAINER_SHIM_HOST_TRAINER_SHIM_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/loader_client.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/patchify.h"
#include "trainer_shim/rank_shim.h"

namespace ballast {

// A trainer's shim with batches in host memory. RankShim documents the calls.
//
//   TrainerShim::Options options;
//   options.servers.addresses = {"unix:/run/ballast/a.sock"};
//   options.source.role.set_module(v1::MODULE_LANGUAGE);
//   options.source.role.set_dp_rank(3);
//   options.source.start_step = checkpoint.next_step;
//   options.communicator = std::move(communicator);  // rank 3 of 4
//   auto shim = TrainerShim::Create(std::move(options));
//   if (!shim.ok()) return shim.status();
//   while (true) {
//     absl::StatusOr<BatchRef<PackedBatch>> batch = (*shim)->Next();
//     if (absl::IsOutOfRange(batch.status())) break;  // all steps are done
//     if (!batch.ok()) return batch.status();
//     Train(**batch);  // or keep *batch for as long as it is needed
//   }
//
// The shim's own thread fetches blocks ahead; Next exchanges and packs.
class TrainerShim : public RankShim {
 public:
  struct Options : RankShim::Options {
    PixelType pixel_type = PixelType::kFloat32;
    Normalisation normalisation = Normalisation::kTorchvision;
  };

  // Attaches and begins to fetch. Blocks until every server has answered or
  // failed. Errors also abort the communicators: FAILED_PRECONDITION
  // (fingerprints differ, or the data are not the checkpoint's; names both
  // fingerprints and the first differing key), INVALID_ARGUMENT (no server, no
  // such role or place, an alignment that context parallelism cannot divide, a
  // communicator that is missing or has another rank or size; as
  // LoadChannelSecurity), UNAUTHENTICATED and PERMISSION_DENIED (TLS or the
  // token is refused), UNAVAILABLE and DEADLINE_EXCEEDED (no server answers:
  // each with its cause).
  static absl::StatusOr<std::unique_ptr<TrainerShim>> Create(Options options);
  // The same over existing clients; options.servers is ignored.
  static absl::StatusOr<std::unique_ptr<TrainerShim>> Create(
      Options options, std::vector<std::unique_ptr<LoaderClient>> clients);

  // As in RankShim.
  absl::StatusOr<BatchRef<PackedBatch>> Next();
  absl::Status SendToTensorPeers() {
    return RankShim::SendToTensorPeers(nullptr);
  }
  absl::StatusOr<BatchRef<PackedBatch>> ReceiveFromTensorPeer();

 private:
  explicit TrainerShim(Options options);
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_TRAINER_SHIM_H_
