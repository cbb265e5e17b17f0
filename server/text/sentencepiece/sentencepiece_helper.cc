#include "server/text/sentencepiece/sentencepiece_helper.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/text/sentencepiece/helper_image.h"
#include "server/text/sentencepiece/protocol.h"

namespace ballast {
namespace {

using sentencepiece_helper::EncodeRequest;
using sentencepiece_helper::LoadRequest;

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
// Far above the ids of any sample's text.
constexpr uint64_t kMaxAnswerBytes = uint64_t{8} << 29;
constexpr uint64_t kMaxReasonBytes = 1 << 16;

std::string NoLibrary() {
  return HelperLibrariesAdvice("SentencePiece models cannot be read",
                               "libsentencepiece0");
}

template <typename T>
void Take(size_t count, absl::string_view* from, std::vector<T>* values) {
  values->resize(count);
  if (count == 0) return;  // memcpy takes no null
  std::memcpy(values->data(), from->data(), count * sizeof(T));
  from->remove_prefix(count * sizeof(T));
}

// The program has read untrusted bytes, so its answer is checked.
bool Parse(absl::string_view answer,
           absl::Span<const SentencePieceHelper::Stretch> stretches,
           SentencePieceHelper::Encoded* encoded) {
  const size_t counts_bytes = stretches.size() * sizeof(uint32_t);
  constexpr size_t kIdBytes = sizeof(int32_t) + sizeof(uint32_t);
  if (answer.size() < counts_bytes ||
      (answer.size() - counts_bytes) % kIdBytes != 0) {
    return false;
  }
  const size_t ids = (answer.size() - counts_bytes) / kIdBytes;
  Take(stretches.size(), &answer, &encoded->counts);
  Take(ids, &answer, &encoded->ids);
  Take(ids, &answer, &encoded->ends);
  uint64_t id = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const uint64_t end = id + encoded->counts[i];
    if (end > ids) return false;
    uint32_t last = 0;
    for (; id < end; ++id) {
      const auto most = static_cast<uint32_t>(stretches[i].text.size());
      encoded->ends[id] = last = std::clamp(encoded->ends[id], last, most);
    }
  }
  return id == ids;
}

void AppendRequest(absl::Span<const SentencePieceHelper::Stretch> stretches,
                   std::string* request) {
  request->clear();
  absl::StrAppend(
      request,
      GetBytes(EncodeRequest{static_cast<uint32_t>(stretches.size())}));
  for (const SentencePieceHelper::Stretch& stretch : stretches) {
    absl::StrAppend(request, GetBytes(sentencepiece_helper::Stretch{
                                 static_cast<uint32_t>(stretch.text.size()),
                                 stretch.continued ? 1u : 0u}));
  }
  for (const SentencePieceHelper::Stretch& stretch : stretches) {
    absl::StrAppend(request, stretch.text);
  }
}

}  // namespace

// A text of a caller, until it is encoded.
struct SentencePieceHelper::Waiting : HelperPool::Job {
  absl::Span<const Stretch> stretches;
  Encoded* encoded = nullptr;
};

SentencePieceHelper::SentencePieceHelper(std::string model, bool with_continued,
                                         absl::Duration patience)
    : model_(std::move(model)),
      with_continued_(with_continued),
      patience_(patience),
      holder_(
          {.name = "libsentencepiece, given the model,",
           .libraries = NoLibrary(),
           .input_fault =
               [](absl::string_view message) {
                 return absl::InvalidArgumentError(
                     absl::StrCat("damaged SentencePiece model: ", message));
               },
           .patience = patience,
           .prepare = [this](HelperProcess* holder) { return Load(holder); }},
          [] {
            return StartHelper({.name = "ballast-sentencepiece",
                                .image = kHelperImage,
                                .bytes = kHelperImageBytes});
          }),
      encoders_({.helper = {.name = "libsentencepiece",
                            .libraries = NoLibrary(),
                            .input_fault = DataFaultError,
                            .patience = patience},
                 .launch = [this] { return Fork(); },
                 .ask = AskFor,
                 .is_fault = IsDataFault,
                 .processes = std::numeric_limits<size_t>::max(),
                 .most_jobs = 1}) {}

