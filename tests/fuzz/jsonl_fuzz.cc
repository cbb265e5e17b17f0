#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/element_reader.h"
#include "server/data/jsonl/media_root.h"
#include "server/text/conversation.h"
#include "server/text/sample_fields.h"
#include "tests/fuzz/memory_file.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxLine = 4096;

void Must(bool held) {
  if (!held) std::abort();
}

void ReadLine(absl::string_view line) {
  uint32_t images = 0;
  const auto sample = ParseJsonSample(line);
  if (sample.ok()) {
    Must(!sample->media[MediumKind::kVideo].empty() ||
         CheckConversation(line).ok());
    for (const std::string& path : sample->paths(MediumKind::kImage)) {
      Must(CheckMediaPath("image", path).ok());
    }
    images = sample->media[MediumKind::kImage].size();
  }
  const auto turns = ParseConversation(line);
  if (turns.ok()) {
    for (const Turn& turn : *turns) {
      Must(!SplitAtImageMarks(turn.text).empty());
    }
  }
  v1::TokenIds ids;
  ids.set_image(3);
  ids.set_vision_start(1);
  ids.set_vision_end(2);
  const std::vector<uint32_t> image_tokens(std::min(images, 100u), 1);
  ParsePackedJson(line, {image_tokens, {}}, ids).IgnoreError();
  ParsePackedBytes(line, {image_tokens, {}}, ids).IgnoreError();
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto file = ballast::File::Open(ballast::MemoryFile(bytes));
  ballast::Must(file.ok());
  ballast::LineReader lines(&*file, ballast::kMaxLine);
  uint64_t end = 0;
  while (true) {
    const auto line = lines.Next();
    ballast::Must(line.ok());
    if (!line->has_value()) return 0;
    ballast::Must((*line)->offset >= end);
    end = (*line)->offset + (*line)->length;
    ballast::Must(end <= size);
    ballast::ReadLine((*line)->text);
  }
}
