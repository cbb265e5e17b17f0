#include "server/text/sentencepiece/helper_process.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/embedded_program.h"
#include "common/socket_bytes.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/text/sentencepiece/helper_image.h"
#include "server/text/sentencepiece/protocol.h"

namespace ballast {
namespace {

using sentencepiece_helper::EncodeRequest;
using sentencepiece_helper::Outcome;
using sentencepiece_helper::Reply;
using sentencepiece_helper::StartRequest;

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
// Far above the ids of any sample's text.
constexpr uint32_t kMaxIds = uint32_t{1} << 29;

absl::Status Unavailable(absl::string_view what) {
  const int error = errno;
  return absl::UnavailableError(absl::StrCat(
      "the process for SentencePiece: ", what, ": ", strerrordesc_np(error)));
}

absl::Status Contradiction() {
  return absl::InvalidArgumentError(
      "SentencePiece: an answer that contradicts itself; is the model "
      "damaged?");
}

bool WriteBytes(int socket, absl::string_view bytes) {
  return WriteAll(socket, bytes.data(), bytes.size());
}

template <typename T>
absl::string_view BytesOf(const T& value) {
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
bool ReadVector(int fd, size_t count, std::vector<T>* values) {
  values->resize(count);
  return ReadAll(fd, values->data(), count * sizeof(T));
}

// The reason of a refusal; empty if the stream ends.
std::string ReadReason(int fd, uint32_t bytes) {
  std::string reason(std::min<uint32_t>(bytes, 4096), '\0');
  return ReadAll(fd, reason.data(), reason.size()) ? reason : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<SentencePieceHelper>> SentencePieceHelper::Start(
    std::string model, bool with_continued) {
  auto helper = absl::WrapUnique(
      new SentencePieceHelper(std::move(model), with_continued));
  MutexLock lock(&helper->mutex_);
  BALLAST_RETURN_IF_ERROR(helper->Launch());
  return helper;
}

SentencePieceHelper::~SentencePieceHelper() {
  MutexLock lock(&mutex_);
  Stop();
}

void SentencePieceHelper::Stop() const {
  control_.Reset();
  EndProcess(&process_);
}

absl::Status SentencePieceHelper::Launch() const {
  Stop();
  BALLAST_ASSIGN_OR_RETURN(auto ends, SocketPair());
  BALLAST_ASSIGN_OR_RETURN(
      process_, StartEmbeddedProgram(
                    {"ballast-sentencepiece", kHelperImage, kHelperImageBytes},
                    std::move(ends.second)));
  control_ = std::move(ends.first);
  const StartRequest start = {model_.size(), with_continued_ ? 1u : 0u, 0};
  Reply reply;
  // A process that ended early may have said why.
  WriteBytes(control_.get(), BytesOf(start)) &&
      WriteBytes(control_.get(), model_);
  if (!ReadAll(control_.get(), &reply, sizeof(reply))) {
    const int status = ReapProcess(&process_);
    control_.Reset();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
      return absl::FailedPreconditionError(
          "SentencePiece models need the package libsentencepiece0, which "
          "cannot be loaded here");
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "damaged SentencePiece model: libsentencepiece ended on it (",
        WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                            : absl::StrCat("exit ", WEXITSTATUS(status)),
        ")"));
  }
  if (reply.outcome == Outcome::kOk) return absl::OkStatus();
  const std::string reason = ReadReason(control_.get(), reply.count);
  Stop();
  return absl::InvalidArgumentError(
      absl::StrCat("not a SentencePiece model: ", reason));
}

bool SentencePieceHelper::HandOver(int socket) const {
  const char byte = 0;
  return WriteWithFds(control_.get(), &byte, 1, &socket, 1);
}

absl::StatusOr<OwnedFd> SentencePieceHelper::Connect() const {
  BALLAST_ASSIGN_OR_RETURN(auto ends, SocketPair());
  MutexLock lock(&mutex_);
  if (!HandOver(ends.second.get())) {
    // The process is gone: killed for memory, say.
    BALLAST_RETURN_IF_ERROR(Launch());
    if (!HandOver(ends.second.get())) return Unavailable("handing over a text");
  }
  return std::move(ends.first);
}

absl::Status SentencePieceHelper::Encode(absl::Span<const Stretch> stretches,
                                         Encoded* encoded) const {
  uint64_t bytes = 0;
  for (const Stretch& stretch : stretches) bytes += stretch.text.size();
  if (bytes > kMaxTextBytes) {
    return DataFaultError(absl::StrCat(
        "text of ", bytes, " bytes, wanted at most ", kMaxTextBytes));
  }
  std::unique_ptr<Connection> connection = connections_.Take();
  std::string& request = connection->request;
  request.clear();
  absl::StrAppend(&request,
                  BytesOf(EncodeRequest{static_cast<uint32_t>(stretches.size()),
                                        static_cast<uint32_t>(bytes)}));
  for (const Stretch& stretch : stretches) {
    absl::StrAppend(&request, BytesOf(sentencepiece_helper::Stretch{
                                  static_cast<uint32_t>(stretch.text.size()),
                                  stretch.continued ? 1u : 0u}));
  }
  for (const Stretch& stretch : stretches) {
    absl::StrAppend(&request, stretch.text);
  }
  // An existing process may have died for reasons unrelated to this text; one
  // started for this text has not.
  absl::Status status = absl::UnavailableError("");
  bool is_answered = false;
  for (int attempt = 0; attempt < 2 && !is_answered; ++attempt) {
    if (connection->socket.get() < 0) {
      BALLAST_ASSIGN_OR_RETURN(connection->socket, Connect());
    }
    const int socket = connection->socket.get();
    WriteBytes(socket, request);  // if it fails, a reply may still be there
    Reply reply;
    is_answered = ReadAll(socket, &reply, sizeof(reply));
    if (is_answered && reply.outcome != Outcome::kOk) {
      const std::string reason = ReadReason(socket, reply.count);
      connection->socket.Reset();
      return reply.outcome == Outcome::kRefused
                 ? DataFaultError(absl::StrCat("SentencePiece: ", reason))
                 : absl::UnavailableError(
                       absl::StrCat("the process for SentencePiece: ", reason));
    }
    is_answered = is_answered && reply.count <= kMaxIds &&
                  ReadVector(socket, stretches.size(), &encoded->counts) &&
                  ReadVector(socket, reply.count, &encoded->ids) &&
                  ReadVector(socket, reply.count, &encoded->ends);
    if (!is_answered) connection->socket.Reset();
  }
  if (!is_answered) {
    return absl::InvalidArgumentError(
        "libsentencepiece ended twice on this text: it takes too much time or "
        "memory, or the model is damaged");
  }
  connections_.Return(std::move(connection));
  // The process has read an untrusted model, so its answer is checked.
  uint64_t id = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const uint64_t end = id + encoded->counts[i];
    if (end > encoded->ids.size()) return Contradiction();
    uint32_t last = 0;
    for (; id < end; ++id) {
      const auto most = static_cast<uint32_t>(stretches[i].text.size());
      encoded->ends[id] = last = std::clamp(encoded->ends[id], last, most);
    }
  }
  return id == encoded->ids.size() ? absl::OkStatus() : Contradiction();
}

}  // namespace ballast