absl::StatusOr<std::unique_ptr<SentencePieceHelper>> SentencePieceHelper::Start(
    std::string model, bool with_continued, absl::Duration patience) {
  auto helper = absl::WrapUnique(
      new SentencePieceHelper(std::move(model), with_continued, patience));
  MutexLock lock(&helper->mutex_);
  BALLAST_RETURN_IF_ERROR(helper->holder_.Ask([] { return absl::OkStatus(); }));
  return helper;
}

absl::Status SentencePieceHelper::Load(HelperProcess* holder) const {
  const LoadRequest request = {with_continued_ ? 1u : 0u};
  uint32_t kind = 0;
  std::string reason;
  BALLAST_RETURN_IF_ERROR(
      holder->Send(sentencepiece_helper::kLoad, {GetBytes(request), model_}));
  BALLAST_RETURN_IF_ERROR(holder->Receive(kMaxReasonBytes, &kind, &reason));
  if (kind == sentencepiece_helper::kDone) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("not a SentencePiece model: ", reason));
}

absl::StatusOr<HelperChild> SentencePieceHelper::Fork() const {
  MutexLock lock(&mutex_);
  HelperChannel channel;
  HelperProcess* const holder = &holder_;
  const auto fork = [&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(channel, MakeHelperChannel());
    uint32_t kind = 0;
    std::string answer;
    BALLAST_RETURN_IF_ERROR(
        holder->Send(sentencepiece_helper::kFork, {},
                     {channel.socket.get(), channel.lifeline.get()}));
    BALLAST_RETURN_IF_ERROR(holder->Receive(kMaxReasonBytes, &kind, &answer));
    int32_t process = -1;
    if (kind != sentencepiece_helper::kDone ||
        answer.size() != sizeof(process)) {
      return absl::UnavailableError(
          absl::StrCat("a process for SentencePiece cannot fork: ", answer));
    }
    std::memcpy(&process, answer.data(), sizeof(process));
    channel.ours.process = process;
    return TieHelper(process, channel.lifeline);
  };
  const absl::Status status = holder->Ask(fork);
  // The model was loaded before: whatever ends its process now is no fault of
  // the text.
  if (absl::IsInvalidArgument(status)) {
    return absl::UnavailableError(status.message());
  }
  BALLAST_RETURN_IF_ERROR(status);
  return std::move(channel.ours);
}

absl::Status SentencePieceHelper::Encode(absl::Span<const Stretch> stretches,
                                         Encoded* encoded) const {
  uint64_t bytes = 0;
  for (const Stretch& stretch : stretches) bytes += stretch.text.size();
  if (bytes > kMaxTextBytes) {
    return DataFaultError(absl::StrCat(
        "text of ", bytes, " bytes, wanted at most ", kMaxTextBytes));
  }
  Waiting text;
  text.stretches = stretches;
  text.encoded = encoded;
  HelperPool::Job* const job = &text;
  encoders_.Run({&job, 1});
  return text.status;
}

absl::Status SentencePieceHelper::AskFor(
    HelperPool::Worker* worker, absl::Span<HelperPool::Job* const> jobs) {
  const auto* const text = static_cast<const Waiting*>(jobs[0]);
  HelperProcess* const process = worker->helper.get();
  AppendRequest(text->stretches, &worker->request);
  return process->Ask([&]() -> absl::Status {
    uint32_t kind = 0;
    BALLAST_RETURN_IF_ERROR(
        process->Send(sentencepiece_helper::kEncode, {worker->request}));
    BALLAST_RETURN_IF_ERROR(
        process->Receive(kMaxAnswerBytes, &kind, &worker->answer));
    if (kind != sentencepiece_helper::kDone) {
      return DataFaultError(absl::StrCat("SentencePiece: ", worker->answer));
    }
    if (Parse(worker->answer, text->stretches, text->encoded)) {
      return absl::OkStatus();
    }
    process->Stop(HelperEnd::kAnswer);
    return DataFaultError(
        "SentencePiece: an answer that contradicts itself; is the model "
        "damaged?");
  });
}

}  // namespace ballast
