#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_

#include <string>

#include "server/corpus/index/digest.h"

namespace ballast {

// What an index depends on besides the data files, in three parts, so that a
// change rebuilds only what depends on it. Each names all that it covers, in
// any form: only equality counts.
struct IndexKey {
  // Places of samples and sizes of images: whether images are turned, say.
  std::string sizes;
  // Lengths of whole texts: tokenizer, template, token ids.
  std::string lengths;
  // Bounds of a text and of the image sizes beside it: pixels and tokens.
  std::string limits;

  friend bool operator==(const IndexKey&, const IndexKey&) = default;
};

// The key as an index holds it. `sizes` also covers the format and the media
// root of the source.
struct IndexDigests {
  Digest sizes = {};
  Digest lengths = {};
  Digest limits = {};

  friend bool operator==(const IndexDigests&, const IndexDigests&) = default;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_
