#include "trainer_shim/cuda/in_process_device_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/host/in_process_communicator.h"

namespace ballast {
namespace {

// Sent from the sender of a slice to its receiver and, once the copy is
// enqueued, back (`ready` only).
struct Note {
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
  cudaEvent_t ready = nullptr;
};

absl::Span<const uint8_t> GetBytes(const Note& note) {
  return {reinterpret_cast<const uint8_t*>(&note), sizeof(note)};
}
absl::Span<uint8_t> GetBytes(Note* note) {
  return {reinterpret_cast<uint8_t*>(note), sizeof(*note)};
}

// An in-process host communicator carries the notes and implements joining,
// leaving and aborting.
class InProcessDeviceCommunicator : public Communicator {
 public:
  explicit InProcessDeviceCommunicator(std::unique_ptr<Communicator> control)
      : control_(std::move(control)) {}

  uint32_t rank() const override { return control_->rank(); }
  uint32_t size() const override { return control_->size(); }

  bool on_device() const override { return true; }

  absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                         absl::Span<const ReceiveSlice> receives,
                         StreamHandle stream) override {
    const absl::Status status =
        Exchange(sends, receives, static_cast<cudaStream_t>(stream));
    if (!status.ok()) control_->Abort(status);
    return status;
  }

  // Between threads every error is returned by the call itself.
  absl::Status Check() override { return absl::OkStatus(); }

  void Abort(const absl::Status& reason) override { control_->Abort(reason); }

 private:
  absl::Status Exchange(absl::Span<const SendSlice> sends,
                        absl::Span<const ReceiveSlice> receives,
                        cudaStream_t stream) {
    if (ready_.get() == nullptr) {
      BALLAST_ASSIGN_OR_RETURN(ready_, Event::Create());
      BALLAST_ASSIGN_OR_RETURN(copied_, Event::Create());
    }
    BALLAST_RETURN_IF_ERROR(ready_.Record(stream));
    std::vector<Note> sent;
    for (const SendSlice& slice : sends) {
      sent.push_back({slice.bytes.data(), slice.bytes.size(), ready_.get()});
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

  // Exchanges notes: one to the peer of each slice of `to`, one from the peer
  // of each slice of `from`.
  template <typename To, typename From>
  absl::Status Tell(absl::Span<const To> to, const std::vector<Note>& notes,
                    absl::Span<const From> from, std::vector<Note>* answers) {
    std::vector<SendSlice> sends;
    for (size_t i = 0; i < to.size(); ++i) {
      sends.push_back({to[i].peer, GetBytes(notes[i])});
    }
    std::vector<ReceiveSlice> receives;
    for (size_t i = 0; i < from.size(); ++i) {
      receives.push_back({from[i].peer, GetBytes(&(*answers)[i])});
    }
    return control_->AllToAllV(sends, receives, nullptr);
  }

  absl::Status Copy(const Note& note, const ReceiveSlice& to,
                    cudaStream_t stream) const {
    if (note.bytes != to.bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", to.peer, " sends ", note.bytes, " bytes to rank ", rank(),
          ", which expects ", to.bytes.size(),
          "; the two follow different schedules or steps"));
    }
    if (to.bytes.empty()) return absl::OkStatus();
    BALLAST_RETURN_IF_ERROR(StreamWait(stream, note.ready));
    return CudaStatus(cudaMemcpyAsync(to.bytes.data(), note.data, note.bytes,
                                      cudaMemcpyDefault, stream),
                      "copy from a peer");
  }

  const std::unique_ptr<Communicator> control_;
  Event ready_;   // this rank's sends are in place
  Event copied_;  // this rank has copied its receives
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> InProcessDeviceGroup(uint32_t size) {
  std::vector<std::unique_ptr<Communicator>> ends;
  for (std::unique_ptr<Communicator>& control : InProcessGroup(size)) {
    ends.push_back(
        std::make_unique<InProcessDeviceCommunicator>(std::move(control)));
  }
  return ends;
}

}  // namespace ballast
