#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_

#include <cstdint>

// The requests to the program that runs libsentencepiece (helper.cc), and its
// answers, as frames of common/helper_program.h. Debian's libsentencepiece
// contains its own protobuf, older than the system's and under the same names,
// so no program can link with both; and code that reads untrusted models should
// not run inside the server (docs/decisions/0011).
//
// The first process gets kLoad once, and kFork for each process that encodes.
//
//   kLoad    LoadRequest and the model -> kDone
//   kFork    with a socket and a lifeline, on which a new process serves
//   kEncode
//            -> kDone and the process's number (int32_t)
//   kEncode  EncodeRequest, `stretches` Stretch, the text: all stretches
//            concatenated -> kDone; for each stretch the number of its ids
//            (uint32_t), all ids (int32_t), and for each id its end in its
//            stretch, in bytes (uint32_t)
//
// Instead of kDone, kRefused and a reason: by the library (kLoad, kEncode); or
// by the system (kFork).
namespace ballast::sentencepiece_helper {

enum RequestKind : uint32_t { kLoad, kFork, kEncode };
enum AnswerKind : uint32_t { kDone, kRefused };

struct LoadRequest {
  // Nonzero if some stretches will be `continued`.
  uint32_t with_continued;
};

struct EncodeRequest {
  uint32_t stretches;
};

struct Stretch {
  uint32_t bytes;
  // Nonzero if not the beginning of a text: the model adds no space before it.
  uint32_t continued;
};

// A process that takes more processor time for one request is ended. 4 kB take
// the library 1.6 ms: this is a minute, and 25 times as long.
inline constexpr uint64_t kBaseSeconds = 60;
inline constexpr uint64_t kBytesPerSecond = 100'000;
// The most memory that a process may take.
inline constexpr uint64_t kMaxMemory = uint64_t{16} << 30;

}  // namespace ballast::sentencepiece_helper

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_
