#include "trainer_shim/cuda/nccl_communicator.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/nccl_connect.h"

namespace ballast {
namespace {

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const NcclApi* nccl, const NcclPair& pair, uint32_t rank,
                   uint32_t size)
      : nccl_(nccl),
        rank_(rank),
        size_(size),
        parent_(pair.parent),
        communicator_(pair.exchange) {
    // Without a device, 0: NCCL's calls say so.
    cudaGetDevice(&device_);
  }

  ~NcclCommunicator() override {
    const CurrentDevice current(device_);
    MutexLock abort_lock(&abort_mutex_);
    MutexLock lock(&mutex_);
    Leave(communicator_);
    Leave(parent_);
  }

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }

  bool on_device() const override { return true; }

  absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                         absl::Span<const ReceiveSlice> receives,
                         StreamHandle stream) override {
    BALLAST_RETURN_IF_ERROR(CheckPeers(sends));
    BALLAST_RETURN_IF_ERROR(CheckPeers(receives));
    return InGroup([&](ncclComm_t communicator) {
      return Enqueue(sends, receives, communicator,
                     static_cast<cudaStream_t>(stream));
    });
  }

  absl::Status Broadcast(uint32_t root,
                         absl::Span<const absl::Span<uint8_t>> slices,
                         StreamHandle stream) override {
    if (root >= size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a broadcast from rank ", root, " of ", size_));
    }
    return InGroup([&](ncclComm_t communicator) {
      for (const absl::Span<uint8_t>& slice : slices) {
        BALLAST_RETURN_IF_ERROR(NcclStatus(
            *nccl_,
            nccl_->Broadcast(slice.data(), slice.data(), slice.size(),
                             ncclUint8, root, communicator,
                             static_cast<cudaStream_t>(stream)),
            "ncclBroadcast"));
      }
      return absl::OkStatus();
    });
  }

  absl::Status Check() override {
    MutexLock lock(&mutex_);
    BALLAST_RETURN_IF_ERROR(end_);
    ncclResult_t result = ncclSuccess;
    BALLAST_RETURN_IF_ERROR(
        NcclStatus(*nccl_, nccl_->CommGetAsyncError(communicator_, &result),
                   "asking for asynchronous errors"));
    return NcclStatus(*nccl_, result, "exchange");
  }

  void Abort(const absl::Status& reason) override {
    const CurrentDevice current(device_);
    MutexLock abort_lock(&abort_mutex_);
    {
      MutexLock lock(&mutex_);
      if (communicator_ == nullptr) return;
      end_ = reason;
    }
    // Ends a call that waits inside NCCL for a peer.
    AbortNow(std::exchange(parent_, nullptr));
    ncclComm_t communicator = nullptr;
    {
      // NCCL would free the communicator during the call.
      MutexLock lock(&mutex_);
      while (calling_) changed_.Wait(&mutex_);
      communicator = std::exchange(communicator_, nullptr);
    }
    AbortNow(communicator);
  }

 private:
  void Log(ncclResult_t result, absl::string_view what) const {
    const absl::Status status = NcclStatus(*nccl_, result, what);
    if (!status.ok()) LogError(status.message());
  }
  void Leave(ncclComm_t communicator) const {
    if (communicator == nullptr) return;
    Log(nccl_->CommDestroy(communicator), "leaving the communicator");
  }
  void AbortNow(ncclComm_t communicator) const {
    if (communicator == nullptr) return;
    Log(nccl_->CommAbort(communicator), "aborting the communicator");
  }

  // Runs `enqueue` as one NCCL group, which is closed even if it fails. NCCL
  // connects ranks when they first exchange, and waits for them: neither Check
  // nor the beginning of Abort may wait for that.
  template <typename Body>
  absl::Status InGroup(const Body& enqueue) {
    ncclComm_t communicator = nullptr;
    {
      MutexLock lock(&mutex_);
      BALLAST_RETURN_IF_ERROR(end_);
      communicator = communicator_;
      calling_ = true;
    }
    const absl::Status called = CallInGroup(enqueue, communicator);
    MutexLock lock(&mutex_);
    calling_ = false;
    changed_.NotifyAll();
    return end_.ok() ? called : end_;
  }

  template <typename Body>
  absl::Status CallInGroup(const Body& enqueue, ncclComm_t communicator) {
    BALLAST_RETURN_IF_ERROR(
        NcclStatus(*nccl_, nccl_->GroupStart(), "ncclGroupStart"));
    const absl::Status queued = enqueue(communicator);
    const absl::Status closed =
        NcclStatus(*nccl_, nccl_->GroupEnd(), "ncclGroupEnd");
    return queued.ok() ? closed : queued;
  }

  template <typename Slice>
  absl::Status CheckPeers(absl::Span<const Slice> slices) const {
    for (const Slice& slice : slices) {
      if (slice.peer < size_ && slice.peer != rank_) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank_, " of ", size_, " exchanges with rank ", slice.peer));
    }
    return absl::OkStatus();
  }

  absl::Status Enqueue(absl::Span<const SendSlice> sends,
                       absl::Span<const ReceiveSlice> receives,
                       ncclComm_t communicator, cudaStream_t stream) {
    for (const SendSlice& slice : sends) {
      if (slice.bytes.empty()) continue;
      BALLAST_RETURN_IF_ERROR(
          NcclStatus(*nccl_,
                     nccl_->Send(slice.bytes.data(), slice.bytes.size(),
                                 ncclUint8, slice.peer, communicator, stream),
                     "ncclSend"));
    }
    for (const ReceiveSlice& slice : receives) {
      if (slice.bytes.empty()) continue;
      BALLAST_RETURN_IF_ERROR(
          NcclStatus(*nccl_,
                     nccl_->Recv(slice.bytes.data(), slice.bytes.size(),
                                 ncclUint8, slice.peer, communicator, stream),
                     "ncclRecv"));
    }
    return absl::OkStatus();
  }

  const NcclApi* const nccl_;
  const uint32_t rank_;
  const uint32_t size_;
  int device_ = 0;     // of both communicators
  Mutex abort_mutex_;  // held by the thread in Abort
  // Null once aborted.
  ncclComm_t parent_ ABSL_GUARDED_BY(abort_mutex_);
  Mutex mutex_ ABSL_ACQUIRED_AFTER(abort_mutex_);
  CondVar changed_;
  // Null once aborted.
  ncclComm_t communicator_ ABSL_GUARDED_BY(mutex_);
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;  // a thread is inside NCCL
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::string> MakeNcclId() {
  BALLAST_ASSIGN_OR_RETURN(const NcclApi* nccl, LoadNccl());
  ncclUniqueId id;
  BALLAST_RETURN_IF_ERROR(
      NcclStatus(*nccl, nccl->GetUniqueId(&id), "ncclGetUniqueId"));
  return std::string(id.internal, sizeof(id.internal));
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclOptions& options) {
  ncclUniqueId unique;
  if (id.size() != sizeof(unique.internal)) {
    return absl::InvalidArgumentError(absl::StrCat("an ncclUniqueId of ",
                                                   id.size(), " bytes, wanted ",
                                                   sizeof(unique.internal)));
  }
  if (rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " of a group of ", size));
  }
  BALLAST_ASSIGN_OR_RETURN(const NcclApi* nccl, LoadNccl());
  std::memcpy(unique.internal, id.data(), id.size());
  BALLAST_ASSIGN_OR_RETURN(const NcclPair pair,
                           ConnectNccl(*nccl, unique, rank, size, options));
  return NcclCommunicatorOver(nccl, pair, rank, size);
}

