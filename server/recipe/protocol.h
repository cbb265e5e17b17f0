#ifndef BALLAST_SERVER_RECIPE_PROTOCOL_H_
#define BALLAST_SERVER_RECIPE_PROTOCOL_H_

#include <cstdint>

// The requests to the program that runs recipes (cooker.py), and its answers,
// as frames of common/python_helper.h. Its box closes after kLoad.
//
//   kLoad  JSON: path and text of the recipe, the limits below
//          -> kDone and JSON {"versions": "python-3.11.7+numpy-1.24.2"}, or
//          kRefused and why; kNoPackage: because of a package that is missing
//   kCook  the number of records (uint32_t), a Head for each; then for each its
//          source, a zero and its name, its text, and for each of its parts a
//          Part, its name and its bytes
//          -> kDone: for each record an Outcome, its text, and its media: JSON
//          {"images": [R, ...], "videos": [R or [R, ...], ...]} with R the
//          number of a part or a path; of a document with fields also
//          "fields", an object; empty without any
namespace ballast::recipe_helper {

enum RequestKind : uint32_t { kLoad = 2, kCook };
enum AnswerKind : uint32_t { kDone, kRefused, kNoPackage };

struct Head {
  uint32_t kind;  // RecipeRecord::Kind
  uint32_t name;  // bytes, with the source
  uint32_t text;
  uint32_t parts;
};

struct Part {
  uint64_t size;
  uint32_t name;   // bytes
  uint32_t bytes;  // kNone: they stay in the data file
};
inline constexpr uint32_t kNone = 0xFFFFFFFF;

enum OutcomeKind : uint32_t {
  kConversation,
  kDocument,
  kLeftOut,
  kFault,
  kTooLong,  // it took more processor time than a record may
};

struct Outcome {
  uint32_t kind;
  uint32_t text;   // bytes; of kFault and kTooLong the reason
  uint32_t media;  // bytes
};

// The most processor time of a record, and of the recipe's own beginning.
inline constexpr double kBaseSeconds = 20;
inline constexpr double kBytesPerSecond = 100'000;
inline constexpr double kLoadSeconds = 300;
// The most memory of a process, and bytes of what it makes of a record.
inline constexpr uint64_t kMaxMemory = uint64_t{4} << 30;
inline constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

}  // namespace ballast::recipe_helper

#endif  // BALLAST_SERVER_RECIPE_PROTOCOL_H_
