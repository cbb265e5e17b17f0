#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_

#include <cstdint>

// The protocol between a server and the program that runs libsentencepiece
// (helper.cc). Debian's libsentencepiece contains its own protobuf, older than
// the system's and under the same names, so no program can link with both; and
// code that reads untrusted models should not run inside the server
// (docs/decisions/0011). Both ends are of one build and on one machine: numbers
// are in native byte order.
//
// The helper is started with a stream socket, kControl. It receives a
// StartRequest and a model, answers with a Reply, and then forks a process for
// every socket that arrives over kControl with a byte. On that socket requests
// are answered one after another:
//
//   request  EncodeRequest, `stretches` Stretch, `bytes` of text: all stretches
//            concatenated
//   reply    Reply; if kOk, for each stretch the number of its ids (uint32_t),
//            `count` ids (int32_t), and for each id its end in its stretch, in
//            bytes (uint32_t); otherwise `count` bytes of reason
//
// When a socket closes, the process behind it ends, and vice versa.
namespace ballast::sentencepiece_helper {

inline constexpr int kControl = 3;

struct StartRequest {
  uint64_t model_bytes;
  // Nonzero if some stretches will be `continued`.
  uint32_t with_continued;
  uint32_t unused;
};

struct EncodeRequest {
  uint32_t stretches;
  uint32_t bytes;
};

struct Stretch {
  uint32_t bytes;
  // Nonzero if not the beginning of a text: the model adds no space before it.
  uint32_t continued;
};

enum class Outcome : uint32_t {
  kOk,
  kRefused,      // the library refused the model or the text
  kUnavailable,  // no process could be started
};

struct Reply {
  Outcome outcome;
  uint32_t count;
};

// A process that takes more CPU time for one request is killed.
inline constexpr uint64_t kBaseSeconds = 60;
inline constexpr uint64_t kBytesPerSecond = 100'000;
// The most memory that a process may take.
inline constexpr uint64_t kMostMemory = uint64_t{16} << 30;

}  // namespace ballast::sentencepiece_helper

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_
