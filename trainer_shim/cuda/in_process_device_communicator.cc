#include "trainer_shim/cuda/in_process_device_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_status.h"
#include "trainer_shim/host/in_process_communicator.h"

namespace ballast {
namespace {

// What a sender tells the receiver of a slice, and, once the copy is queued,
// the receiver the sender (`ready` only).
struct Note {
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
  cudaEvent_t ready = nullptr;
};

absl::Span<const uint8_t> BytesOf(const Note& note) {
  return {reinterpret_cast<const uint8_t*>(&note), sizeof(note)};
}
absl::Span<uint8_t> BytesOf(Note* note) {
  return {reinterpret_cast<uint8_t*>(note), sizeof(*note)};
}

// The host's communicator carries the notes, so that meeting, leaving and
// aborting are its own.
class InProcessDeviceCommunicator : public DeviceCommunicator {
 public:
  explicit InProcessDeviceCommunicator(std::unique_ptr<Communicator> control)
      : control_(std::move(control)) {}

  uint32_t rank() const override { return control_->rank(); }
  uint32_t size() const override { return control_->size(); }

  absl::Status AllToAllV(absl::Span<const DeviceSlice> sends,
                         absl::Span<const DeviceSlice> receives,
                         cudaStream_t stream) override {
    const absl::Status status = Exchange(sends, receives, stream);
    if (!status.ok()) control_->Abort(status);
    return status;
  }

  absl::Status Broadcast(uint32_t root, uint8_t* data, uint64_t bytes,
                         cudaStream_t stream) override {
    if (rank() != root) return AllToAllV({}, {{root, data, bytes}}, stream);
    std::vector<DeviceSlice> sends;
    for (uint32_t peer = 0; peer < size(); ++peer) {
      if (peer != root) sends.push_back({peer, data, bytes});
    }
    return AllToAllV(sends, {}, stream);
  }

  // What goes wrong between threads shows in the call itself.
  absl::Status Check() override { return absl::OkStatus(); }

  void Abort(const absl::Status& reason) override { control_->Abort(reason); }

 private:
  absl::Status Exchange(absl::Span<const DeviceSlice> sends,
                        absl::Span<const DeviceSlice> receives,
                        cudaStream_t stream) {
    if (ready_.get() == nullptr) {
      BALLAST_ASSIGN_OR_RETURN(ready_, Event::Create());
      BALLAST_ASSIGN_OR_RETURN(copied_, Event::Create());
    }
    BALLAST_RETURN_IF_ERROR(ready_.Record(stream));
    std::vector<Note> sent;
    for (const DeviceSlice& s : sends) {
      sent.push_back({s.data, s.bytes, ready_.get()});
    }
    std::vector<Note> received(receives.size());
    BALLAST_RETURN_IF_ERROR(Tell(sends, sent, receives, &received));
    for (size_t i = 0; i < receives.size(); ++i) {
      BALLAST_RETURN_IF_ERROR(Copy(received[i], receives[i], stream));
    }
    BALLAST_RETURN_IF_ERROR(copied_.Record(stream));

    const std::vector<Note> copied(receives.size(),
                                   Note{nullptr, 0, copied_.get()});
    std::vector<Note> taken(sends.size());
    BALLAST_RETURN_IF_ERROR(Tell(receives, copied, sends, &taken));
    for (const Note& note : taken) {
      BALLAST_RETURN_IF_ERROR(StreamWait(stream, note.ready));
    }
    return absl::OkStatus();
  }

  // One note to the peer of each slice of `to`, one from that of each of
  // `from`.
  absl::Status Tell(absl::Span<const DeviceSlice> to,
                    const std::vector<Note>& notes,
                    absl::Span<const DeviceSlice> from,
                    std::vector<Note>* answers) {
    std::vector<SendSlice> sends;
    for (size_t i = 0; i < to.size(); ++i) {
      sends.push_back({to[i].peer, BytesOf(notes[i])});
    }
    std::vector<ReceiveSlice> receives;
    for (size_t i = 0; i < from.size(); ++i) {
      receives.push_back({from[i].peer, BytesOf(&(*answers)[i])});
    }
    return control_->AllToAllV(sends, receives);
  }

  absl::Status Copy(const Note& note, const DeviceSlice& to,
                    cudaStream_t stream) const {
    if (note.bytes != to.bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", to.peer, " sends ", note.bytes,
                       " bytes to rank ", rank(), ", which expects ", to.bytes,
                       "; the two follow different schedules or steps"));
    }
    if (to.bytes == 0) return absl::OkStatus();
    BALLAST_RETURN_IF_ERROR(StreamWait(stream, note.ready));
    return CudaStatus(cudaMemcpyAsync(to.data, note.data, to.bytes,
                                      cudaMemcpyDefault, stream),
                      "copy from a peer");
  }

  const std::unique_ptr<Communicator> control_;
  Event ready_;   // all that this rank sends is there
  Event copied_;  // this rank has taken what it receives
};

}  // namespace

std::vector<std::unique_ptr<DeviceCommunicator>> InProcessDeviceGroup(
    uint32_t size) {
  std::vector<std::unique_ptr<DeviceCommunicator>> ends;
  for (std::unique_ptr<Communicator>& control : InProcessGroup(size)) {
    ends.push_back(
        std::make_unique<InProcessDeviceCommunicator>(std::move(control)));
  }
  return ends;
}

}  // namespace ballast
