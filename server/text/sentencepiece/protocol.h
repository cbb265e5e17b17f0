#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_

#include <cstdint>

// What a server and the program in which libsentencepiece runs (helper.cc) say
// to each other. Debian's libsentencepiece holds a protobuf of its own, older
// than the system's and under the same names, so that no program can link with
// both; and what reads a model that came from anywhere had better not be the
// server (docs/decisions/). Both ends are of one build and one machine: numbers
// are as the machine has them.
//
// The helper is started with a stream socket, kControl. It gets a StartRequest
// and a model, answers with a Reply, and then makes a process of its own for
// every socket that comes over kControl with a byte. On that socket requests
// are answered one after another:
//
//   request  EncodeRequest, `stretches` Stretch, `bytes` of text: all stretches
//            one after another
//   reply    Reply; where it is kOk, for each stretch the number of its ids
//            (uint32_t), `count` ids (int32_t), and for each id where it ends
//            in its stretch, in bytes (uint32_t); else `count` bytes of reason
//
// A socket that ends is the end of the process behind it, both ways.
namespace ballast::sentencepiece_helper {

inline constexpr int kControl = 3;

struct StartRequest {
  uint64_t model_bytes;
  // Whether stretches that are not first will be asked for.
  uint32_t with_continued;
  uint32_t unused;
};

struct EncodeRequest {
  uint32_t stretches;
  uint32_t bytes;
};

struct Stretch {
  uint32_t bytes;
  // Not the beginning of a text: the model puts no space before it.
  uint32_t continued;
};

enum class Outcome : uint32_t {
  kOk,
  kRefused,      // by the library: the model, or the text
  kUnavailable,  // no process could be made
};

struct Reply {
  Outcome outcome;
  uint32_t count;
};

// A process that takes more time of a processor for one request is ended.
inline constexpr uint64_t kBaseSeconds = 60;
inline constexpr uint64_t kBytesPerSecond = 100'000;
// Nor may one take more memory.
inline constexpr uint64_t kMostMemory = uint64_t{16} << 30;

}  // namespace ballast::sentencepiece_helper

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_PROTOCOL_H_
