#ifndef BALLAST_SERVER_RECIPE_PROTOCOL_H_
#define BALLAST_SERVER_RECIPE_PROTOCOL_H_

#include <cstdint>

// The requests to the programs that run recipes (cooker.py, imager.py), and
// their answers, as frames of common/python_helper.h. Their box closes after
// kLoad.
//
//   kLoad    JSON: path and text of the recipe, the limits below
//            -> kDone and JSON {"versions": "python-3.11.7+numpy-1.24.2"}, or
//            kRefused and why; kNoPackage: because of a package that is
//            missing. imager.py adds what the recipe has: {"plans": true,
//            "draws": false, "most_tokens": 0, "pixels": true}
//   kCook    the number of records (uint32_t), a Head for each; then for each
//            its source, a zero and its name, its text, and for each of its
//            parts a Part, its name and its bytes
//            -> kDone: for each record an Outcome, its text, and its media:
//            JSON {"images": [R, ...], "videos": [R or [R, ...], ...]} with R
//            the number of a part or a path; of a document with fields also
//            "fields", an object; empty without any
//   kPlan    the number of images (uint32_t), for each Facts, source and split
//            -> kDone: for each image an Outcome and its plan: JSON {"crops":
//            [[H, W] or [H, W, left, top, right, bottom], ...], "tokens": N or
//            null, "text": ["<img>", 256, ...] or null}
//   kPixels  the same, and the plan and the pixels of each image
//            -> kDone: for each image an Outcome and the pixels of its crops
namespace ballast::recipe_helper {

enum RequestKind : uint32_t { kLoad = 2, kCook, kPlan, kPixels };
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

struct Facts {
  uint64_t seed;
  uint64_t epoch;
  uint64_t ordinal;
  uint32_t width;
  uint32_t height;
  uint32_t images;
  uint32_t number;
  uint32_t source;  // bytes
  uint32_t split;
  uint32_t plan;
  uint32_t pixels;
};

enum OutcomeKind : uint32_t {
  kGave,  // of kCook a conversation
  kDocument,
  kLeftOut,
  kFault,
  kTooLong,  // it took more processor time than it may
  // Of kCook a conversation as texts with a zero between two: the key of the
  // turns, the two keys of each turn, and the two texts of each.
  kTurns,
};

struct Outcome {
  uint32_t kind;
  uint32_t text;   // bytes; of kFault and kTooLong the reason
  uint32_t media;  // bytes; of kPixels the crops
};

// The most processor time of a record or an image, beside kBaseSeconds, and of
// the recipe's own beginning.
inline constexpr double kBaseSeconds = 20;
inline constexpr double kBytesPerSecond = 100'000;
inline constexpr double kPixelBytesPerSecond = 10'000'000;
inline constexpr double kLoadSeconds = 300;
// The most memory of a process, and bytes of what it makes of a record.
inline constexpr uint64_t kMaxMemory = uint64_t{4} << 30;
inline constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

}  // namespace ballast::recipe_helper

#endif  // BALLAST_SERVER_RECIPE_PROTOCOL_H_
