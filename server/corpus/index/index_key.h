#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_

#include <string>

#include "server/corpus/index/digest.h"

namespace ballast {

// What an index is made from besides the data files, in three parts, so that a
// change rebuilds only what depends on it. Each names all that it covers, in
// any form: only equality counts.
struct IndexKey {
  // Where samples lie and what sizes their images have: whether images are
  // turned, say.
  std::string sizes;
  // Lengths of whole texts: tokenizer, template, token ids.
  std::string lengths;
  // What a text must keep within, and the sizes of its images beside it: bounds
  // of pixels and tokens.
  std::string limits;

  friend bool operator==(const IndexKey&, const IndexKey&) = default;
};

// The same as an index keeps it. `sizes` covers the format and the media root
// of the source too.
struct IndexDigests {
  Digest sizes = {};
  Digest lengths = {};
  Digest limits = {};

  friend bool operator==(const IndexDigests&, const IndexDigests&) = default;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_KEY_H_
