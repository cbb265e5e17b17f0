// The program that runs libsentencepiece; protocol.h has its requests. Its
// first process loads the model and only forks others, which thereby share the
// model's memory.

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <new>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

#include "common/helper_program.h"
#include "server/text/sentencepiece/protocol.h"

namespace {

using namespace ballast::sentencepiece_helper;
using ballast::WriteAnswer;
using sentencepiece::SentencePieceProcessor;

// A normalizer_spec with add_dummy_prefix = false. Appended to a model it
// overrides the model's own: protobuf merges a field that occurs twice.
constexpr char kNoDummyPrefix[] = {0x1a, 0x02, 0x18, 0x00};

// No single allocation for a text is larger.
constexpr size_t kLargestAllocation = size_t{4} << 30;

struct Models {
  SentencePieceProcessor first;
  SentencePieceProcessor continued;
};

void OnNoMemory() { ballast::ExitForMemory(kLargestAllocation); }

bool Load(const std::string& request, Models* models) {
  LoadRequest head;
  memcpy(&head, request.data(), sizeof(head));
  std::string model = request.substr(sizeof(head));
  auto status = models->first.LoadFromSerializedProto(model);
  if (status.ok() && head.with_continued != 0) {
    model.append(kNoDummyPrefix, sizeof(kNoDummyPrefix));
    status = models->continued.LoadFromSerializedProto(model);
  }
  return status.ok() ? WriteAnswer(kDone, "")
                     : WriteAnswer(kRefused, status.ToString());
}

bool Encode(const std::string& request, const Models& models) {
  EncodeRequest head;
  memcpy(&head, request.data(), sizeof(head));
  std::vector<Stretch> stretches(head.stretches);
  const char* next = request.data() + sizeof(head);
  memcpy(stretches.data(), next, stretches.size() * sizeof(Stretch));
  next += stretches.size() * sizeof(Stretch);
  std::vector<uint32_t> counts;
  std::vector<int32_t> ids;
  std::vector<uint32_t> ends;
  for (const Stretch& stretch : stretches) {
    sentencepiece::ImmutableSentencePieceText encoded;
    const auto status =
        (stretch.continued != 0 ? models.continued : models.first)
            .Encode(absl::string_view(next, stretch.bytes),
                    encoded.mutable_proto());
    if (!status.ok()) return WriteAnswer(kRefused, status.ToString());
    const size_t count = encoded.pieces_size();
    counts.push_back(static_cast<uint32_t>(count));
    for (size_t i = 0; i < count; ++i) {
      const auto piece = encoded.pieces(static_cast<int>(i));
      ids.push_back(static_cast<int32_t>(piece.id()));
      ends.push_back(piece.end());
    }
    next += stretch.bytes;
  }
  const ballast::HelperBytes answer[] = {
      {counts.data(), counts.size() * sizeof(counts[0])},
      {ids.data(), ids.size() * sizeof(ids[0])},
      {ends.data(), ends.size() * sizeof(ends[0])}};
  return WriteAnswer(kDone, answer, 3);
}

// In the new process too, which goes on serving its own socket.
bool Fork(int socket, int lifeline) {
  const pid_t child = ballast::ForkHelper(socket, lifeline);
  if (child == 0) return true;
  if (child < 0) return WriteAnswer(kRefused, strerror(errno));
  const int32_t number = child;
  const ballast::HelperBytes answer = {&number, sizeof(number)};
  return WriteAnswer(kDone, &answer, 1);
}

}  // namespace

int main() {
  ballast::EnterBox({kMaxMemory, /*may_fork=*/true});
  std::set_new_handler(OnNoMemory);
  Models models;
  std::string request;
  uint32_t kind = 0;
  int fds[2] = {-1, -1};
  bool is_served = true;
  while (is_served && ballast::ReadRequest(&kind, &request, fds, 2)) {
    ballast::LimitProcessorTime(kBaseSeconds +
                                request.size() / kBytesPerSecond);
    is_served = kind == kLoad   ? Load(request, &models)
                : kind == kFork ? Fork(fds[0], fds[1])
                                : Encode(request, models);
    ballast::LimitProcessorTime(0);
  }
  _exit(0);
}