std::unique_ptr<Communicator> NcclCommunicatorOver(const NcclApi* nccl,
                                                   const NcclPair& pair,
                                                   uint32_t rank,
                                                   uint32_t size) {
  return std::make_unique<NcclCommunicator>(nccl, pair, rank, size);
}

absl::StatusOr<std::unique_ptr<Communicator>> MeetNcclCommunicator(
    LoaderClient* server, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const NcclOptions& options,
    const std::string& run) {
  std::string id;
  if (rank == 0) {
    BALLAST_ASSIGN_OR_RETURN(id, MakeNcclId());
  }
  BALLAST_ASSIGN_OR_RETURN(
      id, server->Rendezvous(group, rank, size, id, timeout, run));
  NcclOptions connect = options;
  connect.connect_timeout = timeout;
  return CreateNcclCommunicator(id, rank, size, connect);
}

absl::StatusOr<std::unique_ptr<Communicator>> BorrowNcclCommunicator(
    ncclComm_t trainers, const NcclOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const NcclApi* nccl, LoadNccl());
  int rank = 0;
  int size = 0;
  BALLAST_RETURN_IF_ERROR(NcclStatus(*nccl, nccl->CommUserRank(trainers, &rank),
                                     "ncclCommUserRank"));
  BALLAST_RETURN_IF_ERROR(
      NcclStatus(*nccl, nccl->CommCount(trainers, &size), "ncclCommCount"));
  BALLAST_ASSIGN_OR_RETURN(
      const NcclPair pair,
      SplitNccl(*nccl, trainers, rank, static_cast<uint32_t>(size), options));
  return NcclCommunicatorOver(nccl, pair, rank, size);
}

}  // namespace ballast
