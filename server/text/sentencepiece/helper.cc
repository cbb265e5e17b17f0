// The program that runs libsentencepiece; protocol.h has its purpose and
// answers. Its main process loads the model and only forks others, which
// thereby share the model's memory.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <sentencepiece_processor.h>

#include "common/process_limits.h"
#include "common/socket_bytes.h"
#include "server/text/sentencepiece/protocol.h"

namespace {

using ballast::kSanitized;
using ballast::LimitMemory;
using ballast::ReadAll;
using ballast::ReadWithFds;
using ballast::WriteAll;
using namespace ballast::sentencepiece_helper;
using sentencepiece::SentencePieceProcessor;

// A normalizer_spec with add_dummy_prefix = false. Appended to a model it
// overrides the model's own: protobuf merges a field that occurs twice.
constexpr char kNoDummyPrefix[] = {0x1a, 0x02, 0x18, 0x00};

bool Answer(int fd, Outcome outcome, const std::string& reason) {
  const Reply reply = {outcome, static_cast<uint32_t>(reason.size())};
  return WriteAll(fd, &reply, sizeof(reply)) &&
         WriteAll(fd, reason.data(), reason.size());
}

// Limits this process's CPU time to what `bytes` of text may take.
void LimitTime(uint64_t bytes) {
  itimerval limit = {};
  limit.it_value.tv_sec =
      static_cast<time_t>(kBaseSeconds + bytes / kBytesPerSecond);
  setitimer(ITIMER_PROF, &limit, nullptr);
}

// Closes stderr: errors are reported in the answers, and the libraries'
// messages about hostile models would flood the server's log.
void CloseLog() {
  if (kSanitized) return;
  const int null = open("/dev/null", O_WRONLY);
  if (null >= 0) dup2(null, STDERR_FILENO);
}

struct Models {
  SentencePieceProcessor first;
  SentencePieceProcessor continued;
};

// Answers one request. Returns false at the end of the stream.
bool AnswerNext(int fd, const Models& models) {
  EncodeRequest request;
  if (!ReadAll(fd, &request, sizeof(request))) return false;
  std::vector<Stretch> stretches(request.stretches);
  std::string text(request.bytes, '\0');
  if (!ReadAll(fd, stretches.data(), stretches.size() * sizeof(Stretch)) ||
      !ReadAll(fd, text.data(), text.size())) {
    return false;
  }
  LimitTime(text.size());
  std::vector<uint32_t> counts;
  std::vector<int32_t> ids;
  std::vector<uint32_t> ends;
  const char* next = text.data();
  for (const Stretch& stretch : stretches) {
    sentencepiece::ImmutableSentencePieceText encoded;
    const auto status =
        (stretch.continued != 0 ? models.continued : models.first)
            .Encode(absl::string_view(next, stretch.bytes),
                    encoded.mutable_proto());
    if (!status.ok()) return Answer(fd, Outcome::kRefused, status.ToString());
    const size_t count = encoded.pieces_size();
    counts.push_back(static_cast<uint32_t>(count));
    for (size_t i = 0; i < count; ++i) {
      const auto piece = encoded.pieces(static_cast<int>(i));
      ids.push_back(static_cast<int32_t>(piece.id()));
      ends.push_back(piece.end());
    }
    next += stretch.bytes;
  }
  const Reply reply = {Outcome::kOk, static_cast<uint32_t>(ids.size())};
  return WriteAll(fd, &reply, sizeof(reply)) &&
         WriteAll(fd, counts.data(), counts.size() * sizeof(counts[0])) &&
         WriteAll(fd, ids.data(), ids.size() * sizeof(ids[0])) &&
         WriteAll(fd, ends.data(), ends.size() * sizeof(ends[0]));
}

// Receives the next socket, or -1 at the end.
int NextSocket() {
  while (true) {
    char byte;
    int fd = -1;
    size_t count;
    if (!ReadWithFds(kControl, &byte, 1, &fd, 1, &count)) return -1;
    if (count == 1) return fd;
  }
}

bool Load(Models* models) {
  StartRequest start;
  if (!ReadAll(kControl, &start, sizeof(start))) return false;
  std::string model(start.model_bytes, '\0');
  if (!ReadAll(kControl, model.data(), model.size())) return false;
  LimitTime(model.size());
  auto status = models->first.LoadFromSerializedProto(model);
  if (status.ok() && start.with_continued != 0) {
    model.append(kNoDummyPrefix, sizeof(kNoDummyPrefix));
    status = models->continued.LoadFromSerializedProto(model);
  }
  const itimerval none = {};
  setitimer(ITIMER_PROF, &none, nullptr);
  if (status.ok()) return Answer(kControl, Outcome::kOk, "");
  Answer(kControl, Outcome::kRefused, status.ToString());
  return false;
}

}  // namespace

int main() {
  // Ignores these signals: it ends only when the server ends, however long that
  // takes to shut down.
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    ::signal(signal, SIG_IGN);
  }
  ::signal(SIGCHLD, SIG_IGN);  // children are reaped by the kernel
  close_range(kControl + 1, ~0U, 0);
  LimitMemory(kMostMemory);
  CloseLog();
  Models models;
  if (!Load(&models)) _exit(0);
  const pid_t self = getpid();
  while (true) {
    const int fd = NextSocket();
    if (fd < 0) _exit(0);
    const pid_t child = fork();
    if (child == 0) {
      close(kControl);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != self) _exit(0);
      while (AnswerNext(fd, models)) {
      }
      _exit(0);
    }
    if (child < 0) {
      Answer(fd, Outcome::kUnavailable,
             std::string("fork: ") + strerror(errno));
    }
    close(fd);
  }
}
