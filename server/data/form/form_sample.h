#ifndef BALLAST_SERVER_DATA_FORM_FORM_SAMPLE_H_
#define BALLAST_SERVER_DATA_FORM_FORM_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/data/form/unread.h"
#include "server/recipe/recipe.h"

namespace ballast {

// A sample as a form makes it of a record.
struct FormSample {
  CookedSample sample;
  // Media that the record has as text, in base64: the part after those of the
  // record, and so on.
  std::vector<std::string> media;
  // The keys that were read, for each key of the form; in the order of the
  // form, each once.
  struct Use {
    std::string key;   // of the form: "images"
    size_t entry = 0;  // of its list
    std::string path;  // of the record: "image"
  };
  std::vector<Use> used;
};

// Its media; the sample must outlive the result. Pure.
MediaOfSample MediaOf(const CookedSample& sample);

// A hash of all that it holds. Does not copy its text, which is as it was
// afterwards.
uint32_t HashOf(CookedSample* sample);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_SAMPLE_H_
