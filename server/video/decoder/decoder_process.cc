#include "server/video/decoder/decoder_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/align.h"
#include "common/embedded_program.h"
#include "common/socket_bytes.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/video/decoder/decoder_image.h"
#include "server/video/decoder/facts_reply.h"

namespace ballast {
namespace {

using video_decoder::Outcome;
using video_decoder::Reply;
using video_decoder::Request;
using video_decoder::Task;

constexpr uint64_t kMostAnswer =
    sizeof(video_decoder::FactsHead) + 3 * video_decoder::kMostNameBytes +
    uint64_t{video_decoder::kMostFrames} * sizeof(video_decoder::FactsFrame);

// Processor time of a request: generous, since it only has to end what would
// never end.
constexpr uint64_t kBaseSeconds = 60;
constexpr uint64_t kBytesASecond = 20'000'000;
constexpr uint64_t kPixelsASecond = 2'000'000;
constexpr uint64_t kMostSeconds = 4 * 3600;

uint32_t Seconds(uint64_t work, uint64_t a_second) {
  return static_cast<uint32_t>(
      std::min(kMostSeconds, kBaseSeconds + work / a_second));
}

absl::Status Unavailable(absl::string_view what) {
  const int error = errno;
  return absl::UnavailableError(
      absl::StrCat("the video decoder: ", what, ": ", strerrordesc_np(error)));
}

}  // namespace

DecoderProcess::~DecoderProcess() {
  control_.Reset();
  EndProcess(&process_);
  if (slots_ != nullptr) munmap(slots_, slots_bytes_);
}

void DecoderProcess::Count(DecoderEnd why) {
  if (options_.counters != nullptr) options_.counters->AddEnd(why);
}

void DecoderProcess::Stop(DecoderEnd why) {
  if (process_ >= 0) Count(why);
  control_.Reset();
  EndProcess(&process_);
}

absl::Status DecoderProcess::EnsureStarted() {
  if (process_ >= 0) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(auto ends, SocketPair());
  BALLAST_ASSIGN_OR_RETURN(
      process_, StartEmbeddedProgram({"ballast-video-decoder", kDecoderImage,
                                      kDecoderImageBytes},
                                     std::move(ends.second)));
  control_ = std::move(ends.first);
  ++starts_;
  if (options_.counters != nullptr) options_.counters->starts.Add();
  return absl::OkStatus();
}

absl::Status DecoderProcess::EnsureSlots(uint64_t bytes) {
  if (bytes <= slots_bytes_) return absl::OkStatus();
  if (slots_ != nullptr) munmap(slots_, slots_bytes_);
  slots_ = nullptr;
  slots_bytes_ = 0;
  memory_ = OwnedFd(
      memfd_create("ballast-video-frames", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed: the process cannot cut it short under the server's eyes.
  if (memory_.get() < 0 ||
      ftruncate(memory_.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(memory_.get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Unavailable("shared memory for frames");
  }
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) return Unavailable("mapping frames");
  slots_ = static_cast<uint8_t*>(mapped);
  slots_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status DecoderProcess::Read(void* to, size_t size) {
  auto* next = static_cast<char*>(to);
  while (size > 0) {
    pollfd ready = {control_.get(), POLLIN, 0};
    const int polled = poll(
        &ready, 1,
        static_cast<int>(absl::ToInt64Milliseconds(options_.most_silence)));
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) {
      Stop(DecoderEnd::kSilence);
      return absl::DeadlineExceededError(absl::StrCat(
          "the video decoder said nothing for ",
          absl::FormatDuration(options_.most_silence),
          " and was ended; is the machine overloaded, or its storage slow?"));
    }
    const ssize_t got = read(control_.get(), next, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::AbortedError("");
    next += got;
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status DecoderProcess::Ended(bool* is_crash) {
  *is_crash = false;
  control_.Reset();
  const int status = ReapProcess(&process_);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    Count(DecoderEnd::kLibraries);
    return absl::FailedPreconditionError(
        "videos need FFmpeg's libraries (Debian 12: libavcodec59, "
        "libavformat59, libswscale6), which cannot be loaded here");
  }
  if (WIFSIGNALED(status)) {
    switch (WTERMSIG(status)) {
      case SIGPROF:
      case SIGVTALRM:
        Count(DecoderEnd::kProcessorTime);
        return DataFaultError(
            "decoding takes more processor time than any sound video of its "
            "size");
      case SIGKILL:
        Count(DecoderEnd::kKilled);
        return absl::UnavailableError(
            "the video decoder was killed; is the machine out of memory?");
      default:
        break;
    }
  }
  Count(DecoderEnd::kCrash);
  *is_crash = true;
  return DataFaultError(absl::StrCat(
      "the video decoder ended on it twice (",
      WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                          : absl::StrCat("exit ", WEXITSTATUS(status)),
      ")"));
}

absl::Status DecoderProcess::ReadFault(const Reply& reply) {
  if (reply.value > video_decoder::kMostReasonBytes) {
    Stop(DecoderEnd::kAnswer);
    return DataFaultError(
        "the video decoder's answer contradicts itself; is the file damaged?");
  }
  std::string reason(reply.value, '\0');
  BALLAST_RETURN_IF_ERROR(Read(reason.data(), reason.size()));
  for (char& c : reason) {
    if (c < ' ' || c > '~') c = '?';
  }
  switch (reply.outcome) {
    case Outcome::kUnread:
      return absl::UnavailableError(
          absl::StrCat("reading the video: ", reason));
    case Outcome::kNoMemory:
      return DataFaultError(absl::StrCat(
          "decoding takes more than the ", video_decoder::kMostMemory,
          " bytes of memory that a video may take: ", reason));
    default:
      return DataFaultError(reason);
  }
}

absl::Status DecoderProcess::Ask(
    const Request& request, const VideoBytes& video,
    absl::Span<const uint32_t> wanted,
    const std::function<absl::Status()>& read_answer) {
  // A process may have died for reasons of its own; one that was started for
  // this file has not.
  for (int attempt = 0;; ++attempt) {
    BALLAST_RETURN_IF_ERROR(EnsureStarted());
    const int fds[] = {video.fd, memory_.get()};
    // If writing fails, the process has ended: reading tells.
    WriteWithFds(control_.get(), &request, sizeof(request), fds,
                 memory_.get() >= 0 ? 2 : 1) &&
        WriteAll(control_.get(), wanted.data(),
                 wanted.size() * sizeof(uint32_t));
    const absl::Status status = read_answer();
    if (!absl::IsAborted(status)) return status;
    bool is_crash = false;
    const absl::Status why = Ended(&is_crash);
    if (!is_crash || attempt > 0) return why;
  }
}

absl::StatusOr<VideoFacts> DecoderProcess::ReadFacts(const VideoBytes& video) {
  Request request = {};
  request.task = Task::kFacts;
  request.offset = video.offset;
  request.bytes = video.bytes;
  request.cpu_seconds = Seconds(video.bytes, kBytesASecond);
  std::string answer;
  BALLAST_RETURN_IF_ERROR(Ask(request, video, {}, [&]() -> absl::Status {
    Reply reply;
    BALLAST_RETURN_IF_ERROR(Read(&reply, sizeof(reply)));
    if (reply.outcome != Outcome::kOk) return ReadFault(reply);
    if (reply.value > kMostAnswer) {
      Stop(DecoderEnd::kAnswer);
      return DataFaultError(
          "the video decoder's answer is too long; is the file damaged?");
    }
    answer.resize(reply.value);
    return Read(answer.data(), answer.size());
  }));
  return ParseFacts(answer);
}

absl::Status DecoderProcess::Decode(const VideoBytes& video,
                                    const VideoFacts& facts,
                                    absl::Span<const uint32_t> wanted,
                                    const Take& take, bool is_listed) {
  Request request = {};
  // A process that is started anew has no list, and makes one.
  request.is_listed = is_listed ? 1 : 0;
  request.task = Task::kDecode;
  request.frames = static_cast<uint32_t>(wanted.size());
  request.offset = video.offset;
  request.bytes = video.bytes;
  request.stride = static_cast<uint32_t>(
      AlignUp(uint64_t{facts.width} * 3, video_decoder::kRowAlignment));
  request.slot_bytes = AlignUp(
      uint64_t{request.stride} * facts.height + video_decoder::kSlotMargin,
      video_decoder::kSlotMargin);
  request.slots = options_.slots;
  request.width = facts.width;
  request.height = facts.height;
  request.total_frames = facts.frames();
  const uint64_t packets =
      PacketsToDecode(facts.table, {wanted.begin(), wanted.end()});
  request.cpu_seconds = Seconds(
      packets * facts.width * facts.height + video.bytes, kPixelsASecond);
  BALLAST_RETURN_IF_ERROR(EnsureSlots(request.slot_bytes * request.slots));
  std::vector<bool> is_taken(wanted.size());
  return Ask(request, video, wanted, [&]() -> absl::Status {
    for (size_t i = 0; i < wanted.size(); ++i) {
      Reply reply;
      BALLAST_RETURN_IF_ERROR(Read(&reply, sizeof(reply)));
      if (reply.outcome != Outcome::kOk) return ReadFault(reply);
      if (reply.value >= wanted.size()) {
        Stop(DecoderEnd::kAnswer);
        return DataFaultError(
            "the video decoder answered with another frame; is the file "
            "damaged?");
      }
      is_taken[reply.value] = true;
      const absl::Status status = take(
          reply.value,
          {slots_ + i % request.slots * request.slot_bytes, request.stride});
      if (!status.ok()) {
        Stop(DecoderEnd::kAbandoned);  // it would go on
        return status;
      }
      const char byte = 0;
      WriteAll(control_.get(), &byte, 1);
    }
    // After a crash the frames come again, so each is taken all the same.
    if (std::find(is_taken.begin(), is_taken.end(), false) != is_taken.end()) {
      Stop(DecoderEnd::kAnswer);
      return DataFaultError(
          "the video decoder left out a frame; is the file damaged?");
    }
    return absl::OkStatus();
  });
}

}  // namespace ballast
