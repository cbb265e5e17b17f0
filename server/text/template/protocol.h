#ifndef BALLAST_SERVER_TEXT_TEMPLATE_PROTOCOL_H_
#define BALLAST_SERVER_TEXT_TEMPLATE_PROTOCOL_H_

#include <cstdint>

// The requests to the program that renders templates (renderer.py), and its
// answers, as frames of common/helper_program.h. A new process first says which
// Python and jinja2 it has, as JSON, in a kDone.
//
//   kTemplate  JSON: the template, and what it is given beside conversations
//              -> kDone and JSON {"generation": whether it has such spans}, or
//              kRefused and why
//   kRender    the number of conversations (uint32_t), a Head for each, their
//              JSON one after another -> kDone: their number again, then for
//              each an Outcome, its spans (Span), the assistant's messages
//              (Answer), and the text, or the reason, and what the text leaves
//              out
namespace ballast::template_helper {

enum RequestKind : uint32_t { kTemplate = 2, kRender };
enum AnswerKind : uint32_t { kDone, kRefused, kTooLong };

// Flags of a conversation.
inline constexpr uint32_t kHasImages = 1;
inline constexpr uint32_t kByPrefixes = 2;
inline constexpr uint32_t kHasVideos = 4;

struct Head {
  uint32_t flags;
  uint32_t bytes;
};

// Flags of a message of the assistant.
inline constexpr uint32_t kHasOwnThought = 1;

struct Outcome {
  uint32_t kind;  // AnswerKind
  uint32_t bytes;
  uint32_t spans;
  uint32_t answers;
  uint32_t left_out;  // bytes
};

struct Answer {
  uint32_t flags;
  uint32_t turn;  // number in the sample, from 1
  float weight;   // 0 to 1
};

struct Span {
  uint32_t begin;  // in bytes of the text
  uint32_t end;
};

// A process that takes more processor time for one rendering gives it up. 2 kB
// take jinja2 0.2 ms: this is 100 000 times as long.
inline constexpr double kBaseSeconds = 20;
inline constexpr double kBytesPerSecond = 100'000;
// The most memory that a process may take, and the most bytes of a text.
inline constexpr uint64_t kMaxMemory = uint64_t{4} << 30;
inline constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

}  // namespace ballast::template_helper

#endif  // BALLAST_SERVER_TEXT_TEMPLATE_PROTOCOL_H_
