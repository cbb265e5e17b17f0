#ifndef BALLAST_TRAINER_SHIM_C_API_RANK_FEED_H_
#define BALLAST_TRAINER_SHIM_C_API_RANK_FEED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "common/channel_security.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/c_api/batch_view.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/trainer_place.h"

namespace ballast {

// What ballast_connection says.
struct ServerOptions {
  std::vector<std::string> servers;
  SecurityFiles security;
  uint32_t streams = 1;
  FailoverOptions failover;
  std::string run;  // of this start of the job; may be empty
};

// What ballast_shim_options says, defaults filled in.
struct FeedOptions {
  ServerOptions servers;
  v1::Role role;
  TrainerPlace place;
  ballast_backend backend = BALLAST_BACKEND_HOST;
  int device = 0;
  PixelType pixel_type = PixelType::kFloat32;
  Normalisation normalisation = Normalisation::kTorchvision;
  uint64_t start_step = 0;
  uint64_t steps = 0;          // 0: as long as there are data
  v1::Fingerprint checkpoint;  // may be empty, as the next
  v1::Fingerprint fingerprint;
  uint64_t max_bytes = 0;
  bool overlap = true;
  absl::Duration timeout;
};

// One rank's end of a group of either backend: what ballast_communicator is.
class GroupEnd {
 public:
  virtual ~GroupEnd() = default;
  virtual ballast_backend backend() const = 0;
};

// What a rank takes over; each may be null.
struct GroupEnds {
  std::unique_ptr<GroupEnd> data;
  std::unique_ptr<GroupEnd> tensor;
};

// A shim of either backend, behind the C interface. Threads as there.
class RankFeed {
 public:
  virtual ~RankFeed() = default;

  // Whether Next takes a stream; without, it must be null.
  virtual bool has_streams() const = 0;
  // See ballast_shim_next. The view is valid until the next call.
  virtual absl::StatusOr<const BatchView*> Next(void* stream) = 0;
  // See ballast_shim_send_to_tensor_peers and _receive_from_tensor_peer.
  virtual absl::Status SendToTensorPeers(void* stream) = 0;
  virtual absl::StatusOr<const BatchView*> ReceiveFromTensorPeer(
      void* stream) = 0;
  virtual void Cancel() = 0;
  virtual absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                                    double milliseconds) = 0;
  // DigestOf the last batch.
  virtual absl::StatusOr<std::string> Digest(void* stream) = 0;

  virtual const v1::Job& job() const = 0;
  virtual const v1::Fingerprint& fingerprint() const = 0;
  // Of the last batch's step; null where there is no batch.
  virtual const v1::StepSchedule* schedule() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_RANK_FEED_H_
