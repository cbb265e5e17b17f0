#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_

#include <string>

#include "server/corpus/index/digest.h"

namespace ballast {

// The inputs of an index besides the data files, in parts, so that a change
// rebuilds only what depends on it. Each part names all that it covers,
// in any form: only equality counts.
struct IndexKey {
  // Inputs of the samples' places and the images' sizes, e.g. whether images
  // are rotated.
  std::string sizes;
  // Inputs of the lengths of whole texts: tokenizer, template, token ids.
  std::string lengths;
  // Bounds of a text and of its image sizes: pixels and tokens.
  std::string limits;
  // What decides how videos are sampled. It is one more limit of a source that
  // has videos, and nothing to any other.
  std::string videos = "";

  friend bool operator==(const IndexKey&, const IndexKey&) = default;
};

// The key as stored in an index. `sizes` also covers the format and the media
// root of the source.
struct IndexDigests {
  Digest sizes = {};
  Digest lengths = {};
  Digest limits = {};

  friend bool operator==(const IndexDigests&, const IndexDigests&) = default;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_
